"""How long a recipe trains until its model is as good as system C's published one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from benchmarks.tables import Table
from tests.small_data import write_parquet
from vit import runs, train
from vit.recipes import Recipe, sixty_five, sixty_five_short, system_c

TARGET = 0.8125  # system C's test accuracy
TRAINING_PICTURES = 50_000
VALIDATION = 100


def seconds_per_epoch(recipe: Recipe, folder: Path, steps: int, device: torch.device) -> float:
    """How long one epoch on CIFAR-10 takes, from a run of one epoch of ``steps`` steps.

    It is a whole run in small: whatever a recipe does in a share of its steps only, it does here
    in the same share of them. The checks on validation and test pictures are not counted.
    """
    short = replace(recipe, epochs=1, warmup_epochs=0.0, validation=VALIDATION)
    with tempfile.TemporaryDirectory(dir=folder) as out, _silence():
        train.train(short, Path(out) / "run", data_dir=folder, device=device)
        (row,) = runs.read_metrics(Path(out) / "run")
    full = (TRAINING_PICTURES - recipe.validation) // recipe.batch_size
    return row["seconds"] / steps * full


def epochs_needed(run: Path) -> int | str:
    """The epochs of a kept run, all of them, as its schedule was made for that length; or a
    sentence that says why they do not count."""
    rows = runs.read_metrics(run)
    if not rows:
        return f"{run / runs.METRICS} is not there, so the epochs to the target are not known."
    best = max(row["test_accuracy"] or 0.0 for row in rows)
    if best < TARGET:
        return f"{run / runs.METRICS} ends at {100 * best:.2f} %, short of {100 * TARGET:.2f} %."
    return len(rows)


def measure(kept: Path, steps: int, batch: int, rounds: int, device: torch.device) -> Table:
    """Time to the target for system C as published and for our recipes, as far as ``kept`` (a
    folder with a run directory for each) has runs that reached it."""
    published = replace(system_c(), bfloat16=False)
    recipes = [replace(r, batch_size=batch) for r in (published, sixty_five_short(), sixty_five())]
    table = Table(
        f"Time to {100 * TARGET:.2f} % on CIFAR-10, from seconds per epoch measured here",
        {
            "recipe": "{}",
            "an epoch": "{:.0f} s",
            "epochs": "{}",
            "in all": "{:.1f} min",
            "system C ÷ it": "{:.1f}",
        },
    )
    times: dict[str, list[float]] = {recipe.name: [] for recipe in recipes}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_parquet(folder, "train", steps * batch + VALIDATION)
        write_parquet(folder, "test", VALIDATION)
        for number in range(rounds + 1):
            for recipe in recipes:
                once = seconds_per_epoch(recipe, folder, steps, device)
                if number:  # the first round only warms up
                    times[recipe.name].append(once)
    base = median(times[published.name]) * published.epochs
    for recipe in recipes:
        epoch = median(times[recipe.name])
        epochs: int | None = published.epochs
        if recipe.name != published.name:
            needed = epochs_needed(kept / recipe.name)
            epochs = needed if isinstance(needed, int) else None
            table.notes += [needed] if isinstance(needed, str) else []
        total = None if epochs is None else epoch * epochs
        table.rows.append(
            (recipe.name, epoch, epochs, total and total / 60, total and base / total)
        )
    table.notes.append("system_c: float32, its published 50 epochs; ours as their recipes say.")
    return table


@contextmanager
def _silence() -> Iterator[None]:
    """Keep a run's progress off the terminal."""
    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):
        yield
