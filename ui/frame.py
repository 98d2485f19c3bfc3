"""What stands around every page: the row of links, the sidebar, and what each page ends with."""

import inspect
import logging
import textwrap
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import streamlit as st
from PIL import Image, ImageColor

from figures.theme import DARK, LIGHT, Palette
from ui import replay, sidebar, state
from ui.board import BoardChoice, board, chosen
from ui.pictures import ROOT
from ui.resources import Walk
from ui.state import View

# In the order of the pipeline; the file name gives the address.
PAGES = {
    "Start": "app.py",
    "Patches": "pages/1_Patches.py",
    "Token shapes": "pages/2_Token_shapes.py",
    "Attention": "pages/3_Attention.py",
    "[CLS] readout": "pages/4_CLS_readout.py",
    "Confusion matrix": "pages/5_Confusion_matrix.py",
    "Training": "pages/6_Training.py",
}

WENT_WRONG = (
    "Something went wrong while this part was drawn. Reload the page, or choose another picture or "
    "model in the sidebar."
)

_log = logging.getLogger(__name__)
_view: ContextVar[View] = ContextVar("view")  # of this run of a page, as far as it could be opened


@dataclass(frozen=True)
class Visit:
    """What one visitor looks at on one rerun: the view from the URL, fitted to the model, and the
    recorded walk of their picture through it."""

    view: View
    walk: Walk


@contextmanager
def page(name: str, question: str) -> Iterator[Visit]:
    """Lay out the page called ``name`` (a key of PAGES) under a question as its title.

    with frame.page("Attention", "Who looks at whom?") as visit:
        ...
    """
    if target := st.session_state.pop("_go", None):
        st.switch_page(PAGES[target], query_params=state.read().to_query())
    st.set_page_config(f"{name} · Sixty-five tokens", _icon(), layout="wide")
    st.html(f"<style>{_styles()}</style>")
    with calm():
        try:
            view, walk, notes = sidebar.open_view(state.read())
        except sidebar.NoModel:
            _links(name, state.read())
            st.title(question)
            st.warning(
                "There is no trained model here. Train the small one, in seconds, with "
                "`python -m vit.train digits`, then reload this page."
            )
            st.stop()
        except Exception:
            _log.exception("A view could not be opened")
            _links(name, View())
            st.title(question)
            st.error(WENT_WRONG)
            st.stop()
        _view.set(view)
        _links(name, view)
        for note in notes:
            st.warning(note)
        st.title(question)
        with calm():
            sidebar.show(name, view, walk)
        yield Visit(view, walk)
    replay.go_on(name, view, walk.run.path)


def _links(current: str, view: View) -> None:
    with st.container(horizontal=True, key="pipeline"):
        for label, file in PAGES.items():
            if label == current:
                st.html(f'<span class="here" aria-current="page">{label}</span>')
            else:
                st.page_link(file, label=label, query_params=view.to_query())


def go(name: str, **changes: Any) -> None:
    """Lead to the page ``name`` with changes of the view. Call it from a widget's callback."""
    state.update(**changes)
    st.session_state["_go"] = name


def address(name: str, view: View) -> str:
    """The page's address with the view in it, relative to the start page's."""
    stem = Path(PAGES[name]).stem
    query = urlencode(view.to_query())
    path = "" if stem == "app" else stem.split("_", 1)[1]
    return f"./{path}?{query}" if query else f"./{path}"


@cache
def _icon() -> Image.Image:
    """Nine patches, one of them chosen."""
    icon = Image.new("RGBA", (32, 32))
    for row, column in np.ndindex(3, 3):
        colour = LIGHT.query if (row, column) == (1, 1) else LIGHT.line
        icon.paste(
            ImageColor.getrgb(colour),
            (1 + 11 * column, 1 + 11 * row, 9 + 11 * column, 9 + 11 * row),
        )
    return icon


@cache
def _styles() -> str:
    """The style sheet, its colours those of the theme, light or dark as the browser shows it."""
    roles = ("ground", "panel", "ink", "muted", "line", "query", "key", "right", "wrong")
    colours = "; ".join(
        f"--{role}: light-dark({getattr(LIGHT, role)}, {getattr(DARK, role)})" for role in roles
    )
    return f".stApp {{ {colours} }}\n{(Path(__file__).parent / 'frame.css').read_text('utf-8')}"


