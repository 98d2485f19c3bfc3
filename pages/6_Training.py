"""Training: how the model at hand learned; a run of one's own, watched; runs side by side."""

import streamlit as st

from ui import frame, learning, live, new_run, run_list, workshop
from vit import jobs, train
from vit.progress import happening, verdict
from vit.runs import list_epochs

INTRODUCTIONS = {
    "watch": "Each number here is read from the run's own files, which a process beside the app "
    "writes. Leave, close the browser, come back: it trains on.",
    "new": "Choose pictures, a recipe, and what to change in it. Below is what will come of it: "
    "the model's size, the time it takes here, and what it will be shown.",
    "runs": "One run trains at a time, the others wait. Choose one to act on it; tick several to "
    "compare them.",
}


def this_model(visit: frame.Visit) -> None:
    """The curves of the model in the sidebar, what they say, and how to make it again."""
    run = visit.walk.run
    rows = learning.rows_of(run)
    if rows:
        st.markdown(learning.opening_words(run, rows))
        st.markdown(f"**What the curves say.** {learning.judge(rows)}")
        learning.show_curves(visit, rows)

    if epochs := list_epochs(run.path):
        st.subheader("Open it as it was")
        st.markdown("Each link leads to Attention, with the model as it was after that epoch.")
        learning.show_snapshots(visit, epochs, rows)

    st.subheader("How it was made")
    learning.show_settings(run.config)

    frame.aside(
        "This is the loss you know: cross-entropy in nats, here over classes instead of tokens, "
        "one per picture instead of one per position. Guessing costs ln(number of classes). A GPT "
        "sees most of its text once; a small ViT sees the same pictures again and again, so it "
        "can learn them by heart, and the gap between the curves is what to watch."
    )
    if epochs:
        learning.reveal_settling(visit, epochs)
    frame.the_code(train.train, train.learning_rate_factor, verdict)
    frame.next_step("Start", "That was the walk. Take another picture through it.")


with frame.page("Training", "How did it learn?") as visit:
    view = workshop.choose_view()
    if view != "model":
        st.markdown(INTRODUCTIONS[view])
    if view == "model":
        this_model(visit)
    elif view == "watch":
        live.show(workshop.job())
        frame.the_code(train.train, happening)
    elif view == "new":
        new_run.show()
        frame.the_code(train.train, train.learning_rate_factor)
    else:
        run_list.show()
        frame.the_code(jobs.look, jobs.keep_going)
