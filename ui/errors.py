"""The parts of the Confusion matrix page: which cell, which model's test, and what is said."""

import numpy as np
import streamlit as st

from ui import heldout, resources
from ui.frame import Visit
from ui.heldout import Outcome
from ui.matrix import Cell
from ui.words import to_the_letter
from vit import mistakes, published
from vit.data import Split
from vit.mistakes import Reliability

PER_PAGE = 16  # pictures of a cell shown at once


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
    found = heldout.outcome(run)
    if found:
        return found
    kept = heldout.kept_epoch(run.path)
    stand_in = heldout.outcome(resources.open_run(run.path)) if run.epoch != kept else None
    if stand_in:
        st.warning(
            f"What you see below is the model as it was kept, after epoch {kept}. Epoch "
            f"{run.epoch}, which you chose in the sidebar, has not been tested here yet."
        )
    else:
        st.info("This run has not been tested on held-out pictures yet.")
    split = heldout.find_pictures(run)
    if split is None:
        if not stand_in:
            heldout.offer_pictures(run)
    elif st.button(f"Test epoch {run.epoch} on {len(split.labels):,} pictures", key="test"):
        heldout.measure_now(run, split)
        st.rerun()
    return stand_in


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
