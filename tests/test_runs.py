"""Damaged run directories are refused in one sentence, whatever is wrong with them."""

import json
import shutil
import time
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
    untrained = load_run(run, 0)  # all logits alike: every temperature is as good
    assert (untrained.temperature, untrained.calibrated_on) == (1.0, 143)


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


# ---- the live record -----------------------------------------------------------------------------


def write_steps(run: Path, count: int) -> np.ndarray:
    """A record of ``count`` lines; returns what it holds, (count, columns)."""
    values = np.random.default_rng(5).uniform(0.1, 3, (count, len(runs.STEP_COLUMNS)))
    values[:, 0] = 10 * np.arange(1, count + 1)
    for row in values.tolist():
        runs.append_step(run, row)
    return values


def read_table(run: Path, at_most: int = 500) -> np.ndarray:
    columns = runs.read_steps(run, at_most)
    assert tuple(columns) == runs.STEP_COLUMNS
    assert {(column.dtype, column.ndim) for column in columns.values()} == {(np.dtype("f8"), 1)}
    return np.stack(list(columns.values()), axis=1)


def test_the_live_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_table(tmp_path).shape == (0, 7)
    values = write_steps(tmp_path, 500)
    assert (read_table(tmp_path) == values).all()
    first = json.loads((tmp_path / runs.STEPS).read_text().splitlines()[0])
    assert first["step"] == 10 and type(first["step"]) is int


@pytest.mark.parametrize("count", [501, 999, 1000, 1001, 1700])
def test_a_long_record_is_averaged_to_what_a_page_can_draw(tmp_path: Path, count: int) -> None:
    values = write_steps(tmp_path, count)
    each = -(-count // 500)
    groups = [values[start : start + each] for start in range(0, count, each)]
    expected = np.array([[*group[-1, :2], *group[:, 2:].mean(axis=0)] for group in groups])
    table = read_table(tmp_path)
    assert 250 <= len(table) <= 500
    np.testing.assert_allclose(table, expected, rtol=1e-12)


def test_points_that_were_drawn_stay_as_the_record_grows(tmp_path: Path) -> None:
    write_steps(tmp_path, 41)
    before = read_table(tmp_path, 20)[:13]  # three lines each, and a rest of two
    write_steps(tmp_path, 5)
    assert (read_table(tmp_path, 20)[:13] == before).all()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[1, 2]",
        b"null",
        b"7",
        b"\xff\x00\x93",
        b"[" * 100_000,
        b'{"step": 15}',
        b'{"step": 1e999, "epoch": 1, "loss": 1, "accuracy": 1, "grad_norm": 1, '
        b'"learning_rate": 1, "images_per_second": 1}',
        b'{"step": null, "epoch": 1, "loss": 1, "accuracy": 1, "grad_norm": 1, '
        b'"learning_rate": [], "images_per_second": {}}',
        b'{"step": 1%s, "epoch": 1, "loss": 1, "accuracy": 1, "grad_norm": 1, '
        b'"learning_rate": 1, "images_per_second": 1}' % (b"0" * 400),
        b"1" * 10_000,
    ],
    ids=lambda line: line[:12],
)
@pytest.mark.parametrize("place", [0, 13, 30])
def test_a_damaged_line_costs_no_other(tmp_path: Path, line: bytes, place: int) -> None:
    values = write_steps(tmp_path, 30)
    file = tmp_path / runs.STEPS
    lines = file.read_bytes().splitlines()
    file.write_bytes(b"\n".join([*lines[:place], line, *lines[place:], b""]))
    assert (read_table(tmp_path) == values).all()
    runs.cut_steps(tmp_path, 300)
    assert file.read_bytes() == b"\n".join([*lines, b""])


def test_a_half_written_line_is_left_out_until_it_is_whole(tmp_path: Path) -> None:
    values = write_steps(tmp_path, 30)
    file = tmp_path / runs.STEPS
    whole = file.read_bytes()
    for cut in range(1, 200):
        file.write_bytes(whole[:-cut])
        left = whole[:-cut].count(b"\n")
        assert (read_table(tmp_path) == values[:left]).all()


def test_going_on_cuts_off_what_is_behind(tmp_path: Path) -> None:
    values = write_steps(tmp_path, 30)
    state = (tmp_path / runs.STEPS).stat()
    runs.cut_steps(tmp_path, 300)
    assert (tmp_path / runs.STEPS).stat() == state, "nothing to cut off, nothing written"
    runs.cut_steps(tmp_path, 119)
    assert (read_table(tmp_path) == values[:11]).all()
    runs.cut_steps(tmp_path, 0)
    assert (tmp_path / runs.STEPS).read_bytes() == b""
    runs.cut_steps(tmp_path / "nowhere", 0)
    assert not (tmp_path / "nowhere").exists()


def test_a_long_record_is_read_in_a_blink(tmp_path: Path) -> None:
    """A tick of the page may cost 50 ms in all; this is a CIFAR-10 run of 50 epochs."""
    write_steps(tmp_path, 2_000)
    started = time.process_time()
    for _ in range(10):
        runs.read_steps(tmp_path)
    assert (time.process_time() - started) / 10 < 0.03
