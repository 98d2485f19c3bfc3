"""The temperature against a search over a grid, and what folding it into a model leaves alone."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from vit import load_run, mistakes, runs, train
from vit.calibration import LIMIT, calibrate, fit_temperature, fold, unscaled
from vit.config import ViTConfig
from vit.data import load_split, validation_split
from vit.evaluate import predict_logits
from vit.model import VisionTransformer
from vit.recipes import debug


def made_up(count: int, temperature: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits (count, 10), and labels drawn by softmax(logits / temperature)."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(count, 10, generator=generator)
    labels = torch.multinomial((logits / temperature).softmax(1), 1, generator=generator)
    return logits, labels.squeeze(1)


def cross_entropy(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    scaled = logits.astype(np.float64) / temperature
    return float(np.mean(np.log(np.exp(scaled).sum(1)) - scaled[np.arange(len(labels)), labels]))


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
def test_no_other_temperature_does_better(temperature: float) -> None:
    logits, labels = made_up(300, temperature)
    fitted = fit_temperature(logits, labels)
    grid = np.exp(np.linspace(-math.log(LIMIT), math.log(LIMIT), 6001))  # steps of 0.1 %
    losses = [cross_entropy(logits.numpy(), labels.numpy(), t) for t in grid]
    assert fitted == pytest.approx(grid[np.argmin(losses)], rel=1.1e-3)
    assert cross_entropy(logits.numpy(), labels.numpy(), fitted) <= min(losses) + 1e-12


@pytest.mark.parametrize("temperature", [0.5, 1.7])
def test_what_the_labels_were_drawn_by_is_found_again(temperature: float) -> None:
    with torch.inference_mode():
        fitted = fit_temperature(*made_up(100_000, temperature))
    assert fitted == pytest.approx(temperature, rel=0.02)


def test_scores_shifted_by_a_constant_give_the_same_temperature() -> None:
    logits, labels = made_up(500, 1.5)
    shifted = logits.double() + 1000 * torch.arange(500)[:, None]
    assert fit_temperature(shifted, labels) == pytest.approx(
        fit_temperature(logits, labels), rel=1e-9
    )


def test_where_no_temperature_is_the_best_it_stays_1() -> None:
    logits, _ = made_up(50, 1.0)
    assert fit_temperature(logits, logits.argmax(1)) == 1, "surer would always be better"
    assert fit_temperature(logits, logits.argmin(1)) == 1, "less sure would always be better"
    assert fit_temperature(torch.zeros(50, 10), torch.arange(50) % 10) == 1


def test_a_folded_model_gives_its_logits_over_the_temperature() -> None:
    torch.manual_seed(0)
    config = ViTConfig(embed_dim=16, depth=2, num_heads=2)
    model, folded = VisionTransformer(config).eval(), VisionTransformer(config).eval()
    torch.nn.init.normal_(model.head.bias)
    weights = model.state_dict()
    before = {name: tensor.clone() for name, tensor in weights.items()}
    folded.load_state_dict(fold(weights, 1.37))
    images = torch.randn(5, 3, 32, 32)
    with torch.inference_mode():
        plain, divided = model(images), folded(images)
    torch.testing.assert_close(divided, plain / 1.37, atol=1e-6, rtol=0)
    assert (divided.argmax(1) == plain.argmax(1)).all()
    assert all(torch.equal(weights[name], before[name]) for name in before), "left as they were"


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_the_probabilities_without_the_temperature(temperature: float) -> None:
    logits, _ = made_up(200, 1.0)
    logits[0, 3] = 400.0  # all others are 0 in float32
    stored = (logits / temperature).softmax(1).numpy()
    expected = logits.double().softmax(1).numpy()
    np.testing.assert_allclose(unscaled(stored, temperature), expected, atol=1e-5)
    np.testing.assert_allclose(unscaled(stored, temperature).sum(1), 1)


# ---- the snapshots of a run ---------------------------------------------------------------------

RECIPE = replace(debug(), epochs=4, learning_rate=3e-3, keep="last")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run that has ended, and the same run just before: no temperature anywhere."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "finish", lambda *_: None)
        train.train(RECIPE, folder / "before", seed=3, data_dir=folder)
    shutil.copytree(folder / "before", folder / "after")
    train.train(RECIPE, folder / "after", seed=3, data_dir=folder, resume=True)
    return folder / "before", folder / "after"


@pytest.fixture(scope="module")
def held_out() -> tuple[Tensor, Tensor]:
    """The validation pictures, which nothing learned from, and their classes."""
    training = load_split("digits", "train")
    _, indices = validation_split(len(training.labels), RECIPE.validation, training.labels)
    images, labels = training.images[indices], training.labels[indices]
    return torch.from_numpy(np.array(images)), torch.from_numpy(np.array(labels))


def logits_of(path: Path, epoch: int | None, images: Tensor) -> Tensor:
    run = load_run(path, epoch)
    return predict_logits(run.model, images, run.mean, run.std)


def test_every_snapshot_is_as_honest_as_one_temperature_can_make_it(
    trained: tuple[Path, Path], held_out: tuple[Tensor, Tensor]
) -> None:
    before, after = trained
    images, labels = held_out
    errors = []
    for epoch in runs.list_epochs(before):
        run, plain = load_run(after, epoch), logits_of(before, epoch, images)
        now = logits_of(after, epoch, images)
        assert run.calibrated_on == len(labels) and load_run(before, epoch).calibrated_on == 0
        torch.testing.assert_close(now * run.temperature, plain, atol=0.01, rtol=2e-3)  # half
        numbers = plain.numpy(), labels.numpy()
        losses = [cross_entropy(*numbers, t * run.temperature) for t in (0.98, 1, 1.02)]
        assert losses[1] == min(losses) <= cross_entropy(*numbers, 1)
        errors.append(
            [
                mistakes.reliability(labels.numpy(), logits.softmax(1).numpy()).expected_error
                for logits in (plain, now)
            ]
        )
    without, with_it = np.mean(errors, axis=0)
    assert with_it < without
    assert errors[-1][1] < errors[-1][0]


def test_a_snapshot_of_the_kept_epoch_says_what_the_kept_weights_say(
    trained: tuple[Path, Path], held_out: tuple[Tensor, Tensor]
) -> None:
    before, after = trained
    kept = load_run(after)
    snapshot = load_run(after, kept.epoch)
    assert kept.epoch == 4 and kept.temperature != 1
    assert snapshot.temperature == pytest.approx(kept.temperature, rel=1e-3)
    now, plain = (
        (logits_of(path, None, held_out[0]).softmax(1), logits_of(path, 4, held_out[0]).softmax(1))
        for path in (after, before)
    )
    torch.testing.assert_close(*now, atol=2e-3, rtol=0)
    assert (now[0] - plain[0]).abs().max() > 0.02, "the temperature makes a difference"
    stored = load_file(runs.snapshot_path(after, 4))
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    unchanged = load_file(runs.snapshot_path(before, 4))
    assert {n for n in stored if not torch.equal(stored[n], unchanged[n])} == {
        *("head.weight", "head.bias")
    }


def test_a_model_without_an_answer_stays_without_one(
    trained: tuple[Path, Path], tmp_path: Path
) -> None:
    path = shutil.copytree(trained[0], tmp_path / "run")
    weights = load_run(path, 0).model.state_dict()
    weights |= {name: 0 * weights[name] for name in ("head.weight", "head.bias")}
    runs.write_snapshot(path, 0, weights)
    images = torch.zeros(20, 1, 8, 8, dtype=torch.uint8)
    calibrate(path, 0, images, torch.arange(20) % 10)
    run = load_run(path, 0)
    assert (run.temperature, run.calibrated_on) == (1, 20)
    assert not run.model.head.weight.any()


def test_nothing_is_divided_twice(trained: tuple[Path, Path], tmp_path: Path) -> None:
    """A run that was told to stop, ended, and then goes on: what it has by then is left alone."""
    after, path = trained[1], tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        # Asked to stop while the first epoch is being written down.
        write = runs.write_metrics
        patch.setattr(runs, "write_metrics", lambda *row: (write(*row), (path / runs.STOP).touch()))
        train.train(RECIPE, path, seed=3, data_dir=tmp_path)
    assert len(runs.read_metrics(path)) == 1
    assert load_run(path, 1).calibrated_on and load_run(path).calibrated_on
    train.train(RECIPE, path, seed=3, data_dir=tmp_path, resume=True)
    for epoch in (None, 1, 2, 3, 4):
        ours, theirs = (load_run(each, epoch) for each in (path, after))
        assert (ours.temperature, ours.calibrated_on) == (theirs.temperature, theirs.calibrated_on)
        for name, tensor in ours.model.state_dict().items():
            assert torch.equal(tensor, theirs.model.state_dict()[name])


def test_a_damaged_snapshot_does_not_keep_a_run_from_ending(
    trained: tuple[Path, Path], tmp_path: Path
) -> None:
    path = shutil.copytree(trained[0], tmp_path / "run")
    runs.snapshot_path(path, 2).write_bytes(b"damaged")
    train.train(RECIPE, path, seed=3, data_dir=tmp_path, resume=True)
    assert runs.read_status(path)["state"] == "finished"
    assert runs.snapshot_path(path, 2).read_bytes() == b"damaged"
    assert load_run(path, 3).calibrated_on and load_run(path).calibrated_on
