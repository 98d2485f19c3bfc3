"""The process that trains what waits in a runs directory: ``python -m vit.worker RUNS_DIR``.

:func:`vit.jobs.keep_going` starts it; by hand it does the same. There is one for a runs directory
at a time. It runs at low priority, as do the trainers that it starts, and leaves one core free.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from vit import claims, estimate, jobs, runs
from vit.runs import RunError

POLL = 0.5  # seconds between looks
GRACE = 60.0  # seconds in which a trainer leaves by itself when asked to pause
RETRY = 10.0  # seconds between tries to write where there is no room


def work(runs_dir: Path, lock: int) -> None:
    """Train what waits, one run after another, until nothing waits or the directory is gone."""
    while claims.in_place(lock, runs_dir / jobs.WORKER_LOCK):
        found = jobs.list_jobs(runs_dir)
        waiting = [job for job in found if job.state == "queued"]
        if not waiting:
            return
        if any(job.state == "running" for job in found):
            time.sleep(POLL)  # a trainer that lost its worker, or one of the command line
            continue
        try:
            _train(waiting[0].path)
        except RunError:
            time.sleep(POLL)  # somebody else trains it since
        except OSError as error:
            print(f"{waiting[0].path}: {error}", file=sys.stderr)
            time.sleep(RETRY)  # no room, perhaps; the run goes on waiting


def _train(path: Path) -> None:
    """Train one run to its end, whatever that is."""
    lock = claims.take(path)
    try:
        if not jobs.waits(path):
            return  # paused or deleted since
        resuming = (path / runs.CONFIG).exists()
        command = [sys.executable, "-m", "vit.train", str(jobs.settings_file(path))]
        command += ["--out", str(path), "--lock", str(lock)]
        with open(path / runs.LOG, "ab") as log:
            said_before = log.tell()
            trainer = subprocess.Popen(
                [*command, *(["--resume"] if resuming else [])],
                env={"OMP_NUM_THREADS": str(jobs.trainer_threads())} | os.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock],  # the run is held without a gap until the trainer ends
            )
    finally:
        os.close(lock)
    _wait(trainer, path)
    while path.is_dir():
        try:
            _note_end(path, trainer.returncode, said_before)
            return
        except RunError:
            return  # somebody else trains it already
        except OSError:
            time.sleep(RETRY)  # else it would seem to wait still, and be tried again and again


def _wait(trainer: subprocess.Popen[bytes], path: Path) -> None:
    """Wait for a trainer's end, and hasten it where one asked to pause hangs."""
    asked: float | None = None
    hastened = False
    while trainer.poll() is None:
        time.sleep(POLL)
        asked = (asked or time.monotonic()) if jobs.wish_of(path) == "pause" else None
        waited = time.monotonic() - asked if asked else 0.0
        if waited > 2 * GRACE:
            trainer.kill()
        elif waited > GRACE and not hastened:
            trainer.terminate()
            hastened = True


def _note_end(path: Path, code: int, said_before: int) -> None:
    """Take a run out of the queue that ended before it could say so itself."""
    with claims.untrained(path):
        status = runs.read_status(path)
        ended = code < 0 or code == 130  # by a signal
        if status.get("state") == "queued":
            state = (
                "paused" if jobs.wish_of(path) == "pause" else "interrupted" if ended else "failed"
            )
        elif status.get("state") == "running" and not ended:
            state = "failed"
        else:
            return
        error = _last_words(path / runs.LOG, said_before) if state == "failed" else None
        how_far = {key: jobs.count(status.get(key)) for key in ("step", "total")}
        runs.write_json(path / runs.STATUS, {"state": state, **how_far, "error": error})


def _last_words(log: Path, start: int) -> str:
    """Why a trainer ended, by what it wrote behind ``start``."""
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").strip().splitlines()[-200:]
    if error := jobs.error_in("\n".join(lines)):
        return error
    last = jobs.one_line(lines[-1]) if lines else "it said nothing"
    return (
        f"Training ended unexpectedly ({last}). {log.name} in its folder has more. Resume it to "
        f"try again."
    )


def main(arguments: list[str] | None = None) -> int:
    """The worker's command line; returns its exit code."""
    parser = argparse.ArgumentParser("python -m vit.worker", description="Train what waits.")
    parser.add_argument("runs_dir", metavar="RUNS_DIR", type=Path)
    parser.add_argument("--lock", type=int, help=argparse.SUPPRESS)  # taken by keep_going
    given = parser.parse_args(arguments)
    if jobs.training_is_off() or not given.runs_dir.is_dir():
        parser.error("training is switched off (VIT_TRAINING=off), or there is no such directory.")
    lock = given.lock if given.lock is not None else jobs.take_worker_lock(given.runs_dir)
    if lock is None:
        print("Another worker is at it already.", file=sys.stderr)
        return 0
    os.nice(max(0, estimate.NICENESS - os.nice(0)))
    try:
        work(given.runs_dir, lock)
    except KeyboardInterrupt:
        return 130
    os.close(lock)
    if given.runs_dir.is_dir():
        jobs.keep_going(given.runs_dir)  # a run queued while this worker was about to leave
    return 0


if __name__ == "__main__":
    sys.exit(main())
