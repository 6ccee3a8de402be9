"""The page: self-contained, every number from the tidy table, text is data, warnings where they are due."""

import base64
import csv
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from core.errors import BenchError, MissingInputError
from core.provenance import ROOT
from evals.tree import Tree
from paper import verdicts
from report import page as report_page
from tests.report.finished import cut, edit, rewrite


def build(root: Path) -> str:
    return report_page.build(Tree(root))


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
            self._cell = dict(attrs).get("data-cell")
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
        if self._cell and data.strip():
            self.cells[self._cell] = data.strip()


def page(tree: Tree) -> Page:
    return Page(tree.layout.report.read_text(encoding="utf-8"))


def text_of(root: Path) -> str:
    return "".join(Page(build(root)).text)


def test_elements_are_closed_ids_are_unique_and_references_lead_somewhere(reported: Tree) -> None:
    parsed = page(reported)
    assert parsed.open == []
    ids = [attrs["id"] for _, attrs in parsed.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = [target for tag, attrs in parsed.tags if tag == "a" and (target := attrs.get("href"))]
    assert {target[1:].split("?")[0] for target in links if target.startswith("#")} <= set(ids)
    files = [target for target in links if target[0] != "#"] + [
        attrs["src"] for _, attrs in parsed.tags if "src" in attrs
    ]
    assert [target for target in files if not (reported.root / str(target)).is_file()] == []


def test_nothing_is_loaded_from_anywhere_and_only_our_scripts_run(reported: Tree) -> None:
    parsed, text = page(reported), reported.layout.report.read_text(encoding="utf-8")
    assert not {"link", "iframe", "object", "embed"} & {tag for tag, _ in parsed.tags}
    for tag, attrs in parsed.tags:
        assert "src" not in attrs or (tag == "img" and (attrs["src"] or "").startswith("figures/"))
        assert not any(name.startswith("on") for name in attrs)
        assert not re.match(r"[a-z+.-]+:|//", attrs.get("href") or "")
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text.split("<script", 1)[0])
    policy = next(attrs["content"] for tag, attrs in parsed.tags if tag == "meta" and "http-equiv" in attrs) or ""
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]


def test_every_number_of_the_tables_is_in_the_tidy_csv(reported: Tree) -> None:
    tidy = {
        f"{path.name.split('.')[0]}-{line['row']}-{line['column']}": line
        for path in reported.layout.tables.glob("table*.tidy.csv")
        for line in csv.DictReader(path.open(newline=""))
        if line["kind"] != "again"
    }
    cells = page(reported).cells
    measured = {name for name, line in tidy.items() if line["state"] == "measured"}
    assert {name for name, shown in cells.items() if re.search(r"\d", shown)} == measured
    for name in measured:
        assert cells[name].replace("−", "-").lstrip("+") == f"{100 * float(tidy[name]['value']):.2f}"


def test_facts_versions_and_runs_are_there(reported: Tree) -> None:
    text = " ".join("".join(page(reported).text).split())
    for words in ("Invented CPU, 2 cores", "commit 0123456789ab", "torch 2.13.0", "ratio: token → sequence"):
        assert words in text
    assert "vllm" not in text, "a package that is not installed is not listed"


def test_text_from_results_is_data(copy: Tree) -> None:
    evil = "<script>alert(1)</script>&\"'"
    matrix = json.loads(copy.layout.matrix.read_text())
    matrix["title"] = matrix["models"][0]["title"] = matrix["methods"][0]["title"] = evil
    matrix["benchmarks"][0]["title"] = evil
    copy.layout.matrix.write_text(json.dumps(matrix))
    text = build(copy.root)
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert(1)") >= 4
    assert Page(text).open == []


def changed(path: Path, change: object) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)  # type: ignore[operator]
    path.write_text(json.dumps(value), encoding="utf-8")


WARNED = {
    "collapse": (
        lambda r: r.update(collapsed_at=5),
        "gspo/seed1: collapsed at rollout 5 of 12",
        "GSPO, seed 1, step 12 (collapsed, 5 rollouts made)",  # what was evaluated is the policy at the collapse
    ),
    "no update": (lambda r: r.update(no_update="no update: 9 % truncated"), "gspo/seed1: no update: 9 % truncated."),
    "other settings": (lambda r: r["spec"]["training"].update(learning_rate=1.0), "runs differ in training settings"),
    "other prompts": (lambda r: r["inputs"].update(prompts="f" * 64), "runs differ in prompts"),
    "other weights": (lambda r: r["inputs"].update(base="f" * 64), "runs differ in base weights"),
    "other code": (lambda r: r["inputs"].update(code="f" * 12), "code of trl runs: 2 kinds"),
    "other versions": (lambda r: r["environment"]["packages"].update(torch="1"), "packages of runs: 2 kinds"),
    "edited code": (
        lambda r: r.update(code_warning="methods/batch.py was edited"),
        "seed1: methods/batch.py was edited.",
    ),
    "dirty tree": (lambda r: r["environment"].update(dirty=True), "uncommitted changes"),
}


def test_what_a_reader_should_know_is_a_warning(copy: Tree) -> None:
    path = copy.root / "runs/tiny_qwen2/gspo/seed1/run.json"
    before, plain = path.read_bytes(), text_of(copy.root)
    silent = []
    for case, (change, *wanted) in WARNED.items():
        changed(path, change)
        text = text_of(copy.root)
        silent += [(case, words) for words in wanted if words not in text or words in plain]
        path.write_bytes(before)
    assert silent == []
    path.unlink()
    text = text_of(copy.root)
    assert "tiny_qwen2/gspo/seed1: not finished: its folder has no run.json" in text
    assert "7 of 8 finished" in text


