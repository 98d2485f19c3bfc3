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
from tests.small_data import write_parquet
from ui.frame import PAGES, address
from ui.state import View
from vit import runs
from vit.data import DataError, load_split

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


def training(data_dir: Path | None, steps: int, threads: int) -> tuple[float, str]:
    """The peak of a training process that is stopped after ``steps`` steps, and on what it trained.

    Raises:
        RuntimeError: if training ends before that.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        what = "CIFAR-10"
        try:
            load_split("cifar10", "train", data_dir, download=False)
        except DataError:
            data_dir, what = folder, "random pictures: CIFAR-10 is not there"
            write_parquet(folder, "train", 6_000)
            write_parquet(folder, "test", 1_000)
        command = [sys.executable, "-m", "vit.train", "system_c", f"--out={folder / 'run'}"]
        process = subprocess.Popen(
            [*command, *([f"--data-dir={data_dir.absolute()}"] if data_dir else [])],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            stderr=subprocess.DEVNULL,
        )
        with watched(process.pid) as peak:
            while process.poll() is None:
                status = runs.read_status(folder / "run")
                if status.get("step", 0) >= steps:
                    break
                time.sleep(0.2)
            else:
                raise RuntimeError("Training ended early; python -m vit.train system_c says why.")
        process.terminate()
        process.wait()
    return peak.megabytes, what


def app(browser_path: str | None) -> Table:
    """What the app's process holds while one visitor goes through the pages."""
    table = Table(
        "The app's process, page by page (aim: under 800 MB)", {"after": "{}", "MB": "{:.0f}"}
    )
    with (
        app_server() as server,
        watched(server.process.pid) as peak,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=browser_path, args=BROWSER_ARGS) as browser,
    ):
        process = psutil.Process(server.process.pid)
        server.wait_until_healthy()
        table.rows.append(("starting", peak.look(process)))
        page = browser.new_page()
        for name in PAGES:
            open_when_up(page, f"{server.url}/{address(name, View())}")
            table.rows.append((name, peak.look(process)))
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
    parser.add_argument("--quick", action="store_true", help="one training step instead of 20")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)

    def tables() -> Iterator[Table]:
        megabytes, what = training(given.data_dir, 1 if given.quick else 20, given.threads)
        yield Table(
            "Training in batches of 128 (aim: under 1,500 MB)",
            {"on": "{}", "at most, MB": "{:.0f}"},
            [(what, megabytes)],
        )
        yield app(find_chromium())

    show(tables(), given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
