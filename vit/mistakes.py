"""Where a classifier goes wrong, read off its probabilities on pictures it has not seen.

Everywhere: labels (n,) are indices of the true classes, probabilities (n, classes) the model's.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np


@dataclass(frozen=True)
class Confusion:
    """How often a class (index ``true``) was called another (index ``predicted``)."""

    true: int
    predicted: int
    count: int


@dataclass(frozen=True)
class Reliability:
    """Does a confidence of 80 % mean right in 80 % of the cases? One entry for each bin.

    Attributes:
        edges: (bins + 1,) from 0 to 1; a bin takes in its lower edge, the last one also 1.
        count: (bins,) predictions whose confidence lies in the bin.
        confidence: (bins,) their mean confidence; NaN where there are none.
        accuracy: (bins,) the share of them that are right; NaN where there are none.
    """

    edges: np.ndarray
    count: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def gap(self) -> np.ndarray:
        """(bins,) confidence − accuracy: above 0 where the model is surer than it is right."""
        return self.confidence - self.accuracy

    @property
    def expected_error(self) -> float:
        """Expected calibration error: the mean of |gap|, weighted by count (Guo et al.,
        arXiv 1706.04599, equation 3)."""
        return float(np.nansum(self.count * np.abs(self.gap)) / self.count.sum())


def confusion_matrix(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """(classes, classes) counts: row = true class, column = the most probable class."""
    classes = probabilities.shape[1]
    cells = labels * classes + probabilities.argmax(1)
    return np.bincount(cells, minlength=classes**2).reshape(classes, classes)


@dataclass(frozen=True)
class ClassScores:
    """How well each class is told from the others, (classes,) each, and on the whole.

    Attributes:
        precision: the share of the pictures called so that are; NaN where none was called so.
        recall: the share of its pictures that were called so; NaN where it has no pictures.
        f1: the harmonic mean of the two; NaN where a class neither has pictures nor was named.
        count: its pictures.
        macro_f1: the mean of f1 over the classes that have one.
    """

    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray
    count: np.ndarray
    macro_f1: float


def class_scores(labels: np.ndarray, probabilities: np.ndarray) -> ClassScores:
    """Precision, recall and F1 of each class, if the most probable class is the answer."""
    matrix = confusion_matrix(labels, probabilities)
    right, count, named = matrix.diagonal(), matrix.sum(1), matrix.sum(0)

    def share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
        return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)

    f1 = share(2 * right, count + named)
    return ClassScores(share(right, named), share(right, count), f1, count, float(np.nanmean(f1)))


def wilson_interval(right: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """Between which shares the true one lies, if ``right`` of ``count`` pictures drawn at random
    were named rightly: the score interval (Wilson 1927, doi 10.1080/01621459.1927.10502953), which
    keeps its promise near 0 and 1 too (Brown et al. 2001, doi 10.1214/ss/1009213286)."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    middle = (right + z**2 / 2) / (count + z**2)
    half = z / (count + z**2) * math.sqrt(right * (count - right) / count + z**2 / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def row_shares(matrix: np.ndarray) -> np.ndarray:
    """Each row over its sum: what became of each class's pictures. NaN for a class without any."""
    counts = matrix.sum(1, keepdims=True)
    return np.divide(matrix, counts, out=np.full(matrix.shape, np.nan), where=counts > 0)


def top_confusions(matrix: np.ndarray, count: int) -> list[Confusion]:
    """The commonest mistakes, most frequent first; at most ``count``, none that never happened."""
    errors = matrix.copy()
    np.fill_diagonal(errors, 0)
    order = np.argsort(-errors, axis=None, kind="stable")[:count]
    pairs = zip(*np.unravel_index(order, errors.shape), strict=True)
    return [Confusion(int(i), int(j), int(errors[i, j])) for i, j in pairs if errors[i, j]]


def reliability(labels: np.ndarray, probabilities: np.ndarray, bins: int = 10) -> Reliability:
    """Sort the predictions into ``bins`` equal steps of confidence (the largest probability)."""
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    edges = np.linspace(0, 1, bins + 1)
    where = np.searchsorted(edges[1:-1], confidence, side="right")
    count = np.bincount(where, minlength=bins)

    def mean(values: np.ndarray) -> np.ndarray:
        total = np.bincount(where, values, minlength=bins)
        return np.divide(total, count, out=np.full(bins, np.nan), where=count > 0)

    return Reliability(edges, count, mean(confidence), mean(right))
