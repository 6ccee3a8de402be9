"""Keyboard, contrast, paper, no JavaScript: who cannot point, see colours or run scripts reads the same numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from records.provenance import sha256_file
from tests.browser.conftest import Watched

pytestmark = pytest.mark.slow

Visit = Callable[..., Watched]
HERE = Path(__file__).resolve().parent
RUN = "run/tiny_qwen2/tepo/seed1"
VIEWS = (
    "overview",
    "tables",
    "figures",
    "dynamics",
    "runs",
    RUN,
    "samples",
    "claims",
    "readings",
    "audit",
    "losses",
    "about",
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_serious(view: str, scheme: str, visit: Visit, report: str) -> None:
    page = visit(f"{report}#{view}", scheme=scheme).page
    expect(page.locator(".view.here h1")).to_be_visible()
    if view == "samples":
        expect(page.locator(".side .response")).to_have_count(2)
    page.evaluate((HERE / "axe/axe.min.js").read_text(encoding="utf-8") + "; 0")
    found = page.evaluate("axe.run({preload: false})")["violations"]
    serious = [
        f"{rule['id']}: {node['html'][:160]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]
    assert serious == []


def test_axe_is_the_file_as_published() -> None:
    record = json.loads((HERE / "record.json").read_text())["axe"]["files"]
    assert {name: sha256_file(HERE / "axe" / name) for name in record} == record


def test_the_keyboard_goes_from_the_top_to_a_run(visit: Visit, report: str) -> None:
    page = visit(report).page
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    tables = page.locator("#rooms a[href='#tables']")
    for _ in range(6):
        page.keyboard.press("Tab")
        if tables.evaluate("link => link === document.activeElement"):
            break
    expect(tables).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#tables h1")).to_be_focused()
    link = page.locator("#table1-T1\\.2-aime24 a")
    for _ in range(40):
        page.keyboard.press("Tab")
        if link.evaluate("link => link === document.activeElement"):
            break
    expect(link).to_be_focused()
    expect(page.locator("#behind")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator(".view.here h1")).to_be_focused()
    expect(page.locator(".view.here h1")).to_contain_text("GRPO/DAPO")


def test_without_javascript_everything_is_one_long_page(visit: Visit, report: str) -> None:
    page = visit(report, script=False).page
    for view in ("overview", "tables", "figures", "dynamics", "runs", "claims", "readings", "audit", "about"):
        expect(page.locator(f"#{view}")).to_be_visible()
    expect(page.locator("#figure2 svg")).to_be_visible()
    expect(page.locator("#table1-T1\\.8-amc a")).to_be_visible()
    expect(page.locator("noscript")).to_have_count(1)


def test_on_paper_figures_are_drawn_and_controls_are_not(visit: Visit, report: str) -> None:
    page = visit(f"{report}#overview", media="print").page
    for shown in ("#table1", "#figure2 svg", "#audit"):
        expect(page.locator(shown).first).to_be_visible()
    for hidden in ("#rooms", "#browser", ".chart >> nth=0", f"[id='{RUN}']"):
        expect(page.locator(hidden).first).to_be_hidden()
