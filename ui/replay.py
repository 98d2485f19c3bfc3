"""The model's epoch: a slider over the snapshots of a run, and a button that plays through them.

Play goes on from where the page came to rest: a fragment at the page's very end waits, then puts
the next epoch into the URL and has the page drawn again. So it never outruns the page, and every
visitor has their own. What was on show when play drew it last is remembered in the session: as
soon as anything else is (another picture, model, epoch or page), play has ended.

Until the browser has drawn a step, all that it sends still names the epoch before, as if the
visitor had moved the slider back. Such an echo moves nothing.
"""

import math
import time
from dataclasses import replace
from pathlib import Path

import streamlit as st

from ui import state
from ui.state import View
from vit.runs import list_epochs

KEPT = "kept"
PACE = 1.2  # seconds from a page at rest to the next snapshot
ECHOES = 0.5  # seconds from a page at rest until the browser surely has the slider as it was drawn
_SLIDER = "view-epoch"
_PLAYING = "_playing"
_DRAWN = "_epoch-drawn"  # where the slider was last drawn, or moved to by the visitor
_REPLACED = "_epochs-replaced"  # where it stood before that, each with the time it echoes until


def choose_epoch(page: str, view: View, path: Path) -> None:
    """A slider over the snapshots of the run in ``path`` and its kept weights, and buttons to step
    and to play through them; nothing if there are no snapshots."""
    epochs = list_epochs(path)
    if not epochs:
        return
    stops = [*epochs, None]
    at = stops.index(view.epoch) if view.epoch in stops else len(epochs)
    _move_slider(KEPT if stops[at] is None else stops[at])
    st.select_slider(
        "Epoch",
        [*epochs, KEPT],
        format_func=lambda epoch: epoch if epoch == KEPT else f"{epoch}",
        key=_SLIDER,
        on_change=_slider_moved,
        help="The model as it was after that epoch of training; 0 is untrained. Kept: the "
        "weights that training chose in the end.",
    )

    def play() -> None:
        epoch = epochs[0] if stops[at] is None else stops[at]
        state.update(epoch=epoch)
        st.session_state[_PLAYING] = _on_show(page, replace(view, epoch=epoch))

    def pause() -> None:
        st.session_state.pop(_PLAYING, None)

    playing = _is_playing(page, view)
    with st.container(horizontal=True, gap="small", key="replay"):
        _step("Earlier", stops[at - 1], disabled=at == 0)
        st.button(
            "Pause epochs" if playing else "Play epochs",
            key="play",
            on_click=pause if playing else play,
            width="stretch",
        )
        _step("Later", stops[min(at + 1, len(epochs))], disabled=at == len(epochs))


def _move_slider(to: int | str) -> None:
    before = st.session_state.get(_DRAWN, to)
    if before != to:
        st.session_state.setdefault(_REPLACED, {})[before] = math.inf
    st.session_state[_DRAWN] = st.session_state[_SLIDER] = to


def _slider_moved() -> None:
    chosen = st.session_state[_SLIDER]
    if time.monotonic() < st.session_state.get(_REPLACED, {}).get(chosen, 0):
        return
    st.session_state[_DRAWN] = chosen
    state.update(epoch=None if chosen == KEPT else chosen)


def _step(label: str, epoch: int | None, disabled: bool) -> None:
    def step() -> None:
        state.update(epoch=epoch)

    st.button(label, key=f"step-{label}", on_click=step, disabled=disabled, width="stretch")


def _on_show(page: str, view: View) -> tuple[object, ...]:
    return page, view.img, view.framing, view.run, view.epoch


def _is_playing(page: str, view: View) -> bool:
    """Whether play goes on here; it has ended where something else is on show than it drew."""
    if st.session_state.get(_PLAYING) == _on_show(page, view):
        return True
    st.session_state.pop(_PLAYING, None)
    return False


def go_on(page: str, view: View, path: Path) -> None:
    """While play is on, wait, then show the next snapshot. To be called last on a page, so that
    the wait begins when all of it is drawn."""
    drawn, now = False, time.monotonic()
    st.session_state[_REPLACED] = {
        epoch: min(until, now + ECHOES)
        for epoch, until in st.session_state.get(_REPLACED, {}).items()
        if now < until
    }

    # Without play it is there as well, though idle, so that the page's end stays where it is.
    @st.fragment(run_every=PACE if _is_playing(page, view) else None)
    def wait() -> None:
        nonlocal drawn
        if drawn and _is_playing(page, view):
            epoch = next((e for e in list_epochs(path) if e > view.epoch), None)
            state.update(epoch=epoch)
            st.session_state[_PLAYING] = _on_show(page, replace(view, epoch=epoch))
            if epoch is None:
                del st.session_state[_PLAYING]
            st.rerun()
        drawn = True

    wait()
