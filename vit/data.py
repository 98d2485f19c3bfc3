"""Datasets as uint8 arrays: CIFAR-10, scikit-learn's digits, or a folder of pictures.

Everything is decoded once and then mapped into memory from a cache; `vit.decoded` says where.
"""

import importlib.metadata
import os
from pathlib import Path

import numpy as np

from vit import cifar10
from vit.cifar10 import SplitName
from vit.decoded import (
    DataError,
    Pixels,
    Progress,
    Split,
    cache_dir,
    cached,
    file_state,
    fingerprint,
)  # fmt: skip
from vit.download import by_hand, fetch_cifar10
from vit.folder import load_folder
from vit.holdout import held_out, validation_split

__all__ = [
    "CIFAR10_MEAN", "CIFAR10_STD", "DataError", "Split", "channel_stats", "data_dir", "has_cifar10",
    "load_split", "validation_split",
]  # fmt: skip

CIFAR10_MEAN, CIFAR10_STD = cifar10.MEAN, cifar10.STD


def data_dir() -> Path:
    """The folder that holds the datasets: VIT_DATA_DIR, or data/ in the current folder."""
    return Path(os.environ.get("VIT_DATA_DIR") or "data")


def has_cifar10(data_dir: Path, split: SplitName) -> bool:
    """Whether CIFAR-10's split lies under `data_dir`, so that reading it needs no network."""
    return bool(cifar10.find(data_dir, split))


def load_split(
    dataset: str,
    split: SplitName,
    data_dir: Path | None = None,
    download: bool = True,
    progress: Progress | None = None,
    image_size: int = 32,
    reading: Progress | None = None,
) -> Split:
    """Load one split of a dataset: pictures, labels and class names.

    dataset: "cifar10" and "random_pixels" (3, 32, 32), "digits" (1, 8, 8), or the path of an image
        folder or a zip of one (3, image_size, image_size).
    data_dir: where datasets lie and are downloaded to; the default is `data_dir()`.
    download: fetch CIFAR-10 if it is missing; `progress` is then called with (bytes done, in all).
    reading: called with (pictures done, in all) while they are decoded, which is done once. What
        either of the two raises ends the work.
    Raises DataError with a sentence for the user.
    """
    folder = _folder(data_dir)
    if dataset == "cifar10":
        return _load_cifar10(folder, split, download, progress, reading)
    if dataset == "digits":
        # The decoded digits spare every later start the import of scikit-learn.
        version = importlib.metadata.version("scikit-learn")
        return cached(cache_dir(folder), f"digits-{split}", "", [version], lambda: _digits(split))
    if dataset == "random_pixels":
        return _random_pixels(split)
    path = Path(dataset).expanduser()
    return load_folder(path, split, image_size, cache_dir(folder), reading)


def _folder(given: Path | None) -> Path:
    return data_dir() if given is None else Path(given)


def _load_cifar10(
    folder: Path,
    split: SplitName,
    download: bool,
    progress: Progress | None,
    reading: Progress | None,
) -> Split:
    if not has_cifar10(folder, split):
        if not download:
            raise DataError(f"CIFAR-10's {split} split is not in {folder}. {by_hand(folder)}")
        fetch_cifar10(folder, split, progress)
    files = cifar10.find(folder, split)
    state = [part for file in files for part in file_state(file)]
    origin = str(files[0].resolve())
    name = f"cifar10-{split}"
    return cached(cache_dir(folder), name, origin, state, lambda: cifar10.read(files, reading))


def _digits(split: SplitName) -> Pixels:
    """Scikit-learn's 1,797 digits, 8x8, ink 0..16 brought to 0..255; a fixed fifth is the test."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = np.round(digits.images[:, None] * (255 / 16)).astype(np.uint8)  # (1797, 1, 8, 8)
    chosen = held_out(digits.target, 1 / 5) == (split == "test")
    names = tuple(str(name) for name in digits.target_names)
    return Pixels(pixels[chosen], digits.target[chosen].astype(np.int64), names)


def _random_pixels(split: SplitName) -> Split:
    """Noise with random labels, in CIFAR-10's shape: there is nothing to learn, so a loss that
    leaves ln 10 by much shows a leak. 3,560 pictures for training (less the validation part, 200
    batches of 16), 1,000 for testing."""
    draw = np.random.RandomState({"train": 0, "test": 1}[split])
    count = {"train": 3_560, "test": 1_000}[split]
    images = draw.randint(256, size=(count, 3, 32, 32), dtype=np.uint8)
    labels = draw.randint(10, size=count).astype(np.int64)
    return Split(images, labels, cifar10.CLASS_NAMES, fingerprint(images, labels))


def channel_stats(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, with pixels scaled to 0..1.

    images: uint8 (N, C, H, W). A channel that never varies gets the standard deviation 1, so that
    dividing by it is harmless.
    """
    channels = images.shape[1]
    counts = np.zeros((channels, 256), np.int64)  # how often each channel has each value: exact
    for start in range(0, len(images), 1000):
        for channel, pixels in enumerate(images[start : start + 1000].swapaxes(0, 1)):
            counts[channel] += np.bincount(pixels.ravel(), minlength=256)
    values = np.arange(256) / 255
    shares = counts / counts.sum(axis=1, keepdims=True)
    mean = shares @ values
    std = np.sqrt(np.maximum(shares @ values**2 - mean**2, 0))
    std[std < 1e-6] = 1
    return tuple(mean.tolist()), tuple(std.tolist())
