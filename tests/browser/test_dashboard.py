"""The view of training on a tree with a method of one's own: it is drawn, chosen, and read off with its seeds."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from methods import catalog
from report import build
from tests.browser.conftest import Watched
from tests.report import synthetic
from tests.report.conftest import make

pytestmark = pytest.mark.slow

Visit = Callable[..., Watched]


@pytest.fixture(scope="module")
def workbench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two seeds of the four methods and of `mine`, which no table and no figure of the paper knows."""
    root = tmp_path_factory.mktemp("workbench") / "mine"
    with pytest.MonkeyPatch.context() as patch:
        mine = replace(catalog.entries()["tepo_nokl"], key="mine", title="Mine", aliases={})
        patch.setitem(catalog.entries(), "mine", mine)
        patch.setitem(synthetic.METHODS, "mine", ("Mine", 0.8))
        make(root, (1, 2))
        build.main(["--results", str(root)])
        yield root
    catalog._parse.cache_clear()


def opened(visit: Visit, root: Path, query: str = "") -> Page:
    page = visit(f"file://{root / 'report.html'}#dynamics{query}").page
    expect(page.locator("#dashboard .plot canvas").first).to_be_visible()
    return page


def test_the_first_view_is_the_table_of_all_runs(visit: Visit, workbench: Path) -> None:
    """With a row for `mine`: its score with interval, its difference to the baseline, and the way to its runs."""
    page = visit(f"file://{workbench / 'report.html'}").page
    expect(page.locator("#all h1")).to_have_text("All runs")
    expect(page.locator("#rooms a[aria-current]")).to_have_text("All runs")
    row = page.locator("#all .scores tbody tr", has_text="Mine")
    expect(row.first).to_be_visible()
    heads = page.locator("#all .scores thead th").all_inner_texts()
    assert "Δ GRPO/DAPO" in " ".join(heads)
    assert "P(best)" in " ".join(heads)
    assert re.search(r"\d+\.\d\d", row.first.inner_text())
    link = row.first.locator("a").first
    link.click()
    expect(page.locator(".view.here h1")).to_contain_text("Mine")


def test_a_method_of_ones_own_is_drawn_and_can_be_taken_out(visit: Visit, workbench: Path) -> None:
    page = opened(visit, workbench)
    legend, first = page.locator("#dashboard .legend li"), page.locator("#dashboard .plot").first
    expect(legend).to_have_text(["GRPO/DAPO", "GSPO", "TEPO without KL", "TEPO", "Mine"])
    looks = [
        (line.get_attribute("style"), line.get_attribute("stroke-dasharray")) for line in legend.locator("line").all()
    ]
    assert len(set(looks)) == 5
    before = first.locator("canvas").evaluate("canvas => canvas.toDataURL()")
    for title in ("Mine", "GSPO"):
        page.get_by_role("group", name="Methods").get_by_role("button", name=title, exact=True).click()
    expect(legend).to_have_text(["GRPO/DAPO", "TEPO without KL", "TEPO"])
    expect(first.locator("canvas")).to_be_visible()
    assert first.locator("canvas").evaluate("canvas => canvas.toDataURL()") != before
    assert "method=mine" not in page.url
    again = opened(visit, workbench, "?model=tiny_qwen2&method=mine&variant=")
    expect(again.locator("#dashboard .legend li")).to_have_text(["Mine"])


def test_every_panel_has_a_letter_units_and_words(visit: Visit, workbench: Path) -> None:
    page = opened(visit, workbench)
    titles = page.locator("#dashboard .panel h3").all_inner_texts()
    assert [title[:3] for title in titles] == ["(a)", "(b)", "(c)", "(d)", "(e)", "(f)", "(g)", "(h)"]
    labels = [plot.get_attribute("aria-label") or "" for plot in page.locator("#dashboard .plot").all()]
    assert [label.split(",")[0] for label in labels] == titles
    assert all("by rollout" in label for label in labels)
    assert all("Mine" in label for label in labels[:7])
    assert "Mine" not in labels[7]  # no mask: no line, and no nought either
    left = {round(plot.bounding_box()["x"]) for plot in page.locator("#dashboard .plot .u-over").all()[::3]}  # type: ignore[index]
    assert len(left) == 1  # axes of one column stand below each other


def test_one_crosshair_reads_all_panels_with_seeds_and_range(visit: Visit, workbench: Path) -> None:
    page = opened(visit, workbench)
    plot = page.locator("#dashboard .plot").nth(1)
    plot.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    tip = plot.locator(".tip")
    expect(tip).to_contain_text("rollout 3 nats per token")
    rows = csv.DictReader((workbench / "figures/convergence_dynamics.csv").open(newline=""))
    wanted = {(row["quantity"], row["method"]): row for row in rows if row["rollout"] == "3"}
    entropy = wanted["entropy", "mine"]
    value, low, high = (f"{float(entropy[name]):.3g}" for name in ("value", "low", "high"))
    expect(tip.locator("tr", has_text="Mine")).to_contain_text(f"{value} ({low} to {high})2 seeds")
    expect(page.locator("#dashboard .spoken").nth(1)).to_contain_text(f"Mine {value} ({low} to {high}), 2 seeds")
    expect(page.locator("#dashboard .values caption")).to_contain_text("Rollout 3:")
    reward = f"{100 * float(wanted['reward', 'mine']['value']):.3g}"
    line = page.locator("#dashboard .values tbody tr", has_text="Mine")
    expect(line.locator("td").nth(1)).to_contain_text(re.compile(rf"^{re.escape(reward)} \("))
    expect(line.locator("td").last).to_have_text("none")
    crosshairs = page.locator("#dashboard .u-cursor-x").evaluate_all("all => all.map(one => one.style.transform)")
    assert len(crosshairs) == 8
    assert len(set(crosshairs)) == 1
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    expect(page.locator("#dashboard .values caption")).to_contain_text("the last")


def test_the_pointer_reads_too_and_a_click_leads_to_the_run(visit: Visit, workbench: Path) -> None:
    page = opened(visit, workbench)
    plot = page.locator("#dashboard .plot .u-over").first
    plot.hover(position={"x": 40, "y": 40})
    expect(page.locator("#dashboard .tip").first).to_contain_text("Mine")
    expect(page.locator("#dashboard .tip").nth(1)).to_be_hidden()
    page.locator("#dashboard .values tbody tr", has_text="Mine").get_by_role("link", name="2").click()
    expect(page.locator(".view.here h1")).to_contain_text("Mine")
