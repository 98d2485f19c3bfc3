"""As sure as it is right: one number that divides all scores (Guo et al., arXiv 1706.04599).

Dividing by a temperature T > 0 keeps the order of the scores, so it changes no answer: above 1
it makes every answer less sure, below 1 surer. As the head is linear, softmax((Wx + b) / T) is the
model with the head W / T, b / T: nothing that reads a model needs to know of its temperature.
"""

import math
from pathlib import Path

import numpy as np
from torch import Tensor

from vit import claims, runs
from vit.evaluate import predict_logits

LIMIT = 20.0  # a temperature lies between 1 / LIMIT and LIMIT


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature at which logits / T have the smallest mean cross-entropy.

    In 1 / T the cross-entropy is convex, and its slope is the score that the softmax expects less
    the score of the true class, on average: the sign of that says on which side the best T lies.

    Args:
        logits: (n, classes) on pictures that the model did not learn from.
        labels: (n,) their classes.

    Returns:
        T in float64 precision; 1.0 where no T between 1 / LIMIT and LIMIT is the best, as when all
        answers are right (surer would always be better) or all scores are equal.
    """
    # Where the answer is right, no score lies above the true class's, not even by rounding.
    over = logits.double() - logits.double().gather(1, labels[:, None])

    def slope(log_t: float) -> float:
        return float((over * (over * math.exp(-log_t)).softmax(1)).sum(1).mean())

    low, high = -math.log(LIMIT), math.log(LIMIT)
    if not slope(low) > 0 > slope(high):
        return 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return math.exp((low + high) / 2)


def calibrate(path: Path, epoch: int | None, images: Tensor, labels: Tensor) -> None:
    """Fit a temperature to a run's kept weights, or to its snapshot of an epoch, and fold it into
    their head. What has one already is left alone: nothing is divided twice.

    Args:
        images: (n, C, S, S) uint8, pictures that the model did not learn from.
        labels: (n,) their classes, on the same device.

    Raises:
        RunError: if those weights cannot be opened.
    """
    run = runs.load_run(path, epoch)
    if run.calibrated_on:
        return
    logits = predict_logits(run.model.to(images.device), images, run.mean, run.std)
    temperature = fit_temperature(logits, labels)
    weights = fold(run.model.state_dict(), temperature)
    metadata = {
        "epoch": str(run.epoch),
        "temperature": repr(temperature),
        "calibrated_on": str(len(labels)),
    }
    file = path / runs.MODEL
    if epoch is not None:
        file = runs.snapshot_path(path, epoch)
        weights = {name: tensor.half() for name, tensor in weights.items()}
    claims.check(path)
    runs.write_weights(file, weights, metadata)


def fold(weights: dict[str, Tensor], temperature: float) -> dict[str, Tensor]:
    """The weights of the same model with all its logits divided by the temperature."""
    head = {name: weights[name] / temperature for name in ("head.weight", "head.bias")}
    return {**weights, **head}


def unscaled(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """What the model would say without its temperature.

    Args:
        probabilities: (n, classes), softmax(z / T).

    Returns:
        (n, classes) float64, softmax(z), which is proportional to softmax(z / T) to the power T.
    """
    # Over the largest, so that no power of a small number is all that is left.
    ratios = probabilities.astype(np.float64) / probabilities.max(1, keepdims=True)
    powers = ratios**temperature
    return powers / powers.sum(1, keepdims=True)
