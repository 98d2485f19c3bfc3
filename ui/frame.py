"""What stands around every page: the row of links, the sidebar, and what each page ends with."""

import inspect
import logging
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from figures.theme import DARK, LIGHT, Palette
from ui import sidebar, state
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

_log = logging.getLogger(__name__)


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
    st.set_page_config(page_title=f"{name} · Sixty-five tokens", layout="wide")
    view = state.read()
    with st.container(horizontal=True, key="pipeline"):
        for label, file in PAGES.items():
            st.page_link(file, label=label, query_params=view.to_query(), disabled=label == name)
    st.title(question)
    view, walk = sidebar.show(view)
    with calm():
        yield Visit(view, walk)


@contextmanager
def calm() -> Iterator[None]:
    """Say one sentence if something inside goes wrong, and keep the rest of the page."""
    try:
        yield
    except Exception:
        _log.exception("A part of a page failed")
        st.error(
            "Something went wrong while this part was drawn. Reload the page, or choose another "
            "picture or model in the sidebar."
        )


def palette() -> Palette:
    """The colours of the visitor's appearance, light or dark."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def shared_board(visit: Visit, *, key: str = "board", **arguments: Any) -> BoardChoice:
    """The board tied to the visit: a choice on it goes to the URL and so to the whole page.

    The picture, the grid, the token, and, where there are maps for every layer and head, the layer
    and head come from the visit; ``arguments`` are those of :func:`ui.board.board` and override
    them. Layer and head are followed only if ``maps`` has as many as the model, or is left out
    with ``layer`` and ``head`` in mind; a single map (a similarity, say) leaves them alone. With
    ``has_cls=False`` the board's token 0 is the first patch, which the URL counts as 1.
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
    with st.container(key="aside"):
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

    view = state.read()
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
            file = Path(inspect.getsourcefile(function) or "").relative_to(ROOT)
            lines, first = inspect.getsourcelines(function)
            st.caption(f"{file}, line {first}")
            st.code(textwrap.dedent("".join(lines)), language="python")


def next_step(name: str, sentence: str) -> None:
    """A link to the page ``name`` that carries the view, after a sentence on why to go there."""
    with st.container(key="next"):
        st.markdown(sentence)
        st.page_link(PAGES[name], label=f"Next: {name}", query_params=state.read().to_query())
