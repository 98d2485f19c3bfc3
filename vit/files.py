"""Files that are always whole: written beside their place, then put there in one step."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let ``write`` fill ``path``; a reader sees the old file or the new one, never half of one.

    Raises:
        OSError: if there is no room or no right to write; the old file is then untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.chmod(draft, 0o644)  # mkstemp's 0600 would hide a shared folder's files from other users
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)  # a Ctrl-C may come when it is in its place already
        raise
