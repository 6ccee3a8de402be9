"""Every view of the page: for who cannot point, see colours or run scripts, on a phone and on paper."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from core.provenance import sha256_file
from report.build import VIEWS
from tests.browser.conftest import DESKTOP, PHONE, Visit

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
RUN = "run/tiny_qwen2/tepo/seed1"
BEHIND = ("audit", "readings")  # closed until one goes there
ADDRESSES = (*(id for id, _ in VIEWS), *BEHIND, "figures", RUN, "row/1/T1.8")


def test_axe_finds_nothing_serious(visit: Visit, report: str) -> None:
    axe = (HERE / "axe/axe.min.js").read_text(encoding="utf-8") + "; 0"
    serious = []
    for scheme in ("light", "dark"):
        for address in ADDRESSES:
            page = visit(f"{report}#{address}", scheme=scheme).page
            expect(page.locator(".view.here h1")).to_be_visible()
            if address == "samples":
                expect(page.locator(".side .response")).to_have_count(2)
            page.evaluate(axe)
            serious += [
                f"{scheme} #{address}: {rule['id']}: {node['html'][:160]}"
                for rule in page.evaluate("axe.run({preload: false})")["violations"]
                if rule["impact"] in ("serious", "critical")
                for node in rule["nodes"]
            ]
            page.context.close()
    assert serious == []


def test_axe_is_the_file_as_published() -> None:
    record = json.loads((HERE / "record.json").read_text())["axe"]["files"]
    assert {name: sha256_file(HERE / "axe" / name) for name in record} == record


def test_no_view_is_wider_than_the_window(visit: Visit, report: str) -> None:
    wide = []
    for size in (DESKTOP, PHONE):
        page = visit(report, size=size).page
        for address in ADDRESSES:
            page.goto(f"{report}#{address}")
            expect(page.locator(f"[id='{address}']")).to_be_visible()
            if (width := page.evaluate("document.documentElement.scrollWidth")) > size[0]:
                wide.append(f"#{address}: {width} of {size[0]} pixels")
    assert wide == []


def test_responses_that_load_late_do_not_lead_back_to_their_view(visit: Visit, report: str) -> None:
    """Leave the view as soon as it is shown, and have the browser tell of the new address only later."""
    page = visit(report).page
    page.add_init_script(  # before the page's own listener
        """addEventListener("hashchange", (event) => {
          if (location.hash === "#audit" && !window.late) event.stopImmediatePropagation();
        });"""
    )
    page.reload()
    page.evaluate(
        """() => {
          document.getElementById("samples").addEventListener("shown", () => { location.hash = "#audit"; });
          location.hash = "#samples";
        }"""
    )
    expect(page.locator("#samples .side .response")).to_have_count(2)
    assert page.evaluate("location.hash") == "#audit"
    page.evaluate("() => { window.late = true; dispatchEvent(new HashChangeEvent('hashchange')); }")
    expect(page.locator("[id='audit']")).to_be_visible()


def test_every_address_inside_the_page_is_shown_when_one_goes_there(visit: Visit, report: str) -> None:
    """Also those that documentation and older pages named."""
    page = visit(report).page
    older = ("all", "tables", "figures", "dynamics", "claims", "readings", "audit", "about", "provenance")
    for address in (*older, "benchmarks", "tableruns", "figure2", "table1-T1.8-amc"):
        page.goto(f"{report}#{address}")
        expect(page.locator(f"[id='{address}']")).to_be_visible()


def test_the_keyboard_goes_from_the_top_to_a_run(visit: Visit, report: str) -> None:
    page = visit(report).page

    def tab_to(selector: str, most: int) -> None:
        link = page.locator(selector)
        for _ in range(most):
            page.keyboard.press("Tab")
            if link.evaluate("link => link === document.activeElement"):
                break
        expect(link).to_be_focused()

    tab_to(".skip", 1)
    tab_to("#rooms a[href='#results']", 4)
    page.keyboard.press("Enter")
    expect(page.locator("#results h1")).to_be_focused()
    tab_to("#table1-T1\\.2-aime24 a", 50)
    expect(page.locator("#behind")).to_contain_text("Seeds 1, 2")
    page.keyboard.press("Escape")
    expect(page.locator("#behind")).to_be_hidden()
    page.keyboard.press("Enter")
    expect(page.locator(".view.here h1")).to_be_focused()
    expect(page.locator(".view.here h1")).to_contain_text("GRPO/DAPO")


def test_without_javascript_everything_is_one_long_page(visit: Visit, report: str) -> None:
    page = visit(report, script=False).page
    for id, _ in VIEWS:
        expect(page.locator(f"#{id}")).to_be_visible()
    for shown in ("#figure2 img", "#table1-T1\\.8-amc a", f"[id='{RUN}']"):
        expect(page.locator(shown)).to_be_visible()
    expect(page.locator("noscript")).to_have_count(1)


def test_on_paper_figures_are_drawn_and_controls_are_not(visit: Visit, report: str) -> None:
    page = visit(f"{report}#overview", media="print").page
    for shown in ("#table1", "#figure2 img", "#claims"):
        expect(page.locator(shown).first).to_be_visible()
    for hidden in ("#rooms", "#browser", ".chart >> nth=0", f"[id='{RUN}']"):
        expect(page.locator(hidden).first).to_be_hidden()


def test_every_picture_is_there_and_loads(visit: Visit, report: str) -> None:
    page = visit(report).page
    pictures = page.locator("img.picture")
    assert pictures.count() == 3
    assert pictures.evaluate_all("all => all.filter(one => !one.complete || one.naturalWidth === 0).length") == 0
