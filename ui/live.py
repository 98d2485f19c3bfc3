"""One run of the visitor's own, watched: its state, and its curves as they grow."""

from collections.abc import Callable
from dataclasses import replace
from html import escape
from math import log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import streamlit as st

from figures.curves import curves
from ui import frame, heldout, learning, new_run, resources, state, workshop
from ui.amounts import in_time
from ui.live_chart import Chart, Line, live_chart
from ui.opened import QUIET
from ui.pictures import ROOT
from ui.words import to_the_letter
from vit import jobs, runs
from vit.jobs import Job
from vit.progress import happening
from vit.recipes import RECIPES
from vit.runs import RunError
from vit.settings import Recipe

TICK, SLOW_TICK = 1.0, 3.0  # seconds between looks at a run that trains, and at one that waits
MEASURED = 20  # lines of the live record that the speed is taken from
KEY = "live-chart"
STATES = {
    "queued": "Waits for its turn",
    "running": "Training",
    "paused": "Paused",
    "interrupted": "Interrupted",
    "failed": "Failed",
    "finished": "Finished",
}
_PROBLEM, _LEFT = "_live-problem", "_live-left"
_STYLE = """
.run { font-variant-numeric: tabular-nums; }
.run-name { max-width: none !important; display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 0.9rem; margin: 0 0 0.45rem !important; min-height: 1.9rem; }
.run-name b { font-size: 1.25rem; font-weight: 650; overflow-wrap: anywhere; }
.run-name .tag { border: 1px solid var(--line); border-radius: 3px; padding: 0 0.4rem; font-size: 0.8rem; color: var(--muted); overflow-wrap: anywhere; }
.run-state { margin-left: auto; color: var(--muted); }
.run-state[data-state="running"] { color: var(--query); font-weight: 600; }
.run-state:is([data-state="failed"], [data-state="interrupted"]) { color: var(--wrong); font-weight: 600; }
.run-bar { height: 6px; border-radius: 3px; background: var(--line); overflow: hidden; }
.run-bar i { display: block; height: 100%; background: var(--query); transition: width 0.4s; }
.run-bar.other i { background: var(--muted); }
.run-numbers { display: grid; grid-template-columns: repeat(6, minmax(0, 1fr)); gap: 0.2rem 1rem; margin: 0.7rem 0 0 !important; padding: 0 !important; }
.run-numbers dt { color: var(--muted); font-size: 0.82rem; font-weight: 400; }
.run-numbers dd { margin: 0; white-space: nowrap; }
.run-numbers small { color: var(--muted); font-size: 0.85em; }
.run-happening { min-height: 4.9em; max-width: 78ch; margin: 0 !important; }
.st-key-live-actions { align-items: center; min-height: 2.6rem; row-gap: 0.5rem; }
.st-key-live-actions > * { width: auto !important; flex: none; }
.st-key-live-actions [data-testid="stMarkdown"] { flex: 1 1 16rem; color: var(--muted); }
.st-key-live-actions [data-testid="stPageLink-NavLink"] { width: auto; }
.st-key-live-actions [data-testid="stPageLink-NavLink"] p { color: var(--query); }
@media (max-width: 760px) { .run-numbers { grid-template-columns: repeat(2, minmax(0, 1fr)); } .run-state { margin-left: 0; flex-basis: 100%; } .run-happening { min-height: 9.7em; } .st-key-live-actions { min-height: 7rem; align-content: start; } }
"""  # noqa: E501


class Watched(NamedTuple):
    """What the files of a run say at one moment. ``recipe`` is None where its settings cannot be
    read, ``rows`` is empty where its epochs cannot."""

    job: Job
    recipe: Recipe | None
    steps: dict[str, np.ndarray]
    rows: learning.Rows

    @property
    def done(self) -> int:
        """Training steps done: the live record is written more often than the state."""
        recorded = self.steps["step"]
        if self.job.state != "running" or not len(recorded):
            return self.job.step
        return max(self.job.step, int(recorded[-1]))


def show(path: Path | None) -> None:
    """The view: the run in ``path``, or with None what will happen once there is one."""
    st.html(f"<style>{_STYLE}</style>")
    if path is None:
        _teach()
        return
    pace = _pace(path)

    @st.fragment(run_every=pace)
    def watch() -> None:
        with frame.calm():
            _watch(path)
        if _pace(path) != pace or st.session_state.pop(_LEFT, False):
            st.rerun()

    watch()


def _pace(path: Path) -> float | None:
    """Seconds to the next look at a run; None for one in which nothing moves."""
    try:
        job = jobs.look(path)
    except RunError:
        return None
    return {"running": TICK, "queued": SLOW_TICK}.get(job.state)


