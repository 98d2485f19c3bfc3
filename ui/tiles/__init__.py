"""Pictures with what the model said of them, each a link into the walk."""

import base64
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import streamlit as st
from PIL import Image

from ui.colours import roles

_HERE = Path(__file__).parent
_component = st.components.v2.component(
    "sixty_five_tokens_tiles",
    html=(_HERE / "tiles.html").read_text(encoding="utf-8"),
    css=(_HERE / "tiles.css").read_text(encoding="utf-8"),
    js=(_HERE / "tiles.js").read_text(encoding="utf-8"),
)
_COLOURS = roles("ink", "muted", "line", "right", "wrong")


@dataclass(frozen=True)
class Tile:
    """What stands under a picture: the prediction, a note, whether it is right, and the address
    that the picture leads to (None: nowhere)."""

    said: str
    note: str
    right: bool
    href: str | None


def show_tiles(
    pictures: np.ndarray, tiles: Sequence[Tile], *, key: str, columns: int | None = None
) -> int | None:
    """Draw ``pictures`` (n, C, S, S) uint8 with their ``tiles``, in ``columns`` or as many as fit.

    Returns the index of the picture that the visitor has just clicked, None otherwise.
    """
    data = {
        "sheet": base64.b64encode(_sheet(pictures)).decode(),
        "tiles": [asdict(tile) for tile in tiles],
        "columns": columns,
        "colours": _COLOURS,
    }
    return _component(key=key, data=data, on_open_change=_nothing).open


def _nothing() -> None:
    """Streamlit passes a trigger on only if it has a callback."""


def _sheet(pictures: np.ndarray) -> bytes:
    """All pictures one below the other, as one PNG."""
    n, channels, side, _ = pictures.shape
    column = np.moveaxis(pictures, 1, -1).reshape(n * side, side, channels)
    image = Image.fromarray(column[..., 0] if channels == 1 else column)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
