"""All runs: what trains, what waits and what is done; chosen, compared, taken along, brought in."""

import io
import re
import shlex
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import plotly.io
import plotly.offline
import streamlit as st

from figures.curves import curves
from figures.theme import LIGHT
from ui import compare, frame, learning, new_run, pictures, resources, state, workshop
from ui.amounts import in_bytes
from ui.compare import duration
from ui.run_facts import Facts, facts
from ui.run_table import TableRow, Tone, new_choice, new_comparison, run_table
from ui.words import to_the_letter
from vit import bundle, jobs, own_data, runs, tensorboard
from vit.jobs import Job
from vit.runs import RunError

SHIPPED = "checkpoints"
REFRESH = 2.0  # seconds between looks while something trains or waits
COLUMNS = ("Validation", "Test", "Parameters", "Epochs", "Seed", "Data")
# In the session: why an action could not be done, which question is open about one, and whether
# the whole page has to follow what was done in the list.
_SAID, _OPEN, _WHOLE = "_runs-said", "_runs-open", "_runs-whole"
_STYLE = """
.st-key-run-chosen { gap: 0.4rem; margin-bottom: 1rem; }
.st-key-run-chosen h3 { padding-top: 0.4rem; overflow-wrap: anywhere; }
.st-key-run-actions { gap: 0.5rem; }
.st-key-run-actions button { white-space: nowrap; }
:is(.st-key-run-label, .st-key-run-delete) { margin-top: 0.6rem; }
.st-key-run-import [data-testid="stFileUploaderDropzone"] { flex-direction: row; align-items: center; gap: 0.7rem; min-height: 0; padding: 0.35rem; border-style: dashed; }
.st-key-run-import [data-testid="stFileUploaderDropzone"]::after { content: "or drop a zip here"; }
"""  # noqa: E501


@dataclass(frozen=True)
class Listed:
    """A run in the list; ``id`` is how the URL names it, a folder of the runs directory or
    ``checkpoints/…`` for what came with the app."""

    id: str
    job: Job
    facts: Facts | None

    @property
    def shipped(self) -> bool:
        return self.id.startswith(f"{SHIPPED}/")

    @property
    def model(self) -> str:
        """Its name where models are chosen."""
        return self.job.path.name if self.shipped else f"runs/{self.job.path.name}"


def show() -> None:
    """The view: the list, what can be done with the run chosen in it, and runs side by side."""
    st.html(f"<style>{_STYLE}</style>")
    found = listed()
    moving = _moves(found)
    st.fragment(_list, run_every=REFRESH if moving else None)(moving)
    with frame.calm():
        _compare(found)
    _import()
    _in_tensorboard()


def listed() -> list[Listed]:
    """The visitor's runs, the one that trains first, then those that wait; then shipped ones."""
    own = [(job.path.name, job) for job in jobs.list_jobs(resources.runs_dir())]
    shipped = [
        (f"{SHIPPED}/{path.name}", jobs.look(path))
        for path in sorted((pictures.ROOT / SHIPPED).glob("*"))
        if runs.is_run(path)
    ]
    return [Listed(name, job, facts(job.path)) for name, job in (*own, *shipped)]


def _moves(found: Sequence[Listed]) -> bool:
    return any(each.job.state in ("running", "queued") for each in found)


# ---- the list ------------------------------------------------------------------------------------


def _list(moving: bool) -> None:
    """The part that follows the runs by itself, as long as one moves."""
    if st.session_state.pop(_WHOLE, False):
        st.rerun()
    with frame.calm():
        try:
            jobs.keep_going(resources.runs_dir())
        except RunError as error:
            st.warning(to_the_letter(str(error)))
        found = listed()
        if _moves(found) != moving:
            st.rerun()
        if all(each.shipped for each in found):
            st.markdown(
                "You have not trained anything yet. What you train appears here, beside the models "
                "that came with the app; each can be opened, compared and trained again."
            )
            st.button("Train one", type="primary", on_click=_acting(workshop.going("new")))
        shown = _with_tag(found)
        chosen = _chosen(shown)
        run_table(
            [_table_row(each, found) for each in shown],
            COLUMNS,
            key="runs",
            chosen=chosen.id,
            compared=[each.id for each in compared(found)],
            most=compare.MOST,
            on_choose=lambda: _choose(found),
            on_compare=lambda: _set_compared(found),
        )
        with st.container(key="run-chosen"):
            _about(chosen, found)


