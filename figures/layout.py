"""What all figures have in common."""

from collections.abc import Sequence

import plotly.graph_objects as go

from figures.theme import Palette

Stops = list[tuple[float, str]]


def stops(colours: tuple[str, ...]) -> Stops:
    """A scale of the theme's, evenly spaced, as Plotly wants it."""
    return [(i / (len(colours) - 1), colour) for i, colour in enumerate(colours)]


def settle(figure: go.Figure, palette: Palette, *, height: int, left: int, top: int) -> None:
    """Lay a figure on the page's own ground, at a fixed height in pixels: no frame, no legend,
    nothing to drag by accident on a phone."""
    figure.update_layout(
        height=height,
        margin={"l": left, "r": 8, "t": top, "b": 44},
        dragmode=False,
        showlegend=False,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font_color=palette.ink,
    )


def legend_below(y: float) -> dict[str, object]:
    """A legend in a row under the plot, its top at ``y`` plot heights; clicks change nothing."""
    return {
        "orientation": "h",
        "y": y,
        "yanchor": "top",
        "x": 0,
        "itemclick": False,
        "itemdoubleclick": False,
        "font": {"size": 12},
    }


def colour_bar(title: str, **options: object) -> dict[str, object]:
    """A slim colour bar with its tensor or unit written along it."""
    label = {"text": title, "side": "right", "font": {"size": 11}}
    return {"title": label, "thickness": 9, "outlinewidth": 0} | options


def share_rows(
    figure: go.Figure, palette: Palette, positions: Sequence[float], labels: Sequence[str]
) -> None:
    """Axes of a figure that has a row for each label and the share named rightly (%) along it."""
    figure.update_xaxes(
        title="pictures named rightly, %",
        range=[0, 100],
        gridcolor=palette.line,
        zeroline=False,
        fixedrange=True,
    )
    figure.update_yaxes(
        tickvals=positions, ticktext=labels, showgrid=False, automargin=True, fixedrange=True
    )
