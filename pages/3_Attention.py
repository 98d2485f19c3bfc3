"""Attention: who looks at whom, down to one weight, and through all layers."""

import streamlit as st

from figures import attention as figures
from ui import focus, frame, opened, room
from ui.words import token_name
from vit import by_hand
from vit.analysis import attention
from vit.analysis.rollout import rollout

with frame.page("Attention", "Who looks at whom?") as visit:
    view, walk = visit.view, visit.walk
    config, trace, palette = walk.run.model_config, walk.trace, frame.palette()
    grid, tokens = config.grid_size, config.num_tokens
    maps = attention.patterns(trace)
    chosen_token = token_name(view.token, grid)

    st.markdown(
        f"Until here, a token knows only its own square. Now they talk. Each asks a question, its "
        f"query, of all {tokens} tokens; each of those holds up a key; the better they fit, the "
        f"more is fetched. Click a patch to see where it looks."
    )
    focus.inputs(visit, "token", "layer", "head")
    choice = frame.shared_board(visit, maps=maps.numpy())
    st.markdown(
        "A map of attention tells where information is **fetched from**. It is not an explanation "
        "of the answer: what was looked at may have changed nothing."
    )

    st.header("One weight, opened")
    row = maps[view.layer, view.head, view.token]
    clicked = choice.pair is not None and view.token in choice.pair
    query, key = choice.pair if clicked else (view.token, int(row.argmax()))
    st.html(
        f'<p style="font-size: 1.1rem">How much does <b style="color: {palette.query}">'
        f'{token_name(query, grid)}</b> fetch from <b style="color: {palette.key}">'
        f"{token_name(key, grid)}</b>, in layer {view.layer}, head {view.head}? "
        f"{'Your choice.' if clicked else 'Its strongest key; click the matrix for another.'}</p>"
    )
    weight = attention.open_weight(trace, view.layer, view.head, query, key)
    opened.weight(weight, view.layer, view.head, grid, palette)
    by_hand_too = st.toggle(
        "Check against the slow way: the whole head again, one dot product at a time",
        value=tokens <= 100,
        key="by-hand",
    )
    difference = f"The model's own row differs from these steps by at most {weight.row_error:.1e}"
    if by_hand_too:
        error = opened.by_hand_error(visit)
        difference += f", and its whole map from `by_hand.attention_head` by at most {error:.1e}"
    st.caption(f"{difference}: rounding in 32 bits.")

    st.header("Through all layers: rollout")
    st.markdown(
        "One map is one hop. What a token holds at the end has come by many: layer on layer, half "
        "by attention (the mean of the heads), half by the residual connection that carries the "
        "token itself on. Multiply the layers, and you have attention rollout."
    )
    room.rolled_out(visit, rollout(maps)[-1].numpy())
    st.caption(
        "A_l = 0.5 · mean of the heads + 0.5 · I, multiplied from the first layer to the last. "
        "Abnar & Zuidema, arXiv 2005.00928."
    )

    st.header("How far does a head look?")
    far = attention.mean_distance(maps, grid).numpy()
    here, even = float(far[view.layer, view.head]), attention.even_distance(grid)
    st.markdown(
        f"A convolution sees its neighbours only. A head may look next door or across the "
        f"picture, from the first layer on. Head {view.head} of layer {view.layer} looks "
        f"**{here:.2f} patches** far, or {here * config.patch_size:.1f} pixels; one that looked "
        f"everywhere alike, the dotted line, {even:.2f}."
    )
    figure = figures.distances(far, even, config.patch_size, view.layer, view.head, palette)
    st.plotly_chart(figure, key="distances", config=opened.QUIET)
    st.caption(
        "From centre to centre, weighted by attention, averaged over all patches; [CLS] has no "
        "place in the picture and is left out, as query and as key, the rest scaled to sum to 1. "
        "After figure 7 of Dosovitskiy et al., arXiv 2010.11929."
    )

    frame.aside(
        "The arithmetic is yours, softmax(q kᵀ / √d) v, minus the causal mask: there is no future "
        "to hide, so every row reaches all keys. And all tokens ask in every layer, while a "
        "KV cache lets only the newest one. Order comes from the position embeddings alone."
    )
    half, few, some = attention.keys_for_share(row, 0.5), -(-tokens // 12), -(-tokens // 4)
    frame.reveal(
        f"half-{view.layer}-{view.head}-{view.token}",
        f"{chosen_token} has {tokens} keys in layer {view.layer}, head {view.head}. How many, the "
        f"heaviest first, hold half of its attention?",
        f"**{half}** of {tokens}. Spread evenly it would take {(tokens + 1) // 2}.",
        guesses=(f"up to {few}", f"{few + 1} to {some}", f"more than {some}"),
    )
    frame.the_code(by_hand.attention_head, attention.open_weight, rollout, attention.mean_distance)
    frame.next_step("[CLS] readout", "One token listens for all the others. What does it hear?")
