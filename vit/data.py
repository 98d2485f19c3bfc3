"""Datasets as uint8 arrays: CIFAR-10, the digits of scikit-learn, or a folder of pictures."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from vit import cifar10
from vit.decoded import DataError, Split, cache_dir, cached, file_state

__all__ = ["DataError", "Split", "data_dir", "has_cifar10", "load_split"]

SplitName = Literal["train", "test"]


def data_dir() -> Path:
    """The folder that holds the datasets: VIT_DATA_DIR, or data/ in the current folder."""
    return Path(os.environ.get("VIT_DATA_DIR") or "data")


def has_cifar10(data_dir: Path, split: SplitName) -> bool:
    """Whether CIFAR-10's split lies under `data_dir`, so that reading it needs no network."""
    return cifar10.parquet_file(data_dir, split).is_file()


def load_split(
    dataset: str,
    split: SplitName,
    data_dir: Path | None = None,
    download: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Split:
    """The pictures and labels of one split."""
    folder = Path(data_dir) if data_dir is not None else globals()["data_dir"]()
    path = cifar10.parquet_file(folder, split)
    if not path.is_file():
        raise DataError(f"CIFAR-10 is not there: {path} is missing.")
    return cached(
        cache_dir(folder), f"cifar10-{split}", str(path.resolve()), file_state(path),
        lambda: cifar10.read_parquet(path),
    )
