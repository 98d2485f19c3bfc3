"""Play through a run's snapshots in a real browser: its pace, what stays in place, what ends it."""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest
from playwright.sync_api import Locator, Page, TimeoutError, expect

from tests.browser.test_visit import ADDRESSES
from tests.pages.made import ROOT, own_walk
from ui import replay
from vit import claims, load_run, runs

Open = Callable[..., Page]
DIGITS = ROOT / "checkpoints" / "digits"
EPOCHS = runs.list_epochs(DIGITS)

# Notes in the page when the address changes, when the script runs, and when it has come to rest.
WATCH = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  window.log = [];
  const note = what => window.log.push([performance.now() / 1000, what]);
  const push = history.pushState.bind(history);
  history.pushState = (state, title, url) => { push(state, title, url); note(location.search); };
  new MutationObserver(() => note(app.dataset.testScriptState))
    .observe(app, { attributeFilter: ['data-test-script-state'] });
}"""


def button(page: Page) -> Locator:
    return page.locator(".st-key-play button")


def epoch_of(address: str) -> int | None:
    stated = parse_qs(urlsplit(address).query).get("epoch")
    return int(stated[0]) if stated else None


def wait_for_epoch(page: Page, epoch: int | None) -> None:
    page.wait_for_url(lambda url: epoch_of(url) == epoch)


def expect_to_stay(page: Page) -> None:
    """The address does not change for longer than two steps of play take."""
    there = page.url
    with pytest.raises(TimeoutError):
        page.wait_for_url(lambda url: url != there, timeout=1000 * (2 * replay.PACE + 1.5))


def test_played_by_keyboard_everything_stays_in_place(
    opened: Open, settled: Callable[[Page], Page]
) -> None:
    """Each snapshot once, in order, to the kept weights, with the board and the page where they
    were, the focus on the button, and never before the page has rested for a while."""
    page = opened(f"/Attention?run=digits&token=3&epoch={EPOCHS[-5]}")
    main, board = page.locator("[data-testid=stMain]"), page.locator(".st-key-board canvas").first
    board.evaluate("canvas => { canvas.same = true }")
    main.evaluate("m => m.scrollTo(0, 700)")
    top = main.evaluate("m => m.scrollTop")
    assert top > 0
    place = button(page).bounding_box()
    page.evaluate(WATCH)
    button(page).focus()
    page.keyboard.press("Enter")
    expect(button(page)).to_have_text("Pause epochs")
    for epoch in [*EPOCHS[-4:], None]:
        wait_for_epoch(page, epoch)
        settled(page)
        assert main.evaluate("m => m.scrollTop") == top
        assert button(page).bounding_box() == place
        expect(button(page)).to_be_focused()
        assert board.evaluate("canvas => canvas.same")
    expect(button(page)).to_have_text("Play epochs")
    expect_to_stay(page)

    log = page.evaluate("window.log")
    steps = [(time, epoch_of(what)) for time, what in log if what.startswith("?")]
    assert [epoch for _, epoch in steps] == [*EPOCHS[-4:], None]
    for stepped, _ in steps:
        # Before a step the page is at rest, but for the moment in which the wait itself runs.
        rests = [at for at, what in log if what == "notRunning" and at < stepped]
        assert stepped - rests[-1] > 0.9 * replay.PACE


@pytest.mark.parametrize("name", ADDRESSES)
def test_it_plays_on_every_page_to_the_weights_that_were_kept(opened: Open, name: str) -> None:
    x, surest = own_walk(DIGITS).x, {}
    for epoch in (EPOCHS[-1], None):
        probabilities = load_run(DIGITS, epoch).model(x)[0].softmax(0)
        surest[epoch] = f"{100 * probabilities.max().item():.1f} %"
    page = opened(f"{ADDRESSES[name]}?run=digits&epoch={EPOCHS[-2]}")
    button(page).click()
    for epoch, text in surest.items():
        wait_for_epoch(page, epoch)
        bar = page.locator("[data-testid=stSidebar] .bars tr").first
        expect(bar.locator("td").last).to_have_text(text)
    expect(button(page)).to_have_text("Play epochs")


@pytest.fixture
def playing(opened: Open) -> Iterator[Page]:
    """A visitor who plays, on Attention, from the start."""
    page = opened("/Attention?run=digits")
    button(page).click()
    wait_for_epoch(page, EPOCHS[1])
    yield page


def expect_rest(page: Page) -> None:
    expect(button(page)).to_have_text("Play epochs")
    expect_to_stay(page)


def test_pressed_again_it_stops(playing: Page) -> None:
    button(playing).click()
    expect_rest(playing)
    assert epoch_of(playing.url) in EPOCHS


def test_the_slider_takes_over(playing: Page) -> None:
    playing.get_by_role("slider", name="Epoch").press("End")
    expect_rest(playing)
    assert epoch_of(playing.url) is None


def test_it_does_not_follow_to_another_page(playing: Page) -> None:
    playing.locator(".st-key-pipeline").get_by_role("link", name="Patches").click()
    playing.wait_for_url(re.compile("/Patches"))
    expect_rest(playing)
    assert epoch_of(playing.url) in EPOCHS


def test_two_visitors_play_apart(playing: Page, opened: Open) -> None:
    other = opened(f"/Attention?run=digits&epoch={EPOCHS[-1]}")
    there = epoch_of(playing.url)
    expect_rest(other)
    assert epoch_of(other.url) == EPOCHS[-1]
    assert EPOCHS.index(epoch_of(playing.url)) > EPOCHS.index(there), "the first plays on"
    expect(button(playing)).to_have_text("Pause epochs")


def test_a_choice_on_the_board_meanwhile_is_kept(playing: Page) -> None:
    canvas = playing.locator(".st-key-board canvas").first
    canvas.focus()
    playing.keyboard.press("ArrowRight")
    playing.wait_for_url(re.compile("token=1"))
    wait_for_epoch(playing, EPOCHS[4])
    assert "token=1" in playing.url
    expect(button(playing)).to_have_text("Pause epochs")


def test_quick_steps_all_count(opened: Open, settled: Callable[[Page], Page]) -> None:
    """Clicks that are sent before the browser has drawn the last step do not undo it."""
    page = opened(f"/Attention?run=digits&epoch={EPOCHS[0]}")
    for epoch in EPOCHS[1:6]:
        page.get_by_role("button", name="Later").click()
        wait_for_epoch(page, epoch)  # the address is there before the page is
    settled(page)
    slider = page.get_by_role("slider", name="Epoch")
    expect(slider).to_have_attribute("aria-valuetext", str(EPOCHS[5]))
    assert epoch_of(page.url) == EPOCHS[5]


def test_it_plays_while_a_run_is_watched(opened: Open, tmp_path: Path) -> None:
    """The Watch view asks anew every second, with whatever the browser has by then."""
    path = shutil.copytree(DIGITS, tmp_path / "own")
    process = {"pid": os.getpid(), "started": psutil.Process().create_time()}
    status = {"state": "running", "step": 10, "total": 1000, "heartbeat": time.time()}
    with claims.hold(path):
        runs.write_json(path / runs.STATUS, {**status, **process, "error": None, "task": None})
        page = opened(
            f"/Training?show=watch&run=digits&epoch={EPOCHS[-4]}", {"VIT_RUNS_DIR": str(tmp_path)}
        )
        expect(page.get_by_role("button", name="Stop and keep")).to_be_visible()
        page.evaluate(WATCH)
        button(page).click()
        wait_for_epoch(page, None)
        expect(button(page)).to_have_text("Play epochs")
        log = page.evaluate("window.log")
    ticks = sum(what == "running" for _, what in log)
    assert ticks > 2 * len(EPOCHS[-4:]), "it was watched meanwhile"
    assert [epoch_of(what) for _, what in log if what.startswith("?")] == [*EPOCHS[-3:], None]
