"""A reader's way through the report: the same number everywhere; the pure functions of the page's scripts."""

from __future__ import annotations

import functools
import json
import re
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import invented
from tests.browser.conftest import Visit, folder

pytestmark = pytest.mark.slow

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


@pytest.mark.chain
def test_the_same_number_in_the_table_the_run_and_the_responses(visit: Visit, report: str) -> None:
    """A mean over seeds is taken apart: its row's page, one run, that run's responses."""
    page = visit(f"{report}#results").page
    cell = page.locator("#table1-T1\\.8-math500 a")
    printed = number(cell.inner_text())
    cell.hover()
    expect(page.locator("#behind")).to_contain_text("seed level")
    cell.click()
    view = page.locator(".view.here")
    expect(view.locator("h1")).to_contain_text("TEPO")
    column = view.locator("thead th").all_inner_texts().index("syn_as3")
    parts = [number(view.locator("tbody tr").nth(n).locator("td").nth(column - 1).inner_text()) for n in (0, 1)]
    assert number(view.locator("tr.delta td").nth(column - 1).inner_text()) == printed
    assert sum(map(float, parts)) / 2 == pytest.approx(float(printed), abs=0.006)
    view.locator("tbody tr").first.locator("th a").click()
    score = page.locator(".view.here .scores td").nth(column - 1).locator("a")
    assert number(score.inner_text()) == parts[0]
    score.click()
    opened(page)
    line = page.locator(f"{COUNT} li").first
    expect(line).to_contain_text(f"({parts[0]} %)")
    right, of = re.search(r"(\d+) of (\d+) right", line.inner_text()).groups()  # type: ignore[union-attr]
    assert f"{100 * int(right) / int(of):.2f}" == parts[0]
    page.go_back()
    expect(view.locator("h1")).to_contain_text("TEPO")


def test_a_heading_sorts_and_sorts_back(visit: Visit, report: str) -> None:
    page = visit(f"{report}#results").page
    table = page.locator("#table1 table").first
    names = lambda: table.locator("tbody th").all_inner_texts()  # noqa: E731
    before = names()
    head = table.locator("thead th").nth(4)
    head.locator("button").click()
    shown = table.locator("tbody tr:not([data-last]) td:nth-child(5) a").all_inner_texts()
    values = [float(number(text)) for text in shown]
    assert values == sorted(values, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").click()
    head.locator("button").click()
    assert names() == before


def test_disagreements_come_first_and_can_be_had_alone(visit: Visit, report: str) -> None:
    page = visit(f"{report}#samples").page
    opened(page)
    expect(page.locator(f"{COUNT} li b")).to_have_text(["TEPO, seed 1, step 12", "GRPO/DAPO, seed 1, step 12"])
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
    "benchmark": ("select", "syn_as3", lambda n, all: n == 100),
    "verdict": ("select", "n", lambda n, all: n == 0),
    "least": ("fill", "100", lambda n, all: 0 < n < all),
    "text": ("fill", "What is 7 + 7?", lambda n, all: n == 7),
}


def test_a_filter_shows_what_it_is_for(visit: Visit, report: str) -> None:
    wrong = {}
    for name, (how, value, right) in FILTERS.items():
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
        if not right(problems(page)[0], total):
            wrong[name] = problems(page)
    assert wrong == {}


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
    page.reload()  # whatever was going to run has run by the second time
    expect(response.locator(".katex-html").first).to_contain_text("a2+b2")
    assert page.evaluate("window.struck") is None


def test_a_response_that_is_not_utf8_is_shown_as_escapes(visit: Visit, report: str) -> None:
    page = visit(hostile(report) + "1").page
    expect(page.locator(".side .response")).to_have_text(r"broken \xff\xfe here, cut \xe2\x82")


def test_an_address_opens_its_claim(visit: Visit, report: str) -> None:
    page = visit(f"{report}#claim/faster-reward").page
    claim = page.locator("[id='claim/faster-reward']")
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
DAMAGES = (("samples/**/*.js", "changed"), ("samples/**/*.js", "cut"), ("problems/*.js", "empty"), ("math.js", "cut"))


