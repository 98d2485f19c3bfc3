"""What a model will see: the first batch of an epoch, after augmentation, beside its originals."""

import io
from base64 import b64encode
from dataclasses import dataclass
from html import escape

import numpy as np
import streamlit as st
import torch
from PIL import Image
from torch import Tensor

from ui import frame
from vit import data
from vit.data import DataError, Split
from vit.holdout import training_part
from vit.settings import Recipe
from vit.train import Part, Parts, augmented

SHOWN = 16
DIMMED = 40  # of 255: how opaque a patch is that the model does not get
_SHARP = 64  # pixels a side up to which pictures are sent without loss
_STYLE = """
.batch { display: grid; grid-template-columns: repeat(4, 1fr); gap: 14px 10px; max-width: 540px; }
@media (min-width: 1200px) { .batch { grid-template-columns: repeat(8, 1fr); max-width: none; } }
.batch figure { margin: 0; min-width: 0; }
.batch .pair { position: relative; aspect-ratio: 1; border-radius: 2px; overflow: hidden; box-shadow: 0 0 0 1px var(--line); }
.batch .pair:focus-visible { outline: 2px solid var(--query); outline-offset: 2px; }
.batch img { position: absolute; inset: 0; width: 100%; height: 100%; image-rendering: pixelated; }
.batch .original { opacity: 0; }
.batch .pair:is(:hover, :focus) .original { opacity: 1; }
.batch .pair:is(:hover, :focus) .seen-so { opacity: 0; }
.batch figcaption { font-size: 12px; line-height: 1.35; margin-top: 5px; color: var(--muted); min-height: 2.7em; overflow: hidden; }
.batch figcaption span { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
"""  # noqa: E501


@dataclass(frozen=True)
class Batch:
    """The first batch of an epoch.

    Attributes:
        originals: (B, C, S, S) uint8, as they are in the data set; labels: (B,) int64.
        pictures: (B, C, S, S) float32, 0 … 255, as they reach the model, before normalisation.
        targets: (B, classes) float32, each row a distribution, before label smoothing.
        kept: (B, patches) bool, which patches the model gets; None where it gets all.
    """

    originals: Tensor
    labels: Tensor
    pictures: Tensor
    targets: Tensor
    kept: Tensor | None


def first_batch(recipe: Recipe, training: Split, seed: int, epoch: int) -> Batch:
    """The batch with which :func:`vit.train.train` will begin ``epoch`` (from 1), drawn by the same
    function from the same generator."""
    chosen, _ = training_part(training.labels, recipe.validation, recipe.share)
    size, steps_per_epoch = recipe.batch_size, len(chosen) // recipe.batch_size
    step, total_steps = (epoch - 1) * steps_per_epoch, recipe.epochs * steps_per_epoch
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    batch = torch.randperm(len(chosen), generator=generator)[:size]
    originals = torch.from_numpy(np.array(training.images[chosen[batch]]))
    # Room for all, of which only the batch is filled in: memory that is not written to costs none.
    images = torch.empty(len(chosen), *originals.shape[1:], dtype=torch.uint8)
    images[batch] = originals
    part = Part(images, torch.from_numpy(training.labels[chosen]))
    channels = originals.shape[1]  # with these means and deviations, pixels stay 0 … 255
    parts = Parts(part, part, part, (0.0,) * channels, (1 / 255,) * channels, (), {})
    x, labels, targets, indices = augmented(
        recipe, parts, batch, epoch, step, total_steps, generator, seed
    )
    kept = None
    if indices is not None:
        nothing = torch.zeros(len(batch), recipe.model.num_patches, dtype=torch.bool)
        kept = nothing.scatter(1, indices, True)
    return Batch(originals, labels, x, targets, kept)


@st.fragment
def show(recipe: Recipe, seed: int, stamp: object) -> None:
    """Pictures of the first batch of an epoch that the visitor chooses.

    ``stamp`` changes when a folder of pictures was looked at anew.
    """
    with frame.calm():
        _show(recipe, seed, stamp)


def _show(recipe: Recipe, seed: int, stamp: object) -> None:
    key = "batch-epoch"
    chosen = min(max(st.session_state.get(key, 1), 1), recipe.epochs)
    st.session_state[key] = chosen
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if recipe.epochs > 1:
            st.slider(
                "The first batch of epoch",
                1,
                recipe.epochs,
                key=key,
                width=360,
                persist_state="session",
            )
        st.button("Another batch", on_click=_next, args=(recipe.epochs,))
    try:
        training = _training(recipe.dataset, recipe.model.image_size, stamp)
    except DataError:
        st.caption("The pictures cannot be read now, so there is nothing to show.")
        return
    batch = first_batch(recipe, training, seed, st.session_state[key])
    st.html(f'<style>{_STYLE}</style><div class="batch">{_tiles(batch, recipe, training)}</div>')
    st.caption(_legend(batch, recipe))


