"""Training in the background: start, watch, pause, resume, stop, delete and queue runs.

The app and training meet in the run directory alone (see vit/runs.py). Any number of apps and
command lines may share a runs directory; no state is kept in memory, so any of them may be killed
at any time.

A run waits when its ``status.json`` says ``queued``. One worker in a runs directory (vit/worker.py)
trains what waits, one run after another, each in a process of its own, and ends when nothing waits.
:func:`keep_going` starts it; call it whenever a page is shown. App, worker and trainer do not need
each other: if the worker is killed, the trainer trains on, and the next worker waits for it.

What :func:`look` says of a run is worked out anew each time; what a file says is believed only
where the trainer's lock (vit/claims.py) does not say otherwise:

==============  =================================================================================
``queued``      waits for its turn
``running``     a living process trains it, whoever started it
``paused``      somebody asked for it to be; resuming goes on after the last whole epoch
``interrupted`` no process trains it and nobody asked for that: it was killed, or the machine was
                switched off; resuming goes on after the last whole epoch
``failed``      it ended with an error, which ``message`` tells
``finished``    all epochs are trained, or it was stopped early; evaluated on the test split
==============  =================================================================================

How one becomes another:

=================  ==========  ============  ======================================================
what happens       from        to            by
=================  ==========  ============  ======================================================
``start``          nothing     queued        a new folder with ``request.json``
its turn comes     queued      running       the worker takes the lock and hands it to the trainer
last epoch         running     finished      the trainer
``pause``          queued      paused        a file ``pause``; the worker passes it over
``pause``          running     paused        the trainer sees the file within ten steps and leaves
                                             (while it fetches or reads pictures, at once)
``resume``         paused,     queued        the file is removed, the run goes to the queue's end
                   interrupted,
                   failed
``resume``         finished    queued        only if it was stopped early
``stop``           running     finished      a file ``stop``; after the epoch in progress
``stop``           queued,     queued, then  only if it has a whole epoch; the trainer evaluates it
                   paused,     finished
                   interrupted,
                   failed
an error           running     failed        the trainer, or the worker with its last words
kill -9, crash     running     interrupted   nobody has to: the lock is free, the status is old
``delete``         any but     nothing       moved aside, then removed
                   running
=================  ==========  ============  ======================================================

With ``VIT_TRAINING=off`` everything but looking is refused.
"""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import psutil
import torch
from filelock import FileLock, Timeout

from vit import claims, runs
from vit.estimate import Estimate, memory_bytes
from vit.runs import RunError
from vit.settings import Recipe, read_settings

State = Literal["queued", "running", "paused", "interrupted", "failed", "finished"]
Wish = Literal["", "pause", "stop"]

WORKER_LOCK, WORKER_LOG = ".worker.lock", ".worker.log"
ACTION_LOCK, TRASH = ".jobs.lock", ".trash"
ROOT = Path(__file__).resolve().parents[1]  # where `python -m vit.worker` finds this package
FULL = 64 * 2**20  # bytes free; with less, a lack of room is the likely reason for an end

_workers: list[subprocess.Popen[bytes]] = []  # started here and not yet seen to have ended


@dataclass(frozen=True)
class Task:
    """What a trainer is at other than training steps, such as fetching pictures: ``done`` bytes or
    pictures of ``total``, which is 0 where that cannot be told."""

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class Job:
    """A run as it is now.

    Attributes:
        name: as given by whoever started it; a stranger's text. The folder's, if none was given.
        wish: what the run was asked to do and has not done yet.
        step, total: training steps done, as last told, and in all; 0 while unknown.
        order: its place among those that wait, lowest first; 0 if it does not wait.
        message: what happened and what to do, in one or two sentences; may be empty.
        task: what it does while it takes no training steps, if it runs and said so.
    """

    path: Path
    name: str
    tags: tuple[str, ...]
    state: State
    wish: Wish
    step: int
    total: int
    order: int
    message: str
    task: Task | None = None


