"""Runs over each other can be told apart, in grey too, and none hides another's letter."""

import numpy as np
import pytest

from figures.compare import Series, overlaid, spread, style
from figures.theme import DARK, LIGHT, Palette


def series(number: int, y: list[float], x: list[float] | None = None) -> Series:
    epochs = np.arange(1.0, len(y) + 1) if x is None else np.array(x)
    return Series(number, "ABCDEFGH"[number], f"<b>run {number}</b>", epochs, np.array(y))


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_eight_runs_have_eight_looks_and_each_its_letter(palette: Palette) -> None:
    runs = [series(number, [10.0, 90.0 + 0.01 * number]) for number in range(8)]
    figure = overlaid(runs, "epoch", "named rightly, %", palette, decimals=1)
    looks = [(line.line.color, line.line.dash) for line in figure.data]
    assert len(set(looks)) == 8 and looks == [style(number, palette) for number in range(8)]
    assert len({dash for _, dash in looks[:6]}) == 6, "colour is not needed to tell six apart"
    letters = {note.text: note for note in figure.layout.annotations}
    assert [*letters] == [*"ABCDEFGH"]
    low, high = figure.layout.yaxis.range
    places = [note.y for note in letters.values()]
    assert low <= min(places) and max(places) <= high
    assert np.diff(places).min() * (340 - 60) / (high - low) >= 14.9, "pixels"
    assert {note.x for note in letters.values()} == {2}
    assert {note.font.color for note in letters.values()} == set(palette.series)


def test_the_lines_are_the_values_and_names_are_shown_to_the_letter() -> None:
    nan = float("nan")
    runs = [
        series(0, [1.0, 3.0, 2.0], [4.5, 9.0, 13.5]),
        series(1, [nan, nan]),
        series(2, [5.0, nan]),
        series(3, [7.0]),
        series(4, []),
    ]
    figure = overlaid(runs, "seconds", "nats", LIGHT, decimals=3)
    assert [line.name for line in figure.data] == [
        f"{letter} &lt;b&gt;run {number}&lt;/b&gt;"
        for letter, number in (("A", 0), ("C", 2), ("D", 3))
    ]
    assert figure.data[0].x.tolist() == [4.5, 9.0, 13.5]
    assert figure.data[0].y.tolist() == [1.0, 3.0, 2.0]
    assert figure.data[2].mode == "markers", "a single epoch is a point"
    assert {note.text: note.x for note in figure.layout.annotations} == {"A": 13.5, "C": 1, "D": 1}


def test_no_run_with_an_epoch_yet_is_an_empty_chart() -> None:
    assert len(overlaid([series(0, [])], "epoch", "nats", LIGHT, decimals=1).data) == 0


@pytest.mark.parametrize(
    ("heights", "placed"),
    [
        ([5.0], [5.0]),
        ([1.0, 8.0], [1.0, 8.0]),
        ([4.0, 4.0], [3.5, 4.5]),
        ([4.0, 4.2, 4.4], [3.2, 4.2, 5.2]),
        ([4.4, 4.0, 8.0], [4.7, 3.7, 8.0]),
        ([0.0, 0.0], [0.0, 1.0]),
        ([10.0, 10.0, 3.0], [9.0, 10.0, 3.0]),
    ],
)
def test_letters_move_as_little_as_it_takes(heights: list[float], placed: list[float]) -> None:
    assert spread(np.array(heights), 1.0, 0.0, 10.0) == pytest.approx(placed)


def test_letters_never_overlap_nor_leave() -> None:
    draw = np.random.default_rng(0)
    for count in draw.integers(1, 9, 200):
        heights = draw.uniform(0, 10, count).round(draw.integers(0, 3))
        placed = spread(heights, 1.0, 0.0, 10.0)
        order = np.argsort(heights, kind="stable")
        assert (np.diff(placed[order]) >= 1 - 1e-9).all()
        assert placed.min() >= -1e-9 and placed.max() <= 10 + 1e-9