@contextmanager
def calm() -> Iterator[None]:
    """Say one sentence if something inside goes wrong, and keep the rest of the page."""
    try:
        yield
    except Exception:
        _log.exception("A part of a page failed")
        st.error(WENT_WRONG)


def palette() -> Palette:
    """The colours of the visitor's appearance, light or dark."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def shared_board(visit: Visit, *, key: str = "board", **arguments: Any) -> BoardChoice:
    """The board tied to the visit: a choice on it goes to the URL and so to the whole page.

    The picture, the grid, the token, and, where there are maps for every layer and head, the layer
    and head come from the visit; ``arguments`` are those of :func:`ui.board.board` and override
    them. Layer and head are followed only if ``maps`` has as many as the model; a single map (a
    similarity, say) leaves them alone. With ``has_cls=False`` the board's token 0 is the first
    patch, which the URL counts as 1.
    """
    view, config = visit.view, visit.walk.run.model_config
    maps = arguments.get("maps")
    first = 0 if arguments.get("has_cls", True) else 1  # the URL's token that the board calls 0
    every_map = maps is not None and maps.shape[:2] == (config.depth, config.num_heads)

    def follow() -> None:
        if choice := chosen(key):
            changes = {"token": choice.token + first}
            if every_map:
                changes |= {"layer": choice.layer, "head": choice.head}
            state.update(**changes)

    return board(
        **{
            "key": key,
            "picture": visit.walk.square,
            "grid": (config.grid_size, config.grid_size),
            "token": max(view.token - first, 0),
            "layer": view.layer if every_map else 0,
            "head": view.head if every_map else 0,
            "on_change": follow,
        }
        | arguments
    )


def aside(text: str) -> None:
    """A remark for people who know GPT: Markdown, one paragraph."""
    with st.container(key=f"aside-{zlib.crc32(text.encode())}"):
        st.markdown(f"**You know GPT?** {text}")


def reveal(
    key: str, question: str, answer: str | Callable[[], object], guesses: Sequence[str] = ()
) -> None:
    """Let the visitor predict, then reveal.

    The answer stays hidden until a click, on one of the ``guesses`` if there are some, and again
    after the picture or the model has changed.

    Args:
        key: different for each question of a page.
        question, answer: Markdown; an answer may also be a function that draws it, called only
            when it is to be seen.
    """
    view = _view.get()
    about = (view.img, view.framing, view.run, view.epoch)
    memory = f"_reveal-{key}"

    def guess(said: str) -> None:
        st.session_state[memory] = (about, said)

    @st.fragment
    def draw() -> None:
        with st.container(key=f"reveal-{key}", border=True):
            st.markdown(f"**Predict, then reveal.** {question}")
            asked, said = st.session_state.get(memory, (None, ""))
            if asked != about:
                with st.container(horizontal=True):
                    for label in guesses or ["Reveal"]:
                        st.button(label, key=f"{memory}-{label}", on_click=guess, args=(label,))
                return
            if guesses:
                st.markdown(f"You said: {said}.")
            with calm():
                if callable(answer):
                    answer()
                else:
                    st.markdown(answer)

    draw()


def the_code(*functions: Callable[..., object] | type) -> None:
    """The live source of the functions (or classes) at work, folded away."""
    names = ", ".join(function.__qualname__ for function in functions)
    with st.expander(f"The code: {names}"):
        for function in functions:
            place, source = _source(function)
            st.caption(place)
            st.code(source, language="python")


@cache
def _source(function: Callable[..., object] | type) -> tuple[str, str]:
    """Where a function stands, and its text."""
    file = Path(inspect.getsourcefile(function) or "").relative_to(ROOT)
    lines, first = inspect.getsourcelines(function)
    return f"{file}, line {first}", textwrap.dedent("".join(lines))


def next_step(name: str, sentence: str) -> None:
    """A link to the page ``name`` that carries the view, after a sentence on why to go there."""
    with st.container(key=f"next-{Path(PAGES[name]).stem}"):
        st.markdown(sentence)
        st.page_link(PAGES[name], label=f"Next: {name}", query_params=_view.get().to_query())