# ---- looking -------------------------------------------------------------------------------------


def look(path: Path) -> Job:
    """What a run is doing now. Costs a few small reads, and works for shipped runs too.

    Raises:
        RunError: if there is no such run (any more).
    """
    if not _is_job(path):
        raise RunError(f"There is no run in {path} (any more). Choose another.")
    held = claims.is_held(path)  # asked first: who lets go has told its end before
    status = runs.read_status(path)
    request = runs.read_request(path)
    said = status.get("state")
    told = said if isinstance(said, str) and said in get_args(State) else ""
    wish = wish_of(path)
    state: State
    if held or (told == "running" and claims.is_held(path)):
        state = "running"
    elif told in ("queued", "running") and wish == "pause":
        state = "paused"
    elif told in ("queued", "paused", "failed", "finished"):
        state = cast("State", told)
    elif not told and (path / runs.PREDICTIONS).exists():
        state = "finished"
    else:
        state = "interrupted"
    step, total, order = (count(status.get(key)) for key in ("step", "total", "order"))
    name, tags = request.get("name"), request.get("tags")
    return Job(
        path,
        name if isinstance(name, str) and name else path.name,
        tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
        state,
        "" if state in ("paused", "finished") else wish,
        step,
        total,
        order if state == "queued" else 0,
        _message(path, state, told, wish, status),
        _task(status.get("task")) if state == "running" else None,
    )


def list_jobs(runs_dir: Path) -> list[Job]:
    """All runs of a runs directory: the one that trains, those that wait in their order, then the
    others by name."""
    found = []
    for path in sorted(runs_dir.glob("*")):
        try:
            found.append(look(path))
        except RunError:
            continue  # no run, or removed since
    rank = {"running": 0, "queued": 1}
    return sorted(found, key=lambda job: (rank.get(job.state, 2), job.order))


def find(runs_dir: Path, folder: str) -> Path:
    """The run in a folder named by a stranger, for instance in a URL.

    Raises:
        RunError: if there is none of exactly that name in ``runs_dir``.
    """
    for path in runs_dir.glob("*"):
        if path.name == folder and _is_job(path):
            return path
    raise RunError("There is no run of that name (any more). Choose another.")


def settings(path: Path) -> tuple[Recipe, int]:
    """The recipe and seed that a run was asked for with.

    Raises:
        RunError: if they cannot be read or used.
    """
    try:
        return read_settings(settings_file(path))
    except ValueError as error:
        raise RunError(f"{error} Start a new run.") from error


def training_is_off() -> bool:
    """Whether ``VIT_TRAINING=off`` is set, as on a public demo."""
    return os.environ.get("VIT_TRAINING", "").lower() == "off"


def _is_job(path: Path) -> bool:
    files = (runs.REQUEST, runs.CONFIG, runs.STATUS)
    return not path.name.startswith(".") and any(os.path.isfile(path / name) for name in files)


def settings_file(path: Path) -> Path:
    """``config.json`` once training has begun: what a resumed run must agree with."""
    return path / (runs.CONFIG if (path / runs.CONFIG).exists() else runs.REQUEST)


def wish_of(path: Path) -> Wish:
    """What a run was asked to do; pausing goes before stopping."""
    if (path / runs.PAUSE).exists():
        return "pause"
    return "stop" if (path / runs.STOP).exists() else ""


def count(value: Any) -> int:
    """A number of steps as a status gives it; 0 for what cannot be one."""
    return value if type(value) is int and value > 0 else 0


