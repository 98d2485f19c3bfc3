"""A visitor's own dataset: a folder of pictures, one folder per class, or a zip of it.

The layout is that of torchvision's ImageFolder: class/picture.png, or train/class/picture.png with
test/ (or val/) beside train/. Without a test part a fixed fifth of each class is held out.
"""

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
from tqdm import tqdm

from vit import images
from vit.archive import open_zip
from vit.cifar10 import SplitName
from vit.decoded import DataError, Pixels, Progress, Split, State, cached, file_state
from vit.holdout import held_out

SUFFIXES = {
    ".avif", ".bmp", ".gif", ".heic", ".jfif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif",
    ".tiff", ".webp",
}  # fmt: skip  # what a visitor means as a picture, readable here or not
MAX_DECODED = 4 * 2**30  # bytes of one split's pictures

Reader = Callable[[str, int], bytes]  # (name, limit) -> at most that many bytes of the file
Example = tuple[str, str]  # name, class


def load_folder(
    path: Path,
    split: SplitName,
    image_size: int,
    cache: Path,
    reading: Progress | None = None,
) -> Split:
    """Load one split of an image folder or a zip of one: uint8 (N, 3, image_size, image_size).

    Each picture is cropped to its central square and resized. Pictures that cannot be read are left
    out and listed in `Split.skipped`. `reading` is called with (pictures done, in all).
    Raises DataError for fewer than two classes, or a class without pictures.
    """
    if path.is_dir():
        names = _walk(path)
        listing = json.dumps([[name, *file_state(path / name)[1:]] for name in names])
        state: State = [hashlib.sha256(listing.encode()).hexdigest()]
    elif zipfile.is_zipfile(path):
        names, state = [], file_state(path)
    else:
        raise _no_dataset(path)

    def build() -> Pixels:
        if path.is_dir():
            return _decode(path, names, partial(_read_file, path), split, image_size, reading)
        with open_zip(path) as (members, read):
            names_inside = sorted(filter(_is_picture, members))
            return _decode(path, names_inside, read, split, image_size, reading)

    origin = f"{path.resolve()} at {image_size} px"
    return cached(cache, f"folder-{split}", origin, state, build)


def survey(path: Path) -> dict[SplitName, list[Example]]:
    """Which pictures of an image folder, or a zip of one, belong to which class and split, by their
    names alone: none is opened.

    Raises DataError for fewer than two classes, or test pictures of a class to train on none.
    """
    if path.is_dir():
        return _parts(path, _walk(path))
    if not zipfile.is_zipfile(path):
        raise _no_dataset(path)
    with open_zip(path) as (members, _):
        return _parts(path, sorted(filter(_is_picture, members)))


def _no_dataset(path: Path) -> DataError:
    return DataError(
        f"There is no dataset at {path}. Give the path of a folder with one folder of pictures "
        "per class, or of a zip of it; or one of the names cifar10 and digits."
    )


def _walk(path: Path) -> list[str]:
    """Every picture under `path`, as sorted relative names with forward slashes."""
    found = []
    for folder, _, files in os.walk(path):
        inside = Path(folder).relative_to(path)
        found += [(inside / file).as_posix() for file in files]
    return sorted(name for name in found if _is_picture(name) and (path / name).is_file())


def _is_picture(name: str) -> bool:
    """Whether a name is that of a picture, and not hidden or something an archiver put there."""
    path = PurePosixPath(name)
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in path.parts)
    return path.suffix.lower() in SUFFIXES and not hidden


def _read_file(folder: Path, name: str, limit: int) -> bytes:
    with (folder / name).open("rb") as file:
        return file.read(limit)


def _parts(path: Path, names: Sequence[str]) -> dict[SplitName, list[Example]]:
    """``split_examples``, if its classes make a dataset."""
    parts = split_examples(names)
    classes = sorted({label for _, label in parts["train"]})
    if len(classes) < 2:
        found = f"only the class {classes[0]!r}" if classes else "no folders of pictures"
        raise DataError(
            f"{path} has {found}; a model needs two classes or more to choose from. Give each "
            "class a folder of its own, named after it, with its pictures inside."
        )
    unknown = sorted({label for _, label in parts["test"]} - set(classes))
    if unknown:
        raise DataError(
            f"{path} has test pictures of {unknown[0]!r} but none to train on. Add that class to "
            "train/, or take it out of the test folder."
        )
    return parts


