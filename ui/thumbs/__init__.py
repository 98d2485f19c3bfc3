"""Small pictures to choose one from: real buttons, the chosen one marked."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import streamlit as st

_HERE = Path(__file__).parent
_component = st.components.v2.component(
    "sixty_five_tokens_thumbs",
    html='<div class="thumbs" role="group"></div>',
    css=(_HERE / "thumbs.css").read_text(encoding="utf-8"),
    js=(_HERE / "thumbs.js").read_text(encoding="utf-8"),
)


@dataclass(frozen=True)
class Thumb:
    """One picture: the name reported when it is chosen, what it is called, and its data URI."""

    name: str
    title: str
    source: str


def thumbs(
    items: Sequence[Thumb],
    *,
    key: str,
    label: str,
    on_choose: Callable[[str], None],
    current: str | None = None,
    columns: int = 6,
) -> None:
    """Show ``items``; a click, or Enter on the one that the arrow keys lead to, calls
    ``on_choose`` with its name before the script runs. ``current`` is marked."""
    names = {item.name for item in items}

    def chosen() -> None:
        name = st.session_state[key].get("chosen")
        if name in names:
            on_choose(name)

    data = {
        "label": label,
        "items": [asdict(item) for item in items],
        "current": current,
        "columns": columns,
    }
    # In a list: Streamlit searches a dict for data frames, and imports pandas to know one.
    _component(key=key, data=[data], on_chosen_change=chosen)
