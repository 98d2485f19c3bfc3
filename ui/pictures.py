"""Where a visitor's picture comes from: the samples, an upload, or a held-out test picture.

A picture has a short name that fits in a link: a sample's file name, an upload's SHA-256, or
``test-123`` for picture 123 of CIFAR-10's test split and ``digit-123`` for one of the digits'.
"""

import contextlib
import json
import os
import re
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from PIL import Image

from vit import data, images
from vit.files import write_atomically

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "samples"
UPLOAD_BYTES = 200 * 1024 * 1024  # all kept uploads together
UPLOAD_AGE = 24 * 3600  # seconds
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HELD_OUT = re.compile(r"(test|digit)-(\d{1,5})")
# By dataset: how the names of its test pictures begin, and how many there are.
HELD_OUT = {"cifar10": ("test", 10_000), "digits": ("digit", 359)}
_DATASET = {prefix: dataset for dataset, (prefix, _) in HELD_OUT.items()}


class NoPicture(ValueError):
    """The picture behind a name is not there; the message says what to do."""


@dataclass(frozen=True)
class About:
    """What is known about a picture: ``label`` is the class it shows, or None if it shows none;
    ``kind`` says whether there is a label to be right about at all."""

    title: str
    label: str | None
    kind: Literal["photo", "drawing", "upload", "held-out"]


def uploads_dir() -> Path:
    """The folder of accepted uploads: VIT_UPLOADS_DIR, or uploads/ beside the app."""
    return Path(os.environ.get("VIT_UPLOADS_DIR") or ROOT / "uploads")


@cache
def samples() -> dict[str, About]:
    """The sample pictures by name, in the order in which they are shown."""
    return {
        Path(entry["file"]).stem: About(entry["title"], entry["label"], entry["kind"])
        for entry in _sample_entries()
    }


@cache
def _sample_entries() -> list[dict[str, str]]:
    return json.loads((SAMPLES / "samples.json").read_text("utf-8"))


def _sample_file(name: str) -> Path:
    return next(SAMPLES / e["file"] for e in _sample_entries() if Path(e["file"]).stem == name)


def keep_upload(content: bytes) -> str:
    """Check an upload and keep it; returns its name.

    Raises:
        PictureError: if it is no picture that can be used.
    """
    images.open_picture(content)
    name = images.fingerprint(content)
    write_atomically(uploads_dir() / name, lambda file: file.write(content))
    make_room()
    return name


def make_room() -> None:
    """Delete uploads older than a day, then the oldest until the rest fit."""
    folder = uploads_dir()
    files = []
    for file in folder.iterdir() if folder.is_dir() else ():
        if _SHA256.fullmatch(file.name):
            try:
                files.append((file.stat().st_mtime, file.stat().st_size, file))
            except OSError:  # another visitor's upload made room meanwhile
                continue
    total = 0
    for written, size, file in sorted(files, reverse=True):
        total += size
        if total > UPLOAD_BYTES or time.time() - written > UPLOAD_AGE:
            with contextlib.suppress(OSError):  # on a read-only disk they stay
                file.unlink(missing_ok=True)


def open_named(name: str) -> Image.Image:
    """The picture behind a name, clean and upright.

    Raises:
        NoPicture: if there is none (any more).
    """
    if name in samples():
        return images.open_picture(_sample_file(name).read_bytes())
    if _SHA256.fullmatch(name):
        make_room()
        try:
            return images.open_picture((uploads_dir() / name).read_bytes())
        except (OSError, images.PictureError) as error:
            raise NoPicture(
                "The picture behind this link is no longer kept: uploads are deleted after a "
                "day. Upload it again to go on with it."
            ) from error
    if match := _HELD_OUT.fullmatch(name):
        pixels, number = held_out(_DATASET[match[1]]).images, int(match[2])
        if number < len(pixels):
            return Image.fromarray(pixels[number].transpose(1, 2, 0).squeeze()).convert("RGB")
    raise NoPicture("There is no picture of that name here. Choose one, or upload your own.")


def about(name: str) -> About:
    """What is known about a picture that :func:`open_named` can open."""
    if name in samples():
        return samples()[name]
    if match := _HELD_OUT.fullmatch(name):
        split, number = held_out(_DATASET[match[1]]), int(match[2])
        label = split.class_names[split.labels[number]]
        return About(f"Test picture {number}", label, "held-out")
    return About("Your picture", None, "upload")


def held_out_number(name: str, dataset: str) -> int | None:
    """The number of a test picture of that dataset; None for any other picture."""
    match = _HELD_OUT.fullmatch(name)
    return int(match[2]) if match and _DATASET[match[1]] == dataset else None


def has_held_out(dataset: str) -> bool:
    """Whether test pictures of the dataset can be shown without fetching anything."""
    return dataset == "digits" or (
        dataset == "cifar10" and data.has_cifar10(data.data_dir(), "test")
    )


def held_out(dataset: str) -> data.Split:
    """The test split of ``cifar10`` or ``digits``.

    Raises:
        NoPicture: if it is not on this machine.
    """
    if not has_held_out(dataset):
        raise NoPicture(
            "This link leads to a CIFAR-10 picture, and CIFAR-10 is not on this machine. "
            "The Confusion matrix page can fetch it."
        )
    try:
        return data.load_split(dataset, "test", download=False)
    except data.DataError as error:
        raise NoPicture(str(error)) from error
