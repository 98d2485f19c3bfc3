"""Where a visitor's picture comes from: the samples, an upload, or a held-out CIFAR-10 picture.

A picture has a short name that fits in a link: a sample's file name, an upload's SHA-256, or
``test-123`` for picture 123 of CIFAR-10's test split.
"""

import json
import os
import re
import time
from pathlib import Path

from PIL import Image

from vit import data, images
from vit.runs import write_atomically

ROOT = Path(__file__).resolve().parent.parent
ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "samples"
UPLOAD_BYTES = 200 * 1024 * 1024  # all kept uploads together
UPLOAD_AGE = 24 * 3600  # seconds
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HELD_OUT = re.compile(r"test-(\d{1,4})")


class NoPicture(ValueError):
    """The picture behind a name is not there; the message says what to do."""


def uploads_dir() -> Path:
    return Path(os.environ.get("VIT_UPLOADS_DIR") or ROOT / "uploads")


def samples() -> dict[str, dict[str, str | None]]:
    """The sample pictures by name, in order: file, title, label (a class or None), kind."""
    return {Path(s["file"]).stem: s for s in json.loads((SAMPLES / "samples.json").read_text())}


def keep_upload(content: bytes) -> str:
    """Check an upload and keep it; returns its name.

    Raises:
        PictureError: if it is no picture that can be used.
    """
    images.open_picture(content)
    name = images.fingerprint(content)
    write_atomically(uploads_dir() / name, lambda draft: draft.write_bytes(content))
    _make_room()
    return name


def _make_room() -> None:
    """Delete uploads older than a day, then the oldest until the rest fit."""
    files = []
    for file in uploads_dir().iterdir():
        if _SHA256.fullmatch(file.name):
            files.append((file.stat().st_mtime, file.stat().st_size, file))
    total = 0
    for written, size, file in sorted(files, reverse=True):
        total += size
        if total > UPLOAD_BYTES or time.time() - written > UPLOAD_AGE:
            file.unlink(missing_ok=True)


def open_named(name: str) -> Image.Image:
    """The picture behind a name, clean and upright.

    Raises:
        NoPicture: if there is none (any more).
    """
    if name in samples():
        return images.open_picture((SAMPLES / samples()[name]["file"]).read_bytes())
    if _SHA256.fullmatch(name):
        try:
            return images.open_picture((uploads_dir() / name).read_bytes())
        except (OSError, images.PictureError) as error:
            raise NoPicture(
                "The picture behind this link is no longer kept: uploads are deleted after a "
                "day. Upload it again to go on with it."
            ) from error
    if held_out := _HELD_OUT.fullmatch(name):
        if not data.has_cifar10(data.data_dir(), "test"):
            raise NoPicture(
                "This link leads to a CIFAR-10 picture, and CIFAR-10 is not on this machine. "
                "The Confusion matrix page can fetch it."
            )
        pixels = data.load_split("cifar10", "test", download=False).images
        if int(held_out[1]) < len(pixels):
            return Image.fromarray(pixels[int(held_out[1])].transpose(1, 2, 0))
    raise NoPicture("There is no picture of that name here. Choose one below, or upload your own.")
