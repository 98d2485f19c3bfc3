"""The form for a new run: data, recipe, changes; what it will cost and see; and one button."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from html import escape
from typing import Any, Literal, cast

import numpy as np
import streamlit as st
import torch
from streamlit.delta_generator import DeltaGenerator

from figures.schedule import Phase, Rate, schedule
from ui import first_batch, frame, resources, workshop
from ui import own_data as chooser
from ui.amounts import in_time
from ui.opened import QUIET
from ui.words import to_the_letter
from vit import data, jobs, own_data
from vit.config import ViTConfig
from vit.data import DataError
from vit.folder import MAX_DECODED
from vit.holdout import training_part
from vit.model import VisionTransformer, count_parameters
from vit.recipes import RECIPES
from vit.runs import RunError
from vit.settings import Recipe
from vit.train import learning_rate_factor

Kind = Literal["digits", "cifar10", "own", "random_pixels"]
OWN: Kind = "own"
KINDS: dict[Kind, tuple[str, str]] = {
    "digits": ("Handwritten digits", "1,797 of them, 8 × 8 pixels, grey. They come with the app."),
    "cifar10": ("CIFAR-10", "60,000 photos of ten kinds, 32 × 32 pixels."),
    "own": ("Your own pictures", "A folder on this machine, or a zip: a folder for each class."),
    "random_pixels": ("Random pixels", "Noise with random labels: nothing to learn, so a check."),
}
CIFAR10_TRAINING = 50_000  # pictures, as many of each of its ten classes
FETCHED = "about 140 MB"
FEW_STEPS = 200
NAMES = {
    "system_a_flat": "System A, one rate",
    "system_a_cosine": "System A, cosine",
    "system_b": "System B",
    "system_c": "System C",
    "sixty_five": "Our best",
    "sixty_five_short": "Our short one",
    "digits": "Our small one",
    "too_fast": "Too fast: known to fail",
}
FIRST: dict[Kind, str] = {"cifar10": "sixty_five_short", "own": "digits"}
LIKE = "like"  # the choice of the settings that another run was made with
UNLISTED = {"debug"}  # a check of the command line
# What makes sense for pictures that nobody has seen; the others are about their own data.
FOR_OWN = {name for name in RECIPES if RECIPES[name]().dataset == "cifar10"} | {"digits"}

MODEL = {
    "image_size": "Picture side, px",
    "patch_size": "Patch side, px",
    "embed_dim": "Width",
    "depth": "Blocks",
    "num_heads": "Heads",
}
TRAINING = {
    "epochs": "Epochs",
    "batch_size": "Batch, pictures",
    "learning_rate": "Learning rate",
    "muon_learning_rate": "Muon's learning rate",
    "share": "Data used, %",
}
FIELDS = MODEL | TRAINING
NUMBERS = ("Parameters", "Tokens", "Learns from", "Steps", "Time")
RATES = ("learning_rate", "muon_learning_rate")
_LIKE, _FILLED = "_new-like", "_new-filled"

_STYLE = """
@media (min-height: 780px) { :has(> .st-key-new-run-summary) { position: sticky; top: 3rem; } }
.st-key-new-run-summary { min-height: 32rem; }
.st-key-new-run-summary > :has(> .st-key-new-begin) { margin-top: auto; }
.new-run-numbers { display: grid; grid-template-columns: auto 1fr; gap: 0.35rem 1.25rem; margin: 0 !important; padding: 0 !important; font-variant-numeric: tabular-nums; }
.new-run-numbers dt { color: var(--muted); font-weight: 400; }
.new-run-numbers dd { margin: 0; min-height: 1.5em; }
.new-run-numbers small { color: var(--muted); font-size: 0.85em; display: block; }
.st-key-new-model, .st-key-new-training, .st-key-new-labels { display: grid !important; grid-template-columns: repeat(auto-fill, minmax(88px, 1fr)); gap: 0.75rem; align-items: end; }
.st-key-new-labels { grid-template-columns: 88px repeat(2, minmax(0, 1fr)); border-top: 1px solid var(--line); padding-top: 0.75rem; }
:is(.st-key-new-model, .st-key-new-training, .st-key-new-labels) > * { width: auto !important; min-width: 0; }
:is(.st-key-new-model, .st-key-new-training, .st-key-new-labels) button[data-testid^="stNumberInputStep"] { display: none; }
.st-key-new-change [data-testid="stWidgetLabel"] p { white-space: nowrap; font-size: 0.82rem; }
.st-key-own-zip [data-testid="stFileUploaderDropzone"]::after { content: "or drop a zip here"; }
"""  # noqa: E501


@dataclass(frozen=True)
class Data:
    """What a run would learn from.

    Attributes:
        dataset: what its recipe says.
        classes: how many.
        training: pictures of each class in the training split.
        here: whether they can be read without fetching anything.
        stamp: changes when a visitor's own pictures were looked at anew.
    """

    kind: Kind
    dataset: str
    classes: int
    training: tuple[int, ...]
    here: bool
    stamp: object = None


def prefill(recipe: Recipe, seed: int, name: str) -> None:
    """Fill the form with the settings of a run called ``name``. Call it from a widget's callback,
    before ``workshop.go("new")``."""
    state = st.session_state
    kind = cast("Kind", recipe.dataset if recipe.dataset in KINDS else OWN)
    if kind == OWN:
        chooser.take(recipe.dataset)
    state[_LIKE] = (recipe, name)
    state["new-data"], state["new-recipe"] = kind, LIKE
    state["new-seed"], state["new-name"] = seed, name
    state.pop(_FILLED, None)


def show() -> None:
    """The view: what to learn from and how, beside what will come of it, above the pictures."""
    st.html(f"<style>{_STYLE}</style>")
    _form()


@st.fragment
def _form() -> None:
    with frame.calm():
        left, right = st.columns([11, 9], gap="large")
        with left:
            found, base = _choices()
            wanted = _changes(found, base)
        with right, st.container(border=True, key="new-run-summary"):
            problem = wanted if isinstance(wanted, str) else None
            if found is not None and isinstance(wanted, Recipe):
                problem = _summary(found, wanted)
            else:
                _list([("–", "")] * len(NUMBERS))
            with st.container(key="new-begin"):
                _start(wanted, problem)
        if found is not None and isinstance(wanted, Recipe) and problem is None:
            st.subheader("What it will see")
            if found.here:
                first_batch.show(wanted, int(st.session_state["new-seed"]), found.stamp)
            else:
                st.caption("CIFAR-10 is not here yet. Once it is, a batch of it is shown here.")


# ---- what is chosen ------------------------------------------------------------------------------


def _choices() -> tuple[Data | None, Recipe]:
    """Ask for data and recipe, and fill the form when they change."""
    state = st.session_state
    state.setdefault("new-data", "digits")
    kind: Kind = st.radio(
        "**What it learns from**",
        list(KINDS),
        format_func=lambda kind: KINDS[kind][0],
        captions=[_about(kind) for kind in KINDS],
        key="new-data",
        persist_state="session",
    )
    found = _data(kind)
    offered = _recipes(kind)
    if state.get("new-recipe") not in offered:
        state["new-recipe"] = FIRST.get(kind, next(iter(offered)))
    names = {choice: _name(choice) for choice in offered}
    choice = st.radio(
        "**Recipe**",
        list(offered),
        format_func=names.__getitem__,
        captions=[_summed_up(choice, recipe, kind) for choice, recipe in offered.items()],
        key="new-recipe",
        persist_state="session",
    )
    base = offered[choice]
    if kind == OWN:
        side = base.model.image_size if choice == LIKE else own_data.IMAGE_SIZE
        dataset, classes = (found.dataset, found.classes) if found else (base.dataset, 2)
        base = own_data.adapt(base, dataset, classes, side)
    _fill(base, (kind, choice, base.name, base.summary))
    return found, base


def _about(kind: Kind) -> str:
    about = KINDS[kind][1]
    if kind == "cifar10" and not _has_cifar10():
        return f"{about} Not here yet: {FETCHED} are fetched first."
    return about


def _recipes(kind: Kind) -> dict[str, Recipe]:
    """The recipes that are offered for a kind of data, by choice; the copied one first."""
    recipes = {name: make() for name, make in RECIPES.items() if name not in UNLISTED}
    offered = {
        name: recipe
        for name, recipe in recipes.items()
        if (name in FOR_OWN if kind == OWN else recipe.dataset == kind)
    }
    like, _ = st.session_state.get(_LIKE, (None, ""))
    if like is not None and kind == (like.dataset if like.dataset in KINDS else OWN):
        return {LIKE: like, **offered}
    return offered


def _name(choice: str) -> str:
    if choice == LIKE:
        _, name = st.session_state[_LIKE]
        return f"As in “{to_the_letter(name)}”"
    return NAMES.get(choice, choice.replace("_", " "))


def _summed_up(choice: str, recipe: Recipe, kind: Kind) -> str:
    if kind == OWN and recipe.dataset == "digits" and choice != LIKE:
        model = recipe.model
        return (
            f"What the digits are trained by: {model.depth} blocks of width {model.embed_dim}, "
            f"{recipe.epochs} epochs."
        )
    return to_the_letter(recipe.summary)


def _fill(base: Recipe, token: tuple[str, ...]) -> None:
    """Write a recipe's numbers into the form, unless it was filled from it already."""
    state = st.session_state
    state.setdefault("new-seed", 0)
    if state.get(_FILLED) == token:
        return
    state[_FILLED] = token
    for field in FIELDS:
        state[f"new-{field}"] = _shown(base, field)


