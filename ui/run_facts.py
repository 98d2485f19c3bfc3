"""What the files of a run say of it, read once for all visitors until one of them changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from ui import resources
from ui.new_run import parameters
from vit import jobs, runs
from vit.mistakes import wilson_interval
from vit.recipes import Recipe
from vit.runs import RunError

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Facts:
    """What is known of a run.

    Attributes:
        rows: one for each whole epoch.
        right, tested: how many pictures of the test split the kept weights named rightly, of how
            many; 0 of 0 before they were tested.
    """

    recipe: Recipe
    seed: int
    parameters: int
    rows: Sequence[Row]
    right: int
    tested: int

    @property
    def kept(self) -> Row | None:
        """The row of the epoch whose weights are kept so far."""
        if not self.rows:
            return None
        if self.recipe.keep == "last":
            return self.rows[-1]
        return max(self.rows, key=lambda row: (row["val_accuracy"], -row["val_loss"]))

    @property
    def validation(self) -> float | None:
        """The kept weights' validation accuracy, 0 … 1."""
        return float(self.kept["val_accuracy"]) if self.kept else None

    @property
    def test(self) -> float | None:
        """The kept weights' test accuracy, 0 … 1; of the epoch they are from, until they are
        tested by themselves."""
        if self.tested:
            return self.right / self.tested
        return self.kept["test_accuracy"] if self.kept else None

    @property
    def test_interval(self) -> tuple[float, float] | None:
        """Between which shares the test accuracy lies, with 95 % confidence."""
        return wilson_interval(self.right, self.tested) if self.tested else None

    @property
    def seconds(self) -> float:
        """What the whole epochs took."""
        return float(sum(row["seconds"] for row in self.rows))


def facts(path: Path) -> Facts | None:
    """The facts of a run; None if its settings cannot be read, as where it was removed."""
    files = (jobs.settings_file(path), path / runs.METRICS, path / runs.PREDICTIONS)
    return _facts(str(path), tuple(resources.stamp(file) for file in files))


@st.cache_resource(max_entries=256, show_spinner=False)
def _facts(path: str, stamps: tuple[int, ...]) -> Facts | None:
    try:
        recipe, seed = jobs.settings(Path(path))
    except RunError:
        return None
    try:
        rows = runs.read_metrics(path)
    except RunError:
        rows = []
    try:
        stored = runs.read_predictions(path)
        found = stored["probabilities"].argmax(1) == stored["labels"]
    except RunError:
        found = np.zeros(0, bool)
    return Facts(recipe, seed, parameters(recipe.model), rows, int(found.sum()), len(found))