def _message(path: Path, state: State, told: str, wish: Wish, status: dict[str, Any]) -> str:
    step, total = count(status.get("step")), count(status.get("total"))
    where = f" at step {step:,} of {total:,}" if total else ""
    go_on = "Resume it: it goes on after its last whole epoch."
    full = state in ("queued", "interrupted") and _is_full(path)
    if full:
        go_on = "The disk is full. Free some space, then resume it."
    if state == "queued":
        return "It waits for room: the disk is full. Free some space." if full else ""
    if state == "running":
        return {
            "": "",
            "pause": "It is about to pause; the epoch in progress will be trained again.",
            "stop": "It stops after the epoch in progress.",
        }[wish]
    if state == "paused":
        return f"Paused{where}. {go_on}"
    if state == "failed":
        return one_line(status.get("error")) or f"It ended with an error{where}. {go_on}"
    if state == "finished":
        early = step < total
        return f"Stopped early,{where}. Resume it to train on." if early else ""
    if told == "running":
        return (
            f"Its process ended without a word{where}: it was killed, or the machine was switched "
            f"off. {go_on}"
        )
    if told == "interrupted":
        return f"It was interrupted{where}. {go_on}"
    return f"Its {runs.STATUS} is missing or damaged, and no process trains it. {go_on}"


def _is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path).free < FULL
    except OSError:
        return False  # removed meanwhile


def _task(told: Any) -> Task | None:
    """A task as a status gives it."""
    what = one_line(told.get("what")) if isinstance(told, dict) else ""
    return Task(what, count(told.get("done")), count(told.get("total"))) if what else None


def error_in(said: str) -> str:
    """The last error that a process of this package wrote; empty if there is none."""
    found = re.findall(r"^(?:[\w .-]+: )?error: (.+)$", said, re.MULTILINE)
    return found[-1] if found else ""


def one_line(text: Any) -> str:
    """A message as a status gives it, cut to 500 characters; empty for what cannot be one."""
    return " ".join(text.split())[:500] if isinstance(text, str) else ""


# ---- acting --------------------------------------------------------------------------------------


def start(
    runs_dir: Path, recipe: Recipe, seed: int = 0, name: str = "", tags: Sequence[str] = ()
) -> Path:
    """Put a new run at the end of the queue; returns its directory.

    ``name`` is shown, ``recipe.name`` if empty; the folder gets a safe name made from it.

    Raises:
        RunError: if the settings make no sense or need more memory than there is, or nothing can
            be written.
    """
    _refuse_if_off()
    recipe = _checked(recipe)
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise RunError(f"The seed must be a whole number from 0 to {2**32 - 1}, not {seed!r}.")
    name = _label(name, 80) or recipe.name
    request = {
        "format": 1,
        "name": name,
        "tags": _labels(tags),
        "recipe": recipe.to_dict(),
        "seed": seed,
    }
    with _acting(runs_dir):
        path = new_folder(runs_dir, name)
        try:
            runs.write_json(path / runs.REQUEST, request)
            _queue(path)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            raise
    keep_going(runs_dir)
    return path


