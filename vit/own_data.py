"""A visitor's own pictures: a folder on this machine, or a zip of class folders sent to the app.

A zip is kept under the SHA-256 of its bytes, so that a run which learned from it can be resumed and
tested on it later. What its owner calls it stands in a file beside it, and is shown and nothing
else. With ``VIT_TRAINING=off`` no folder is read and nothing is kept.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vit import data, jobs
from vit.cifar10 import SplitName
from vit.decoded import DataError, Progress, cache_dir
from vit.files import write_atomically
from vit.folder import survey
from vit.settings import Recipe

PARTS: tuple[SplitName, SplitName] = ("train", "test")
CHANNELS = 3  # a folder's pictures are read in colour, whatever they are
IMAGE_SIZE = 32  # pixels a side to which they are brought where nobody says otherwise
KEPT_BYTES = 2 * 2**30  # all kept zips together
_KEPT = re.compile(r"[0-9a-f]{64}\.zip")


@dataclass(frozen=True)
class Found:
    """What a folder or zip of pictures holds.

    Attributes:
        path: what a recipe says as its ``dataset``.
        title: what to call it.
        training: pictures to train on of each class.
        testing: pictures to test with.
        skipped: pictures that cannot be read, each as "name: reason"; None while nobody has tried,
            and the counts are those of the files.
    """

    path: Path
    title: str
    class_names: tuple[str, ...]
    training: tuple[int, ...]
    testing: int
    skipped: tuple[str, ...] | None = None


def find(text: str) -> Path:
    """The folder or zip on this machine that a visitor's ``text`` names, absolute.

    Raises:
        DataError: if there is none.
    """
    _refuse_if_off()
    named = text.strip().strip("'\"")
    try:
        path = Path(named).expanduser().resolve()
        there = named and (path.is_dir() or path.is_file())
    except (OSError, RuntimeError, ValueError):  # too long, nobody's home, an impossible letter
        there = False
    if not there:
        raise DataError(
            "There is no folder and no zip of that name on the machine that runs this app. Give "
            "its whole path, such as ~/pictures/pets."
        )
    return path


def keep(content: bytes, name: str) -> Path:
    """Keep a zip that its owner calls ``name``; returns where.

    Raises:
        DataError: if it is no zip of class folders, is refused (see :mod:`vit.archive`), or cannot
            be kept.
    """
    _refuse_if_off()
    folder = kept_dir()
    path = folder / f"{hashlib.sha256(content).hexdigest()}.zip"
    called = "".join(letter for letter in " ".join(name.split()) if letter.isprintable())[:80]
    new = not path.exists()
    try:
        if new:
            others = sum(file.stat().st_size for file in folder.glob("*.zip"))
            if others + len(content) > KEPT_BYTES:
                raise DataError(
                    f"The zips in {folder} take all the {KEPT_BYTES / 2**30:.0f} GiB that are "
                    f"kept. Delete there what no run needs any more, or give a folder's path."
                )
            write_atomically(path, lambda file: file.write(content))
        note = json.dumps({"name": called or "pictures.zip"}).encode()
        write_atomically(path.with_suffix(".json"), lambda file: file.write(note))
    except OSError as error:
        raise DataError(
            f"The zip cannot be kept in {folder} ({error.strerror or error}). Free some space "
            f"there, or point VIT_DATA_DIR at a folder that you can write to."
        ) from error
    try:
        look(path)
    except DataError:
        if new:
            forget(path)
        raise
    return path


def forget(path: Path) -> None:
    """Remove a kept zip."""
    for file in (path, path.with_suffix(".json")):
        file.unlink(missing_ok=True)


def kept() -> list[Path]:
    """The kept zips, by what they are called."""
    _refuse_if_off()
    found = (path for path in kept_dir().glob("*.zip") if _KEPT.fullmatch(path.name))
    return sorted(found, key=lambda path: (title(str(path)).lower(), path.name))


def kept_dir() -> Path:
    """Where zips are kept: beside the data, or in the user's cache if it is read-only."""
    beside, cache = data.data_dir(), cache_dir(data.data_dir())
    return (beside if cache.parent == beside else cache) / "own"


def title(dataset: str) -> str:
    """What to call a recipe's ``dataset``: a kept zip by its owner's name for it, any other by its
    own. A stranger's text."""
    path = Path(dataset)
    if _KEPT.fullmatch(path.name):
        try:
            name = json.loads(path.with_suffix(".json").read_bytes())["name"]
            return name if isinstance(name, str) else path.name
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return path.name
    return dataset


def look(path: Path) -> Found:
    """What the names in a folder or zip tell; no picture is opened.

    Raises:
        DataError: if it is no dataset; the message calls it by its title.
    """
    return _titled(path, lambda: _look(path))


def read(found: Found, image_size: int = IMAGE_SIZE, reading: Progress | None = None) -> Found:
    """The same, once every picture has been read; they are kept decoded for whoever comes next.
    ``reading`` is called with (pictures done, in all).

    Raises:
        DataError: if a class has no picture that can be read, or there is no room.
    """

    files = sum(found.training) + found.testing

    def count() -> Found:
        done, splits = 0, []
        for part in PARTS:

            def tell(now: int, of: int, before: int = done) -> None:
                if reading:
                    reading(before + now, max(files, before + of))

            path = str(found.path)
            splits.append(data.load_split(path, part, image_size=image_size, reading=tell))
            done += len(splits[-1].labels) + len(splits[-1].skipped)
        training, testing = splits
        counts = Counter(training.labels.tolist())
        return replace(
            found,
            class_names=training.class_names,
            training=tuple(counts[label] for label in range(len(training.class_names))),
            testing=len(testing.labels),
            skipped=training.skipped + testing.skipped,
        )

    return _titled(found.path, count)


def _look(path: Path) -> Found:
    parts = survey(path)
    counts = Counter(label for _, label in parts["train"])
    names = tuple(sorted(counts))
    training = tuple(counts[name] for name in names)
    return Found(path, title(str(path)), names, training, len(parts["test"]))


def _titled(path: Path, act: Callable[[], Found]) -> Found:
    """Do what reads files of ``path``; where that fails, its title stands for a kept zip's name."""
    _refuse_if_off()
    try:
        return act()
    except DataError as error:
        raise DataError(str(error).replace(str(path), title(str(path)))) from error
    except OSError as error:
        raise DataError(
            f"{title(str(path))} cannot be read ({error.strerror or error}). Check the rights to "
            f"its files."
        ) from error


def adapt(recipe: Recipe, dataset: str, classes: int, image_size: int) -> Recipe:
    """A recipe for a visitor's own pictures.

    Classes, channels and side are theirs. The grid of patches stays as fine as it was where whole
    patches allow it, and crops move by the same share of a picture.
    """
    model, before = recipe.model, recipe.model.image_size
    patch = image_size // model.grid_size
    return replace(
        recipe,
        dataset=dataset,
        model=replace(
            model,
            image_size=image_size,
            patch_size=patch if patch * model.grid_size == image_size else model.patch_size,
            in_chans=CHANNELS,
            num_classes=classes,
        ),
        crop_padding=min(round(recipe.crop_padding * image_size / before), image_size - 1),
    )


def _refuse_if_off() -> None:
    if jobs.training_is_off():
        raise DataError(
            "No folder is read and nothing is kept here (VIT_TRAINING=off). Run the app yourself."
        )
