"""How well a run does on pictures it has not seen: ``python -m vit.evaluate RUN_DIR``."""

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

from vit import mistakes
from vit.augment import normalize
from vit.data import DataError, Split, load_split
from vit.model import VisionTransformer
from vit.runs import Run, RunError, load_run

BATCH = 250

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
    for start in range(0, len(images), BATCH):
        parts.append(model(normalize(images[start : start + BATCH], mean, std)))
        if progress:
            progress(min(start + BATCH, len(images)), len(images))
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


def report(probabilities: np.ndarray, split: Split) -> dict[str, Any]:
    """Accuracy, accuracy of each class (None for a class without pictures), expected calibration
    error, and the confusion matrix (rows true, columns predicted).

    Args:
        probabilities: (n, classes)
        split: the pictures' labels and class names.
    """
    confusion = mistakes.confusion_matrix(split.labels, probabilities)
    right, count = confusion.diagonal(), confusion.sum(1)
    return {
        "accuracy": float(right.sum() / count.sum()),
        "per_class": {
            name: float(r / c) if c else None
            for name, r, c in zip(split.class_names, right, count, strict=True)
        },
        "confusion": confusion.tolist(),
        "calibration_error": mistakes.reliability(split.labels, probabilities).expected_error,
        "count": int(count.sum()),
        "fingerprint": split.fingerprint,
    }


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


def evaluate(run_dir: Path, data_dir: Path | None, device: torch.device) -> dict[str, Any]:
    """The :func:`report` of a run's kept weights on its test split.

    Raises:
        RunError: if the run cannot be opened.
        DataError: if its data cannot be had, or is not what it learned.
    """
    run = load_run(run_dir)
    split = load_test_split(run, data_dir)
    images = torch.from_numpy(np.array(split.images)).to(device)
    probabilities = predict_probabilities(run.model.to(device), images, run.mean, run.std)
    return report(probabilities, split)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser("python -m vit.evaluate", description="Test a trained model.")
    parser.add_argument("run", metavar="RUN_DIR", type=Path)
    parser.add_argument("--data-dir", type=Path, help="default: VIT_DATA_DIR, else data/")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    try:
        result = evaluate(given.run, given.data_dir, choose_device(given.device))
    except (DataError, RunError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps(result))
        return 0
    names = list(result["per_class"])
    width = max(map(len, names))
    print(f"accuracy {100 * result['accuracy']:.2f} % of {result['count']:,} pictures\n")
    print("rows: true class, columns: predicted")
    for name, row in zip(names, result["confusion"], strict=True):
        share = result["per_class"][name]
        accuracy = "    –  " if share is None else f"{100 * share:5.1f} %"
        print(f"{name:>{width}} {accuracy} {' '.join(f'{n:5d}' for n in row)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
