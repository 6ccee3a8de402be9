"""Curves: four on the overview; in the view of training lines are chosen, drawn, and read off with their seeds."""

from __future__ import annotations

import csv
from statistics import fmean

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit, folder

pytestmark = pytest.mark.slow


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
