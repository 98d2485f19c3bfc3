"""What training costs, against the same model from timm, torchvision and vit-pytorch.

Everything is measured in one run, the candidates taking turns:

- first of all, that the loss and every gradient equal timm's and torchvision's to 1e-5; if they do
  not, nothing is timed (in its last block ours leaves out what nothing reads; they do not);
- one step (forward, cross-entropy, backward, AdamW) in float32, and apart from it in bfloat16
  where there are units for it;
- the data pipeline against torchvision's transforms;
- how fast this machine multiplies matrices, and what share of that a step reaches;
- the time to system C's published accuracy.

    python -m benchmarks.training [--quick] [--json]
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for python benchmarks/training.py

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import arithmetic, pipeline, time_to_accuracy
from benchmarks.peers import SAME, all_models, compiled, differences
from benchmarks.precision import FLOAT32, Precision, available
from benchmarks.tables import Table, show
from benchmarks.timing import interleaved, paired_ratio
from tests.app_server import ROOT
from vit import ViTConfig
from vit.allocator import keep_freed_memory
from vit.evaluate import choose_device
from vit.model import count_parameters
from vit.products import fast_products

CONFIG = ViTConfig()
AS_TRAINED = "ours, as vit.train has it"


def step_of(
    model: nn.Module, images: Tensor, labels: Tensor, precision: Precision
) -> Callable[[], None]:
    """One training step of ``model`` on a batch, with an AdamW of its own."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05, fused=True)

    def step() -> None:
        with precision.forward(images.device):
            logits = model(images)
        F.cross_entropy(logits.float(), labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def with_fast_products(step: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """The step, its float32 products as :func:`vit.products.fast_products` has them."""

    def fast() -> None:
        with fast_products(device):
            step()

    return fast


def steps(
    models: dict[str, nn.Module],
    images: Tensor,
    labels: Tensor,
    rounds: int,
    precision: Precision,
) -> tuple[Table, float]:
    """Time one step of every model, in float32 also of ours as ``vit.train`` multiplies there.
    Returns the table, and the seconds that ours takes."""
    runs = {name: step_of(model, images, labels, precision) for name, model in models.items()}
    if precision is FLOAT32:
        runs[AS_TRAINED] = with_fast_products(runs["ours"], images.device)
        models = models | {AS_TRAINED: models["ours"]}
    with precision.products():
        times = interleaved(runs, rounds, images.device)
    table = Table(
        f"One training step of {len(images)} pictures in {precision.name}, median of {rounds}",
        {
            "model": "{}",
            "parameters": "{:,}",
            "a step": "{:.1f} ms",
            "speed": "{:.0f} pictures/s",
            "÷ ours": "{:.2f}",
            "÷ ours, paired": "{:.2f}",
        },
    )
    for name, measured in times.items():
        once = median(measured)
        table.rows.append(
            (
                name,
                count_parameters(models[name]),
                1e3 * once,
                len(images) / once,
                once / median(times["ours"]),
                paired_ratio(measured, times["ours"]),
            )
        )
    return table, median(times["ours"])


def equality(models: dict[str, nn.Module], images: Tensor, labels: Tensor) -> tuple[Table, bool]:
    """Whether the twins compute what ours computes."""
    found = differences(models, images, labels)
    table = Table(
        f"Loss and all gradients against ours (allowed: {SAME:.0e})",
        {"model": "{}", "largest difference": "{:.1e}"},
        list(found.items()),
        ["vit-pytorch's model is a slightly different one and is not compared."],
    )
    return table, all(difference <= SAME for difference in found.values())


def share_of_peak(
    batch: int, times: dict[Precision, float], peaks: dict[Precision, float]
) -> Table:
    """What part of the machine's measured speed a step reaches, its attention, norms and all.

    Args:
        times: seconds of a step of ours.
        peaks: operations per second in the fastest matrix product of the same accuracy.
    """
    counted = arithmetic.counted_step(CONFIG, batch)
    written = arithmetic.step_by_formula(CONFIG, batch)
    return Table(
        f"Arithmetic of a step of ours: {counted / 1e9:.3f} GFLOP counted, "
        f"{written / 1e9:.3f} by formula",
        {
            "precision": "{}",
            "speed": "{:.0f} GFLOP/s",
            "fastest product": "{:.0f} GFLOP/s",
            "share": "{:.0%}",
        },
        [
            (
                precision.name,
                counted / once / 1e9,
                peaks[precision] / 1e9,
                counted / once / peaks[precision],
            )
            for precision, once in times.items()
        ],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code, 1 if a peer computes something else."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--batch", type=int, default=128, help="pictures in a step (128)")
    parser.add_argument("--rounds", type=int, default=11, help="turns of each candidate (11)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda …")
    parser.add_argument(
        "--runs",
        type=Path,
        default=ROOT / "docs/runs",
        help="folder with run directories of our recipes, for the epochs they need (docs/runs)",
    )
    parser.add_argument("--quick", action="store_true", help="try it out; the figures mean nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    batch, rounds = (8, 1) if given.quick else (given.batch, given.rounds)
    torch.set_num_threads(given.threads)
    keep_freed_memory()  # for all candidates
    device = choose_device(given.device)

    models = all_models(CONFIG, device)
    images = torch.randn(batch, 3, 32, 32, device=device)
    labels = torch.randint(10, (batch,), device=device)
    same, equal = equality(models, images, labels)

    def tables() -> Iterator[Table]:
        yield Table(f"torch {torch.__version__} on {device}, {given.threads} threads")
        yield same
        if not equal:
            return
        candidates = models | compiled(models, device)
        times: dict[Precision, float] = {}
        for precision in available(device):
            table, times[precision] = steps(candidates, images, labels, rounds, precision)
            yield table
        square = 128 if given.quick else 2048
        table, peaks = arithmetic.peak(CONFIG, batch, rounds, list(times), device, square)
        yield table
        yield share_of_peak(batch, times, peaks)
        count = 64 if given.quick else 10_000
        yield pipeline.measure(count, batch, given.threads, min(rounds, 5), device)
        length = (2, 8) if given.quick else (200 if device.type == "cuda" else 20, 128)
        yield time_to_accuracy.measure(given.runs, *length, min(rounds, 3), device)

    show(tables(), given.json)
    if not equal:
        print("error: a peer does not compute what ours does; nothing was timed.", file=sys.stderr)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