def _decode(
    path: Path,
    names: Sequence[str],
    read: Reader,
    split: SplitName,
    image_size: int,
    reading: Progress | None,
) -> Pixels:
    parts = _parts(path, names)
    classes = sorted({label for _, label in parts["train"]})
    examples = parts[split]
    size = len(examples) * 3 * image_size * image_size
    if size > MAX_DECODED:
        raise DataError(
            f"{path} would take {size / 2**30:.1f} GiB at {image_size}x{image_size}; at most "
            f"{MAX_DECODED // 2**30} GiB are kept. Use fewer pictures or a smaller size."
        )

    def decode(example: Example) -> np.ndarray | str:
        """Decode one picture to uint8 (S, S, 3), or return the reason why it cannot be read."""
        try:
            # One byte over the limit is enough for open_picture to see that a file is too large.
            picture = images.open_picture(read(example[0], images.MAX_BYTES + 1))
        except (images.PictureError, DataError, OSError) as error:
            return str(error)
        square = images.frame_picture(picture, "crop")
        return images.resize_to_model(square, image_size, 3)

    outcomes: list[np.ndarray | str] = []
    pool = ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1))
    try:
        results = pool.map(decode, examples)
        for outcome in tqdm(
            results, "Reading pictures", len(examples), unit=" pictures", disable=None
        ):
            outcomes.append(outcome)
            if reading:
                reading(len(outcomes), len(examples))
    finally:
        pool.shutdown(cancel_futures=True)  # who gives up does not wait for the other pictures
    pairs = list(zip(examples, outcomes, strict=True))
    kept = [(label, pixels) for (_, label), pixels in pairs if not isinstance(pixels, str)]
    skipped = [f"{name}: {reason}" for (name, _), reason in pairs if isinstance(reason, str)]
    for label in classes:
        if label not in {label for label, _ in kept}:
            use = "train on" if split == "train" else "test with"
            raise DataError(
                f"{path} leaves no readable picture of {label!r} to {use}. Each class needs at "
                f"least two good pictures ({len(skipped)} of this part could not be read)."
            )
    return Pixels(
        np.stack([pixels for _, pixels in kept]).transpose(0, 3, 1, 2),
        np.array([classes.index(label) for label, _ in kept], np.int64),
        tuple(classes),
        tuple(skipped),
    )


def split_examples(names: Sequence[str]) -> dict[SplitName, list[Example]]:
    """Which picture belongs to which class and split, from the names alone.

    One folder around everything is looked through. Pictures outside of a class folder are ignored.
    """
    paths = [PurePosixPath(name).parts for name in names]
    # As (name, what remains of its path); a picture needs at least class/file.
    inside = [(name, parts) for name, parts in zip(names, paths, strict=True) if len(parts) > 1]
    while inside and len({parts[0] for _, parts in inside}) == 1:
        if any(len(parts) < 3 for _, parts in inside):
            break
        inside = [(name, parts[1:]) for name, parts in inside]
    tops: dict[str, list[Example]] = {}  # what lies in train/, test/ ..., one level further down
    for name, parts in inside:
        if len(parts) > 2:
            tops.setdefault(parts[0].lower(), []).append((name, parts[1]))
    test = next((top for top in ("test", "val", "valid", "validation") if top in tops), None)
    if "train" in tops and test:
        return {"train": tops["train"], "test": tops[test]}
    examples = [(name, parts[0]) for name, parts in inside]
    _, labels = np.unique([label for _, label in examples], return_inverse=True)
    out = held_out(labels, 1 / 5)
    return {
        "train": [example for example, is_out in zip(examples, out, strict=True) if not is_out],
        "test": [example for example, is_out in zip(examples, out, strict=True) if is_out],
    }
