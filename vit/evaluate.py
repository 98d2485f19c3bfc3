"""How well a run does on pictures it has not seen: ``python -m vit.evaluate RUN_DIR``.

With ``--changes`` also on the same pictures in grey, blurred, turned and so on: five more passes,
whose outcome is kept in the run directory.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from vit import mistakes, robustness, runs
from vit.allocator import keep_freed_memory
from vit.augment import normalize
from vit.data import DataError, Split, load_split
from vit.model import VisionTransformer
from vit.products import fast_products
from vit.runs import Run, RunError, load_run

BATCH = 50  # pictures; more of them would not stay in a CPU's cache from one layer to the next

Progress = Callable[[int, int], None]  # pictures done, pictures in all


def choose_device(name: str) -> torch.device:
    """A device by name; ``auto`` is the best one here.

    Raises:
        RunError: if there is no such device here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        if name.partition(":")[0] not in ("cpu", "cuda", "mps"):
            raise RuntimeError("not a kind that models run on here")
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise RunError(f"There is no device {name!r} here. Use --device cpu or auto.") from error
    return torch.device(name)


@torch.inference_mode()
def predict_logits(
    model: VisionTransformer,
    images: Tensor,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    progress: Progress | None = None,
) -> Tensor:
    """Logits (n, classes) of pictures (n, C, S, S) uint8, in float32."""
    model.eval()
    parts = []
    size = BATCH if images.device.type == "cpu" else 10 * BATCH
    with fast_products(images.device):
        for batch in images.split(size):
            parts.append(model(normalize(batch, mean, std)))
            if progress:
                progress(min(len(parts) * size, len(images)), len(images))
    return torch.cat(parts)


def predict_probabilities(
    model: VisionTransformer,
    images: Tensor,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    progress: Progress | None = None,
) -> np.ndarray:
    """Class probabilities (n, classes), float32, of pictures (n, C, S, S) uint8."""
    return predict_logits(model, images, mean, std, progress).softmax(1).cpu().numpy()


