"""The page: self-contained, every number from the tidy table, text is data, warnings where they are due."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from core.errors import MissingInputError
from core.provenance import ROOT
from core.results_tree import Tree
from report import build, convergence
from report.site import samples
from report.tables import spec
from tests.report.finished import rehash

VOID = {"meta", "br", "hr", "img", "link", "input", "col"}


class Page(HTMLParser):
    """Elements, attributes, cell texts; checks nesting while it reads."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: dict[str, str] = {}
        self.text: list[str] = []
        self._cell: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "td":
            self._cell = dict(attrs).get("id")
        if tag in ("small", "span"):
            self._cell = None

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("style", "script"):
            return
        self.text.append(data)
        if self._cell:
            self.cells[self._cell] = self.cells.get(self._cell, "") + data.strip()


def page(tree: Tree) -> Page:
    return Page(tree.layout.report.read_text(encoding="utf-8"))


@pytest.fixture(params=["one_seed", "two_seeds"])
def tree(request: pytest.FixtureRequest) -> Tree:
    return request.getfixturevalue(request.param)


def test_elements_are_closed_and_ids_are_unique(tree: Tree) -> None:
    parsed = page(tree)
    assert parsed.open == []
    ids = [attrs["id"] for _, attrs in parsed.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_references_inside_the_page_lead_somewhere(tree: Tree) -> None:
    parsed = page(tree)
    ids = {attrs.get("id") for _, attrs in parsed.tags}
    for _, attrs in parsed.tags:
        for value in attrs.values():
            for target in re.findall(r"^#([^?]+)|url\(#([^)]+)\)", value or ""):
                assert (target[0] or target[1]) in ids or re.fullmatch(r"[0-9a-f]{6}", target[0])
        for name in (attrs.get("aria-labelledby") or "").split():
            assert name in ids


def test_nothing_is_loaded_from_anywhere_and_only_our_scripts_run(tree: Tree) -> None:
    parsed, text = page(tree), tree.layout.report.read_text(encoding="utf-8")
    assert not {"link", "iframe", "object", "embed"} & {tag for tag, _ in parsed.tags}
    for tag, attrs in parsed.tags:
        assert "src" not in attrs or (tag == "img" and (attrs["src"] or "").startswith("report.data/figures/"))
        assert not any(name.startswith("on") for name in attrs)
        assert not re.match(r"[a-z+.-]+:|//", attrs.get("href") or "")
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text.split("<script", 1)[0])
    policy = next(attrs["content"] for tag, attrs in parsed.tags if tag == "meta" and "http-equiv" in attrs)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in (policy or "")
    assert "unsafe-inline" not in (policy or "").split("script-src")[1].split(";")[0]


def test_links_to_files_lead_to_files_beside_the_report(tree: Tree) -> None:
    for _, attrs in page(tree).tags:
        target = attrs.get("href") or "#"
        if not target.startswith("#"):
            assert (tree.root / target).is_file(), target


def test_every_number_of_the_tables_is_in_the_tidy_csv(tree: Tree) -> None:
    tidy = {
        f"{path.name.split('.')[0]}-{line['row']}-{line['column']}": line
        for path in tree.layout.tables.glob("table*.tidy.csv")
        for line in csv.DictReader(path.open(newline=""))
    }
    cells = page(tree).cells
    measured = {name for name, line in tidy.items() if line["state"] == "measured"}
    assert {name for name, shown in cells.items() if re.search(r"\d", shown)} == measured
    for name in measured:
        assert cells[name].replace("−", "-").lstrip("+") == f"{100 * float(tidy[name]['value']):.2f}"


def test_stand_ins_are_never_headed_as_the_papers_benchmarks(tree: Tree) -> None:
    markdown = (tree.layout.tables / "table1.md").read_text()
    header = next(line for line in markdown.splitlines() if line.startswith("| Method"))
    for heading in spec.table("1").columns.values():
        if not heading.startswith("Avg."):
            assert f"(for {heading})" in header
            assert f"| {heading}" not in header


def test_facts_versions_and_runs_are_there(tree: Tree) -> None:
    text = " ".join("".join(page(tree).text).split())
    for words in (
        "Invented CPU, 2 cores",
        "commit 0123456789ab",
        "torch 2.13.0",
        "ratio: token → sequence",
    ):
        assert words in text
    assert "vllm" not in text, "a package that is not installed is not listed"


