"""[CLS] readout: what one token gathers, layer by layer, until it answers."""

import numpy as np
import streamlit as st

from figures import readout as figures
from ui import focus, frame, opened, ranking, room
from ui.words import to_the_letter
from vit.analysis import attention, readout

with frame.page("[CLS] readout", "What does [CLS] hear?") as visit:
    view, walk = visit.view, visit.walk
    run, config, palette = walk.run, walk.run.model_config, frame.palette()
    grid, patches, depth, names = (
        config.grid_size,
        config.num_patches,
        config.depth,
        run.class_names,
    )
    from_cls = attention.patterns(walk.trace)[:, :, 0].numpy()  # L H N
    by_layer = readout.cls_by_layer(run.model, walk.trace)
    winner, second = (by_layer[-1].argsort(descending=True)[:2]).tolist()

    st.markdown(
        f"Picture a room of {patches} people. Each saw one square of a photo, no more. A "
        f"listener, who saw nothing, hears them all for {config.depth} "
        f"round{'s' * (config.depth > 1)} of talk, a layer each, and then names the photo. The "
        f"listener is [CLS]."
    )
    scale = focus.inputs(visit, "layer", "head").segmented_control(
        "Strongest colour", ["of all layers", "of each layer"], default="of all layers", key="scale"
    )
    one_scale = scale != "of each layer"
    st.markdown("**All heads**: whom the listener turns to in each layer, their mean.")
    name = "blocks.*.attn.pattern"
    room.listening(visit, from_cls.mean(1), f"{name}[0, :, 0, 1:].mean(0)", one_scale)
    st.markdown(
        f"**Head {view.head}** alone. Spread evenly, every token would get 1/N = "
        f"{1 / config.num_tokens:.4f}."
    )
    room.listening(visit, from_cls[:, view.head], f"{name}[0, {view.head}, 0, 1:]", one_scale)

    st.header("If it had to answer now")
    st.markdown(
        "Stop after any layer, and give [CLS] as it is to the final norm and the head: the logit "
        "lens. Before the first layer it is the same for every picture."
    )
    probabilities = by_layer.softmax(-1).numpy()
    classes = figures.shown_classes(probabilities)
    figure = figures.by_layer(probabilities[:, classes], [names[c] for c in classes], palette)
    st.plotly_chart(figure, key="by-layer", config=opened.QUIET)
    since = readout.settled_after(by_layer)
    apart = attention.largest_difference(by_layer[-1], walk.trace["logits"][0])
    left_out = config.num_classes - len(classes)
    st.markdown(
        f"**{to_the_letter(names[winner])}** leads "
        + ("from the very start" if since == 0 else f"from layer {since - 1} on")
        + ", and keeps the lead."
    )
    st.caption(
        "The last column is the model's own answer: the logits differ "
        + (f"by at most {apart:.1e}." if apart else "not at all.")
        + (f" {left_out} classes are left out." if left_out else "")
    )

    st.header("What each patch would say")
    st.markdown(
        "The same lens on the people in the room. Each square's word is the class that its token "
        "finds likeliest; the colour is how likely it finds the class chosen here. Nobody taught "
        "them to answer: only [CLS] was ever graded."
    )
    picked = st.selectbox(
        "Class",
        range(len(names)),
        index=winner,
        width=300,
        format_func=lambda c: names[c],
        key=f"class-{view.img}-{view.framing}-{view.run}-{view.epoch}",
    )
    opinions = readout.patches_by_layer(run.model, walk.trace).softmax(-1).numpy()  # L+1 n K
    room.opinions(visit, opinions, picked)

    st.header("The answer")
    st.markdown("e to each logit, divided by the sum of them all:")
    ranking.show(names, walk.logits, walk.probabilities)
    st.subheader("The head, opened")
    opened.logit(
        readout.open_logit(run.model, walk.trace, winner),
        readout.open_logit(run.model, walk.trace, second),
        (names[winner], names[second]),
        palette,
    )

    frame.aside(
        "A GPT reads its next word off the last token, which the mask lets see everything before "
        "it. Without a mask any token would do; [CLS] is one with no square of its own to speak "
        "for. Index 0 is a convention. Averaging the patches instead works as well, if it is "
        "trained so."
    )
    votes = np.bincount(opinions[-1].argmax(-1), minlength=len(names))
    elected = int(votes.argmax())
    pooled = readout.patch_mean(run.model, walk.trace).softmax(-1)
    frame.reveal(
        "vote",
        f"After the last layer the {patches} patches vote. Do they elect what [CLS] says, "
        f"{to_the_letter(names[winner])}?",
        f"{'Yes' if elected == winner else 'No'}: {votes[elected]} of {patches} say "
        f"**{to_the_letter(names[elected])}**, and {votes[winner]} side with [CLS]. The mean of "
        f"their vectors, through the same head, gives {to_the_letter(names[int(pooled.argmax())])} "
        f"{pooled.max().item():.4f}.",
        guesses=("Yes", "No"),
    )
    frame.the_code(readout.lens, readout.cls_by_layer, readout.patches_by_layer, readout.open_logit)
    frame.next_step("Confusion matrix", "One picture is an anecdote. How does it do on 10,000?")
