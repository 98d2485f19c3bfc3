"""The board in a real browser: numbers, both hands, every size; and never a rerun too many."""

import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from tests.browser.board_app import attention, picture, similarity

APP = "tests/browser/board_app.py"
BAND, GUTTER, LABELS = 34, 40, 48  # as in board.js
CLS_GAP = 3


class Shown:
    """A board on a page."""

    def __init__(self, page: Page, rows: int = 8, columns: int = 8) -> None:
        self.page = page
        self.grid = (rows, columns)
        self.root = page.locator(".board")

    def __getitem__(self, name: str) -> str:
        return self.root.get_attribute(f"data-{name}") or ""

    def has(self, **data: object) -> None:
        """Wait until the data attributes are these."""
        for name, value in data.items():
            expect(self.root).to_have_attribute(f"data-{name}", str(value))

    def canvas(self, part: str) -> Locator:
        return self.root.locator(f"[data-part={part}] canvas")

    def pixels(self, part: str) -> str:
        """What a part shows once the frame that is being prepared is drawn."""
        return self.canvas(part).evaluate(
            """async (canvas) => {
                for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);
                return canvas.toDataURL();
            }"""
        )

    def box(self, part: str) -> dict[str, float]:
        box = self.canvas(part).bounding_box()
        assert box
        return dict(box)

    def patch(self, token: int) -> dict[str, float]:
        """The place of a token in the picture, [CLS] being 0."""
        if token == 0:
            return {"x": 30, "y": 15}
        row, column = divmod(token - 1, self.grid[1])
        box = self.box("picture")
        height = (box["height"] - BAND - 1) / self.grid[0]
        width = box["width"] / self.grid[1]
        return {"x": (column + 0.5) * width, "y": BAND + (row + 0.5) * height}

    def cell(self, query: int, key: int) -> dict[str, float]:
        """The place of a cell in the matrix, drawn with [CLS] apart."""
        side = self.box("matrix")["height"] - BAND - 1
        tokens = self.grid[0] * self.grid[1] + 1
        cls = max(side / tokens, 6)
        step = (side - cls - CLS_GAP) / (tokens - 1)

        def middle(token: int) -> float:
            return cls / 2 if token == 0 else cls + CLS_GAP + (token - 0.5) * step

        return {"x": GUTTER + middle(key), "y": BAND + middle(query)}

    def thumbnail(self, layer: int, head: int, layers: int, heads: int) -> dict[str, float]:
        box = self.box("heads")
        x = LABELS + (head + 0.4) * (box["width"] - LABELS) / heads
        return {"x": x, "y": BAND + (layer + 0.4) * (box["height"] - BAND) / layers}

    def hover(self, part: str, at: dict[str, float]) -> None:
        self.canvas(part).hover(position=at)  # type: ignore[arg-type]

    def click(self, part: str, at: dict[str, float]) -> None:
        self.canvas(part).click(position=at)  # type: ignore[arg-type]

    def ran(self, times: int) -> None:
        """Wait until the script has run so often, and expect that it has not run more."""
        expect(self.page.get_by_text(re.compile(r"^runs \d+$"))).to_have_text(f"runs {times}")

    def returned(self) -> dict[str, Any]:
        return json.loads(self.page.get_by_test_id("stCode").inner_text())


Open = Callable[..., Shown]


@pytest.fixture
def opened(
    serve: Callable[..., str],
    page: Callable[..., Page],
    settled: Callable[[Page], Page],
    problems: Callable[[Page], list[str]],
) -> Iterator[Open]:
    """``opened(query, **page options)`` → the board; nothing may go wrong in the browser."""
    pages: list[Page] = []

    def open_board(query: str = "", grid: tuple[int, int] = (8, 8), **options: Any) -> Shown:
        url = f"{serve(APP)}/?grid={grid[0]}x{grid[1]}&{query}"
        pages.append(settled(page(url, **options)))
        board = Shown(pages[-1], *grid)
        board.has(ready="true")
        return board

    yield open_board
    assert [problem for each in pages for problem in problems(each)] == []


# ---- numbers -------------------------------------------------------------------------------------


