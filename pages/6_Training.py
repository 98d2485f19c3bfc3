"""Training: the curves of a finished run, what they say, and how to make the run again."""

import streamlit as st

from ui import frame, learning
from vit import train
from vit.progress import verdict
from vit.runs import list_epochs

with frame.page("Training", "How did it learn?") as visit:
    run = visit.walk.run
    rows = learning.rows_of(run)
    if rows:
        st.markdown(learning.opening_words(run, rows))
        st.markdown(f"**What the curves say.** {learning.judge(rows)}")
        learning.show_curves(visit, rows)
        st.caption(
            "Training accuracy is counted while the model learns, on pictures that may be shifted, "
            "mirrored or partly hidden, so it can lie below the others. Validation pictures are a "
            "part of the training set that is only looked at; they choose the weights to keep."
        )

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
