"""Confusion matrix: which classes the model takes for which others, picture by picture."""

import streamlit as st

from figures.confusion import per_class
from figures.reliability import reliability
from ui import errors, frame, heldout, matrix
from ui.frame import Visit
from ui.heldout import Outcome
from ui.opened import QUIET
from vit import calibration, mistakes


def show(visit: Visit, found: Outcome) -> None:
    """The page, for a model that has been tested."""
    names = visit.walk.run.class_names
    counts = mistakes.confusion_matrix(found.labels, found.probabilities)
    accuracy = mistakes.row_shares(counts).diagonal()
    cell = errors.chosen_cell(counts)
    theirs = errors.comparable(names, counts)
    low, high = mistakes.wilson_interval(int(found.right.sum()), len(found.right))
    st.markdown(
        f"Here are {len(found.labels):,} pictures that it never saw in training. It names "
        f"**{100 * found.right.mean():.2f} %** of them rightly (95 % interval "
        f"{100 * low:.1f}–{100 * high:.1f} %). A row is what a picture shows, a column what the "
        f"model said, so every count off the diagonal is a mistake. Choose one."
    )
    matrix.matrix(
        counts,
        names,
        key="matrix",
        cell=cell,
        title=f"{visit.walk.run.name}, epoch {found.epoch}",
        published=theirs,
        on_change=lambda: errors.choose_cell(matrix.chosen("matrix")),
    )
    if theirs:
        st.caption(f"{theirs[0]}: {errors.published.C.source}.")

    split = heldout.find_pictures(visit.walk.run)
    fits = split is not None and split.fingerprint == found.fingerprint
    with st.container(key="cell"):
        st.subheader("The pictures behind a number")
        if fits:
            errors.show_cell(visit, found, split, cell)
        elif split is None:
            heldout.offer_pictures(visit.walk.run)
        else:
            st.info(
                "The test pictures on this machine are not those that the model was tested on, "
                "so they are not shown."
            )

    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("What it confuses most")
        with st.container(gap=None, key="confusions"):
            errors.list_confusions(names, counts, cell)
    with right:
        st.subheader("Each class, worst to best")
        beside = (theirs[0], mistakes.row_shares(theirs[1]).diagonal()) if theirs else None
        figure = per_class(names, accuracy, frame.palette(), beside)
        st.plotly_chart(figure, key="per-class", config=QUIET)
        if beside:
            st.caption(f"The upright stroke is {beside[0]}.")
    errors.show_scores(names, found)

    st.subheader("Is it as sure as it is right?")
    measured = mistakes.reliability(found.labels, found.probabilities)
    tested = errors.tested_run(visit, found)
    words, diagram = st.columns(2, gap="large")
    with words:
        st.markdown(errors.calibration_words(measured))
        st.markdown(errors.temperature_words(measured, found, tested))
        st.markdown(
            "Each bar gathers the pictures on which the model was about equally sure. If 80 % sure "
            "meant right in 80 % of the cases, every bar would end on the dotted line."
        )
        st.latex(r"\mathrm{ECE} = \sum_b \tfrac{n_b}{n}\,|\mathrm{right}_b - \mathrm{sure}_b|")
    with diagram:
        figure = reliability(
            measured.edges, measured.count, measured.confidence, measured.accuracy, frame.palette()
        )
        st.plotly_chart(figure, key="reliability", config=QUIET)

    errors.show_changes(found, tested)
    if fits:
        errors.show_sixteen(visit, found, split)

    guesses = ["under half", "half to 80 %", "more than 80 %"]
    frame.reveal("precision", *errors.guess_about(visit, found), guesses)


with frame.page("Confusion matrix", "Where does it go wrong?") as visit:
    found = errors.find_test(visit)
    if found:
        show(visit, found)
    frame.aside(
        "A GPT has a confusion matrix too: at every position it bets on one of some 50,000 tokens. "
        "Nobody prints that table; perplexity sums it up. With ten classes you can read every "
        "entry. The softmax, and whether its probabilities can be trusted, are the same."
    )
    frame.the_code(
        *(mistakes.confusion_matrix, mistakes.top_confusions, mistakes.reliability),
        calibration.fit_temperature,
    )
    frame.next_step("Training", "How did it get here? See it learn, epoch by epoch.")
