"""CIFAR-10 on disk: where it lies under a data folder, and how its two layouts are read."""

import io
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from tqdm import tqdm

from vit.decoded import DataError, Pixels, Progress

SplitName = Literal["train", "test"]

CLASS_NAMES: tuple[str, ...] = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
MEAN = (0.4914, 0.4822, 0.4465)  # of the 50,000 training pictures, per channel, in 0..1
STD = (0.2470, 0.2435, 0.2616)

BATCHES_FOLDER = "cifar-10-batches-py"
_BATCHES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
_LARGEST_BATCH = 64 * 2**20  # bytes; a real one has 31 million


def parquet_file(data_dir: Path, split: SplitName) -> Path:
    """Where the Hugging Face layout keeps a split."""
    return data_dir / "cifar10" / "plain_text" / f"{split}-00000-of-00001.parquet"


def batch_files(data_dir: Path, split: SplitName) -> list[Path]:
    """Where torchvision's layout keeps a split."""
    return [data_dir / BATCHES_FOLDER / name for name in _BATCHES[split]]


def find(data_dir: Path, split: SplitName) -> list[Path]:
    """The files that hold a split: one .parquet, or torchvision's batches; empty if absent."""
    for files in ([parquet_file(data_dir, split)], batch_files(data_dir, split)):
        if all(file.is_file() for file in files):
            return files
    return []


def read(files: list[Path], reading: Progress | None = None) -> Pixels:
    """Decode a split that `find` found. Raises DataError if a file is damaged or not CIFAR-10."""
    if files[0].suffix == ".parquet":
        return read_parquet(files[0], reading)
    return read_batches(files)  # no PNGs: done in a moment


def read_parquet(path: Path, reading: Progress | None = None) -> Pixels:
    """Decode a split of the Hugging Face layout: columns img.bytes (PNG, 32x32 RGB) and label.

    reading: called with (pictures done, in all).
    """
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        count = file.metadata.num_rows
        images = np.empty((count, 3, 32, 32), np.uint8)
        labels = np.empty(count, np.int64)
        names = _parquet_class_names(file.schema_arrow.metadata or {})
        # One thread: for pictures this small, threads wait for each other longer than they decode.
        with tqdm(total=count, desc=f"Decoding {path.name}", unit=" pictures", disable=None) as bar:
            start = 0
            for batch in file.iter_batches(batch_size=1000, columns=["img.bytes", "label"]):
                pictures = [_decode_png(png.as_py()) for png in batch.column("img").field("bytes")]
                stop = start + len(pictures)
                images[start:stop] = np.stack(pictures).transpose(0, 3, 1, 2)
                labels[start:stop] = batch.column("label").to_numpy()
                bar.update(len(pictures))
                start = stop
                if reading:
                    reading(start, count)
        _check_labels(labels, len(names))
    except (
        pyarrow.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError,
        SyntaxError, Image.DecompressionBombError,
    ) as error:  # fmt: skip
        raise _damaged(path, error) from error
    return Pixels(images, labels, names)


def read_batches(files: list[Path]) -> Pixels:
    """Read a split of torchvision's layout: pickled dicts of data (n, 3072) uint8 and labels."""
    images, labels = [], []
    for file in files:
        try:
            batch = _load_pickle(file)
            pixels = batch["data"]
            if pixels.dtype != np.uint8:
                raise ValueError("its pixels are not bytes")
            images.append(pixels.reshape(-1, 3, 32, 32))
            labels.append(np.array(batch["labels"], np.int64).reshape(len(images[-1])))
        except Exception as error:  # a cut or hostile pickle can fail in any way
            raise _damaged(file, error) from error
    names_file = files[0].with_name("batches.meta")
    try:
        names = CLASS_NAMES
        if names_file.is_file():
            names = tuple(str(name) for name in _load_pickle(names_file)["label_names"])
        joined = np.concatenate(labels)
        _check_labels(joined, len(names))
    except Exception as error:  # as above
        raise _damaged(names_file, error) from error
    return Pixels(np.concatenate(images), joined, names)


def _damaged(path: Path, error: Exception) -> DataError:
    # An error's first line says enough; libraries append hints that are not for the user.
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return DataError(
        f"{path} is damaged or not CIFAR-10 ({reason}). Delete it and start again: it is then "
        "downloaded anew."
    )


def _check_labels(labels: np.ndarray, classes: int) -> None:
    if not labels.size:
        raise ValueError("it holds no pictures")
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(f"it has labels outside 0 to {classes - 1}")


def _parquet_class_names(metadata: Mapping[bytes, bytes]) -> tuple[str, ...]:
    """The names that the file itself gives its labels; CIFAR-10's own where it gives none."""
    if b"huggingface" not in metadata:
        return CLASS_NAMES
    features = json.loads(metadata[b"huggingface"])["info"]["features"]
    return tuple(str(name) for name in features["label"]["names"])


def _decode_png(png: bytes) -> np.ndarray:
    """Decode the bytes of one PNG to uint8 (32, 32, 3)."""
    with Image.open(io.BytesIO(png), formats=["PNG"]) as picture:
        if picture.size != (32, 32):
            raise ValueError(f"a picture is {picture.width}x{picture.height}, not 32x32")
        return np.asarray(picture.convert("RGB"))


class _ArrayUnpickler(pickle.Unpickler):
    """Reads dicts, lists, strings, numbers and NumPy arrays, and can call nothing else.

    A pickle names functions to call; the three names below are the only ones in CIFAR-10's files.
    """

    _ALLOWED = {
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"it asks to run {module}.{name}, which is refused")
        return self._ALLOWED[module, name]


def _load_pickle(path: Path) -> dict[str, Any]:
    if path.stat().st_size > _LARGEST_BATCH:
        raise ValueError("it is larger than any file of CIFAR-10")
    content = _ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    if not isinstance(content, dict):
        raise ValueError("it does not hold a table of pictures")
    return content
