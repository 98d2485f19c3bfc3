"""The app in a process of its own, for the browser tests, the benchmarks and the screenshots."""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 120.0


@dataclass(frozen=True)
class Server:
    """A started ``streamlit run``; it may not answer yet."""

    url: str
    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def wait_until_healthy(self) -> None:
        """Return when the server answers; raise with its log if it ends or stays silent."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=2) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.05)
        self.log.seek(0)
        raise RuntimeError(f"the app did not start:\n{self.log.read().decode()}")


@contextmanager
def app_server(
    app: str | Path = "app.py", folder: Path = ROOT, env: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Start ``app``, a path within ``folder``, on a free port of this machine; ends with the
    ``with``. ``env`` adds to the environment."""
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", str(app)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, "--server.headless=true", f"--server.port={port}"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield Server(f"http://127.0.0.1:{port}", process, log)
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
