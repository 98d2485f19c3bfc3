"""The parts of the Confusion matrix page: which cell, which model's test, and what is said."""

import logging
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from figures.robustness import after_changes
from ui import frame, heldout, resources
from ui.frame import Visit
from ui.heldout import Outcome
from ui.matrix import Cell
from ui.opened import QUIET
from ui.words import to_the_letter
from vit import calibration, mistakes, published, runs
from vit.data import Split
from vit.mistakes import Reliability
from vit.runs import Run, RunError

PER_PAGE = 16  # pictures of a cell shown at once
Changes = dict[str, dict[str, float]]
# What is done to the test pictures, by its name in vit/robustness.py: in the chart, in a sentence.
CHANGES = {
    "none": ("as they are", "as they are"),
    "grey": ("in grey", "in grey"),
    "blur": ("blurred, σ = 1 pixel", "blurred (a Gaussian, σ = 1 pixel)"),
    "jpeg": ("JPEG, quality 50", "saved as JPEG of quality 50"),
    "rotation": ("turned by 90°", "turned by 90°"),
    "shuffled_patches": ("patches shuffled", "with their patches shuffled"),
}
SCORES = ("precision, %", "recall, %", "F1, %")
_STYLE = """
.scores { overflow-x: auto; color: var(--ink); }
.scores table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
.scores :is(th, td) { border: 0; text-align: right; font-weight: 400; padding: 5px 0 5px 18px; }
.scores tbody :is(th, td) { border-top: 1px solid var(--line); }
.scores thead th { font-size: 12px; color: var(--muted); white-space: nowrap; }
.scores :is(th, td):first-child { text-align: left; padding-left: 0; }
@media (max-width: 640px) { .scores :is(th, td) { padding-left: 10px; } }
"""

_log = logging.getLogger(__name__)


def parse_cell(text: str, classes: int) -> Cell | None:
    """``true,predicted`` as links have it; None for anything that is no cell."""
    parts = text.split(",")
    if len(parts) != 2 or not all(p.isascii() and p.isdigit() and len(p) < 4 for p in parts):
        return None
    row, column = map(int, parts)
    return (row, column) if max(row, column) < classes else None


def chosen_cell(counts: np.ndarray) -> Cell:
    """The cell that the URL names, else the commonest mistake, else the first cell."""
    if cell := parse_cell(st.query_params.get("cell", ""), len(counts)):
        return cell
    top = mistakes.top_confusions(counts, 1)
    return (top[0].true, top[0].predicted) if top else (0, 0)


def choose_cell(cell: Cell | None) -> None:
    """Put a cell into the URL; for a callback."""
    if cell:
        st.query_params["cell"] = f"{cell[0]},{cell[1]}"


def comparable(names: tuple[str, ...], counts: np.ndarray) -> tuple[str, np.ndarray] | None:
    """System C's published matrix, if ours is over the same 10,000 pictures of the same classes."""
    theirs = published.C_CONFUSION
    if names == published.CLASS_NAMES and (counts.sum(1) == theirs.sum(1)).all():
        return published.C.name, theirs
    return None


def find_test(visit: Visit) -> Outcome | None:
    """The test to show: of the chosen epoch if there is one, else of the kept weights, with an
    offer to make the missing one; None if there is nothing to show yet."""
    run = visit.walk.run
    kept = heldout.kept_epoch(run.path)
    found = heldout.outcome(run)
    missing = found is None
    if missing and run.epoch != kept:
        found = heldout.outcome(resources.open_run(run.path))
    if found is None:
        st.info("This run has not been tested on held-out pictures yet.")
    split = heldout.find_pictures(run) if missing else None
    # One row whichever epoch is on show, so that nothing below moves while epochs are replayed.
    with st.container(horizontal=True, vertical_alignment="center", key="tested"):
        if found:
            when = (
                f"kept, after epoch {kept}" if found.epoch == kept else f"after epoch {run.epoch}"
            )
            rest = f" **Epoch {run.epoch} is not tested yet.**"
            st.caption(f"Below is the model as it was {when}.{rest * missing}", width="stretch")
        asked = split is not None and st.button(
            f"Test epoch {run.epoch} on {len(split.labels):,} pictures", key="test"
        )
    if asked:
        heldout.measure_now(run, split)
        st.rerun()
    if found is None and split is None:
        heldout.offer_pictures(run)
    return found


def list_confusions(names: tuple[str, ...], counts: np.ndarray, cell: Cell) -> None:
    """The commonest mistakes in words, each a button that chooses its cell."""
    top = mistakes.top_confusions(counts, 8)
    if not top:
        st.markdown("It made no mistake at all.")
    for one in top:
        times = "once" if one.count == 1 else f"{one.count} times"
        words = to_the_letter(f"{names[one.true]} → {names[one.predicted]}, {times}")
        st.button(
            f"**{words}**" if cell == (one.true, one.predicted) else words,
            key=f"confusion-{one.true}-{one.predicted}",
            type="tertiary",
            on_click=choose_cell,
            args=((one.true, one.predicted),),
        )


