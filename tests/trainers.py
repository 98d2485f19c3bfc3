"""Training processes for tests that kill them.

They are forked from a server that has PyTorch imported, so each starts in a moment; what they then
do is what ``python -m vit.train`` does.
"""

import json
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from vit import runs, train

FORKS = multiprocessing.get_context("forkserver")
# The last is what PyTorch imports at the first step of an optimizer.
FORKS.set_forkserver_preload(["vit.train", "vit.jobs", "torch._dynamo"])

PATIENCE = 240.0  # seconds for what takes one on a quiet machine
TIMES = {"images_per_second", "seconds"}


@contextmanager
def process(target: Callable[..., None], *args: Any) -> Iterator[BaseProcess]:
    """A process that runs ``target``; it is killed at the end of the block if it still lives."""
    child = FORKS.Process(target=target, args=args)
    child.start()
    try:
        yield child
    finally:
        child.kill()
        child.join()
        child.close()


def train_debug(
    out: Path,
    data: Path,
    epochs: int,
    kill_at: int = 0,
    room: int = 0,
    log: Path | None = None,
    end_after: str = "",
) -> None:
    """Train the recipe ``debug`` with seed 3 in this process, going on where a run is there.

    kill_at: kill -9 at what it writes as this number, right before a file is put in its place or
        in the middle of a line of the live record; 0 for never.
    room: bytes that a file may have, 0 for any number: a small disk.
    log: where what is written to stderr goes.
    end_after: ask it to end (SIGTERM) right after its first file of this name is in its place.
    """
    torch.set_num_threads(1)
    with open(log or os.devnull, "a") as file:
        os.dup2(file.fileno(), 2)
    written, replace, append = 0, os.replace, runs.append_step

    def counting_replace(source: str, target: Path) -> None:
        nonlocal written, end_after
        if target.is_relative_to(out):
            written += 1
            if written == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)
        if target.name == end_after:
            end_after = ""
            os.kill(os.getpid(), signal.SIGTERM)

    def counting_append(path: Path, values: Sequence[float]) -> None:
        nonlocal written
        written += 1
        if written == kill_at:
            with open(path / runs.STEPS, "ab") as file:
                file.write(
                    json.dumps(dict(zip(runs.STEP_COLUMNS, values, strict=True)))[:50].encode()
                )
            os.kill(os.getpid(), signal.SIGKILL)
        append(path, values)

    os.replace, runs.append_step = counting_replace, counting_append
    if room:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that writing too much is an error
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    arguments = ["debug", "--epochs", str(epochs), "--seed", "3"]
    arguments += ["--out", str(out), "--data-dir", str(data)]
    sys.exit(train.main([*arguments, *(["--resume"] if (out / runs.CONFIG).exists() else [])]))


def ended(child: BaseProcess) -> int:
    """Wait for a process to end; returns its exit code, −9 after kill -9."""
    child.join(PATIENCE)
    assert child.exitcode is not None, "it hangs"
    return child.exitcode


def assert_same_run(ours: Path, theirs: Path) -> None:
    """Every number that training leaves behind is the same to the last bit, but for the times."""
    names = [runs.MODEL, runs.RESUME]
    names += [str(runs.snapshot_path(Path(), epoch)) for epoch in runs.list_epochs(theirs)]
    assert runs.list_epochs(ours) == runs.list_epochs(theirs)
    for name in names:
        one, other = load_file(ours / name), load_file(theirs / name)
        assert one.keys() == other.keys()
        for key in one:
            assert one[key].dtype == other[key].dtype and torch.equal(one[key], other[key]), key
    one, other = (
        [{k: v for k, v in row.items() if k not in TIMES} for row in runs.read_metrics(run)]
        for run in (ours, theirs)
    )
    assert one == other
    one, other = runs.read_steps(ours), runs.read_steps(theirs)
    assert len(one["step"]) == runs.read_metrics(theirs)[-1]["step"] // 10
    assert all((one[key] == other[key]).all() for key in one.keys() - TIMES)
    one, other = runs.read_predictions(ours), runs.read_predictions(theirs)
    assert (one["probabilities"] == other["probabilities"]).all()
    assert not [path for path in ours.rglob(".*") if path.is_file()], "no draft is left behind"
