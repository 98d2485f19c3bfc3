"""A zip from anywhere, read in memory: nothing is ever unpacked onto the disk."""

import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vit.decoded import DataError

MAX_ENTRIES = 200_000
MAX_UNPACKED = 8 * 2**30  # bytes, all entries together
MAX_RATIO = 200  # unpacked to packed; pictures hardly shrink, so more than this is a bomb
_DAMAGED = (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError)
_SMALL = 2**20  # bytes; below this any ratio is harmless (a plain BMP shrinks a thousandfold)


@contextmanager
def open_zip(path: Path) -> Iterator[tuple[list[str], Callable[[str, int], bytes]]]:
    """Open a zip as (names of its files, read(name, limit) -> at most `limit` bytes).

    Raises DataError if it is damaged, encrypted, a bomb, or names places outside of itself; and
    `read` does if an entry turns out to be damaged.
    """
    try:
        archive = zipfile.ZipFile(path)
    except _DAMAGED as error:
        raise DataError(f"{path} cannot be opened as a zip ({error}). Zip it again.") from error
    with archive:
        entries = {entry.filename: entry for entry in archive.infolist() if not entry.is_dir()}
        _refuse_attacks(path, archive.infolist())

        def read(name: str, limit: int) -> bytes:
            try:
                with archive.open(entries[name]) as file:
                    return file.read(limit)
            except _DAMAGED as error:
                raise DataError("it is damaged inside the zip") from error

        yield list(entries), read


def _refuse_attacks(path: Path, entries: list[zipfile.ZipInfo]) -> None:
    """Raise DataError, naming the first entry that no honest zip of pictures has."""
    if len(entries) > MAX_ENTRIES:
        raise DataError(
            f"{path} holds {len(entries):,} files; at most {MAX_ENTRIES:,} are read. Unzip it and "
            "give the folder instead."
        )
    if sum(entry.file_size for entry in entries) > MAX_UNPACKED:
        raise DataError(
            f"{path} unpacks to more than {MAX_UNPACKED // 2**30} GiB and is refused. Unzip it and "
            "give the folder instead."
        )
    for entry in entries:
        reason = attack(entry)
        if reason:
            raise DataError(
                f"{path} is refused: its entry {entry.orig_filename[:80]!r} {reason}. Zip the "
                "folder of pictures again, with an ordinary zip program."
            )


def attack(entry: zipfile.ZipInfo) -> str | None:
    """What an entry has that no honest zip has, in words; None if it is in order."""
    name = entry.orig_filename  # `filename` has what follows a NUL cut off
    if name.startswith("/") or re.match("[A-Za-z]:", name) or ".." in name.split("/"):
        return "points outside of the zip"
    if "\\" in name or "\0" in name:
        return "has a name that is no path"
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "is a link"
    if entry.flag_bits & 1:
        return "is encrypted"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is compressed in an unusual way"
    if entry.file_size > max(_SMALL, MAX_RATIO * entry.compress_size):
        return f"unpacks to more than {MAX_RATIO} times its size"
    return None
