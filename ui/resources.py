"""What many visitors share: models, pictures, and recorded forward passes, each computed once."""

import base64
import io
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import streamlit as st
import torch
from PIL import Image

from ui import pictures
from vit import images, runs
from vit.hooks import Trace, record
from vit.runs import Run, RunError

HOUR = 3600  # seconds; what is derived from uploads is forgotten long before they would be deleted


@dataclass(frozen=True)
class Walk:
    """One picture gone through one model, everything recorded.

    Attributes:
        run: the model.
        square: (side, side, 3) uint8, the framed picture at up to 512 pixels a side, for showing.
        pixels: (S, S, C) uint8, exactly what the model sees before normalisation.
        x: (1, C, S, S) float32, the model's input.
        trace: every activation of the forward pass, B = 1.
        logits, probabilities: (classes,) float32.
    """

    run: Run
    square: np.ndarray
    pixels: np.ndarray
    x: torch.Tensor
    trace: Trace
    logits: np.ndarray
    probabilities: np.ndarray

    @cached_property
    def pixels_uri(self) -> str:
        """``pixels`` as a lossless data URI."""
        return data_uri(self.pixels)

    @cached_property
    def square_uri(self) -> str:
        """A small copy of ``square`` as a data URI."""
        return thumbnail(Image.fromarray(self.square), 192)


@dataclass(frozen=True)
class Record:
    """How a run's kept weights did on its test split. ``top`` is each picture's highest
    probability, ascending, (n,) float32; ``accuracy`` is between 0 and 1."""

    accuracy: float
    top: np.ndarray

    def share_as_unsure(self, probability: float) -> float:
        """The share of test pictures whose highest probability was no higher than this."""
        return float(np.searchsorted(self.top, probability, side="right") / len(self.top))


def runs_dir() -> Path:
    """The folder of the visitor's own runs: VIT_RUNS_DIR, or runs/ beside the app."""
    return Path(os.environ.get("VIT_RUNS_DIR") or pictures.ROOT / "runs")


def available_runs() -> dict[str, Path]:
    """Models that can be opened, by the name that the URL carries: shipped ones, then the
    visitor's own as ``runs/…``."""
    shipped = sorted((pictures.ROOT / "checkpoints").glob("*"))
    own = sorted(runs_dir().glob("*"))
    return {p.name: p for p in shipped if runs.is_run(p)} | {
        f"runs/{p.name}": p for p in own if runs.is_run(p)
    }


def stamp(file: Path) -> int:
    """Changes when the file does; 0 while it is not there."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def open_run(path: Path, epoch: int | None = None) -> Run:
    """A run's model, loaded once for all visitors and again when its file changes.

    Raises:
        RunError: if it cannot be opened.
    """
    file = path / runs.MODEL if epoch is None else runs.snapshot_path(path, epoch)
    return _load(str(path), epoch, stamp(file))


@st.cache_resource(max_entries=12, show_spinner=False)
def _load(path: str, epoch: int | None, stamp: int) -> Run:
    return runs.load_run(path, epoch)


def held_out_record(path: Path) -> Record | None:
    """How the run did on its test split; None if that has not been measured (yet)."""
    return _held_out_record(str(path), stamp(path / runs.PREDICTIONS))


@st.cache_resource(max_entries=32, show_spinner=False)
def _held_out_record(path: str, stamp: int) -> Record | None:
    try:
        stored = runs.read_predictions(path)
    except RunError:
        return None
    labels, probabilities = stored["labels"], stored["probabilities"]
    right = probabilities.argmax(1) == labels
    return Record(float(right.mean()), np.sort(probabilities.max(1)))


@st.cache_resource(max_entries=32, ttl=HOUR, show_spinner=False)
def framed(img: str, framing: str) -> Image.Image:
    """The picture of that name, cut to a square of at most 512 pixels.

    Raises:
        NoPicture: if there is no such picture (any more).
    """
    return images.frame_picture(pictures.open_named(img), parse_framing(framing))


def parse_framing(text: str) -> Literal["crop", "fit"] | images.Square:
    """``crop``, ``fit`` or ``x,y,side`` as in links; what it says badly is a centre crop."""
    if text == "fit":
        return "fit"
    try:
        x, y, side = map(float, text.split(","))
        return images.Square(x, y, side)
    except ValueError:
        return "crop"


def walk(img: str, framing: str, run: Run) -> Walk:
    """The picture ``img``, framed, gone through ``run``.

    Raises:
        NoPicture: if there is no such picture (any more).
    """
    # A cached walk keeps its run alive, so no other run can have its id meanwhile.
    return _walk(img, framing, id(run), run)


@st.cache_resource(max_entries=24, ttl=HOUR, show_spinner=False)
def _walk(img: str, framing: str, identity: int, _run: Run) -> Walk:
    square = framed(img, framing)
    config = _run.model_config
    pixels = images.resize_to_model(square, config.image_size, config.in_chans)
    x = torch.from_numpy(
        images.to_model_input(square, config.image_size, config.in_chans, _run.mean, _run.std)
    )[None]
    with torch.inference_mode(), record() as trace:
        logits = _run.model(x)[0]
    return Walk(
        _run, np.asarray(square), pixels, x, trace, logits.numpy(), logits.softmax(0).numpy()
    )


@st.cache_data(max_entries=256, ttl=HOUR, show_spinner=False)
def picture_thumbnail(img: str) -> str:
    """The middle of the picture of that name, 96 pixels a side, as a data URI.

    Raises:
        NoPicture: if there is no such picture (any more).
    """
    return thumbnail(framed(img, "crop"), 96)


def thumbnail(image: Image.Image, side: int) -> str:
    """A square picture shrunk to ``side`` pixels, as a data URI of a few kilobytes."""
    file = io.BytesIO()
    image.resize((side, side), Image.Resampling.LANCZOS if image.width > side else 0).save(
        file, "WEBP", quality=80
    )
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()


def data_uri(pixels: np.ndarray) -> str:
    """Pixels, uint8 (h, w, 1 or 3), without loss, as a data URI."""
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


@st.cache_data(ttl=600, show_spinner=False)
def tidy_uploads() -> None:
    """Delete what is too old, at most every ten minutes, whoever comes by."""
    pictures.make_room()
