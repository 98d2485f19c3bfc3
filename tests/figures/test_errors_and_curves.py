"""Figures of errors and of training: the values that were handed over are those that are drawn."""

import numpy as np
import pytest

from figures.confusion import per_class
from figures.curves import Line, curves
from figures.reliability import reliability
from figures.robustness import after_changes
from figures.theme import DARK, LIGHT


def test_classes_run_from_worst_on_top_to_best() -> None:
    accuracy = np.array([0.9, 0.25, np.nan, 0.6])
    figure = per_class(["a<b", "b", "none", "c"], accuracy, LIGHT)
    bars = figure.data[0]
    # Plotly draws a horizontal bar chart from the bottom up.
    assert list(bars.customdata) == ["a&lt;b", "c", "b"]
    assert list(bars.x) == pytest.approx([90, 60, 25])
    assert list(bars.text) == ["90.0 %", "60.0 %", "25.0 %"]
    assert len(figure.data) == 1


def test_a_published_model_stands_in_the_same_rows() -> None:
    accuracy, theirs = np.array([0.5, 0.25]), np.array([0.8, 0.9])
    bars, strokes = per_class(["a", "b"], accuracy, LIGHT, ("System", theirs)).data
    assert list(bars.customdata) == list(strokes.customdata) == ["a", "b"]
    assert list(strokes.x) == pytest.approx([80, 90])
    assert list(strokes.y) == list(bars.y)


def test_reliability_leaves_empty_bins_out() -> None:
    edges = np.linspace(0, 1, 5)
    count = np.array([0, 4, 0, 6])
    confidence = np.array([np.nan, 0.4, np.nan, 0.9])
    accuracy = np.array([np.nan, 0.25, np.nan, 1.0])
    right, line, points, counts = reliability(edges, count, confidence, accuracy, DARK).data
    assert list(right.x) == list(counts.x) == pytest.approx([37.5, 87.5])
    assert list(right.y) == list(points.y) == pytest.approx([25, 100])
    assert list(points.x) == pytest.approx([40, 90])
    assert list(counts.y) == [4, 6]
    assert (list(line.x), list(line.y)) == ([0, 100], [0, 100])
    assert right.customdata[0][0] == "25–50 %"
    assert list(right.customdata[1][1:]) == pytest.approx([6, 90, 100])


def test_changes_keep_their_order_from_the_top_down() -> None:
    accuracy, confidence = np.array([0.9, 0.1, 0.5]), np.array([0.8, 0.7, 0.6])
    figure = after_changes(["as it is", "a<b", "c"], accuracy, confidence, LIGHT)
    bars, strokes = figure.data
    assert list(bars.x) == pytest.approx([90, 10, 50])
    assert list(strokes.x) == pytest.approx([80, 70, 60])
    assert list(bars.y) == list(strokes.y) == [0, 1, 2]
    assert figure.layout.yaxis.autorange == "reversed"
    assert list(figure.layout.yaxis.ticktext) == ["as it is", "a&lt;b", "c"]
    assert bars.customdata[1] == ["a&lt;b", pytest.approx(10), pytest.approx(70)]
    assert list(bars.text) == ["90.0 %", "10.0 %", "50.0 %"]
    assert list(bars.textposition) == ["inside", "outside", "inside"]
    assert bars.marker.color[0] != bars.marker.color[1] == bars.marker.color[2]


def test_a_value_that_was_not_measured_is_not_drawn() -> None:
    epochs = np.array([1.0, 2.0, 3.0])
    lines = [
        Line("train", epochs, np.array([0.1, 0.2, 0.3]), 2),
        Line("test", epochs, np.array([np.nan, np.nan, 0.25]), 4),
        Line("theirs", np.array([5, 50]), np.array([0.4, 0.8]), 0, published=True),
    ]
    figure = curves(lines, "share", LIGHT, marks={3: "kept"}, decimals=2)
    train, test, theirs = figure.data
    assert list(train.y) == pytest.approx([0.1, 0.2, 0.3])
    assert (list(test.x), list(test.y), test.mode) == ([3], pytest.approx([0.25]), "markers")
    assert (train.line.dash, theirs.line.dash) == (None, "dot")
    assert [shape.x0 for shape in figure.layout.shapes] == [3]
    assert [note.text for note in figure.layout.annotations] == ["kept"]
    assert "train: %{y:.2f}" in train.hovertemplate
    assert figure.layout.xaxis.unifiedhovertitle.text == "epoch %{x}"


def test_marks_share_a_row_where_their_words_do_not_meet() -> None:
    epochs = np.arange(1.0, 51)
    lines = [Line("train", epochs, epochs / 50, 2)]

    def rows(marks: dict[float, str]) -> dict[float, float]:
        figure = curves(lines, "share", LIGHT, marks=marks, decimals=2)
        notes = figure.layout.annotations
        assert sorted(shape.x0 for shape in figure.layout.shapes) == sorted(marks)
        assert {note.x: note.text for note in notes} == marks
        assert figure.layout.margin.t >= max(note.yshift + note.font.size for note in notes)
        return {note.x: note.yshift / 13 for note in notes}

    assert rows({32.5: "all patches", 44.0: "no CutMix", 50: "kept"}) == {32.5: 0, 44: 0, 50: 0}
    assert rows({40: "all patches", 42: "kept", 44.0: "no CutMix"}) == {40: 0, 42: 1, 44: 2}
    assert rows({1: "kept", 3: "you are here", 50: "late"}) == {1: 0, 3: 1, 50: 0}
