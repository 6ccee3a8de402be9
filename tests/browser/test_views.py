"""Every view of the page: for who cannot point, see colours or run scripts, on a phone, on paper; its curves."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import fmean

import pytest
from playwright.sync_api import Page, expect

from core.provenance import sha256_file
from report.build import VIEWS
from tests.browser.conftest import DESKTOP, PHONE, Visit, folder

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
RUN = "run/tiny_qwen2/tepo/seed1"
BEHIND = ("audit", "readings")  # closed until one goes there
ADDRESSES = (*(id for id, _ in VIEWS), *BEHIND, "figures", RUN, "row/1/T1.8")


def test_axe_finds_nothing_serious(visit: Visit, report: str) -> None:
    """Every rule in light colours; in dark ones the elements are the same, so that only contrast is looked at again."""
    axe = (HERE / "axe/axe.min.js").read_text(encoding="utf-8") + "; 0"
    serious = []
    for scheme, rules in (("light", "{}"), ("dark", "{runOnly: ['color-contrast']}")):
        page = visit(report, scheme=scheme).page
        page.evaluate(axe)
        for address in ADDRESSES:
            page.goto(f"{report}#{address}")
            expect(page.locator(f"[id='{address}']")).to_be_visible()
            expect(page.locator(".view.here h1")).to_be_visible()
            if address == "samples":
                expect(page.locator(".side .response")).to_have_count(2)
            serious += [
                f"{scheme} #{address}: {rule['id']}: {node['html'][:160]}"
                for rule in page.evaluate(f"axe.run({{preload: false, ...{rules}}})")["violations"]
                if rule["impact"] in ("serious", "critical")
                for node in rule["nodes"]
            ]
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


def opened(visit: Visit, report: str, query: str = "") -> Page:
    page = visit(f"{report}#dynamics{query}").page
    expect(page.locator("#dashboard .plot canvas").first).to_be_visible()
    return page


def test_the_overview_draws_the_reward_of_four_methods(visit: Visit, report: str) -> None:
    page = visit(report).page
    expect(page.locator("#front .plot canvas")).to_be_visible()
    expect(page.locator("#front .legend li")).to_have_text(["GRPO/DAPO", "TEPO", "TEPO without KL", "GSPO"])
    page.locator("#front .plot").focus()
    page.keyboard.press("End")
    expect(page.locator("#front .tip")).to_contain_text("TEPO")


def test_a_line_can_be_taken_out_and_the_address_keeps_the_choice(visit: Visit, report: str) -> None:
    page = opened(visit, report)
    legend, first = page.locator("#dashboard .legend li"), page.locator("#dashboard .plot").first
    expect(legend).to_have_text(["GRPO/DAPO", "GSPO", "TEPO without KL", "TEPO"])
    looks = [
        (line.get_attribute("style"), line.get_attribute("stroke-dasharray")) for line in legend.locator("line").all()
    ]
    assert len(set(looks)) == 4
    before = first.locator("canvas").evaluate("canvas => canvas.toDataURL()")
    page.get_by_role("group", name="Methods").get_by_role("button", name="GSPO", exact=True).click()
    expect(legend).to_have_text(["GRPO/DAPO", "TEPO without KL", "TEPO"])
    expect(first.locator("canvas")).to_be_visible()
    assert first.locator("canvas").evaluate("canvas => canvas.toDataURL()") != before
    assert "method=gspo" not in page.url
    page.reload()
    expect(legend).to_have_text(["GRPO/DAPO", "TEPO without KL", "TEPO"])


def test_every_panel_has_a_letter_units_and_words(visit: Visit, report: str) -> None:
    page = opened(visit, report)
    titles = page.locator("#dashboard .panel h3").all_inner_texts()
    assert [title[:3] for title in titles] == [f"({letter})" for letter in "abcdefgh"]
    labels = [plot.get_attribute("aria-label") or "" for plot in page.locator("#dashboard .plot").all()]
    assert [label.split(",")[0] for label in labels] == titles
    assert all("by rollout: " in label for label in labels)
    assert all("GSPO" in label for label in labels[:7])
    assert "GSPO" not in labels[7]  # no mask: no line, and no nought either
    left = {round(plot.bounding_box()["x"]) for plot in page.locator("#dashboard .plot .u-over").all()[::3]}  # type: ignore[index]
    assert len(left) == 1  # axes of one column stand below each other


def test_one_crosshair_reads_all_panels_with_seeds(visit: Visit, report: str) -> None:
    page = opened(visit, report)
    plot = page.locator("#dashboard .plot").nth(1)
    plot.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    tip = plot.locator(".tip")
    expect(tip).to_contain_text("rollout 3 nats per token")
    rows = csv.DictReader((folder(report) / "figures/convergence_curves.csv").open(newline=""))
    seeds = [row for row in rows if (row["method"], row["rollout"]) == ("gspo", "3")]
    entropy = [float(row["entropy"]) for row in seeds]
    value = f"{fmean(entropy):.3g}"
    expect(tip.locator("tr", has_text="GSPO")).to_contain_text(f"{value}2 seeds")
    expect(page.locator("#dashboard .spoken").nth(1)).to_contain_text(f"GSPO {value}, 2 seeds")
    expect(page.locator("#dashboard .values caption")).to_contain_text("Rollout 3:")
    reward = f"{100 * fmean(float(row['reward']) for row in seeds):.3g}"
    line = page.locator("#dashboard .values tbody tr", has_text="GSPO")
    expect(line.locator("td").nth(1)).to_have_text(reward)
    crosshairs = page.locator("#dashboard .u-cursor-x").evaluate_all("all => all.map(one => one.style.transform)")
    assert len(set(crosshairs)) == 1
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    expect(page.locator("#dashboard .values caption")).to_contain_text("the last")
    plot.blur()
    page.locator("#dashboard .plot .u-over").first.hover(position={"x": 40, "y": 40})
    expect(page.locator("#dashboard .tip").first).to_contain_text("GSPO")
    expect(tip).to_be_hidden()


def test_a_run_leads_to_its_own_curves_and_back(visit: Visit, report: str) -> None:
    """Its seed alone, beside GRPO/DAPO with the same seed."""
    page = visit(f"{report}#run/tiny_qwen2/tepo/seed2").page
    page.get_by_role("link", name="Its learning curves").click()
    expect(page.locator("#dashboard .legend li")).to_have_text(["GRPO/DAPO", "TEPO"])
    expect(page.get_by_role("combobox", name="Seeds")).to_have_value("2")
    line = page.locator("#dashboard .values tbody tr", has_text="TEPO")
    rows = csv.DictReader((folder(report) / "figures/convergence_curves.csv").open(newline=""))
    own = [float(row["reward"]) for row in rows if (row["method"], row["seed"]) == ("tepo", "2")]
    expect(line.locator("td").nth(1)).to_have_text(f"{100 * own[-1]:.3g}")
    line.get_by_role("link", name="2").click()
    expect(page.locator(".view.here h1")).to_contain_text("TEPO tiny Qwen2, seed 2")
    page.goto(f"{report}#figure2")
    page.locator("#figure2").get_by_role("link", name="These methods").click()
    expect(page.locator("#dashboard .legend li")).to_have_count(4)
