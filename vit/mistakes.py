"""Where a classifier goes wrong, read off its probabilities on pictures it has not seen.

Everywhere: labels (n,) are indices of the true classes, probabilities (n, classes) the model's.
"""

from dataclasses import dataclass

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
    from sklearn import metrics

    classes = np.arange(probabilities.shape[1])
    return metrics.confusion_matrix(labels, probabilities.argmax(1), labels=classes)


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
