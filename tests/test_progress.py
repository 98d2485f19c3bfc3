"""What is said about curves, on the published ones and on curves made to show one thing."""

import numpy as np
import pytest

from vit.progress import Verdict, sentence, verdict
from vit.published import A_COSINE, A_FLAT, C, Published


def judge(run: Published) -> Verdict:
    epochs = np.array(sorted(run.test_accuracy))
    training = np.array([run.train_accuracy.get(e, np.nan) for e in epochs])
    return verdict(epochs, training, np.array([run.test_accuracy[e] for e in epochs]))


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
