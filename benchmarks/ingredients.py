"""What each ingredient of the recipe gives: short runs on CIFAR-10, one change at a time.

    python -m benchmarks.ingredients                     # the table of what is kept
    python -m benchmarks.ingredients no_decay adamw      # train these (again), then the table

A run has four epochs on 45,000 pictures (twenty where its name says so), seed 0, and is judged on
the 5,000 set aside; nothing looks at the test set. Settings and curves of each are kept in
docs/runs/ingredients/NAME/. Rounding alone moves the end of such a run by about half a point.
"""

import argparse
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from vit import runs, train
from vit.recipes import Recipe, sixty_five, sixty_five_short

KEPT = Path(__file__).resolve().parent.parent / "docs" / "runs" / "ingredients"

# The settings that all changes below are changes of; the recipes' own were chosen from them.
START: dict[str, Any] = {
    "epochs": 4,
    "validation": 5_000,
    "muon_learning_rate": 0.02,
    "muon_weight_decay": 0.2,
    "learning_rate": 1e-3,
}
CHANGES: dict[str, dict[str, Any]] = {
    "start": {},
    "no_decay": {"muon_weight_decay": 0.0},
    "strong_decay": {"muon_weight_decay": 1.0},
    "fast": {"muon_learning_rate": 0.03},
    "slow_gentle": {"muon_learning_rate": 0.01, "muon_weight_decay": 0.1},
    "slow_no_decay": {"muon_learning_rate": 0.01, "muon_weight_decay": 0.0},
    "slow_strong_decay": {"muon_learning_rate": 0.01, "muon_weight_decay": 1.0},
    "fast_adamw": {"learning_rate": 3e-3},
    "only_adamw": {"optimizer": "adamw"},
    "truncated_normal": {"init": "truncated_normal"},
    "all_patches": {"kept_patches_until": 0.0},
    "twenty_epochs": {"epochs": 20},
    "twenty_augmented": {
        "epochs": 20,
        **{name: getattr(sixty_five(), name) for name in ("jitter", "cutmix", "cutmix_until")},
    },
}


def recipe(name: str) -> Recipe:
    """The settings of a named change."""
    return replace(sixty_five_short(), **START | CHANGES[name], name=name)


def measure(name: str, data_dir: Path | None) -> None:
    """Train one and keep its settings and curves. The test split is left unread."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(train, "finish"):
        out = Path(folder) / name
        train.train(recipe(name), out, data_dir=data_dir)
        kept = KEPT / name
        kept.mkdir(parents=True, exist_ok=True)
        for file in (runs.CONFIG, runs.METRICS):
            shutil.copy(out / file, kept / file)


def table() -> str:
    """What is kept, as rows of a Markdown table: name, what it changes, validation accuracy."""
    rows = []
    for name, change in CHANGES.items():
        if (KEPT / name / runs.METRICS).exists():
            curve = [f"{100 * row['val_accuracy']:.1f}" for row in runs.read_metrics(KEPT / name)]
            shown = curve if len(curve) <= 5 else [*curve[:3], "…", *curve[-2:]]
            settings = ", ".join(f"{key} {value}" for key, value in change.items()) or "as above"
            rows.append(f"| {name} | {settings} | {' '.join(shown)} |")
    return "\n".join(["| run | changed | validation accuracy (%) |", "|:--|:--|:--|", *rows])


def main() -> int:
    """The command line; returns its exit code."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.ingredients",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CHANGES))
    parser.add_argument("--data-dir", type=Path, help="default: VIT_DATA_DIR, else data/")
    given = parser.parse_args()
    if unknown := set(given.names) - set(CHANGES):
        parser.error(f"there is no {', '.join(unknown)}. Known are: {', '.join(CHANGES)}.")
    for name in given.names:
        measure(name, given.data_dir)
    print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