def estimate(recipe: Recipe, pictures: int, timeout: float = 60.0) -> Estimate:
    """What a run by ``recipe`` would take, measured here in a few seconds by a process of its own,
    at the priority and with the threads of a trainer.

    Args:
        pictures: how many are learned from in an epoch.
        timeout: seconds after which measuring is given up.

    Raises:
        RunError: if the settings make no sense, or it cannot be measured.
    """
    _refuse_if_off()
    command = [sys.executable, "-m", "vit.estimate", "/dev/stdin", "--pictures", str(pictures)]
    try:
        done = subprocess.run(
            command,
            env={"OMP_NUM_THREADS": str(trainer_threads())}
            | os.environ
            | {"PYTHONPATH": _python_path()},
            input=json.dumps(_checked(recipe).to_dict()),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as error:
        raise RunError(
            "Measuring how fast this machine trains took too long, so nobody knows how long the "
            "run will take. Try again, or start it and see."
        ) from error
    except OSError as error:
        raise RunError(f"How long it takes could not be measured ({error}). Try again.") from error
    if done.returncode:
        said = error_in(done.stderr) or "Its process ended unexpectedly. Try again."
        raise RunError(f"How long it takes could not be measured: {said}")
    return Estimate(**json.loads(done.stdout))


def again(runs_dir: Path, path: Path, seed: int) -> Path:
    """Queue a new run with the settings of another, shipped ones included, and another seed.

    Raises:
        RunError: as :func:`start`, or if the settings cannot be read.
    """
    _refuse_if_off()
    job, (recipe, _) = look(path), settings(path)
    name = re.sub(r" \(seed \d+\)$", "", job.name)
    return start(runs_dir, recipe, seed, f"{name[:60]} (seed {seed})", job.tags)


def pause(path: Path) -> None:
    """Ask a run to pause, now rather than after the epoch in progress; nothing if it neither runs
    nor waits.

    Raises:
        RunError: if there is no such run, or nothing can be written.
    """
    _refuse_if_off()
    with _acting(path.parent):
        if look(path).state in ("queued", "running"):
            (path / runs.PAUSE).touch()


def resume(path: Path) -> None:
    """Put a run at the end of the queue again, to go on after its last whole epoch. For one that
    runs or waits, take back what it was asked to do.

    Raises:
        RunError: if there is no such run, all its epochs are trained, or nothing can be written.
    """
    _refuse_if_off()
    with _acting(path.parent):
        job = look(path)
        if job.state == "finished" and job.step >= job.total:
            raise RunError(f"{job.name} is finished. Train it again with another seed instead.")
        if job.state in ("queued", "running"):
            _forget_wishes(path)
        else:
            with claims.untrained(path):
                _queue(path)
                _forget_wishes(path)
    keep_going(path.parent)


def stop(path: Path) -> None:
    """End a run early: after the epoch in progress, what it has learned is evaluated and kept as
    if its epochs were over. Nothing if it is finished.

    Raises:
        RunError: if there is no such run, it has no whole epoch yet and does not run, or nothing
            can be written.
    """
    _refuse_if_off()
    with _acting(path.parent):
        job = look(path)
        if job.state == "finished":
            return
        if job.state == "running":
            (path / runs.STOP).touch()
            (path / runs.PAUSE).unlink(missing_ok=True)
            return
        if not (path / runs.RESUME).exists():
            raise RunError(
                f"{job.name} has not finished an epoch, so there is nothing to keep. Resume it, "
                f"or delete it."
            )
        with claims.untrained(path):
            (path / runs.STOP).touch()
            (path / runs.PAUSE).unlink(missing_ok=True)
            if job.state != "queued":
                _queue(path)
    keep_going(path.parent)


def delete(path: Path) -> None:
    """Delete a run with all it has learned.

    Raises:
        RunError: if it is being trained, there is no such run, or it cannot be removed.
    """
    _refuse_if_off()
    with _acting(path.parent):
        look(path)
        with claims.untrained(path):
            trash = path.parent / TRASH
            trash.mkdir(exist_ok=True)
            # In one step, so that nobody meets half a run, and a kill leaves the rest to the next.
            os.rename(path, trash / f"{path.name}-{secrets.token_hex(4)}")
        shutil.rmtree(trash, ignore_errors=True)


def label(path: Path, name: str, tags: Sequence[str]) -> None:
    """Give a run another name, shown only, and other tags.

    Raises:
        RunError: if there is no such run, or nothing can be written.
    """
    _refuse_if_off()
    with _acting(path.parent):
        look(path)
        request = runs.read_request(path)
        labels = {"name": _label(name, 80) or path.name, "tags": _labels(tags)}
        runs.write_json(path / runs.REQUEST, {"format": 1, **request, **labels})


def keep_going(runs_dir: Path) -> None:
    """Start the worker if a run waits and there is none. Cheap where nothing waits.

    Raises:
        RunError: if it cannot be started.
    """
    _refuse_if_off()
    _workers[:] = [worker for worker in _workers if worker.poll() is None]  # no zombies
    if not any(waits(path) for path in runs_dir.glob("*")):
        return
    try:
        if (lock := take_worker_lock(runs_dir)) is None:
            return
        try:
            command = [sys.executable, "-m", "vit.worker", str(runs_dir), "--lock", str(lock)]
            with open(runs_dir / WORKER_LOG, "ab") as log:
                worker = subprocess.Popen(
                    command,
                    env=os.environ | {"PYTHONPATH": _python_path()},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    pass_fds=[lock],  # the worker holds the lock from its birth on
                    start_new_session=True,  # a Ctrl-C meant for the app does not reach it
                )
        finally:
            os.close(lock)
    except OSError as error:
        raise _unwritable(runs_dir, error) from error
    _workers.append(worker)


@contextmanager
def _acting(runs_dir: Path) -> Iterator[None]:
    """One action at a time in a runs directory, so that none works on what another removes."""
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
        with FileLock(runs_dir / ACTION_LOCK, timeout=10):
            yield
    except Timeout as error:
        raise RunError("Somebody else is changing the runs. Try again in a moment.") from error
    except OSError as error:
        raise _unwritable(runs_dir, error) from error


def _refuse_if_off() -> None:
    if training_is_off():
        raise RunError("Training is switched off here (VIT_TRAINING=off). Run the app yourself.")


def _unwritable(runs_dir: Path, error: OSError) -> RunError:
    return RunError(
        f"Nothing can be written in {runs_dir} ({error.strerror or error}). Free some space "
        f"there, or point VIT_RUNS_DIR at a folder that you can write to."
    )


def _checked(recipe: Recipe) -> Recipe:
    try:
        recipe = Recipe.from_dict(recipe.to_dict())
    except ValueError as error:
        raise RunError(str(error)) from error
    _refuse_if_too_large(recipe)
    return recipe


def _refuse_if_too_large(recipe: Recipe) -> None:
    needed, memory = memory_bytes(recipe), psutil.virtual_memory().total
    if needed > memory:
        raise RunError(
            f"This model and batch need about {needed / 1e9:,.0f} GB of memory, and there are "
            f"{memory / 1e9:,.0f}. Choose a smaller batch, width or depth, or larger patches."
        )


def _label(text: str, limit: int) -> str:
    """Text to be shown in one line."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())[:limit].strip()


def _labels(tags: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(filter(None, (_label(tag, 40) for tag in tags))))[:20]


def new_folder(runs_dir: Path, name: str) -> Path:
    """A new folder whose name holds nothing but letters, digits and hyphens of ``name``."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    stem = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-") or "run"
    number = 1
    while True:
        path = runs_dir / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1


def _queue(path: Path) -> None:
    """Let a run wait behind all others."""
    old = runs.read_status(path)
    orders = [count(runs.read_status(other).get("order")) for other in path.parent.glob("*")]
    status = {"state": "queued", "order": 1 + max(orders, default=0)}
    how_far = {key: count(old.get(key)) for key in ("step", "total")}
    runs.write_json(path / runs.STATUS, {**status, **how_far, "error": None})


def waits(path: Path) -> bool:
    """Whether a run is in the queue."""
    queued = runs.read_status(path).get("state") == "queued"
    return queued and not path.name.startswith(".") and wish_of(path) != "pause"


def _forget_wishes(path: Path) -> None:
    for wish in (runs.PAUSE, runs.STOP):
        (path / wish).unlink(missing_ok=True)


def trainer_threads() -> int:
    """How many threads a trainer computes with: one core is left to the pages."""
    return max(1, torch.get_num_threads() - 1)


def _python_path() -> str:
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def take_worker_lock(runs_dir: Path) -> int | None:
    """The descriptor that makes its owner the runs directory's worker; None if there is one."""
    lock = os.open(runs_dir / WORKER_LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    if claims.try_lock(lock, required=True):
        return lock
    os.close(lock)
    return None