def test_hover_prints_the_weight_and_names_both_patches(opened: Open) -> None:
    maps = attention((8, 8), 6, 4)
    board = opened("token=12&layer=3&head=2")
    board.hover("picture", board.patch(40))
    board.has(hover="12,40", value=f"{maps[3, 2, 12, 40]:.4f}")
    assert board["caption"] == (
        f"patch 12 (row 1, column 3) → patch 40 (row 4, column 7): {maps[3, 2, 12, 40]:.4f}"
    )
    assert board.root.locator(".caption").inner_text() == board["caption"]
    expect(board.root.get_by_role("status")).to_have_text(board["caption"])
    board.hover("picture", board.patch(0))
    board.has(hover="12,0", value=f"{maps[3, 2, 12, 0]:.4f}")
    board.hover("matrix", board.cell(5, 64))
    board.has(hover="5,64", value=f"{maps[3, 2, 5, 64]:.4f}")
    board.hover("matrix", board.cell(0, 0))
    board.has(caption=f"[CLS] → [CLS]: {maps[3, 2, 0, 0]:.4f}")


def test_without_a_pointer_the_caption_names_the_largest_weight(opened: Open) -> None:
    row = attention((8, 8), 6, 4)[2, 1, 9]
    board = opened("token=9&layer=2&head=1")
    best = int(row.argmax())
    assert f"→ patch {best} (" in board["caption"]
    assert f"{row.max():.4f}, the largest of this row" in board["caption"]


def test_the_statistics_are_those_of_the_array(opened: Open) -> None:
    chosen = attention((8, 8), 6, 4)[3, 2]
    entropies = -(chosen * np.log2(chosen)).sum(-1)
    spread = f"mean entropy {entropies.mean():.2f} of 6.02 bits"
    board = opened("token=12&layer=3&head=2")
    stats = board.root.locator(".stats").inner_text()
    assert "blocks.3.attn.pattern[0, 2]" in stats
    assert f"this row: max {chosen[12].max():.4f}, entropy {entropies[12]:.2f} bits" in stats
    assert f"layer 3, head 2: max {chosen.max():.4f} · {spread}" in stats
    assert f"1/N = 1/65 = {1 / 65:.4f}" in stats


def test_the_colour_bar_ends_where_the_scale_says(opened: Open) -> None:
    maps = attention((8, 8), 6, 4)
    board = opened("token=12&layer=3&head=2")
    high = board.root.locator(".high")
    shots = set()
    for scale, end in (
        ("all", maps.max()),
        ("map", maps[3, 2].max()),
        ("line", max(maps[3, 2, 12].max(), 4 / 65)),
    ):
        board.root.locator(f"[data-switch=scale] [value={scale}]").click()
        expect(high).to_have_text(f"{end:.4f}")
        shots.add(board.pixels("matrix"))
    assert len(shots) == 3


def test_to_this_token_reads_the_column(opened: Open) -> None:
    maps = attention((8, 8), 6, 4)
    board = opened("token=12&layer=3&head=2")
    board.root.get_by_role("button", name="to this token").click()
    board.hover("picture", board.patch(40))
    board.has(hover="40,12", value=f"{maps[3, 2, 40, 12]:.4f}")
    expect(board.root.locator(".stats")).to_contain_text(
        f"this column: max {maps[3, 2, :, 12].max():.4f}"
    )


def test_signed_values_have_a_centred_scale_and_no_entropy(opened: Open) -> None:
    maps = similarity((8, 8))
    board = opened("kind=similarity&parts=picture,matrix&token=20")
    value = f"{maps[0, 0, 20, 11]:.4f}".replace("-", "−")
    row, column = divmod(11, 8)
    box = board.box("picture")
    board.hover(
        "picture",
        {
            "x": (column + 0.5) * box["width"] / 8,
            "y": BAND + (row + 0.5) * (box["height"] - BAND) / 8,
        },
    )
    board.has(caption=f"patch 21 (row 2, column 4) and patch 12 (row 1, column 3): {value}")
    stats = board.root.locator(".stats").inner_text()
    assert "pos_embed[0, 1:]" in stats
    assert "entropy" not in stats
    assert "1/N" not in stats
    assert board.root.locator(".low").inner_text() == "−1.0000"
    assert board.root.locator(".high").inner_text() == "+1.0000"


def test_without_maps_there_is_the_picture_and_a_choice(opened: Open) -> None:
    board = opened("kind=none&token=3", grid=(4, 4))
    assert board["caption"] == "patch 3 (row 0, column 2)"
    assert board.root.locator("canvas:visible").count() == 1
    board.click("picture", {"x": 5, "y": BAND + 5})
    board.has(token=1)
    board.ran(2)
    assert board.returned()["token"] == 1


# ---- at once, and only then told -----------------------------------------------------------------