def _with_tag(found: Sequence[Listed]) -> Sequence[Listed]:
    """The runs with the tag that the visitor filters by, if there are tags at all."""
    tags = sorted({tag for each in found for tag in each.job.tags})
    if not tags:
        return found
    tag = st.pills(
        "Only runs with the tag",
        tags,
        key="runs-tag",
        format_func=to_the_letter,
        label_visibility="collapsed",
    )
    return [each for each in found if tag in each.job.tags] if tag in tags else found


def _chosen(shown: Sequence[Listed]) -> Listed:
    asked = st.query_params.get("job", "")
    return next((each for each in shown if each.id == asked), shown[0])


def _choose(found: Sequence[Listed]) -> None:
    if (asked := new_choice("runs")) in {each.id for each in found}:
        st.query_params["job"] = asked
        for key in (_SAID, _OPEN):
            st.session_state.pop(key, None)


def compared(found: Sequence[Listed]) -> list[Listed]:
    """The runs that the URL wants side by side, in its order."""
    by_id = {each.id: each for each in found if each.facts}
    asked = dict.fromkeys(st.query_params.get_all("compare"))
    return [by_id[each] for each in asked if each in by_id][: compare.MOST]


def _set_compared(found: Sequence[Listed]) -> None:
    known = {each.id for each in found}
    st.query_params["compare"] = [each for each in new_comparison("runs") if each in known]
    st.session_state[_WHOLE] = True


def _table_row(each: Listed, found: Sequence[Listed]) -> TableRow:
    job, known = each.job, each.facts
    words, tone = state_words(job, [other.job for other in found])
    unfinished = job.total and not (job.state == "finished" and job.step >= job.total)
    return TableRow(
        each.id,
        job.name,
        job.tags,
        words,
        tone,
        job.step / job.total if unfinished else None,
        _numbers(known) if known else ["–"] * len(COLUMNS),
        each.shipped,
    )


def _numbers(known: Facts) -> list[str]:
    def percent(share: float | None) -> str:
        return "–" if share is None else f"{100 * share:.1f} %"

    return [
        percent(known.validation),
        percent(known.test),
        f"{known.parameters:,}",
        f"{known.recipe.epochs:,}",
        f"{known.seed}",
        data_name(known.recipe.dataset),
    ]


def data_name(dataset: str) -> str:
    """What a data set is called; of a folder, its last part."""
    names = {"cifar10": "CIFAR-10", "digits": "digits", "random_pixels": "random pixels"}
    return names.get(dataset) or Path(own_data.title(dataset)).name or dataset


def state_words(job: Job, every: Sequence[Job]) -> tuple[str, Tone]:
    """What a run is at, in a few words, and how to colour them."""
    percent = f"{100 * job.step // job.total} %" if job.total else ""
    at = f" at {percent}" if percent else ""
    if job.state == "running":
        if job.wish:
            return {"pause": "pausing", "stop": "stopping"}[job.wish], "moving"
        if job.task:
            done = f" · {100 * job.task.done // job.task.total} %" if job.task.total else ""
            return f"{job.task.what}{done}", "moving"
        return f"training · {percent}" if percent else "training", "moving"
    if job.state == "queued":
        place = 1 + sum(o.state == "queued" and o.order < job.order for o in every)
        return "waits, next" if place == 1 else f"waits, number {place}", "still"
    if job.state == "finished":
        return (f"stopped early{at}", "still") if job.step < job.total else ("finished", "still")
    return f"{job.state}{at}", "wrong" if job.state == "failed" else "still"


# ---- the chosen run ------------------------------------------------------------------------------


def _about(each: Listed, found: Sequence[Listed]) -> None:
    job = each.job
    st.subheader(to_the_letter(job.name), anchor=False)
    if said := st.session_state.get(_SAID):
        st.warning(to_the_letter(said))
    else:
        st.caption(to_the_letter(about_words(each)))
    with st.container(horizontal=True, key="run-actions"):
        for label, action in actions(each, found).items():
            st.button(label, key=f"run-{label}", on_click=_acting(action))
        if runs.is_run(job.path):
            st.download_button(
                "Download",
                lambda: zipped(job.path),
                file_name=f"{job.path.name}.zip",
                mime="application/zip",
                on_click="ignore",
                key="run-Download",
            )
    question = st.session_state.get(_OPEN)
    if question == ("label", each.id):
        _ask_label(each)
    elif question == ("delete", each.id):
        _ask_delete(each)


def about_words(each: Listed) -> str:
    """What there is to say of a run, in a sentence or two."""
    job, known = each.job, each.facts
    if job.message:
        return job.message
    if job.state == "queued":
        return "It waits for its turn."
    done = len(known.rows) if known else 0
    if job.state == "running":
        of = f" of {known.recipe.epochs}" if known else ""
        return f"It is in epoch {done + 1}{of}."
    if known and done:
        epochs = "1 epoch" if done == 1 else f"{done:,} epochs"
        return f"{epochs} of {data_name(known.recipe.dataset)}, in {duration(known.seconds)}."
    return "Nothing is recorded of its way."


def actions(each: Listed, found: Sequence[Listed]) -> dict[str, Callable[[], object]]:
    """What can be done with a run now, by the words on its buttons."""
    job, path = each.job, each.job.path
    possible: dict[str, Callable[[], object]] = {}
    if not each.shipped:
        possible["Watch"] = workshop.going("watch", path)
    if runs.is_run(path):
        possible["Open this model"] = lambda: _open(each)
    if not each.shipped:
        going = job.state in ("running", "queued")
        if going and not job.wish:
            possible["Pause"] = lambda: jobs.pause(path)
        if job.wish or job.state in ("paused", "interrupted", "failed"):
            possible["Resume"] = lambda: jobs.resume(path)
        elif job.state == "finished" and job.step < job.total:
            possible["Train on"] = lambda: jobs.resume(path)
        resumable = (path / runs.RESUME).exists()
        if job.wish != "stop" and (
            job.state == "running" or (job.state != "finished" and resumable)
        ):
            possible["Stop and keep"] = lambda: jobs.stop(path)
    if each.facts:
        possible["Same again, new seed"] = lambda: _again(each, found)
        possible["Same again with …"] = lambda: _again_with(each)
    if not each.shipped:
        possible["Name and tags"] = lambda: _ask("label", each.id)
        if job.state != "running":
            possible["Delete"] = lambda: _ask("delete", each.id)
    return possible


def _acting(action: Callable[[], object]) -> Callable[[], None]:
    """An action as a callback, after which the whole page follows; why it could not be done is
    said beside the chosen run."""

    def act() -> None:
        for key in (_SAID, _OPEN):
            st.session_state.pop(key, None)
        try:
            action()
        except RunError as error:
            st.session_state[_SAID] = str(error)
        st.session_state[_WHOLE] = True

    return act


def _ask(what: str, run: str) -> None:
    st.session_state[_OPEN] = (what, run)


def _open(each: Listed) -> None:
    state.update(run=each.model, epoch=None)
    workshop.go("model")


def unused_seed(each: Listed, found: Sequence[Listed]) -> int:
    """The lowest seed that no run of this one's name has, whatever seed the name is about."""
    named = {base_name(each.job.name)}
    used = {
        other.facts.seed for other in found if other.facts and base_name(other.job.name) in named
    }
    return next(seed for seed in range(len(used) + 1) if seed not in used)


def base_name(name: str) -> str:
    """A name without what :func:`vit.jobs.again` puts behind it."""
    return re.sub(r" \(seed \d+\)$", "", name)


def _again(each: Listed, found: Sequence[Listed]) -> None:
    path = jobs.again(resources.runs_dir(), each.job.path, unused_seed(each, found))
    st.query_params["job"] = path.name


def _again_with(each: Listed) -> None:
    recipe, seed = jobs.settings(each.job.path)
    new_run.prefill(recipe, seed, each.job.name)
    workshop.go("new")


def _ask_label(each: Listed) -> None:
    job = each.job
    # With other values come other fields: what somebody else has changed meanwhile is not undone.
    stamp = zlib.crc32(repr((each.id, job.name, job.tags)).encode())
    keys = {what: f"run-{what}-{stamp}" for what in ("name", "tags")}

    def save() -> None:
        name, tags = (st.session_state[keys[what]] for what in ("name", "tags"))
        jobs.label(job.path, name, tags.split(","))

    with st.container(key="run-label"), st.form(f"run-labels-{stamp}"):
        left, right = st.columns(2)
        left.text_input("Name", job.name, max_chars=80, key=keys["name"])
        right.text_input("Tags, with commas between", ", ".join(job.tags), key=keys["tags"])
        with st.container(horizontal=True):
            st.form_submit_button("Save", type="primary", on_click=_acting(save))
            st.form_submit_button("Cancel", on_click=_acting(lambda: None))


