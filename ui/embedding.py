"""From a patch to a token: its numbers, the linear layer, the learned places, and the price."""

import numpy as np
import streamlit as st
import torch

from figures import patches as figures
from ui import frame, patch_views
from ui.amounts import in_bytes, rounded
from ui.frame import Visit
from ui.opened import QUIET
from ui.words import plain, token_name
from vit import by_hand
from vit.analysis import patches

_ROUNDING = "Whatever is not 0 is rounding: the same sum, taken in another order."
SHOWN = 4  # so many numbers of a token are printed
PICTURE_SIDES = (32, 64, 96, 128, 224, 256, 384, 512)


def numbers(visit: Visit, patch: int) -> None:
    """A patch's numbers in their order, raw above normalised."""
    walk, run = visit.walk, visit.walk.run
    raw = raw_patch(visit, patch)
    normalised = walk.trace["patch_embed.patches"][0, patch].numpy()
    if visit.view.token:
        st.header(f"Its {raw.size} numbers, in order")
    else:
        st.header(f"{raw.size} numbers, in order")
        st.markdown(
            f"While nothing but [CLS] is chosen, the busiest patch of this picture is opened: "
            f"**{token_name(patch + 1, run.model_config.grid_size)}**."
        )
    st.markdown(
        f"Channel by channel, row by row. Each is brought to the scale the model learned on: "
        f"the first is ({raw[0, 0, 0]} / 255 − {run.mean[0]:.3f}) / {run.std[0]:.3f} = "
        f"**{plain(float(normalised[0, 0, 0]))}**."
    )
    patch_views.in_order(raw, normalised, frame.palette())
    st.caption(f"`patch_embed.flattened[0, {patch}]`")


def raw_patch(visit: Visit, patch: int) -> np.ndarray:
    """A patch of what the model sees, (C, P, P) uint8."""
    pixels = torch.tensor(visit.walk.pixels)
    return patches.raw_patch(pixels, visit.walk.run.model_config.patch_size, patch).numpy()


def token(visit: Visit, patch: int) -> int:
    """The patch's token, and one number of it opened; returns which."""
    model, trace, palette = visit.walk.run.model, visit.walk.trace, frame.palette()
    config = model.config
    st.header(f"{config.patch_dim} numbers become {config.embed_dim}")
    left, right = st.columns([2, 1], gap="large", vertical_alignment="bottom")
    left.markdown(
        f"This is the token: {config.embed_dim} numbers, each a weighted sum of all "
        f"{config.patch_dim}. Choose one, and it opens."
    )
    dimension = right.number_input(
        f"Dimension, 0 to {config.embed_dim - 1}",
        0,
        config.embed_dim - 1,
        key=f"dimension-{config.embed_dim}",
        persist_state="session",
    )
    vector = trace["patch_embed.projected"][0, patch].numpy()
    tensor = f"patch_embed.projected[0, {patch}"
    st.plotly_chart(
        figures.token(vector, f"{tensor}]", palette, dimension), key="token", config=QUIET
    )
    opened = patches.open_dot_product(trace, model, patch, dimension)
    left, right = st.columns([11, 10], gap="large")
    with left:
        patch_views.equation(opened, config.in_chans, dimension, palette)
    with right:
        patch_views.largest(opened, config.in_chans)
    st.caption(
        f"The forward pass recorded {plain(opened.recorded, 6)} as `{tensor}, {dimension}]`; this "
        f"sum is {plain(opened.total, 6)}, {_apart(abs(opened.total - opened.recorded))} apart. "
        f"{_ROUNDING}"
    )
    return dimension


def cls_vector(visit: Visit) -> None:
    """What [CLS] starts as."""
    model = visit.walk.run.model
    st.markdown(
        "**[CLS] has no pixels.** It stands outside the picture and starts as the same learned "
        "vector for every picture, here below. What it knows in the end, it has heard from the "
        "patches."
    )
    figure = figures.token(model.cls_token[0, 0].numpy(), "cls_token[0, 0]", frame.palette())
    st.plotly_chart(figure, key="cls-token", config=QUIET)


def two_ways(visit: Visit, patch: int) -> None:
    """Flatten and multiply beside ``nn.Conv2d``, and how far apart they are."""
    walk, model = visit.walk, visit.walk.run.model
    layer, grid = model.patch_embed.proj, model.config.grid_size
    flattened = walk.trace["patch_embed.projected"][0]
    convolved = patches.convolve(model, walk.x)[0]
    weight = layer.weight.flatten(1)
    square = walk.trace["patch_embed.patches"][0, patch]
    slow = by_hand.linear(by_hand.flatten_patch(square), weight, layer.bias)
    row, column = divmod(patch, grid)

    st.header("The same thing, as a convolution")
    st.markdown(
        "Papers and libraries write this step as a convolution whose stride is as long as its "
        "kernel. It looks different; it is the same sum, with the same weight."
    )
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown(f"**Flatten + Linear({weight.shape[1]}, {weight.shape[0]})**, by hand")
        st.code(
            "patch = flatten_patch(cut_patches(image, "
            f"{model.config.patch_size})[{patch}])\nlinear(patch, weight.flatten(1), bias)\n"
            f"# {_first(slow)}"
        )
    with right:
        st.markdown("**nn.Conv2d**, PyTorch's own")
        st.code(f"# {layer}\nconv(images)[0, :, {row}, {column}]\n# {_first(convolved[patch])}")
    st.markdown(
        f"Over all {flattened.numel():,} numbers of this picture's {len(flattened)} tokens, the "
        f"largest difference is **{_apart(_largest(convolved, flattened))}**; between the "
        f"convolution and the sum by hand, for this patch, "
        f"{_apart(_largest(convolved[patch], slow))}. {_ROUNDING}"
    )