def test_a_click_is_drawn_within_two_frames_and_reported_later(opened: Open) -> None:
    board = opened("token=12")
    at = board.patch(40)
    seen = board.canvas("picture").evaluate(
        """async (canvas, at) => {
            const root = canvas.closest(".board");
            const shot = () => [...root.querySelectorAll("canvas")].map((c) => c.toDataURL());
            const frame = () => new Promise(requestAnimationFrame);
            const runs = () => document.querySelector("[data-testid=stText]").innerText;
            const before = shot();
            const box = canvas.getBoundingClientRect();
            const [clientX, clientY] = [box.x + at.x, box.y + at.y];
            canvas.dispatchEvent(new MouseEvent("click", { clientX, clientY, bubbles: true }));
            const token = root.dataset.token;
            await frame();
            await frame();
            const after = shot();
            return { token, runs: runs(), changed: after.map((image, i) => image !== before[i]) };
        }""",
        at,
    )
    assert seen == {"token": "40", "runs": "runs 1", "changed": [True, True, True]}
    board.ran(2)
    assert board.returned() == {"token": 40, "layer": 0, "head": 0, "pair": None}
    expect(board.page.get_by_label("token", exact=True)).to_have_value("40")


def test_hovering_never_reruns(opened: Open) -> None:
    board = opened("token=12")
    for token in (0, 1, 20, 64):
        board.hover("picture", board.patch(token))
        board.has(hover=f"12,{token}")
    board.hover("matrix", board.cell(3, 4))
    board.hover("heads", board.thumbnail(2, 1, 6, 4))
    board.has(hover="2,1")
    board.click("picture", board.patch(30))
    board.ran(2)


def test_a_clicked_cell_sets_query_and_key(opened: Open) -> None:
    board = opened()
    board.click("matrix", board.cell(5, 17))
    board.has(token=5, pair="5,17")
    board.ran(2)
    assert board.returned() == {"token": 5, "layer": 0, "head": 0, "pair": [5, 17]}
    board.page.mouse.move(1, 1)
    board.has(hover="")
    assert board["caption"].startswith("patch 5 (row 0, column 4) → patch 17 (row 2, column 0): ")


def test_a_thumbnail_sets_layer_and_head(opened: Open) -> None:
    maps = attention((8, 8), 6, 4)
    board = opened("token=9")
    board.click("heads", board.thumbnail(4, 3, 6, 4))
    board.has(layer=4, head=3)
    expect(board.root.locator(".tensor")).to_have_text("blocks.4.attn.pattern[0, 3]")
    board.ran(2)
    assert board.returned()["layer"] == 4
    assert board.returned()["head"] == 3
    board.hover("picture", board.patch(10))
    board.has(value=f"{maps[4, 3, 9, 10]:.4f}")


def test_the_pages_wish_wins_and_reruns_keep_the_visitors_choice(opened: Open) -> None:
    board = opened()
    board.page.get_by_label("token", exact=True).fill("7")
    board.page.get_by_label("token", exact=True).press("Enter")
    board.has(token=7)
    board.ran(2)
    board.click("picture", board.patch(33))
    board.ran(3)
    board.root.get_by_role("button", name="to this token").click()
    board.page.get_by_role("button", name="rerun").click()
    board.ran(4)
    board.has(token=33, direction="to")
    assert board.returned()["token"] == 33


def test_playing_steps_through_the_layers_and_reports_once(opened: Open) -> None:
    board = opened("layers=3&heads=2")
    before = board.pixels("matrix")
    board.root.get_by_role("button", name="Play through the layers").click()
    board.has(playing="true", layer=1)
    board.has(layer=2)
    board.has(playing="false")
    assert board.pixels("matrix") != before
    board.ran(2)
    assert board.returned()["layer"] == 2


def test_pausing_reports_where_it_stopped(opened: Open) -> None:
    board = opened("layers=6&heads=1")
    board.canvas("heads").focus()
    board.page.keyboard.press(" ")
    board.has(playing="true", layer=1)
    board.page.keyboard.press(" ")
    board.has(playing="false")
    board.ran(2)
    assert board.returned()["layer"] == int(board["layer"])


# ---- keyboard, touch, sizes ----------------------------------------------------------------------


