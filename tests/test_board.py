"""The board's Python side: what is sent, within which error, and whose choice counts."""

import io
import json
from typing import Any

import numpy as np
import pytest
import streamlit as st
import torch
from PIL import Image

import ui.board
from figures.theme import LIGHT
from ui.board import BoardChoice, board, chosen, pack
from ui.board.payload import BUDGET, Message, average, plan

PICTURE = np.zeros((32, 32, 3), np.uint8)


def softmaxed(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    scores = np.random.default_rng(seed).normal(0, 3, shape)
    weights = np.exp(scores)
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def unpack(values: bytes, line_max: np.ndarray, size: int, kind: str) -> np.ndarray:
    """What board.js makes of the bytes, by the description in ``pack``."""
    full = {"<u2": 65535, "u1": 255, "<i2": 32767, "i1": 127}[kind]
    steps = np.frombuffer(values, kind).reshape(*line_max.shape, size)
    return steps / full * line_max[..., None].astype(np.float64)


# ---- rounding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [2, 5, 65, 197])
def test_sixteen_bits_print_every_weight_as_the_package_computed_it(tokens: int) -> None:
    maps = softmaxed((2, 3, tokens, tokens))
    values, row_max, _ = pack(maps)
    back = unpack(values, row_max, tokens, "<u2")
    assert (np.abs(back - maps) <= 1.5 * row_max[..., None] / 65535 + 1e-9).all()
    assert [f"{v:.4f}" for v in back.ravel()] == [f"{v:.4f}" for v in maps.ravel()]


def test_row_maxima_are_sent_exactly() -> None:
    maps = softmaxed((2, 2, 9, 9))
    values, row_max, stats = pack(maps)
    assert row_max.tobytes() == maps.max(-1).tobytes()
    assert (stats.maximum == maps.max((2, 3))).all()
    assert (np.isclose(unpack(values, row_max, 9, "<u2").max(-1), maps.max(-1), rtol=1e-7)).all()


def test_eight_bits_are_within_half_a_step() -> None:
    maps = softmaxed((1, 2, 65, 65))
    values, row_max, _ = pack(maps, bits=8)
    back = unpack(values, row_max, 65, "u1")
    assert (np.abs(back - maps) <= 0.5001 * row_max[..., None] / 255).all()


@pytest.mark.parametrize(("bits", "kind", "full"), [(16, "<i2", 32767), (8, "i1", 127)])
def test_signed_values_keep_their_sign_and_zero(bits: Any, kind: str, full: int) -> None:
    maps = np.random.default_rng(1).normal(0, 1, (1, 2, 16, 16)).astype(np.float32)
    maps[0, 0, 3] = 0
    maps[0, 1, 4, 5] = 0
    values, row_max, stats = pack(maps, "diverging", bits)
    back = unpack(values, row_max, 16, kind)
    assert (np.abs(back - maps) <= 1.5 * row_max[..., None] / full).all()
    assert (back[0, 0, 3] == 0).all()
    assert back[0, 1, 4, 5] == 0
    assert stats.entropy is None
    assert stats.maximum[0, 1] == np.abs(maps[0, 1]).max()


# ---- statistics ----------------------------------------------------------------------------------


def test_entropy_is_the_mean_over_rows_in_bits() -> None:
    maps = softmaxed((2, 3, 17, 17))
    nats = torch.distributions.Categorical(torch.from_numpy(maps)).entropy().mean(-1)
    expected = nats.numpy() / np.log(2)
    np.testing.assert_allclose(pack(maps)[2].entropy, expected, rtol=1e-5)


def test_entropy_of_even_and_of_single_minded_attention() -> None:
    even = np.full((64, 64), 1 / 64)
    single = np.eye(64)
    half = np.zeros((64, 64))
    half[:, :2] = 0.5
    maps = np.stack([even, single, half])[None].astype(np.float32)
    np.testing.assert_allclose(pack(maps)[2].entropy, [[6, 0, 1]], atol=1e-5)


def test_no_entropy_of_rows_that_are_no_distributions() -> None:
    assert pack(softmaxed((1, 1, 5, 5)) * 0.9)[2].entropy is None


# ---- the budget ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "first"),
    [
        ((6, 4, 65), ((0, 6), (0, 4), 65, 16)),  # the shipped model: everything, exactly
        ((6, 12, 65), ((0, 6), (0, 12), 65, 8)),
        ((12, 3, 197), ((5, 6), (0, 3), 197, 16)),  # ViT-Ti/16 at 224 px
        ((12, 6, 197), ((5, 6), (0, 6), 197, 8)),
        ((12, 12, 197), ((5, 6), (2, 3), 197, 16)),
        ((6, 4, 1025), ((5, 6), (2, 3), 342, 8)),
        ((12, 12, 4097), ((5, 6), (2, 3), 456, 8)),
    ],
)
def test_what_is_sent_fits_and_is_the_best_that_does(
    shape: tuple[int, int, int], first: tuple[Any, ...]
) -> None:
    blocks = plan(shape, layer=5, head=2)
    values = blocks[0]
    assert (values.layers, values.heads, values.size, values.bits) == first
    assert sum(block.cost for block in blocks) <= BUDGET


