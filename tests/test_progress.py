"""What is said about curves, on the published ones and on curves made to show one thing."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from vit.progress import Course, Verdict, course, happening, sentence, verdict
from vit.published import A_COSINE, A_FLAT, C, Published
from vit.recipes import digits, system_b, too_fast
from vit.runs import STEP_COLUMNS, read_metrics, read_steps
from vit.settings import Recipe
from vit.train import NonFiniteLoss, train

NOTHING = {column: np.empty(0) for column in STEP_COLUMNS}


def points(run: Published) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The epochs measured, training accuracy and test accuracy."""
    epochs = np.array(sorted(run.test_accuracy))
    training = np.array([run.train_accuracy.get(e, np.nan) for e in epochs])
    return epochs, training, np.array([run.test_accuracy[e] for e in epochs])


def judge(run: Published) -> Verdict:
    return verdict(*points(run))


def curve(*values: float) -> np.ndarray:
    return np.array(values)


def test_system_as_short_run_was_still_learning() -> None:
    judged = judge(A_FLAT)
    assert judged.kind == "underfitting"
    assert judged.gap == pytest.approx(0.687 - 0.680)
    # Over the last quarter, epochs 7.75 to 10, on the line from 61.8 % (5) to 68.0 % (10).
    assert judged.rise == pytest.approx((0.680 - 0.618) * (10 - 7.75) / 5)
    text = sentence(judged)
    assert "0.7 points above" in text
    assert "rising, by 2.8 points" in text
    assert "Train for longer" in text


def test_system_as_long_run_learned_by_heart() -> None:
    judged = judge(A_COSINE)
    assert judged.kind == "overfitting"
    assert judged.gap == pytest.approx(0.883 - 0.790)
    assert judged.apart_from == 40
    assert "9.3 points above" in sentence(judged)
    assert "overfitting" in sentence(judged)


def test_one_point_says_nothing() -> None:
    assert judge(C).kind == "short"
    assert sentence(judge(C)).startswith("Too few epochs")
    assert verdict(curve(), curve(), curve()).kind == "short"
    assert verdict(curve(1, 2), curve(np.nan, np.nan), curve(0.1, 0.2)).kind == "short"


def test_one_run_passes_through_both() -> None:
    epochs = np.arange(1, 11)
    training = np.linspace(0.50, 0.95, 10)
    held_out = np.minimum(np.linspace(0.50, 0.95, 10), 0.72)
    assert verdict(epochs[:5], training[:5], held_out[:5]).kind == "underfitting"
    judged = verdict(epochs, training, held_out)
    assert (judged.kind, judged.apart_from) == ("overfitting", 7)  # 0.80 against 0.72
    assert "since epoch 7" in sentence(judged)


def test_a_gap_that_closed_again_does_not_count() -> None:
    training, held_out = curve(0.5, 0.7, 0.71, 0.72), curve(0.4, 0.69, 0.71, 0.72)
    assert verdict(np.arange(1, 5), training, held_out).kind == "settled"


def test_level_curves_have_settled_also_when_training_is_the_harder_task() -> None:
    judged = verdict(
        np.arange(1, 6), curve(0.3, 0.6, 0.7, 0.7, 0.7), curve(0.4, 0.7, 0.8, 0.803, 0.8)
    )
    assert judged.kind == "settled"
    assert judged.gap == pytest.approx(-0.1)
    assert "10.0 points below" in sentence(judged)
    assert "levelled off: −0.3 points" in sentence(judged)


# ---- while it trains -----------------------------------------------------------------------------


def test_system_as_runs_as_they_would_be_told_of_while_they_trained() -> None:
    def said(run: Published) -> str:
        return happening(NOTHING, *points(run), classes=10, warmup=0, ended=False)

    assert said(A_FLAT) == (
        "Training and validation move together, 0.7 points apart, and validation accuracy has "
        "risen by 2.8 points over the last quarter of the epochs so far. It is not finished "
        "learning."
    )
    assert said(A_COSINE) == (
        "A gap is open: training accuracy is 9.3 points above validation accuracy, more than 5 "
        "since epoch 40, which hardly rises any more. The model learns its training pictures by "
        "heart (overfitting)."
    )
    assert said(C).startswith("Nothing is measured yet")
    ended = happening(NOTHING, *points(A_FLAT), classes=10, warmup=0, ended=True)
    assert ended == sentence(judge(A_FLAT))
    failed = happening(NOTHING, *points(A_FLAT), classes=10, warmup=0, ended=True, failed=True)
    assert failed == said(A_FLAT), "it did not end as it was meant to"


def test_harder_training_pictures_open_no_gap() -> None:
    epochs, training = np.arange(1.0, 6), np.array([0.3, 0.4, 0.5, 0.55, 0.6])
    rising = sentence(verdict(epochs, training, training + 0.2), ended=False)
    assert rising.startswith("Validation stays ahead of training by 20.0 points")
    assert rising.endswith("It is not finished learning.")
    level = sentence(verdict(epochs, training, np.full(5, 0.7)), ended=False)
    assert "has changed by only +0.0 points" in level and "little left to learn" in level