def test_arrow_keys_walk_over_the_picture_and_to_cls(opened: Open) -> None:
    board = opened("token=10")
    board.canvas("picture").focus()
    for key, token in (
        ("ArrowRight", 11),
        ("ArrowDown", 19),
        ("ArrowLeft", 18),
        ("ArrowUp", 10),
        ("ArrowUp", 2),
        ("ArrowUp", 0),
        ("ArrowDown", 1),
        ("ArrowLeft", 0),
        ("End", 64),
        ("ArrowRight", 64),
        ("Home", 0),
    ):
        board.page.keyboard.press(key)
        assert board["token"] == str(token), key
    board.page.keyboard.press("End")
    board.page.keyboard.press("Enter")
    expect(board.page.get_by_test_id("stCode")).to_contain_text('"token": 64')


def test_arrow_keys_walk_over_the_matrix_and_the_heads(opened: Open) -> None:
    maps = attention((8, 8), 6, 4)
    board = opened("token=10")
    board.canvas("matrix").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        board.page.keyboard.press(key)
    assert (board["hover"], board["value"]) == ("11,12", f"{maps[0, 0, 11, 12]:.4f}")
    assert board["token"] == "10"
    board.page.keyboard.press("Enter")
    assert (board["token"], board["pair"]) == ("11", "11,12")
    board.canvas("heads").focus()
    for key in ("ArrowUp", "ArrowDown", "ArrowDown", "ArrowRight"):
        board.page.keyboard.press(key)
    assert (board["layer"], board["head"]) == ("2", "1")


def test_every_canvas_can_be_reached_and_says_what_it_is(opened: Open) -> None:
    board = opened()
    for part, word in (
        ("picture", "8 by 8 patches"),
        ("matrix", "rows query"),
        ("heads", "6 layers"),
    ):
        canvas = board.canvas(part)
        expect(canvas).to_have_attribute("tabindex", "0")
        expect(canvas).to_have_role("application")
        expect(canvas).to_have_accessible_name(re.compile(word))
    board.canvas("picture").focus()
    board.page.keyboard.press("ArrowRight")  # a key, so that the browser shows where the focus is
    assert board.canvas("picture").evaluate("e => getComputedStyle(e).outlineStyle") == "solid"


def test_a_phone_stacks_the_parts_and_a_tap_selects(opened: Open) -> None:
    board = opened(width=390, height=844, touch=True, dark=True)
    assert board.page.evaluate("document.documentElement.scrollWidth") <= 390
    tops = []
    for part in ("picture", "matrix", "heads"):
        box = board.box(part)
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        tops.append(box["y"])
    assert tops == sorted(tops)
    assert tops[1] > tops[0] + 300
    board.canvas("picture").tap(position=board.patch(28))  # type: ignore[arg-type]
    board.has(token=28)
    board.ran(2)


@pytest.mark.parametrize("grid", [(1, 1), (2, 2), (4, 4), (3, 5), (14, 14)])
def test_any_grid_is_drawn_and_can_be_chosen_from(opened: Open, grid: tuple[int, int]) -> None:
    board = opened("layers=2&heads=3", grid=grid, width=390)
    for width in (390, 760, 1280):
        board.page.set_viewport_size({"width": width, "height": 900})
        last = grid[0] * grid[1]
        expect(board.canvas("picture")).to_be_visible()
        for token in (last, 0):
            board.click("picture", board.patch(token))
            board.has(token=token)
        assert board.page.evaluate("document.documentElement.scrollWidth") <= width
    shot = Image.open(io.BytesIO(board.canvas("matrix").screenshot())).convert("RGB")
    assert len(shot.getcolors(1 << 20) or []) > 4


@pytest.mark.parametrize("parts", ["matrix", "heads", "picture,heads", "matrix,heads"])
def test_any_choice_of_parts_fits(opened: Open, parts: str) -> None:
    board = opened(f"parts={parts}", width=700)
    shown = [part for part in ("picture", "matrix", "heads") if part in parts]
    assert board.root.locator("canvas:visible").count() == len(shown)
    boxes = [board.box(part) for part in shown]
    assert all(box["x"] + box["width"] <= 700 for box in boxes)
    assert len({box["y"] for box in boxes}) == 1
    board.canvas(shown[-1]).focus()
    board.page.keyboard.press("ArrowRight")
    if "heads" in parts:
        board.has(head=1)
        board.ran(2)
    else:
        board.has(hover="0,1")


def test_twelve_layers_of_twelve_heads_fit_beside_each_other(opened: Open) -> None:
    maps = attention((4, 4), 12, 12)
    board = opened("layers=12&heads=12", grid=(4, 4))
    board.click("heads", board.thumbnail(11, 11, 12, 12))
    board.has(layer=11, head=11)
    board.hover("picture", board.patch(7))
    board.has(value=f"{maps[11, 11, 0, 7]:.4f}")


