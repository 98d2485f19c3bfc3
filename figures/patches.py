"""A token as its numbers, what tokens cost, and signed numbers as colours."""

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from figures.layout import settle
from figures.theme import Palette


def signed_colours(
    values: NDArray[np.floating], limit: float, palette: Palette
) -> NDArray[np.uint8]:
    """(…,) from −limit to limit → (…, 3) on the diverging scale."""
    stops = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in palette.diverging])
    places = np.linspace(-1, 1, len(stops))
    shares = np.clip(values / limit, -1, 1) if limit > 0 else np.zeros_like(values)
    channels = [np.interp(shares, places, stops[:, channel]) for channel in range(3)]
    return np.stack(channels, -1).round().astype(np.uint8)


def token(
    values: np.ndarray, tensor: str, palette: Palette, chosen: int | None = None
) -> go.Figure:
    """One bar for each number of a token (D,), above or below zero; the chosen one stands out and
    carries its value."""
    down, up = palette.diverging[1], palette.diverging[-2]
    colours = np.where(values < 0, down, up).astype(object)
    if chosen is not None:
        colours[chosen] = palette.ink
    figure = go.Figure(
        go.Bar(
            x=np.arange(len(values)),
            y=values.astype(np.float32),
            marker_color=colours.tolist(),
            marker_line_width=0,
            hovertemplate="dimension %{x}: %{y:.4f}<extra></extra>",
        )
    )
    if chosen is not None:
        value = float(values[chosen])
        figure.add_annotation(
            x=chosen,
            y=value,
            yshift=11 if value >= 0 else -11,
            text=f"{value:+.3f}".replace("-", "−"),
            font={"color": palette.ink, "size": 13},
            showarrow=False,
        )
    settle(figure, palette, height=220, left=56, top=24)
    figure.update_xaxes(title="dimension", showgrid=False, zeroline=False)
    figure.update_yaxes(
        title=tensor, gridcolor=palette.line, zeroline=True, zerolinecolor=palette.muted
    )
    return figure


def cost(
    patch_sizes: np.ndarray,
    tokens: np.ndarray,
    pairs: np.ndarray,
    chosen: int,
    palette: Palette,
) -> go.Figure:
    """Tokens and pairs for each patch side, both on logarithmic scales, the ``chosen`` (an index)
    marked: halving the side makes four times the tokens and sixteen times the pairs."""
    figure = go.Figure()
    # Each label on the side that its falling line leaves free.
    above = "top center" if chosen == len(patch_sizes) - 1 else "top right"
    below = "bottom center" if chosen == 0 else "bottom left"
    lines = (
        ("N² pairs", pairs, palette.key, above),
        ("N tokens", tokens, palette.query, below),
    )
    for name, values, colour, side in lines:
        figure.add_scatter(
            x=patch_sizes,
            y=values,
            mode="lines+markers",
            line={"color": colour, "width": 2},
            marker={"size": 6},
            hovertemplate=f"patches of %{{x}} pixels: %{{y:,}} {name[2:].strip()}<extra></extra>",
        )
        figure.add_scatter(
            x=[patch_sizes[chosen]],
            y=[values[chosen]],
            mode="markers+text",
            marker={"size": 13, "color": colour},
            text=[f"{name}: {values[chosen]:,}"],
            textposition=side,
            textfont={"color": colour, "size": 13},
            hoverinfo="skip",
            cliponaxis=False,
        )
    settle(figure, palette, height=320, left=64, top=16)
    figure.update_xaxes(
        title="patch side in pixels",
        type="log",
        tickvals=patch_sizes,
        ticktext=[str(side) for side in patch_sizes],
        tickangle=0,
        showgrid=False,
        zeroline=False,
    )
    figure.update_yaxes(
        title="how many", type="log", dtick=2, gridcolor=palette.line, zeroline=False
    )
    return figure
