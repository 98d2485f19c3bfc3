"""A Streamlit server and a real browser for the tests of this folder.

``serve`` starts an app once per session and hands out its address; ``page`` opens it in a fresh
visitor's browser; ``settled`` waits until the app has nothing left to do; ``problems`` lists what
went wrong in a page (errors in the console, failed requests, requests to other machines).
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Route, sync_playwright

from tests.app_server import app_server

WAIT_MS = 60_000
BROWSER_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

Serve = Callable[..., str]
OpenPage = Callable[..., Page]


def find_chromium() -> str | None:
    """The browser to use: ``VIT_CHROMIUM``, else one on the path; None means Playwright's own."""
    if chosen := os.environ.get("VIT_CHROMIUM"):
        return chosen
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return next(filter(None, found), None)


@pytest.fixture(scope="session")
def serve() -> Iterator[Serve]:
    """``serve(app, env=None)`` → the address of a server running ``app`` (one per app and env).

    ``app`` is relative to the repository's root; ``env`` adds to the environment.
    """
    urls: dict[tuple[str, frozenset[tuple[str, str]]], str] = {}
    with ExitStack() as running:

        def start(app: str | Path, env: Mapping[str, str] | None = None) -> str:
            key = (str(app), frozenset((env or {}).items()))
            if key not in urls:
                server = running.enter_context(app_server(app, env=env))
                server.wait_until_healthy()
                urls[key] = server.url
            return urls[key]

        yield start


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=find_chromium(), args=BROWSER_ARGS)
        yield started
        started.close()


@pytest.fixture
def watched() -> dict[Page, list[str]]:
    return {}


@pytest.fixture
def page(browser: Browser, watched: dict[Page, list[str]]) -> Iterator[OpenPage]:
    """``page(url, width=, height=, dark=, touch=, pixel_ratio=, …)`` → the page of a new visitor.

    Requests to other machines are refused and listed by ``problems``.
    """
    contexts = []

    def open_page(
        url: str,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        touch: bool = False,
        pixel_ratio: float = 1,
        reduced_motion: bool = False,
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            has_touch=touch,
            device_scale_factor=pixel_ratio,
            reduced_motion="reduce" if reduced_motion else "no-preference",
            accept_downloads=True,
        )
        contexts.append(context)
        context.set_default_timeout(WAIT_MS)
        opened = context.new_page()
        problems = watched[opened] = []

        def guard(route: Route) -> None:
            if urlsplit(route.request.url).hostname in ("127.0.0.1", "localhost"):
                route.continue_()
            else:
                problems.append(f"left this machine: {route.request.url}")
                route.abort()

        def on_console(message: ConsoleMessage) -> None:
            if message.type == "error":
                problems.append(f"console: {message.text}")

        def on_failed(request: Request) -> None:
            # A request that the browser drops because the visitor moved on is no failure.
            if request.failure != "net::ERR_ABORTED":
                problems.append(f"request failed: {request.url} ({request.failure})")

        opened.route("http*://**/*", guard)
        opened.on("console", on_console)
        opened.on("pageerror", lambda error: problems.append(f"error: {error}"))
        opened.on("requestfailed", on_failed)
        opened.goto(url)
        return opened

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def problems(watched: dict[Page, list[str]]) -> Callable[[Page], list[str]]:
    """``problems(page)`` → one line for everything that went wrong in the page so far."""
    return lambda page: watched[page]


@pytest.fixture(scope="session")
def settled() -> Callable[[Page], Page]:
    """``settled(page)`` → the page, once the script has run to its end and every part is drawn."""

    def wait(page: Page) -> Page:
        page.wait_for_selector(
            "[data-testid=stApp][data-test-script-state=notRunning]", state="attached"
        )
        page.wait_for_selector("[data-testid=stSkeleton]", state="detached")
        return page

    return wait


@pytest.fixture(scope="session")
def site(serve: Serve) -> str:
    """The address of the app as it is; a module may put a server with other settings here."""
    return serve("app.py")


@pytest.fixture
def opened(
    site: str,
    serve: Serve,
    page: OpenPage,
    settled: Callable[[Page], Page],
    problems: Callable[[Page], list[str]],
) -> Iterator[OpenPage]:
    """``opened(path, env, **page options)`` → the settled page; nothing may go wrong in it.

    ``env`` asks for a server with those settings instead of ``site``.
    """
    pages: list[Page] = []

    def open_page(path: str = "/", env: dict[str, str] | None = None, **options: Any) -> Page:
        address = serve("app.py", env) if env else site
        pages.append(settled(page(f"{address}{path}", **options)))
        return pages[-1]

    yield open_page
    # Streamlit looks for its own address below a deep link first, and does not find it there.
    wrong = [problem for each in pages for problem in problems(each) if "404" not in problem]
    assert wrong == []