def test_canvases_are_as_fine_as_the_screen(opened: Open) -> None:
    board = opened(pixel_ratio=2)
    for part in ("picture", "matrix", "heads"):
        width = board.canvas(part).evaluate("canvas => canvas.width")
        assert width == round(2 * board.box(part)["width"])


def test_light_turns_to_dark_without_losing_the_choice(opened: Open) -> None:
    board = opened("token=5")
    board.click("picture", board.patch(20))
    board.ran(2)
    board.has(theme="light")
    light = board.pixels("matrix")
    board.page.emulate_media(color_scheme="dark")
    board.has(theme="dark", token=20)
    corner = (
        Image.open(io.BytesIO(board.canvas("matrix").screenshot())).convert("L").getpixel((1, 1))
    )
    assert corner < 60
    assert board.pixels("matrix") != light


# ---- what travels --------------------------------------------------------------------------------


def bytes_received(page: Page) -> list[int]:
    """A list that grows by the size of every message that the server sends to the page."""
    sizes: list[int] = []
    page.on(
        "websocket",
        lambda socket: socket.on("framereceived", lambda frame: sizes.append(len(frame))),
    )
    return sizes


def test_the_maps_travel_once_and_fit_the_budget(
    serve: Callable[..., str], page: Callable[..., Page], settled: Callable[[Page], Page]
) -> None:
    opened = page("about:blank")
    sizes = bytes_received(opened)
    opened.goto(f"{serve(APP)}/?grid=8x8")
    board = Shown(settled(opened))
    board.has(ready="true")
    assert 200_000 < sum(sizes) < 400_000
    first = sum(sizes)
    board.click("picture", board.patch(12))
    board.ran(2)
    settled(opened)
    assert sum(sizes) - first < 20_000


def test_maps_beyond_the_budget_come_layer_by_layer(opened: Open) -> None:
    maps = attention((14, 14), 12, 3)
    board = opened("layers=12&heads=3&token=50", grid=(14, 14))
    board.hover("matrix", board.cell(30, 31))
    board.has(value=f"{maps[0, 0, 30, 31]:.5f}")  # the chosen layer is there in full
    board.click("heads", board.thumbnail(7, 1, 12, 3))
    board.hover("picture", board.patch(60))
    board.has(value=f"{maps[7, 1, 50, 60]:.5f}")  # of the others, the chosen token's lines
    board.ran(2)
    board.hover("matrix", board.cell(30, 31))
    board.has(value=f"{maps[7, 1, 30, 31]:.5f}")  # and after a moment the layer itself


def test_a_thousand_tokens_are_averaged_but_the_chosen_row_is_exact(opened: Open) -> None:
    maps = attention((32, 32), 1, 2)
    board = opened("layers=1&heads=2&token=400", grid=(32, 32))
    board.hover("picture", board.patch(433))
    board.has(value=f"{maps[0, 0, 400, 433]:.5f}")
    board.hover("matrix", board.cell(90, 700))
    assert board["value"].startswith("≈ 0.00")


def test_save_gives_a_picture_with_all_parts_in_it(opened: Open) -> None:
    board = opened("token=12&layer=3&head=2")
    with board.page.expect_download() as download:
        board.root.get_by_role("button", name="Save PNG").click()
    assert download.value.suggested_filename == "attention-weight-layer-3-head-2-token-12.png"
    image = Image.open(download.value.path())
    assert image.format == "PNG"
    shown = [board.box(part)["width"] for part in ("picture", "matrix", "heads")]
    assert image.width >= 2 * sum(shown)
    colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 24) or []}
    assert (15, 118, 110) in colours  # the query's teal
    assert (33, 12, 56) in colours  # the top of the sequential scale


def test_the_picture_under_the_overlay_is_the_one_given(opened: Open) -> None:
    board = opened("token=12")
    slider = board.root.get_by_role("slider", name="overlay")
    slider.fill("0")
    board.has(overlay=0)
    shown = Image.open(io.BytesIO(board.canvas("picture").screenshot())).convert("RGB")
    given = picture()
    for x, y in ((0.4, 0.45), (0.94, 0.06), (0.06, 0.94)):
        at = (int(x * shown.width), BAND + int(y * (shown.height - BAND)))
        expected = given[int(y * len(given)), int(x * len(given))].astype(int)
        assert np.abs(np.array(shown.getpixel(at)) - expected).max() < 12
