"""All runs as a table that keeps still: one is chosen, some are compared, the rest is read."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import streamlit as st

from ui.colours import roles

_HERE = Path(__file__).parent
_component = st.components.v2.component(
    "sixty_five_tokens_run_table",
    html=(_HERE / "run_table.html").read_text(encoding="utf-8"),
    css=(_HERE / "run_table.css").read_text(encoding="utf-8"),
    js=(_HERE / "run_table.js").read_text(encoding="utf-8"),
)
_COLOURS = roles("ground", "panel", "ink", "muted", "line", "query", "wrong")

Tone = Literal["moving", "still", "wrong"]


@dataclass(frozen=True)
class TableRow:
    """A run in the table; all texts are shown as they are.

    Attributes:
        id: what tells it from the others.
        state: in words; ``tone`` says how to colour them.
        share: how much of it is trained, 0 … 1; None if it makes no sense to ask.
        numbers: one text for each column.
        shipped: whether it belongs to the second part of the table.
    """

    id: str
    name: str
    tags: Sequence[str]
    state: str
    tone: Tone
    share: float | None
    numbers: Sequence[str]
    shipped: bool


def run_table(
    rows: Sequence[TableRow],
    columns: Sequence[str],
    *,
    key: str,
    chosen: str,
    compared: Sequence[str],
    most: int,
    on_choose: Callable[[], None],
    on_compare: Callable[[], None],
) -> None:
    """Draw the table with one run ``chosen`` and some ``compared``, at ``most`` so many.

    Args:
        columns: what the rows' numbers are.
        on_choose, on_compare: called before the script when the visitor has chosen; they may read
            ``new_choice(key)`` and ``new_comparison(key)``.
    """
    data = {
        "rows": [asdict(row) for row in rows],
        "columns": list(columns),
        "chosen": chosen,
        "compared": list(compared),
        "most": most,
        "colours": _COLOURS,
    }
    _component(key=key, data=data, on_choose_change=on_choose, on_compare_change=on_compare)


def new_choice(key: str) -> str:
    """The id that the visitor has just chosen; empty if the browser says nothing of that kind."""
    return next(iter(_ids(key, "choose")), "")


def new_comparison(key: str) -> list[str]:
    """The ids that the visitor now wants compared."""
    return _ids(key, "compare")


def _ids(key: str, what: str) -> list[str]:
    value = (st.session_state.get(key) or {}).get(what)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
