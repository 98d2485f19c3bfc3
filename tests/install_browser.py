"""Make sure the browser tests have a Chromium that starts: ``python -m tests.install_browser``.

One already there is used as it is; else Playwright's own is downloaded; else Debian's package is
installed, where this user may install packages.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable

from playwright.sync_api import Error, sync_playwright

from tests.browser.conftest import BROWSER_ARGS, find_chromium


def starts() -> bool:
    """Whether the browser that the tests would use shows a page."""
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=find_chromium(), args=BROWSER_ARGS, timeout=60_000
            )
            browser.new_page().close()
            browser.close()
        except Error:
            return False
    return True


def install_playwrights_own() -> None:
    """Download the build that this version of Playwright was made for."""
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False)


def install_debians_package() -> None:
    """Install ``chromium`` with apt-get, as root or with a sudo that asks for no password."""
    apt_get = ["apt-get"] if os.geteuid() == 0 else ["sudo", "-n", "apt-get"]
    if shutil.which("apt-get") is None or shutil.which(apt_get[0]) is None:
        return
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        subprocess.run([*apt_get, *step], env=env, check=False)


def main() -> int:
    """Try each way in turn; 0 when a browser starts, 2 when none does."""
    ways: list[Callable[[], None]] = []
    if "VIT_CHROMIUM" not in os.environ:
        ways = [install_playwrights_own, install_debians_package]
    while not starts():
        if not ways:
            print(
                "No Chromium starts here. Install one, or set VIT_CHROMIUM to the path of one that "
                "does, and run this again.",
                file=sys.stderr,
            )
            return 2
        ways.pop(0)()
    return 0


if __name__ == "__main__":
    sys.exit(main())
