"""What the figures of attention and readout draw, and what the small maps are coloured with."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from figures import attention, readout, terms
from figures.theme import DARK, LIGHT, Palette
from ui import overlays


@pytest.fixture(params=[LIGHT, DARK], ids=["light", "dark"])
def palette(request: pytest.FixtureRequest) -> Palette:
    return request.param


def test_the_largest_terms_come_first_whatever_their_sign() -> None:
    assert terms.largest(np.array([0.1, -3, 2, 0, 2.5]), 3).tolist() == [1, 4, 2]
    assert terms.largest(np.array([1.0, -2.0])).tolist() == [1, 0]


def test_bars_show_every_term_and_name_the_largest(palette: Palette) -> None:
    q, k = np.array([1.0, -2, 3, 0.1, 0.2, 0.1]), np.array([2.0, 3, 0.5, 1, -1, 0])
    bar = terms.bars(q * k, [("q", q), ("k", k)], "q × k", palette).data[0]
    assert list(bar.y) == pytest.approx([2, -6, 1.5, 0.1, -0.2, 0])
    assert list(bar.text) == ["+2.00", "−6.00", "+1.50", "", "−0.20", ""]
    assert np.asarray(bar.customdata) == pytest.approx(np.stack([q, k], -1), rel=1e-6)
    down, up = palette.diverging[1], palette.diverging[-2]
    assert list(bar.marker.color) == [up, down, up, up, down, up]


def test_the_mixture_is_on_one_scale_around_zero(palette: Palette) -> None:
    v, z = np.array([4.0, -8]), np.array([1.0, 2])
    heatmap = attention.mixture(v, 0.25, z, "blocks.0.attn.v, .z", palette).data[0]
    assert np.asarray(heatmap.z).tolist() == [[1, 2], [1, -2], [4, -8]]
    assert list(heatmap.y) == ["z, all keys mixed", "0.2500 × v", "v of this key"]
    assert (heatmap.zmin, heatmap.zmax) == (-8, 8)
    assert heatmap.colorbar.title.text == "blocks.0.attn.v, .z"
    assert heatmap.colorscale[3] == (0.5, palette.ground)


def test_distances_put_every_head_over_its_layer_and_mark_one(palette: Palette) -> None:
    far = np.array([[1.0, 2], [3, 4], [5, 6]])
    figure = attention.distances(far, 3.5, 4, 1, 0, palette)
    dots, mark = figure.data
    assert list(zip(dots.x, dots.y, strict=True)) == [
        (0, 1),
        (0, 2),
        (1, 3),
        (1, 4),
        (2, 5),
        (2, 6),
    ]
    assert [tuple(row) for row in dots.customdata] == [
        (0, 4), (1, 8), (0, 12), (1, 16), (0, 20), (1, 24)
    ]  # fmt: skip
    assert (mark.x[0], mark.y[0], mark.text[0]) == (1, 3, "head 0: 3.00")
    assert figure.layout.shapes[0].y0 == 3.5
    low, high = figure.layout.yaxis.range
    assert low == 0 and high > 6


def test_with_many_classes_the_final_ones_and_the_leaders_on_the_way_are_shown() -> None:
    by_layer = np.full((3, 30), 0.01)
    by_layer[0, 25] = 0.5  # led before the first layer, likely never again
    by_layer[1, 7] = 0.5
    by_layer[2] = np.linspace(0.5, 0.01, 30)
    assert readout.shown_classes(by_layer, 5) == [0, 1, 2, 7, 25]
    assert readout.shown_classes(by_layer[:, ::-1][:, :4], 5) == [3, 2, 1, 0]


def test_by_layer_prints_what_it_is_given_to_the_letter(palette: Palette) -> None:
    probabilities = np.array([[0.25, 0.75], [0.9, 0.1]])
    figure = readout.by_layer(probabilities, ["<b>a</b>", "b" * 30], palette)
    heatmap = figure.data[0]
    assert np.asarray(heatmap.z) == pytest.approx(probabilities.T)
    assert (heatmap.zmin, heatmap.zmax, heatmap.texttemplate) == (0, 1, "%{z:.2f}")
    assert list(figure.layout.yaxis.ticktext) == ["&lt;b&gt;a&lt;/b&gt;", "b" * 19 + "…"]
    assert list(figure.layout.xaxis.ticktext) == ["before", "0"]
    deep = readout.by_layer(np.full((25, 2), 0.5), ["a", "b"], palette)
    assert deep.data[0].texttemplate is None


def drawn(monkeypatch: pytest.MonkeyPatch, maps: list[overlays.Map], grid: int) -> str:
    """The HTML that ``overlays.show`` sends."""
    sent: list[str] = []
    monkeypatch.setattr(overlays.st, "html", sent.append)
    picture = np.full((8, 8, 3), 128, np.uint8)
    overlays.show(picture, grid, maps, LIGHT, unit="<u>", tensor="t", columns=2, least=50)
    return sent[0]


def test_a_small_map_has_a_pixel_for_each_patch_in_the_scales_colours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = np.array([0, 0.25, 0.5, 1.0])
    page = drawn(monkeypatch, [overlays.Map(values, "a", "b", top=0.5)], 2)
    data = re.search(r"image/png;base64,([^\"]+)", page)
    assert data
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data[1]))))
    assert pixels.shape == (2, 2, 4)
    strongest = tuple(int(LIGHT.sequential[-1][i : i + 2], 16) for i in (1, 3, 5))
    middle = tuple(int(LIGHT.sequential[3][i : i + 2], 16) for i in (1, 3, 5))
    assert tuple(pixels[0, 0, :3]) == (255, 255, 255)
    assert tuple(pixels[0, 1, :3]) == middle
    assert tuple(pixels[1, 0, :3]) == tuple(pixels[1, 1, :3]) == strongest
    assert pixels[0, 0, 3] < pixels[0, 1, 3] < pixels[1, 0, 3]
    assert "0.5000</span><span>&lt;u&gt;" in page


def test_labels_are_whole_on_wide_pages_short_on_narrow_ones_and_left_out_of_tiny_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def labelled(grid: int) -> overlays.Map:
        n = grid * grid
        return overlays.Map(
            np.zeros(n), "a", "b", 1, labels=["<automobile>"] * n, hover=['say "<x>"'] * n
        )

    page = drawn(monkeypatch, [labelled(2)], 2)
    assert page.count("&lt;automobi…</b>") == page.count("&lt;aut…</b>") == 4
    assert page.count('title="say &quot;&lt;x&gt;&quot;"') == 4
    assert "…" not in drawn(monkeypatch, [labelled(17)], 17)
