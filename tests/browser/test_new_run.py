"""The New run view in a real browser: a zip of one's own pictures becomes a trained model."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.small_data import png, write_files
from tests.test_folder import make_zip
from vit import jobs, own_data, runs
from vit.data import load_split
from vit.model import VisionTransformer, count_parameters
from vit.recipes import digits

Open = Callable[..., Page]
Settled = Callable[[Page], Page]
PATIENCE = 240.0  # seconds for a run of a few steps on a busy machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("new-run")


@pytest.fixture(scope="module")
def site(serve: Callable[..., str], folder: Path) -> str:
    names = {"VIT_RUNS_DIR": "runs", "VIT_DATA_DIR": "data", "VIT_UPLOADS_DIR": "uploads"}
    return serve("app.py", {name: str(folder / where) for name, where in names.items()})


def pictures() -> dict[str, bytes]:
    """Bright and dark squares, 60 of each, and one file that is no picture."""
    random = np.random.default_rng(0)
    files = {"bright/broken.png": b"no picture"}
    for name, low, high in (("bright", 150, 256), ("dark", 0, 100)):
        for number in range(60):
            pixels = random.integers(low, high, (40, 48, 3), np.uint8)
            files[f"{name}/{number:02}.png"] = png(pixels)
    return files


def fill(page: Page, label: str, value: str) -> None:
    field = page.locator(".st-key-new-change").get_by_label(label, exact=True)
    field.fill(value)
    field.press("Enter")


def expect_parameters(page: Page, count: int) -> None:
    """The panel says so, sooner or later."""
    expect(page.locator(".new-run-numbers dd").first).to_have_text(f"{count:,}")


def started(page: Page) -> str:
    """The folder of the run that the page watches, once it does."""
    page.wait_for_url(re.compile(r"show=watch.*job="))
    return page.url.rpartition("job=")[2].partition("&")[0]


def finished(path: Path) -> jobs.Job:
    deadline = time.monotonic() + PATIENCE
    while (job := jobs.look(path)).state in ("queued", "running"):
        assert time.monotonic() < deadline, job
        time.sleep(0.2)
    return job


def test_a_zip_of_ones_own_pictures_becomes_a_model(
    opened: Open, settled: Settled, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIT_DATA_DIR", str(folder / "data"))
    sent = make_zip(folder / "light.zip", pictures())
    page = opened("/Training?show=new")
    page.get_by_text("Your own pictures", exact=True).click()
    start = page.get_by_role("button", name="Start training")
    expect(page.get_by_text("Choose a folder or a zip of your pictures first")).to_be_visible()
    expect(start).to_be_disabled()

    page.locator(".st-key-own-zip input[type=file]").set_input_files(sent)
    expect(page.get_by_text("light.zip has 2 classes (bright, dark)")).to_be_visible()
    expect(page.get_by_text("1 more could not be read")).to_be_visible()
    settled(page)
    expect(page.locator(".batch figure")).to_have_count(16)
    labels = page.locator(".batch figcaption").all_inner_texts()
    assert set(labels) == {"bright", "dark"}

    page.get_by_text("Change it", exact=True).click()
    fill(page, "Patch side, px", "5")
    expect(page.get_by_text("Patch sizes that fit: 1, 2, 4, 8, 16, 32").first).to_be_visible()
    expect(start).to_be_disabled()
    # Each change reaches the app with all before it; the last one's answer shows that all did.
    for label, value in (
        ("Name", "Light <i>and</i> dark"),
        ("Patch side, px", "8"),
        ("Blocks", "1"),
        ("Epochs", "2"),
        ("Batch, pictures", "16"),
    ):
        fill(page, label, value)
    changes = "blocks 1 (there 4); epochs 2 (there 30); batch 16 (there 64)"
    expect(page.get_by_text(changes)).to_be_visible()
    expect(settled(page).get_by_role("button", name="Start training")).to_be_enabled()
    model = own_data.adapt(digits(), "x", 2, 32).model
    model = type(model)(**{**model.to_dict(), "depth": 1})
    expect_parameters(page, count_parameters(VisionTransformer(model)))

    # Somewhere else and back: nothing is lost.
    page.get_by_role("link", name="Patches").first.click()
    expect(page.get_by_role("heading", level=1)).not_to_have_text("How did it learn?")
    expect(page.locator(".new-run-numbers")).to_have_count(0)
    page.go_back()
    expect(page.get_by_text("light.zip has 2 classes")).to_be_visible()
    expect(page.get_by_text(changes)).to_be_visible()
    expect_parameters(page, count_parameters(VisionTransformer(model)))

    page.get_by_role("button", name="Start training").dblclick()
    path = folder / "runs" / started(page)
    job = finished(path)
    assert (job.state, job.name) == ("finished", "Light <i>and</i> dark"), job
    assert len(jobs.list_jobs(folder / "runs")) == 1, "a double click starts one run"
    run = runs.load_run(path)
    assert run.class_names == ("bright", "dark") and run.model_config == model
    recipe, _ = jobs.settings(path)
    assert Path(recipe.dataset).read_bytes() == sent.read_bytes()
    test = load_split(recipe.dataset, "test", image_size=32)
    stored = runs.read_predictions(path)
    assert stored["fingerprint"] == test.fingerprint
    assert (stored["labels"] == test.labels).all()


def test_a_path_on_this_machine_will_do_as_well(
    opened: Open, settled: Settled, folder: Path
) -> None:
    pets = write_files(folder / "pets", pictures())
    page = opened("/Training?show=new")
    page.get_by_text("Your own pictures", exact=True).click()
    path = page.get_by_label("The path of a folder, or of a zip, on this machine")
    path.fill(str(folder / "none"))
    path.press("Enter")
    expect(page.get_by_text("There is no folder and no zip of that name")).to_be_visible()
    path.fill(str(pets))
    path.press("Enter")
    expect(page.get_by_text("has 2 classes (bright, dark)")).to_be_visible()
    expect(settled(page).get_by_role("button", name="Start training")).to_be_enabled()


def test_pointing_at_a_picture_shows_the_original(opened: Open) -> None:
    page = opened("/Training?show=new")
    pair = page.locator(".batch .pair").nth(3)
    seen, original = pair.locator(".seen-so"), pair.locator(".original")
    expect(original).to_have_css("opacity", "0")
    pair.hover()
    expect(original).to_have_css("opacity", "1")
    expect(seen).to_have_css("opacity", "0")
    page.mouse.move(0, 0)
    expect(original).to_have_css("opacity", "0")
    pair.focus()
    expect(original).to_have_css("opacity", "1")
    before = seen.get_attribute("src")
    assert before
    page.get_by_role("button", name="Another batch").click()
    expect(seen).not_to_have_attribute("src", before)


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_nothing_is_cut_off_at_any_width(opened: Open, settled: Settled, width: int) -> None:
    page = opened("/Training?show=new", width=width)
    page.get_by_text("CIFAR-10", exact=True).click()
    settled(page)
    page.get_by_text("Change it", exact=True).click()
    expect(page.get_by_label("Muon rate")).to_be_visible()
    main = page.locator("[data-testid=stMain]")
    assert main.evaluate("e => e.scrollWidth <= e.clientWidth")
    fields = page.locator(".st-key-new-change input").all()
    assert len(fields) == 12
    for field in fields:
        assert field.evaluate("e => e.clientWidth") >= 50
