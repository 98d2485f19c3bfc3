"""What a run made of pictures it has not seen, and those pictures."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import streamlit as st
import torch

from ui import frame, pictures, resources
from ui.state import View
from ui.tiles import Tile, show_tiles
from ui.words import to_the_letter
from vit import data, runs
from vit.data import DataError, Split
from vit.evaluate import load_test_split, predict_probabilities
from vit.runs import Run, RunError

OPENS = "Attention"  # the page on which a test picture is opened


@dataclass(frozen=True)
class Outcome:
    """Probabilities (n, classes) of a run's ``epoch`` on test pictures with labels (n,);
    ``fingerprint`` says on which pictures."""

    epoch: int
    labels: np.ndarray
    probabilities: np.ndarray
    fingerprint: str

    @property
    def said(self) -> np.ndarray:
        """(n,) the most probable class of each picture."""
        return self.probabilities.argmax(1)

    @property
    def right(self) -> np.ndarray:
        """(n,) whether that is what the picture shows."""
        return self.said == self.labels

    def in_cell(self, true: int, predicted: int) -> np.ndarray:
        """The pictures of a cell of the confusion matrix, the surest mistakes first."""
        inside = np.flatnonzero((self.labels == true) & (self.said == predicted))
        return inside[np.argsort(-self.probabilities[inside, predicted], kind="stable")]


def is_demo() -> bool:
    """Whether this is a public demo: nothing is trained or fetched, no visitor's folder read."""
    return os.environ.get("VIT_TRAINING", "").lower() == "off"


# ---- the predictions -----------------------------------------------------------------------------


def outcome(run: Run) -> Outcome | None:
    """How the weights in ``run`` did; None if nobody has tested them yet.

    A snapshot of the kept epoch counts as the kept weights: it is those, rounded.
    """
    if run.epoch == kept_epoch(run.path):
        try:
            return _stored(str(run.path), _stamp(run.path), run.epoch)
        except RunError:
            pass
    return _slot(str(run.path), run.epoch, _weights_stamp(run)).get("outcome")


def kept_epoch(path: Path) -> int:
    """The epoch whose weights a run kept as its best."""
    return resources.open_run(path, None).epoch


def measure_now(run: Run, split: Split) -> None:
    """Test the weights in ``run`` on ``split`` behind a progress bar; ``outcome`` finds the result,
    for every visitor, until the server ends."""
    bar = st.progress(0.0, "Looking at the test pictures")

    def show(done: int, total: int) -> None:
        bar.progress(done / total, f"Looking at the test pictures: {done:,} of {total:,}")

    images = torch.from_numpy(np.array(split.images))
    probabilities = predict_probabilities(run.model, images, run.mean, run.std, show)
    slot = _slot(str(run.path), run.epoch, _weights_stamp(run))
    slot["outcome"] = Outcome(run.epoch, split.labels, probabilities, split.fingerprint)


@st.cache_resource(max_entries=16, show_spinner=False)
def _slot(path: str, epoch: int, stamp: int) -> dict[str, Outcome]:
    """A place for one test that was made here."""
    return {}


def _stamp(path: Path) -> int:
    file = path / runs.PREDICTIONS
    return file.stat().st_mtime_ns if file.exists() else 0


def _weights_stamp(run: Run) -> int:
    return (run.path / runs.MODEL).stat().st_mtime_ns


@st.cache_resource(max_entries=16, show_spinner=False)
def _stored(path: str, stamp: int, epoch: int) -> Outcome:
    return Outcome(epoch, **runs.read_predictions(path))


# ---- the pictures --------------------------------------------------------------------------------


def find_pictures(run: Run) -> Split | None:
    """The test split of the run's dataset if it can be read here without fetching anything."""
    dataset = run.config["recipe"]["dataset"]
    if is_demo() and dataset not in pictures.HELD_OUT:
        return None
    try:
        return load_test_split(run, download=False)
    except DataError:
        return None


def offer_pictures(run: Run) -> None:
    """Say that the test pictures are not here, and offer to fetch those that can be had."""
    if run.config["recipe"]["dataset"] != "cifar10" or is_demo():
        st.info("The test pictures are not on this machine, so they cannot be shown.")
        return
    st.markdown("The test pictures are not on this machine yet. They are fetched once and kept.")
    if not st.button("Fetch the test pictures", key="fetch"):
        return
    bar = st.progress(0.0, "Asking for the test pictures")

    def show(done: int, total: int) -> None:
        share = min(done / total, 1.0) if total else 0.0
        bar.progress(share, f"{done / 1e6:.1f} of {total / 1e6:.1f} MB")

    try:
        data.load_split("cifar10", "test", progress=show)
    except DataError as error:
        bar.empty()
        st.error(to_the_letter(str(error)))
        return
    st.rerun()


def sixteen(count: int, seed: int) -> np.ndarray:
    """Sixteen of ``count`` pictures (all, if there are fewer), the same ones for a seed."""
    return np.random.default_rng(seed).permutation(count)[:16]


def show(
    found: Outcome,
    indices: np.ndarray,
    split: Split,
    run: Run,
    view: View,
    *,
    key: str,
    columns: int | None = None,
) -> None:
    """Test pictures with what the model said, green and ticked or red and crossed; each opens in
    the walk."""
    prefix, _ = pictures.HELD_OUT.get(run.config["recipe"]["dataset"], (None, 0))
    names = split.class_names
    views = [replace(view, img=f"{prefix}-{index}", framing="crop") for index in indices]
    tiles = [
        Tile(
            said=f"{names[found.said[i]]} {found.probabilities[i].max():.2f}",
            note=f"shows {names[found.labels[i]]}",
            right=bool(found.right[i]),
            href=frame.address(OPENS, there) if prefix else None,
        )
        for i, there in zip(indices, views, strict=True)
    ]
    opened = show_tiles(split.images[indices], tiles, key=key, columns=columns)
    if opened is not None and prefix:
        st.switch_page(frame.PAGES[OPENS], query_params=views[opened].to_query())
