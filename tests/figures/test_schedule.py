"""The learning-rate schedule as drawn."""

import numpy as np
import pytest

from figures.schedule import Phase, Rate, schedule
from figures.theme import DARK, LIGHT, Palette

EPOCHS = np.linspace(0, 9.9, 100)
RATES = [Rate("Muon", 0.01 * (1 - EPOCHS / 10), 0), Rate("AdamW <b>", 0.002 + 0 * EPOCHS, 1)]
PHASES = [Phase("warm-up", 0, 0.5), Phase("50 % <i>", 0, 6.5)]


def test_lines_are_the_rates_and_bars_lie_where_the_phases_do() -> None:
    figure = schedule(EPOCHS, RATES, PHASES, LIGHT)
    assert [line.name for line in figure.data] == ["Muon", "AdamW &lt;b&gt;"]
    for line, rate in zip(figure.data, RATES, strict=True):
        np.testing.assert_array_equal(line.x, EPOCHS)
        np.testing.assert_array_equal(line.y, rate.values)
        assert line.line.color == LIGHT.series[rate.colour]
    bars = figure.layout.shapes
    assert [(bar.x0, bar.x1) for bar in bars] == [(0, 0.5), (0, 6.5)]
    assert bars[0].y0 >= bars[1].y1, "the first phase is on top, and they do not overlap"
    texts = [note.text for note in figure.layout.annotations]
    assert texts == ["warm-up", "50 % &lt;i&gt;"]
    for bar, note in zip(bars, figure.layout.annotations, strict=True):
        assert bar.y0 < note.yshift < bar.y1
    assert max(bar.y1 for bar in bars) <= figure.layout.margin.t, "nothing is cut off"
    assert tuple(figure.layout.xaxis.range) == (0, 10)
    assert figure.layout.showlegend is True


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_a_single_rate_without_phases_needs_no_legend_and_less_room(palette: Palette) -> None:
    plain = schedule(EPOCHS, RATES[:1], [], palette)
    full = schedule(EPOCHS, RATES, PHASES, palette)
    assert plain.layout.showlegend is False
    assert plain.layout.shapes == plain.layout.annotations == ()
    rooms = [f.layout.height - f.layout.margin.t - f.layout.margin.b for f in (plain, full)]
    assert rooms[0] == rooms[1], "the plot itself stays as high"
    assert plain.layout.font.color == palette.ink
