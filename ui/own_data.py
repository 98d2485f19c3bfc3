"""Choosing one's own pictures: a folder or zip on this machine, or a zip that is sent."""

import time
from typing import Any

import streamlit as st

from ui.words import to_the_letter
from vit import own_data
from vit.data import DataError
from vit.own_data import Found

AT_ONCE = 3_000  # so many pictures are read while the visitor waits, without being asked to
NAMED = 8  # so many classes, or pictures that cannot be read, are named
_PATH, _ZIP, _KEPT = "own-path", "own-zip", "own-kept"
_ASKED, _FOUND, _PROBLEM, _STAMP = "_own-asked", "_own-found", "_own-problem", "_own-stamp"


def choose() -> Found | None:
    """Let the visitor choose, and say what they chose; None while that is nothing usable."""
    st.text_input(
        "The path of a folder, or of a zip, on this machine",
        key=_PATH,
        placeholder="~/pictures/pets",
        on_change=_ask,
        args=(_PATH,),
        persist_state="session",
    )
    st.file_uploader(
        "Or send a zip of at most 20 MB", "zip", key=_ZIP, on_change=_ask, args=(_ZIP,)
    )
    if kept := own_data.kept():
        st.selectbox(
            "Or take one that was sent before",
            kept,
            index=None,
            format_func=lambda path: own_data.title(str(path)),
            placeholder="Choose a zip",
            key=_KEPT,
            on_change=_ask,
            args=(_KEPT,),
        )
    st.caption(
        "One folder of pictures for each class, named after it; or train/ and test/ with such "
        "folders inside. Without test/, a fifth of each class is kept to test with. Everything is "
        "only read."
    )
    if _ASKED in st.session_state:
        _answer(st.session_state.pop(_ASKED))
    if problem := st.session_state.get(_PROBLEM):
        st.warning(to_the_letter(problem))
    found = st.session_state.get(_FOUND)
    if found is not None:
        _describe(found)
    return st.session_state.get(_FOUND)


def stamp() -> int:
    """Changes whenever the visitor's pictures are looked at anew."""
    return st.session_state.get(_STAMP, 0)


def take(dataset: str) -> None:
    """Choose what a recipe names as its ``dataset``. Call it from a widget's callback."""
    st.session_state[_ASKED] = dataset


def _ask(key: str) -> None:
    """Note what a widget asks for, and empty the others that can be emptied."""
    value = st.session_state[key]
    if key != _PATH:
        st.session_state[_PATH] = ""
    if key != _KEPT:
        st.session_state[_KEPT] = None
    st.session_state[_ASKED] = value


def _answer(asked: Any) -> None:
    """Look at the path, or the zip, that was asked for; whatever came of it is remembered."""
    st.session_state[_FOUND] = st.session_state[_PROBLEM] = None
    st.session_state[_STAMP] = time.time_ns()
    if not asked:  # taken back
        return
    with st.spinner("Looking at the pictures"):
        try:
            if hasattr(asked, "getvalue"):
                path = own_data.keep(asked.getvalue(), asked.name)
            else:
                path = own_data.find(str(asked))
            found = own_data.look(path)
            few = sum(found.training) + found.testing <= AT_ONCE
            st.session_state[_FOUND] = own_data.read(found) if few else found
        except DataError as error:
            st.session_state[_PROBLEM] = str(error)


def _describe(found: Found) -> None:
    """How many classes and pictures there are, and how many could not be read."""
    names = ", ".join(map(to_the_letter, found.class_names[:NAMED]))
    more = f" and {len(found.class_names) - NAMED:,} more" * (len(found.class_names) > NAMED)
    count = f"{sum(found.training):,} pictures to train on and {found.testing:,} to test with"
    st.markdown(
        f"**{to_the_letter(found.title)}** has {len(found.class_names):,} classes ({names}{more}), "
        f"{count}. {_unread(found)}"
    )
    if found.skipped:
        others = len(found.skipped) - NAMED
        listed = [*found.skipped[:NAMED], *([f"… and {others:,} more."] if others > 0 else [])]
        st.caption("  \n".join(map(to_the_letter, listed)))
    if found.skipped is None and st.button("Read them now", key="own-read"):
        bar = st.progress(0.0, "Reading the pictures")

        def show(done: int, total: int) -> None:
            bar.progress(done / total, f"Reading the pictures: {done:,} of {total:,}")

        try:
            st.session_state[_FOUND] = own_data.read(found, reading=show)
        except DataError as error:
            st.session_state[_FOUND], st.session_state[_PROBLEM] = None, str(error)
        st.rerun()


def _unread(found: Found) -> str:
    if found.skipped is None:
        return (
            "They have not been opened yet: the run does that first, and leaves out what cannot "
            "be read."
        )
    if not found.skipped:
        return "All of them could be read."
    return f"{len(found.skipped):,} more could not be read and are left out:"
