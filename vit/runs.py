"""The run directory: the one place where training, the command line and the app meet.

    config.json          recipe, model, class names, channel mean and std, seed, versions
    model.safetensors    the kept weights, float32; its metadata say of which epoch they are, and
                         what temperature was folded into them (see vit/calibration.py)
    metrics.jsonl        one row for each epoch
    steps.jsonl          one line for about ten steps, to be watched live; nothing depends on it
    snapshots/           epoch-NNNN.safetensors, half precision
    predictions.npz      labels and probabilities on the test split, with its fingerprint
    robustness.json      accuracy on the test split after each change of vit/robustness.py
    status.json          what the training process is doing, replaced atomically
    resume.safetensors   what exact resuming needs (never committed)
    trainer.lock         held by the training process as long as it lives (see vit/claims.py)
    request.json         what was asked for in the app (see vit/jobs.py): settings, name, tags
    pause, stop          empty; while there, a wish that the training process heeds
    train.log            what a training process that the app started had to say

Shipped runs in ``checkpoints/`` and the visitor's own in ``runs/`` look the same. Nothing here is
a pickle. Every file but ``steps.jsonl`` and the log, which grow at their ends, is written beside
its place and moved there, so a reader never sees half of one, and a crash leaves the last whole
one.
"""

import hashlib
import json
import math
import re
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vit.config import ViTConfig
from vit.files import write_atomically
from vit.model import VisionTransformer

CONFIG = "config.json"
MODEL = "model.safetensors"
METRICS = "metrics.jsonl"
STEPS = "steps.jsonl"
PREDICTIONS = "predictions.npz"
ROBUSTNESS = "robustness.json"
STATUS = "status.json"
RESUME = "resume.safetensors"
LOCK = "trainer.lock"
REQUEST = "request.json"
PAUSE, STOP = "pause", "stop"
LOG = "train.log"
STEP_COLUMNS = (
    *("step", "epoch", "loss", "accuracy"),
    *("grad_norm", "learning_rate", "images_per_second"),
)
_SNAPSHOT = re.compile(r"epoch-(\d{4,})\.safetensors")