def look(path: Path) -> Watched:
    """Read all that is shown of a run.

    Raises:
        RunError: if there is no such run (any more).
    """
    job = jobs.look(path)
    recipe: Recipe | None = None
    rows: learning.Rows = []
    try:
        recipe, _ = jobs.settings(path)
        rows = runs.read_metrics(path)
    except RunError:
        pass  # the rest of the run is shown
    return Watched(job, recipe, runs.read_steps(path, at_most=10**9), rows)


def _watch(path: Path) -> None:
    try:
        jobs.keep_going(path.parent)
        watched = look(path)
    except RunError as error:
        st.warning(to_the_letter(str(error)))
        return
    st.html(_headline(watched))
    _actions(watched)
    title = {"running": "What is happening.", "finished": "What happened."}
    words = escape(happening_words(watched))
    st.html(
        f'<p class="run-happening"><b>{title.get(watched.job.state, "So far.")}</b> {words}</p>'
    )
    _curves(watched)
    _outcome(watched)


# ---- how far it is ------------------------------------------------------------------------------


def _headline(watched: Watched) -> str:
    """Name, state and numbers, always of the same height."""
    job, task = watched.job, watched.job.task
    said = STATES[job.state]
    if job.state == "finished" and job.step < job.total:
        said = "Stopped early"
    share = watched.done / job.total if job.total else 0.0
    if task:
        share = min(task.done / task.total, 1.0) if task.total else 0.0
        said = f"{task.what}{_how_far(task)}"
    tags = "".join(f'<span class="tag">{escape(tag)}</span>' for tag in job.tags)
    numbers = "".join(
        f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in _numbers(watched).items()
    )
    return (
        f'<div class="run"><p class="run-name"><b>{escape(job.name)}</b>{tags}'
        f'<span class="run-state" data-state="{job.state}">{escape(said)}</span></p>'
        f'<div class="run-bar{" other" if task else ""}" role="progressbar" '
        f'aria-label="{escape(said)}" aria-valuemin="0" aria-valuemax="100" '
        f'aria-valuenow="{100 * share:.0f}"><i style="width: {100 * share:.1f}%"></i></div>'
        f'<dl class="run-numbers">{numbers}</dl></div>'
    )


def _how_far(task: jobs.Task) -> str:
    """``: 81 of 170 MB`` for bytes that are fetched, ``: 1,200 of 50,000`` for pictures."""
    if not task.total:
        return ""
    if task.what.startswith("Fetching"):
        return f": {task.done / 1e6:.0f} of {task.total / 1e6:.0f} MB"
    return f": {task.done:,} of {task.total:,}"


def _numbers(watched: Watched) -> dict[str, str]:
    job, steps = watched.job, watched.steps
    dash = "–"

    def of(done: str, total: str) -> str:
        return f"{done} <small>of {total}</small>"

    per_epoch = steps_per_epoch(watched)
    epochs = f"{watched.done / per_epoch:.1f}" if per_epoch else dash
    measured = bool(len(steps["step"]))
    return {
        "step": of(f"{watched.done:,}", f"{job.total:,}") if job.total else dash,
        "epoch": of(epochs, f"{watched.recipe.epochs:,}") if watched.recipe and per_epoch else dash,
        "time left": time_left(watched),
        "pictures a second": f"{speed(steps):,.0f}" if measured else dash,
        "gradient norm": f"{steps['grad_norm'][-1]:.3g}" if measured else dash,
        "learning rate": _rate(steps["learning_rate"][-1]) if measured else dash,
    }


def _rate(value: float) -> str:
    return f"{value:.2e}".replace("e-0", "e−") if 0 < value < 1e-3 else f"{value:.3g}"


def steps_per_epoch(watched: Watched) -> float:
    """How many training steps make an epoch; 0 while that is not known."""
    return watched.job.total / watched.recipe.epochs if watched.recipe else 0.0


def speed(steps: dict[str, np.ndarray]) -> float:
    """Training pictures a second of late: the median of the last lines, so that a line in which the
    machine did something else does not count."""
    return float(np.median(steps["images_per_second"][-MEASURED:]))


def time_left(watched: Watched) -> str:
    """How long the steps that are left take at the measured speed, in words."""
    job, recipe = watched.job, watched.recipe
    if job.state not in ("running", "queued") or not recipe:
        return "–"
    if not len(watched.steps["step"]) or not job.total:
        return "not measured yet"
    pictures = (job.total - watched.done) * recipe.batch_size
    return in_time(pictures / speed(watched.steps))


# ---- what can be done ---------------------------------------------------------------------------


