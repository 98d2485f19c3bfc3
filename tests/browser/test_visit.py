"""A whole visit: one's own picture on every page, cold links, and every difficult file."""

import io
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import Page, expect

from tests.browser.test_attention_and_readout import expect_opened, weights
from tests.browser.test_frame import bars, expect_current, upload
from tests.pages.made import ROOT, Own
from tests.test_images import COLOUR_FILES, GREY_FILES, REFUSED
from ui.frame import PAGES
from vit import images, load_run, record
from vit.runs import read_metrics, read_predictions

Open = Callable[..., Page]
ADDRESSES = {
    name: "/" if file == "app.py" else "/" + re.sub(r"pages/\d_(.*)\.py", r"\1", file)
    for name, file in PAGES.items()
}


@pytest.fixture(scope="module")
def site(serve: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("visit")
    return serve("app.py", {"VIT_UPLOADS_DIR": str(folder), "VIT_DATA_DIR": str(folder / "none")})


def photo() -> bytes:
    """A picture of nobody's: soft colours, wider than high, as a JPEG."""
    rows, columns = np.mgrid[0:90, 0:120] / 90
    layers = [np.sin(7 * rows + 3 * columns), np.cos(5 * columns * rows), rows - columns / 2]
    pixels = np.stack([127 + 120 * np.clip(layer, -1, 1) for layer in layers], -1)
    out = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(out, "JPEG", quality=90)
    return out.getvalue()


def walk_of(content: bytes) -> Own:
    """The package's own walk of an upload, as the sidebar frames it by itself."""
    run = load_run(ROOT / "checkpoints" / "cifar10")
    square = images.frame_picture(images.open_picture(content), "crop")
    x = torch.from_numpy(images.to_model_input(square, 32, 3, run.mean, run.std))[None]
    with torch.inference_mode(), record() as trace:
        logits = run.model(x)
    return Own(run, x, trace, logits[0])


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("%", "").strip())


def test_an_upload_walks_through_every_page_with_the_packages_numbers(opened: Open) -> None:
    content = photo()
    own, name = walk_of(content), images.fingerprint(content)
    probabilities = own.logits.double().softmax(0)
    top = [100 * float(p) for p in probabilities.sort(descending=True).values[:3]]
    page = opened("/?token=30&layer=2&head=1")
    upload(page, "mine.jpg", content)
    for page_name, address in ADDRESSES.items():
        if address != "/":
            page.locator(".st-key-pipeline").get_by_role("link", name=page_name, exact=True).click()
            expect(page).to_have_url(re.compile(f"{address}\\?img={name}"))
        expect_current(page, name)
        expect(page.locator("[data-testid=stSidebar] .bars tr")).to_have_count(3)
        assert [number(text) for text in bars(page)] == pytest.approx(top, abs=0.051)
        if page_name == "Patches":
            numbers = own.trace["patch_embed.flattened"][0, 29]
            cells = page.locator(".in-order tr.normalised td")
            expect(cells.nth(0)).to_have_text(f"{numbers[0]:+.2f}".replace("-", "−"))
            assert [number(t) for t in cells.all_inner_texts()] == pytest.approx(
                numbers.tolist(), abs=0.00501
            )
        elif page_name == "Token shapes":
            expect(page.locator("[data-testid=stMain]")).to_contain_text("1,205,898")
        elif page_name == "Attention":
            row = weights(own, 2, 1)[30]
            key = int(row.argmax())
            patches = [f"patch {i + 1} (row {i // 8}, column {i % 8})" for i in range(64)]
            expect_opened(page, patches[29], ["[CLS]", *patches][key], row[key])
        elif page_name == "[CLS] readout":
            printed = page.locator(".ranking tbody b")
            expect(printed).to_have_count(10)
            assert [number(text) for text in printed.all_inner_texts()] == pytest.approx(
                sorted(probabilities.tolist(), reverse=True), abs=5.1e-5
            )
        elif page_name == "Confusion matrix":
            stored = read_predictions(own.run.path)
            accuracy = 100 * (stored["probabilities"].argmax(1) == stored["labels"]).mean()
            expect(page.locator("[data-testid=stMain]")).to_contain_text(f"{accuracy:.2f} %")
        elif page_name == "Training":
            row = read_metrics(own.run.path)[own.run.epoch - 1]
            expect(page.locator("[data-testid=stMain]")).to_contain_text(
                f"{100 * row['val_accuracy']:.1f} %"
            )


@pytest.mark.parametrize("name", PAGES)
def test_every_page_opens_from_a_cold_link(opened: Open, name: str) -> None:
    page = opened(f"{ADDRESSES[name]}?img=ship&token=12&layer=3&head=2&epoch=4")
    expect(page.locator("h1")).to_be_visible()
    expect_current(page, "ship")
    expect(page.locator(".st-key-pipeline [aria-current=page]")).to_have_text(name)
    run = load_run(ROOT / "checkpoints" / "cifar10", epoch=4)
    square = images.frame_picture(
        images.open_picture((ROOT / "samples" / "ship.png").read_bytes()), "crop"
    )
    x = torch.from_numpy(images.to_model_input(square, 32, 3, run.mean, run.std))[None]
    top = run.model(x)[0].softmax(0).max().item()
    assert number(bars(page)[0]) == pytest.approx(100 * top, abs=0.051)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)


@pytest.fixture
def visitor(opened: Open) -> Iterator[Page]:
    yield opened()


ACCEPTED = {
    **{k: COLOUR_FILES[k][0] for k in ("jpeg, CMYK", "png, palette", "gif, animated", "avif")},
    **{k: COLOUR_FILES[k][0] for k in ("webp", "tiff, LZW", "bmp", "png, 16 bits a channel")},
    **{k: GREY_FILES[k][0] for k in ("jpeg", "png, 16 bits", "tiff, float 0 to 1")},
}
UNUSABLE = (
    *("empty", "text", "svg", "heic", "cut jpeg", "cut png", "header bomb", "real bomb"),
    *("bomb in an icon", "pdf", "video", "profile bomb"),
)


def test_difficult_files_through_the_uploader(visitor: Page) -> None:
    """In one visit, by turns: what can be used is shown, what cannot is explained in a sentence
    and leaves the former picture where it is."""
    alert = visitor.locator("[data-testid=stSidebar] [data-testid=stAlert]")
    current, refused = "cat-photo", list(UNUSABLE)
    for content in ACCEPTED.values():
        if refused:
            kind = refused.pop()
            data, wrong, remedy = REFUSED[kind]
            upload(visitor, "picture.png", data)
            expect(alert).to_contain_text(wrong)
            expect(alert).to_contain_text(remedy)
            expect_current(visitor, current)
        upload(visitor, "<b>picture</b>.png", content)
        current = images.fingerprint(content)
        expect_current(visitor, current)
        expect(alert).to_have_count(0)
    expect(visitor.locator("[data-testid=stException]")).to_have_count(0)
    assert len(refused) == len(UNUSABLE) - len(ACCEPTED)
