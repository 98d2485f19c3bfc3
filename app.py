"""The start page: what a token is when the input is a picture."""

import numpy as np
import streamlit as st

from ui import beginnings, frame
from ui.tour import Stage, strongest_patch, tour
from ui.words import to_the_letter
from vit import by_hand
from vit.model import PatchEmbed, count_parameters

with frame.page("Start", "What is a token, when the input is a picture?") as visit:
    view, walk = visit.view, visit.walk
    config = walk.run.model_config
    size, side, n, width = (
        config.image_size,
        config.patch_size,
        config.num_patches,
        config.embed_dim,
    )
    colours = "red, green and blue" if config.in_chans == 3 else "the brightness"
    parameters = count_parameters(walk.run.model)

    st.markdown(
        "A GPT reads words: each is looked up in a table, and the row it finds is the token. A "
        "picture has no words. So a Vision Transformer cuts it into squares and makes a token of "
        "each. Here is your picture on its way through one. **Point at a patch, or click a stage "
        "to open it.**"
    )

    tour(
        [
            Stage(
                "picture",
                "A picture",
                f"{size} × {size} × {config.in_chans}",
                f"All that the model gets: {walk.x.numel():,} numbers, {colours} of each pixel.",
                "Patches",
            ),
            Stage(
                "patches",
                "Cut into squares",
                f"{n} × {side} × {side} × {config.in_chans}",
                f"{n} patches of {side} × {side} pixels, counted like words on a page.",
                "Patches",
            ),
            Stage(
                "numbers",
                "Laid flat",
                f"patch_embed.flattened · {n} × {config.patch_dim}",
                f"A patch is a list of {config.patch_dim} numbers, brought to a common scale.",
                "Patches",
            ),
            Stage(
                "tokens",
                "Made into tokens",
                f"pos_added · {config.num_tokens} × {width}",
                f"One linear layer turns {config.patch_dim} numbers into {width}. [CLS] joins, and "
                "each gets its place added.",
                "Token shapes",
            ),
            Stage(
                "attention",
                "They look at each other",
                f"blocks.{view.layer}.attn.pattern[0, {view.head}]",
                f"{config.depth} times over, each token fetches from others what it needs.",
                "Attention",
            ),
            Stage(
                "cls",
                "One of them listens",
                f"resid_post[0, 0] · {config.depth + 1} × {width}",
                f"[CLS] at the start and after each of {config.depth} blocks. Only its last row is "
                "read.",
                "[CLS] readout",
            ),
            Stage(
                "answer",
                "And answers",
                f"logits.softmax · {config.num_classes}",
                "How sure it is, for each class that it knows. How often is it right?",
                "Confusion matrix",
            ),
            Stage(
                "filters",
                "All of it learned",
                f"patch_embed.proj.weight · {width} × {config.patch_dim}",
                f"{parameters:,} numbers, none set by hand. These {width} little pictures are "
                "what each patch is compared with.",
                "Training",
            ),
        ],
        view,
        walk,
        key="tour",
        address=frame.address,
        on_open=lambda page, token: frame.go(page, token=token),
    )

    st.header("A word and a square", anchor=False)
    patch = view.token or strongest_patch(walk)
    beginnings.show(walk, patch, frame.palette())

    frame.aside(
        "Then you know most of this: from the first block on, it is the same transformer, without "
        "the causal mask. New are only the first step (a linear layer where you had an embedding "
        "table) and the last (one answer for the whole picture, read from [CLS])."
    )
    answer = to_the_letter(walk.run.class_names[int(np.argmax(walk.probabilities))])
    frame.reveal(
        "jigsaw",
        f"Throw the {n} patches on a table like a jigsaw and lay them out at random. Same patches, "
        f"same numbers. Will the model still say {answer}?",
        lambda: beginnings.jigsaw(walk),
        guesses=("Yes", "No"),
    )
    frame.the_code(by_hand.patch_embed, by_hand.flatten_patch, PatchEmbed)
    frame.next_step(
        "Patches", "First, the squares: what is in one, and what does the model make of it?"
    )