def _shown(recipe: Recipe, field: str) -> float:
    """A setting as the form shows it."""
    value = getattr(recipe.model if field in MODEL else recipe, field)
    if field == "share":
        return round(100.0 * value, 6)
    return float(value) if field in RATES else value  # somebody may have written 1 for 1.0


def _data(kind: Kind) -> Data | None:
    """The chosen data, with what there is to say and do about them; None if they are not usable."""
    if kind == OWN:
        found = chooser.choose()
        if found is None:
            return None
        return Data(
            kind, str(found.path), len(found.class_names), found.training, True, chooser.stamp()
        )
    if kind == "cifar10":
        here = _has_cifar10()
        if not here:
            _offer_cifar10()
        return Data(kind, kind, 10, (CIFAR10_TRAINING // 10,) * 10, here)
    counts = _counts(kind)
    return Data(kind, kind, len(counts), counts, True)


@st.cache_data(max_entries=2, show_spinner=False)
def _counts(dataset: str) -> tuple[int, ...]:
    """Training pictures of each class, of a data set that comes with the app."""
    return tuple(np.bincount(data.load_split(dataset, "train").labels).tolist())


def _has_cifar10() -> bool:
    return all(data.has_cifar10(data.data_dir(), part) for part in ("train", "test"))


def _offer_cifar10() -> None:
    """Say that CIFAR-10 is not here, and offer to fetch it now."""
    st.markdown(
        f"CIFAR-10 is not on this machine yet. A run fetches it first ({FETCHED}, once) and shows "
        "how far it is; or fetch it now, to see what a batch looks like."
    )
    if not st.button("Fetch it now", key="new-fetch"):
        return
    bar = st.progress(0.0, "Asking for the pictures")
    try:
        for part, what in (("train", "training"), ("test", "test")):

            def show(done: int, total: int, what: str = what) -> None:
                share = min(done / total, 1.0) if total else 0.0
                said = f"The {what} pictures: {done / 1e6:.1f} of {total / 1e6:.1f} MB"
                bar.progress(share, said)

            data.load_split("cifar10", part, progress=show)
    except DataError as error:
        bar.empty()
        st.warning(to_the_letter(str(error)))
        return
    st.rerun()


# ---- what is changed -----------------------------------------------------------------------------


def _changes(found: Data | None, base: Recipe) -> Recipe | str:
    """The form's numbers on top of ``base``: the recipe that they make, or why they make none."""
    kind = st.session_state["new-data"]
    fields = [
        field
        for field in FIELDS
        if (field != "image_size" or kind == OWN)
        and (field != "muon_learning_rate" or base.optimizer == "muon")
    ]
    with st.expander("Change it", key="new-change"):
        values = {}
        for part, own in (("new-model", MODEL), ("new-training", TRAINING)):
            with st.container(horizontal=True, key=part):
                values |= {field: _number(field, base) for field in fields if field in own}
        wanted = _built(base, values)
        place = st.empty()
        with st.container(horizontal=True, key="new-labels"):
            st.number_input(
                "Seed",
                0,
                2**32 - 1,
                step=1,
                key="new-seed",
                persist_state="session",
            )
            st.text_input(
                "Name",
                key="new-name",
                placeholder=base.name,
                max_chars=80,
                persist_state="session",
            )
            st.text_input(
                "Tags, by commas",
                key="new-tags",
                placeholder="first tries, deep",
                persist_state="session",
            )
    if isinstance(wanted, ValueError):
        place.warning(to_the_letter(str(wanted)))
        return str(wanted)
    if kind == OWN and found is not None:
        st.caption(_adapted(wanted))
    changed = [
        f"{_label(field, base, short=True)} {_text(wanted, field)} (there {_text(base, field)})"
        for field in fields
        if _shown(wanted, field) != _shown(base, field)
    ]
    if changed:
        name = _name(st.session_state["new-recipe"])
        st.markdown(f"Differs from **{name}** in: {'; '.join(changed)}.")
        summary = f"Like {base.name}, but: {'; '.join(changed)}."
        wanted = replace(wanted, summary=summary)
    if found is None:
        return "Choose a folder or a zip of your pictures first."
    return wanted


def _label(field: str, base: Recipe, short: bool = False) -> str:
    """What the form calls a setting, or, ``short``, what a sentence does."""
    if field in RATES and base.optimizer == "muon":
        return "AdamW rate" if field == "learning_rate" else "Muon rate"
    return FIELDS[field].partition(",")[0].lower() if short else FIELDS[field]


def _number(field: str, base: Recipe) -> float:
    label = _label(field, base)
    options: dict[str, Any] = {"min_value": 1, "step": 1}
    if field in RATES:
        options = {"min_value": 0.0, "step": 1e-4, "format": "%g"}
    if field == "share":
        options = {"min_value": 0.1, "max_value": 100.0, "step": 5.0, "format": "%g"}
    key = f"new-{field}"
    return cast("float", st.number_input(label, key=key, persist_state="session", **options))


def _built(base: Recipe, values: Mapping[str, float]) -> Recipe | ValueError:
    """``base`` with the form's numbers; crops follow the picture's side."""
    try:
        model = replace(base.model, **{k: v for k, v in values.items() if k in MODEL})
        training = {k: v for k, v in values.items() if k in TRAINING}
        training["share"] = training["share"] / 100
        padding = base.crop_padding * model.image_size / base.model.image_size
        recipe = replace(base, model=model, crop_padding=round(padding), **training)
        return Recipe.from_dict(recipe.to_dict())
    except ValueError as error:
        return error


def _text(recipe: Recipe, field: str) -> str:
    value = _shown(recipe, field)
    return f"{value:g} %" if field == "share" else f"{value:g}" if field in RATES else f"{value:,}"


def _adapted(wanted: Recipe) -> str:
    """What a recipe made for other pictures takes from the visitor's."""
    model = wanted.model
    return (
        f"Fitted to your pictures: {model.num_classes:,} classes, colour, {model.image_size} × "
        f"{model.image_size} pixels. Each picture is cut to its central square and brought to "
        f"that size, whatever it was."
    )


# ---- what will come of it ------------------------------------------------------------------------


@lru_cache(maxsize=64)
def parameters(config: ViTConfig) -> int:
    """Learned numbers of a model that is not built: no weight is allocated."""
    with torch.device("meta"):
        return count_parameters(VisionTransformer(config))


@lru_cache(maxsize=64)
def pictures(training: tuple[int, ...], validation: int, share: float) -> tuple[int, int]:
    """How many pictures are learned from and how many set aside, of ``training`` of each class."""
    labels = np.repeat(np.arange(len(training)), training)
    chosen, out = training_part(labels, validation, share)
    return len(chosen), len(out)


def _summary(found: Data, wanted: Recipe) -> str | None:
    """Parameters, tokens, steps, time and the schedule; returns why it cannot be started."""
    model, size = wanted.model, wanted.batch_size
    learned, aside = pictures(found.training, wanted.validation, wanted.share)
    steps_per_epoch = learned // size
    problem = None
    if not steps_per_epoch:
        problem = (
            f"A batch of {size:,} cannot be cut from {learned:,} pictures to learn from. Choose a "
            f"smaller batch."
        )
    decoded = 3 * model.image_size**2 * sum(found.training)
    if found.kind == OWN and decoded > MAX_DECODED:
        problem = (
            f"The pictures would take {decoded / 2**30:.1f} GiB at {model.image_size} pixels a "
            f"side; at most {MAX_DECODED // 2**30} GiB are kept. Choose a smaller picture side."
        )
    rows, place = _sizes(wanted, learned, aside), st.empty()
    if problem is not None:
        with place:
            _list([*rows, ("–", "")])
        return problem
    _measure(wanted, learned, rows, place)
    st.plotly_chart(
        schedule(*_rates(wanted, steps_per_epoch), _phases(wanted), frame.palette()),
        key="new-schedule",
        config=QUIET,
    )
    return None


def _sizes(wanted: Recipe, learned: int, aside: int) -> list[tuple[str, str]]:
    """How large the model is, and from how much it learns for how long; each with a note."""
    model, size = wanted.model, wanted.batch_size
    batches = learned // size
    steps = wanted.epochs * batches
    few = " Few: it will hardly have learned." if steps < FEW_STEPS else ""
    return [
        (f"{parameters(model):,}", ""),
        (
            f"{model.num_tokens:,}",
            f"{_many(model.num_patches, 'patch', 'patches')} of {model.patch_size} × "
            f"{model.patch_size} pixels, and [CLS]",
        ),
        (
            _many(learned, "picture"),
            f"{aside:,} more are set aside to watch it by" if aside else "",
        ),
        (
            f"{steps:,}",
            f"{_many(wanted.epochs, 'epoch')} of {_many(batches, 'batch', 'batches')} of "
            f"{_many(size, 'picture')}.{few}",
        ),
    ]


@dataclass(frozen=True)
class Measured:
    """How many seconds a run would take, and whether another one trained while it was measured."""

    seconds: float
    per_step: float
    disturbed: bool


@st.cache_resource(show_spinner=False)
def _measured() -> dict[str, Measured]:
    """What was measured on this machine, by the settings that time depends on."""
    return {}


def _measure(
    wanted: Recipe, learned: int, rows: list[tuple[str, str]], place: DeltaGenerator
) -> None:
    """Offer to measure how long the run would take, and list that with the other numbers."""
    free = replace(wanted, name="", summary="", dataset="")
    key = json.dumps([free.to_dict(), learned])
    known = _measured()
    pressed = st.button(
        "Measure the time on this machine",
        key="new-measure",
    )
    if pressed:
        with place:
            _list([*rows, ("measuring …", "by training for a few seconds")])
        try:
            busy = _others("running") > 0
            took = jobs.estimate(wanted, learned)
            known[key] = Measured(took.seconds, took.seconds_per_step, busy)
        except RunError as error:
            st.warning(to_the_letter(str(error)))
    found = known.get(key)
    row = ("not measured yet", "the button trains for a few seconds, to find out")
    if found is not None:
        note = f"{1000 * found.per_step:,.0f} ms a step, measured here"
        if found.disturbed:
            note += " while another run trained: alone it is quicker"
        row = (in_time(found.seconds), note)
    with place:
        _list([*rows, row])


def _others(*states: str) -> int:
    """How many runs are in one of these states."""
    return sum(job.state in states for job in jobs.list_jobs(resources.runs_dir()))


def _many(count: int, one: str, several: str = "") -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def _list(rows: Sequence[tuple[str, str]]) -> None:
    """The panel's numbers, each with a note, by the names in NUMBERS."""
    listed = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd>"
        for name, (value, note) in zip(NUMBERS, rows, strict=True)
    )
    st.html(f'<dl class="new-run-numbers">{listed}</dl>')


def _rates(recipe: Recipe, steps_per_epoch: int) -> tuple[np.ndarray, list[Rate]]:
    """Epochs (n,) and the learning rates then, at enough steps to draw them by."""
    last = recipe.epochs * steps_per_epoch - 1
    warmup = round(recipe.warmup_epochs * steps_per_epoch)
    steps = np.unique([*np.linspace(0, last, 200).astype(int), min(warmup, last)])
    factors = np.array([learning_rate_factor(recipe, int(s), steps_per_epoch) for s in steps])
    rates = [Rate("learning rate", recipe.learning_rate * factors, 0)]
    if recipe.optimizer == "muon":
        rates = [
            Rate("Muon, in the blocks", recipe.muon_learning_rate * factors, 0),
            Rate("AdamW, the rest", recipe.learning_rate * factors, 1),
        ]
    return steps / steps_per_epoch, rates


def _phases(recipe: Recipe) -> list[Phase]:
    phases = []
    if recipe.warmup_epochs:
        phases.append(Phase("warm-up", 0, min(recipe.warmup_epochs, recipe.epochs)))
    if recipe.kept_patches < 1 and recipe.kept_patches_until:
        end = recipe.kept_patches_until * recipe.epochs
        phases.append(Phase(f"{100 * recipe.kept_patches:.0f} % of the patches", 0, end))
    if recipe.cutmix and recipe.cutmix_until:
        end = recipe.cutmix_until * recipe.epochs
        phases.append(Phase(f"CutMix, {100 * recipe.cutmix:.0f} % of the pictures", 0, end))
    return phases


def _start(wanted: Recipe | str, problem: str | None) -> None:
    """The button, and why it is off."""
    runs_dir = resources.runs_dir()
    pressed = st.button(
        "Start training", type="primary", key="new-start", disabled=problem is not None
    )
    if problem is not None:
        st.caption(f"It cannot be started: {to_the_letter(problem)}")
        return
    if waiting := _others("queued", "running"):
        st.caption(
            f"One run trains at a time: it starts once the {waiting} before it "
            f"{'is' if waiting == 1 else 'are'} done."
        )
    if pressed and isinstance(wanted, Recipe):
        state = st.session_state
        tags = [tag.strip() for tag in state["new-tags"].split(",")]
        try:
            path = jobs.start(runs_dir, wanted, int(state["new-seed"]), state["new-name"], tags)
        except RunError as error:
            st.warning(to_the_letter(str(error)))
            return
        workshop.go("watch", path)
        st.rerun()
