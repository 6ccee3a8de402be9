"""The page: self-contained, every number from the tidy table, text is data, warnings where they are due."""

import base64
import csv
import hashlib
import json
import re
from html import unescape
from pathlib import Path

import pytest

from core.errors import BenchError
from core.provenance import ROOT
from evals.tree import Tree
from report import page as report_page
from tests.report.finished import cut, edit


def build(root: Path) -> str:
    return report_page.build(Tree(root))


def elements(text: str) -> str:
    """The page without its scripts and styles."""
    return re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)


def text_of(root: Path) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", "", elements(build(root)))).split())


def test_the_page_is_whole_and_loads_nothing_from_anywhere(reported: Tree) -> None:
    """Ids are unique, references lead somewhere, and only our scripts run."""
    text = reported.layout.report.read_text(encoding="utf-8")
    assert "<Macro" not in text, "a name of the template was printed"
    shown = elements(text)
    ids, links, pictures = (re.findall(f' {name}="([^"]*)"', shown) for name in ("id", "href", "src"))
    assert len(ids) == len(set(ids))
    inside = {unescape(link[1:]).split("?")[0] for link in links if link.startswith("#")}
    assert inside <= set(ids)
    files = [link for link in (*links, *pictures) if link[0] != "#"]
    assert [file for file in files if not (reported.root / file).is_file() or ":" in file] == []
    assert not re.search(r"<(link|iframe|object|embed)\b|<[^>]* on\w+=", shown)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text.split("<script", 1)[0])
    (policy,) = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 2
    for script in scripts:
        assert f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}" in unescape(policy)
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]


def test_every_number_of_the_tables_is_in_the_tidy_csv(reported: Tree) -> None:
    tidy = {
        f"{path.name.split('.')[0]}-{line['row']}-{line['column']}": line
        for path in reported.layout.tables.glob("table*.tidy.csv")
        for line in csv.DictReader(path.open(newline=""))
        if line["kind"] != "again"
    }
    text = reported.layout.report.read_text(encoding="utf-8")
    cells = dict(re.findall(r'data-cell="([^"]+)"[^>]*>(?:<a [^>]*>)?([^<]*)', text))
    measured = {name for name, line in tidy.items() if line["state"] == "measured"}
    assert {name for name, shown in cells.items() if re.search(r"\d", shown)} == measured
    for name in measured:
        assert cells[name].replace("−", "-").lstrip("+") == f"{100 * float(tidy[name]['value']):.2f}"
    for words in ("Invented CPU, 2 cores", "commit 0123456789ab", "torch 2.13.0"):
        assert words in text


def test_text_from_results_is_data(copy: Tree) -> None:
    evil = "<script>alert(1)</script>&\"'"
    entries = {kind: [of | {"title": evil} for of in copy.matrix[kind]] for kind in ("models", "methods", "benchmarks")}
    edit(copy.layout.matrix, title=evil, **entries)
    text = build(copy.root)
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert(1)") >= 4


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
        record = json.loads(before)
        change(record)
        path.write_text(json.dumps(record), encoding="utf-8")
        text = text_of(copy.root)
        silent += [(case, words) for words in wanted if words not in text or words in plain]
        path.write_bytes(before)
    assert silent == []
    path.unlink()
    text = text_of(copy.root)
    assert "tiny_qwen2/gspo/seed1: not finished." in text
    assert "7 of 8 finished" in text


def test_the_page_of_published_results_shows_fresh_seeds_first() -> None:
    text = build(ROOT / "results/reference/tuned")
    table = text[text.index('id="tableruns"') :]
    assert re.findall('<th scope="col">([^<]+)', table)[:3] == ["Method", "Area under reward", "Avg. (pooled)"]
    data = json.loads(re.search('id="data">(.*?)</script>', text)[1])  # type: ignore[index]
    front = [data["dynamics"]["lines"][place] for place in data["dynamics"]["front"]]
    # at the rates that were chosen, on the seeds that chose nothing; then a method of no table and the largest area
    assert [line["method"] for line in front] == ["grpo", "tepo", "grpo+high=none+low=none", "tepo_nokl"]
    assert {line["settings"] for line in front} == {"fresh"}
    assert all(line["title"].endswith(", learning rate 0.0002") for line in front)
    start = data["samples"]["checkpoints"][data["samples"]["start"]]
    title = "TEPO, learning rate 0.0002, seed 1, step 12"
    assert (start["title"], start["beside"]) == (title, "tiny_qwen2/grpo@learning_rate-2e-4/seed1/step12")


DAMAGED = {
    "tables/table1.tidy.csv": "python -m report.tables --results {root} --table 1",
    "figures/figure2.json": "python -m report.figures --results {root} --figure figure2",
    "figures/convergence_bands.csv": "python -m report.convergence --results {root}",
    "claims.csv": "python -m paper.claims --results {root}",
    "scores.csv": "",
    "samples/tiny_qwen2/tepo/seed1/step12/samples.json": "",
    "grades/tiny_qwen2/tepo/seed1/step12/grades.json": "",
}


def test_a_missing_or_cut_file_is_one_line_with_the_command_that_writes_it(copy: Tree) -> None:
    wrong = []
    for name, line in DAMAGED.items():
        path = copy.root / name
        before = path.read_bytes()
        for damage in (Path.unlink, cut):
            damage(path)
            with pytest.raises(BenchError) as error:
                build(copy.root)
            message = str(error.value)
            if not message.startswith(str(path)) or line.format(root=copy.root) not in message or "\n" in message:
                wrong.append(message)
            path.write_bytes(before)
    assert wrong == []