def _ask_delete(each: Listed) -> None:
    with st.container(border=True, key="run-delete"):
        st.markdown(f"**Delete {to_the_letter(each.job.name)}?** {what_is_lost(each)}")

        def delete() -> None:
            jobs.delete(each.job.path)
            if state.read().run == each.model:
                state.update(run=state.View().run, epoch=None)

        with st.container(horizontal=True):
            st.button("Delete for good", type="primary", key="run-sure", on_click=_acting(delete))
            st.button("Keep it", key="run-keep", on_click=_acting(lambda: None))


def what_is_lost(each: Listed) -> str:
    """What deleting a run takes away, in a sentence."""
    path = each.job.path
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    epochs = len(each.facts.rows) if each.facts else 0
    if not epochs and not runs.is_run(path):
        return "It has not learned anything yet; only its settings are lost."
    snapshots = len(runs.list_epochs(path))
    return (
        f"Its weights, {snapshots} {'snapshot' if snapshots == 1 else 'snapshots'} and the record "
        f"of {epochs} {'epoch' if epochs == 1 else 'epochs'} are lost for good: {in_bytes(size)}. "
        f"Download it first if you may want it back."
    )


# ---- side by side --------------------------------------------------------------------------------


def _compare(found: Sequence[Listed]) -> None:
    chosen = compared(found)
    st.subheader("Side by side", anchor=False)
    if len(chosen) < 2:
        st.markdown(
            "Tick one more run in the list."
            if chosen
            else "Tick two runs or more in the list to see their curves over each other, what they "
            "reached, and in which settings they differ."
        )
        return
    compare.show([compare.Compared(each.job.name, each.facts) for each in chosen if each.facts])


# ---- out and in ----------------------------------------------------------------------------------


def zipped(path: Path) -> bytes:
    """A run as a zip, with its figures."""
    file = io.BytesIO()
    bundle.pack(path, file, figures_of(path))
    return file.getvalue()


def figures_of(path: Path) -> dict[str, bytes]:
    """A run's curves as pages that a browser opens, which share the one script beside them."""
    try:
        rows = runs.read_metrics(path)
    except RunError:
        rows = []
    if not rows:
        return {}
    charts = {
        "accuracy": (learning.measured(rows, "accuracy", 100), "named rightly, %", 1),
        "loss": (learning.measured(rows, "loss", 1), "cross-entropy, nats", 3),
    }
    files = {
        f"figures/{name}.html": plotly.io.to_html(
            curves(lines, unit, LIGHT, marks={}, decimals=decimals, height=480),
            include_plotlyjs="directory",
        ).encode()
        for name, (lines, unit, decimals) in charts.items()
    }
    return files | {"figures/plotly.min.js": plotly.offline.get_plotlyjs().encode()}


def _import() -> None:
    with st.expander("Bring a run in"), frame.calm():
        limit = st.get_option("server.maxUploadSize")
        st.markdown(
            "A run that was downloaded here or elsewhere, as a zip. It is checked before it is "
            f"taken in. A zip of more than {limit} MB has to be on the machine that the app runs "
            "on: give its path."
        )
        left, right = st.columns(2, gap="large")
        with left, st.container(key="run-import"):
            file = st.file_uploader("A zip", type="zip", key="run-zip")
        with right:
            place = st.text_input("Or its path on this machine", key="run-path")
            wanted = st.button("Bring it in", key="run-bring", disabled=not place.strip())
        if file is not None and st.session_state.get("_runs-brought") != file.file_id:
            st.session_state["_runs-brought"] = file.file_id
            _bring(file)
        elif wanted:
            _bring(Path(place.strip()).expanduser())
        if said := st.session_state.get("_runs-import"):
            st.warning(to_the_letter(said))


def _bring(file: "io.BytesIO | Path") -> None:
    st.session_state.pop("_runs-import", None)
    try:
        with st.spinner("Checking the run"):
            path = bundle.unpack(file, resources.runs_dir())
    except RunError as error:
        st.session_state["_runs-import"] = str(error)
        return
    st.query_params["job"] = path.name
    st.rerun()


def _in_tensorboard() -> None:
    with st.expander("The curves in TensorBoard"):
        if not tensorboard.is_installed():
            st.markdown("TensorBoard is not installed beside this app. Install it first:")
            st.code("pip install tensorboard", language="bash")
        st.markdown(
            "In the app's folder, this writes the curves of all runs as TensorBoard reads them, "
            "and opens it:"
        )
        place = shlex.quote(str(resources.runs_dir()))
        st.code(f"python -m vit.tensorboard {place}\ntensorboard --logdir {place}", language="bash")
