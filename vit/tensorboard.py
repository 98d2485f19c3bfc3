"""A run's curves for TensorBoard: ``python -m vit.tensorboard RUN_OR_RUNS_DIR [--out DIR]``.

Everything is drawn over the run's training steps. Run it again to have what was trained since.
TensorBoard is no part of what the app needs; where it is missing, this command says so.
"""

import argparse
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from vit import runs
from vit.runs import RunError

FOLDER = "tensorboard"  # in the run's directory, unless another place is named
SUFFIX = ".sixty-five-tokens"  # of event files written here, which the next writing replaces
ALL = 2**62  # points within epochs: as many as there are

# Names in TensorBoard, those before a slash share a chart.
_WITHIN = {
    "loss": "loss/training",
    "accuracy": "accuracy/training",
    "learning_rate": "learning_rate",
    "grad_norm": "gradient_norm",
    "images_per_second": "images_per_second",
}
_SPLITS = {"train": "training", "val": "validation", "test": "test"}


def is_installed() -> bool:
    """Whether TensorBoard can be imported here."""
    return find_spec("tensorboard") is not None


def scalars(path: Path) -> Iterator[tuple[str, int, float]]:
    """A run's numbers as (name, step, value): losses in nats, accuracies from 0 to 1.

    The training curves, learning rate, gradient norm and speed are those recorded within epochs;
    a run without such a record has them once an epoch.

    Raises:
        RunError: if the record of the epochs is damaged.
    """
    rows, steps = runs.read_metrics(path), runs.read_steps(path, at_most=ALL)
    for key, name in _WITHIN.items():
        for step, value in zip(steps["step"], steps[key], strict=True):
            yield name, int(step), float(value)
    per_epoch = {
        f"{s}_{what}": f"{what}/{_SPLITS[s]}" for s in _SPLITS for what in ("loss", "accuracy")
    }
    if len(steps["step"]):
        per_epoch = {key: name for key, name in per_epoch.items() if name not in _WITHIN.values()}
    else:
        per_epoch |= {key: name for key, name in _WITHIN.items() if "/" not in name}
    for key, name in per_epoch.items():
        for row in rows:
            if row.get(key) is not None:
                yield name, row["step"], row[key]


def write_events(path: Path, folder: Path) -> int:
    """Write a run's :func:`scalars` into ``folder`` as event files, in the place of those that
    were written here before; returns how many there are.

    Raises:
        RunError: if TensorBoard is not installed, or the record of the epochs is damaged.
        OSError: if nothing can be written.
    """
    if not is_installed():
        raise RunError("TensorBoard is not installed here. Install it: pip install tensorboard")
    from torch.utils.tensorboard import SummaryWriter  # takes seconds, and is missing without it

    points = list(scalars(path))
    for old in folder.glob(f"events.out.tfevents.*{SUFFIX}"):
        old.unlink()
    with SummaryWriter(str(folder), filename_suffix=SUFFIX) as writer:
        for name, step, value in points:
            writer.add_scalar(name, value, step)
    return len(points)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns its exit code."""
    parser = argparse.ArgumentParser(
        "python -m vit.tensorboard", description="Write runs' curves as TensorBoard reads them."
    )
    parser.add_argument("path", metavar="RUN_OR_RUNS_DIR", type=Path)
    parser.add_argument(
        "--out", type=Path, help=f"one folder a run in here; default: {FOLDER}/ in each run"
    )
    given = parser.parse_args(arguments)
    path = given.path.resolve()
    found = [path / runs.METRICS, *sorted(path.glob(f"*/{runs.METRICS}"))]
    paths = [file.parent for file in found if file.is_file()]
    if not paths:
        parser.error(f"there is no run with curves in {path}. Name a run, or a folder of runs.")
    code = 0
    for path in paths:
        folder = given.out / path.name if given.out else path / FOLDER
        try:
            print(f"{write_events(path, folder):,} points in {folder}")
        except (RunError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            code = 2
    print(f"Look at them: tensorboard --logdir {given.out or given.path}")
    return code


if __name__ == "__main__":
    sys.exit(main())
