"""A page with nothing but boards, for the browser tests of the board.

The query string chooses: ``grid`` (8x8), ``layers``, ``heads``, ``kind`` (attention, similarity,
none), ``parts`` and the first choice. A number input above the board sets the token and follows
it; below it stands how often the script ran and what the board returned.
"""

import json
from dataclasses import asdict

import numpy as np
import streamlit as st

from ui.board import board, chosen


def attention(
    grid: tuple[int, int], layers: int, heads: int, has_cls: bool = True, seed: int = 0
) -> np.ndarray:
    """Maps that look like a ViT's: some heads near, some far, [CLS] gathering; rows sum to 1."""
    rng = np.random.default_rng(seed)
    places = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), -1).reshape(-1, 2)
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    tokens = len(places) + has_cls
    scores = rng.normal(0, 0.7, (layers, heads, tokens, tokens)).astype(np.float32)
    salient = rng.normal(0, 1, (layers, heads, 1, len(places)))
    reach = rng.uniform(0.6, 4, (layers, heads, 1, 1))
    depth = np.linspace(0, 1, layers)[:, None, None, None]
    scores[..., has_cls:, has_cls:] += (1 - depth) * -distance / reach + 1.5 * depth * salient
    if has_cls:
        scores[..., :1, 1:] += 1.5 * depth * salient
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def similarity(grid: tuple[int, int], seed: int = 1) -> np.ndarray:
    """Cosine similarities between patches, (1, 1, n, n), signed."""
    rng = np.random.default_rng(seed)
    row, column = np.meshgrid(*map(np.arange, grid), indexing="ij")
    waves = [
        f(place / period) for place in (row, column) for period in (2, 5) for f in (np.sin, np.cos)
    ]
    vectors = np.stack(waves, -1).reshape(-1, 8) + 0.1 * rng.normal(size=(row.size, 8))
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors @ vectors.T).astype(np.float32)[None, None]


def picture(side: int = 256) -> np.ndarray:
    """A picture with a clear up, down, left and right."""
    y, x = np.mgrid[0 : 1 : side * 1j, 0 : 1 : side * 1j]
    disc = (x - 0.4) ** 2 + (y - 0.45) ** 2 < 0.08
    ground = np.stack([0.55 + 0.2 * y, 0.7 - 0.3 * y, 0.85 - 0.6 * y], -1)
    return (255 * np.where(disc[..., None], [0.93, 0.55, 0.2], ground)).astype(np.uint8)


def show(query: dict[str, str]) -> None:
    rows, columns = map(int, query.get("grid", "8x8").split("x"))
    grid, kind = (rows, columns), query.get("kind", "attention")
    layers, heads = int(query.get("layers", 6)), int(query.get("heads", 4))
    parts = tuple(query["parts"].split(",")) if "parts" in query else None
    options: dict = {"key": "board", "picture": picture(), "grid": grid, "parts": parts}
    if kind == "attention":
        options["maps"] = attention(grid, layers, heads)
    elif kind == "similarity":
        options |= {
            "maps": similarity(grid),
            "has_cls": False,
            "scale": "diverging",
            "value_name": "cosine similarity",
            "tensor_name": "pos_embed[0, 1:]",
            "row_label": "patch",
            "column_label": "patch",
        }

    def follow() -> None:
        if choice := chosen("board"):
            st.session_state.token = choice.token

    st.session_state.setdefault("token", int(query.get("token", 0)))
    st.number_input("token", 0, rows * columns, key="token")
    choice = board(
        **options,
        token=st.session_state.token,
        layer=int(query.get("layer", 0)),
        head=int(query.get("head", 0)),
        on_change=follow,
    )
    st.session_state.runs = st.session_state.get("runs", 0) + 1
    st.button("rerun")
    st.text(f"runs {st.session_state.runs}")
    st.code(json.dumps(asdict(choice)))


if __name__ == "__main__":
    st.set_page_config("board", layout="wide")
    show(st.query_params.to_dict())
