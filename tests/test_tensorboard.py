"""What TensorBoard reads is what the run recorded; its own reader says so."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from vit import runs, tensorboard
from vit.runs import RunError

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "checkpoints" / "digits"
Curve = list[tuple[int, float]]


def read(folder: Path) -> dict[str, Curve]:
    """All scalars of a folder as TensorBoard sees them: (step, value) by name."""
    events = EventAccumulator(str(folder), {"scalars": 0}).Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def assert_curve(found: Curve, expected: Curve) -> None:
    assert [step for step, _ in found] == [step for step, _ in expected]
    assert [value for _, value in found] == pytest.approx([value for _, value in expected])


def test_a_run_by_epochs(tmp_path: Path) -> None:
    run = shutil.copytree(DIGITS, tmp_path / "run")
    (run / runs.STEPS).unlink()  # as a run of before there was such a record
    count = tensorboard.write_events(run, tmp_path / "events")
    found = read(tmp_path / "events")
    rows = [json.loads(line) for line in (DIGITS / "metrics.jsonl").read_text().splitlines()]
    expected = {
        "loss/training": "train_loss",
        "loss/validation": "val_loss",
        "loss/test": "test_loss",
        "accuracy/training": "train_accuracy",
        "accuracy/validation": "val_accuracy",
        "accuracy/test": "test_accuracy",
        "learning_rate": "learning_rate",
        "gradient_norm": "grad_norm",
        "images_per_second": "images_per_second",
    }
    assert found.keys() == expected.keys()
    for name, key in expected.items():
        measured = [(row["step"], row[key]) for row in rows if row[key] is not None]
        assert_curve(found[name], measured)
    assert count == sum(map(len, found.values()))


def test_a_run_within_epochs(tmp_path: Path) -> None:
    row = dict.fromkeys(("train_loss", "train_accuracy", "val_loss", "val_accuracy"), 0.5)
    row |= {"test_loss": None, "test_accuracy": None, "learning_rate": 1.0, "grad_norm": 9.0}
    row |= {"images_per_second": 7.0, "seconds": 1.0}
    runs.write_metrics(tmp_path / "run", [{"epoch": 1, "step": 20_000, **row}])
    steps = [
        {
            "step": step,
            "epoch": step / 20_000,
            "loss": 2 - step / 20_000,
            "accuracy": step / 40_000,
            "grad_norm": 0.25,
            "learning_rate": step / 1e6,
            "images_per_second": 300.0,
        }
        for step in range(10, 20_001, 10)
    ]
    text = "".join(json.dumps(each) + "\n" for each in steps)
    (tmp_path / "run" / runs.STEPS).write_text(text + '{"step": 20')
    tensorboard.write_events(tmp_path / "run", tmp_path / "events")
    found = read(tmp_path / "events")
    for name, key in (
        ("loss/training", "loss"),
        ("accuracy/training", "accuracy"),
        ("learning_rate", "learning_rate"),
        ("gradient_norm", "grad_norm"),
        ("images_per_second", "images_per_second"),
    ):
        assert_curve(found[name], [(each["step"], each[key]) for each in steps])
    assert found["loss/validation"] == [(20_000, 0.5)] == found["accuracy/validation"]
    assert "loss/test" not in found, "the test split was not read"


def test_writing_again_replaces_what_was_written_and_nothing_else(tmp_path: Path) -> None:
    other = tmp_path / "events.out.tfevents.1.somebody.1.0"
    other.write_bytes(b"")
    for _ in range(2):
        tensorboard.write_events(DIGITS, tmp_path)
    assert other.exists() and len(list(tmp_path.iterdir())) == 2
    assert len(read(tmp_path)["loss/validation"]) == len(runs.read_metrics(DIGITS))


def test_the_command_takes_a_folder_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    runs_dir, out = tmp_path / "runs", tmp_path / "out"
    for name in ("one", "two"):
        runs.write_metrics(runs_dir / name, runs.read_metrics(DIGITS)[:2])
    (runs_dir / "damaged").mkdir()
    (runs_dir / "damaged" / runs.METRICS).write_text("{")
    assert tensorboard.main([str(runs_dir), "--out", str(out)]) == 2
    said = capsys.readouterr()
    assert "is damaged" in said.err and f"tensorboard --logdir {out}" in said.out
    assert {name: len(read(out / name)["loss/validation"]) for name in ("one", "two")} == {
        "one": 2,
        "two": 2,
    }
    assert tensorboard.main([str(runs_dir / "one")]) == 0
    assert len(read(runs_dir / "one" / "tensorboard")["loss/validation"]) == 2
    with pytest.raises(SystemExit) as ended:
        tensorboard.main([str(out)])
    assert ended.value.code == 2 and "no run with curves" in capsys.readouterr().err


def test_without_tensorboard_the_command_says_how_to_get_it(tmp_path: Path) -> None:
    """In a Python that does not find it; and it is not looked for before it is needed."""
    code = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'tensorboard' else find(name)\n"
        "from vit import tensorboard\n"
        "assert 'torch.utils.tensorboard' not in sys.modules\n"
        f"sys.exit(tensorboard.main([{str(DIGITS)!r}, '--out', {str(tmp_path)!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert (
        "error: TensorBoard is not installed here. Install it: pip install tensorboard"
        in done.stderr
    )
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RunError, match="damaged"):
        list(tensorboard.scalars(_damaged(tmp_path)))


def _damaged(folder: Path) -> Path:
    (folder / runs.METRICS).write_text("{")
    return folder