def _actions(watched: Watched) -> None:
    """The buttons that its state allows, and what it has to say."""
    job = watched.job
    with st.container(horizontal=True, key="live-actions"):
        for label, action, primary in _possible(job):
            st.button(
                label,
                key=f"live-{label}",
                type="primary" if primary else "secondary",
                on_click=_do,
                args=(action, job.path),
            )
        if runs.is_run(job.path):
            done = job.state == "finished"
            st.button(
                "Open this model" if done else "Open it as it is now",
                key="live-open",
                type="primary" if done else "secondary",
                on_click=_open,
                args=(job.path,),
            )
            view = replace(state.read(), run=f"runs/{job.path.name}", epoch=None)
            st.page_link(
                frame.PAGES["Attention"], label="Its attention", query_params=view.to_query()
            )
        if watched.recipe and job.state in ("failed", "finished"):
            st.button(
                "Same again, changed",
                key="live-again",
                on_click=_change,
                args=(job, watched.recipe),
            )
        if said := _message(job):
            st.markdown(to_the_letter(said))
    problem = st.session_state.get(_PROBLEM, ("", ""))
    if problem[0] == job.path.name:
        st.warning(to_the_letter(problem[1]))


def _possible(job: Job) -> list[tuple[str, Callable[[Path], None], bool]]:
    """Labels, what they do, and whether it is the likeliest wish; by the table in vit/jobs.py."""
    keep = ("Stop and keep", jobs.stop, False)
    if job.state == "running":
        pause = ("Pause", jobs.pause, False)
        if not job.wish:
            return [pause, keep]
        return [("Train on", jobs.resume, False), keep if job.wish == "pause" else pause]
    if job.state == "finished":
        return [("Resume", jobs.resume, False)] if job.step < job.total else []
    first = ("Resume", jobs.resume, job.state != "failed")
    if job.state == "queued":
        first = ("Pause", jobs.pause, False)
    return [first, *([keep] if (job.path / runs.RESUME).exists() else [])]


def _do(action: Callable[[Path], None], path: Path) -> None:
    st.session_state.pop(_PROBLEM, None)
    try:
        action(path)
    except RunError as error:
        st.session_state[_PROBLEM] = (path.name, str(error))


def _open(path: Path) -> None:
    state.update(run=f"runs/{path.name}", epoch=None)
    _go("model")


def _change(job: Job, recipe: Recipe) -> None:
    _, seed = jobs.settings(job.path)
    new_run.prefill(recipe, seed, job.name)
    _go("new")


def _go(view: str) -> None:
    """Leave for another view: the whole page is drawn again, not the watched part alone."""
    workshop.go(view)
    st.session_state[_LEFT] = True


def _message(job: Job) -> str:
    if job.message or job.state != "queued":
        return job.message
    others = jobs.list_jobs(job.path.parent)
    ahead = [other.name for other in others if other.state == "queued" and other.order < job.order]
    ahead = [other.name for other in others if other.state == "running"] + ahead
    if not ahead:
        return "It starts in a moment."
    rest = f" and {len(ahead) - 1} more" if len(ahead) > 1 else ""
    return f"One run trains at a time. Before it: {ahead[0]}{rest}."


# ---- what is happening --------------------------------------------------------------------------


def happening_words(watched: Watched) -> str:
    """What the curves say so far, in a sentence or two."""
    job, recipe = watched.job, watched.recipe
    if recipe is None:
        return "Its settings cannot be read, so what its curves mean cannot be told."
    return happening(
        watched.steps,
        learning.column(watched.rows, "epoch"),
        learning.column(watched.rows, "train_accuracy"),
        learning.column(watched.rows, "val_accuracy"),
        classes=recipe.model.num_classes,
        warmup=recipe.warmup_epochs,
        ended=job.state in ("finished", "failed"),
        failed=job.state == "failed",
    )


# ---- curves -------------------------------------------------------------------------------------


def _curves(watched: Watched) -> None:
    job, recipe = watched.job, watched.recipe
    per_epoch = steps_per_epoch(watched)
    marks = learning.turning_points(recipe.to_dict()) if recipe else {}
    live_chart(
        charts(watched),
        key=KEY,
        run=job.path.name,
        total=job.step if job.state == "finished" else job.total,
        steps_per_epoch=per_epoch or 1.0,
        marks={share * job.total: text for share, text in marks.items()},
        note="The faint line is what was measured; the strong one smooths it by an exponential "
        "moving average, as in TensorBoard: s ← w·s + (1 − w)·x from s = 0, shown as "
        "s ÷ (1 − wⁿ) after n points; w is the slider. All points of a run are too many to send: "
        "neighbours are averaged, fewer of them the closer you zoom.",
    )
    if recipe and (said := learning.jumps(recipe.to_dict())):
        st.markdown(said)


