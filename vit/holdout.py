"""Setting a fixed part of a dataset aside."""

import numpy as np

_SEED = 65


def held_out(labels: np.ndarray, share: float) -> np.ndarray:
    """Choose about `share` of each class, the same examples every time: bool (N,).

    At least one example of a class is chosen, unless it has only one.
    """
    chosen = np.zeros(len(labels), bool)
    generator = np.random.RandomState(_SEED)  # its stream is frozen; a Generator's may change
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = max(round(len(members) * share), 1) if len(members) > 1 else 0
        chosen[generator.permutation(members)[:count]] = True
    return chosen


def validation_split(
    n: int, size: int = 5000, labels: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Set a fixed part of `n` training examples aside: (training, validation) indices, ascending.

    size: how many; at most a tenth is taken, so that small datasets keep most of their examples.
    labels: int (n,); with them each class gives its share.
    """
    share = min(size, n // 10) / n
    chosen = held_out(np.zeros(n, int) if labels is None else labels, share)
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def training_part(
    labels: np.ndarray, validation: int, share: float
) -> tuple[np.ndarray, np.ndarray]:
    """How a recipe divides a training split with ``labels`` (n,): indices (training, validation),
    ascending. ``validation`` are set aside, and of the others a ``share`` is learned from, the same
    one every time; a smaller share is a part of a larger one."""
    chosen, out = validation_split(len(labels), validation, labels)
    return (chosen[held_out(labels[chosen], share)] if share < 1 else chosen), out
