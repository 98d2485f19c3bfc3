"""A run watched while it trains, in a real browser: new points come, and change nothing else."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.trainers import PATIENCE, process, train_debug
from vit import claims, runs
from vit.recipes import digits

Open = Callable[..., Page]
STEPS, TOTAL, PER_EPOCH = 30, 600, 20  # lines of the live record, steps in all, steps in an epoch
LOSS = 2.3 - 0.05 * np.arange(STEPS) + 0.1 * np.cos(np.arange(STEPS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def site(serve: Callable[..., str], folder: Path) -> str:
    return serve("app.py", {"VIT_RUNS_DIR": str(folder), "VIT_DATA_DIR": str(folder / "data")})


@pytest.fixture
def held(folder: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A run of thirty epochs that this process trains, as far as anybody can tell."""
    path = folder / request.node.originalname
    config = {"recipe": digits().to_dict(), "seed": 0}
    with claims.hold(path):
        runs.write_json(path / runs.CONFIG, config)
        tell(path, 10 * STEPS)
        for number, loss in enumerate(LOSS, start=1):
            step(path, number, loss)
        yield path


def tell(path: Path, done: int) -> None:
    runs.write_json(path / runs.STATUS, {"state": "running", "step": done, "total": TOTAL})


def step(path: Path, number: int, loss: float) -> None:
    at = 10 * number
    runs.append_step(path, [at, at / PER_EPOCH, loss, 0.1, 1 / number, 0.001, 500.0])


def watch(opened: Open, path: Path, **options: object) -> Page:
    page = opened(f"/Training?show=watch&job={path.name}", **options)
    expect(page.locator(".live figure")).to_have_count(5)
    return page


def chart(page: Page, title: str) -> Locator:
    return page.locator(".live figure", has=page.get_by_text(title, exact=True))


def drag(page: Page, start: float, end: float) -> None:
    """Across the loss, from and to a share of its width."""
    area = chart(page, "Loss").locator("svg")
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    assert box
    x, y, width = box["x"] + 46, box["y"] + 100, box["width"] - 56
    page.mouse.move(x + start * width, y)
    page.mouse.down()
    page.mouse.move(x + end * width, y, steps=4)
    page.mouse.up()


def zoom(page: Page) -> tuple[int, int]:
    found = page.locator(".live").get_attribute("data-range") or ""
    first, last = found.split("–")
    return int(first), int(last)


def last_step(page: Page) -> int:
    return int(page.locator(".live").get_attribute("data-last") or 0)


def wait_beyond(page: Page, step: int) -> None:
    page.wait_for_function(
        "step => { const find = (node) => node.querySelector('.live') ?? [...node.querySelectorAll"
        "('*')].reduce((found, e) => found ?? (e.shadowRoot && find(e.shadowRoot)), null);"
        " return Number(find(document)?.dataset.last ?? 0) > step }",
        arg=step,
        timeout=1000 * PATIENCE,
    )


def test_zoom_survives_the_points_that_come_and_a_run_can_be_paused(
    opened: Open, folder: Path
) -> None:
    path = folder / "real"
    with process(train_debug, path, folder / "data", 2000):
        page = watch(opened, path)
        wait_beyond(page, 60)
        drag(page, 0.1, 0.5)
        zoomed = zoom(page)
        assert 0 < zoomed[0] < zoomed[1]
        axis = chart(page, "Loss").locator(".frame text.step").all_text_contents()
        assert len(axis) >= 3
        for _ in range(2):
            before = last_step(page)
            wait_beyond(page, before)
            assert zoom(page) == zoomed
        assert chart(page, "Loss").locator(".frame text.step").all_text_contents() == axis
        expect(page.get_by_role("button", name="Show all steps")).to_be_enabled()

        page.get_by_role("button", name="Pause").click()
        expect(page.locator(".run-state")).to_have_text("Paused", timeout=1000 * PATIENCE)
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert zoom(page) == zoomed
    steps = runs.read_steps(path, 10**9)
    expect(page.locator(".run-numbers dd").first).to_contain_text(f"of {2000 * PER_EPOCH:,}")
    expect(page.locator(".live")).to_have_attribute("data-last", f"{steps['step'][-1]:.0f}")


