"""Chromium, driven by Playwright without a network, and reports to open in it.

Without Chromium the tests are skipped with a reason; with TEPO_BENCH_REQUIRE_CHROMIUM=1 (`.ci/run`) they fail instead.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from report import build
from tests.browser import invented
from tests.report.conftest import make

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

DESKTOP, PHONE = (1280, 900), (390, 844)
PATIENCE = 120_000  # milliseconds; Playwright's own 5 s are short on a busy machine
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@dataclass
class Watched:
    """A page and everything it should not have done."""

    page: Page
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


Visit = Callable[..., Watched]


# For a file and not the session: as long as Playwright runs, its event loop runs in this process, for tests of other
# files too, and what they call cannot start one.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    program = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
    if program is None:
        reason = "no chromium on PATH (Debian: apt-get install chromium)"
        if os.environ.get("TEPO_BENCH_REQUIRE_CHROMIUM") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[..., Watched]]:
    """Open an address; at the end of the test nothing may have failed, and nothing outside may have been asked for."""
    opened: list[Watched] = []

    def go(
        address: str,
        *,
        size: tuple[int, int] = DESKTOP,
        scheme: str = "light",
        script: bool = True,
        media: str | None = None,
    ) -> Watched:
        width, height = size
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            java_script_enabled=script,
            offline=address.startswith("file:"),
        )
        watched = Watched(context.new_page())

        def note(message: ConsoleMessage) -> None:
            # The browser asks every server for an icon; the page has none.
            if message.type in ("error", "warning") and not message.location["url"].endswith("/favicon.ico"):
                watched.errors.append(message.text)

        watched.page.on("console", note)
        watched.page.on("pageerror", lambda error: watched.errors.append(str(error)))
        home = address.split("#")[0].rsplit("/", 1)[0]
        watched.page.on(
            "request", lambda r: None if r.url.startswith((home, "data:")) else watched.outside.append(r.url)
        )
        if media:
            watched.page.emulate_media(media=media)
        watched.page.goto(address)
        opened.append(watched)
        return watched

    yield go
    for watched in opened:
        watched.page.context.close()
    assert [watched.errors for watched in opened if watched.errors] == []
    assert [watched.outside for watched in opened if watched.outside] == []


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """`file://` address of the report of an invented tree with two seeds, hostile text among its responses."""
    root = tmp_path_factory.mktemp("report") / "quick"
    make(root, (1, 2))
    invented.hostile(root)
    build.main(["--results", str(root)])
    return f"file://{root / 'report.html'}"


def folder(report: str) -> Path:
    return Path(report.removeprefix("file://")).parent
