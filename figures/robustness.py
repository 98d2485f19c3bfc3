"""How well a model does once its pictures are changed."""

from collections.abc import Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go

from figures.layout import settle, share_rows
from figures.theme import Palette


def after_changes(
    names: Sequence[str], accuracy: np.ndarray, confidence: np.ndarray, palette: Palette
) -> go.Figure:
    """A bar for the accuracy after each change, the first (pictures as they are) on top in grey,
    with an upright stroke at the mean confidence.

    Args:
        names: of the changes.
        accuracy, confidence: (changes,) 0 … 1.
    """
    rows = np.arange(len(names))
    labels = [escape(name) for name in names]
    right, sure = ((100 * shares).astype(np.float32) for shares in (accuracy, confidence))
    details = [[label, float(r), float(s)] for label, r, s in zip(labels, right, sure, strict=True)]
    hover = "%{customdata[0]}: right %{customdata[1]:.1f} %, sure %{customdata[2]:.1f} %"
    shared = {"y": rows, "customdata": details, "hovertemplate": hover + "<extra></extra>"}
    figure = go.Figure(
        go.Bar(
            x=right,
            orientation="h",
            width=0.62,
            marker={
                "color": [palette.muted, *[palette.series[0]] * (len(names) - 1)],
                "line": {"width": 0},
            },
            text=[f"{share:.1f} %" for share in right],
            # In a bar too short for its number, the number stands behind it.
            textposition=["inside" if share > 15 else "outside" for share in right],
            insidetextanchor="start",
            constraintext="none",
            insidetextfont={"color": palette.ground, "size": 12},
            outsidetextfont={"color": palette.ink, "size": 12},
            name="right",
            **shared,
        )
    )
    figure.add_scatter(
        x=sure,
        mode="markers",
        marker={"symbol": "line-ns", "size": 17, "line": {"color": palette.ink, "width": 2}},
        name="sure",
        **shared,
    )
    settle(figure, palette, height=60 + 30 * len(names), left=8, top=8)
    share_rows(figure, palette, rows, labels)
    figure.update_yaxes(autorange="reversed")
    return figure