def test_pointing_shows_step_and_value_on_all_charts(opened: Open, held: Path) -> None:
    page = watch(opened, held)
    page.locator(".smoothing input").fill("0")
    area = chart(page, "Loss").locator("svg")
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    assert box
    # The axis reaches to the run's end: half of it has been trained.
    page.mouse.move(box["x"] + 46 + 0.25 * (box["width"] - 56), box["y"] + 90)
    expect(area.locator(".cross text")).to_have_text("step 150 · epoch 7.5")
    expect(chart(page, "Loss").locator(".now")).to_have_text(f"{LOSS[14]:.3f}")
    expect(chart(page, "Gradient norm").locator(".now")).to_have_text(f"{1 / 15:.4f}")
    expect(chart(page, "Gradient norm").locator(".cross text")).to_have_text("step 150 · epoch 7.5")
    page.mouse.move(5, 5)
    expect(area.locator(".cross text")).to_have_count(0)
    expect(chart(page, "Loss").locator(".now")).to_have_text(f"{LOSS[-1]:.3f}")


def test_smoothing_is_the_debiased_average_over_the_raw_line(opened: Open, held: Path) -> None:
    page = watch(opened, held)
    for weight in (0.6, 0.9):
        page.locator(".smoothing input").fill(str(weight))
        # Each value's weight written out: (1 − w)·w^age, divided by their sum.
        weights = weight ** np.arange(STEPS)[::-1]
        expected = (weights @ LOSS) / weights.sum()
        expect(chart(page, "Loss").locator(".now")).to_have_text(f"{expected:.3f}")
        expect(chart(page, "Loss").locator("path.raw")).to_have_count(1)
        expect(chart(page, "Learning rate").locator("path.raw")).to_have_count(0)
    page.locator(".smoothing input").fill("0")
    expect(chart(page, "Loss").locator("path.raw")).to_have_count(0)


def test_the_log_scale_keeps_the_zoom(opened: Open, held: Path) -> None:
    page = watch(opened, held)
    drag(page, 0.1, 0.3)
    zoomed = zoom(page)
    assert zoomed == pytest.approx((60, 180), abs=4)
    page.get_by_label("Log scale").check()
    assert zoom(page) == zoomed
    # On a scale of logarithms, equal ratios are equal distances; on the other, equal differences.
    assert np.ptp(distances(page, np.log)) < 0.01 < np.ptp(distances(page, np.array))
    page.get_by_label("Log scale").uncheck()
    assert np.ptp(distances(page, np.array)) < 0.01 < np.ptp(distances(page, np.log))


def distances(page: Page, scale: Callable[[list[float]], np.ndarray]) -> np.ndarray:
    """Pixels between the lines of the loss, relative to the differences on a scale."""
    ticks = chart(page, "Loss").locator(".frame text.tick")
    values = scale([float(text) for text in ticks.all_text_contents()])
    pixels = np.array([float(tick.get_attribute("y") or 0) for tick in ticks.all()])
    assert len(values) >= 3
    ratios: np.ndarray = np.diff(pixels) / np.diff(values)
    return ratios / ratios.mean()


def test_new_points_of_a_held_run_move_no_zoom(opened: Open, held: Path) -> None:
    page = watch(opened, held)
    drag(page, 0.2, 0.4)
    zoomed = zoom(page)
    for number in range(STEPS + 1, STEPS + 4):
        tell(held, 10 * number)
        step(held, number, 0.7)
        wait_beyond(page, 10 * number - 1)
        assert zoom(page) == zoomed
    expect(page.locator(".run-numbers dd").first).to_have_text(f"{10 * STEPS + 30} of {TOTAL}")
    page.get_by_role("button", name="Show all steps").click()
    expect(page.locator(".live")).to_have_attribute("data-range", "")
    expect(chart(page, "Loss").locator("svg")).to_have_attribute(
        "aria-label", re.compile("from step 0 to 600")
    )


def test_the_keyboard_moves_and_zooms(opened: Open, held: Path) -> None:
    page = watch(opened, held)
    page.locator(".smoothing input").fill("0")
    area = chart(page, "Loss").locator("svg")
    area.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(area.locator(".cross text")).to_have_text("step 290 · epoch 14.5")
    expect(page.locator(".live .spoken")).to_have_text(f"Step 290: training {LOSS[-2]:.3f}")
    page.keyboard.press("+")
    expect(page.locator(".live")).to_have_attribute("data-range", "140–440")
    page.keyboard.press("Escape")
    expect(page.locator(".live")).to_have_attribute("data-range", "")


def test_a_phone_zooms_too_and_nothing_is_wider_than_it(opened: Open, held: Path) -> None:
    page = watch(opened, held, width=390, height=844, touch=True)
    drag(page, 0.1, 0.5)
    assert zoom(page) == pytest.approx((60, 300), abs=8)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    page.reload()
    expect(page.locator(".live")).to_have_attribute("data-range", "")
