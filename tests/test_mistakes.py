"""What is said about mistakes, against scikit-learn and hand counts."""

import numpy as np
import pytest
from sklearn import metrics
from sklearn.calibration import calibration_curve

from vit import published
from vit.mistakes import (
    Confusion,
    class_scores,
    confusion_matrix,
    reliability,
    row_shares,
    top_confusions,
    wilson_interval,
)


def made_up(count: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels and probabilities of a model that is right about half of the time."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, count)
    logits = random.normal(0, 1, (count, classes))
    logits[np.arange(count), labels] += 1.5
    weights = np.exp(logits)
    return labels, (weights / weights.sum(1, keepdims=True)).astype(np.float32)


def test_rows_are_true_and_columns_predicted() -> None:
    labels = np.array([0, 0, 0, 1, 2, 2])
    said = np.array([0, 1, 1, 1, 0, 2])
    assert confusion_matrix(labels, np.eye(3)[said]).tolist() == [[1, 2, 0], [0, 1, 0], [1, 0, 1]]


def test_a_class_that_never_occurs_keeps_its_row_and_column() -> None:
    matrix = confusion_matrix(np.array([0, 2]), np.eye(4)[[0, 2]])
    assert matrix.tolist() == np.diag([1, 0, 1, 0]).tolist()
    shares = row_shares(matrix)
    assert np.isnan(shares[[1, 3]]).all()
    assert shares[[0, 2]].tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_row_shares_are_scikit_learns(classes: int) -> None:
    labels, probabilities = made_up(5000, classes)
    expected = metrics.confusion_matrix(labels, probabilities.argmax(1), normalize="true")
    np.testing.assert_allclose(row_shares(confusion_matrix(labels, probabilities)), expected)


def test_the_commonest_confusions_come_first_and_the_diagonal_is_none() -> None:
    matrix = np.array([[90, 3, 0], [7, 80, 1], [0, 3, 99]])
    assert top_confusions(matrix, 3) == [Confusion(1, 0, 7), Confusion(0, 1, 3), Confusion(2, 1, 3)]
    assert len(top_confusions(matrix, 9)) == 4, "those that never happened are left out"
    assert matrix[0, 0] == 90, "the matrix is left as it was"


def test_system_c_took_164_cats_for_dogs() -> None:
    cat, dog = (published.CLASS_NAMES.index(name) for name in ("cat", "dog"))
    assert top_confusions(published.C_CONFUSION, 1) == [Confusion(cat, dog, 164)]


def test_reliability_is_scikit_learns() -> None:
    labels, probabilities = made_up(3000, 10)
    measured = reliability(labels, probabilities, bins=15)
    right = probabilities.argmax(1) == labels
    confidence = probabilities.max(1).astype(np.float64)
    accuracy, mean = calibration_curve(right, confidence, n_bins=15)
    some = measured.count > 0
    np.testing.assert_allclose(measured.accuracy[some], accuracy, atol=1e-12)
    np.testing.assert_allclose(measured.confidence[some], mean, atol=1e-12)
    assert measured.count.sum() == 3000
    assert np.isnan(measured.accuracy[~some]).all()


def test_expected_calibration_error_by_hand() -> None:
    """Four predictions at 0.9, half of them right; six at 0.65, all right."""
    confidence = np.array([0.9] * 4 + [0.65] * 6)
    probabilities = np.stack([confidence, 1 - confidence], 1)
    labels = np.array([0, 0, 1, 1] + [0] * 6)
    measured = reliability(labels, probabilities)
    assert measured.expected_error == pytest.approx(0.4 * 0.4 + 0.6 * 0.35)
    assert measured.gap[9] == pytest.approx(0.4)
    assert measured.gap[6] == pytest.approx(-0.35)


def test_certainty_falls_into_the_last_bin() -> None:
    measured = reliability(np.array([0, 1]), np.eye(2))
    assert measured.count.tolist() == [0] * 9 + [2]
    assert measured.expected_error == 0


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [
        # Newcombe 1998 (Statistics in Medicine 17:857), table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_is_the_published_one(right: int, count: int, low: float, high: float) -> None:
    assert wilson_interval(right, count) == pytest.approx((low, high), abs=5e-5)
    mirrored = wilson_interval(count - right, count)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=5e-5)


def test_the_interval_ends_where_the_share_is_1_96_deviations_away() -> None:
    """Which is how Wilson defines it: the deviation is that of the end, not of the share."""
    for end in wilson_interval(7519, 10_000):
        assert abs(0.7519 - end) / (end * (1 - end) / 10_000) ** 0.5 == pytest.approx(1.959964)
    low, high = wilson_interval(7519, 10_000, level=0.5)
    assert high - low == pytest.approx(2 * 0.67449 * (0.7519 * 0.2481 / 10_000) ** 0.5, rel=1e-3)


def test_precision_recall_and_f1_by_hand() -> None:
    """Three classes with pictures, one that is only ever said, one that nobody ever meets."""
    labels = np.array([0, 0, 0, 0, 1, 1, 2])
    said = np.array([0, 0, 0, 1, 1, 3, 0])
    scores = class_scores(labels, np.eye(5)[said])
    nan = np.nan
    np.testing.assert_allclose(scores.precision, [3 / 4, 1 / 2, nan, 0, nan])
    np.testing.assert_allclose(scores.recall, [3 / 4, 1 / 2, 0, nan, nan])
    np.testing.assert_allclose(scores.f1, [3 / 4, 1 / 2, 0, 0, nan])
    assert scores.count.tolist() == [4, 2, 1, 0, 0]
    assert scores.macro_f1 == pytest.approx((3 / 4 + 1 / 2) / 4)
