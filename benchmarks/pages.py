"""What a page costs a visitor: ``python -m benchmarks.pages``.

Everything is measured in one run, in a real browser, against an empty Streamlit page that lives
beside the real ones:

- a page change, from the click on its link until everything is drawn (aim: at most 4× the empty
  page's);
- the bytes that a page change sends to the browser (aim: under 500 KB);
- a cold start, from ``streamlit run`` to a usable first page, against
  ``python -c "import torch, streamlit"`` (aim: at most 1.5×);
- a page change while a run trains in the background, against one while nothing does (aim: at most
  3×).
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, Page, WebSocket, sync_playwright

from tests.app_server import ROOT, app_server
from tests.browser.conftest import BROWSER_ARGS, find_chromium
from vit import jobs, runs
from vit.recipes import system_b, system_c

ROUNDS = 6  # the first apart: only then the browser fetches the code that draws charts
COLD_ROUNDS = 3
IMPORTS = "import torch, streamlit"
EMPTY_PAGE = """import streamlit as st

st.set_page_config("Empty")
st.title("Empty")
for label, file in {files}.items():
    st.page_link(file, label=label)
"""
HUB_PAGE = EMPTY_PAGE.replace("Empty", "Hub")
DRAWN = """() => {
    const app = document.querySelector("[data-testid=stApp]");
    const titles = [...document.querySelectorAll("h1")].map((title) => title.textContent);
    return app?.dataset.testScriptState === "notRunning" && titles.length > 0
        && !document.querySelector("[data-testid=stSkeleton], [data-stale=true]");
}"""


def app_with_empty_pages(folder: Path) -> dict[str, str]:
    """The app, laid into ``folder``, with two more pages: an empty one, and one of links."""
    shutil.copy(ROOT / "app.py", folder)  # a link would lead Streamlit to the real pages
    for name in ("ui", "vit", "figures", "checkpoints", "samples", ".streamlit"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "pages").mkdir()
    pages = {}
    for page in sorted((ROOT / "pages").glob("*.py")):
        shutil.copy(page, folder / "pages")
        pages[page.stem.split("_", 1)[1].replace("_", " ")] = f"pages/{page.name}"
    links = {"Start": "app.py"} | pages | {"Empty": "pages/8_Empty.py", "Hub": "pages/9_Hub.py"}
    (folder / "pages/8_Empty.py").write_text(EMPTY_PAGE.format(files=links))
    (folder / "pages/9_Hub.py").write_text(HUB_PAGE.format(files=links))
    return links


def open_when_up(page: Page, url: str) -> None:
    """Open the page as soon as the server answers, and wait until all is drawn."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            page.goto(url)
            break
        except Exception:  # the port is not open yet
            time.sleep(0.02)
    page.wait_for_function(DRAWN, timeout=120_000)


def change_pages(
    page: Page, targets: Sequence[str], rounds: int, frames: list[str | bytes]
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """From the page of links to each target and back, in turns: the seconds of every change there,
    and the bytes of the first, which ``frames`` has collected."""
    seconds: dict[str, list[float]] = {label: [] for label in targets}
    size: dict[str, int] = {}
    for _ in range(rounds):
        for label in targets:
            frames.clear()
            started = time.perf_counter()
            page.get_by_test_id("stPageLink").get_by_text(label, exact=True).first.click()
            page.wait_for_function("() => document.querySelector('h1')?.textContent !== 'Hub'")
            page.wait_for_function(DRAWN)
            seconds[label].append(time.perf_counter() - started)
            size.setdefault(label, sum(map(len, frames)))
            page.go_back()
            page.wait_for_function("() => document.querySelector('h1')?.textContent === 'Hub'")
            page.wait_for_function(DRAWN)
    return seconds, size


def page_changes(page: Page, links: dict[str, str]) -> None:
    """Time and weigh every page change, the empty page among them, and print the table."""
    frames: list[str | bytes] = []

    def listen(socket: WebSocket) -> None:
        socket.on("framereceived", lambda frame: frames.append(frame))

    page.on("websocket", listen)
    page.reload()
    page.wait_for_function(DRAWN)
    targets = [label for label in links if label != "Hub"]
    seconds, size = change_pages(page, targets, ROUNDS, frames)
    print("page change to       first    later  (of empty)    sent")
    empty = median(seconds["Empty"][1:])
    for label in targets:
        first, later = seconds[label][0], median(seconds[label][1:])
        print(
            f"{label:18} {first:6.2f} s {later:6.2f} s  ({later / empty:5.2f}×) "
            f"{size[label] / 1e3:6.0f} KB"
        )
    print("(aims: at most 4×, under 500 KB)\n")


def while_training(page: Page, links: dict[str, str], runs_dir: Path) -> None:
    """Time page changes before and while a run of system C's model trains, and print the table."""
    targets = [label for label in links if label not in ("Hub", "Empty")]
    idle, _ = change_pages(page, targets, ROUNDS, [])
    recipe = replace(system_b(), model=system_c().model, batch_size=128, epochs=10_000)
    path = jobs.start(runs_dir, recipe)
    try:
        while not runs.read_status(path).get("step"):
            time.sleep(0.1)
        busy, _ = change_pages(page, targets, ROUNDS, [])
        job = jobs.look(path)
        if job.state != "running":
            raise RuntimeError(f"The run did not train all the while: {job.message}")
    finally:
        jobs.pause(path)
        while jobs.look(path).state == "running":
            time.sleep(0.1)
    print("page change to       idle   training")
    for label in targets:
        before, during = (median(seconds[label]) for seconds in (idle, busy))
        print(f"{label:18} {before:6.2f} s {during:6.2f} s  ({during / before:5.2f}×)")
    print("(aim: at most 3×)\n")


def cold_start(browser: Browser, folder: Path) -> None:
    """Time the first page of a fresh server against importing what it needs, taking turns."""
    imports, starts = [], []
    for _ in range(COLD_ROUNDS):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", IMPORTS], check=True)
        imports.append(time.perf_counter() - started)
        page = browser.new_context().new_page()
        started = time.perf_counter()
        with app_server(folder=folder) as server:
            open_when_up(page, server.url)
            starts.append(time.perf_counter() - started)
        page.context.close()
    print(f"{IMPORTS!r}: {median(imports):.2f} s (median of {COLD_ROUNDS})")
    print(f"streamlit run → first page drawn: {median(starts):.2f} s")
    print(f"ratio {median(starts) / median(imports):.2f} (aim: at most 1.5)")


def main() -> None:
    """Measure and print."""
    with (
        tempfile.TemporaryDirectory() as temporary,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=find_chromium(), args=BROWSER_ARGS) as browser,
    ):
        folder = Path(temporary)
        links = app_with_empty_pages(folder)
        runs_dir = folder / "runs"
        runs_dir.mkdir()
        with app_server(folder=folder, env={"VIT_RUNS_DIR": str(runs_dir)}) as server:
            page = browser.new_context().new_page()
            open_when_up(page, f"{server.url}/Hub")
            page_changes(page, links)
            while_training(page, links, runs_dir)
        cold_start(browser, folder)


if __name__ == "__main__":
    main()