def test_a_gap_of_one_epoch_is_not_called_overfitting_while_it_trains() -> None:
    epochs, held_out = np.arange(1.0, 6), np.array([0.3, 0.4, 0.5, 0.6, 0.7])
    once = verdict(epochs, held_out + np.array([0, 0.01, 0, 0.02, 0.09]), held_out)
    assert (once.kind, once.apart_from, once.lasting) == ("overfitting", 5, False)
    assert sentence(once, ended=False).startswith("In the last epoch training accuracy is 9.0")
    twice = verdict(epochs, held_out + np.array([0, 0.01, 0, 0.08, 0.09]), held_out)
    assert (twice.apart_from, twice.lasting) == (4, True)
    text = sentence(twice, ended=False)
    assert text.startswith("A gap is opening") and "more than 5 since epoch 4" in text
    assert "still rises, by 10.0 points" in text


def record(loss: np.ndarray, grad_norm: float | np.ndarray = 1.0) -> dict[str, np.ndarray]:
    """A live record: a line every ten steps, in epochs of twenty."""
    steps = 10.0 * np.arange(1, len(loss) + 1)
    norms = np.broadcast_to(grad_norm, loss.shape)
    return {"step": steps, "epoch": steps / 20, "loss": loss, "grad_norm": norms}


def words(steps: dict[str, np.ndarray], ended: bool = False) -> str:
    none = np.empty(0)
    return happening(steps, none, none, none, classes=10, warmup=1, ended=ended)


GUESS = np.log(10)


def test_before_anything_is_measured() -> None:
    assert "near ln 10 ≈ 2.303" in words(NOTHING)
    assert words(NOTHING, ended=True) == "It ended before anything was measured."


@pytest.mark.parametrize(
    ("lines", "why"),
    [(1, "warms up until epoch 1"), (3, "it has just begun"), (6, "it has just begun")],
)
def test_the_first_steps_say_nothing(lines: int, why: str) -> None:
    text = words(record(np.full(lines, GUESS)))
    assert "too early" in text and why in text
    assert "ended before more could be told" in words(record(np.full(lines, GUESS)), ended=True)


def test_a_loss_that_begins_to_fall_is_not_said_to_fall_too_slowly() -> None:
    loss = GUESS - 0.006 * np.arange(10)
    assert course(record(loss), 10, 1).trend == "early"
    assert f"it has begun to fall, from {GUESS:.3f}" in words(record(loss))


def test_a_loss_that_has_left_guessing_waits_for_validation() -> None:
    text = words(record(np.linspace(GUESS, 1.5, 40)))
    assert text.startswith("It learns: the loss has come down from 2.30 to ")
    assert "once two epochs are done" in text


@pytest.mark.parametrize(
    ("loss", "norm", "trend"),
    [
        (np.r_[2.41, 2.38, np.full(18, 2.33)], np.r_[4.0, 1.0, np.full(18, 0.2)], "too high"),
        (np.r_[2.41, 2.38, np.full(18, 2.33)], np.full(20, 2.7), "guessing"),
        (np.r_[np.linspace(2.3, 1.5, 10), np.full(10, 2.31)], np.ones(20), "too high"),
        (2.303 - 1e-5 * np.arange(20), np.ones(20), "too low"),
        (2.303 + 1e-3 * np.cos(np.arange(20)), np.ones(20), "guessing"),
        (np.r_[2.3, 2.5, 6.0, 40.0], np.r_[1.0, 9.0, 80.0, 900.0], "diverged"),
        (np.linspace(2.3, 1.9, 20), np.ones(20), "moving"),
    ],
)
def test_why_a_loss_does_not_fall(loss: np.ndarray, norm: np.ndarray, trend: str) -> None:
    assert course(record(loss, norm), 10, 1).trend == trend


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("progress")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def trained(recipe: Recipe, folder: Path) -> Path:
    train(recipe, folder / recipe.name, device=torch.device("cpu"))
    return folder / recipe.name


def seen(path: Path, warmup: float = 1) -> Course:
    return course(read_steps(path), 10, warmup)


def say(path: Path, warmup: float = 1) -> str:
    rows = read_metrics(path)
    columns = ("epoch", "train_accuracy", "val_accuracy")
    epochs, training, held_out = (np.array([row[key] for row in rows]) for key in columns)
    steps = read_steps(path)
    return happening(steps, epochs, training, held_out, classes=10, warmup=warmup, ended=False)


SLOW = replace(too_fast(), name="too_slow", learning_rate=too_fast().learning_rate / 1e5, epochs=5)


def test_real_runs_are_told_apart(folder: Path) -> None:
    fast = trained(replace(too_fast(), epochs=6), folder)
    assert seen(fast).trend == "too high"
    assert "Lower the learning rate" in say(fast)
    assert f"thrown up to {max(read_steps(fast)['loss']):.2f}" in say(fast)

    slow = trained(SLOW, folder)
    assert seen(slow).trend == "too low"
    assert "Raise the learning rate" in say(slow)

    noise = trained(system_b(), folder)
    assert seen(noise, warmup=0).trend == "guessing"
    assert "do not say what their labels are" in say(noise, warmup=0)

    good = trained(replace(digits(), epochs=8), folder)
    assert seen(good).trend == "moving"
    assert "validation" in say(good)

    few = replace(digits(), name="few", share=0.1, epochs=40, crop_padding=0, label_smoothing=0.0)
    assert "by heart (overfitting)" in say(trained(few, folder))


def test_a_real_run_that_diverges(folder: Path) -> None:
    wild = replace(digits(), name="wild", learning_rate=100.0, muon_learning_rate=100.0, epochs=3)
    with pytest.raises(NonFiniteLoss):
        trained(wild, folder)
    assert "it diverged" in words(read_steps(folder / "wild"), ended=True)
