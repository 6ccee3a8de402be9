"""A reader's way through the report: from a number to a run, to its responses, the same number everywhere."""

from __future__ import annotations

import csv
import functools
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from report.figures.spec import STYLES
from tests.browser import invented
from tests.browser.conftest import DESKTOP, PHONE, Watched

pytestmark = pytest.mark.slow

Visit = Callable[..., Watched]
COUNT = "[data-part=count]"


def number(text: str | None) -> str:
    found = re.search(r"\d+\.\d\d", text or "")
    assert found, text
    return found[0]


def problems(page: Page) -> tuple[int, int]:
    """How many problems are shown, and of how many."""
    found = re.search(r"(\d+) of (\d+) problems", page.locator(COUNT).inner_text())
    assert found
    return int(found[1]), int(found[2])


def opened(page: Page) -> None:
    """Wait until both sides of a problem are shown."""
    expect(page.locator(".side .response")).to_have_count(2)


@pytest.mark.demo
def test_the_same_number_in_the_table_the_run_and_the_responses(visit: Visit, demo: str) -> None:
    page = visit(f"{demo}#tables").page
    cell = page.locator("#table1-T1\\.8-amc a")
    printed = number(cell.inner_text())
    cell.click()
    expect(page.locator(".view.here h1")).to_contain_text("TEPO")
    score = page.locator(".view.here td a").nth(2)
    assert number(score.inner_text()) == printed
    score.click()
    opened(page)
    line = page.locator(f"{COUNT} li").first
    expect(line).to_contain_text(f"({printed} %)")
    right, of = re.search(r"(\d+) of (\d+) right", line.inner_text()).groups()  # type: ignore[union-attr]
    assert f"{100 * int(right) / int(of):.2f}" == printed
    expect(page.locator(".gold .text")).not_to_be_empty()


def test_a_mean_over_seeds_is_taken_apart(visit: Visit, report: str) -> None:
    page = visit(f"{report}#tables").page
    cell = page.locator("#table1-T1\\.8-math500 a")
    printed = number(cell.inner_text())
    cell.click()
    view = page.locator(".view.here")
    expect(view.locator("h1")).to_contain_text("TEPO")
    column = view.locator("thead th").all_inner_texts().index("syn_as3")
    parts = [float(number(view.locator("tbody tr").nth(n).locator("td").nth(column - 1).inner_text())) for n in (0, 1)]
    assert number(view.locator("tr.delta td").nth(column - 1).inner_text()) == printed
    assert sum(parts) / 2 == pytest.approx(float(printed), abs=0.006)
    view.locator("tbody tr").first.locator("th a").click()
    expect(page.locator(".view.here .sparks figure")).to_have_count(8)
    assert float(number(page.locator(".view.here td a").nth(column - 1).inner_text())) == parts[0]
    page.go_back()
    expect(view.locator("h1")).to_contain_text("TEPO")


def test_pointing_at_a_number_says_how_it_was_made(visit: Visit, report: str) -> None:
    page = visit(f"{report}#tables").page
    page.locator("#table1-T1\\.8-math500 a").hover()
    expect(page.locator("#behind")).to_contain_text("Seeds 1, 2")
    expect(page.locator("#behind")).to_contain_text("seed level")
    page.keyboard.press("Escape")
    expect(page.locator("#behind")).to_be_hidden()


