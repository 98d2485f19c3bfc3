"""[CLS] and the patches as pictures: whom it listens to, and what each patch would say."""

import numpy as np
from numpy.typing import NDArray

from ui import frame, overlays
from ui.frame import Visit
from ui.words import token_name

Floats = NDArray[np.float32]


def listening(visit: Visit, weights: Floats, tensor: str, one_scale: bool) -> None:
    """[CLS]'s attention ``weights`` (L, N), a small picture for each layer; the view's is framed.

    With ``one_scale`` the strongest colour is the largest weight of all layers, else each one's.
    """
    tops = weights[:, 1:].max(1)
    maps = [
        overlays.Map(
            values=row[1:],
            title=f"layer {i}",
            note=f"max {top:.4f}, itself {row[0]:.4f}",
            top=float(tops.max() if one_scale else top),
            here=i == visit.view.layer,
        )
        for i, (row, top) in enumerate(zip(weights, tops, strict=True))
    ]
    _show(visit, maps, "attention weight of [CLS]", tensor, columns=6, least=100)


def rolled_out(visit: Visit, rolled: Floats) -> None:
    """Where [CLS] and the view's token stem from, (N, N) as from ``rollout``, on one scale."""
    subjects = sorted({0, visit.view.token})
    top = float(rolled[subjects, 1:].max())
    maps = []
    for token in subjects:
        others = np.delete(rolled[token], token)
        name = token_name(token, visit.walk.run.model_config.grid_size)
        note = f"from itself {rolled[token, token]:.4f}; most from another {others.max():.4f}"
        maps.append(overlays.Map(rolled[token, 1:], name, note, top))
    _show(
        visit,
        maps,
        "share after the last layer",
        "rollout(blocks.*.attn.pattern)",
        columns=3,
        least=220,
    )


def opinions(visit: Visit, probabilities: Floats, picked: int) -> None:
    """What each patch would answer, (L + 1, n, K), before the first layer and after the view's:
    its likeliest class in words, the probability of class ``picked`` in colour."""
    layer, names = visit.view.layer, visit.walk.run.class_names
    maps = []
    for stage, title in ((0, "before anyone spoke"), (layer + 1, f"after layer {layer}")):
        tops, chances = probabilities[stage].argmax(-1), probabilities[stage, :, picked]
        hover = [
            f"patch {i}: {names[top]} {probabilities[stage, i - 1, top]:.4f}"
            + (f", {names[picked]} {chance:.4f}" if top != picked else "")
            for i, (top, chance) in enumerate(zip(tops, chances, strict=True), start=1)
        ]
        note = (
            f"{(tops == picked).sum()} of {len(tops)} say {names[picked]}; "
            f"the highest probability is {chances.max():.4f}"
        )
        labels = [names[top] for top in tops]
        maps.append(overlays.Map(chances, title, note, 1.0, labels=labels, hover=hover))
    tensor = f"softmax(head(norm(blocks.{layer}.resid_post[0, 1:])))"
    _show(visit, maps, f"probability of {names[picked]}", tensor, columns=2, least=300)


def _show(
    visit: Visit,
    maps: list[overlays.Map],
    unit: str,
    tensor: str,
    columns: int,
    least: int,
) -> None:
    walk = visit.walk
    overlays.show(
        walk.square,
        walk.run.model_config.grid_size,
        maps,
        frame.palette(),
        unit=unit,
        tensor=tensor,
        columns=columns,
        least=least,
    )
