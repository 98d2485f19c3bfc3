"""What a head hands over, and how far heads look."""

import numpy as np
import plotly.graph_objects as go

from figures.layout import colour_bar, settle, stops
from figures.theme import Palette


def mixture(
    v: np.ndarray, weight: float, z: np.ndarray, tensors: str, palette: Palette
) -> go.Figure:
    """Three rows on one scale around zero: what a key offers, v (d,), that times its weight, and
    z (d,), the mixture of all keys that it becomes a part of. ``tensors`` names them."""
    rows = np.stack([z, weight * v, v]).astype(np.float32)
    limit = float(np.abs(rows).max())
    names = ["z, all keys mixed", f"{weight:.4f} × v", "v of this key"]
    figure = go.Figure(
        go.Heatmap(
            z=rows,
            y=names,
            zmin=-limit,
            zmax=limit,
            colorscale=stops(palette.diverging),
            ygap=5,
            xgap=1,
            hovertemplate="%{y}<br>dimension %{x}: %{z:.4f}<extra></extra>",
            colorbar=colour_bar(tensors, nticks=5),
        )
    )
    settle(figure, palette, height=210, left=8, top=8)
    figure.update_xaxes(title="dimension", showgrid=False, zeroline=False)
    figure.update_yaxes(showgrid=False, automargin=True)
    return figure


def distances(
    distance: np.ndarray,
    even: float,
    patch_size: int,
    layer: int,
    head: int,
    palette: Palette,
) -> go.Figure:
    """A dot for each head, layer across and mean distance up; the current head is ringed and a
    dotted line marks a head that looks everywhere alike.

    Args:
        distance: (layers, heads), in patch sides.
        even: the same for attention spread evenly.
    """
    layers, heads = distance.shape
    layer_of, head_of = (axis.ravel() for axis in np.indices(distance.shape))
    y = distance.ravel().astype(np.float32)
    here = layer * heads + head
    figure = go.Figure(
        go.Scatter(
            x=layer_of,
            y=y,
            mode="markers",
            marker={"size": 9, "color": palette.muted, "opacity": 0.75, "line": {"width": 0}},
            customdata=np.stack([head_of, y * patch_size], -1),
            hovertemplate="layer %{x}, head %{customdata[0]}<br>%{y:.2f} patches = "
            "%{customdata[1]:.1f} pixels<extra></extra>",
        )
    )
    figure.add_scatter(
        x=[layer],
        y=[y[here]],
        mode="markers+text",
        marker={"size": 15, "color": palette.query, "line": {"width": 0}},
        text=[f"head {head}: {y[here]:.2f}"],
        textposition="middle right" if layer < layers / 2 else "middle left",
        textfont={"color": palette.query, "size": 13},
        hoverinfo="skip",
        cliponaxis=False,
    )
    figure.add_hline(y=even, line={"color": palette.muted, "width": 1, "dash": "dot"})
    settle(figure, palette, height=300, left=56, top=12)
    figure.update_xaxes(
        title="layer",
        range=[-0.5, layers - 0.5],
        dtick=1 if layers <= 16 else 4,
        tick0=0,
        showgrid=False,
        zeroline=False,
    )
    top = 1.12 * max(float(y.max()), even, 0.1)
    figure.update_yaxes(
        title="mean distance in patches", range=[0, top], gridcolor=palette.line, zeroline=False
    )
    return figure
