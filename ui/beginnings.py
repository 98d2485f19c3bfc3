"""How a token begins: a word's by looking it up, a patch's by multiplying. What order is worth."""

import math
from html import escape
from pathlib import Path

import numpy as np
import streamlit as st
import torch

from figures.theme import Palette
from ui.resources import Walk, data_uri
from ui.sidebar import bars
from ui.tour import patch_uri, strip
from ui.words import plain, signed, to_the_letter
from vit.analysis.jigsaw import shuffle_patches

SHUFFLES = 100

_STYLE = Path(__file__).with_suffix(".css").read_text("utf-8")


def show(walk: Walk, patch: int, palette: Palette) -> None:
    """Text and picture side by side, from the piece to its token, with this walk's numbers. The
    vocabulary is the model's own: its class names, each with its row of the last matrix.

    Args:
        patch: the patch's token, from 1.
    """
    config, model, trace = walk.run.model_config, walk.run.model, walk.trace
    answer = int(walk.probabilities.argmax())
    row = model.head.weight[answer].numpy()
    numbers = trace["patch_embed.flattened"][0, patch - 1].numpy()
    token = trace["patch_embed.projected"][0, patch - 1].numpy()
    names, width = walk.run.class_names, config.embed_dim
    digits = math.floor(config.patch_dim * math.log10(256))

    def listed(values: np.ndarray, decimals: int = 2) -> str:
        shown = ", ".join(signed(float(v), decimals) for v in values[:5])
        return f"<code>{shown}{', …' if len(values) > 5 else ''}</code>"

    def strip_of(values: np.ndarray, name: str) -> str:
        source = strip(values, palette.diverging)
        return f'<img class="strip" src="{source}" alt="{len(values)} numbers: {name}">'

    rows = [
        (
            "one piece",
            f'<span class="word">{escape(names[answer])}</span>',
            f'<img class="square" src="{patch_uri(walk, patch)}" alt="patch {patch}">patch {patch}',
        ),
        (
            "as numbers",
            f"<code>{answer}</code><br>its number among {len(names)} words",
            f"{strip_of(numbers, 'the patch')}{listed(numbers)}<br>its {len(numbers)} numbers",
        ),
        (
            "what is done",
            f"<b>look up</b> row {answer} of a table, {len(names)} × {width}",
            f"<b>multiply</b> by a matrix, {config.patch_dim} × {width}, and add {width} numbers",
        ),
        (
            "its vector",
            f"{strip_of(row, 'the row')}{listed(row)}<br>{width} numbers",
            f"{strip_of(token, 'the token')}{listed(token)}<br>{width} numbers",
        ),
        (
            "how many pieces can there be?",
            f"{len(names)} here, tens of thousands in a GPT: a table will do",
            f"256<sup>{config.patch_dim}</sup>, about 10<sup>{digits}</sup>: no table will do, and "
            "squares that look alike should get vectors that are alike",
        ),
    ]
    body = "".join(f'<tr><th scope="row">{a}</th><td>{b}</td><td>{c}</td></tr>' for a, b, c in rows)
    st.html(
        f"<style>{_STYLE}</style>"
        '<div class="beginnings"><table><thead><tr><th></th><th>text, as in a GPT</th>'
        f"<th>a picture, as in a ViT</th></tr></thead><tbody>{body}</tbody></table></div>"
    )
    st.caption(
        "This model has a table of words too, at its other end: its classes are the words, and "
        "`head.weight` holds a row for each. The patch's vector is `patch_embed.projected`, before "
        "its place is added."
    )


def jigsaw(walk: Walk) -> None:
    """What the model says when the patches lie in another order."""
    side, names = walk.run.model_config.patch_size, walk.run.class_names
    order = torch.cat([shuffle_patches(walk.x, side, seed) for seed in range(SHUFFLES)])
    with torch.inference_mode():
        probabilities = walk.run.model(order).softmax(-1).numpy()
    answer = int(walk.probabilities.argmax())
    still = int((probabilities.argmax(1) == answer).sum())
    st.markdown(
        f"In {SHUFFLES} random orders it says {to_the_letter(names[answer])} **{still} times**. "
        f"The probability of {to_the_letter(names[answer])} is "
        f"{plain(100 * float(probabilities[:, answer].mean()), 1)} % on average, where it was "
        f"{plain(100 * float(walk.probabilities[answer]), 1)} %. Attention itself knows no order: "
        "only the position that was added to each token tells the model where a patch lies. Here "
        "is the first of them."
    )
    shuffled = shuffle_patches(torch.tensor(walk.pixels).permute(2, 0, 1)[None], side)
    best = probabilities[0].argsort()[::-1][:3]
    st.html(
        '<div class="jigsaw"><figure>'
        f'<img src="{data_uri(shuffled[0].permute(1, 2, 0).numpy())}" alt="The patches shuffled">'
        f"</figure><div>{bars([names[i] for i in best], probabilities[0, best])}</div></div>"
    )