def _training(dataset: str, image_size: int, stamp: object) -> Split:
    """The pictures to learn from, behind a progress bar where they are decoded for the first time.

    Raises:
        DataError: if they cannot be read without fetching them.
    """
    slot = _slot(dataset, image_size, stamp)
    if "split" not in slot:
        place = st.empty()

        def show(done: int, total: int) -> None:
            if done % 100 == 0:  # each call is a message to the browser
                said = f"Reading the pictures: {done:,} of {total:,}"
                place.progress(done / total, said)

        slot["split"] = data.load_split(
            dataset, "train", download=False, image_size=image_size, reading=show
        )
        place.empty()
    return slot["split"]


@st.cache_resource(max_entries=4, show_spinner=False)
def _slot(dataset: str, image_size: int, stamp: object) -> dict[str, Split]:
    """A place for a split that was read here."""
    return {}


def _next(epochs: int) -> None:
    st.session_state["batch-epoch"] = st.session_state["batch-epoch"] % epochs + 1


def _tiles(batch: Batch, recipe: Recipe, training: Split) -> str:
    grid, patch = recipe.model.grid_size, recipe.model.patch_size
    tiles = []
    for i in range(min(SHOWN, len(batch.pictures))):
        alpha = None
        if batch.kept is not None:
            cells = np.where(batch.kept[i].numpy().reshape(grid, grid), 255, DIMMED)
            alpha = np.kron(cells, np.ones((patch, patch))).astype(np.uint8)
        shares = batch.targets[i].numpy()
        original = training.class_names[int(batch.labels[i])]
        labels = _labels(shares, training.class_names)
        captions = "".join(f'<span title="{escape(text)}">{escape(text)}</span>' for text in labels)
        tiles.append(
            f'<figure><div class="pair" tabindex="0">'
            f'<img class="seen-so" src="{_uri(batch.pictures[i], alpha)}" '
            f'alt="As the model sees it">'
            f'<img class="original" src="{_uri(batch.originals[i])}" '
            f'alt="The original: {escape(original)}"></div>'
            f"<figcaption>{captions}</figcaption></figure>"
        )
    return "".join(tiles)


def _labels(shares: np.ndarray, names: tuple[str, ...]) -> list[str]:
    """The classes that a target names, the largest share first; a single one without a number."""
    classes = [int(c) for c in np.argsort(-shares, kind="stable")[:2] if shares[c] > 0]
    if len(classes) == 1:
        return [names[classes[0]]]
    return [f"{100 * shares[c]:.0f} % {names[c]}" for c in classes]


def _uri(pixels: Tensor, alpha: np.ndarray | None = None) -> str:
    """(C, S, S) of 0 … 255, and how opaque each pixel is (S, S) uint8, as a data URI."""
    planes = pixels.round().byte().numpy()
    colours = np.repeat(planes, 3, 0) if len(planes) == 1 else planes
    layers = [*colours, *([] if alpha is None else [alpha])]
    file = io.BytesIO()
    image = Image.fromarray(np.stack(layers, -1))
    image.save(file, "WEBP", lossless=image.width <= _SHARP, quality=80, exact=True)
    return "data:image/webp;base64," + b64encode(file.getvalue()).decode()


def _legend(batch: Batch, recipe: Recipe) -> str:
    """What was done to these pictures, in words."""
    done = []
    if recipe.crop_padding:
        pixels = "a pixel" if recipe.crop_padding == 1 else f"{recipe.crop_padding} pixels"
        done.append(f"moved by up to {pixels}")
    if recipe.flip != "none":
        done.append("mirrored in half of the cases")
    if recipe.jitter:
        done.append(
            f"changed in brightness, contrast and colour by up to {100 * recipe.jitter:.0f} %"
        )
    if (batch.targets.max(1).values < 1).any():
        done.append("partly covered by a box of another picture, whose label then counts too")
    text = "They reach the model just as they are."
    if done:
        text = f"They are {', '.join(done)}."
    if batch.kept is not None:
        share = f"{100 * recipe.kept_patches:.0f} %"
        text += f" The pale squares are left out: the model gets {share} of all."
    if recipe.label_smoothing:
        share = f"{100 * recipe.label_smoothing:.0f} %"
        text += f" Of each label, {share} is spread over all classes (label smoothing)."
    return f"{text} Point at a picture, or tap it, to see the original."
