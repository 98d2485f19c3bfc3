"""The board: one picture, its patches and every attention map, explored without a rerun.

Everything is sent to the browser once, as one run of bytes; hovering, clicking, arrow keys and
playing through the layers happen there, and only a new choice comes back to Python. The bytes stay
the same from run to run as long as Python imposes nothing new, so that Streamlit sends a short
reference to them instead of all the maps again.
"""

import io
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import streamlit as st
from numpy.typing import NDArray
from PIL import Image

from figures.theme import DARK, LIGHT
from ui.board.payload import Floats, Message, Scale, Stats, pack

__all__ = ["BoardChoice", "Stats", "board", "chosen", "pack"]

PARTS = ("picture", "matrix", "heads")
PICTURE_BUDGET = 64_000  # bytes of the encoded picture
LOSSLESS_SIDE = 128  # up to here a picture is sent pixel for pixel

_HERE = Path(__file__).parent
_component = st.components.v2.component(
    "sixty_five_tokens_board",
    html=(_HERE / "board.html").read_text(encoding="utf-8"),
    css=(_HERE / "board.css").read_text(encoding="utf-8"),
    js=(_HERE / "board.js").read_text(encoding="utf-8"),
)


@dataclass(frozen=True)
class BoardChoice:
    """What is chosen on a board, counted from 0.

    ``pair`` is the (query, key) of the matrix cell that was clicked last, if one is marked.
    """

    token: int
    layer: int
    head: int
    pair: tuple[int, int] | None = None


def board(
    *,
    key: str,
    picture: NDArray[np.uint8],
    grid: tuple[int, int],
    maps: Floats | None = None,
    has_cls: bool = True,
    token: int = 0,
    layer: int = 0,
    head: int = 0,
    parts: tuple[str, ...] | None = None,
    scale: Scale = "sequential",
    value_name: str = "attention weight",
    tensor_name: str = "blocks.{layer}.attn.pattern[0, {head}]",
    row_label: str = "query",
    column_label: str = "key",
    on_change: Callable[[], None] | None = None,
) -> BoardChoice:
    """Draw the board and return what is chosen on it.

    ``picture`` (h, w, 3) is drawn under a ``grid`` of (rows, columns) patches. ``maps`` (layers,
    heads, N, N), one row per query, has N = rows·columns tokens in row-major order, after [CLS]
    as token 0 if ``has_cls``; None draws the picture alone. ``token``, ``layer`` and ``head`` are
    what the page wants chosen: they win if they changed since the last run, otherwise the
    visitor's choice stays. ``parts`` are some of picture, matrix, heads (default: all that there
    is data for). ``scale="diverging"`` is for signed values. {layer} and {head} in ``tensor_name``
    follow the choice. ``on_change`` is called before the script when the visitor has chosen; it
    may read ``chosen(key)``.

    Raises ValueError, one sentence, when the sizes do not fit together.
    """
    parts = parts or (PARTS if maps is not None else ("picture",))
    if maps is not None:
        maps = np.asarray(maps, dtype=np.float32)
    _check(picture, grid, maps, has_cls, parts, scale)
    layers, heads = maps.shape[:2] if maps is not None else (1, 1)
    geometry = (grid[0] * grid[1] + has_cls, layers, heads)
    wanted = BoardChoice(token, layer, head)
    _check_choice(wanted, geometry)
    memory, choice = _reconcile(key, wanted, geometry)

    message = Message()
    message.add("picture", _encode(picture))
    header: dict[str, Any] = {
        "key": key,
        "serial": memory["serial"],
        "imposed": memory["imposed"],
        "grid": grid,
        "aspect": picture.shape[1] / picture.shape[0],
        "has_cls": has_cls,
        "tokens": geometry[0],
        "layers": layers,
        "heads": heads,
        "parts": parts,
        "scale": scale,
        "value_name": value_name,
        "tensor_name": tensor_name if maps is not None else "",
        "row_label": row_label,
        "column_label": column_label,
        "palettes": {"light": asdict(LIGHT), "dark": asdict(DARK)},
        "maps": None,
    }
    if maps is not None:
        header["maps"] = message.add_maps(maps, scale, choice.token, choice.layer, choice.head)
    _component(key=key, data=message.close(header), on_choice_change=on_change or _nothing)
    return choice


def chosen(key: str) -> BoardChoice | None:
    """The visitor's latest choice on the board ``key``, also before it is drawn in this run.

    None before the first choice, and when the page has imposed another since.
    """
    memory = st.session_state.get(_memory_key(key))
    state = st.session_state.get(key)
    if memory is None or not state:
        return None
    return _read_choice(state.get("choice"), memory["serial"], memory["geometry"])


