"""How fast a run will learn: its learning rates over the epochs, and what happens when."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import plotly.graph_objects as go

from figures.layout import legend_below, settle
from figures.theme import Palette

_ROW = 22  # pixels for each phase
_PLOT = 150  # pixels for the rates


@dataclass(frozen=True)
class Rate:
    """The learning rate of one optimizer, (n,); ``colour`` is an index into the theme's series."""

    name: str
    values: np.ndarray
    colour: int


@dataclass(frozen=True)
class Phase:
    """What is done from one epoch to another only."""

    name: str
    start: float
    end: float


def schedule(
    epochs: np.ndarray, rates: Sequence[Rate], phases: Sequence[Phase], palette: Palette
) -> go.Figure:
    """Rates over ``epochs`` (n,), under a bar for each phase."""
    figure = go.Figure()
    for rate in rates:
        figure.add_scatter(
            x=epochs,
            y=rate.values,
            name=escape(rate.name),
            mode="lines",
            line={"color": palette.series[rate.colour], "width": 2.25},
            hovertemplate=f"{escape(rate.name)}: %{{y:.3~g}}<extra></extra>",
        )
    top, bottom = 8 + _ROW * len(phases), 66 if len(rates) > 1 else 44
    settle(figure, palette, height=top + _PLOT + bottom, left=8, top=top)
    for number, phase in enumerate(phases):
        # In pixels above the plot, so that a bar is as high as its text on any screen.
        low = _ROW * (len(phases) - 1 - number) + 4
        ends = {"x0": phase.start, "x1": phase.end, "y0": low, "y1": low + _ROW - 4}
        figure.add_shape(
            type="rect",
            yref="paper",
            ysizemode="pixel",
            yanchor=1,
            **ends,
            fillcolor=palette.line,
            opacity=0.6,
            line_width=0,
        )
        figure.add_annotation(
            x=phase.start,
            y=1,
            yref="paper",
            yshift=low + (_ROW - 4) / 2,
            xshift=2,
            text=escape(phase.name),
            showarrow=False,
            xanchor="left",
            yanchor="middle",
            font={"size": 11, "color": palette.ink},
        )
    figure.update_layout(
        margin_b=bottom,
        showlegend=len(rates) > 1,
        legend=legend_below(-42 / _PLOT),
        hovermode="x unified",
    )
    figure.update_xaxes(
        title={"text": "epoch", "standoff": 6},
        showgrid=False,
        zeroline=False,
        fixedrange=True,
        range=[0, float(np.ceil(epochs[-1]))],
        unifiedhovertitle={"text": "epoch %{x:.1f}"},
    )
    figure.update_yaxes(
        title="learning rate",
        gridcolor=palette.line,
        zeroline=False,
        fixedrange=True,
        automargin=True,
        rangemode="tozero",
        tickformat="~g",
        nticks=5,
    )
    return figure