def test_a_block_costs_what_it_takes() -> None:
    maps = softmaxed((2, 3, 26, 26))
    message = Message()
    message.add_maps(maps, "sequential", 0, 0, 0)
    _, blobs = read(message.close({}))
    assert sum(map(len, blobs.values())) == sum(b.cost for b in plan((2, 3, 26), 0, 0))


@pytest.mark.parametrize("side", [1, 3, 4, 10])
def test_averages_are_means_of_the_cells_that_the_browser_looks_up(side: int) -> None:
    maps = softmaxed((10, 10))
    cell = [token * side // 10 for token in range(10)]  # Math.floor in board.js
    for i in range(side):
        for j in range(side):
            members = [
                maps[q, k] for q in range(10) for k in range(10) if (cell[q], cell[k]) == (i, j)
            ]
            assert average(maps, side)[i, j] == pytest.approx(np.mean(members), rel=1e-5)


def read(message: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    length = int.from_bytes(message[:4], "little")
    header = json.loads(message[4 : 4 + length])
    body = message[4 + length :]
    assert (4 + length) % 4 == 0
    assert all(at % 4 == 0 for at, _ in header["blobs"].values())
    return header, {name: body[at : at + n] for name, (at, n) in header["blobs"].items()}


def test_lines_of_the_chosen_token_are_exact_when_the_maps_are_not() -> None:
    maps = softmaxed((1, 2, 700, 700))
    message = Message()
    described = message.add_maps(maps, "sequential", token=30, layer=0, head=1)
    _, blobs = read(message.close({}))
    assert [block["name"] for block in described["blocks"]] == ["values", "small", "row", "column"]
    row_max = np.frombuffer(blobs["row_max"], "<f4").reshape(1, 2, 1)
    row = unpack(blobs["row"], row_max, 700, "<u2")
    np.testing.assert_allclose(row[0, :, 0], maps[0, :, 30], atol=1.5 / 65535)
    column_max = np.frombuffer(blobs["column_max"], "<f4").reshape(1, 2, 1)
    column = unpack(blobs["column"], column_max, 700, "<u2")
    np.testing.assert_allclose(column[0, :, 0], maps[0, :, :, 30], atol=1.5 / 65535)


# ---- the message and the choice ------------------------------------------------------------------


class Visit:
    """A visitor's session without a browser: what the board sends, and what it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state: dict[str, Any] = {}
        self.sent: list[bytes] = []
        monkeypatch.setattr(st, "session_state", self.state)
        monkeypatch.setattr(ui.board, "_component", self.mount)
        self.maps = softmaxed((2, 3, 5, 5))

    def mount(self, *, key: str, data: bytes, on_choice_change: object) -> None:
        self.sent.append(data)
        self.state.setdefault(key, {"choice": None})

    def run(self, **wanted: Any) -> BoardChoice:
        options = {"picture": PICTURE, "grid": (2, 2), "maps": self.maps, **wanted}
        return board(key="b", **options)

    @property
    def header(self) -> dict[str, Any]:
        return read(self.sent[-1])[0]

    def choose(self, token: int, layer: int = 0, head: int = 0, **more: Any) -> None:
        serial = self.header["serial"]
        told = {"token": token, "layer": layer, "head": head, "pair": None, "serial": serial}
        self.state["b"] = {"choice": told | more}

    def leave(self) -> None:
        """A change of page: Streamlit forgets the component's state, the session stays."""
        del self.state["b"]


@pytest.fixture
def visit(monkeypatch: pytest.MonkeyPatch) -> Visit:
    return Visit(monkeypatch)


def test_a_first_run_returns_and_sends_what_the_page_wants(visit: Visit) -> None:
    assert visit.run(token=4, layer=1, head=2) == BoardChoice(4, 1, 2)
    assert visit.header["imposed"] == [4, 1, 2]
    assert visit.header["palettes"]["light"]["query"] == LIGHT.query


def test_the_visitors_choice_is_returned_and_nothing_is_sent_anew(visit: Visit) -> None:
    visit.run(token=1)
    visit.choose(3, 1, 2, pair=[3, 0])
    assert chosen("b") == BoardChoice(3, 1, 2, (3, 0))
    assert visit.run(token=1) == BoardChoice(3, 1, 2, (3, 0))  # a page that ignores it
    assert visit.run(token=3, layer=1, head=2).token == 3  # a page that follows
    assert visit.sent[0] == visit.sent[1] == visit.sent[2]


def test_a_page_that_follows_one_run_late_imposes_nothing(visit: Visit) -> None:
    visit.run(token=1)
    visit.choose(3)
    assert visit.run(token=1).token == 3
    visit.choose(4)
    assert visit.run(token=3).token == 4
    assert visit.sent[0] == visit.sent[2]


def test_a_page_that_wants_something_new_wins_over_an_old_choice(visit: Visit) -> None:
    visit.run(token=1)
    visit.choose(3)
    visit.run(token=3)
    assert visit.run(token=2) == BoardChoice(2, 0, 0)
    assert visit.header["imposed"] == [2, 0, 0]
    assert chosen("b") is None  # the 3 is history
    assert visit.run(token=2).token == 2
    visit.choose(4)
    assert visit.run(token=2).token == 4


def test_coming_back_to_the_page_imposes_what_the_page_remembers(visit: Visit) -> None:
    visit.run(token=1)
    visit.choose(3)
    visit.run(token=3)
    visit.leave()
    assert visit.run(token=3).token == 3
    assert visit.header["imposed"] == [3, 0, 0]


def test_another_models_shape_forgets_the_choice(visit: Visit) -> None:
    visit.run(token=1, layer=1)
    visit.choose(4, 1, 2)
    visit.maps = softmaxed((1, 1, 5, 5))
    assert visit.run(token=1) == BoardChoice(1, 0, 0)


@pytest.mark.parametrize(
    "bad",
    [{"token": 5}, {"token": -1}, {"layer": 2}, {"head": "1"}, {"token": True}, {"pair": [0, 9]}],
)
def test_a_choice_that_is_none_of_this_boards_is_ignored(visit: Visit, bad: dict[str, Any]) -> None:
    visit.run(token=1)
    visit.choose(**({"token": 0} | bad))
    assert visit.run(token=1) == BoardChoice(1, 0, 0)


def test_a_small_picture_arrives_pixel_for_pixel_and_a_large_one_small_enough(visit: Visit) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    visit.run(picture=noise)
    arrived = Image.open(io.BytesIO(read(visit.sent[-1])[1]["picture"]))
    np.testing.assert_array_equal(np.asarray(arrived), noise)
    large = np.random.default_rng(0).integers(0, 256, (512, 512, 3), np.uint8)
    visit.run(picture=large)
    encoded = read(visit.sent[-1])[1]["picture"]
    assert len(encoded) <= ui.board.PICTURE_BUDGET
    assert np.asarray(Image.open(io.BytesIO(encoded))).mean() == pytest.approx(127.5, abs=3)


# ---- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"picture": np.zeros((8, 8), np.uint8)}, "picture must be uint8 of shape"),
        ({"picture": np.zeros((8, 8, 3))}, "but is float64"),
        ({"grid": (0, 4)}, "at least 1"),
        (
            {"maps": softmaxed((1, 1, 4, 4))},
            r"\(layers, heads, 5, 5\) for 2 × 2 patches and \[CLS\]",
        ),
        ({"has_cls": False}, r"\(layers, heads, 4, 4\) for 2 × 2 patches, but has"),
        ({"maps": softmaxed((5, 5))}, r"but has \(5, 5\)"),
        ({"maps": np.full((1, 1, 5, 5), np.nan)}, "must be finite"),
        ({"maps": -softmaxed((1, 1, 5, 5))}, "scale='diverging'"),
        ({"scale": "rainbow"}, "sequential' or 'diverging', but is 'rainbow'"),
        ({"parts": ("picture", "sound")}, "there is also 'sound'"),
        ({"maps": None, "parts": ("matrix",)}, "only the picture"),
        ({"token": 5}, "token must be between 0 and 4, but is 5"),
        ({"layer": 2}, "layer must be between 0 and 1"),
        ({"head": -1}, "head must be between 0 and 2"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(
    visit: Visit, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says) as error:
        visit.run(**options)
    assert str(error.value).endswith(".")
    assert visit.sent == []
