"""What the visitor is looking at, kept in the URL.

The query string is the only memory: a copied link, Back and reload all give the same view. What
is at its default is left out, so a fresh visitor's address stays bare.
"""

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
    for name, kind in (("img", str), ("framing", str), ("run", str)):
        if name in st.query_params:
            values[name] = kind(st.query_params[name])
    for name in ("epoch", "layer", "head", "token"):
        text = st.query_params.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 9:
            values[name] = int(text)
    return View(**values)


def update(**changes: Any) -> None:
    """Change parts of the view, in the URL. Call it from a widget's callback, which runs before
    the page does."""
    query = replace(read(), **changes).to_query()
    for name in View.__dataclass_fields__:
        if name in query:
            if st.query_params.get(name) != query[name]:
                st.query_params[name] = query[name]
        elif name in st.query_params:
            del st.query_params[name]


def bound(field: str, value: Any) -> dict[str, Any]:
    """Arguments that tie a widget to a part of the view: ``st.slider("Layer", …, **bound("layer",
    view.layer))`` shows the view's value, and a change of it goes to the URL."""
    key = f"view-{field}"
    st.session_state[key] = value
    return {"key": key, "on_change": lambda: update(**{field: st.session_state[key]})}
