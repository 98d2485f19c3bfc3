"""Fair timing: in every round each candidate takes its turn, so that all meet the same machine."""

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import TypeVar

import torch

CPU = torch.device("cpu")
Run = Callable[[], object]
Name = TypeVar("Name")


def seconds(run: Run, device: torch.device = CPU) -> float:
    """How long a call takes, to the end of what it started on a GPU."""
    _finish(device)
    started = time.perf_counter()
    run()
    _finish(device)
    return time.perf_counter() - started


def interleaved(
    runs: Mapping[Name, Run], rounds: int, device: torch.device = CPU
) -> dict[Name, list[float]]:
    """Seconds of every call, by name and round, after one untimed call of each.

    Each round starts one candidate later than the one before, so that none is always first.
    """
    names = list(runs)
    for run in runs.values():
        run()
    times: dict[Name, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(seconds(runs[name], device))
    return times


def paired_ratio(times: list[float], base: list[float]) -> float:
    """The median, over rounds, of a time ÷ the base's in the same round. A machine that is slow for
    a while slows both, so this holds where a ratio of medians wavers."""
    return median(time / other for time, other in zip(times, base, strict=True))


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
