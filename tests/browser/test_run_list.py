"""All runs in a real browser: queued, watched, named, compared, deleted, taken away and brought in.

They are runs of two epochs, which the app's own worker trains.
"""

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import OpenPage
from tests.pages.made import ROOT
from vit import jobs, runs

PATIENCE = 120_000  # ms; two runs of two epochs take a few seconds on a quiet machine
NAME = "<img src=x onerror=alert(1)> **bold** $x^2$ :red[x]"
TAG = "<b>tag</b> _a_"
SHIPPED = 2
expect.set_options(timeout=30_000)  # a busy machine is no failure
pytestmark = pytest.mark.timeout(900)

Settled = Callable[[Page], Page]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A little run."""
    out = tmp_path_factory.mktemp("trained") / "little"
    command = [sys.executable, "-m", "vit.train", "debug", "--seed", "4", "--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return out


@pytest.fixture
def env(trained: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Settings of a server with the little run alone; what it still trains at the end stops."""
    folder = tmp_path / "runs"
    shutil.copytree(trained, folder / "little")
    yield {"VIT_RUNS_DIR": str(folder), "VIT_DATA_DIR": str(tmp_path / "data")}
    for job in jobs.list_jobs(folder):
        jobs.pause(job.path)


def rows(page: Page) -> Locator:
    return page.locator(".st-key-runs tr[data-id]")


def row(page: Page, name: str) -> Locator:
    return rows(page).filter(has=page.get_by_role("button", name=name, exact=True))


def press(page: Page, label: str, settled: Settled) -> None:
    page.locator(".st-key-run-chosen").get_by_role("button", name=label, exact=True).click()
    settled(page)


def choose(page: Page, name: str, settled: Settled) -> None:
    row(page, name).get_by_role("button").click()
    expect(page.locator(".st-key-run-chosen h3")).to_have_text(name)
    settled(page)


def test_two_runs_from_the_queue_to_a_zip_and_back(
    env: dict[str, str], opened: OpenPage, settled: Settled, tmp_path: Path
) -> None:
    folder = Path(env["VIT_RUNS_DIR"])
    page = opened("/Training?show=runs", env)
    expect(rows(page)).to_have_count(1 + SHIPPED)
    expect(row(page, "little").locator(".words")).to_have_text("finished")

    # Two more of the kind, with a click each; they train by themselves, and the table follows.
    choose(page, "little", settled)
    for seed in (0, 1):
        press(page, "Same again, new seed", settled)
        expect(page.locator(".st-key-run-chosen h3")).to_have_text(f"little (seed {seed})")
        choose(page, "little", settled)
    for seed in (0, 1):
        words = row(page, f"little (seed {seed})").locator(".words")
        expect(words).to_have_text("finished", timeout=PATIENCE)
        number = row(page, f"little (seed {seed})").locator("td.number").first
        kept = max(row["val_accuracy"] for row in runs.read_metrics(folder / f"little-seed-{seed}"))
        expect(number).to_have_text(f"{100 * kept:.1f} %")

    # A name and a tag that are Markdown, HTML and TeX at once.
    choose(page, "little (seed 1)", settled)
    press(page, "Name and tags", settled)
    page.get_by_role("textbox", name="Name", exact=True).fill(NAME)
    page.get_by_role("textbox", name=re.compile("^Tags")).fill(TAG)
    page.keyboard.press("Enter")
    expect(row(page, NAME).locator(".tags span")).to_have_text(TAG)
    expect(page.locator(".st-key-run-chosen h3")).to_have_text(NAME)
    assert (jobs.look(folder / "little-seed-1").name, jobs.look(folder / "little-seed-1").tags) == (
        NAME,
        (TAG,),
    )
    page.locator(".st-key-runs-tag").get_by_text(TAG, exact=True).click()
    expect(rows(page)).to_have_count(1)
    page.locator(".st-key-runs-tag").get_by_text(TAG, exact=True).click()
    expect(rows(page)).to_have_count(3 + SHIPPED)

    # Side by side.
    for name in ("little (seed 0)", NAME):  # the second before the first has been answered
        row(page, name).get_by_role("checkbox").check()
    expect(row(page, NAME).locator(".letter")).to_have_text("B")
    heads = page.locator(".compared").first.locator("thead th")
    expect(heads).to_have_text(["A little (seed 0)", f"B {NAME}"])
    expect(page.locator(".compared").last.locator("tbody tr")).to_have_count(1)
    expect(page.locator(".compared").last.locator("tbody td")).to_have_text(["0", "1"])
    expect(page.locator(".st-key-compare-val_accuracy .scatterlayer .trace")).to_have_count(2)
    assert page.locator("[data-testid=stMain] img").count() == 0, "no name has become a picture"
    assert re.findall(r"compare=([^&]+)", page.url) == ["little-seed-0", "little-seed-1"]

    # Away as a zip, deleted, and back from it.
    with page.expect_download() as download:
        page.locator(".st-key-run-chosen").get_by_role("button", name="Download").click()
    download.value.save_as(tmp_path / "run.zip")
    assert download.value.suggested_filename == "little-seed-1.zip"
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        assert {"little-seed-1/epochs.csv", "little-seed-1/figures/loss.html"} <= {
            *archive.namelist()
        }
    weights = (folder / "little-seed-1" / runs.MODEL).read_bytes()
    press(page, "Delete", settled)
    expect(page.locator(".st-key-run-delete")).to_contain_text(f"Delete {NAME}?")
    assert (folder / "little-seed-1").exists()
    press(page, "Delete for good", settled)
    expect(rows(page)).to_have_count(2 + SHIPPED)
    assert not (folder / "little-seed-1").exists()

    page.get_by_text("Bring a run in").click()
    page.locator(".st-key-run-import input[type=file]").set_input_files(tmp_path / "run.zip")
    expect(row(page, NAME)).to_have_count(1)
    expect(page.locator(".st-key-run-chosen h3")).to_have_text(NAME)
    (brought,) = (job.path for job in jobs.list_jobs(folder) if job.name == NAME)
    assert (brought / runs.MODEL).read_bytes() == weights
    press(page, "Open this model", settled)
    parameters = f"{runs.read_config(brought)['parameters']:,} parameters"
    expect(page.locator("[data-testid=stSidebar]")).to_contain_text(parameters)
    assert f"run=runs%2F{brought.name}" in page.url


