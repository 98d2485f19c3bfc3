"""Attention and [CLS] readout in a real browser: what is printed is what numpy makes of it."""

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


def softmax(scores: np.ndarray) -> np.ndarray:
    exps = np.exp(scores - scores.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


def weights(own: Own, layer: int, head: int) -> np.ndarray:
    """(N, N) from the recorded queries and keys, in numpy and double precision."""
    q, k = (own.trace[f"blocks.{layer}.attn.{part}"][0, head].double().numpy() for part in "qk")
    return softmax(q @ k.T / np.sqrt(q.shape[-1]))


def expect_opened(page: Page, query: str, key: str, weight: float) -> None:
    """The opened pair is this one, and its weight printed as numpy has it."""
    expect(page.get_by_text(f"How much does {query}")).to_contain_text(f"fetch from {key}, in")
    step = page.locator("p", has_text="3. Share out")
    expect(step).to_contain_text(f"= {weight:.4f}.")


def test_the_opened_pair_follows_every_click(opened: Open, own: Own) -> None:
    page = opened("/Attention?layer=2&head=1")
    board = Shown(page)
    board.has(ready="true", token=0, layer=2, head=1)
    maps = weights(own, 2, 1)

    board.click("picture", board.patch(20))
    strongest = int(maps[20].argmax())
    row, column = divmod(strongest - 1, 8)
    name = f"patch {strongest} (row {row}, column {column})" if strongest else "[CLS]"
    expect_opened(page, "patch 20 (row 2, column 3)", name, maps[20, strongest])
    expect(page).to_have_url(re.compile(r"token=20"))
    expect(page.get_by_role("spinbutton", name="Query, 0–64")).to_have_value("20")

    board.click("matrix", board.cell(30, 12))
    expect_opened(page, "patch 30 (row 3, column 5)", "patch 12 (row 1, column 3)", maps[30, 12])
    board.has(pair="30,12", value=f"{maps[30, 12]:.4f}")

    # Looking at who looks at a token, the chosen one is the key of the clicked pair.
    board.root.get_by_role("button", name="to this token").click()
    board.click("matrix", board.cell(41, 12))
    expect_opened(page, "patch 41 (row 5, column 0)", "patch 12 (row 1, column 3)", maps[41, 12])

    board.click("heads", board.thumbnail(4, 3, 6, 4))
    expect(page.get_by_text("How much does")).to_contain_text("in layer 4, head 3?")
    expect(page).to_have_url(re.compile(r"layer=4"))


def test_a_typed_token_moves_the_board(opened: Open, own: Own) -> None:
    page = opened("/Attention")
    board = Shown(page)
    board.has(ready="true", token=0)
    typed = page.get_by_role("spinbutton", name="Query, 0–64")
    typed.fill("33")
    typed.press("Enter")
    board.has(token=33)
    row = weights(own, 0, 0)[33]
    expect(page.locator("p", has_text="3. Share out")).to_contain_text(f"= {row.max():.4f}.")
    assert board["caption"].startswith("patch 33 (row 4, column 0) → ")
    assert board["caption"].endswith(f": {row.max():.4f}, the largest of this row")


def test_maximum_entropy_and_baseline_are_in_print(opened: Open, own: Own) -> None:
    board = Shown(opened("/Attention?layer=1&head=2&token=9"))
    board.has(ready="true")
    maps = weights(own, 1, 2)
    entropy = -(maps * np.log2(maps, out=np.zeros_like(maps), where=maps > 0)).sum(-1)
    numbers = board.root.locator(".stats")
    expect(numbers).to_contain_text(f"max {maps[9].max():.4f}, entropy {entropy[9]:.2f} bits")
    expect(numbers).to_contain_text(f"max {maps.max():.4f} · mean entropy {entropy.mean():.2f} of")
    expect(numbers).to_contain_text(f"1/N = 1/65 = {1 / 65:.4f}")


def test_the_readout_prints_what_the_trace_holds(opened: Open, own: Own) -> None:
    page = opened("/CLS_readout?layer=3&head=2")
    norm, head = own.run.model.norm, own.run.model.head
    weight, bias = head.weight.double().numpy(), head.bias.double().numpy()

    def lens(tokens: np.ndarray) -> np.ndarray:
        centred = tokens - tokens.mean(-1, keepdims=True)
        normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + norm.eps)
        normed = normed * norm.weight.numpy() + norm.bias.numpy()
        return softmax(normed @ weight.T + bias)

    names = own.run.class_names
    stages = [own.trace["pos_added"], *(own.trace[f"blocks.{i}.resid_post"] for i in range(6))]
    by_layer = [lens(stage[0].double().numpy()) for stage in stages]
    order = np.argsort(-by_layer[-1][0])

    table = page.locator(".ranking tbody tr")
    expect(table).to_have_count(10)
    for line, index in zip(table.all(), order, strict=True):
        expect(line).to_contain_text(names[index])
        expect(line.locator("b")).to_have_text(f"{by_layer[-1][0, index]:.4f}")

    printed = page.locator(".st-key-by-layer .heatmap-label text")
    expect(printed).to_have_count(70)
    expected = sorted(f"{stage[0, index]:.2f}" for index in order for stage in by_layer)
    close = np.array(sorted(map(float, printed.all_text_contents()))) - np.array(
        sorted(map(float, expected))
    )
    assert np.abs(close).max() < 0.011  # a last digit may fall the other way

    cells = page.locator(".cells").nth(1).locator("span")
    expect(cells).to_have_count(64)
    for patch in (0, 37, 63):
        likeliest = by_layer[4][1 + patch].argmax()
        said = f"patch {patch + 1}: {names[likeliest]} {by_layer[4][1 + patch, likeliest]:.4f}"
        expect(cells.nth(patch)).to_have_attribute("title", re.compile(re.escape(said)))
        expect(cells.nth(patch).locator(".long")).to_have_text(names[likeliest])

    mine = np.stack([weights(own, layer, 2)[0] for layer in range(6)])
    captions = page.locator(".maps").nth(1).locator("figcaption")
    for layer in range(6):
        expect(captions.nth(layer)).to_contain_text(
            f"max {mine[layer, 1:].max():.4f}, itself {mine[layer, 0]:.4f}"
        )
    shown = page.locator(".maps").nth(1).locator("img")
    assert shown.evaluate_all("all => all.map(i => i.naturalWidth)") == [8] * 6


@pytest.mark.parametrize("path", ["/Attention?token=5", "/CLS_readout", "/CLS_readout?run=digits"])
def test_on_a_phone_nothing_sticks_out(opened: Open, path: str) -> None:
    page = opened(path, width=390, height=844)
    expect(page.get_by_text("Predict, then reveal")).to_be_visible()
    main = page.get_by_test_id("stMain")
    assert main.evaluate("m => m.scrollWidth - m.clientWidth") == 0
    outside = main.evaluate(
        """m => [...m.querySelectorAll('.maps figure, .cells b, .js-plotly-plot, p')].filter(e => {
            const box = e.getBoundingClientRect();
            return box.width && (box.right > innerWidth + 1 || box.left < -1);
        }).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert outside == []
