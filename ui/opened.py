"""Single numbers of the model, opened: the arithmetic step by step, with this picture's values."""

from collections.abc import Sequence

import numpy as np
import streamlit as st

from figures import attention as figures
from figures import terms
from figures.theme import Palette
from ui.frame import Visit
from ui.resources import Walk
from ui.words import plain, signed, to_the_letter, token_name
from vit.analysis import attention
from vit.analysis.attention import Weight
from vit.analysis.readout import Score

QUIET = {"displayModeBar": False}
ROWS = 4  # so many of the heaviest keys are listed


def weight(opened: Weight, layer: int, head: int, grid: int, palette: Palette) -> None:
    """One attention weight: products, sum, root, softmax, and what it fetches."""
    tokens, dims = len(opened.row), len(opened.q)
    query, key = token_name(opened.query, grid), token_name(opened.key, grid)
    name = f"blocks.{layer}.attn"

    st.markdown(
        f"**1. Compare.** A query and a key are {dims} numbers each. Multiply them one by one, "
        f"and add up: {dot_product(opened.products.numpy())} = **{plain(opened.dot)}**."
    )
    st.plotly_chart(
        terms.bars(
            opened.products.numpy(),
            [("q", opened.q.numpy()), ("k", opened.k.numpy())],
            "q × k",
            palette,
        ),
        key="products",
        config=QUIET,
    )
    st.caption(f"{name}.q[0, {head}, {opened.query}] × {name}.k[0, {head}, {opened.key}]")
    st.markdown(
        f"**2. Scale.** {plain(opened.dot)} / √{dims} = {plain(opened.dot)} / {dims**0.5:.3f} = "
        f"**{plain(opened.score)}**. Without the root, scores of long vectors would grow so far "
        f"apart that softmax hears a single key."
    )
    st.markdown(
        f"**3. Share out.** Softmax over the row: take away its largest score, "
        f"{plain(opened.scores.max().item())}; raise e to the rest; divide by the sum over all "
        f"{tokens} keys: {opened.exps[opened.key].item():.4f} / {opened.total:.4f} = "
        f"**{opened.weight:.4f}**."
    )
    st.markdown(_softmax_table(opened, grid))
    st.markdown(
        f"**4. Fetch.** The key's token hands over its value v, times {opened.weight:.4f}. Added "
        f"up over all {tokens} keys, that is z: what {query} takes home from this head, "
        f"{100 * opened.weight:.1f} % of it from {key}."
    )
    st.plotly_chart(
        figures.mixture(
            opened.v.numpy(), opened.weight, opened.z.numpy(), f"{name}.v, .z", palette
        ),
        key="mixture",
        config=QUIET,
    )


def by_hand_error(visit: Visit) -> float:
    """The largest difference of the visit's map from by hand, worked out once for all visitors."""
    view, run = visit.view, visit.walk.run
    which = (view.img, view.framing, str(run.path), run.epoch, id(run))
    return _by_hand_error(which, view.layer, view.head, visit.walk)


@st.cache_data(max_entries=256, show_spinner=False)
def _by_hand_error(which: tuple[object, ...], layer: int, head: int, _walk: Walk) -> float:
    return attention.by_hand_error(_walk.run.model, _walk.trace, layer, head)


def _softmax_table(opened: Weight, grid: int) -> str:
    """The heaviest keys and the opened one, each with its steps; the others together; the sum."""
    heaviest = opened.row.argsort(descending=True).tolist()
    listed = heaviest[:ROWS] + [opened.key] * (opened.key not in heaviest[:ROWS])
    rows = ["| key | score | exp(score − largest) | weight |", "|:--|--:|--:|--:|"]
    for j in listed:
        mark = "**" if j == opened.key else ""
        rows.append(
            f"| {mark}{token_name(j, grid)}{mark} | {plain(opened.scores[j].item())} "
            f"| {opened.exps[j].item():.4f} | {mark}{opened.row[j].item():.4f}{mark} |"
        )
    if others := len(heaviest) - len(listed):
        exps = opened.total - opened.exps[listed].sum().item()
        rows.append(f"| the other {others} | | {exps:.4f} | {exps / opened.total:.4f} |")
    rows.append(f"| all {len(heaviest)} | | {opened.total:.4f} | {opened.row.sum().item():.4f} |")
    return "\n".join(rows)


def logit(opened: Score, rival: Score, names: Sequence[str], palette: Palette) -> None:
    """The winner's logit as a dot product, and its lead over the runner-up's."""
    winner, second = map(to_the_letter, names)
    st.markdown(
        f"**{winner}** is a row of {len(opened.cls)} weights in the head. [CLS] times that row, "
        f"number by number, added up: {dot_product(opened.products.numpy())} = "
        f"{plain(opened.dot)}; and the class's bias, {signed(opened.bias)}, makes "
        f"**{plain(opened.logit)}**."
    )
    st.plotly_chart(
        terms.bars(
            opened.products.numpy(),
            [("cls_out", opened.cls.numpy()), ("weight", opened.weights.numpy())],
            "cls_out × weight",
            palette,
        ),
        key="logit",
        config=QUIET,
    )
    lead = opened.logit - rival.logit
    apart = (opened.products - rival.products).numpy()
    forward = np.argsort(-apart, kind="stable")[:3]
    st.markdown(
        f"**How sure?** The runner-up, **{second}**, has {plain(rival.logit)}: {plain(lead)} less. "
        f"e to that makes {winner} **{np.exp(lead):.2f} times** as likely. Most of the lead comes "
        f"from " + ", ".join(f"dimension {i} ({signed(apart[i])})" for i in forward.tolist()) + "."
    )


def dot_product(products: np.ndarray) -> str:
    """A sum of terms in words: the largest with their dimension, the others together."""
    named = terms.largest(products)
    text = " ".join(f"{signed(products[m])} (dimension {m})" for m in named.tolist())
    if others := len(products) - len(named):
        rest = np.delete(products, named).sum()
        text += f" {signed(rest)} (the other {others})"
    return text
