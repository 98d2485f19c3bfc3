"""What many visitors share: models, pictures, and recorded forward passes, each computed once."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import streamlit as st
import torch
from PIL import Image

from ui import pictures
from vit import images, runs
from vit.hooks import Trace, record
from vit.runs import Run


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


def runs_dir() -> Path:
    return Path(os.environ.get("VIT_RUNS_DIR") or pictures.ROOT / "runs")


def available_runs() -> dict[str, Path]:
    """Models that can be opened, by the name that the URL carries: shipped ones, then the
    visitor's own as ``runs/…``."""
    shipped = {p.name: p for p in sorted((pictures.ROOT / "checkpoints").glob("*")) if runs.is_run(p)}
    own = {f"runs/{p.name}": p for p in sorted(runs_dir().glob("*")) if runs.is_run(p)}
    return shipped | own


def open_run(path: Path, epoch: int | None) -> Run:
    """A run's model, loaded once for all visitors and again when its file changes."""
    file = path / runs.MODEL if epoch is None else runs.snapshot_path(path, epoch)
    stamp = file.stat().st_mtime_ns if file.exists() else 0
    return _load(str(path), epoch, stamp)


@st.cache_resource(max_entries=12, show_spinner=False)
def _load(path: str, epoch: int | None, stamp: int) -> Run:
    return runs.load_run(path, epoch)


@st.cache_resource(max_entries=32, show_spinner=False)
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
    """The picture ``img``, framed, gone through ``run``."""
    return _walk(img, framing, str(run.path), run.epoch, id(run), run)


@st.cache_resource(max_entries=32, show_spinner=False)
def _walk(img: str, framing: str, path: str, epoch: int, identity: int, _run: Run) -> Walk:
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
