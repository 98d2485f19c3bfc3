"""Patches and Token shapes in a real browser: what only a browser draws, follows or measures."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_board import Shown
from tests.pages.made import ROOT, Own, own_walk

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def own() -> Own:
    return own_walk(ROOT / "checkpoints" / "cifar10")


def shown(page: Page, key: str) -> Shown:
    board = Shown(page)
    board.root = page.locator(f".st-key-{key} .board")
    board.has(ready="true")
    return board


def test_a_click_on_a_patch_opens_it_everywhere(opened: Open, own: Own) -> None:
    page = opened("/Patches?token=19")
    typed = page.get_by_role("spinbutton", name="Token: 0 is [CLS]")
    expect(typed).to_have_value("19")
    board = shown(page, "board")
    board.click("picture", board.patch(30))  # row 3, column 5
    expect(page).to_have_url(re.compile("token=30"))
    expect(typed).to_have_value("30")
    shown(page, "positions").has(token=30)

    numbers = own.x[0, :, 12:16, 20:24].numpy().ravel()
    cells = page.locator(".in-order tr.normalised td")
    expect(cells.nth(47)).to_have_text(f"{numbers[47]:+.2f}".replace("-", "−"))
    printed = [float(text.replace("−", "-")) for text in cells.all_inner_texts()]
    assert printed == pytest.approx(numbers.tolist(), abs=0.00501)

    weight, bias = (own.run.model.patch_embed.proj.get_parameter(n) for n in ("weight", "bias"))
    total = float(weight[0].double().numpy().ravel() @ numbers.astype(float) + bias[0].item())
    said = page.locator(".largest tfoot tr").last.locator("td").last.inner_text()
    assert float(said.replace("−", "-")) == pytest.approx(total, abs=6e-4)


def test_both_places_are_named_on_hover(opened: Open, own: Own) -> None:
    board = shown(opened("/Patches?token=12"), "positions")
    board.hover("picture", board.patch(40))
    vectors = own.run.model.pos_embed[0].double().numpy()
    vectors = vectors - vectors[1:].mean(0)
    a, b = vectors[12], vectors[40]
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    expect(board.root.locator(".caption")).to_contain_text("patch 12 (row 1, column 3)")
    expect(board.root.locator(".caption")).to_contain_text("patch 40 (row 4, column 7)")
    assert float(board["value"].replace("−", "-")) == pytest.approx(cosine, abs=1e-3)


def test_the_what_if_form_answers_at_once(opened: Open) -> None:
    page = opened("/Token_shapes")
    patch = page.get_by_role("spinbutton", name="Patch side")
    patch.fill("5")
    patch.press("Enter")
    expect(page.get_by_test_id("stAlert")).to_contain_text("Patch sizes that fit: 1, 2, 4, 8, 16")
    patch.fill("1")
    patch.press("Enter")
    row = page.locator(".models tr.this")
    expect(row).to_contain_text("1,025")
    page.locator(".st-key-what-if-preset").get_by_text("System B").click()
    expect(row).to_contain_text("807,818")
    expect(patch).to_have_value("4")


@pytest.mark.parametrize("path", ["/Patches?token=5", "/Patches?run=digits", "/Token_shapes"])
def test_on_a_phone_nothing_sticks_out(opened: Open, path: str) -> None:
    page = opened(path, width=390, height=844)
    expect(page.get_by_text("Predict, then reveal")).to_be_visible()
    main = page.get_by_test_id("stMain")
    assert main.evaluate("m => m.scrollWidth - m.clientWidth") == 0
    outside = main.evaluate(
        """m => [...m.querySelectorAll('.shapes, .patch, .js-plotly-plot, p')].filter(e => {
            const box = e.getBoundingClientRect();
            return box.width && (box.right > innerWidth + 1 || box.left < -1);
        }).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert outside == []
    scrolling = page.locator(".shapes, .patch .scroll").first
    sizes = scrolling.evaluate("e => [e.scrollWidth, e.clientWidth]")
    assert sizes[0] > sizes[1] or "digits" in path, "a wide table scrolls inside itself"
