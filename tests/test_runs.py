"""Damaged run directories are refused in one sentence, whatever is wrong with them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.pages.made import ROOT
from vit import load_run, runs
from vit.runs import RunError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "checkpoints/digits", tmp_path / "run"))


def test_a_whole_run_opens_kept_and_at_every_snapshot(run: Path) -> None:
    kept = load_run(run)
    assert not kept.model.training and not any(p.requires_grad for p in kept.model.parameters())
    for epoch in runs.list_epochs(run):
        assert load_run(run, epoch).epoch == epoch
    assert load_run(run, 0).model.head.weight.count_nonzero() == 0  # untrained


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "null",
        "[" * 200_000,
        '{"recipe": "x"}',
        '{"recipe": {"dataset": 1}}',
    ],
    ids=lambda text: text[:12],
)
def test_damaged_settings(run: Path, text: str) -> None:
    (run / runs.CONFIG).write_text(text)
    with pytest.raises(RunError, match="damaged"):
        load_run(run)


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"depth": 0}},
        {"model": {"surprise": 1}},
        {"model": 3},
        {"class_names": ["one"]},
        {"mean": []},
        {"std": [0.0]},
        {"std": [float("nan")]},
        {"mean": ["x"]},
    ],
    ids=str,
)
def test_settings_that_do_not_fit(run: Path, changes: dict[str, object]) -> None:
    config = json.loads((run / runs.CONFIG).read_text())
    runs.write_json(run / runs.CONFIG, config | changes)
    with pytest.raises(RunError, match="Train the run again"):
        load_run(run)


def test_weights_that_cannot_be_used(run: Path) -> None:
    file = run / runs.MODEL
    weights = load_file(file)
    for spoilt, metadata in (
        ({**weights, "head.bias": torch.full((10,), float("nan"))}, {"epoch": "3"}),
        ({**weights, "head.bias": torch.zeros(9)}, {"epoch": "3"}),
        ({name: t for name, t in weights.items() if name != "cls_token"}, {"epoch": "3"}),
        (weights, {}),
        (weights, {"epoch": "x"}),
    ):
        save_file(spoilt, file, metadata)
        with pytest.raises(RunError, match="again"):
            load_run(run)
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(RunError, match="damaged"):
        load_run(run)
    file.unlink()
    with pytest.raises(RunError, match="missing"):
        load_run(run)
    with pytest.raises(RunError, match="epochs kept are"):
        load_run(run, epoch=999)


@pytest.mark.parametrize(
    ("labels", "probabilities"),
    [
        (np.zeros(0), np.zeros((0, 10))),
        (np.zeros(3), np.zeros((4, 10))),
        (np.full(4, 99), np.full((4, 10), 0.1)),
        (np.full(4, -1), np.full((4, 10), 0.1)),
        (np.zeros(4), np.full((4, 10), np.nan)),
        (np.zeros(4), np.zeros(4)),
    ],
)
def test_predictions_that_make_no_sense(
    run: Path, labels: np.ndarray, probabilities: np.ndarray
) -> None:
    np.savez(run / runs.PREDICTIONS, labels=labels, probabilities=probabilities, fingerprint="f")
    with pytest.raises(RunError, match="damaged"):
        runs.read_predictions(run)


def test_predictions_cut_off_or_of_another_kind(run: Path) -> None:
    file = run / runs.PREDICTIONS
    whole = file.read_bytes()
    for content in (b"", whole[:5000], b"PK\3\4hello", whole[:200] + bytes(500) + whole[700:]):
        file.write_bytes(content)
        with pytest.raises(RunError, match="damaged"):
            runs.read_predictions(run)
    with file.open("wb") as stream:
        np.save(stream, np.zeros(3))
    with pytest.raises(RunError, match="damaged"):
        runs.read_predictions(run)


def test_predictions_come_back_as_they_were_written(tmp_path: Path) -> None:
    labels = np.array([0, 2, 1])
    probabilities = np.random.default_rng(0).dirichlet(np.ones(3), 3).astype(np.float32)
    runs.write_predictions(tmp_path, labels, probabilities, "abc")
    read = runs.read_predictions(tmp_path)
    assert read["labels"].tolist() == [0, 2, 1] and read["fingerprint"] == "abc"
    assert (read["probabilities"] == probabilities).all()