def test_a_damaged_companion_file_is_named_by_the_page(visit: Visit, report: str, tmp_path: Path) -> None:
    """A sentence, and not an empty view: gzip's checksum shows a changed byte, the browser's parser a cut."""
    for name, damage in DAMAGES:
        root = tmp_path / f"{name.partition('/')[0]}-{damage}"
        shutil.copytree(folder(report) / "report.data", root / "report.data")
        shutil.copyfile(folder(report) / "report.html", root / "report.html")
        for path in root.glob(f"report.data/{name}"):
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes({"changed": content, "cut": content[: len(content) // 2], "empty": b""}[damage])
        watched = visit((root / "report.html").as_uri() + "#samples")
        status = watched.page.locator("[data-part=status]")
        expect(status, f"{name} {damage}").to_contain_text("is damaged: run snakemake report to write it again.")
        watched.page.goto("about:blank")  # other damaged files of the page may still be on their way
        watched.errors.clear()


INDEX = {
    "items": ["a", "b", "c"],
    "per": [2, 1, 1],
    "begins": [0, 2],
    "verdicts": "cwcw",
    "stops": "slss",
    "tokens": [5, 9, 7, None],
    "extracted": ["1", "2", "3", None],
    "rules": [0, 1, 0, 0],
    "rule_names": ["string", "number"],
    "graders": {
        name: {"verdicts": verdicts, "extracted": ["1", None, "3", "4"]}
        for name, verdicts in {"ours": "cwcw", "other": "cwww", "tool": "c--c"}.items()
    },
}
OTHER = INDEX | {"items": ["c", "b", "a"], "per": [1, 1, 2], "verdicts": "cwcc"}
FILTER = {"show": "all", "verdict": "", "least": None, "most": None}
JOIN = f"pairs.join('k', pairs.items({json.dumps(INDEX)}), pairs.items({json.dumps(OTHER)}), ['b', 'a'])"


def select(**filter: object) -> str:
    return f"pairs.select({JOIN}, {json.dumps(FILTER | filter)}).map(pair => pair.id)"


LINE = {
    "title": "t",
    "seeds": {"1": [1, 2, 3], "2": [3, 4, None]},
    "mean": [2, 3, None],
    "low": [1, 2, None],
    "high": [3, 4, None],
}
OTHER_LINE = {"title": "u", "seeds": {"1": [0.1, 40]}}
COLUMNS = f"curves.columns({json.dumps(LINE)}, %s).map(column => [column.role, column.values])"
CASES: dict[str, tuple[str, Any]] = {
    "shares of an item's samples": (
        f"[...pairs.items({json.dumps(INDEX)}).values()].map(item => item.share)",
        [0.5, 1, 0],
    ),
    "rules by name": (f"pairs.items({json.dumps(INDEX)}).get('a').rules", ["string", "number"]),
    "which text file, and where in it": (
        f"[0, 1, 2].map(n => pairs.whereabouts({json.dumps(INDEX)}, n))",
        [[0, 0], [0, 1], [1, 0]],
    ),
    "items are joined by id, in the benchmark's order": (
        f"{JOIN}.map(pair => [pair.id, pair.gap])",
        [["b", 1], ["a", -0.5], ["c", -1]],
    ),
    "the largest disagreement first": (select(), ["b", "c", "a"]),
    "left better": (select(show="left"), ["b"]),
    "right better": (select(show="right"), ["c", "a"]),
    "never right": (select(show="neither"), []),
    "a verdict on either side": (select(verdict="w"), ["b", "c", "a"]),
    "a verdict nobody has": (select(verdict="t"), []),
    "graders differ, where they are known": (
        f"[...pairs.items({json.dumps(INDEX)}).values()].map(item => pairs.hits(item, "
        f"{json.dumps(FILTER | {'verdict': 'graders'})}))",
        [[], [0], [0]],
    ),
    "from so many tokens": (select(least=8), ["b", "a"]),
    "up to so many tokens": (select(most=5), ["c", "a"]),
    "right of all": (
        f"['left', 'right'].map(side => pairs.tally({JOIN}, side))",
        [{"right": 2, "all": 4}, {"right": 3, "all": 4}],
    ),
    "a mean of the last three, never of what is to come": ("curves.smooth([1, 2, 3, 10], 3)", [1, 1.5, 2, 5]),
    "a gap stays a gap": ("curves.smooth([1, null, 3], 2)", [1, None, 3]),
    "two seeds have no interval": (
        f"curves.columns({json.dumps(LINE | {'low': None})}, {{single: false, width: 1}}).map(one => one.role)",
        ["raw", "raw", "mean"],
    ),
    "mean and interval": (
        COLUMNS % "{single: false, width: 1}",
        [["low", LINE["low"]], ["high", LINE["high"]], ["mean", LINE["mean"]]],
    ),
    "single seeds": (COLUMNS % "{single: true, width: 1}", [["seed", [1, 2, 3]], ["seed", [3, 4, None]]]),
    "a collapsed seed": (
        f"curves.columns({json.dumps(LINE | {'ended': {'2': 2}})}, {{single: false, width: 1}}).map(one => one.role)",
        ["seed", "seed"],
    ),
    "smoothed, with what was measured behind": (
        COLUMNS % "{single: false, width: 2}",
        [["raw", LINE["mean"]], ["mean", [2, 2.5, None]]],
    ),
    "an axis from nought": (f"curves.range({json.dumps([LINE])}, false)", [0, 4.2]),
    "a logarithmic axis": (
        f"curves.range({json.dumps([LINE, OTHER_LINE])}, true).map(n => Math.round(n * 100))",
        [9, 4400],
    ),
    "a look that a figure gives, then the first that is free": (
        "[...curves.looks(['a', 'b', 'c'], new Map([['b', 0], ['c', 0]])).values()]",
        [0, 1, 2],
    ),
    "a line that stays keeps its look": (
        "[...curves.looks(['c', 'd'], new Map([['d', 1]]), new Map([['c', 1]]))]",
        [["c", 1], ["d", 0]],
    ),
    "missing numbers last either way": (
        "[true, false].map(down => [null, 2, 10].sort((a, b) => sorting.compare(a, b, down)))",
        [[10, 2, None], [2, 10, None]],
    ),
    "hidden characters": ("typeset.visible('a\\u202eb\\u0000\\n')", "a⟨U+202E⟩b⟨U+0000⟩\n"),
}


def test_functions(visit: Visit, report: str) -> None:
    page = visit(report).page
    found = {name: page.evaluate(script) for name, (script, _) in CASES.items()}
    assert found == {name: wanted for name, (_, wanted) in CASES.items()}
