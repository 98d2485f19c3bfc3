"""What the three public write-ups report, to set our own numbers beside. Shares are 0 … 1."""

from dataclasses import dataclass

import numpy as np

CLASS_NAMES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


@dataclass(frozen=True)
class Published:
    """A published training run on CIFAR-10: accuracy after some of its epochs."""

    name: str
    source: str
    test_accuracy: dict[int, float]
    train_accuracy: dict[int, float]


_A = "“embodied-gpt”, phase 1: a ViT built by someone who had built a GPT"
_C = "“Vision Transformer, part 4”: the build on CIFAR-10"

A_FLAT = Published(
    name="System A, flat learning rate",
    source=_A,
    test_accuracy={1: 0.438, 5: 0.618, 10: 0.680},
    train_accuracy={10: 0.687},
)
A_COSINE = Published(
    name="System A, cosine",
    source=_A,
    test_accuracy={1: 0.350, 10: 0.683, 20: 0.755, 30: 0.783, 34: 0.793, 40: 0.790},
    train_accuracy={40: 0.883},
)
C = Published(
    name="System C",
    source=_C,
    test_accuracy={50: 0.8125},
    train_accuracy={},
)
CURVES = (A_FLAT, A_COSINE, C)

# System C on the 10,000 test pictures: rows true, columns predicted, both as in CLASS_NAMES.
C_CONFUSION = np.array(
    [
        [861, 17, 14, 15, 7, 1, 6, 9, 42, 28],
        [19, 900, 2, 5, 0, 0, 1, 3, 7, 63],
        [52, 5, 746, 41, 44, 33, 33, 32, 3, 11],
        [24, 5, 47, 633, 36, 164, 42, 25, 11, 13],
        [12, 3, 63, 31, 749, 20, 32, 79, 8, 3],
        [12, 5, 23, 121, 24, 750, 14, 44, 4, 3],
        [5, 6, 37, 41, 16, 19, 860, 8, 2, 6],
        [24, 1, 16, 18, 20, 41, 1, 870, 4, 5],
        [65, 20, 9, 6, 2, 1, 3, 1, 875, 18],
        [32, 51, 3, 5, 1, 2, 2, 8, 15, 881],
    ]
)
C_CONFUSION.flags.writeable = False
