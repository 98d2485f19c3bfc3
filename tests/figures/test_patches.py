"""Colours of signed numbers, and what the token's and the cost's figures plot."""

import numpy as np
import pytest

from figures.patches import cost, signed_colours, token
from figures.theme import DARK, LIGHT, Palette


def rgb(colour: str) -> list[int]:
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_zero_is_the_ground_and_the_limits_are_the_ends(palette: Palette) -> None:
    values = np.array([[-2.0, 0.0], [2.0, 9.0]])
    colours = signed_colours(values, 2.0, palette)
    ends = [palette.diverging[0], palette.diverging[3], palette.diverging[-1]]
    assert colours[0].tolist() == [rgb(ends[0]), rgb(ends[1])]
    assert colours[1].tolist() == [rgb(ends[2]), rgb(ends[2])]
    third = signed_colours(np.array([2.0 / 3]), 2.0, palette)
    assert third[0].tolist() == rgb(palette.diverging[4])
    assert signed_colours(np.zeros(2), 0.0, palette).tolist() == [rgb(ends[1])] * 2


def test_a_token_is_plotted_as_it_is_and_the_chosen_number_is_written() -> None:
    values = np.array([0.5, -1.25, 2.0], np.float32)
    figure = token(values, "patch_embed.projected[0, 3]", LIGHT, chosen=1)
    (bars,) = figure.data
    assert bars.y.tolist() == values.tolist()
    assert bars.marker.color[1] == LIGHT.ink
    assert bars.marker.color[0] == bars.marker.color[2] == LIGHT.diverging[-2]
    assert [note.text for note in figure.layout.annotations] == ["−1.250"]
    assert figure.layout.yaxis.title.text == "patch_embed.projected[0, 3]"
    assert not token(values, "cls_token[0, 0]", LIGHT).layout.annotations


def test_cost_marks_the_chosen_patch_on_both_lines() -> None:
    sides, tokens = np.array([1, 2, 4]), np.array([17, 5, 2])
    figure = cost(sides, tokens, tokens**2, 1, DARK)
    pairs, pair, count, one = figure.data
    assert pairs.y.tolist() == [289, 25, 4]
    assert count.y.tolist() == [17, 5, 2]
    assert (pair.x[0], pair.y[0], pair.text[0]) == (2, 25, "N² pairs: 25")
    assert (one.x[0], one.y[0], one.text[0]) == (2, 5, "N tokens: 5")
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
