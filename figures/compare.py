"""Several runs in one chart, told apart by colour, dashes, and a letter at each line's end."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import plotly.graph_objects as go

from figures.layout import settle
from figures.theme import Palette

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_LETTER = 15  # pixels from one letter to the next, where lines end close together


@dataclass(frozen=True)
class Series:
    """A run's line: values ``y`` (n,) over ``x`` (n,), NaN where not measured. ``number`` counts
    the runs and chooses colour and dashes; ``letter`` stands at the line's end."""

    number: int
    letter: str
    name: str
    x: np.ndarray
    y: np.ndarray


def style(number: int, palette: Palette) -> tuple[str, str]:
    """The colour and the dashes of a run's lines."""
    return palette.series[number % len(palette.series)], DASHES[number % len(DASHES)]


def overlaid(
    series: Sequence[Series],
    over: str,
    unit: str,
    palette: Palette,
    *,
    decimals: int,
    height: int = 340,
) -> go.Figure:
    """The runs' lines over each other.

    Args:
        over: what x counts.
        unit: what y is, along the axis.
        decimals: of y when hovered.
    """
    drawn = [line for line in series if not np.isnan(line.y).all()]
    figure = go.Figure()
    for line in drawn:
        colour, dash = style(line.number, palette)
        figure.add_scatter(
            x=line.x,
            y=line.y.astype(np.float32),
            name=f"{line.letter} {escape(line.name)}",
            mode="lines" if len(line.x) > 1 else "markers",
            line={"color": colour, "width": 2.25, "dash": dash},
            marker={"size": 7, "color": colour},
            hovertemplate=f"{line.letter}: %{{y:.{decimals}f}}<extra></extra>",
        )
    settle(figure, palette, height=height, left=8, top=8)
    figure.update_layout(hovermode="x unified", margin={"r": 24})
    figure.update_xaxes(
        title={"text": over, "standoff": 8},
        showgrid=False,
        zeroline=False,
        fixedrange=True,
        unifiedhovertitle={"text": f"{over} %{{x}}"},
    )
    figure.update_yaxes(
        title=unit, gridcolor=palette.line, zeroline=False, fixedrange=True, automargin=True
    )
    if drawn:
        _name_ends(figure, drawn, palette, height)
    return figure


def _name_ends(figure: go.Figure, drawn: Sequence[Series], palette: Palette, height: int) -> None:
    """A letter at the last point of each line, none over another."""
    values = np.concatenate([line.y for line in drawn])
    low, high = np.nanmin(values), np.nanmax(values)
    room = 0.06 * (high - low) or 1.0
    low, high = low - room, high + room
    figure.update_yaxes(range=[low, high])
    ends = [np.flatnonzero(~np.isnan(line.y))[-1] for line in drawn]
    heights = np.array([line.y[end] for line, end in zip(drawn, ends, strict=True)])
    places = spread(heights, _LETTER * (high - low) / (height - 60), low, high)
    for line, end, place in zip(drawn, ends, places, strict=True):
        figure.add_annotation(
            x=line.x[end],
            y=place,
            text=line.letter,
            showarrow=False,
            xanchor="left",
            xshift=5,
            font={"size": 13, "color": style(line.number, palette)[0]},
        )


def spread(heights: np.ndarray, apart: float, low: float, high: float) -> np.ndarray:
    """Heights (n,), moved as little as it takes to be ``apart``, in the same order, and then into
    the room between ``low`` and ``high``; if there is too little of it, out at the top."""
    order = np.argsort(heights, kind="stable")
    steps = apart * np.arange(len(heights))
    # With the steps taken off, "apart" means "ascending": the nearest such values are the means
    # over blocks of neighbours in the wrong order (pool adjacent violators).
    blocks: list[tuple[float, int]] = []
    for value in heights[order] - steps:
        blocks.append((float(value), 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (one, m), (other, n) = blocks[-2:]
            blocks[-2:] = [((one * m + other * n) / (m + n), m + n)]
    placed = np.empty(len(heights))
    ascending = np.repeat([v for v, _ in blocks], [n for _, n in blocks])
    placed[order] = np.maximum(np.minimum(ascending, high - steps[-1]), low) + steps
    return placed
