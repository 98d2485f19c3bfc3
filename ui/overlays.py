"""Small pictures with one number for each patch laid over them.

Drawn by the browser from a grey picture, sent once, and an image of one pixel for each patch: a
dozen maps cost a few kilobytes. The board is for exploring; these are for comparing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import streamlit as st
from numpy.typing import NDArray
from PIL import Image

from figures.theme import Palette
from ui.resources import data_uri, thumbnail

SIDE = 256  # pixels of the grey picture
STRENGTH = 0.75  # the opacity of the largest value
VEIL = 0.4  # the opacity of zero, as a share of that: as on the board

_STYLE = """
.maps {
  display: grid; gap: 18px 14px;
  grid-template-columns: repeat(auto-fill, minmax(
    max(var(--least), (100% - (var(--columns) - 1) * 14px) / var(--columns)), 1fr));
}
.maps figure { margin: 0; min-width: 0; }
.maps .under {
  aspect-ratio: 1; background-size: 100% 100%; border-radius: 2px; overflow: hidden;
}
.maps .under img { display: block; width: 100%; height: 100%; image-rendering: pixelated; }
.maps .cells {
  display: grid; grid-template-columns: repeat(var(--side), 1fr); height: 100%;
  container-type: inline-size; cursor: default;
}
.maps .cells span {
  display: flex; align-items: center; justify-content: center; min-width: 0; overflow: hidden;
  aspect-ratio: 1; line-height: 1; color: var(--ink); font-weight: 500; white-space: nowrap;
  text-shadow: 0 0 3px var(--ground), 0 0 3px var(--ground), 0 0 5px var(--ground);
}
.maps .here .under { outline: 2px solid var(--query); outline-offset: 2px; }
.maps figcaption {
  font-size: 13px; line-height: 1.4; margin-top: 7px; color: var(--muted);
  font-variant-numeric: tabular-nums;
}
.maps figcaption b { color: var(--ink); font-weight: 600; }
.maps .short { display: none; }
@media (max-width: 640px) { .maps .long { display: none; } .maps .short { display: inline; } }
.maps-legend {
  display: flex; align-items: center; gap: 8px; margin: 14px 0 4px; font-size: 12px;
  color: var(--muted); flex-wrap: wrap;
}
.maps-legend i { width: 140px; height: 9px; border-radius: 1px; box-shadow: 0 0 0 1px var(--line); }
.maps-legend code { font-size: 12px; color: var(--ink); background: none; padding: 0; }
"""


@dataclass(frozen=True)
class Map:
    """One number for each patch, and what is said about it.

    Attributes:
        values: (n,) in reading order, at least 0.
        title, note: the caption's first, stronger line and its second.
        top: the value of the strongest colour.
        here: whether the map is the one in focus, to be framed.
        labels: a word for each patch, written on it; none leaves the patches bare.
        hover: a sentence for each patch, shown when it is pointed at; goes with ``labels``.
    """

    values: NDArray[np.floating]
    title: str
    note: str
    top: float
    here: bool = False
    labels: Sequence[str] = ()
    hover: Sequence[str] = ()


def show(
    picture: NDArray[np.uint8],
    grid: int,
    maps: Sequence[Map],
    palette: Palette,
    *,
    unit: str,
    tensor: str,
    columns: int,
    least: int,
) -> None:
    """Lay ``maps`` over a picture (h, w, 3), side by side, above a legend that names the unit and
    the tensor. There are ``columns`` of them, or fewer where each would be narrower than ``least``
    pixels. All text is shown to the letter."""
    name = f"under-{abs(hash(picture.tobytes())):x}"
    drawn = "".join(_figure(m, grid, palette, name) for m in maps)
    tops = {m.top for m in maps}
    high = f"{tops.pop():.4f}" if len(tops) == 1 else "each map's maximum"
    colours = ", ".join(palette.sequential)
    # In grey, so that every colour over it is one of the scale's.
    grey = thumbnail(Image.fromarray(picture).convert("L"), SIDE)
    st.html(
        f'<div style="--columns: {columns}; --least: {least}px">'
        f"<style>{_STYLE} .{name} {{ background-image: url({grey}) }}</style>"
        f'<div class="maps">{drawn}</div>'
        f'<div class="maps-legend"><span>0</span>'
        f'<i style="background: linear-gradient(90deg, {colours})"></i><span>{high}</span>'
        f"<span>{escape(unit)}</span><code>{escape(tensor)}</code></div></div>"
    )


def _figure(m: Map, grid: int, palette: Palette, picture: str) -> str:
    shares = (m.values / m.top if m.top > 0 else np.zeros_like(m.values)).clip(0, 1)
    colours = _colours(shares, palette)
    name = escape(f"{m.title}: {m.note}")
    over = (
        _labelled(m, grid, colours, name)
        if m.labels
        else f'<img src="{data_uri(colours.reshape(grid, grid, 4))}" alt="{name}">'
    )
    return (
        f'<figure{" class=here" if m.here else ""}><div class="under {picture}">{over}</div>'
        f"<figcaption><b>{escape(m.title)}</b><br>{escape(m.note)}</figcaption></figure>"
    )


def _colours(shares: NDArray[np.floating], palette: Palette) -> NDArray[np.uint8]:
    """(n,) of 0 … 1 → (n, 4) uint8: the sequential scale, more opaque where there is more."""
    stops = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in palette.sequential])
    places = np.linspace(0, 1, len(stops))
    channels = [np.interp(shares, places, stops[:, channel]) for channel in range(3)]
    alpha = 255 * STRENGTH * (VEIL + (1 - VEIL) * np.sqrt(shares))
    return np.stack([*channels, alpha], -1).round().astype(np.uint8)


def _labelled(m: Map, grid: int, colours: NDArray[np.uint8], name: str) -> str:
    """A cell for each patch, with its word on it: whole where the page is wide, its beginning
    where it is narrow, none where there is no room for letters."""
    longest = max(map(len, m.labels))
    cells = []
    for label, hover, (red, green, blue, alpha) in zip(
        m.labels, m.hover, colours.tolist(), strict=True
    ):
        words = _word(label, longest, grid, "long", 10)
        words += _word(label, longest, grid, "short", 5)
        cells.append(
            f'<span title="{escape(hover)}" style="background: '
            f'rgba({red},{green},{blue},{alpha / 255:.2f})">{words if grid <= 16 else ""}</span>'
        )
    return (
        f'<div class="cells" style="--side: {grid}" role="img" aria-label="{name}">'
        f"{''.join(cells)}</div>"
    )


def _word(label: str, longest: int, grid: int, kind: str, room: int) -> str:
    """The label, cut to ``room`` letters, as large as the longest one's cell and taste allow."""
    cut = label if len(label) <= room else label[: room - 1] + "…"
    # A letter takes about 0.56 of its size: the longest word fills nine tenths of a cell.
    share = 160 / min(max(longest, 4), room) / grid  # per cent of the map's width
    return f'<b class="{kind}" style="font-size: min({share:.2f}cqi, 18px)">{escape(cut)}</b>'