class RunError(ValueError):
    """A run directory that cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Run:
    """A trained model with what is needed to use it.

    Attributes:
        mean, std: per channel, on the scale 0 … 1.
        epoch: the one whose weights the model holds.
        temperature: what the logits of those weights were divided by, in the model's head, to make
            its probabilities honest (see :mod:`vit.calibration`); 1 where nobody has.
        calibrated_on: on how many pictures it was fitted; 0 where none was.
    """

    path: Path
    config: dict[str, Any]
    model: VisionTransformer
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    epoch: int
    temperature: float
    calibrated_on: int

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def model_config(self) -> ViTConfig:
        return self.model.config


def load_run(path: str | Path, epoch: int | None = None) -> Run:
    """Open a run with its kept weights, or as it was after ``epoch``.

    The model is in evaluation mode and frozen, so that threads may share it.

    Raises:
        RunError: if the directory is no run, lacks that snapshot, or holds damaged files.
    """
    path = Path(path)
    config = read_config(path)
    try:
        model_config = ViTConfig.from_dict(config["model"])
        class_names = tuple(map(str, config["class_names"]))
        mean, std = (tuple(map(float, config[key])) for key in ("mean", "std"))
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"The settings in {path / CONFIG} cannot be used: {error} Train the run again, "
            f"or choose another."
        ) from error
    if len(class_names) != model_config.num_classes or not (
        len(mean) == len(std) == model_config.in_chans
    ):
        raise RunError(
            f"The settings in {path / CONFIG} do not fit each other: {len(class_names)} class "
            f"names, {len(mean)} means and {len(std)} deviations for {model_config.num_classes} "
            f"classes and {model_config.in_chans} channels. Train the run again."
        )
    if not (np.isfinite([*mean, *std]).all() and min(std) > 0):
        raise RunError(
            f"The settings in {path / CONFIG} cannot be used: means must be numbers and "
            f"deviations above 0. Train the run again."
        )
    file = path / MODEL if epoch is None else snapshot_path(path, epoch)
    weights, metadata = load_weights(file)
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise RunError(
            f"{file} holds weights that are not finite numbers: training went wrong there. "
            f"Train the run again, with a lower learning rate."
        )
    try:
        with torch.device("meta"):
            model = VisionTransformer(model_config)
        model.load_state_dict(weights, assign=True)
        stored_epoch = int(metadata["epoch"])
    except (RuntimeError, TypeError, KeyError, ValueError) as error:
        raise RunError(
            f"The weights in {file} are not those of the model in its {CONFIG}. "
            f"Restore both from one run, or train it again."
        ) from error
    try:
        temperature = float(metadata.get("temperature", 1))
        calibrated_on = int(metadata.get("calibrated_on", 0))
        if not (0 < temperature < math.inf and calibrated_on >= 0):
            raise ValueError("a temperature is above 0, and a number of pictures at least 0.")
    except ValueError as error:
        raise RunError(
            f"What {file} says of its temperature cannot be used: {error} Restore the file, or "
            f"train the run again."
        ) from error
    model.eval().requires_grad_(False)
    return Run(
        *(path, config, model, class_names, mean, std, stored_epoch),
        temperature=temperature,
        calibrated_on=calibrated_on,
    )


def read_config(path: Path) -> dict[str, Any]:
    """The settings of a run.

    Raises:
        RunError: if there is no such file or it is damaged.
    """
    try:
        config = json.loads((path / CONFIG).read_text())
    except FileNotFoundError as error:
        raise RunError(
            f"{path} is not a run: it has no {CONFIG}. Name a folder that "
            f"`python -m vit.train` wrote, such as checkpoints/cifar10."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(
            f"{path / CONFIG} is damaged ({error}). Restore it, or train the run again."
        ) from error
    recipe = config.get("recipe") if isinstance(config, dict) else None
    if not isinstance(recipe, dict) or not isinstance(recipe.get("dataset"), str):
        raise RunError(
            f"{path / CONFIG} is damaged: it names no recipe with a data set. Restore it, or "
            f"train the run again."
        )
    return dict(config)


def load_weights(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors of a safetensors file, in float32, and its metadata.

    Raises:
        RunError: if the file is missing or damaged.
    """
    try:
        with safe_open(file, "pt") as stored:
            tensors = {name: stored.get_tensor(name).float() for name in stored.keys()}  # noqa: SIM118
            return tensors, stored.metadata() or {}
    except FileNotFoundError as error:
        raise RunError(
            f"{file} is missing. The run may still be in its first epoch, or the snapshot was "
            f"not kept: epochs kept are {list_epochs(file.parent.parent) or 'none'}."
            if file.parent.name == "snapshots"
            else f"{file} is missing. The run may still be in its first epoch; else train it again."
        ) from error
    except (OSError, SafetensorError) as error:
        raise RunError(
            f"{file} is damaged ({error}). Restore it, or train the run again."
        ) from error


def snapshot_path(path: Path, epoch: int) -> Path:
    """Where a run keeps its weights after an epoch."""
    return path / "snapshots" / f"epoch-{epoch:04d}.safetensors"


def list_epochs(path: str | Path) -> list[int]:
    """Epochs of which the run kept a snapshot, in order; 0 is the untrained model."""
    names = (_SNAPSHOT.fullmatch(file.name) for file in (Path(path) / "snapshots").glob("*"))
    return sorted(int(match[1]) for match in names if match)