def test_text_from_results_is_data(copy: Tree) -> None:
    evil = "<script>alert(1)</script>&\"'"
    matrix = json.loads(copy.layout.matrix.read_text())
    matrix["title"] = matrix["models"][0]["title"] = matrix["methods"][0]["title"] = evil
    matrix["benchmarks"][0]["title"] = evil
    copy.layout.matrix.write_text(json.dumps(matrix))
    text = build.build(copy.root)
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert(1)") >= 4
    assert Page(text).open == []


def test_the_page_does_not_depend_on_when_it_is_built(one_seed: Tree) -> None:
    assert build.build(one_seed.root) == one_seed.layout.report.read_text(encoding="utf-8")


def record(tree: Tree, method: str) -> Path:
    return tree.root / f"runs/tiny_qwen2/{method}/seed1/run.json"


def changed(path: Path, change: object) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)  # type: ignore[operator]
    path.write_text(json.dumps(value), encoding="utf-8")


WARNED = {
    "collapse": (lambda r: r.update(collapsed_at=12), "gspo/seed1: collapsed at rollout 12"),
    "no update": (lambda r: r.update(no_update="no update: 9 % truncated"), "gspo/seed1: no update: 9 % truncated."),
    "other settings": (lambda r: r["spec"]["training"].update(learning_rate=1.0), "runs differ in training settings"),
    "other prompts": (lambda r: r["inputs"].update(prompts="f" * 64), "runs differ in prompts"),
    "other weights": (lambda r: r["inputs"].update(base="f" * 64), "runs differ in base weights"),
    "other code": (lambda r: r["inputs"].update(code="f" * 12), "code of trl runs: 2 kinds"),
    "other versions": (lambda r: r["environment"]["packages"].update(torch="1"), "packages of runs: 2 kinds"),
    "dirty tree": (lambda r: r["environment"].update(dirty=True), "uncommitted changes"),
}


def test_what_a_reader_should_know_is_a_warning(copy: Tree) -> None:
    path = record(copy, "gspo")
    before, plain = path.read_bytes(), build.build(copy.root)
    silent = []
    for case, (change, words) in WARNED.items():
        assert words not in plain
        changed(path, change)
        text = build.build(copy.root)
        silent += [] if words in "".join(Page(text).text) else [case]
        if case == "no update":
            assert '<td class="words bad">seed 1: no update: 9 % truncated</td>' in text
        path.write_bytes(before)
    assert silent == []


def test_an_unfinished_run_is_a_warning_and_not_an_error(copy: Tree) -> None:
    record(copy, "tepo").unlink()
    text = "".join(Page(build.build(copy.root)).text)
    assert "tiny_qwen2/tepo/seed1: not finished: its folder has no run.json" in text
    assert "3 of 4 finished" in text


def test_timeouts_are_counted(copy: Tree) -> None:
    lines = list(csv.DictReader(copy.layout.scores.open(newline="")))
    for line in lines:
        if line["method"] == "tepo" and line["benchmark"] == "syn_as3":
            line["wrong"], line["timeout"] = str(int(line["wrong"]) - 3), "3"
    with copy.layout.scores.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    rehash(copy.root)
    text = "".join(Page(build.build(copy.root)).text)
    assert "3 responses graded as wrong because grading ran out of time (most: tepo on syn_as3, 3)" in text


def test_responses_that_were_deleted_are_named(copy: Tree) -> None:
    for place in ("samples", "grades"):
        folder = copy.root / place / "tiny_qwen2/tepo"
        folder.rename(copy.root / "aside")
        with pytest.raises(MissingInputError, match=rf"{place}/tiny_qwen2/tepo.*\.json: missing, though .*scores\.csv"):
            build.build(copy.root)
        (copy.root / "aside").rename(folder)


def test_a_missing_figure_is_named(copy: Tree) -> None:
    (copy.layout.figures / "figure3.svg").unlink()
    with pytest.raises(MissingInputError, match=r"figure3\.svg: missing"):
        build.build(copy.root)


