"""What the visitor is looking at, kept in the URL.

The query string is the only memory: a copied link, Back and reload all give the same view. What
is at its default is left out, so a fresh visitor's address stays bare.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import streamlit as st

from vit.config import ViTConfig


@dataclass(frozen=True)
class View:
    """The picture (``img``) and its framing, the model (``run``) and its epoch (None: the kept
    one), and which layer, head and token are in focus. Indices count from 0; token 0 is [CLS]."""

    img: str = "cat-photo"
    framing: str = "crop"
    run: str = "cifar10"
    epoch: int | None = None
    layer: int = 0
    head: int = 0
    token: int = 0

    def to_query(self) -> dict[str, str]:
        """The query parameters that bring this view back."""
        defaults = asdict(View())
        return {k: str(v) for k, v in asdict(self).items() if v != defaults[k]}

    def fitted(self, config: ViTConfig) -> "View":
        """The same view with indices that the model does not have set back to 0."""

        def within(value: int, count: int) -> int:
            return value if 0 <= value < count else 0

        return replace(
            self,
            layer=within(self.layer, config.depth),
            head=within(self.head, config.num_heads),
            token=within(self.token, config.num_tokens),
        )


def read() -> View:
    """The view that the URL asks for; what it says badly falls back to the default."""
    values: dict[str, Any] = {}
    for name in ("img", "framing", "run"):
        if text := st.query_params.get(name):
            values[name] = text
    for name in ("epoch", "layer", "head", "token"):
        text = st.query_params.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 9:
            values[name] = int(text)
    return View(**values)


def update(**changes: Any) -> None:
    """Change parts of the view, in the URL. Call it from a widget's callback, which runs before
    the page does. All changes make one step for the browser's Back."""
    query = replace(read(), **changes).to_query()
    others = {
        name: st.query_params.get_all(name)
        for name in st.query_params
        if name not in View.__dataclass_fields__
    }
    if others | query != st.query_params.to_dict():
        st.query_params.from_dict(others | query)


def bound(field: str, value: Any, to_view: Callable[[Any], Any] = lambda v: v) -> dict[str, Any]:
    """Arguments that tie a widget to a part of the view: ``st.slider("Layer", …, **bound("layer",
    view.layer))`` shows the view's value, and a change of it goes to the URL, by way of
    ``to_view`` where the widget speaks another language."""
    key = f"view-{field}"
    st.session_state[key] = value
    return {
        "key": key,
        "on_change": lambda: update(**{field: to_view(st.session_state[key])}),
    }
