"""Pictures of every page, as a visitor sees them: ``make screenshots``.

Starts the app on its own, with the digits run as a visitor's own, opens each page in a browser, and
writes ``docs/images/NAME.png`` for the README. ``python -m docs.screenshots FOLDER`` writes every
page in light, dark and at the width of a phone into FOLDER instead, whole pages, for looking them
over.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.app_server import ROOT, app_server
from tests.browser.conftest import BROWSER_ARGS, find_chromium
from ui.frame import PAGES, address
from ui.state import View
from ui.workshop import VIEWS

README_VIEW = View(img="cat-photo", layer=4, head=1, token=29)
LOOKS = {"light": (1440, False), "dark": (1440, True), "phone": (390, False)}


def take(browser: Browser, url: str, file: Path, width: int, dark: bool, whole: bool) -> None:
    """One screenshot, once everything has been drawn."""
    context = browser.new_context(
        viewport={"width": width, "height": 1000},
        color_scheme="dark" if dark else "light",
        device_scale_factor=1,
    )
    context.set_default_timeout(90_000)
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector(
        "[data-testid=stApp][data-test-script-state=notRunning]", state="attached"
    )
    page.wait_for_selector("[data-testid=stSkeleton]", state="detached")
    page.wait_for_function("document.fonts.status === 'loaded'")
    if whole:
        height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        page.set_viewport_size({"width": width, "height": height + 20})
    page.wait_for_timeout(1500)  # charts draw in their own time and say nothing when done
    page.screenshot(path=file)
    context.close()


def places() -> Iterator[tuple[str, str]]:
    """Every page, and every view of the Training page: a name for its file, and its address."""
    for name in PAGES:
        stem = name.strip("[]").replace("] ", "-").replace(" ", "-").lower()
        place = address(name, README_VIEW)
        yield stem, place
        if name == "Training":
            for view in list(VIEWS)[1:]:
                yield f"{stem}-{view}", f"{place}&show={view}"


def main() -> None:
    """Take the README's pictures, or all looks of all pages into a folder."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    (folder or ROOT / "docs/images").mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as runs_dir,
        app_server(env={"VIT_RUNS_DIR": runs_dir}) as server,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=find_chromium(), args=BROWSER_ARGS) as browser,
    ):
        shutil.copytree(ROOT / "checkpoints" / "digits", Path(runs_dir) / "digits")
        server.wait_until_healthy()
        for stem, place in places():
            if folder is None:
                file = ROOT / f"docs/images/{stem}.png"
                take(browser, f"{server.url}/{place}", file, 1280, False, False)
                continue
            for look, (width, dark) in LOOKS.items():
                file = folder / f"{stem}-{look}.png"
                take(browser, f"{server.url}/{place}", file, width, dark, True)


if __name__ == "__main__":
    main()
