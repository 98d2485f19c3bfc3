"""The frame in a real browser: links, pictures, Back and reload, two visitors, phones and keys."""

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.pages.made import ROOT, own_walk
from tests.small_data import png, write_parquet

Open = Callable[..., Page]

expect.set_options(timeout=30_000)  # a busy machine is no failure


@pytest.fixture(scope="module")
def site(serve: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A server with uploads, runs and a small test split of its own."""
    folder = tmp_path_factory.mktemp("frame")
    write_parquet(folder / "data", "test", count=20)
    names = {"VIT_UPLOADS_DIR": "uploads", "VIT_RUNS_DIR": "runs", "VIT_DATA_DIR": "data"}
    return serve("app.py", {name: str(folder / place) for name, place in names.items()})


def thumb(page: Page, name: str) -> Any:
    return page.locator(f".thumbs button[data-name='{name}']")


def expect_current(page: Page, name: str) -> None:
    expect(page.locator(".thumbs button[aria-pressed=true]")).to_have_attribute("data-name", name)


def query(page: Page) -> str:
    return urlsplit(page.url).query


def upload(page: Page, file: str, content: bytes) -> None:
    entry = page.locator("[data-testid=stFileUploader] input[type=file]")
    expect(entry).to_have_count(1)  # after an upload, a fresh one takes its place
    entry.set_input_files({"name": file, "mimeType": "image/png", "buffer": content})


def picture(seed: int) -> tuple[str, bytes]:
    content = png(np.random.default_rng(seed).integers(0, 256, (32, 32, 3), np.uint8))
    return sha256(content).hexdigest(), content


def bars(page: Page) -> list[str]:
    page.wait_for_selector(
        "[data-testid=stApp][data-test-script-state=notRunning]", state="attached"
    )
    shown = page.locator("[data-testid=stSidebar] .bars td:last-child")
    shown.first.wait_for()
    return shown.all_inner_texts()


def test_a_choice_comes_back_by_back_reload_and_link(opened: Open) -> None:
    page = opened()
    expect_current(page, "cat-photo")
    fresh = bars(page)
    thumb(page, "frog").click()
    expect_current(page, "frog")
    page.locator(".st-key-another button").click()
    expect(page.get_by_text("never seen in training")).to_be_visible()
    chosen, shown = query(page), bars(page)
    assert re.fullmatch(r"img=test-1?\d", chosen)

    page.go_back()
    expect_current(page, "frog")
    page.go_back()
    expect_current(page, "cat-photo")
    assert (query(page), bars(page)) == ("", fresh)
    page.go_forward()
    page.go_forward()
    expect_current(page, chosen.removeprefix("img="))
    page.reload()
    expect_current(page, chosen.removeprefix("img="))
    expect(page.locator("[data-testid=stSidebar] .bars td:last-child")).to_have_text(shown)
    assert query(page) == chosen
    other = opened(f"/?{chosen}")
    expect_current(other, chosen.removeprefix("img="))
    expect(other.locator("[data-testid=stSidebar] .bars td:last-child")).to_have_text(shown)


def test_a_picture_goes_along_from_page_to_page(opened: Open) -> None:
    page = opened("/?token=3")
    thumb(page, "ship").click()
    expect_current(page, "ship")
    here = page.locator(".st-key-pipeline [aria-current=page]")
    for name, path in (("Attention", "/Attention"), ("Patches", "/Patches"), ("Start", "/")):
        page.locator(".st-key-pipeline").get_by_role("link", name=name, exact=True).click()
        expect(here).to_have_text(name)
        expect_current(page, "ship")
        assert (urlsplit(page.url).path, query(page)) == (path, "img=ship&token=3")
    assert here.evaluate("element => getComputedStyle(element).fontWeight") == "650"


def test_pointing_at_a_patch_shows_it_in_every_stage(opened: Open) -> None:
    own = own_walk(ROOT / "checkpoints" / "cifar10")
    page = opened("/?layer=1&head=2", reduced_motion=True)
    art = page.locator("[data-kind=patches] .art")
    side = art.bounding_box()["width"]
    art.hover(position={"x": side * 4.5 / 8, "y": side * 2.5 / 8})  # row 2, column 4: patch 21
    readout = page.locator("[data-kind=attention] .readout")
    row = own.trace["blocks.1.attn.pattern"][0, 2, 21, 1:]
    expect(readout).to_have_text(
        f"layer 1, head 2: patch 21 looks most at patch {1 + int(row.argmax())}, {row.max():.3f}"
    )
    cells = page.locator("[data-kind=numbers] .numbers span").all_inner_texts()
    numbers = own.trace["patch_embed.flattened"][0, 20].tolist()
    assert cells == [f"{value:.2f}".replace("-", "−") for value in numbers]
    shown = page.locator("[data-kind=answer] .value").all_inner_texts()
    probabilities = own.logits.softmax(-1).sort(descending=True).values.tolist()
    assert shown == [f"{100 * p:.1f} %" for p in probabilities]

    page.locator("[data-kind=picture] .art").hover(position={"x": 2, "y": 2})
    expect(page.locator("[data-kind=patches] .readout")).to_have_text("patch 1 (row 0, column 0)")
    page.mouse.move(600, 5)
    expect(readout).to_contain_text("[CLS] looks most at")

    art.click(position={"x": side * 4.5 / 8, "y": side * 2.5 / 8})
    expect(page).to_have_url(re.compile(r"/Patches\?layer=1&head=2&token=21$"))


def test_every_stage_can_be_reached_by_keyboard(opened: Open) -> None:
    page = opened(reduced_motion=True)
    link = page.locator("a[data-kind=patches]")
    link.focus()
    readout = link.locator(".readout")
    start = int(re.search(r"\d+", readout.inner_text())[0])
    step, key = (1, "ArrowRight") if start < 64 else (-1, "ArrowLeft")
    page.keyboard.press(key)
    expect(readout).to_contain_text(f"patch {start + step} ")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"/Patches\?token={start + step}$"))


def test_samples_and_links_work_by_keyboard(opened: Open) -> None:
    page = opened()
    thumb(page, "cat-photo").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect_current(page, "airplane")
    assert (
        page.evaluate("document.activeElement.shadowRoot.activeElement.dataset.name") == "airplane"
    )  # the focus stays where it was
    page.locator(".st-key-pipeline").get_by_role("link", name="Attention", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/Attention\?img=airplane$"))


def test_an_upload_is_the_picture_and_a_bad_file_changes_nothing(opened: Open) -> None:
    page = opened()
    name, content = picture(1)
    upload(page, "<img src=x onerror=alert(1)>.png", content)
    expect_current(page, name)
    assert query(page) == f"img={name}"
    expect(page.locator("[data-testid=stFileUploaderFile]")).to_have_count(0)
    assert "onerror" not in page.locator("[data-testid=stApp]").inner_text()

    upload(page, "words.png", b"these are words, not a picture")
    expect(page.locator("[data-testid=stSidebar] [data-testid=stAlert]")).to_contain_text(
        "This file is text"
    )
    expect_current(page, name)
    thumb(page, "dog").click()
    expect_current(page, "dog")
    expect(page.locator("[data-testid=stSidebar] [data-testid=stAlert]")).to_have_count(0)
    thumb(page, name).click()
    expect_current(page, name)
    page.reload()
    expect_current(page, name)


def test_two_visitors_at_once_see_their_own(opened: Open) -> None:
    one, two = opened(), opened()
    (first, content_one), (second, content_two) = picture(2), picture(3)
    upload(one, "picture.png", content_one)
    upload(two, "picture.png", content_two)
    expect_current(one, first)
    expect_current(two, second)
    seen = "document.querySelector('.seen .pixels').src"
    assert one.evaluate(seen) != two.evaluate(seen)
    for page, own, other in ((one, first, second), (two, second, first)):
        page.locator(".st-key-pipeline").get_by_role("link", name="Attention", exact=True).click()
        expect(page).to_have_url(re.compile(f"/Attention.img={own}$"))
        expect_current(page, own)
        expect(thumb(page, other)).to_have_count(0)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_shows_all_of_it_in_its_width(opened: Open, dark: bool) -> None:
    page = opened(width=390, height=844, touch=True, dark=dark)
    expect(page.locator("[data-kind=filters] img")).to_be_visible()
    sizes = page.evaluate(
        "[...document.querySelectorAll('[data-testid=stMain], .st-key-pipeline')]"
        ".map(({scrollWidth, clientWidth}) => [scrollWidth, clientWidth])"
    )
    assert len(sizes) == 2 and all(scroll <= client for scroll, client in sizes)
    for link in page.locator(".st-key-pipeline a").all():
        box = link.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    page.locator(".st-key-pipeline").get_by_role("link", name="Training", exact=True).tap()
    expect(page).to_have_url(re.compile(r"/Training$"))


def test_colours_follow_the_browser_without_a_rerun(opened: Open) -> None:
    page = opened(dark=True, reduced_motion=True)
    here = page.locator(".st-key-pipeline .here")
    expect(here).to_have_css("color", "rgb(236, 234, 228)")
    expect(page.locator(".tour")).to_have_css("color", "rgb(236, 234, 228)")
    assert (
        opened()
        .locator(".st-key-pipeline .here")
        .evaluate("element => getComputedStyle(element).color")
        == "rgb(28, 27, 26)"
    )


def test_the_start_page_is_light(opened: Open, page: Open, site: str) -> None:
    """What one opening sends besides Streamlit's own files."""
    opened()  # the server is warm
    visitor = page("about:blank")
    sizes: list[int] = []
    visitor.on(
        "websocket",
        lambda socket: socket.on("framereceived", lambda frame: sizes.append(len(frame))),
    )
    visitor.goto(site)
    expect(visitor.locator("[data-kind=filters] img")).to_be_visible()
    expect(visitor.get_by_text("Next: Patches")).to_be_visible()
    assert 20_000 < sum(sizes) < 500_000