def charts(watched: Watched) -> list[Chart]:
    """Loss and accuracy of every split, and what goes with them."""
    steps, rows, recipe = watched.steps, watched.rows, watched.recipe
    classes = recipe.model.num_classes if recipe else 0
    guess = (log(classes), f"guessing: ln {classes} = {log(classes):.3f}") if classes else None
    share = (100 / classes, f"guessing: 1 of {classes}") if classes else None

    def along(column: str, factor: float = 1.0, smooth: bool = True) -> Line:
        return Line("", steps["step"], factor * steps[column], 2, smooth=smooth)

    small: dict[str, Any] = {"small": True}
    return [
        Chart(
            "Loss",
            "cross-entropy, nats",
            _splits(steps, rows, "loss", 1.0),
            decimals=3,
            log=True,
            level=guess,
        ),
        Chart(
            "Accuracy",
            "% whose own label came first",
            _splits(steps, rows, "accuracy", 100.0),
            decimals=1,
            sign=" %",
            top=100.0,
            level=share,
        ),
        Chart(
            "Learning rate",
            "",
            [along("learning_rate", smooth=False)],
            digits=3,
            log=True,
            **small,
        ),
        Chart("Gradient norm", "", [along("grad_norm")], digits=3, **small),
        Chart("Pictures a second", "", [along("images_per_second")], **small),
    ]


def _splits(
    steps: dict[str, np.ndarray], rows: learning.Rows, what: str, factor: float
) -> list[Line]:
    """The lines of ``what`` (loss or accuracy): training within epochs, the others after them."""
    ends = learning.column(rows, "step")
    lines = []
    for name, split, colour in learning.SPLITS:
        if split == "train" and len(steps["step"]):
            lines.append(Line(name, steps["step"], factor * steps[what], colour))
            continue
        values = factor * learning.column(rows, f"{split}_{what}")
        seen = np.isfinite(values)
        if seen.any():
            lines.append(Line(name, ends[seen], values[seen], colour, dots=True))
    return lines


# ---- the end ------------------------------------------------------------------------------------


def _outcome(watched: Watched) -> None:
    """What the kept weights reached, once the run has ended."""
    path = watched.job.path
    if watched.job.state != "finished" or not runs.is_run(path):
        return
    try:
        kept = heldout.kept_epoch(path)
    except RunError as error:
        st.warning(to_the_letter(str(error)))
        return
    row = next((row for row in watched.rows if row["epoch"] == kept), None)
    if row is None:
        return
    text = f"The weights of epoch {kept} are kept. They name **{100 * row['val_accuracy']:.2f} %** "
    text += "of the validation pictures rightly"
    if row["test_accuracy"] is not None:
        text += f", and **{100 * row['test_accuracy']:.2f} %** of the test pictures"
    st.markdown(f"{text}. **Open this model** shows it on every page.")


# ---- before the first run -----------------------------------------------------------------------


def _teach() -> None:
    """What will happen when a run trains, what to look for, and one to start with."""
    recipe = RECIPES["digits"]()
    left, right = st.columns([10, 9], gap="large")
    with left:
        st.markdown(
            "#### Nothing has been trained here yet\n"
            "A run is a process of its own, beside the app. Close the browser, come back: it is "
            "still there. What you will see:\n\n"
            "1. **It starts by guessing.** Random weights give each of ten classes about a tenth, "
            "so the loss begins at ln 10 ≈ 2.303 and the accuracy at 10 %.\n"
            "2. **The curves move.** The loss falls, steeply at first. If it stays at 2.303, "
            "something is wrong, most often the learning rate.\n"
            "3. **They part, or not.** While training and validation move together there is more "
            "to learn. If training pulls away, the model learns its pictures by heart.\n"
            "4. **It ends with an exam.** The weights that did best on validation are tried once "
            "on pictures that neither taught nor chose them. Then the model can be opened on every "
            "page, as it was after each epoch that was kept."
        )
        with st.container(horizontal=True, key="live-actions"):
            st.button("Train the digits model", type="primary", key="live-first", on_click=_first)
            st.button("Choose what to train", key="live-new", on_click=workshop.going("new"))
        st.caption(
            f"1,797 handwritten digits of 8 × 8 pixels, {recipe.epochs} epochs: about a minute "
            f"on a machine that does nothing else."
        )
        if said := st.session_state.pop(_PROBLEM, None):
            st.warning(to_the_letter(said[1]))
    with right:
        _example()


def _first() -> None:
    try:
        workshop.go("watch", jobs.start(resources.runs_dir(), RECIPES["digits"]()))
    except RunError as error:
        st.session_state[_PROBLEM] = ("", str(error))


def _example() -> None:
    """The shipped digits model's own loss, as what to expect."""
    path = ROOT / "checkpoints" / "digits"
    try:
        rows = runs.read_metrics(path)
    except RunError:
        return
    if not rows:
        return
    st.markdown("**So it went for the digits model that comes with the app**")
    figure = curves(
        learning.measured(rows, "loss", 1),
        "cross-entropy, nats",
        frame.palette(),
        marks={},
        decimals=3,
        height=320,
    )
    st.plotly_chart(figure, key="live-example", config=QUIET)