def _first(values: torch.Tensor) -> str:
    return ", ".join(plain(value, 4) for value in values[:SHOWN].tolist()) + ", …"


def _apart(difference: float) -> str:
    return f"{difference:.1e}" if difference else "0"


def _largest(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


def filters(visit: Visit, chosen: int) -> None:
    """The rows of the weight as pictures."""
    model, palette = visit.walk.run.model, frame.palette()
    config = model.config
    st.header(f"{config.embed_dim} learned filters")
    left, right = st.columns([2, 1], gap="large")
    with left:
        patch_views.filters(patches.filter_pictures(model).numpy(), chosen, palette)
        st.caption("`patch_embed.proj.weight`, one row of it a square, in reading order")
    with right:
        size = model.patch_embed.proj.weight.abs().flatten(1).amax(1)
        st.markdown(
            f"Each number of a token asks one question of the square: how much do you look like "
            f"this? The {config.patch_dim} weights of a question make a picture as large as a "
            f"patch. Middle grey is 0, and each picture is scaled by its own largest weight."
        )
        st.markdown(
            f"Framed is filter {chosen}; its largest weight is {plain(float(size[chosen]))}. "
            f"Among all, the largest weights run from {plain(float(size.min()))} to "
            f"{plain(float(size.max()))}."
        )


def positions(visit: Visit) -> None:
    """How alike the learned places are, as a board."""
    model, view = visit.walk.run.model, visit.view
    grid = model.config.grid_size
    st.header("Where was this patch?")
    text = st.empty()
    centred = st.toggle(
        "Without what all places have in common", value=True, key="centred", persist_state="session"
    )
    similarity = patches.position_similarity(model, centred)
    others = similarity[view.token].clone()
    others[view.token] = -2
    others[0] = -2  # [CLS] has no place in the picture
    nearest = int(others.argmax())
    likest = (
        f"Likest to **{token_name(view.token, grid)}** is **{token_name(nearest, grid)}**"
        if view.token
        else f"[CLS] has such a vector too, but no place: likest is {token_name(nearest, grid)}"
    )
    text.markdown(
        f"Cut apart, the squares have lost their places. So each token is given a learned vector "
        f"of its own. Nobody told the model what is next to what; see what it found out. {likest}, "
        f"with a cosine of {plain(float(others[nearest]))}."
    )
    frame.shared_board(
        visit,
        key="positions",
        maps=similarity[None, None].numpy(),
        parts=("picture", "matrix"),
        scale="diverging",
        value_name="cosine similarity",
        tensor_name="pos_embed[0] − mean of the patches" if centred else "pos_embed[0]",
        row_label="token",
        column_label="token",
        layer=0,
        head=0,
    )


def cost(visit: Visit) -> None:
    """What smaller patches, or larger pictures, would cost."""
    st.header("Why not one token for each pixel?")
    small, large = patches.token_cost(32, 1), patches.token_cost(224, 1)
    st.markdown(
        f"Because every token looks at every token. A picture of {small.image_size} × "
        f"{small.image_size} pixels would have {small.patches:,} patches of one pixel; one of "
        f"{large.image_size} × {large.image_size} has **{large.patches:,}**, and with [CLS] "
        f"**{rounded(large.pairs)} pairs** to score in each head of each layer. Halve the side of "
        f"a patch: four times the tokens, sixteen times the pairs."
    )
    config, palette = visit.walk.run.model_config, frame.palette()

    @st.fragment
    def draw() -> None:
        _sliders(config.image_size, config.patch_size, config.in_chans, palette)

    draw()


def _sliders(image_size: int, patch_size: int, channels: int, palette: frame.Palette) -> None:
    left, right = st.columns(2, gap="large")
    sides = sorted({*PICTURE_SIDES, image_size})
    side = left.select_slider(
        "Side of the picture, in pixels",
        sides,
        value=image_size,
        key=f"cost-image-{image_size}",
        persist_state="session",
    )
    fitting = patches.patch_sizes(side)
    patch = right.select_slider(
        "Side of a patch, in pixels",
        fitting,
        value=patch_size if patch_size in fitting else fitting[len(fitting) // 2],
        key=f"cost-patch-{side}-{patch_size}",
        persist_state="session",
    )
    all_costs = [patches.token_cost(side, fits) for fits in fitting]
    now = all_costs[fitting.index(patch)]
    st.markdown(
        f"({side} / {patch})² = **{now.patches:,} patches**; with [CLS], N = **{now.tokens:,} "
        f"tokens** of {channels * patch**2:,} numbers each; N² = **{now.pairs:,} pairs** "
        f"in each head of each layer, or {in_bytes(4 * now.pairs)} of attention in 32-bit numbers."
    )
    left, right = st.columns([11, 10], gap="large")
    with left:
        st.plotly_chart(
            figures.cost(
                np.array(fitting),
                np.array([c.tokens for c in all_costs]),
                np.array([c.pairs for c in all_costs]),
                fitting.index(patch),
                palette,
            ),
            key="cost",
            config=QUIET,
        )
    with right:
        rows = ["| patch | patches | tokens N | pairs N² |", "|--:|--:|--:|--:|"]
        for c in all_costs:
            cells = [
                f"{c.patch_size} × {c.patch_size}",
                f"{c.patches:,}",
                f"{c.tokens:,}",
                rounded(c.pairs),
            ]
            bold = "**" if c.patch_size == patch else ""
            rows.append("| " + " | ".join(f"{bold}{cell}{bold}" for cell in cells) + " |")
        st.markdown("\n".join(rows))
