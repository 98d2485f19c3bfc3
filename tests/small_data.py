"""Small datasets in the layouts of the real ones."""

import io
import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

NAMES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_DEFAULT_COUNT = {"train": 200, "test": 50}


def noise(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random pictures and labels that take turns: uint8 (n, 3, 32, 32), int64 (n,)."""
    images = np.random.default_rng(seed).integers(0, 256, (count, 3, 32, 32), np.uint8)
    return images, np.arange(count) % 10


def png(pixels: np.ndarray) -> bytes:
    """The bytes of a PNG with these pixels, uint8 (H, W, 3)."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def parquet_bytes(images: np.ndarray, labels: np.ndarray) -> bytes:
    """A file like those of the dataset uoft-cs/cifar10, its schema metadata included."""
    features = {
        "img": {"_type": "Image"},
        "label": {"names": list(NAMES), "_type": "ClassLabel"},
    }
    pictures = [
        {"bytes": png(image.transpose(1, 2, 0)), "path": f"{number}.png"}
        for number, image in enumerate(images)
    ]
    schema = pa.schema(
        [
            ("img", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            ("label", pa.int64()),
        ],
        metadata={"huggingface": json.dumps({"info": {"features": features}})},
    )
    file = io.BytesIO()
    table = pa.table([pictures, labels.tolist()], schema=schema)
    pq.write_table(table, file, row_group_size=64)
    return file.getvalue()


def write_parquet(
    data_dir: Path, split: str, count: int | None = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Put a small CIFAR-10 in the Hugging Face layout; return its pictures and labels."""
    images, labels = noise(count or _DEFAULT_COUNT[split], seed)
    path = data_dir / "cifar10" / "plain_text" / f"{split}-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(parquet_bytes(images, labels))
    return images, labels


def _text(value: bytes) -> bytes:
    """A Python 2 string in a pickle."""
    return b"T" + struct.pack("<i", len(value)) + value


def _number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def batch_pickle(images: np.ndarray, labels: np.ndarray) -> bytes:
    """The bytes that Python 2 and its NumPy wrote for CIFAR-10's batches, opcode by opcode."""
    rows, columns = len(images), images[0].size
    dtype = b"cnumpy\ndtype\n" + _text(b"u1") + _number(0) + _number(1) + b"\x87R"
    dtype += b"(" + _number(3) + _text(b"|") + b"NNN" + _number(-1) + _number(-1) + _number(0)
    dtype += b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
    array += _number(0) + b"\x85" + _text(b"b") + b"\x87R"
    array += b"(" + _number(1) + _number(rows) + _number(columns) + b"\x86" + dtype
    array += b"\x89" + _text(images.tobytes()) + b"tb"
    items = {
        b"batch_label": _text(b"a small batch"),
        b"labels": b"](" + b"".join(_number(int(label)) for label in labels) + b"e",
        b"data": array,
        b"filenames": b"](" + b"".join(_text(b"%d.png" % row) for row in range(rows)) + b"e",
    }
    content = b"".join(_text(key) + value for key, value in items.items())
    return b"\x80\x02}(" + content + b"u."


def batches_meta() -> bytes:
    """The bytes of batches.meta, which names the classes."""
    names = b"](" + b"".join(_text(name.encode()) for name in NAMES) + b"e"
    return b"\x80\x02}(" + _text(b"label_names") + names + b"u."


def batch_files(count: int = 20) -> dict[str, bytes]:
    """Every file of torchvision's layout, each batch with `count` pictures of its own seed."""
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    files = {name: batch_pickle(*noise(count, seed)) for seed, name in enumerate(names)}
    return files | {"batches.meta": batches_meta()}


def write_batches(data_dir: Path, count: int = 20) -> Path:
    """Put a small CIFAR-10 in torchvision's layout; return its folder."""
    folder = data_dir / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name, content in batch_files(count).items():
        (folder / name).write_bytes(content)
    return folder


def folder_files(classes: dict[str, int], seed: int = 0) -> dict[str, bytes]:
    """Relative name → PNG of 32x32 noise; `classes` maps a folder to its number of pictures."""
    random = np.random.default_rng(seed)
    return {
        f"{label}/{number:02}.png": png(random.integers(0, 256, (32, 32, 3), np.uint8))
        for label, count in classes.items()
        for number in range(count)
    }


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files under a folder, with the folders in between; return the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder
