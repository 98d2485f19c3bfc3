"""What classifying costs, against the same model from timm, torchvision and vit-pytorch.

Everything is measured in one run, the candidates taking turns:

- first of all, that the logits equal timm's and torchvision's to 1e-5; if they do not, nothing is
  timed;
- 10,000 pictures through each model, a tenth of them a turn, in batches of 50 and of 250;
- that a recorded pass skips nothing: all attention of all blocks is there;
- ``python -m vit.evaluate`` from a cold start against its model alone (aim: at most 1.3×).

    python -m benchmarks.inference [--quick] [--json]
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for python benchmarks/inference.py

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.peers import SAME, all_models, compiled, logit_differences
from benchmarks.pipeline import MEAN, STD
from benchmarks.precision import FLOAT32, Precision, available
from benchmarks.tables import Table, show
from benchmarks.timing import interleaved, paired_ratio
from tests.app_server import ROOT
from vit import ViTConfig, load_run, record
from vit.allocator import keep_freed_memory
from vit.augment import normalize
from vit.data import DataError, load_split
from vit.evaluate import choose_device, load_test_split, predict_logits

CONFIG = ViTConfig()
BATCHES = (50, 250)
PARTS = 10


@torch.inference_mode()
def classify(model: nn.Module, images: Tensor, batch: int, precision: Precision) -> Tensor:
    """Logits (n, 10) of pictures (n, 3, 32, 32) uint8."""
    with precision.forward(images.device):
        return torch.cat([model(normalize(part, MEAN, STD)) for part in images.split(batch)])


def speeds(
    models: Mapping[str, nn.Module], images: Tensor, rounds: int, precision: Precision, what: str
) -> Table:
    """Time the pictures, a tenth of them in each round, through every model in batches of each
    size; and through ours as ``vit.evaluate`` does it."""
    parts = images.chunk(PARTS)

    def turns(run: Callable[[Tensor], object]) -> Callable[[], object]:
        """Each call takes the next part."""
        upcoming = cycle(parts)
        return lambda: run(next(upcoming))

    def evaluated(part: Tensor) -> Tensor:
        return predict_logits(models["ours"], part, MEAN, STD)

    runs = {
        (name, batch): turns(partial(classify, model, batch=batch, precision=precision))
        for name, model in models.items()
        for batch in BATCHES
    }
    with precision.products():
        times = interleaved(runs | {("evaluate", 0): turns(evaluated)}, rounds, images.device)
    totals = {run: median(each) * PARTS for run, each in times.items()}
    table = Table(
        f"Classifying {len(images):,} {what} in {precision.name}, median of {rounds} tenths × 10",
        {"model": "{}"}
        | {
            key: form
            for batch in BATCHES
            for key, form in {
                f"in {batch}s": "{:.2f} s",
                f"in {batch}s, ÷ ours": "{:.2f}",
                f"in {batch}s, paired": "{:.2f}",
            }.items()
        }
        | {"÷ vit.evaluate": "{:.2f}"},
    )
    for name in models:
        row: list[Any] = [name]
        for batch in BATCHES:
            ours = "ours", batch
            row += [totals[name, batch], totals[name, batch] / totals[ours]]
            row += [paired_ratio(times[name, batch], times[ours])]
        best = min(BATCHES, key=lambda batch: totals[name, batch])
        table.rows.append((*row, paired_ratio(times[name, best], times["evaluate", 0])))
    table.notes.append(
        f"The last column sets each model's better batch against how vit.evaluate runs ours: "
        f"{totals['evaluate', 0]:.2f} s, float32, products by oneDNN where that rounds nothing."
    )
    return table


@torch.inference_mode()
def recorded_attention(model: nn.Module, images: Tensor) -> tuple[Table, bool]:
    """Whether a recorded pass holds every attention weight, also those that a plain one skips."""
    with record() as trace:
        model(images)
    shape = (len(images), CONFIG.num_heads, CONFIG.num_tokens, CONFIG.num_tokens)
    found = [tuple(trace[f"blocks.{block}.attn.pattern"].shape) for block in range(CONFIG.depth)]
    table = Table(
        "Attention in a recorded pass",
        {"block": "{}", "found": "{}", "wanted": "{}"},
        [(block, str(each), str(shape)) for block, each in enumerate(found)],
    )
    return table, found == [shape] * CONFIG.depth


def cold_evaluation(
    run_dir: Path, data_dir: Path | None, threads: int, rounds: int, device: torch.device
) -> Table:
    """``python -m vit.evaluate`` as one types it, against the same forward passes alone: in a
    plain loop, and as the command makes them."""
    table = Table(
        f"python -m vit.evaluate, from nothing to its report, median of {rounds}",
        {
            "pictures": "{:,}",
            "whole command": "{:.2f} s",
            "model in a plain loop": "{:.2f} s",
            "command ÷ plain loop": "{:.2f}",
            "its own passes": "{:.2f} s",
            "command ÷ own passes": "{:.2f}",
        },
    )
    run = load_run(run_dir)
    try:
        split = load_test_split(run, data_dir, download=False)
    except DataError as error:
        table.notes.append(f"Not measured: {error}")
        return table
    images = torch.from_numpy(np.array(split.images)).to(device)
    model = run.model.to(device)
    command = [sys.executable, "-m", "vit.evaluate", str(run_dir.absolute()), "--json"]
    command += [f"--device={device}"] + ([f"--data-dir={data_dir.absolute()}"] if data_dir else [])
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    runs = {
        "command": lambda: subprocess.run(
            command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL
        ),
        "plain": lambda: classify(model, images, BATCHES[-1], FLOAT32),
        "own": lambda: predict_logits(model, images, run.mean, run.std),
    }
    times = interleaved(runs, rounds, device)
    table.rows.append(
        (
            len(images),
            median(times["command"]),
            median(times["plain"]),
            paired_ratio(times["command"], times["plain"]),
            median(times["own"]),
            paired_ratio(times["command"], times["own"]),
        )
    )
    table.notes.append("The data set is already decoded, as it is after the first use. Aim: 1.3.")
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code, 1 if a peer computes something else or a recorded
    pass misses something."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.inference",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns of each candidate (5)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda …")
    parser.add_argument("--data-dir", type=Path, help="default: VIT_DATA_DIR, else data/")
    parser.add_argument("--run", type=Path, default=ROOT / "checkpoints/cifar10")
    parser.add_argument("--quick", action="store_true", help="try it out; the figures mean nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    rounds = 2 if given.quick else given.rounds
    torch.set_num_threads(given.threads)
    keep_freed_memory()  # for all candidates
    device = choose_device(given.device)

    models = {name: model.eval() for name, model in all_models(CONFIG, device).items()}
    images, what = pictures(given.data_dir)
    images = images[:64].to(device) if given.quick else images.to(device)
    few = normalize(images[:64], MEAN, STD)
    gaps = logit_differences(models, few)
    recorded, complete = recorded_attention(models["ours"], few)
    equal = max(gaps.values()) <= SAME

    def tables() -> Iterator[Table]:
        yield Table(f"torch {torch.__version__} on {device}, {given.threads} threads")
        yield Table(
            f"Logits against ours (allowed: {SAME:.0e})",
            {"model": "{}", "largest difference": "{:.1e}"},
            list(gaps.items()),
        )
        yield recorded
        if not equal or not complete:
            return
        candidates = models | compiled(models, device)
        for precision in available(device):
            yield speeds(candidates, images, rounds, precision, what)
        yield cold_evaluation(given.run, given.data_dir, given.threads, min(rounds, 3), device)

    show(tables(), given.json)
    if not equal:
        print("error: a peer does not compute what ours does; nothing was timed.", file=sys.stderr)
    if not complete:
        print("error: a recorded pass lacks attention; nothing was timed.", file=sys.stderr)
    return 0 if equal and complete else 1


def pictures(data_dir: Path | None) -> tuple[Tensor, str]:
    """CIFAR-10's test pictures (10,000, 3, 32, 32) uint8, or as many random ones, and which."""
    try:
        split = load_split("cifar10", "test", data_dir, download=False)
    except DataError:
        return torch.randint(256, (10_000, 3, 32, 32), dtype=torch.uint8), "random pictures"
    return torch.from_numpy(np.array(split.images)), "test pictures of CIFAR-10"


if __name__ == "__main__":
    sys.exit(main())
