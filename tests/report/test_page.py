"""The page: self-contained, every number from the tidy table, text is data, warnings where they are due."""

import base64
import csv
import hashlib
import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import pytest

from core.errors import BenchError, MissingInputError
from core.files import to_csv
from core.layout import Run
from core.provenance import ROOT
from core.results_tree import Tree
from paper import verdicts
from report import build, convergence
from report import rows as table_rows
from report.markdown import environment
from report.site import assets, paper, runs, samples, tables
from tests.report.finished import rehash, rewrite

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


def ids_that_exist(parsed: Page) -> set[str | None]:
    """Those of the page; everything that refers to one inside it refers to one of them."""
    ids = {attrs.get("id") for _, attrs in parsed.tags}
    for _, attrs in parsed.tags:
        for value in attrs.values():
            for target in re.findall(r"^#([^?]+)|url\(#([^)]+)\)", value or ""):
                assert (target[0] or target[1]) in ids or re.fullmatch(r"[0-9a-f]{6}", target[0])
        assert {*(attrs.get("aria-labelledby") or "").split()} <= ids
    return ids


def test_elements_are_closed_ids_are_unique_and_references_lead_somewhere(tree: Tree) -> None:
    parsed = page(tree)
    assert parsed.open == []
    assert len([attrs for _, attrs in parsed.tags if "id" in attrs]) == len(ids_that_exist(parsed) - {None})
    files = [target for _, attrs in parsed.tags if not (target := attrs.get("href") or "#").startswith("#")]
    assert [target for target in files if not (tree.root / target).is_file()] == []


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
    for heading in table_rows.table("1").columns.values():
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
    changed(path, lambda r: r["environment"]["packages"].update(verl="0"))
    assert "packages of runs" not in build.build(copy.root), "verl is imported by its own runs alone"


def test_an_unfinished_run_is_a_warning_and_not_an_error(copy: Tree) -> None:
    record(copy, "tepo").unlink()
    text = "".join(Page(build.build(copy.root)).text)
    assert "tiny_qwen2/tepo/seed1: not finished: its folder has no run.json" in text
    assert "3 of 4 finished" in text


def test_timeouts_are_counted_over_seeds(two_seeds: Tree, tmp_path: Path) -> None:
    copy = Tree(shutil.copytree(two_seeds.root, tmp_path / "quick"))
    timeouts = {("tepo", "1"): 3, ("tepo", "2"): 2, ("grpo", "1"): 4}

    def timed_out(row: dict[str, str]) -> dict[str, str]:
        count = timeouts.get((row["method"], row["seed"]), 0) if row["benchmark"] == "syn_as3" else 0
        return row | {"wrong": str(int(row["wrong"]) - count), "timeout": str(count)} if count else row

    rewrite(copy.layout.scores, timed_out)
    rehash(copy.root)
    text = "".join(Page(build.build(copy.root)).text)
    assert "9 responses graded as wrong because grading ran out of time (most: tepo on syn_as3, 5)" in text


def test_responses_that_were_deleted_are_named(copy: Tree) -> None:
    for place in ("samples", "grades"):
        folder = copy.root / place / "tiny_qwen2/tepo"
        folder.rename(copy.root / "aside")
        with pytest.raises(MissingInputError, match=rf"{place}/tiny_qwen2/tepo.*\.json: missing, though .*scores\.csv"):
            build.build(copy.root)
        (copy.root / "aside").rename(folder)


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
    times = re.search(r"- when: (.{16})\S+ to (.{16})", (ROOT / "results/reference/embedded/README.md").read_text())
    assert times
    first, last = (time.replace("T", " ") for time in times.groups())
    assert f"runs finished {first} to {last} UTC" in text
    older = {"all", "tables", "figures", "dynamics", "samples", "claims", "readings", "audit", "about"}
    assert older - ids_that_exist(Page(text)) == set(), "addresses that documentation and older pages named"


