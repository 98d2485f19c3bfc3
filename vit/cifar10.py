"""CIFAR-10 on disk: where it lies under a data folder, and how its two layouts are read."""

import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from vit.decoded import DataError, Pixels

CLASS_NAMES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


def parquet_file(data_dir: Path, split: str) -> Path:
    """Where the Hugging Face layout keeps a split."""
    return data_dir / "cifar10" / "plain_text" / f"{split}-00000-of-00001.parquet"


def read_parquet(path: Path) -> Pixels:
    """Decode a split of the Hugging Face layout: columns img.bytes (PNG, 32x32 RGB) and label."""
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        count = file.metadata.num_rows
        images = np.empty((count, 3, 32, 32), np.uint8)
        labels = np.empty(count, np.int64)
        names = _class_names(file.schema_arrow.metadata or {})
        bar = tqdm(total=count, desc=f"Decoding {path.name}", unit=" pictures", disable=None)
        start = 0
        with ThreadPoolExecutor() as pool, bar:
            for batch in file.iter_batches(batch_size=1000, columns=["img.bytes", "label"]):
                stop = start + len(batch)
                pngs = batch.column("img").field("bytes")
                pictures = list(pool.map(_decode_png, (png.as_buffer() for png in pngs)))
                images[start:stop] = np.stack(pictures).transpose(0, 3, 1, 2)
                labels[start:stop] = batch.column("label").to_numpy()
                bar.update(len(batch))
                start = stop
        if start != count or not count or labels.min() < 0 or labels.max() >= len(names):
            raise ValueError("its rows are incomplete")
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, SyntaxError) as error:
        raise DataError(
            f"{path} is damaged or not CIFAR-10 ({error}). Delete it and start again: it is then "
            "downloaded anew."
        ) from error
    return Pixels(images, labels, names)


def _class_names(metadata: dict[bytes, bytes]) -> tuple[str, ...]:
    """The names that the file itself gives its labels; CIFAR-10's own where it gives none."""
    if b"huggingface" not in metadata:
        return CLASS_NAMES
    features = json.loads(metadata[b"huggingface"])["info"]["features"]
    return tuple(features["label"]["names"])


def _decode_png(png) -> np.ndarray:
    """uint8 (32, 32, 3) from the bytes of one PNG."""
    with Image.open(io.BytesIO(png), formats=["PNG"]) as picture:
        if picture.size != (32, 32):
            raise ValueError(f"a picture is {picture.width}x{picture.height}, not 32x32")
        return np.asarray(picture.convert("RGB"))