def test_pictures_are_companion_files_as_written(one_seed: Tree, tmp_path: Path) -> None:
    samples.write(one_seed, tmp_path, None)
    shown = {attrs["src"] for tag, attrs in page(one_seed).tags if tag == "img"}
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("report.data/figures/*")}
    assert shown == found
    figure = one_seed.layout.figures / "figure2.svg"
    assert (tmp_path / "report.data/figures/figure2.svg").read_bytes() == figure.read_bytes()


def test_the_page_of_the_kept_embedded_tree_is_small() -> None:
    text = build.build(ROOT / "results/reference/embedded")
    assert len(text.encode()) < 3_000_000
    assert "runs finished 2026-11-24 20:03 to 2026-11-24 20:44 UTC" in text
    parsed = Page(text)
    ids = {attrs.get("id") for _, attrs in parsed.tags}
    inside = {(attrs.get("href") or "").removeprefix("#").partition("?")[0] for _, attrs in parsed.tags
              if (attrs.get("href") or "").startswith("#")}  # fmt: skip
    assert inside - ids == set()
    older = {"all", "tables", "figures", "dynamics", "samples", "claims", "readings", "audit", "about"}
    assert older - ids == set(), "addresses that documentation and older pages named"


def test_the_runs_are_a_row_a_method_and_the_column_that_matters_is_first() -> None:
    text = build.build(ROOT / "results/reference/tuned")
    parsed = Page(text)
    runs = text[text.index('<section class="view" id="runs">') : text.index('<article class="view page" id="row/')]
    assert runs.count('<tr><th scope="row">') == 13 + 5 * 13  # on fresh seeds at one rate, before at five
    assert len(set(re.findall('href="#(run/[^"]+)"', runs))) == 364 == runs.count('href="#run/')
    table = text[text.index('id="tableruns"') :]
    assert re.findall('<th scope="col">([^<]+)', table)[:3] == ["Method", "Area under reward", "Avg. (pooled)"]
    assert text.index("fresh seeds</h4>") < text.index("What chose the values</summary>") < text.index('id="tableruns"')
    assert "`" not in "".join(parsed.text)
    data = json.loads(re.search('id="data">(.*?)</script>', text)[1])  # type: ignore[index]
    lines = data["dynamics"]["front"]
    # at the rates that were chosen, on the seeds that chose nothing; beside the two, the largest areas
    assert [(line["method"], line["variant"]) for line in lines] == [
        ("grpo", "learning_rate-2e-4"),
        ("tepo", ""),
        ("cispo", "learning_rate-2e-4"),
        ("tepo_seqsum", "learning_rate-2e-4"),
    ]
    for line in lines:
        assert sorted(line["runs"]) == list("12345678")
        reward = line["values"]["reward"]
        assert all(a < b < c for a, b, c in zip(reward["low"], reward["mean"], reward["high"], strict=True))
    start = data["samples"]["checkpoints"][data["samples"]["start"]]
    assert (start["title"], start["beside"]) == (
        "TEPO, seed 1, step 12", "tiny_qwen2/grpo@learning_rate-2e-4/seed1/step12",
    )  # fmt: skip


def test_differences_name_the_slots_and_nothing_else() -> None:
    assert convergence.differences("grpo") == ()
    assert convergence.differences("tepo_nokl") == ("ratio: token → sequence",)
    assert [part.split(":")[0] for part in convergence.differences("gspo")] == ["ratio", "reduce"]


@pytest.mark.parametrize("stands_for", ["Qwen2.5-7B", None])
def test_another_scale_gets_its_configurations_note(stands_for: str | None, copy: Tree, tmp_path: Path) -> None:
    """And the warning, where models stand in for the paper's."""
    shutil.copytree(copy.root, tmp_path / "mine")
    changed(
        tmp_path / "mine/matrix.json",
        lambda m: m.update(
            scale="mine", note="A note of my own.", models=[model | {"stands_for": stands_for} for model in m["models"]]
        ),
    )
    text = "".join(Page(build.build(tmp_path / "mine")).text)
    assert "Results of the scale mine" in text
    assert ("no number here is comparable with one printed in the paper" in text) == (stands_for is not None)
    assert "A note of my own." in text
