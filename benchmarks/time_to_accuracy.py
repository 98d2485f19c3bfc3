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


def seconds_of_epoch(recipe: Recipe, data_dir: Path, device: torch.device) -> float:
    """How long a run of one epoch on the pictures in ``data_dir`` trains, checks not counted.

    It is a whole run in small: whatever a recipe does in a share of its steps only, it does here
    in the same share of them.
    """
    short = replace(recipe, epochs=1, validation=VALIDATION)
    with tempfile.TemporaryDirectory() as folder, _silence():
        out = Path(folder) / "run"
        train.train(short, out, data_dir=data_dir, device=device)
        (row,) = runs.read_metrics(out)
    return row["seconds"]


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
    folder with a run directory for each) has runs that reached it.

    A step's time is that of a run of 2·``steps`` less that of one of ``steps``: what a run does
    only once, as compiling for a GPU, cancels out.
    """
    theirs = {
        "system_c in float32": replace(system_c(), bfloat16=False),
        "system_c in bfloat16": system_c(),
    }
    ours = {recipe.name: recipe for recipe in (sixty_five_short(), sixty_five())}
    recipes = {name: replace(r, batch_size=batch) for name, r in (theirs | ours).items()}
    table = Table(
        f"Time to {100 * TARGET:.2f} % on CIFAR-10, from seconds per epoch measured here",
        {
            "recipe": "{}",
            "an epoch": "{:.0f} s",
            "epochs": "{}",
            "in all": "{:.1f} min",
            "system C in float32 ÷ it": "{:.1f}",
            "in bfloat16 ÷ it": "{:.1f}",
        },
    )
    step: dict[str, list[float]] = {name: [] for name in recipes}
    with tempfile.TemporaryDirectory() as folder:
        once, twice = Path(folder) / "once", Path(folder) / "twice"
        for data_dir, count in ((once, steps), (twice, 2 * steps)):
            write_parquet(data_dir, "train", count * batch + VALIDATION)
            write_parquet(data_dir, "test", VALIDATION)
        for recipe in recipes.values():
            seconds_of_epoch(recipe, once, device)  # warms up
        for _ in range(rounds):
            for name, recipe in recipes.items():
                short, long = (seconds_of_epoch(recipe, part, device) for part in (once, twice))
                step[name].append((long - short) / steps)
    epoch = {
        name: median(step[name]) * ((TRAINING_PICTURES - recipe.validation) // batch)
        for name, recipe in recipes.items()
    }
    published = [epoch[name] * recipe.epochs for name, recipe in theirs.items()]
    for name, recipe in recipes.items():
        epochs: int | None = recipe.epochs
        if name in ours:
            needed = epochs_needed(kept / name)
            epochs = needed if isinstance(needed, int) else None
            table.notes += [needed] if isinstance(needed, str) else []
        total = None if epochs is None else epoch[name] * epochs
        ratios = [total and each / total for each in published]
        table.rows.append((name, epoch[name], epochs, total and total / 60, *ratios))
    table.notes.append("system_c: its published 50 epochs; ours as their recipes say.")
    return table


@contextmanager
def _silence() -> Iterator[None]:
    """Keep a run's progress off the terminal."""
    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):
        yield
