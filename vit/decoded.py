"""A split as arrays, and the cache that keeps it decoded.

Decoding 50,000 PNGs takes seconds, so it is done once: the pixels become one `.npy` file that later
loads map into memory, and a small `.json` beside it says which source they came from and what they
must hash to. A file that is missing, out of date or damaged is simply built again.
"""

import hashlib
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vit.files import write_atomically


class DataError(ValueError):
    """A dataset cannot be read; the message is a sentence for the user, with what to do next."""


@dataclass(frozen=True, eq=False)
class Split:
    """One split of a dataset, in a fixed order.

    images: uint8 (N, C, H, W), mapped from the cache file, read-only.
    labels: int64 (N,), indices into `class_names`.
    fingerprint: sha256 (hex) over shape, labels and pixels; equal only for equal data.
    skipped: pictures of an image folder that could not be read, each as "path: reason".
    """

    images: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]
    fingerprint: str
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Pixels:
    """What a reader hands over: the arrays of a split before they are cached."""

    images: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]
    skipped: tuple[str, ...] = ()


Progress = Callable[[int, int], None]  # (done, in all), bytes or pictures
State = list[str | int]  # what changes when the source of a split does

_FORMAT = 1  # raise when decoding itself changes, so that older caches are built again
_verified: set[tuple[str, int, int, int]] = set()  # files whose hash this process has checked


def fingerprint(images: np.ndarray, labels: np.ndarray) -> str:
    """The sha256 (hex) of a split: shape, then labels, then pixels."""
    digest = hashlib.sha256(repr(images.shape).encode())
    digest.update(np.ascontiguousarray(labels, dtype="<i8").data)
    digest.update(np.ascontiguousarray(images).data)
    return digest.hexdigest()


def cache_dir(data_dir: Path) -> Path:
    """Where decoded splits are kept: beside the data, or in the user's cache if it is read-only."""
    place = data_dir if data_dir.exists() else data_dir.absolute().parent
    # The mode is asked as well: for an administrator os.access says yes to a protected folder.
    protected = place.exists() and not stat.S_IMODE(place.stat().st_mode) & 0o222
    if not protected and (os.access(place, os.W_OK) or not place.exists()):
        return data_dir / "decoded"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sixty-five-tokens"


def file_state(path: Path) -> State:
    """What changes when a source file does: its name, size and time of change."""
    state = path.stat()
    return [path.name, state.st_size, state.st_mtime_ns]


def cached(
    folder: Path, name: str, origin: str, state: State, build: Callable[[], Pixels]
) -> Split:
    """The split built by `build()`, from the cache if it holds the same source undamaged.

    folder: the cache folder; name: what the split is called there.
    origin: where the source lies (each origin has its own files).
    state: what changes when the source does (see `file_state`).
    """
    stem = f"{name}-{hashlib.sha256(origin.encode()).hexdigest()[:8]}"
    pixels_file, notes_file = folder / f"{stem}.npy", folder / f"{stem}.json"
    source = [_FORMAT, *state]
    found = _read(pixels_file, notes_file, source)
    if found is not None:
        return found
    built = build()
    notes = {
        "source": source,
        "fingerprint": fingerprint(built.images, built.labels),
        "class_names": built.class_names,
        "skipped": built.skipped,
        "labels": built.labels.tolist(),
    }
    # Two processes that build the same split write the same bytes, so either may come last.
    try:
        write_atomically(pixels_file, lambda file: np.save(file, built.images, allow_pickle=False))
        text = json.dumps(notes).encode()
        write_atomically(notes_file, lambda file: file.write(text))
    except OSError as error:
        raise DataError(
            f"The decoded pictures cannot be kept in {folder} ({error.strerror or error}). Free "
            "some space there, or point VIT_DATA_DIR at a folder that you can write to."
        ) from error
    split = _read(pixels_file, notes_file, source)
    if split is None:
        raise DataError(f"{folder} does not keep what is written to it; check that disk.")
    return split


def _read(pixels_file: Path, notes_file: Path, source: State) -> Split | None:
    """The cached split, or None if it is missing, of another source, or damaged."""
    try:
        notes = json.loads(notes_file.read_bytes())
        if notes["source"] != source:
            return None
        images = np.load(pixels_file, mmap_mode="r", allow_pickle=False)
        labels = np.array(notes["labels"], dtype=np.int64)
        state = pixels_file.stat()
        names, skipped = tuple(notes["class_names"]), tuple(notes["skipped"])
        split = Split(images, labels, names, notes["fingerprint"], skipped)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    version = (str(pixels_file), state.st_ino, state.st_size, state.st_mtime_ns)
    if version not in _verified:
        if images.dtype != np.uint8 or fingerprint(images, labels) != split.fingerprint:
            return None
        _verified.add(version)
    return split