def _nothing() -> None:
    """Streamlit keeps a state value only if it has a callback."""


def _memory_key(key: str) -> str:
    return f"_board_{key}"


def _reconcile(
    key: str, wanted: BoardChoice, geometry: tuple[int, int, int]
) -> tuple[dict[str, Any], BoardChoice]:
    """Decide between what the page asks for and what the visitor chose.

    A wish of the page is imposed under a new serial; the browser takes it over when it sees a new
    serial, and its own choices count only under the latest. A page that repeats what it asked
    last, or what it was told last, wishes nothing new.
    """
    memory: dict[str, Any] = st.session_state.setdefault(_memory_key(key), {})
    asked = (wanted.token, wanted.layer, wanted.head)
    # The component has no state in its first run, nor in its first after a change of page.
    if key in st.session_state and memory.get("geometry") == geometry:
        choice = chosen(key) or BoardChoice(*memory["imposed"])
        current = (choice.token, choice.layer, choice.head)
        if asked in (current, memory["asked"], memory["told"]):
            memory.update(asked=asked, told=current)
            return memory, choice
    serial = secrets.token_hex(4)
    memory.update(serial=serial, imposed=asked, geometry=geometry, asked=asked, told=asked)
    return memory, wanted


def _read_choice(value: Any, serial: str, geometry: tuple[int, int, int]) -> BoardChoice | None:
    """A choice as the browser reports it; None if it is stale or not one of this board's."""
    if not isinstance(value, dict) or value.get("serial") != serial:
        return None
    pair = value.get("pair")
    numbers = [value.get("token"), value.get("layer"), value.get("head"), *(pair or ())]
    limits = (*geometry, geometry[0], geometry[0])
    for number, limit in zip(numbers, limits, strict=False):
        if type(number) is not int or not 0 <= number < limit:
            return None
    return BoardChoice(*numbers[:3], pair=(pair[0], pair[1]) if pair else None)


def _encode(picture: NDArray[np.uint8]) -> bytes:
    """A small picture as PNG, a larger one as the best JPEG that fits the budget."""
    image = Image.fromarray(picture)
    buffer = io.BytesIO()
    if max(image.size) <= LOSSLESS_SIDE:
        image.save(buffer, "PNG")
        return buffer.getvalue()
    for quality in (92, 85, 75, 60):
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality, subsampling=0)
        if buffer.tell() <= PICTURE_BUDGET:
            return buffer.getvalue()
    return _encode(np.asarray(image.reduce(2)))


def _check(
    picture: NDArray[np.uint8],
    grid: tuple[int, int],
    maps: Floats | None,
    has_cls: bool,
    parts: tuple[str, ...],
    scale: str,
) -> None:
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
        raise ValueError(
            f"picture must be uint8 of shape (height, width, 3), but is {picture.dtype} of shape "
            f"{picture.shape}."
        )
    if min(grid) < 1:
        raise ValueError(f"grid must be (rows, columns), both at least 1, but is {grid}.")
    if scale not in get_args(Scale):
        raise ValueError(f"scale must be 'sequential' or 'diverging', but is {scale!r}.")
    if unknown := sorted(set(parts) - set(PARTS)):
        raise ValueError(f"parts may be {', '.join(PARTS)}, but there is also {unknown[0]!r}.")
    if maps is None:
        if parts != ("picture",):
            raise ValueError("Without maps there is only the picture: pass parts=('picture',).")
        return
    tokens = grid[0] * grid[1] + has_cls
    if maps.ndim != 4 or maps.shape[2:] != (tokens, tokens):
        counted = f"{grid[0]} × {grid[1]} patches{' and [CLS]' if has_cls else ''}"
        raise ValueError(
            f"maps must have shape (layers, heads, {tokens}, {tokens}) for {counted}, but has "
            f"{maps.shape}; has_cls={not has_cls} may be what you want."
        )
    if not np.isfinite(maps).all():
        raise ValueError("maps must be finite, but holds NaN or infinite values.")
    if scale == "sequential" and maps.min() < 0:
        raise ValueError("maps holds negative values: pass scale='diverging' for signed ones.")


def _check_choice(wanted: BoardChoice, geometry: tuple[int, int, int]) -> None:
    chosen_numbers = (wanted.token, wanted.layer, wanted.head)
    for name, number, limit in zip(
        ("token", "layer", "head"), chosen_numbers, geometry, strict=True
    ):
        if not 0 <= number < limit:
            raise ValueError(f"{name} must be between 0 and {limit - 1}, but is {number}.")