def is_run(path: Path) -> bool:
    """Whether the directory holds a model that can be opened."""
    return (path / CONFIG).is_file() and (path / MODEL).is_file()


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics, one for each epoch; none if there are none yet.

    Raises:
        RunError: if the file is damaged.
    """
    file = Path(path) / METRICS
    if not file.exists():
        return []
    try:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        if not all(isinstance(row, dict) and type(row.get("epoch")) is int for row in rows):
            raise ValueError("a row names no epoch")
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{file} is damaged ({error}). Train the run again.") from error
    return rows


def read_steps(path: str | Path, at_most: int = 500) -> dict[str, np.ndarray]:
    """The live record within epochs, of each of ``STEP_COLUMNS`` a column (n,) float64, n ≤
    ``at_most``. A row says how the steps since the row before went:

    - ``step``, ``epoch``: steps and epochs done by then, since the run's start.
    - ``loss`` (nats, plain cross-entropy), ``accuracy`` (0 … 1), ``grad_norm``: means.
    - ``learning_rate``: of the last step. ``images_per_second``: while training alone.

    Where there are more lines, neighbours are averaged, the same ones however long the record has
    grown since, until twice as many have to be. Lines that are damaged or half written are left
    out; the columns are empty where nothing can be read.
    """
    try:
        content = (Path(path) / STEPS).read_bytes()
    except OSError:
        content = b""
    table = _step_table(content)
    if size := len(table):
        each = -(-size // at_most)
        starts = np.arange(0, size, each)
        ends = np.minimum(starts + each, size)
        means = np.add.reduceat(table, starts) / (ends - starts)[:, None]
        means[:, :2] = table[ends - 1, :2]  # where the last of them was
        table = means
    return dict(zip(STEP_COLUMNS, table.T, strict=True))


def _step_table(content: bytes) -> np.ndarray:
    """The whole and sound lines of a live record: (n, columns) float64."""
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    try:
        rows = json.loads(b"[%s]" % b",".join(lines))  # at once: several times as fast as singly
        numbers = [[row[key] for key in STEP_COLUMNS] for row in rows]
        table = np.array(numbers, np.float64).reshape(len(lines), len(STEP_COLUMNS))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        if len(lines) == 1:
            return _step_table(b"")
        half = len(lines) // 2
        parts = (b"\n".join([*part, b""]) for part in (lines[:half], lines[half:]))
        return np.concatenate([_step_table(part) for part in parts])
    return table[np.isfinite(table).all(axis=1)]


def read_predictions(path: str | Path) -> dict[str, Any]:
    """``labels`` (n,) int64 and ``probabilities`` (n, classes) float32 on the test split, and the
    split's ``fingerprint``.

    Raises:
        RunError: if there are none, or the file is damaged.
    """
    file = Path(path) / PREDICTIONS
    try:
        with np.load(file, allow_pickle=False) as stored:
            labels = stored["labels"].astype(np.int64)
            probabilities = stored["probabilities"].astype(np.float32)
            fingerprint = str(stored["fingerprint"])
        count, classes = probabilities.shape
        if not (
            labels.shape == (count,)
            and count > 0
            and np.isfinite(probabilities).all()
            and 0 <= labels.min() <= labels.max() < classes
        ):
            raise ValueError("labels and probabilities do not fit each other")
    except FileNotFoundError as error:
        raise RunError(
            f"{file.parent} has no predictions on the test split yet. They are written when "
            f"training ends."
        ) from error
    except (
        *(OSError, ValueError, KeyError, EOFError, TypeError, NotImplementedError),
        *(zipfile.BadZipFile, zlib.error),
    ) as error:
        raise RunError(f"{file} is damaged. Train the run again, or restore the file.") from error
    return {"labels": labels, "probabilities": probabilities, "fingerprint": fingerprint}


def read_robustness(path: str | Path) -> dict[str, Any] | None:
    """How the run's kept weights did on changed test pictures: ``changes``, for each change its
    ``accuracy`` and mean ``confidence``; the ``epoch`` of the weights; the split's ``fingerprint``.

    Returns:
        None if that was not measured, or of other weights than the run keeps now.

    Raises:
        RunError: if the file is damaged.
    """
    file = Path(path) / ROBUSTNESS
    try:
        stored = json.loads(file.read_text())
        shares = [share for row in stored["changes"].values() for share in row.values()]
        if not (
            all(row.keys() == {"accuracy", "confidence"} for row in stored["changes"].values())
            and "none" in stored["changes"]
            and all(0 <= share <= 1 for share in shares)
            and isinstance(stored["epoch"], int)
            and isinstance(stored["fingerprint"], str)
        ):
            raise ValueError("its numbers do not fit each other")
        return stored if stored["weights"] == weights_hash(Path(path)) else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(
            f"{file} is damaged. Measure it again: `python -m vit.evaluate {path} --changes`."
        ) from error


def weights_hash(path: Path) -> str:
    """The SHA-256 (hex) of a run's kept weights: what is measured of them is true of no others."""
    return hashlib.sha256((path / MODEL).read_bytes()).hexdigest()


