"""Which view of the Training page is open, and of which run: both in the URL."""

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from ui import resources
from ui.words import to_the_letter
from vit import jobs
from vit.runs import RunError

# What the URL says, and what the page does.
VIEWS = {"model": "This model", "watch": "Watch", "new": "New run", "runs": "All runs"}


def view() -> str:
    """The view that the URL asks for, a key of VIEWS; on a public demo there is only the first."""
    asked = st.query_params.get("show", "model")
    return asked if asked in VIEWS and not jobs.training_is_off() else "model"


def choose_view() -> str:
    """Let the visitor choose a view; returns its key. In the first one a line leads on: to the run
    that trains, or to a first one."""
    opened = view()
    if jobs.training_is_off():
        return opened
    st.session_state["training-view"] = opened
    st.segmented_control(
        "What to show",
        list(VIEWS),
        format_func=VIEWS.__getitem__,
        key="training-view",
        required=True,
        on_change=lambda: go(st.session_state["training-view"]),
        label_visibility="collapsed",
    )
    if opened == "model":
        with st.container(horizontal=True, key="training-now", vertical_alignment="center"):
            _lead_on()
    return opened


def _lead_on() -> None:
    path = job()
    if path is None:
        st.markdown("Train one yourself and watch it learn: handwritten digits take a minute.")
        st.button("Train one", key="train-one", on_click=going("watch"))
        return
    latest = jobs.look(path)
    if latest.state in ("running", "queued"):
        said = "trains now" if latest.state == "running" else "waits for its turn"
        st.markdown(f"Your run **{to_the_letter(latest.name)}** {said}.")
        st.button("Watch it", key="watch-it", on_click=going("watch", path))


def job() -> Path | None:
    """The directory of the run that the URL names, or the one that was touched last; None if there
    is no run in the runs directory."""
    runs_dir = resources.runs_dir()
    try:
        return jobs.find(runs_dir, st.query_params.get("job", ""))
    except RunError:
        found = jobs.list_jobs(runs_dir)
    if not found:
        return None
    busy = [each for each in found if each.state in ("running", "queued")]
    return (busy or sorted(found, key=_touched))[0].path


def _touched(each: jobs.Job) -> float:
    """Sorts what changed last first."""
    return -max((file.stat().st_mtime for file in each.path.glob("*.json")), default=0.0)


def go(view: str, path: Path | None = None) -> None:
    """Open a view (a key of VIEWS), of a run. Call it from a widget's callback."""
    st.query_params["show"] = view
    if path is not None:
        st.query_params["job"] = path.name


def going(view: str, path: Path | None = None) -> Callable[[], None]:
    """:func:`go` as a callback."""
    return lambda: go(view, path)
