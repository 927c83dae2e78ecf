# SPDX-License-Identifier: Apache-2.0
"""A server in a process of its own and a real Chromium, for all tests of the page.

``browser_page`` fails its test on any error in the browser's console and on any request to
another host. Nothing here sleeps: everything waits for what it needs, up to two minutes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.page.museum import ADA, Museum, museum_server

LOOKS = 10  # of axe, half a second apart
WAIT = 120_000  # milliseconds, for one thing to appear
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def chromium_path() -> str | None:
    """The program of a browser on this machine, if there is one."""
    for name in (os.environ.get("SFUMATO_CHROMIUM", ""), *NAMES):
        found = shutil.which(name) if name else None
        if found:
            return found
    return None


@pytest.fixture(scope="module")
def chromium():
    """The browser. Playwright keeps an event loop running, so it ends with the module: tests of
    other modules in this process have loops of their own."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="NO PLAYWRIGHT: pip install it")
    executable = chromium_path()
    if executable is None:
        pytest.skip(
            "NO CHROMIUM, the page is not tested: install it (apt-get install chromium), or name "
            "one in SFUMATO_CHROMIUM"
        )
    with sync_api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=executable, args=["--no-sandbox", "--disable-dev-shm-usage"]
            )
        except sync_api.Error as error:
            pytest.skip(f"CHROMIUM DOES NOT START, the page is not tested: {error.message}")
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def museum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Museum]:
    """A server for all modules that do not count what is left; the others have their own."""
    with museum_server(tmp_path_factory.mktemp("museum")) as found:
        yield found


@pytest.fixture
def open_browser(chromium, museum: Museum) -> Iterator[Callable]:
    """``open_browser(token, width=..., dark=...)``: a new browser, signed in."""
    contexts, faults = [], []

    def opened(token: str | None = ADA, width: int = 1280, height: int = 900, dark: bool = False):
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            base_url=museum.address,
            accept_downloads=True,
        )
        contexts.append(context)
        context.set_default_timeout(WAIT)
        context.on("request", lambda r: faults.extend(_foreign(r.url, museum.address)))
        page = context.new_page()
        page.on("console", lambda m: faults.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: faults.append(str(e)))
        if token is not None:
            sign_in(page, token)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not faults, "in the browser:\n" + "\n".join(faults)


@pytest.fixture
def browser_page(open_browser):
    """A page of the analyst ada, signed in, at Plan."""
    return open_browser(ADA)


def sign_in(page, token: str) -> None:
    page.goto("/page/login")
    page.get_by_label("Your token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/page/plan")
    page.get_by_role("heading", level=1, name="Plan").wait_for()


def _foreign(url: str, address: str) -> list[str]:
    own = (address, address.replace("http", "ws"), "data:", "blob:")
    return [] if url.startswith(own) else [f"a request to another place: {url}"]


def check_accessible(page, within: str | None = None) -> None:
    """No violation that axe can find, on the page or within a part of it, and that stays.

    A page may be in the middle of a change, so axe looks again where it found something.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for _ in range(LOOKS):
        found = axe.Axe().run(page, context=within)
        if found.violations_count == 0:
            return
        page.wait_for_timeout(500)
    pytest.fail(found.generate_report())


def picture(page, name: str) -> None:
    """A screenshot into docs/images, if they are wanted (`make screenshots`)."""
    if os.environ.get("SFUMATO_SCREENSHOTS"):
        folder = Path(__file__).parents[2] / "docs" / "images"
        seen = page.viewport_size
        page.set_viewport_size({**seen, "height": 1180 if seen["width"] > 1000 else 844})
        page.screenshot(path=folder / f"page-{name}.png", animations="disabled")
        page.set_viewport_size(seen)
