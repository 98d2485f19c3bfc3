"""The pipeline on one picture, drawn by the browser: every stage a small picture and a link.

Pointing at a patch shows it in every stage at once; all numbers were sent along, so nothing is
asked of the server. A click leads to the stage's page.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st
from numpy.typing import NDArray
from PIL import Image

from figures.theme import DARK, LIGHT
from ui.resources import HOUR, Walk, data_uri
from ui.state import View

_HERE = Path(__file__).parent
_component = st.components.v2.component(
    "sixty_five_tokens_tour",
    html='<ol class="tour"></ol>',
    css=(_HERE / "tour.css").read_text(encoding="utf-8"),
    js=(_HERE / "tour.js").read_text(encoding="utf-8"),
)
_PALETTES = {"light": asdict(LIGHT), "dark": asdict(DARK)}


@dataclass(frozen=True)
class Stage:
    """One stage: how it is drawn (``picture``, ``patches``, ``numbers``, ``tokens``,
    ``attention``, ``cls``, ``answer`` or ``filters``), its words, and the page it leads to."""

    kind: str
    title: str
    shape: str
    text: str
    page: str


def tour(
    stages: Sequence[Stage],
    view: View,
    walk: Walk,
    *,
    key: str,
    address: Callable[[str, View], str],
    on_open: Callable[[str, int], None],
) -> None:
    """Draw the stages of a walk. ``on_open`` is called, before the script runs, with the page and
    the token that the visitor clicked; ``address`` gives the link's own address for a page."""
    config = walk.run.model_config
    pages = {stage.page for stage in stages}

    def opened() -> None:
        wish = st.session_state[key].get("open") or {}
        token = wish.get("token")
        if wish.get("page") in pages and type(token) is int and 0 <= token < config.num_tokens:
            on_open(wish["page"], token)

    data = {
        "stages": [asdict(s) | {"href": address(s.page, view)} for s in stages],
        "palettes": _PALETTES,
        "token": view.token,
        "place": {"layer": view.layer, "head": view.head},
    }
    numbers, _ = _numbers(id(walk), view.layer, view.head, walk)
    # In a list: Streamlit searches a dict for data frames, and imports pandas to know one.
    _component(key=key, data=[data | numbers], on_open_change=opened)


@st.cache_resource(max_entries=24, ttl=HOUR, show_spinner=False)
def _numbers(identity: int, layer: int, head: int, _walk: Walk) -> tuple[dict[str, Any], Walk]:
    """What is drawn of a walk; kept with the walk itself, so that no other has its id meanwhile."""
    config, trace = _walk.run.model_config, _walk.trace
    tokens = trace["pos_added"][0].numpy()
    listener = np.stack(
        [tokens[0]] + [trace[f"blocks.{i}.resid_post"][0, 0].numpy() for i in range(config.depth)]
    )
    order = _walk.probabilities.argsort()[::-1][:10]
    drawn = {
        "grid": config.grid_size,
        "patch": config.patch_size,
        "channels": config.in_chans,
        "focus": strongest_patch(_walk),
        "pixels": _walk.pixels_uri,
        "square": _walk.square_uri,
        "filters": data_uri(filter_sheet(_walk.run.model.patch_embed.proj.weight.numpy())),
        "numbers": _floats(trace["patch_embed.flattened"][0].numpy()),
        "tokens": _signed(tokens),
        "listener": _signed(listener / np.abs(listener).max(1, keepdims=True).clip(1e-12)),
        "attention": _floats(trace[f"blocks.{layer}.attn.pattern"][0, head].numpy()),
        "answer": [
            {"name": _walk.run.class_names[i], "value": float(_walk.probabilities[i])}
            for i in order
        ],
    }
    return drawn, _walk


def strongest_patch(walk: Walk) -> int:
    """The patch (its token, so from 1) that [CLS] takes most from in the last block, over the mean
    of the heads."""
    last = walk.run.model_config.depth - 1
    return 1 + int(walk.trace[f"blocks.{last}.attn.pattern"][0, :, 0, 1:].mean(0).argmax())


def filter_sheet(weight: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Filters (D, C, P, P) side by side on a grey sheet (h, w, C), one pixel for each weight and
    one between filters; each is scaled to its own largest weight, grey is 0."""
    count, channels, side, _ = weight.shape
    columns = int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    step = side + 1
    sheet = np.full((rows * step - 1, columns * step - 1, channels), 128, np.uint8)
    for index, one in enumerate(weight):
        top, left = step * (index // columns), step * (index % columns)
        scaled = one / max(float(np.abs(one).max()), 1e-12)
        sheet[top : top + side, left : left + side] = (127.5 + 127.5 * scaled).transpose(1, 2, 0)
    return sheet


def strip(values: NDArray[np.float32], colours: tuple[str, ...]) -> str:
    """Signed numbers (n,) as a strip of one pixel each on a diverging scale, as a data URI; the
    scale ends at the largest magnitude."""
    stops = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours])
    places = np.linspace(-1, 1, len(stops))
    shares = values / max(float(np.abs(values).max()), 1e-12)
    pixels = np.stack([np.interp(shares, places, stops[:, c]) for c in range(3)], -1)
    return data_uri(pixels.round().astype(np.uint8)[None])


def patch_uri(walk: Walk, token: int) -> str:
    """The pixels of one patch, as a data URI."""
    side, grid = walk.run.model_config.patch_size, walk.run.model_config.grid_size
    row, column = divmod(token - 1, grid)
    part = walk.pixels[row * side : (row + 1) * side, column * side : (column + 1) * side]
    return data_uri(np.asarray(Image.fromarray(part.squeeze()).convert("RGB")))


def _floats(values: NDArray[np.float32]) -> str:
    return base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode()


def _signed(values: NDArray[np.float32]) -> dict[str, Any]:
    """A matrix rounded to a signed byte for each number; ``top`` is what 127 stands for, the
    magnitude that one number in a hundred passes."""
    top = float(np.quantile(np.abs(values), 0.99)) or 1.0
    steps = (127 * values / top).round().clip(-127, 127).astype(np.int8)
    return {
        "bytes": base64.b64encode(steps.tobytes()).decode(),
        "rows": values.shape[0],
        "columns": values.shape[1],
        "top": top,
    }
