"""The published numbers agree with each other and with the write-ups."""

from tests.small_data import NAMES
from vit.published import A_COSINE, A_FLAT, C_CONFUSION, CLASS_NAMES, CURVES, C


def test_system_cs_matrix_covers_the_test_split_and_gives_its_accuracy() -> None:
    assert C_CONFUSION.sum(1).tolist() == [1000] * 10
    assert C_CONFUSION.trace() / C_CONFUSION.sum() == C.test_accuracy[50] == 0.8125


def test_its_best_and_worst_classes_are_those_of_the_write_up() -> None:
    by_accuracy = [CLASS_NAMES[i] for i in C_CONFUSION.diagonal().argsort()]
    assert by_accuracy[0] == "cat"
    assert set(by_accuracy[-3:]) == {"automobile", "truck", "ship"}
    assert CLASS_NAMES == NAMES


def test_system_a_gained_most_from_a_longer_schedule() -> None:
    assert A_FLAT.test_accuracy[10] == 0.68
    assert max(A_COSINE.test_accuracy, key=A_COSINE.test_accuracy.__getitem__) == 34
    assert A_COSINE.test_accuracy[34] == 0.793
    assert all(run.source and max(run.test_accuracy.values()) < 1 for run in CURVES)