def test_the_table_by_keyboard_and_by_its_address(
    env: dict[str, str], opened: OpenPage, settled: Settled
) -> None:
    page = opened("/Training?show=runs&job=checkpoints%2Fcifar10", env)
    expect(page.locator("tr.chosen button")).to_have_text("cifar10")
    page.locator("tr.chosen button").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".st-key-run-chosen h3")).to_have_text("digits")
    expect(page.locator("tr.chosen button")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator("tr.chosen button")).to_have_text("digits")
    page.keyboard.press("Tab")
    settled(page)
    page.reload()
    settled(page)
    expect(page.locator(".st-key-run-chosen h3")).to_have_text("digits")
    page.go_back()
    expect(page.locator(".st-key-run-chosen h3")).to_have_text("cifar10")


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_nothing_is_wider_than_the_window(
    width: int, env: dict[str, str], opened: OpenPage, settled: Settled
) -> None:
    folder = Path(env["VIT_RUNS_DIR"])
    jobs.label(folder / "little", "W" * 80, ["w" * 40] * 3 + ["tag " * 10])
    address = "/Training?show=runs&compare=little&compare=checkpoints%2Fdigits"
    page = opened(address, env, width=width, touch=width < 500)
    expect(page.locator(".compared").first).to_be_visible()
    assert page.evaluate(
        "[...document.querySelectorAll('[data-testid=stMain], [data-testid=stApp]')]"
        ".every((each) => each.scrollWidth <= each.clientWidth)"
    )
    box = page.locator(".st-key-runs .box")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_on_a_public_demo_there_is_no_list(env: dict[str, str], opened: OpenPage) -> None:
    page = opened("/Training?show=runs", {**env, "VIT_TRAINING": "off"})
    expect(page.locator("[data-testid=stMain]")).to_contain_text("How it was made")
    assert page.locator(".st-key-runs").count() == 0
