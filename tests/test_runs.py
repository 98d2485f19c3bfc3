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


def test_the_temperature_is_told_by_the_weights_own_file(run: Path) -> None:
    weights, metadata = runs.load_weights(run / runs.MODEL)
    plain = {"epoch": metadata["epoch"]}
    runs.write_weights(run / runs.MODEL, weights, plain)
    assert (load_run(run).temperature, load_run(run).calibrated_on) == (1.0, 0)
    tempered = plain | {"temperature": repr(1.0731), "calibrated_on": "144"}
    runs.write_weights(run / runs.MODEL, weights, tempered)
    assert (load_run(run).temperature, load_run(run).calibrated_on) == (1.0731, 144)
    assert (load_run(run, 0).temperature, load_run(run, 0).calibrated_on) == (1.0, 0)


@pytest.mark.parametrize(
    "metadata",
    [
        {"temperature": "warm"},
        {"temperature": "0"},
        {"temperature": "-1"},
        {"temperature": "nan"},
        {"temperature": "inf"},
        {"calibrated_on": "-1"},
        {"calibrated_on": "some"},
    ],
    ids=str,
)
def test_a_temperature_that_makes_no_sense(run: Path, metadata: dict[str, str]) -> None:
    weights = load_file(run / runs.MODEL)
    save_file(weights, run / runs.MODEL, {"epoch": "3"} | metadata)
    with pytest.raises(RunError, match="temperature cannot be used.*train the run again"):
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


CHANGES = {
    "none": {"accuracy": 0.9, "confidence": 0.8},
    "blur": {"accuracy": 0.25, "confidence": 0.5},
}


def test_what_changes_do_is_true_of_the_weights_it_was_measured_with(run: Path) -> None:
    (run / runs.ROBUSTNESS).unlink(missing_ok=True)
    assert runs.read_robustness(run) is None
    runs.write_robustness(run, 30, CHANGES, "abc")
    read = runs.read_robustness(run)
    assert (read["changes"], read["epoch"], read["fingerprint"]) == (CHANGES, 30, "abc")
    weights, metadata = runs.load_weights(run / runs.MODEL)
    weights["head.bias"] = weights["head.bias"] + 1
    runs.write_weights(run / runs.MODEL, weights, metadata)
    assert runs.read_robustness(run) is None, "other weights of the same epoch"


@pytest.mark.parametrize(
    "changes",
    [
        None,
        [],
        {},
        {"blur": {"accuracy": 0.5, "confidence": 0.5}},
        {"none": 0.5},
        {"none": {"accuracy": 0.5}},
        {"none": {"accuracy": 1.5, "confidence": 0.5}},
        {"none": {"accuracy": "0.5", "confidence": 0.5}},
        {"none": {"accuracy": float("nan"), "confidence": 0.5}},
    ],
    ids=str,
)
def test_changes_that_make_no_sense(run: Path, changes: object) -> None:
    runs.write_robustness(run, 30, changes, "abc")
    with pytest.raises(RunError, match="damaged.*--changes"):
        runs.read_robustness(run)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", "[" * 200_000], ids=lambda t: t[:5])
def test_a_damaged_record_of_changes(run: Path, text: str) -> None:
    (run / runs.ROBUSTNESS).write_text(text)
    with pytest.raises(RunError, match="damaged.*--changes"):
        runs.read_robustness(run)
