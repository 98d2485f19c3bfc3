"""Token shapes: the forward pass as a table, and the same for any model that might be."""

import streamlit as st

from ui import frame, shape_table, what_if
from ui.amounts import rounded
from ui.resources import Walk
from vit.analysis import shapes
from vit.analysis.shapes import ShapeTrace
from vit.hooks import HookPoint
from vit.model import VisionTransformer
from vit.recipes import system_a_cosine, system_b, system_c

BATCHES = [2**power for power in range(11)]


@st.cache_data(max_entries=32, show_spinner=False)
def live(run: str, epoch: int, identity: int, _walk: Walk) -> ShapeTrace:
    """The pass of a picture through a loaded model; every other's has the same shapes."""
    return shapes.trace_shapes(_walk.run.model, _walk.x)


with frame.page("Token shapes", "Where do the shapes change?") as visit:
    view, run = visit.view, visit.walk.run
    config = run.model_config
    trace = live(str(run.path), run.epoch, id(run), visit.walk)
    widened, joined, left_alone = trace.turns
    shape_table.style()

    st.markdown(
        f"In three places, and nowhere else. {widened.before} numbers become {widened.after}: the "
        f"only step that changes how much a token holds. {joined.before} tokens become "
        f"{joined.after}, once. Then the shape is frozen through all {config.depth} blocks, until "
        f"[CLS] goes on alone."
    )
    left, right = st.columns(2, gap="large")
    batch = left.select_slider("Pictures at once, B", BATCHES, key="batch", persist_state="session")
    names = [f"block {index}" for index in range(config.depth)]
    which = right.selectbox(
        f"Open one of the {config.depth} blocks",
        ["none", *names],
        index=view.layer + 1,
        key=f"open-{view.run}",
    )
    opened = names.index(which) if which in names else None
    shape_table.steps(trace.for_batch(batch), opened, "The forward pass, step by step")
    st.caption(
        "Traced from a pass of this very model: shapes, counts and lines are read off as it runs. "
        + shape_table.legend()
        + ". Multiply-adds are those of the linear layers "
        "and of attention's two matrix products."
    )
    share = 100 * trace.skipped / trace.multiply_adds
    st.markdown(
        f"**What nobody reads.** The head reads [CLS] alone, so in the last block the patches' "
        f"queries, their projection and their MLP serve no one, and the model skips them: "
        f"{rounded(trace.multiply_adds_unrecorded)} multiply-adds for a picture instead of "
        f"{rounded(trace.multiply_adds)}, **{share:.1f} % saved**. While these pages record, it "
        f"does it all, so that every map is there. [CLS] comes out the same."
    )

    st.header("What if?")
    st.markdown(
        "Change a number, and the whole table is traced again, on shapes without weights. Try a "
        "patch of one pixel; try values that do not fit."
    )
    presets = {
        what_if.THIS: config,
        "System A": system_a_cosine().model,
        "System B": system_b().model,
        "System C": system_c().model,
        **shapes.PUBLISHED,
    }
    what_if.section(presets, batch)

    frame.aside(
        "Your shapes are (B, T, D) too, and frozen in the same way. Two things differ: T is the "
        "same for every picture, so nothing is padded; and a KV cache has no use here, since "
        "nothing is generated one by one. What can be skipped is the last block's share above."
    )
    block = {step.label: step.multiply_adds for step in trace.block(0)}
    pairs = block["attn.attn_scores"] + block["attn.z"]
    mlp = block["mlp.hidden"] + block["mlp_out"]
    frame.reveal(
        "quadratic",
        f"Attention's pairs grow as N². With N = {config.num_tokens}, which does more "
        f"multiply-adds in a block?",
        f"The MLP's two layers do **{mlp:,}**; scores and mixture, all pairs together, **{pairs:,}"
        f"**: {pairs / mlp:.2f} times as many. They would be even at "
        f"N = {config.num_tokens * mlp / pairs:,.0f}.",
        guesses=("the pairs", "the MLP"),
    )
    frame.the_code(VisionTransformer.forward, HookPoint, shapes.trace_shapes)
    frame.next_step("Attention", "One step in there mixes the tokens. See who looks at whom.")
