"""Patches: from a square of the picture to a token, down to one dot product."""

import streamlit as st

from ui import embedding, frame, patch_views, state
from ui.words import token_name
from vit import by_hand
from vit.analysis import patches
from vit.model import PatchEmbed

with frame.page("Patches", "What is a token here?") as visit:
    view, config = visit.view, visit.walk.run.model_config
    grid, side = config.grid_size, config.patch_size
    longest, shortest, busiest, rank = patches.lengths(visit.walk.trace)
    patch = view.token - 1 if view.token else busiest.patch
    patch_views.style()

    st.markdown(
        f"Text comes in words; a picture does not. So the model cuts it into squares of {side} × "
        f"{side} pixels and calls each a token. Click one, or use the arrow keys: everything below "
        f"follows."
    )
    left, right = st.columns([11, 10], gap="large")
    with left:
        frame.shared_board(visit)
    with right:
        st.number_input(
            f"Token: 0 is [CLS], 1 to {config.num_patches} are patches",
            0,
            config.num_patches,
            step=1,
            **state.bound("token", view.token),
        )
        if view.token:
            patch_views.enlarged(embedding.raw_patch(visit, patch))
            st.caption(
                f"{token_name(view.token, grid)}, enlarged: some of the {config.image_size} × "
                f"{config.image_size} pixels that the model sees."
                + (" Point at one for its numbers." if side > patch_views.LEGIBLE else "")
            )
        else:
            embedding.cls_vector(visit)

    embedding.numbers(visit, patch)
    dimension = embedding.token(visit, patch)
    embedding.two_ways(visit, patch)
    embedding.filters(visit, dimension)
    embedding.positions(visit)
    embedding.cost(visit)

    frame.aside(
        f"Your tokenizer gives each piece of text an id, and an embedding table has a row for each "
        f"id. Of patches with {config.patch_dim} bytes there are $256^{{{config.patch_dim}}}$, a "
        f"number of {len(str(256**config.patch_dim))} digits: no table holds them, so a linear "
        f"layer computes the row. (A lookup is a linear layer too, on a one-hot vector.)"
    )
    frame.reveal(
        "longest",
        "Which patch of this picture becomes the longest token? Is it the busiest one, whose "
        "pixels differ most?",
        f"**{token_name(longest.patch + 1, grid)}**, of length {longest.length:.2f}; the shortest "
        f"is {token_name(shortest.patch + 1, grid)}, of {shortest.length:.2f}. The busiest is "
        f"{token_name(busiest.patch + 1, grid)}: number {rank} of {config.num_patches} by length.",
    )
    frame.the_code(by_hand.cut_patches, by_hand.flatten_patch, by_hand.linear, PatchEmbed)
    frame.next_step("Token shapes", "One patch is one row. Follow all of them through the model.")
