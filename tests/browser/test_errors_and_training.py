"""Confusion matrix and Training in a real browser: the numbers shown, and what a hand can do."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from sklearn import metrics

from tests.pages.made import ROOT
from tests.small_data import NAMES
from tests.small_runs import predictions_of, write_run
from vit.published import C_CONFUSION
from vit.runs import read_metrics, read_predictions, write_predictions

DIGITS = ROOT / "checkpoints" / "digits"
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def counts() -> np.ndarray:
    """The digits' confusion matrix, by scikit-learn."""
    stored = read_predictions(DIGITS)
    return metrics.confusion_matrix(stored["labels"], stored["probabilities"].argmax(1))


def cells(page: Page, table: int) -> list[list[str]]:
    """What a matrix shows, row by row."""
    rows = page.locator(".matrix figure").nth(table).locator("tbody tr")
    expect(rows.first.locator("td").first).not_to_be_empty()
    return [row.locator("td").all_inner_texts() for row in rows.all()]


def cell(page: Page, row: int, column: int, table: int = 0) -> Any:
    return page.locator(f"td[data-table='{table}'][data-row='{row}'][data-column='{column}']")


def test_counts_and_shares_are_scikit_learns(opened: Open, counts: np.ndarray) -> None:
    page = opened("/Confusion_matrix?run=digits")
    assert np.array(cells(page, 0)).astype(int).tolist() == counts.tolist()
    expect(page.locator(".matrix tbody th")).to_have_text(list("0123456789"))
    page.get_by_role("button", name="shares of each row").click()
    shares = 100 * counts / counts.sum(1, keepdims=True)
    assert cells(page, 0) == [[f"{share:.1f}" for share in row] for row in shares]

    row, column = map(int, np.argwhere((counts > 0) & ~np.eye(10, dtype=bool))[-1])
    cell(page, row, column).hover()
    expect(page.locator(".matrix .caption")).to_have_text(
        f"{row} → {column}:  {counts[row, column]} of {counts[row].sum()} "
        f"({shares[row, column]:.1f} %)"
    )


def test_from_a_cell_to_its_pictures_to_the_walk(opened: Open, counts: np.ndarray) -> None:
    page = opened("/Confusion_matrix?run=digits")
    row, column = map(int, np.argwhere((counts > 0) & ~np.eye(10, dtype=bool))[-1])
    cell(page, row, column).click()
    page.wait_for_url(re.compile(rf"cell={row}(,|%2C){column}"))
    pictures = page.locator(".st-key-cell .tile")
    expect(pictures).to_have_count(int(counts[row, column]))
    expect(pictures.first).to_contain_text(f"✗ {column} ")
    expect(pictures.first).to_contain_text(f"shows {row}")
    expect(cell(page, row, column)).to_have_attribute("aria-selected", "true")
    stored = read_predictions(DIGITS)
    said = stored["probabilities"].argmax(1)
    inside = set(np.flatnonzero((stored["labels"] == row) & (said == column)))
    pictures.first.click()
    page.wait_for_url(re.compile(r"/Attention\?.*img=digit-\d+"))
    assert int(re.search(r"img=digit-(\d+)", page.url)[1]) in inside
    expect(page.get_by_text(f"It is labelled {row}")).to_be_visible()


def test_a_cell_is_chosen_by_keyboard(opened: Open, counts: np.ndarray) -> None:
    page = opened("/Confusion_matrix?run=digits&cell=4,4")
    cell(page, 4, 4).focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".matrix .caption")).to_contain_text("3 → 3 (right)")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("cell=3(,|%2C)3"))
    expect(page.locator(".st-key-cell")).to_contain_text(
        f"True class 3, predicted 3: {counts[3, 3]} pictures"
    )
    page.go_back()
    expect(cell(page, 4, 4)).to_have_attribute("aria-selected", "true")


def test_the_difference_is_ours_minus_the_published_one(opened: Open, tmp_path: Path) -> None:
    run = write_run(tmp_path / "own", "cifar10", list(NAMES))
    ours = C_CONFUSION.copy()
    ours[3, 5], ours[3, 3] = ours[3, 5] - 23, ours[3, 3] + 23
    write_predictions(run, *predictions_of(ours), "f")
    env = {"VIT_RUNS_DIR": str(tmp_path), "VIT_DATA_DIR": str(tmp_path), "VIT_TRAINING": "off"}
    page = opened("/Confusion_matrix?run=runs/own", env, width=390, touch=True)
    assert np.array(cells(page, 0)).astype(int).tolist() == ours.tolist()
    assert np.array(cells(page, 1)).astype(int).tolist() == C_CONFUSION.tolist()
    difference = [[int(text.replace("−", "-")) for text in row] for row in cells(page, 2)]
    assert difference == (ours - C_CONFUSION).tolist()
    cell(page, 3, 5, table=2).tap()
    expect(page.locator(".matrix .caption")).to_have_text(
        "cat → dog:  ours 141 of 1,000 (14.1 %) · System C 164 of 1,000 (16.4 %) · "
        "difference −23 (−2.3 points)"
    )
    main = page.locator("[data-testid=stMain]")
    assert main.evaluate("m => m.scrollWidth <= m.clientWidth"), "nothing overflows sideways"


def test_a_point_of_a_curve_says_its_epoch_and_value(opened: Open) -> None:
    page = opened("/Training?run=digits")
    rows = read_metrics(DIGITS)
    plot = page.locator(".st-key-Accuracy .nsewdrag").first
    plot.wait_for()
    box = plot.bounding_box()
    plot.hover(position={"x": box["width"] / 2, "y": box["height"] / 2})
    label = page.locator(".st-key-Accuracy .hoverlayer")
    expect(label).to_contain_text("epoch")
    text = label.text_content() or ""
    epoch = int(re.search(r"epoch (\d+)", text)[1])
    row = rows[epoch - 1]
    assert f"validation: {100 * row['val_accuracy']:.1f}" in text
    assert f"training: {100 * row['train_accuracy']:.1f}" in text