def measure(
    model: VisionTransformer,
    images: Tensor,
    labels: Tensor,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> tuple[float, float]:
    """Mean cross-entropy (nats) and accuracy (0 … 1)."""
    return score(predict_logits(model, images, mean, std), labels)


def score(logits: Tensor, labels: Tensor) -> tuple[float, float]:
    """Mean cross-entropy (nats) and accuracy (0 … 1) of logits (n, classes)."""
    loss = F.cross_entropy(logits, labels).item()
    return loss, (logits.argmax(1) == labels).double().mean().item()


def report(
    logits: Tensor, split: Split, temperature: float = 1.0, fitted_on: int = 0
) -> dict[str, Any]:
    """What logits (n, classes) on a split are worth, as ``--json`` prints it.

    ``accuracy`` with its 95 % ``confidence_interval``; ``per_class`` accuracy; precision, recall,
    F1 and count of the ``classes``, and ``macro_f1``; the ``loss`` (mean cross-entropy, nats); the
    ``confusion`` matrix (rows true, columns predicted); the expected ``calibration_error``, and
    what it would be without the ``temperature`` that is in the logits. None stands for a share of
    no pictures.

    Args:
        split: the pictures' labels and class names.
        temperature, fitted_on: as the run has them (see :class:`vit.runs.Run`).
    """
    labels, probabilities = split.labels, logits.softmax(1).numpy()
    confusion = mistakes.confusion_matrix(labels, probabilities)
    scores = mistakes.class_scores(labels, probabilities)
    right, count = confusion.diagonal(), confusion.sum(1)
    columns = (scores.precision, scores.recall, scores.f1)
    without = (logits * temperature).softmax(1).numpy()
    return {
        "accuracy": float(right.sum() / count.sum()),
        "confidence_interval": mistakes.wilson_interval(int(right.sum()), int(count.sum())),
        "loss": F.cross_entropy(logits.double(), torch.from_numpy(labels)).item(),
        "macro_f1": scores.macro_f1,
        "per_class": {
            name: float(r / c) if c else None
            for name, r, c in zip(split.class_names, right, count, strict=True)
        },
        "classes": {
            name: {
                **dict(zip(("precision", "recall", "f1"), map(_share, row), strict=True)),
                "count": int(c),
            }
            for name, c, *row in zip(split.class_names, count, *columns, strict=True)
        },
        "confusion": confusion.tolist(),
        "calibration_error": mistakes.reliability(labels, probabilities).expected_error,
        "temperature": {
            "value": temperature,
            "fitted_on": fitted_on,
            "calibration_error_without": mistakes.reliability(labels, without).expected_error,
        },
        "count": int(count.sum()),
        "fingerprint": split.fingerprint,
    }


def _share(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def agreement(probabilities: np.ndarray, split: Split, run: Path) -> dict[str, float] | None:
    """Whether probabilities (n, classes) are those that the run has stored: the share of pictures
    with the ``same_class``, and the ``largest_difference`` of two probabilities. None where it has
    stored none for these pictures."""
    try:
        stored = runs.read_predictions(run)
    except RunError:
        return None
    theirs = stored["probabilities"]
    if stored["fingerprint"] != split.fingerprint or theirs.shape != probabilities.shape:
        return None
    return {
        "same_class": float((theirs.argmax(1) == probabilities.argmax(1)).mean()),
        "largest_difference": float(np.abs(theirs - probabilities).max()),
    }


def measure_changes(
    run: Run, images: Tensor, labels: np.ndarray, device: torch.device
) -> dict[str, dict[str, float]]:
    """The :func:`marks` after each change of :mod:`vit.robustness`, behind a progress bar.

    Args:
        run: its model must be on ``device``.
        images: (n, C, S, S) uint8, on the CPU.
        labels: (n,)
    """
    config = run.model_config
    changes = robustness.changes(config.in_chans, config.patch_size)
    measured = {}
    with tqdm(total=len(changes) * len(images), unit=" pictures", disable=None) as bar:
        for name, change in changes.items():
            bar.set_description(name)

            def show(done: int, _: int, start: int = bar.n) -> None:
                bar.update(start + done - bar.n)

            changed = change(images).to(device)
            probabilities = predict_probabilities(run.model, changed, run.mean, run.std, show)
            measured[name] = marks(probabilities, labels)
    return measured


def marks(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """``accuracy``, and mean ``confidence`` (the largest probability)."""
    return {
        "accuracy": float((probabilities.argmax(1) == labels).mean()),
        "confidence": float(probabilities.max(1).mean(dtype=np.float64)),
    }


def stored_changes(run: Run, split: Split) -> dict[str, dict[str, float]] | None:
    """What :func:`measure_changes` once gave for these weights and pictures, if it is stored."""
    try:
        stored = runs.read_robustness(run.path)
    except RunError:
        return None
    if stored is None or stored["epoch"] != run.epoch or stored["fingerprint"] != split.fingerprint:
        return None
    return dict(stored["changes"])


def load_test_split(run: Run, data_dir: Path | None = None, download: bool = True) -> Split:
    """The pictures that a run has not seen.

    Raises:
        DataError: if they cannot be had, or do not show the classes that the run learned.
    """
    dataset = run.config["recipe"]["dataset"]
    size = run.model_config.image_size
    split = load_split(dataset, "test", data_dir, download=download, image_size=size)
    if split.class_names != run.class_names:
        raise DataError(
            f"The test pictures of {dataset} show {', '.join(split.class_names)}, but the run "
            f"{run.name} learned {', '.join(run.class_names)}. Restore the pictures that it was "
            f"trained on, or train it again."
        )
    return split


def evaluate(
    run_dir: Path, data_dir: Path | None, device: torch.device, with_changes: bool = False
) -> dict[str, Any]:
    """The :func:`report` of a run's kept weights on its test split, with their ``epoch``, their
    :func:`agreement` with the stored predictions, and what is known of ``changes`` to the pictures
    (None if nothing is). ``with_changes`` measures those now and stores them in the run.

    Raises:
        RunError: if the run cannot be opened, or cannot be written to.
        DataError: if its data cannot be had, or is not what it learned.
    """
    run = load_run(run_dir)
    split = load_test_split(run, data_dir)
    images = torch.from_numpy(np.array(split.images))
    logits = predict_logits(run.model.to(device), images.to(device), run.mean, run.std).cpu()
    result = {"epoch": run.epoch, **report(logits, split, run.temperature, run.calibrated_on)}
    probabilities = logits.softmax(1).numpy()
    result["agreement"] = agreement(probabilities, split, run_dir)
    if with_changes:
        measured = {"none": marks(probabilities, split.labels)}
        measured |= measure_changes(run, images, split.labels, device)
        try:
            runs.write_robustness(run_dir, run.epoch, measured, split.fingerprint)
        except OSError as error:
            raise RunError(
                f"{run_dir / runs.ROBUSTNESS} cannot be written ({error.strerror or error}). Make "
                f"room there, or copy the run to a folder that you can write to."
            ) from error
    result["changes"] = stored_changes(run, split)
    return result


def summary(result: dict[str, Any]) -> str:
    """What :func:`evaluate` found, as lines for people."""
    low, high = result["confidence_interval"]
    temperature, agreed = result["temperature"], result["agreement"]
    lines = [
        f"accuracy {100 * result['accuracy']:.2f} % of {result['count']:,} pictures "
        f"(95 % interval {100 * low:.2f} to {100 * high:.2f} %)",
        f"macro F1 {result['macro_f1']:.4f}, cross-entropy {result['loss']:.4f} nats",
        f"expected calibration error {result['calibration_error']:.4f}"
        + (
            f"; without the temperature {temperature['value']:.4f}, which was fitted on "
            f"{temperature['fitted_on']:,} pictures kept out of training, "
            f"{temperature['calibration_error_without']:.4f}"
            if temperature["fitted_on"]
            else "; no temperature was fitted"
        ),
        f"the stored predictions name the same class for {100 * agreed['same_class']:.2f} %; no "
        f"probability differs by more than {agreed['largest_difference']:.2g}"
        if agreed
        else "the run has no stored predictions for these pictures to compare with",
    ]
    width = max(map(len, result["classes"]))
    lines += ["", f"{'':>{width}}  pictures  precision    recall      F1"]
    for name, row in result["classes"].items():
        shares = (row["precision"], row["recall"])
        precision, recall = ("–" if v is None else f"{100 * v:.1f} %" for v in shares)
        f1 = "–" if row["f1"] is None else f"{row['f1']:.4f}"
        lines.append(f"{name:>{width}}{row['count']:>10,}{precision:>11}{recall:>10}{f1:>8}")
    lines += ["", "rows: true class, columns: predicted"]
    for name, counts in zip(result["classes"], result["confusion"], strict=True):
        lines.append(f"{name:>{width}} {' '.join(f'{n:5d}' for n in counts)}")
    if result["changes"]:
        lines += ["", f"{'the same pictures':>17}  accuracy  mean confidence"]
        for name, row in result["changes"].items():
            accuracy, confidence = (f"{100 * row[k]:.2f} %" for k in ("accuracy", "confidence"))
            lines.append(f"{name:>17}{accuracy:>10}{confidence:>17}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    keep_freed_memory()
    parser = argparse.ArgumentParser("python -m vit.evaluate", description="Test a trained model.")
    parser.add_argument("run", metavar="RUN_DIR", type=Path)
    parser.add_argument("--data-dir", type=Path, help="default: VIT_DATA_DIR, else data/")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--changes",
        action="store_true",
        help="also test on changed pictures (grey, blurred …), and keep what comes out in the run",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    try:
        device = choose_device(given.device)
        result = evaluate(given.run, given.data_dir, device, given.changes)
    except (DataError, RunError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result) if given.json else summary(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
