"""What [CLS] would answer after every layer."""

from collections.abc import Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go

from figures.layout import colour_bar, settle, stops
from figures.theme import Palette

ROOM_FOR_NUMBERS = 14  # more columns than this leave no room to print a number in each


def shown_classes(by_layer: np.ndarray, count: int = 10) -> list[int]:
    """At most ``count`` classes of (L + 1, K), the likeliest at the end first: what leads at the
    end, then, while there is room, whatever led along the way."""
    final = np.argsort(-by_layer[-1], kind="stable")
    if len(final) <= count:
        return final.tolist()
    led = set(by_layer.argmax(-1).tolist())
    wanted = [c for c in final if c in led] + [c for c in final if c not in led]
    chosen = set(wanted[:count])
    return [int(c) for c in final if c in chosen]


def by_layer(probabilities: np.ndarray, names: Sequence[str], palette: Palette) -> go.Figure:
    """Probabilities (L + 1, classes), before the first layer and after each: a row for each class,
    the first on top, its numbers in print where there is room."""
    columns, classes = probabilities.shape
    stages = ["embedding", *(f"layer {i}" for i in range(columns - 1))]
    values = probabilities.T.round(4).astype(np.float32)
    figure = go.Figure(
        go.Heatmap(
            z=values,
            x=np.arange(columns),
            y=np.arange(classes),
            zmin=0,
            zmax=1,
            colorscale=stops(palette.sequential),
            xgap=2,
            ygap=2,
            texttemplate="%{z:.2f}" if columns <= ROOM_FOR_NUMBERS else None,
            customdata=np.broadcast_to(np.array(stages), values.shape),
            text=np.broadcast_to(np.array([plain(n) for n in names])[:, None], values.shape),
            hovertemplate="%{text}<br>%{customdata}: %{z:.4f}<extra></extra>",
            colorbar=colour_bar(
                "probability: softmax(head(norm(resid_post[0, 0])))", tickvals=[0, 0.5, 1]
            ),
        )
    )
    settle(figure, palette, height=90 + 30 * max(classes, 3), left=8, top=8)
    step = max(1, columns // ROOM_FOR_NUMBERS)
    figure.update_xaxes(
        tickvals=list(range(0, columns, step)),
        ticktext=["before", *map(str, range(columns - 1))][::step],
        title="after layer",
        showgrid=False,
        zeroline=False,
    )
    figure.update_yaxes(
        tickvals=list(range(classes)),
        ticktext=[plain(name) for name in names],
        autorange="reversed",
        showgrid=False,
        zeroline=False,
        automargin=True,
    )
    return figure


def plain(name: str) -> str:
    """A class name as Plotly shows it to the letter, cut where it would take all the room."""
    return escape(name if len(name) <= 20 else name[:19] + "…", quote=False)
