"""The whole way, as a visitor goes it: start a run, leave, come back, open the model, replay it."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Page, expect

from tests.pages.made import own_walk
from vit import jobs, runs

Open = Callable[..., Page]


@pytest.fixture
def runs_dir(tmp_path: Path) -> Iterator[Path]:
    """A runs directory; whatever trains in it when the test ends is ended."""
    yield tmp_path
    for process in psutil.process_iter(["cmdline"]):
        if any(str(tmp_path) in part for part in process.info["cmdline"] or []):
            process.kill()


def wait_for(true: Callable[[], Any], seconds: float = 180) -> None:
    """Return as soon as ``true()`` is."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)


def trainers(path: Path) -> list[int]:
    """The processes that train ``path``."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if "vit.train" in (line := process.info["cmdline"] or []) and str(path) in line
    ]


def test_a_visitor_trains_leaves_returns_and_replays(
    opened: Open, runs_dir: Path, settled: Callable[[Page], Page]
) -> None:
    env = {"VIT_RUNS_DIR": str(runs_dir)}
    page = opened("/Training", env)
    page.get_by_role("button", name="Train one").click()
    page.get_by_role("button", name="Train the digits model").click()
    page.wait_for_url(re.compile("job=digits"))
    path = runs_dir / "digits"
    wait_for(lambda: jobs.look(path).state == "running" and jobs.look(path).step > 0)
    address = page.url
    page.context.close()  # the visitor closes the browser …

    wait_for(lambda: len(runs.read_metrics(path)) > 2)  # … and it trains on
    assert len(trainers(path)) == 1
    page = opened("/" + address.split("/", 3)[3], env)
    other = opened("/Training?show=watch", env)  # somebody else sees the same run
    for each in (page, other):
        expect(each.locator(".run-state")).to_have_text("Finished", timeout=180_000)
    rows = runs.read_metrics(path)
    kept = runs.load_run(path).epoch
    best = next(row for row in rows if row["epoch"] == kept)
    assert best["val_accuracy"] >= 0.95
    expect(page.get_by_text(f"{100 * best['val_accuracy']:.2f} %").first).to_be_visible()
    expect(page.locator(".run-numbers")).to_contain_text(f"{rows[-1]['step']:,} of")

    page.get_by_role("button", name="Open this model").click()
    page.wait_for_url(re.compile(r"run=runs(/|%2F)digits"))
    settled(page)
    page.get_by_test_id("stPageLink").get_by_text("Attention", exact=True).first.click()
    page.wait_for_url(re.compile("/Attention"))
    slider = page.get_by_role("slider", name="Epoch")
    largest = []
    for press, epoch in (("Home", 0), ("End", None), ("ArrowLeft", rows[-1]["epoch"])):
        slider.focus()
        page.keyboard.press(press)
        page.wait_for_url(lambda url, e=epoch: e is None or f"epoch={e}" in url)
        settled(page)
        pattern = own_walk(path, epoch).trace["blocks.0.attn.pattern"]
        largest.append(f"= {pattern[0, 0, 0].max():.4f}.")
        expect(page.locator("p", has_text="3. Share out")).to_contain_text(largest[-1])
    assert largest[0] != largest[1], "the numbers are the epoch's own"


def test_two_apps_on_one_directory_train_a_run_once(opened: Open, runs_dir: Path) -> None:
    first = opened("/Training?show=watch", {"VIT_RUNS_DIR": str(runs_dir)})
    second = opened("/Training?show=watch", {"VIT_RUNS_DIR": str(runs_dir), "VIT_APP": "2"})
    assert first.url.split("/Training")[0] != second.url.split("/Training")[0]
    first.get_by_role("button", name="Train the digits model").click()
    first.wait_for_url(re.compile("job=digits"))
    second.reload()
    path = runs_dir / "digits"
    most = 0
    while jobs.look(path).state != "finished":
        most = max(most, len(trainers(path)))
        assert jobs.look(path).state in ("queued", "running")
        time.sleep(0.05)
    assert most == 1
    for each in (first, second):
        expect(each.locator(".run-state")).to_have_text("Finished")
    assert [job.path.name for job in jobs.list_jobs(runs_dir)] == ["digits"]


def test_a_public_demo_has_no_way_to_train(opened: Open, runs_dir: Path) -> None:
    env = {"VIT_RUNS_DIR": str(runs_dir), "VIT_TRAINING": "off"}
    for show in ("watch", "new", "runs"):
        page = opened(f"/Training?show={show}", env)
        expect(page.get_by_role("heading", name="How it was made")).to_be_visible()
        for name in ("Train one", "New run", "All runs", "Start training"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
    assert not any(runs_dir.iterdir())