def test_timeouts_are_counted_over_seeds(copy: Tree) -> None:
    timeouts = {("tepo", "1"): 3, ("tepo", "2"): 2, ("grpo", "1"): 4}

    def timed_out(row: dict[str, str]) -> dict[str, str]:
        count = timeouts.get((row["method"], row["seed"]), 0) if row["benchmark"] == "syn_as3" else 0
        return row | {"wrong": str(int(row["wrong"]) - count), "timeout": str(count)} if count else row

    rewrite(copy.layout.scores, timed_out)
    expected = "9 responses graded as wrong because grading ran out of time (most: tepo on syn_as3, 5)"
    assert expected in text_of(copy.root)


def test_responses_that_were_deleted_are_named(copy: Tree) -> None:
    for place in ("samples", "grades"):
        folder = copy.root / place / "tiny_qwen2/tepo"
        folder.rename(copy.root / "aside")
        with pytest.raises(MissingInputError, match=rf"{place}/tiny_qwen2/tepo.*\.json: missing, though .*scores\.csv"):
            build(copy.root)
        (copy.root / "aside").rename(folder)


def test_the_page_of_published_results_is_small_and_shows_fresh_seeds_first() -> None:
    text = build(ROOT / "results/reference/tuned")
    assert len(text.encode()) < 3_000_000
    shown = text[text.index('<section class="view" id="runs">') : text.index('<section class="view" id="samples">')]
    assert shown.count('<tr><th scope="row">') == 14 + 4 * 14  # on fresh seeds at one rate, before at four
    table = text[text.index('id="tableruns"') :]
    assert re.findall('<th scope="col">([^<]+)', table)[:3] == ["Method", "Area under reward", "Avg. (pooled)"]
    data = json.loads(re.search('id="data">(.*?)</script>', text)[1])  # type: ignore[index]
    front = [data["dynamics"]["lines"][place] for place in data["dynamics"]["front"]]
    # at the rates that were chosen, on the seeds that chose nothing; then a method of no table and the largest area
    assert [line["method"] for line in front] == ["grpo", "tepo", "grpo+high=none+low=none", "tepo_nokl"]
    assert {line["settings"] for line in front} == {"fresh"}
    assert all(line["title"].endswith(", learning rate 0.0002") for line in front)
    for line in front:
        reward = line["values"]["reward"]
        assert all(a < b < c for a, b, c in zip(reward["low"], reward["mean"], reward["high"], strict=True))
    start = data["samples"]["checkpoints"][data["samples"]["start"]]
    title = "TEPO, learning rate 0.0002, seed 1, step 12"
    assert (start["title"], start["beside"]) == (title, "tiny_qwen2/grpo@learning_rate-2e-4/seed1/step12")


@pytest.mark.parametrize("stands_for", ["Qwen2.5-7B", None])
def test_another_scale_gets_its_configurations_note(stands_for: str | None, copy: Tree, tmp_path: Path) -> None:
    """And the warning, where models stand in for the paper's."""
    shutil.copytree(copy.root, tmp_path / "mine")
    models = [model | {"stands_for": stands_for} for model in copy.matrix["models"]]
    edit(tmp_path / "mine/matrix.json", scale="mine", note="A note of my own.", models=models)
    text = text_of(tmp_path / "mine")
    assert "Results of the scale mine" in text
    assert ("no number here is comparable with one printed in the paper" in text) == (stands_for is not None)
    assert "A note of my own." in text


def test_only_verdicts_of_runs_are_what_the_runs_decide(copy: Tree) -> None:
    path = copy.root / "claims.csv"
    for verdict in ("not tested", "supported"):
        rewrite(path, lambda row, verdict=verdict: row | ({"verdict": verdict} if row["source"] == "runs" else {}))
        text = build(copy.root)
        assert (f"<p>No claim of the paper. {verdicts.RULE}</p>" in text) == (verdict == "not tested")
    found = {row["id"] for row in verdicts.read(path) if row["source"] == "runs"}
    decided = text[text.index("What these runs decide") : text.index("All claims, also")]
    assert set(re.findall('href="#claim/([^"]+)"', decided)) == found


DAMAGED = {
    "tables/table1.tidy.csv": "python -m report.tables --results {root} --table 1",
    "figures/figure2.json": "python -m report.figures --results {root} --figure figure2",
    "figures/convergence.csv": "python -m report.convergence --results {root}",
    "figures/convergence_bands.csv": "python -m report.convergence --results {root}",
    "claims.csv": "python -m paper.claims --results {root}",
    "scores.csv": "",
}


def test_a_missing_or_cut_file_is_one_line_with_the_command_that_writes_it(copy: Tree) -> None:
    wrong = []
    for name, line in DAMAGED.items():
        path = copy.root / name
        before = path.read_bytes()
        for damage in (Path.unlink, cut):
            damage(path)
            try:
                build(copy.root)
            except BenchError as error:
                message = str(error)
                if not message.startswith(str(path)) or line.format(root=copy.root) not in message or "\n" in message:
                    wrong.append(f"{path}: {message}")
            else:
                wrong.append(f"{path}: damage was not noticed")
            path.write_bytes(before)
    assert wrong == []
