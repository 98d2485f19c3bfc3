"""A sum, shown as its terms."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from figures.layout import settle
from figures.theme import Palette

NAMED = 4  # so many of the largest terms carry their number


def largest(terms: np.ndarray, count: int = NAMED) -> np.ndarray:
    """The indices of the ``count`` terms (d,) of the largest absolute value, largest first."""
    return np.argsort(-np.abs(terms), kind="stable")[:count]


def bars(
    terms: np.ndarray,
    factors: Sequence[tuple[str, np.ndarray]],
    title: str,
    palette: Palette,
) -> go.Figure:
    """One bar for each term (d,) of a dot product, above or below zero, the largest with their
    numbers; pointing at one names its two ``factors`` (name, values (d,))."""
    down, up = palette.diverging[1], palette.diverging[-2]
    named = set(largest(terms).tolist())
    (a, a_values), (b, b_values) = factors
    figure = go.Figure(
        go.Bar(
            x=np.arange(len(terms)),
            y=terms.astype(np.float32),
            marker_color=np.where(terms < 0, down, up).tolist(),
            marker_line_width=0,
            text=[
                f"{term:+.2f}".replace("-", "−") if i in named else ""
                for i, term in enumerate(terms)
            ],
            textposition="outside",
            textangle=0,
            textfont={"color": palette.ink, "size": 12},
            constraintext="none",
            cliponaxis=False,
            customdata=np.stack([a_values, b_values], -1).astype(np.float32),
            hovertemplate=f"dimension %{{x}}<br>{a} %{{customdata[0]:.4f}} × {b} "
            "%{customdata[1]:.4f} = %{y:.4f}<extra></extra>",
        )
    )
    settle(figure, palette, height=210, left=56, top=24)
    figure.update_xaxes(title="dimension", showgrid=False, zeroline=False)
    figure.update_yaxes(
        title=title, gridcolor=palette.line, zeroline=True, zerolinecolor=palette.muted
    )
    return figure
