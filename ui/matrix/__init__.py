"""Confusion matrices as tables that answer at once: hover, arrow keys, counts or shares."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from ui.colours import roles, scale

__all__ = ["Cell", "chosen", "matrix"]

Cell = tuple[int, int]  # row (true class), column (predicted class), from 0

_HERE = Path(__file__).parent
_component = st.components.v2.component(
    "sixty_five_tokens_matrix",
    html=(_HERE / "matrix.html").read_text(encoding="utf-8"),
    css=(_HERE / "matrix.css").read_text(encoding="utf-8"),
    js=(_HERE / "matrix.js").read_text(encoding="utf-8"),
)
_COLOURS = (
    roles("ground", "panel", "ink", "muted", "line", "right")
    | scale("sequential")
    | scale("diverging")
)


def matrix(
    counts: np.ndarray,
    names: Sequence[str],
    *,
    key: str,
    cell: Cell | None,
    title: str,
    published: tuple[str, np.ndarray] | None = None,
    on_change: Callable[[], None],
) -> None:
    """Draw ``counts`` (classes, classes), rows true and columns predicted, with ``cell`` chosen.

    Args:
        names: the classes' names; shown as text, whatever they hold.
        title: what the counts are of.
        published: the name and the counts of a matrix over the same pictures; it is drawn beside
            ours, and so is the difference.
        on_change: called before the script when the visitor has chosen a cell; it may read
            ``chosen(key)``.
    """
    tables: list[dict[str, Any]] = [
        {"title": title, "short": "", "counts": counts.tolist()},
    ]
    if published:
        name, theirs = published
        tables[0]["short"] = "ours"
        tables += [
            {"title": f"{name}, as published", "short": name, "counts": theirs.tolist()},
            {"title": f"Ours minus {name}", "short": "difference", "difference": [0, 1]},
        ]
    data = {
        "key": key,
        "names": list(names),
        "tables": tables,
        "cell": cell,
        "colours": _COLOURS,
    }
    _component(key=key, data=data, on_cell_change=on_change)


def chosen(key: str) -> Cell | None:
    """The cell that the visitor chose last on the matrix ``key``; None if none, or if what the
    browser says is no cell."""
    value = (st.session_state.get(key) or {}).get("cell")
    match value:
        case [int(row), int(column)] if row >= 0 and column >= 0:
            return row, column
    return None
