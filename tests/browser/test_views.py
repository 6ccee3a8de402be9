"""The page in Chromium: a reader's way through it, every view for every reader, its curves.

"Every reader": who cannot point, see colours or run scripts, on a phone, on paper. Chromium is driven by Playwright
without a network. Without Chromium the tests are skipped with a reason; with TEPO_BENCH_REQUIRE_CHROMIUM=1 (`.ci/run`)
they fail instead.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from report import page as report_page
from tests.browser import invented
from tests.report.conftest import make

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

DESKTOP, PHONE = ({"width": width, "height": 900} for width in (1280, 390))
PATIENCE = 120_000  # milliseconds; Playwright's own 5 s are short on a busy machine
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
Visit = Callable[..., Page]


# For this file and not the session: as long as Playwright runs, its event loop runs in this process, for tests of other
# files too, and what they call cannot start one.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    program = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
    if program is None:
        reason = "no chromium on PATH (Debian: apt-get install chromium)"
        if os.environ.get("TEPO_BENCH_REQUIRE_CHROMIUM") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Visit]:
    """Open an address; at the end of the test nothing may have failed, and nothing outside may have been requested."""
    opened, errors = list[Page](), list[str]()

    def go(address: str, *, fails: bool = False, **options: Any) -> Page:
        page = chromium.new_context(**{"viewport": DESKTOP, "offline": True} | options).new_page()
        opened.append(page)
        home = address.split("#")[0].rsplit("/", 1)[0]
        page.on("request", lambda asked: None if asked.url.startswith((home, "data:")) else errors.append(asked.url))
        if not fails:
            page.on("console", lambda note: errors.append(note.text) if note.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        return page

    yield go
    for page in opened:
        page.context.close()
    assert errors == []


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """`file://` address of the report of an invented tree with two seeds, hostile text among its responses."""
    root = tmp_path_factory.mktemp("report") / "quick"
    make(root)
    invented.hostile(root)
    report_page.main(["--results", str(root)])
    return (root / "report.html").as_uri()


def folder(report: str) -> Path:
    return Path(report.removeprefix("file://")).parent


# A reader's way: the same number everywhere.

COUNT = "#count"


def opened(page: Page) -> None:
    """Wait until both sides of a problem are shown."""
    expect(page.locator(".side .response")).to_have_count(2)


@pytest.mark.chain
def test_the_same_number_in_the_table_of_runs_and_the_responses(visit: Visit, report: str) -> None:
    page = visit(f"{report}#results")
    against = page.locator("#tableruns tr", has_text="TEPO").first.locator("td[title]").first.get_attribute("title")
    assert re.fullmatch(r"-?\d+\.\d\d \[.*\] against the baseline", against or "")
    cell = page.locator("#table1 tr", has_text="GRPO/DAPO").first.locator("a").last
    printed = float(cell.text_content() or "")  # not inner_text: what is off the screen is not laid out
    cell.click()
    opened(page)
    sums = page.locator(f"{COUNT} li").first.inner_text()
    right, of, percent = re.search(r"seed 1.* (\d+) of (\d+) right \((.*) %\)", sums).groups()  # type: ignore[union-attr]
    place = ("grpo", "12", page.locator("[name=benchmark]").input_value())
    rows = csv.DictReader((folder(report) / "scores.csv").open(newline=""))
    scores = [100 * float(row["score"]) for row in rows if (row["method"], row["step"], row["benchmark"]) == place]
    assert percent == f"{100 * int(right) / int(of):.2f}" == f"{scores[0]:.2f}"
    assert sum(scores) / len(scores) == pytest.approx(printed, abs=0.006)
    page.go_back()
    expect(page.locator(".view.here h1")).to_have_text("Results")


def test_a_response_that_holds_markup_or_is_not_utf8_is_text(visit: Visit, report: str) -> None:
    checkpoint, benchmark = invented.STRUCK
    chosen = f"{report}#samples?left={checkpoint.path.as_posix()}&right=none&benchmark={benchmark}"
    page = visit(f"{chosen}&item={benchmark}/item0000")
    response = page.locator(".side .response")
    expect(response).to_contain_text("<script>window.struck = 'script'</script><img src=x onerror=")
    expect(response).to_contain_text("⟨U+202E⟩right to left⟨U+202C⟩ ⟨U+0007⟩")
    assert response.locator("script, img, a, iframe").count() == 0
    page.reload()  # whatever was going to run has run by the second time
    expect(response).to_contain_text("right to left")
    assert page.evaluate("window.struck") is None
    page = visit(f"{chosen}&item={benchmark}/item0001")
    expect(page.locator(".side .response")).to_have_text(r"broken \xff\xfe here, cut \xe2\x82")
    page = visit(f"{chosen}&item={benchmark}/item0002")
    expect(page.locator(".side .response")).to_contain_text("4,140,000 of 4,200,000 characters left out")


DAMAGES = (("samples/**/*.js", "changed"), ("samples/**/*.js", "cut"), ("**/*.js", "absent"))


def test_a_missing_or_damaged_companion_file_is_named_by_the_page(visit: Visit, report: str, tmp_path: Path) -> None:
    """A sentence, and not an empty view: gzip's checksum shows a changed byte, the browser's parser a cut."""
    for name, damage in DAMAGES:
        root = tmp_path / f"{name.partition('/')[0]}-{damage}".replace("*", "")
        shutil.copytree(folder(report) / "report.data", root / "report.data")
        shutil.copyfile(folder(report) / "report.html", root / "report.html")
        for path in root.glob(f"report.data/{name}"):
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content if damage == "changed" else content[: len(content) // 2])
            if damage == "absent":
                path.unlink()
        page = visit((root / "report.html").as_uri() + "#samples", fails=True)
        words = "is damaged: run snakemake report to write it again."
        words = "report.data has to lie beside this file" if damage == "absent" else words
        expect(page.locator("#status"), f"{name} {damage}").to_contain_text(words)


# Every view, for every reader.

HERE = Path(__file__).resolve().parent
VIEWS = ("overview", "results", "training", "samples", "paper")
ADDRESSES = (*VIEWS, "claims", "provenance", "benchmarks", "tableruns", "figure2")
PASSES = (  # window, colours, options of axe
    (DESKTOP, "light", "{}"),
    (DESKTOP, "dark", "{runOnly: ['color-contrast']}"),  # the elements are the same
    (PHONE, "light", "{runOnly: ['document-title']}"),  # the width matters
)


def test_no_view_is_wider_than_the_window_and_axe_finds_nothing_serious(visit: Visit, report: str) -> None:
    axe = (HERE / "axe/axe.min.js").read_text(encoding="utf-8") + "; 0"
    wide, serious = [], []
    for size, scheme, rules in PASSES:
        page = visit(report, viewport=size, color_scheme=scheme)
        page.evaluate(axe)
        for address in ADDRESSES:
            page.goto(f"{report}#{address}")
            expect(page.locator(f"[id='{address}']")).to_be_visible()
            if address == "samples":
                opened(page)
            if (width := page.evaluate("document.documentElement.scrollWidth")) > size["width"]:
                wide.append(f"#{address}: {width} of {size['width']} pixels")
            serious += [
                f"{scheme} #{address}: {rule['id']}: {node['html'][:160]}"
                for rule in page.evaluate(f"axe.run({{preload: false, ...{rules}}})")["violations"]
                if rule["impact"] in ("serious", "critical")
                for node in rule["nodes"]
            ]
    assert (wide, serious) == ([], [])


def test_without_javascript_everything_is_one_long_page(visit: Visit, report: str) -> None:
    page = visit(report, java_script_enabled=False)
    for id in VIEWS:
        expect(page.locator(f"#{id}")).to_be_visible()
    for shown in ("#figure2 img", "#table1 tbody a >> nth=0"):
        expect(page.locator(shown)).to_be_visible()
    expect(page.locator("noscript")).to_have_count(1)


# Charts.


def test_a_key_in_a_legend_takes_a_line_and_its_band_out_of_every_chart(visit: Visit, report: str) -> None:
    page = visit(report)
    expect(page.locator("#front canvas")).to_be_visible()
    names = page.locator("#front .u-legend .line .u-label").all_inner_texts()
    assert names == ["GRPO/DAPO", "TEPO", "TEPO without KL", "GSPO"]
    page.goto(f"{report}#training")
    charts = page.locator("#dashboard .panel")
    expect(charts.first.locator("canvas")).to_be_visible()
    assert charts.count() == 8
    charts.first.get_by_role("button", name="GSPO").press("Enter")
    expect(charts.locator(".u-series.u-off", has_text="GSPO")).to_have_count(3 * 8)  # mean, low, high
