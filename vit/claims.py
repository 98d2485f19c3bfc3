"""One trainer for a run directory, and whether it lives.

A trainer holds ``trainer.lock`` exclusively (flock(2)) from before its first write until it ends.
The kernel lets go of the lock however the process ends, so it cannot lie as a file with a number
in it can: no reused process number, clock that jumps or damaged status is taken for a trainer.
Whoever looks, or acts on a run that nobody trains, takes the lock shared, so that lookers do not
disturb each other and no trainer starts under an action. (The locks of filelock are exclusive
only, and cannot be handed to a child process.) Process number and start time are asked as well,
for a lock file that somebody deleted and for file systems without locks.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from vit import runs
from vit.runs import RunError

PATIENCE = 5.0  # seconds that a trainer waits for lookers, who need microseconds each
SAME_START = 2.0  # seconds; start times are counted from a boot time that is rounded to one
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}  # said by file systems without them

_mine: dict[Path, int] = {}  # directory that this process trains in → its open descriptor
_handed: dict[Path, int] = {}  # directory → descriptor of the lock that another process took for it


def take(out: Path) -> int:
    """Take the lock of a run directory; returns the descriptor that holds it until it is closed,
    here and in every process that it was handed to.

    Raises:
        RunError: if another process trains there.
    """
    lock = os.open(out / runs.LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        deadline = time.monotonic() + PATIENCE
        while not try_lock(lock):
            if time.monotonic() > deadline:
                raise _busy(out)
            time.sleep(0.05)
        status = runs.read_status(out)
        if _lives(status) and status["pid"] != os.getpid():
            raise _busy(out)
    except BaseException:
        os.close(lock)
        raise
    return lock


def adopt(out: Path, lock: int) -> None:
    """Let the next :func:`hold` of ``out`` use a lock that :func:`take` took in another process."""
    _handed[out.absolute()] = lock


@contextmanager
def hold(out: Path) -> Iterator[None]:
    """Be the one trainer of a run directory, which is made if it is not there. Of the processes
    of one ``torchrun``, rank 0 holds it for all.

    Raises:
        RunError: if another process trains there.
    """
    if int(os.environ.get("RANK", "0")):
        yield
        return
    key = out.absolute()
    if (lock := _handed.pop(key, None)) is None:
        out.mkdir(parents=True, exist_ok=True)
        lock = take(out)
    try:
        if not in_place(lock, out / runs.LOCK):
            raise _removed(out)
        _mine[key] = os.open(out, os.O_RDONLY)
        try:
            yield
        finally:
            os.close(_mine.pop(key))
    finally:
        os.close(lock)


def in_place(handle: int, path: Path) -> bool:
    """Whether what was opened as ``path`` still is what lies there."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def check(out: Path) -> None:
    """Make sure that what this process trains is still in its place, so that a directory that was
    removed does not come back with the next file written.

    Raises:
        RunError: if it was removed or replaced.
    """
    place = _mine.get(out.absolute())
    if place is not None and not in_place(place, out):
        raise _removed(out)


def is_held(path: Path) -> bool:
    """Whether a living process trains in a run directory."""
    try:
        lock = os.open(path / runs.LOCK, os.O_RDONLY)
    except OSError:
        return _lives(runs.read_status(path))
    try:
        return not try_lock(lock, fcntl.LOCK_SH) or _lives(runs.read_status(path))
    finally:
        os.close(lock)


@contextmanager
def untrained(path: Path) -> Iterator[None]:
    """Act on a run directory while nobody trains there, and none can start to.

    Raises:
        RunError: if a process trains there.
    """
    lock = os.open(path / runs.LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not try_lock(lock, fcntl.LOCK_SH) or _lives(runs.read_status(path)):
            raise _busy(path)
        yield
    finally:
        os.close(lock)


def try_lock(handle: int, mode: int = fcntl.LOCK_EX, required: bool = False) -> bool:
    """Take a lock if nobody is in the way. Where there are no locks nobody is, unless one is
    ``required``."""
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if required or error.errno not in _NO_LOCKS:
            raise
    return True


def _lives(status: dict[str, Any]) -> bool:
    """Whether the process that said it was running still is, and is no other of its number."""
    pid, started = status.get("pid"), status.get("started")
    if status.get("state") != "running" or type(pid) is not int or type(started) is not float:
        return False
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - started) < SAME_START
        return same and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError, OverflowError):
        return False


def _busy(path: Path) -> RunError:
    pid = runs.read_status(path).get("pid")
    by = f" by process {pid}" if type(pid) is int else ""
    return RunError(f"{path} is being trained{by}. Pause it, or wait until it has ended.")


def _removed(out: Path) -> RunError:
    return RunError(
        f"{out} was removed while it was being trained, so training stopped and nothing more is "
        f"written there. Start the run again."
    )