def show_cell(visit: Visit, found: Outcome, split: Split, cell: Cell) -> None:
    """The pictures of a cell, the surest first, a page at a time."""
    names = [to_the_letter(name) for name in split.class_names]
    true, predicted = cell
    inside = found.in_cell(true, predicted)
    pictures = "picture" if len(inside) == 1 else "pictures"
    st.markdown(
        f"**True class {names[true]}, predicted {names[predicted]}: {len(inside):,} {pictures}**"
        f"{', those it was surest of first' if len(inside) > 1 else ''}."
    )
    if not len(inside):
        st.markdown("Choose another cell to see its pictures.")
        return
    pages = -(-len(inside) // PER_PAGE)
    page = 0
    if pages > 1:
        page = st.pagination(pages, key=f"cell-{true}-{predicted}") - 1
    heldout.show(
        found,
        inside[page * PER_PAGE :][:PER_PAGE],
        split,
        visit.walk.run,
        visit.view,
        key="cell-pictures",
    )


def calibration_words(measured: Reliability) -> str:
    """The reliability diagram in a sentence or two."""
    weights = measured.count / measured.count.sum()
    confidence, accuracy = (
        100 * float(np.nansum(weights * values))
        for values in (measured.confidence, measured.accuracy)
    )
    error = measured.expected_error
    lean = "surer than it is right" if confidence > accuracy else "more modest than it need be"
    return (
        f"From bin to bin, how sure it is and how often it is right lie "
        f"**{100 * error:.1f} percentage points** apart (expected calibration error {error:.3f}). "
        f"On the whole it is {lean}: {confidence:.1f} % sure, {accuracy:.1f} % right."
    )


def tested_run(visit: Visit, found: Outcome) -> Run:
    """The weights that the test is of: the kept ones, or those of the chosen epoch."""
    kept = resources.open_run(visit.walk.run.path)
    return kept if found.epoch == kept.epoch else visit.walk.run


def temperature_words(measured: Reliability, found: Outcome, run: Run) -> str:
    """Whether a temperature made the run's probabilities honest, and what it did here."""
    if not run.calibrated_on:
        return (
            "These are the probabilities as training left them: no temperature was fitted to "
            "these weights."
        )
    if run.temperature == 1:
        return (
            f"These are the probabilities as training left them: on {run.calibrated_on:,} other "
            f"pictures kept out of training, no temperature was found that does better."
        )
    plain = calibration.unscaled(found.probabilities, run.temperature)
    now, without = (
        f"{reliability.expected_error:.3f}"
        for reliability in (measured, mistakes.reliability(found.labels, plain))
    )
    if without > now:
        effect = f"Without it, the expected calibration error would be {without} instead of {now}."
    elif without < now:
        effect = f"On these pictures that did not help: without it, the error would be {without}."
    else:
        effect = "Here it makes no difference: without it, the error would be the same."
    return (
        f"After training, all scores were divided by one number, the temperature "
        f"**{run.temperature:.3f}**, fitted on {run.calibrated_on:,} other pictures kept out of "
        f"training. {effect} Dividing keeps the order of the scores, so it changes no answer."
    )


def show_scores(names: tuple[str, ...], found: Outcome) -> None:
    """Precision, recall and F1 of each class, folded away."""
    scores = mistakes.class_scores(found.labels, found.probabilities)
    columns = (scores.count, scores.precision, scores.recall, scores.f1)
    head = "".join(f"<th scope=col>{title}</th>" for title in ("pictures", *SCORES))
    rows = "".join(
        f"<tr><th scope=row>{escape(name)}</th><td>{count:,}</td>"
        + "".join(f"<td>{'–' if np.isnan(share) else f'{100 * share:.1f}'}</td>" for share in row)
        + "</tr>"
        for name, count, *row in zip(names, *columns, strict=True)
    )
    with st.expander("Precision, recall and F1 of each class"):
        st.markdown(
            f"Precision reads down a column of the matrix: of all pictures given this name, the "
            f"share that deserve it. Recall reads along a row: of all that deserve it, the share "
            f"that got it. F1 is their harmonic mean, {100 * scores.macro_f1:.1f} % on average "
            f"over the classes."
        )
        st.html(
            f"<style>{_STYLE}</style><div class=scores><table>"
            f"<thead><tr><th scope=col>class</th>{head}</tr></thead>"
            f"<tbody>{rows}</tbody></table></div>"
        )
        st.caption(
            "The 95 % interval beside the accuracy (Wilson's) says how far chance in the choice "
            "of test pictures moves it."
        )


def show_changes(found: Outcome, run: Run) -> None:
    """How the same test did on changed pictures; nothing where that was not measured."""
    changes = _find_changes(found, run)
    if not changes:
        return
    st.subheader("How far to trust an unusual picture")
    words, chart = st.columns(2, gap="large")
    with words:
        st.markdown(
            f"All of the above holds for pictures like these. Here are the same "
            f"{len(found.labels):,}, changed, and tested again."
        )
        st.markdown(change_words(changes))
    with chart:
        labels = [CHANGES.get(name, (name,))[0] for name in changes]
        shares = [
            np.array([row[key] for row in changes.values()]) for key in ("accuracy", "confidence")
        ]
        figure = after_changes(labels, *shares, frame.palette())
        st.plotly_chart(figure, key="changes", config=QUIET)
        st.caption("The upright stroke is how sure it was on average.")


def _find_changes(found: Outcome, run: Run) -> Changes | None:
    stamps = [_stamp(run.path / name) for name in (runs.ROBUSTNESS, runs.MODEL)]
    stored = _read_changes(str(run.path), *stamps)
    fits = stored and (stored["epoch"], stored["fingerprint"]) == (found.epoch, found.fingerprint)
    return stored["changes"] if fits else None


def _stamp(file: Path) -> int:
    return file.stat().st_mtime_ns if file.exists() else 0


@st.cache_data(max_entries=32, show_spinner=False)
def _read_changes(path: str, *stamps: int) -> dict[str, Any] | None:
    try:
        return runs.read_robustness(path)
    except RunError as error:
        _log.warning("%s", error)
        return None


def change_words(changes: Changes) -> str:
    """What the worst change does, in a sentence."""
    plain = changes["none"]
    name, worst = min(
        ((name, row) for name, row in changes.items() if name != "none"),
        key=lambda pair: pair[1]["accuracy"],
    )
    how = CHANGES.get(name, (name, name))[1]
    before, after, sure = (
        100 * share for share in (plain["accuracy"], worst["accuracy"], worst["confidence"])
    )
    if before - after < 1:
        return (
            f"None of the changes costs it a point: even {how}, it names {after:.1f} % of them "
            f"rightly, where it was {before:.1f} %."
        )
    doubts = (
        f"and is still {sure:.1f} % sure on average: that it is sure says little about a picture "
        f"unlike those that it learned from."
        if sure - after > 10
        else f"and is {sure:.1f} % sure on average: it notices that it knows less."
    )
    return (
        f"Hardest for it is to see them {how}: it names **{after:.1f} %** of them rightly "
        f"instead of {before:.1f} %, {doubts}"
    )


def guess_about(visit: Visit, found: Outcome) -> tuple[str, str]:
    """A question about the visitor's own picture, and its answer from the held-out pictures."""
    probabilities = visit.walk.probabilities
    name = to_the_letter(visit.walk.run.class_names[probabilities.argmax()])
    sure = float(probabilities.max())
    question = (
        f"The model calls your picture **{name}**, {100 * sure:.1f} % sure. Of the held-out "
        f"pictures that it called {name}, how many really were {name}?"
    )
    called = found.said == probabilities.argmax()
    if not called.any():
        return question, f"None: it called no held-out picture {name}."
    right = int(found.right[called].sum())
    top = found.probabilities.max(1)
    alike = np.abs(top - sure) <= 0.05
    answer = (
        f"{right:,} of {called.sum():,}, which is **{100 * right / called.sum():.1f} %** (the "
        f"precision of this class: its column of the matrix, not its row)."
    )
    if alike.any():
        answer += (
            f" And of all {alike.sum():,} pictures on which it was about as sure as on yours "
            f"(within 5 points), {100 * found.right[alike].mean():.1f} % were named rightly."
        )
    return question, answer


def show_sixteen(visit: Visit, found: Outcome, split: Split) -> None:
    """Four by four held-out pictures; the URL's ``sixteen`` says which draw it is."""
    text = st.query_params.get("sixteen", "")
    seed = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
    indices = heldout.sixteen(len(split.labels), seed)

    def draw_again() -> None:
        st.query_params["sixteen"] = str(seed + 1)

    words, grid = st.columns(2, gap="large")
    with words:
        st.subheader("Sixteen that it has never seen")
        st.markdown(
            f"Drawn at random: {found.right[indices].sum()} of these {len(indices)} are named "
            f"rightly. The number is how sure it was. Click one to take it through the walk."
        )
        st.button("Another sixteen", on_click=draw_again, key="another-sixteen")
    with grid:
        heldout.show(
            found, indices, split, visit.walk.run, visit.view, key="sixteen-pictures", columns=4
        )
