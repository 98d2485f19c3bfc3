"""The sidebar: the picture and its framing, the model and its epoch, and what it thinks."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from html import escape

import numpy as np
import streamlit as st

from ui import pictures, replay, resources, state
from ui.pictures import About, NoPicture
from ui.resources import Record, Walk
from ui.state import View
from ui.thumbs import Thumb, thumbs
from ui.words import to_the_letter
from vit.images import MAX_BYTES, PictureError, Square
from vit.model import count_parameters
from vit.runs import Run, RunError

# What can be opened; and what cannot but is told so in a sentence of ours.
UPLOAD_KINDS = [
    *("jpg", "jpeg", "png", "gif", "webp", "avif", "tif", "tiff", "bmp", "ico"),
    *("heic", "heif", "svg"),
]
# A picture is flagged if no more than this share of the test pictures got so low a top
# probability: the maximum softmax probability of Hendrycks & Gimpel, arXiv 1610.02136, with the
# threshold at which one in twenty pictures that do show a class is flagged as well.
UNSURE_SHARE = 0.05
_PLACE = "move"

_log = logging.getLogger(__name__)


class NoModel(Exception):
    """There is no run that can be opened."""


def open_view(view: View) -> tuple[View, Walk, list[str]]:
    """Open the picture and the model of a view, or what stands in for what cannot be opened.

    Returns:
        The view of what was opened, its recorded walk, and a sentence for each thing replaced.

    Raises:
        NoModel: if no run can be opened.
    """
    notes: list[str] = []
    view, run = _open_run(view, notes)
    try:
        walk = resources.walk(view.img, view.framing, run)
    except NoPicture as error:
        notes.append(f"{error} Meanwhile, here is a sample.")
        view = replace(view, img=View().img, framing=View().framing)
        walk = resources.walk(view.img, view.framing, run)
    return view.fitted(run.model_config), walk, notes


def _open_run(view: View, notes: list[str]) -> tuple[View, Run]:
    available = resources.available_runs()
    if view.run in available:
        try:
            return view, resources.open_run(available[view.run], view.epoch)
        except RunError as error:
            _log.warning("%s", error)
        if view.epoch is not None:
            notes.append(
                "This model has no snapshot of that epoch that can be opened, so here are the "
                "weights that it kept in the end."
            )
            return _open_run(replace(view, epoch=None), notes)
        notes.append(
            f"The files of the model {to_the_letter(view.run)} are damaged or not complete, so "
            "another one is shown. Train it again, or restore its folder."
        )
    else:
        notes.append("The model of this link is not on this machine, so another one is shown.")
    for name, path in available.items():
        try:
            return replace(view, run=name, epoch=None), resources.open_run(path)
        except RunError as error:
            _log.warning("%s", error)
    raise NoModel


def show(page: str, view: View, walk: Walk) -> None:
    """Draw the sidebar of what was opened on a page."""
    resources.tidy_uploads()
    about = pictures.about(view.img)
    with st.sidebar:
        _choose_picture(view, walk.run)
        _choose_framing(view, walk)
        _choose_model(view, walk.run)
        replay.choose_epoch(page, view, walk.run.path)
        _answer(view, walk, about)


def _choose_picture(view: View, run: Run) -> None:
    st.subheader("The picture", anchor=False)
    own = st.session_state.get("_own_picture")
    if view.img not in pictures.samples():
        own = st.session_state["_own_picture"] = view.img
    names = [*pictures.samples(), *([own] if own else [])]
    try:
        items = [Thumb(n, _title(n), resources.picture_thumbnail(n)) for n in names]
    except NoPicture:  # their own picture of a while ago, deleted since
        del st.session_state["_own_picture"]
        items = [Thumb(n, _title(n), resources.picture_thumbnail(n)) for n in pictures.samples()]
    thumbs(
        items,
        key="samples",
        label="Pictures to start with",
        columns=7,
        current=view.img,
        on_choose=_choose,
    )
    with st.container(key="about-picture"):
        st.caption(_describe(pictures.about(view.img)))
    _upload()
    _held_out(view, run)


def _title(name: str) -> str:
    about = pictures.about(name)
    return f"{about.title} (drawing)" if about.kind == "drawing" else about.title


def _describe(about: About) -> str:
    if about.kind == "drawing":
        return f"{about.title}. Drawings are not what it was trained on."
    if about.kind == "held-out":
        return f"{about.title}, never seen in training."
    return f"{about.title}."


def _choose(name: str) -> None:
    st.session_state.pop("_rejected", None)
    state.update(img=name, framing=View().framing)


def _upload() -> None:
    # Under a new key after each file, the uploader is empty again: a file acts once, and the
    # picture on show is always the one in the address.
    turn = st.session_state.setdefault("_upload_turn", 0)

    def take() -> None:
        file = st.session_state[f"upload-{turn}"]
        if file is None:
            return
        st.session_state["_upload_turn"] = turn + 1
        try:
            _choose(pictures.keep_upload(file.getvalue()))
        except PictureError as error:
            st.session_state["_rejected"] = str(error)
        except OSError:
            st.session_state["_rejected"] = (
                "There is no room here to keep another picture at the moment. Try again later, or "
                "go on with one of the samples."
            )

    st.file_uploader(
        "Upload a picture",
        type=UPLOAD_KINDS,
        key=f"upload-{turn}",
        on_change=take,
        max_upload_size=MAX_BYTES // 2**20,
        label_visibility="collapsed",
    )
    if rejected := st.session_state.get("_rejected"):
        st.warning(rejected)


def _held_out(view: View, run: Run) -> None:
    dataset = str(run.config.get("recipe", {}).get("dataset"))
    if dataset not in pictures.HELD_OUT or not pictures.has_held_out(dataset):
        return
    prefix, count = pictures.HELD_OUT[dataset]

    def by_number() -> None:
        if (chosen := st.session_state["held-out"]) is not None:
            _choose(f"{prefix}-{chosen}")

    def another() -> None:
        there = len(pictures.held_out(dataset).labels)
        _choose(f"{prefix}-{np.random.default_rng().integers(there)}")

    st.session_state["held-out"] = pictures.held_out_number(view.img, dataset)
    with st.container(horizontal=True, gap="small", key="held-out-row"):
        st.number_input(
            f"Test picture, 0 to {count - 1:,}",
            0,
            count - 1,
            key="held-out",
            step=1,
            on_change=by_number,
            label_visibility="collapsed",
            placeholder="test picture",
        )
        st.button("Any", on_click=another, key="another")


def _choose_framing(view: View, walk: Walk) -> None:
    how = resources.parse_framing(view.framing)
    square = how if isinstance(how, Square) else None

    def choose() -> None:
        chosen = st.session_state["framing"]
        state.update(framing="0.5,0.5,1" if chosen == _PLACE else chosen or "crop")

    def place() -> None:
        x, y, zoom = (st.session_state[f"framing-{name}"] for name in ("x", "y", "zoom"))
        state.update(framing=f"{x / 100:g},{y / 100:g},{1 / zoom:.4g}")

    st.session_state["framing"] = _PLACE if square else how
    st.segmented_control(
        "Framing",
        ["crop", "fit", _PLACE],
        format_func={"crop": "Centre", "fit": "Fit", _PLACE: "Move, zoom"}.__getitem__,
        key="framing",
        required=True,
        on_change=choose,
        label_visibility="collapsed",
    )
    if square:
        st.session_state["framing-x"] = round(100 * square.x)
        st.session_state["framing-y"] = round(100 * square.y)
        st.session_state["framing-zoom"] = min(8.0, max(0.5, round(1 / square.side, 2)))
        st.slider("Across", 0, 100, key="framing-x", format="%d %%", on_change=place)
        st.slider("Down", 0, 100, key="framing-y", format="%d %%", on_change=place)
        st.slider("Zoom", 0.5, 8.0, key="framing-zoom", step=0.05, format="%.2f×", on_change=place)
    size, channels = walk.run.model_config.image_size, walk.run.model_config.in_chans
    kind = "grey" if channels == 1 else "colour"
    st.html(
        '<div class="seen"><figure>'
        f'<img src="{walk.square_uri}" alt="The framed picture">'
        "<figcaption>you see</figcaption></figure><figure>"
        f'<img class="pixels" src="{walk.pixels_uri}" alt="Exactly what the model sees">'
        f"<figcaption>it sees: {size}×{size}, {kind}</figcaption></figure></div>"
    )


def _choose_model(view: View, run: Run) -> None:
    st.subheader("The model", anchor=False)
    available = resources.available_runs()

    def label(name: str) -> str:
        record = resources.held_out_record(available[name])
        return f"{name} · {100 * record.accuracy:.1f} %" if record else name

    # Another model has other epochs, so it starts with its kept weights.
    st.session_state["run"] = view.run
    st.selectbox(
        "Model",
        list(available),
        format_func=label,
        key="run",
        on_change=lambda: state.update(run=st.session_state["run"], epoch=None),
        label_visibility="collapsed",
    )
    parameters = count_parameters(run.model)
    record = resources.held_out_record(available[view.run])
    # The same words at every epoch, so that nothing below moves.
    st.caption(
        f"{parameters:,} parameters. As kept, "
        + (
            f"right on {100 * record.accuracy:.1f} % of {len(record.top):,} test pictures."
            if record
            else "not tested yet."
        )
    )


def _answer(view: View, walk: Walk, about: About) -> None:
    run = walk.run
    order = walk.probabilities.argsort()[::-1][:3]
    st.subheader("Its answer", anchor=False)
    st.html(bars([run.class_names[i] for i in order], walk.probabilities[order]))
    undecided = float(np.ptp(walk.probabilities)) < 1e-6  # as before any training
    st.caption(
        "All classes come out alike: no answer yet."
        if undecided
        else verdict(about, run.class_names, int(order[0]))
    )
    record = resources.held_out_record(run.path) if view.epoch is None else None
    st.caption(doubt(float(walk.probabilities[order[0]]), len(run.class_names), record))


def bars(names: Sequence[str], values: Sequence[float] | np.ndarray) -> str:
    """Names with their probabilities as small bars, as HTML; names are shown to the letter."""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        f'<td class="bar"><i style="width:{100 * value:.2f}%"></i></td>'
        f"<td>{100 * value:.1f} %</td></tr>"
        for name, value in zip(names, values, strict=True)
    )
    return f'<table class="bars">{rows}</table>'


def verdict(about: About, class_names: Sequence[str], answer: int) -> str:
    """Whether the answer is right, where that can be known; Markdown."""
    if about.kind == "upload":
        return "Only you know whether that is right."
    if about.label not in class_names:
        what = "none of the classes that this model knows"
        return f"This picture shows {what}, so every answer is wrong."
    label = to_the_letter(about.label)
    if class_names[answer] == about.label:
        return f"It is labelled {label}: right."
    return f"It is labelled {label}: wrong."


def doubt(top: float, classes: int, record: Record | None) -> str:
    """What the highest probability says about "none of these"; Markdown."""
    always = (
        f"The {classes} probabilities add up to 1 whatever the picture shows, so a high one proves "
        "nothing, least of all on an unusual picture."
    )
    if record is None:
        return f"How sure that is cannot be told: these weights have no test record. {always}"
    share = record.share_as_unsure(top)
    if share > UNSURE_SHARE:
        return f"{100 * share:.0f} % of the test pictures got no surer an answer. {always}"
    rarity = f"only 1 in {round(1 / share):,}" if share else f"none of {len(record.top):,}"
    return (
        f"**Probably none of the {classes}, or hard to tell:** {rarity} test pictures got so "
        f"low a top probability. {always}"
    )
