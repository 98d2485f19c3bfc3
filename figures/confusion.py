"""How well each class is told from the others."""

from collections.abc import Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go

from figures.layout import settle, share_rows
from figures.theme import Palette


def per_class(
    names: Sequence[str],
    accuracy: np.ndarray,
    palette: Palette,
    published: tuple[str, np.ndarray] | None = None,
) -> go.Figure:
    """A bar for each class, worst on top.

    Args:
        accuracy: (classes,) 0 … 1; NaN for a class without pictures, which is left out.
        published: the name and the accuracies (classes,) of a model to set beside, as rings.
    """
    order = [i for i in np.argsort(accuracy)[::-1] if not np.isnan(accuracy[i])]
    row = 30 if len(order) <= 20 else 16  # pixels
    labels = [escape(names[i]) for i in order]
    shares = (100 * accuracy[order]).astype(np.float32)
    figure = go.Figure(
        go.Bar(
            x=shares,
            y=np.arange(len(order)),
            orientation="h",
            width=0.62,
            marker={"color": palette.series[0], "line": {"width": 0}},
            text=[f"{share:.1f} %" for share in shares],
            textposition="inside",
            insidetextanchor="start",
            constraintext="none",
            textfont={"color": palette.ground, "size": 12},
            customdata=labels,
            hovertemplate="%{customdata}: %{x:.1f} % are named rightly<extra></extra>",
            name="this model",
        )
    )
    if published:
        name, theirs = published
        figure.add_scatter(
            x=(100 * theirs[order]).astype(np.float32),
            y=np.arange(len(order)),
            mode="markers",
            marker={
                "symbol": "line-ns",
                "size": 17,
                "line": {"color": palette.ink, "width": 2},
            },
            customdata=labels,
            hovertemplate="%{customdata}: " + escape(name) + " %{x:.1f} %<extra></extra>",
            name=name,
        )
    settle(figure, palette, height=60 + row * len(order), left=8, top=8)
    share_rows(figure, palette, np.arange(len(order)), labels)
    return figure