def test_a_heading_sorts_and_sorts_back(visit: Visit, report: str) -> None:
    page = visit(f"{report}#tables").page
    table = page.locator("#table1 table").first
    names = lambda: table.locator("tbody th").all_inner_texts()  # noqa: E731
    before = names()
    head = table.locator("thead th").nth(4)
    head.locator("button").click()
    values = [float(text) for text in table.locator("tbody tr:not([data-last]) td:nth-child(5)").evaluate_all(
        "cells => cells.map(cell => cell.dataset.value)") if text]  # fmt: skip
    assert values == sorted(values, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").click()
    head.locator("button").click()
    assert names() == before


def test_disagreements_come_first_and_can_be_had_alone(visit: Visit, report: str) -> None:
    page = visit(f"{report}#samples").page
    opened(page)
    differing = int(re.search(r"differ on (\d+)", page.locator(COUNT).inner_text())[1])  # type: ignore[index]
    assert differing > 0
    marks = page.locator("[data-part=list] li").first.locator(".mark").all_inner_texts()
    assert marks[0] != marks[1]
    page.select_option("[name=show]", "differ")
    expect(page.locator(COUNT)).to_contain_text(f"{differing} of")
    assert "show=differ" in page.url
    page.select_option("[name=show]", "left")
    expect(page.locator(COUNT)).not_to_contain_text(f"{differing} of")
    page.reload()
    expect(page.locator("[name=show]")).to_have_value("left")


FILTERS = {
    "benchmark": ("select", "benchmark", "syn_as3", lambda n, all: n == 100),
    "verdict": ("select", "verdict", "n", lambda n, all: n == 0),
    "length": ("fill", "least", "100", lambda n, all: 0 < n < all),
    "text": ("fill", "text", "What is 7 + 7?", lambda n, all: n == 7),
}


@pytest.mark.parametrize("case", FILTERS)
def test_a_filter_shows_what_it_says(case: str, visit: Visit, report: str) -> None:
    how, name, value, right = FILTERS[case]
    page = visit(f"{report}#samples").page
    opened(page)
    total = problems(page)[1]
    field = page.locator(f"[name={name}]")
    if how == "select":
        field.select_option(value)
    else:
        field.fill(value)
        field.press("Enter")
    expect(page.locator(COUNT)).not_to_contain_text(f"{total} of {total} problems")
    assert right(problems(page)[0], total), problems(page)


def hostile(base: str) -> str:
    checkpoint, benchmark = invented.STRUCK
    return f"{base}#samples?left={checkpoint.path.as_posix()}&right=none&benchmark={benchmark}&item={benchmark}/item000"


def test_a_response_that_holds_markup_is_text(visit: Visit, report: str) -> None:
    page = visit(hostile(report) + "0").page
    response = page.locator(".side .response")
    expect(response).to_contain_text("<script>window.struck = 'script'</script><img src=x onerror=")
    expect(response).to_contain_text("⟨U+202E⟩right to left⟨U+202C⟩ ⟨U+0007⟩")
    expect(response.locator(".katex-html").first).to_contain_text("a2+b2")
    assert response.locator("script, img, a, iframe").count() == 0
    page.wait_for_timeout(200)
    assert page.evaluate("window.struck") is None


def test_a_response_that_is_not_utf8_is_shown_as_escapes(visit: Visit, report: str) -> None:
    page = visit(hostile(report) + "1").page
    expect(page.locator(".side .response")).to_have_text(r"broken \xff\xfe here, cut \xe2\x82")


def test_a_line_can_be_taken_out_of_a_figure(visit: Visit, report: str) -> None:
    page = visit(f"{report}#figures").page
    plot = page.locator("#figure3 .plot").first
    expect(plot.locator("canvas")).to_be_visible()
    assert "TEPO" in (plot.get_attribute("aria-label") or "")
    before = plot.locator("canvas").evaluate("canvas => canvas.toDataURL()")
    button = page.locator("#figure3 .line", has_text=re.compile("^TEPO$"))
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert ": GRPO/DAPO, GSPO, TEPO without KL" in (plot.get_attribute("aria-label") or "")
    after = page.locator("#figure3 .plot canvas").first
    expect(after).to_be_visible()
    assert after.evaluate("canvas => canvas.toDataURL()") != before


def test_a_figure_says_what_its_panels_and_lines_are(visit: Visit, report: str) -> None:
    """Letters as in the captions, and keys that look as the lines do."""
    page = visit(f"{report}#figures").page
    expect(page.locator("#figure3 .panel h3")).to_have_text(["(a) Training reward", "(b) Gradient norm"])
    expect(page.locator("#figure3 .printed svg")).to_contain_text("(b) Gradient norm")
    swatches = page.locator("#figure3 .line .swatch line")
    drawn = [[line.get_attribute(name) for name in ("style", "stroke-dasharray")] for line in swatches.all()]
    assert [[style, len((dash or "").split())] for style, dash in drawn] == [
        [f"stroke: var(--line-{place})", len(dashes)] for place, (_, dashes, _) in enumerate(STYLES[:4])
    ]
    expect(page.locator("#methods .line", has_text="the method named above a panel")).to_be_visible()


def test_the_curves_can_be_read_with_the_keyboard(visit: Visit, report: str) -> None:
    page = visit(f"{report}#figures").page
    plot = page.locator("#figure3 .plot").first
    expect(plot.locator("canvas")).to_be_visible()
    plot.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    drawn = list(csv.DictReader((folder(report) / "figures/figure3.csv").open(newline="")))
    tepo = next(row for row in drawn if (row["panel"], row["title"], row["rollout"]) == ("3a", "TEPO", "2"))
    expect(page.locator("#figure3 .spoken").first).to_contain_text("rollout 2: GRPO/DAPO")
    expect(page.locator("#figure3 .spoken").first).to_contain_text(f"TEPO {float(tepo['value']):.3g}")
    expect(page.locator("#figure3 .tip").first).to_contain_text("2 seeds")
    expect(page.locator("#figure3 .tip").nth(1)).to_be_hidden()


def test_a_verdict_at_a_glance_leads_to_its_claim(visit: Visit, report: str) -> None:
    page = visit(report).page
    page.locator("#verdicts summary").click()
    link = page.locator("#verdicts .decided a").first
    name = (link.get_attribute("href") or "").removeprefix("#")
    link.click()
    claim = page.locator(f"[id='{name}']")
    expect(claim).to_have_attribute("open", "")
    expect(claim.locator(".line-of-claim").first).to_be_visible()


@pytest.fixture
def server(report: str) -> Iterator[str]:
    """`python -m http.server` in the results folder."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(folder(report)))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/report.html"
        running.shutdown()
        thread.join()


def test_a_one_line_server_does_as_well(visit: Visit, server: str) -> None:
    opened(visit(f"{server}#samples").page)


def test_without_its_folder_the_page_says_what_is_missing(visit: Visit, report: str, tmp_path: Path) -> None:
    alone = tmp_path / "report.html"
    alone.write_bytes((folder(report) / "report.html").read_bytes())
    watched = visit(f"file://{alone}#samples")
    expect(watched.page.locator("[data-part=status]")).to_contain_text("report.data has to lie beside this file")
    assert all("ERR_FILE_NOT_FOUND" in error for error in watched.errors)
    watched.errors.clear()


# math.js has no checksum in the page: a changed byte in it is found by `report.verify` alone.
@pytest.mark.parametrize(
    ("name", "damage"),
    [("samples/**/*.js", "changed"), ("samples/**/*.js", "cut"), ("problems/*.js", "empty"), ("math.js", "cut")],
)
def test_a_damaged_companion_file_is_named_by_the_page(
    name: str, damage: str, visit: Visit, report: str, tmp_path: Path
) -> None:
    """A sentence, and not an empty view: gzip's checksum tells a changed byte, the browser's parser a cut."""
    shutil.copytree(folder(report) / "report.data", tmp_path / "report.data")
    shutil.copyfile(folder(report) / "report.html", tmp_path / "report.html")
    for path in tmp_path.glob(f"report.data/{name}"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes({"changed": content, "cut": content[: len(content) // 2], "empty": b""}[damage])
    watched = visit((tmp_path / "report.html").as_uri() + "#samples")
    expect(watched.page.locator("[data-part=status]")).to_contain_text(
        "is damaged. `snakemake report` writes it again."
    )
    watched.page.goto("about:blank")  # other damaged files of the page may still be on their way
    watched.errors.clear()


def folder(report: str) -> Path:
    return Path(report.removeprefix("file://")).parent


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize(
    "view", ["overview", "tables", "figures", "dynamics", "runs", "samples", "claims", "readings", "audit", "about"]
)
def test_no_view_is_wider_than_the_window(size: tuple[int, int], view: str, visit: Visit, report: str) -> None:
    page = visit(f"{report}#{view}", size=size).page
    expect(page.locator(f"#{view}")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