def read_status(path: str | Path) -> dict[str, Any]:
    """What the training process last said; empty if it said nothing that can be read."""
    try:
        status = json.loads((Path(path) / STATUS).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return status if isinstance(status, dict) else {}


def read_request(path: Path) -> dict[str, Any]:
    """What was asked for in the app: ``recipe``, ``seed``, the ``name`` given and ``tags``; empty
    if nothing was, or it cannot be read."""
    try:
        request = json.loads((path / REQUEST).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return request if isinstance(request, dict) else {}


def remove_drafts(path: Path) -> None:
    """Remove what a killed training process left half written (see :mod:`vit.files`)."""
    for name in (CONFIG, MODEL, METRICS, STEPS, PREDICTIONS, STATUS, RESUME, "snapshots/epoch"):
        folder, _, start = (path / name).as_posix().rpartition("/")
        for draft in Path(folder).glob(f".{start}*"):
            draft.unlink(missing_ok=True)


def write_json(file: Path, values: Any) -> None:
    """Write settings or a status, to be read by people too."""
    text = json.dumps(values, indent=1, ensure_ascii=False) + "\n"
    write_atomically(file, lambda open_file: open_file.write(text.encode()))


def write_metrics(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows of all epochs so far; see :func:`read_metrics`."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    write_atomically(path / METRICS, lambda file: file.write(text.encode()))


def append_step(path: Path, values: Sequence[float]) -> None:
    """Add a line to the live record, in the order of ``STEP_COLUMNS``; see :func:`read_steps`."""
    with open(path / STEPS, "ab") as file:
        file.write(_step_line(values))


def cut_steps(path: Path, last: int) -> None:
    """Leave of the live record what is sound and not behind step ``last``, from where training goes
    on."""
    try:
        content = (path / STEPS).read_bytes()
    except FileNotFoundError:
        return
    kept = b"".join(_step_line(row) for row in _step_table(content).tolist() if row[0] <= last)
    if kept != content:
        write_atomically(path / STEPS, lambda file: file.write(kept))


def _step_line(values: Sequence[float]) -> bytes:
    step, *rest = values
    return json.dumps(dict(zip(STEP_COLUMNS, [int(step), *rest], strict=True))).encode() + b"\n"


def write_weights(file: Path, weights: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write tensors as safetensors; the metadata of a run's weights hold their ``epoch``."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    content = save(tensors, metadata)
    write_atomically(file, lambda open_file: open_file.write(content))


def write_snapshot(path: Path, epoch: int, weights: dict[str, Tensor]) -> None:
    """Keep the weights of an epoch in half precision."""
    halves = {name: tensor.half() for name, tensor in weights.items()}
    write_weights(snapshot_path(path, epoch), halves, {"epoch": str(epoch)})


def write_predictions(
    path: Path, labels: np.ndarray, probabilities: np.ndarray, fingerprint: str
) -> None:
    """Write what the run says of its test split; see :func:`read_predictions`."""

    def write(file: BinaryIO) -> None:
        np.savez_compressed(
            file,
            labels=labels,
            probabilities=probabilities.astype(np.float32),
            fingerprint=np.array(fingerprint),
        )

    write_atomically(path / PREDICTIONS, write)


def write_robustness(
    path: Path, epoch: int, changes: dict[str, dict[str, float]], fingerprint: str
) -> None:
    """Write what the kept weights make of changed test pictures; see :func:`read_robustness`."""
    values = {"epoch": epoch, "weights": weights_hash(path), "fingerprint": fingerprint}
    write_json(path / ROBUSTNESS, {**values, "changes": changes})