def test_the_runs_are_a_row_a_method_and_the_column_that_matters_is_first(tmp_path: Path) -> None:
    tree = Tree(shutil.copytree(ROOT / "results/reference/tuned", tmp_path / "tuned"))
    text = build.build(tree.root)
    parsed = Page(text)
    runs = text[text.index('<section class="view" id="runs">') : text.index('<article class="view page" id="row/')]
    assert runs.count('<tr><th scope="row">') == 14 + 4 * 14  # on fresh seeds at one rate, before at four
    assert len(set(re.findall('href="#(run/[^"]+)"', runs))) == 560 == runs.count('href="#run/')
    table = text[text.index('id="tableruns"') :]
    assert re.findall('<th scope="col">([^<]+)', table)[:3] == ["Method", "Area under reward", "Avg. (pooled)"]
    assert text.index("fresh seeds</h4>") < text.index("What chose the values</summary>") < text.index('id="tableruns"')
    assert "`" not in "".join(parsed.text)
    data = json.loads(re.search('id="data">(.*?)</script>', text)[1])  # type: ignore[index]
    lines = data["dynamics"]["front"]
    # at the rates that were chosen, on the seeds that chose nothing; beside the two, the largest areas
    assert [line["method"] for line in lines] == ["grpo", "tepo", "tepo_nokl", "tepo_kl_neg"]
    assert {line["variant"] for line in lines} == {"learning_rate-2e-4"}
    for line in lines:
        assert sorted(line["runs"]) == list("12345678")
        reward = line["values"]["reward"]
        assert all(a < b < c for a, b, c in zip(reward["low"], reward["mean"], reward["high"], strict=True))
    start = data["samples"]["checkpoints"][data["samples"]["start"]]
    assert (start["title"], start["beside"]) == (
        "TEPO, learning rate 0.0002, seed 1, step 12", "tiny_qwen2/grpo@learning_rate-2e-4/seed1/step12",
    )  # fmt: skip


def test_a_row_s_page_has_each_seed_s_value_and_calls_nothing_missing() -> None:
    tree = Tree(ROOT / "results/reference/smollm")
    filled = tables.read(tree)
    pages = [one for one in tables.row_pages(filled, tree) if one["table"] == "runs"]
    assert "missing" not in {score["text"] for one in pages for line in one["lines"] for score in line["scores"]}
    (tepo,) = (one for one in pages if one["id"] == "row/runs/smollm2_135m/tepo/step8")
    (row,) = (row for row in tables.rows_of(filled[-1]) if row["id"] == "smollm2_135m/tepo/step8")
    for slot, column in (("area", "Area under reward"), ("delta", "Δ GRPO/DAPO"), ("best", "P(best)")):
        shown = [line["scores"][tepo["columns"].index(column)]["text"] for line in tepo["lines"]]
        values = row["cells"][slot]["by_seed"].values()
        signs = "+" if slot == "delta" else ""
        expected = [f"{100 * value:{signs}.2f}".replace("-", "−") for value in values] or ["–"] * len(shown)
        assert shown == expected, column


def test_a_collapsed_or_unfinished_run_says_what_its_reward_is_over() -> None:
    run = Run("tiny_qwen2", "grpo", 1)
    for planned, trained, area, said in (
        (12, 12, 0.5, "mean reward 50.00 % over 12 rollouts (area)"),
        (12, 3, 0.05, "mean reward 5.00 % over 12 rollouts, the 9 after the collapse counted as 0 (area)"),
        (None, None, None, "no mean reward yet (area)"),
    ):
        summary = runs.Summary(run, "GRPO/DAPO", (), planned, trained, area, None)
        assert runs.line(summary)["reward"] == said


def test_a_run_of_grpo_in_other_settings_is_not_called_what_others_are_compared_with() -> None:
    tree = Tree(ROOT / "results/reference/embedded")
    summaries = [one for one in runs.summaries(tree) if one.run.method in ("grpo", "grpo@shuffled")]
    template = environment(assets.HTML, autoescape=True).get_template("run.html.j2")
    for view in runs.views(tree, [summaries[0], summaries[-1]]):
        setting = tree.matrix["variants"]["shuffled"]["title"] if "@shuffled" in view["id"] else ""
        assert view["setting"] == setting
        under = f", under other settings: {setting}" if setting else ""
        assert f"<p>None: the loss is that of GRPO/DAPO{under}.</p>" in template.render(run=view)


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


OUTSIDE = {"estimate": 1.5, "low": 1.0, "high": 2.0, "null": 0.0}
INSIDE = {"estimate": 0.0, "low": -0.01, "high": 0.01, "null": 0.0, "margin_low": -0.02, "margin_high": 0.02}


