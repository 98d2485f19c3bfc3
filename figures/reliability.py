"""Is a model as sure as it is right?"""

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from figures.layout import settle
from figures.theme import Palette


def reliability(
    edges: np.ndarray,
    count: np.ndarray,
    confidence: np.ndarray,
    accuracy: np.ndarray,
    palette: Palette,
) -> go.Figure:
    """Accuracy over confidence, a bar for each bin, with the line on which they are equal; below,
    how many predictions each bin holds. After Guo et al., arXiv 1706.04599, figure 1.

    Args:
        edges: (bins + 1,) of confidence, 0 … 1.
        count, confidence, accuracy: (bins,); the last two NaN where count is 0.
    """
    some = count > 0
    middle, width = (edges[:-1] + edges[1:]) / 2, np.diff(edges)
    spans = [
        f"{100 * low:.0f}–{100 * high:.0f} %"
        for low, high in zip(edges[:-1], edges[1:], strict=True)
    ]
    details = np.stack([spans, count, 100 * confidence, 100 * accuracy], axis=-1)[some]
    hover = (
        "%{customdata[0]} sure: %{customdata[1]} pictures<br>mean confidence "
        "%{customdata[2]:.1f} %, right %{customdata[3]:.1f} %<extra></extra>"
    )
    rows = [[*row[:1], int(row[1]), *map(float, row[2:])] for row in details.tolist()]
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, row_heights=[0.72, 0.28], vertical_spacing=0.06
    )
    bars = {"width": 100 * width[some] * 0.94, "customdata": rows, "hovertemplate": hover}
    figure.add_bar(
        x=100 * middle[some],
        y=100 * accuracy[some],
        marker={"color": palette.series[0], "opacity": 0.75, "line": {"width": 0}},
        name="right",
        row=1,
        col=1,
        **bars,
    )
    figure.add_scatter(
        x=[0, 100],
        y=[0, 100],
        mode="lines",
        line={"color": palette.ink, "width": 1.5, "dash": "dot"},
        hoverinfo="skip",
        row=1,
        col=1,
    )
    figure.add_scatter(
        x=100 * confidence[some],
        y=100 * accuracy[some],
        mode="markers",
        marker={"color": palette.ground, "size": 8, "line": {"color": palette.ink, "width": 2}},
        hoverinfo="skip",
        cliponaxis=False,
        row=1,
        col=1,
    )
    figure.add_bar(
        x=100 * middle[some],
        y=count[some],
        marker={"color": palette.muted, "opacity": 0.55, "line": {"width": 0}},
        name="pictures",
        row=2,
        col=1,
        **bars,
    )
    settle(figure, palette, height=430, left=8, top=8)
    figure.update_xaxes(range=[0, 100], dtick=20, showgrid=False, zeroline=False, fixedrange=True)
    figure.update_xaxes(title="how sure the model is (largest probability), %", row=2, col=1)
    figure.update_yaxes(gridcolor=palette.line, zeroline=False, fixedrange=True, automargin=True)
    figure.update_yaxes(title="right, %", range=[0, 100], row=1, col=1)
    figure.update_yaxes(title="pictures", row=2, col=1)
    return figure
