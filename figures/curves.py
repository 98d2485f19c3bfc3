"""How a run went, epoch by epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import plotly.graph_objects as go

from figures.layout import legend_below, settle
from figures.theme import Palette

NARROW = 270  # pixels that a chart is wide on a phone …
LETTER = 6  # … and that a letter of a mark takes


@dataclass(frozen=True)
class Line:
    """A named series: ``values`` (n,) over ``epochs`` (n,), NaN where not measured. ``colour`` is
    an index into the theme's series. Published points are dotted and ringed."""

    name: str
    epochs: np.ndarray
    values: np.ndarray
    colour: int
    published: bool = False


def curves(
    lines: Sequence[Line],
    unit: str,
    palette: Palette,
    *,
    marks: Mapping[float, str],
    decimals: int,
    height: int = 340,
) -> go.Figure:
    """Lines over the epochs, each named at its last point.

    Args:
        unit: what the values are, along the axis.
        marks: epochs to mark by a vertical line, and what to write at it.
        decimals: of the values when hovered.
    """
    figure = go.Figure()
    for line in lines:
        seen = ~np.isnan(line.values)
        epochs, values = line.epochs[seen], line.values[seen].astype(np.float32)
        colour = palette.series[line.colour]
        figure.add_scatter(
            x=epochs,
            y=values,
            name=escape(line.name),
            mode="markers" if len(epochs) == 1 else "lines+markers" if line.published else "lines",
            line={"color": colour, "width": 1.5 if line.published else 2.25}
            | ({"dash": "dot"} if line.published else {}),
            marker={
                "size": 7,
                "color": palette.ground if line.published else colour,
                "line": {"color": colour, "width": 1.5},
            },
            hovertemplate=f"{escape(line.name)}: %{{y:.{decimals}f}}<extra></extra>",
        )
    drawn = np.concatenate([line.epochs for line in lines] or [np.zeros(0)])
    first, last = (drawn.min(), drawn.max()) if len(drawn) else (0.0, 0.0)
    taken: list[float] = []  # up to which epoch each row of words above the chart is written on
    for epoch, text in sorted(marks.items()):
        width = LETTER * (len(text) + 1) / NARROW * (last - first)
        to_the_left = epoch > (first + last) / 2
        start = epoch - width if to_the_left else epoch
        row = next((row for row, end in enumerate(taken) if end <= start), len(taken))
        taken[row : row + 1] = [start + width]
        figure.add_vline(x=epoch, line={"color": palette.muted, "width": 1, "dash": "dot"})
        figure.add_annotation(
            x=epoch,
            y=1,
            yref="paper",
            text=text,
            showarrow=False,
            xanchor="right" if to_the_left else "left",
            yanchor="bottom",
            yshift=13 * row,
            font={"size": 11, "color": palette.muted},
        )
    settle(figure, palette, height=height, left=8, top=10 + 13 * max(len(taken), 2) if marks else 8)
    figure.update_layout(
        showlegend=len(lines) > 1,
        legend=legend_below(-60 / height),
        hovermode="x unified",
    )
    figure.update_xaxes(
        title={"text": "epoch", "standoff": 8},
        showgrid=False,
        zeroline=False,
        fixedrange=True,
        tickformat="d",
        unifiedhovertitle={"text": "epoch %{x}"},
    )
    figure.update_yaxes(
        title=unit, gridcolor=palette.line, zeroline=False, fixedrange=True, automargin=True
    )
    return figure