def with_verdicts(tree: Tree, folder: Path, verdict: str, figures: Mapping[str, float] = OUTSIDE) -> Tree:
    """The tree with every claim that runs could decide given this verdict."""
    shutil.copytree(tree.root, folder)
    path = folder / "claims.csv"
    rows = verdicts.read(path)
    for row in rows:
        if row["source"] == verdicts.RUNS:
            row |= {"verdict": verdict, **figures}
    path.write_text(to_csv(verdicts.COLUMNS, rows), encoding="utf-8")
    return Tree(folder)


def test_what_runs_decide_is_apart_from_print_and_formulas(one_seed: Tree, tmp_path: Path) -> None:
    view = paper.claims(one_seed)
    assert view["decided"] == {}
    assert f"<p>No claim of the paper. {verdicts.RULE}</p>" in build.build(one_seed.root)
    counts = {name: dict(found) for name, found in view["counts"]}
    assert {"supported", "contradicted"}.isdisjoint(counts["runs of this tree"])
    decided = paper.claims(with_verdicts(one_seed, tmp_path / "quick", "supported"))
    by_runs = {c["id"] for c in decided["claims"] for line in c["lines"] if line["name"] == "runs of this tree"}
    assert {claim["id"] for claim in decided["decided"]["supported"]} == by_runs


def test_what_is_equal_is_decided_and_its_margin_is_shown(one_seed: Tree, tmp_path: Path) -> None:
    tree = with_verdicts(one_seed, tmp_path / "quick", "equal within the margin", INSIDE)
    view = paper.claims(tree)
    assert list(view["decided"]) == ["equal within the margin"]
    for line in view["decided"]["equal within the margin"]:
        assert "margin -" in line["beside"]
        picture = line["picture"]
        # to scale: the interval is half as wide as the margin, and in its middle
        assert picture["margin_width"] == pytest.approx(2 * picture["width"], abs=0.05)
        assert picture["margin"] < picture["low"] < picture["null"]
    page = build.build(tree.root)
    for claim in view["claims"]:
        for line in claim["lines"]:
            decided = line["verdict"] in verdicts.DECIDED
            assert ("tested statement only" in line["beside"]) == (bool(claim["untested"]) and decided)
        assert claim["untested"] in html.unescape(page)


# What computes tables, figures, learning curves, claims and the audit; and the packages that only computing needs.
COMPUTES = (
    "evals.grade", "evals.learning_curves", "evals.score", "evals.stats", "methods.catalog", "methods.parts",
    "paper.audit", "paper.claims", "paper.contrasts",
    "report.convergence", "report.draw",
    "report.figure", "report.tables", "torch",
)  # fmt: skip
BUILD = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in {refused}):
            raise ImportError(name + " must not be imported to build the page")

sys.meta_path.insert(0, Refuse())
from report import build
build.main(["--results", sys.argv[1]])
"""


@pytest.mark.slow
def test_nothing_that_computes_is_imported_to_build_the_page(copy: Tree) -> None:
    expected = copy.layout.report.read_text(encoding="utf-8")
    copy.layout.report.unlink()
    command = [sys.executable, "-c", BUILD.format(refused=COMPUTES), str(copy.root)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert copy.layout.report.read_text(encoding="utf-8") == expected


WRITTEN_BY = {  # files that the page reads -> their command
    "figures/figure2.": (("csv", "json"), "python -m report.figure --results {root} --figure figure2"),
    "figures/convergence": (
        (".csv", "_runs.csv", "_curves.csv", "_bands.csv", "_methods.csv"),
        "python -m report.convergence --results {root}",
    ),
    "scores.": (("csv",), ""),
}


@pytest.mark.slow
def test_a_missing_file_is_one_line_with_the_command_that_writes_it(copy: Tree) -> None:
    named = [(copy.root / f"{start}{end}", line) for start, (ends, line) in WRITTEN_BY.items() for end in ends]
    wrong = []
    for path, line in named:
        before = path.read_bytes()
        path.unlink()
        try:
            build.build(copy.root)
        except BenchError as error:
            said = str(error)
            if not said.startswith(str(path)) or line.format(root=copy.root) not in said or "\n" in said:
                wrong.append(f"{path}: {said}")
        else:
            wrong.append(f"{path}: was not missed")
        path.write_bytes(before)
    assert wrong == []
