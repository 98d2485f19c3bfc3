"""Memory that the app and a training run hold, each in a process of its own.

- ``python -m vit.train system_c`` on CIFAR-10, through loading the data and its first steps (aim:
  under 1.5 GB);
- the app, before and after a visitor has opened pages that run the model (aim: under 800 MB).

What is given is the resident set, in MB of a million bytes, as a sampler sees it 50 times a second.

    python -m benchmarks.memory [--quick] [--json]
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for python benchmarks/memory.py

import psutil
from playwright.sync_api import sync_playwright

from benchmarks.pages import open_when_up
from benchmarks.tables import Table, show
from tests.app_server import ROOT, app_server
from tests.browser.conftest import BROWSER_ARGS, find_chromium
from vit import runs
from vit.data import DataError, load_split
from vit.recipes import RECIPES

INTERVAL = 0.02  # seconds between two looks


class Peak:
    """The largest resident set of a process so far, in MB."""

    megabytes = 0.0

    def look(self, process: psutil.Process) -> float:
        """The resident set now, in MB."""
        now = process.memory_info().rss / 1e6
        self.megabytes = max(self.megabytes, now)
        return now


@contextmanager
def watched(pid: int) -> Iterator[Peak]:
    """Look at a process again and again until the ``with`` or the process ends."""
    peak, stop = Peak(), threading.Event()

    def watch() -> None:
        process = psutil.Process(pid)
        try:
            while not stop.wait(INTERVAL):
                peak.look(process)
        except psutil.NoSuchProcess:
            return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def training(recipe: str, data_dir: Path | None, steps: int, threads: int) -> Table:
    """What a training process holds at most until it is stopped, after ``steps`` steps.

    Raises:
        RuntimeError: if training ends before that.
    """
    table = Table(
        f"python -m vit.train {recipe}, loading and {steps} steps (aim: under 1,500 MB)",
        {"batch": "{}", "at most": "{:.0f} MB"},
    )
    settings = RECIPES[recipe]()
    try:
        load_split(settings.dataset, "train", data_dir, download=False)
    except DataError as error:
        table.notes.append(f"Not measured: {error}")
        return table
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "run"
        command = [sys.executable, "-m", "vit.train", recipe, f"--out={out}"]
        process = subprocess.Popen(
            [*command, *([f"--data-dir={data_dir.absolute()}"] if data_dir else [])],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            stderr=subprocess.DEVNULL,
        )
        with watched(process.pid) as peak:
            while process.poll() is None and runs.read_status(out).get("step", 0) < steps:
                time.sleep(INTERVAL)
        ended = process.poll()
        process.terminate()
        process.wait()
    if ended:
        raise RuntimeError(f"Training ended early. Run python -m vit.train {recipe} to see why.")
    table.rows.append((settings.batch_size, peak.megabytes))
    return table


def app() -> Table:
    """What the app's process holds while one visitor goes through the pages."""
    table = Table(
        "The app's process, page by page (aim: under 800 MB)", {"after": "{}", "held": "{:.0f} MB"}
    )
    with (
        app_server() as server,
        watched(server.process.pid) as peak,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=find_chromium(), args=BROWSER_ARGS) as browser,
    ):
        process = psutil.Process(server.process.pid)
        server.wait_until_healthy()
        table.rows.append(("starting", peak.look(process)))
        page = browser.new_page()
        numbered = sorted(file.stem for file in (ROOT / "pages").glob("*.py"))
        for name in ["", *(stem.split("_", 1)[1] for stem in numbered)]:
            open_when_up(page, f"{server.url}/{name}")
            table.rows.append((name.replace("_", " ") or "Start", peak.look(process)))
    table.notes.append(f"At most {peak.megabytes:.0f} MB.")
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.memory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--data-dir", type=Path, help="default: VIT_DATA_DIR, else data/")
    parser.add_argument("--quick", action="store_true", help="a step of the smallest recipe")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)

    def tables() -> Iterator[Table]:
        what = ("debug", given.data_dir, 1) if given.quick else ("system_c", given.data_dir, 20)
        yield training(*what, given.threads)
        yield app()

    try:
        show(tables(), given.json)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
