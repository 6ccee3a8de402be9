"""Logs of other tools, written by the tools themselves, become trees that grade, score, and page read."""

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from core.errors import BenchError, ConfigError
from core.layout import Checkpoint, Results
from core.provenance import ROOT
from evals import adopt, data
from evals.benchmark import benchmark
from evals.fetch import fetch
from evals.scores import read_scores
from evals.tree import open_tree
from report.page import build

ROWS = [
    {"id": n, "sample": k, "problem": f"What is {n} + {n}?", "gold": str(2 * n), "response": text, "correct": right}
    for n, (text, right) in enumerate(
        [("\\boxed{2}", True), ("\\boxed{5}", False), ("So <b>6</b> is \\boxed{6}.", None)], 1
    )
    for k in (0, 1)
]


def lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def written(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines(rows))
    return path


def command(monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr("sys.argv", ["adopt", *map(str, words)])
    adopt.main()


def cells(tree: Path, model: str, key: str) -> list[dict[str, Any]]:
    return list(pq.read_table(Results(tree).samples(Checkpoint.base(model)) / f"{key}.parquet").to_pylist())


def scores(tree: Path) -> dict[tuple[str, str], float]:
    rows = read_scores(tree / "scores.csv").to_dict("records")
    return {(row["model"], row["benchmark"]): row["score"] for row in rows if row["how"] != "not run"}


def test_json_lines_become_a_tree_with_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "tree"
    first, second = (written(tmp_path / f"{name}.jsonl", ROWS) for name in ("a", "b"))
    command(monkeypatch, "--from", "jsonl", first, second, "--benchmark", "sums", "--out", tree)
    assert scores(tree)["a", "sums"] == scores(tree)["b", "sums"] == pytest.approx(2 / 3)
    for row, given in zip(cells(tree, "a", "sums"), ROWS, strict=True):
        for name, theirs in (("sample", "sample"), ("tool_correct", "correct"), ("response", "response")):
            assert row[name] == given[theirs]
        assert row["prompt"] == given["problem"]

    # Another call adds; the same one changes nothing.
    other = written(tmp_path / "c.jsonl", [row | {"problem": f"{row['problem']}!"} for row in ROWS])
    command(monkeypatch, "--from", "jsonl", other, "--model", "a", "--benchmark", "more", "--out", tree)
    before = (tree / "scores.csv").read_bytes()
    command(monkeypatch, "--from", "jsonl", other, "--model", "a", "--benchmark", "more", "--out", tree)
    assert (tree / "scores.csv").read_bytes() == before
    assert {("a", "sums"), ("b", "sums"), ("a", "more")} <= set(scores(tree))
    assert ("b", "more") not in scores(tree)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")], "a temporary folder stayed"

    page = build(open_tree(tree))
    assert all(text in page for text in ("sums", "more", 'id="samples"'))


def test_marks_of_thoughts_are_an_option_and_other_ones_grade_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = r"(+ \boxed{3} +) \boxed{2}", r"(+ \boxed{2}", r"\boxed{2} (+ or \boxed{3} +)"
    rows = [{"problem": f"{n}?", "gold": "2", "response": text} for n, text in enumerate(texts)]
    words = "--from", "jsonl", written(tmp_path / "a.jsonl", rows), "--out", tmp_path / "tree"
    grades = Results(tmp_path / "tree").grades(Checkpoint.base("a"))
    for marks, verdicts in (
        ((), ["correct", "correct", "wrong"]),
        (("--thoughts", "(+", "+)"), ["correct", "no_answer", "no_answer"]),
        (("--thoughts", "(+", "#)"), ["no_answer", "no_answer", "correct"]),
        ((), ["correct", "correct", "wrong"]),
    ):
        for again in (False, True):
            command(monkeypatch, *words, *marks)
            assert ("grades are there" in capsys.readouterr().out) is again
            assert pq.read_table(grades / "a.parquet")["verdict"].to_pylist() == verdicts
    with pytest.raises(ConfigError, match="argument --thoughts: an empty mark"):
        command(monkeypatch, *words, "--thoughts", "<plan>", "")


AMBIGUOUS: dict[str, tuple[bytes, str]] = {
    "two golds": (lines([row | {"answer": "1"} for row in ROWS]), "gold and answer are there; set --fields gold="),
    "no sample number": (
        lines([{k: v for k, v in row.items() if k != "sample"} for row in ROWS]),
        "row 1: id '1' has samples 0, 0; each id needs 2, .*; set --fields sample=FIELD, or sample=@order",
    ),
    "an id for each sample": (
        lines([row | {"id": n, "sample": 0} for n, row in enumerate(ROWS)]),
        "row 2: the problem of .*row 1 under another id; set --fields id=problem,sample=@order",
    ),
    "no gold": (lines([row | {"gold": None} for row in ROWS]), "row 1: gold: expected one text, got null; set"),
    "golds differ": (lines([ROWS[0], ROWS[1] | {"gold": "7"}]), "row 2: gold of id '1' is another than at .*row 1"),
    "a missing sample": (lines(ROWS[:-1]), "row 5: id '3' has samples 0; each id needs 2"),
    "a foreign file": (lines([{"a": 1}]), "row 1: response: none of response, output, .*set --fields response=FIELD"),
    "a name that leaves the tree": (lines(ROWS), "'..' cannot be a name; set --model"),
    "cut off": (lines(ROWS[:2])[:-9], "line 2 of the log is not valid JSON"),
}


def test_what_is_ambiguous_or_broken_is_one_line_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "log.jsonl"
    for name, (content, message) in AMBIGUOUS.items():
        file.write_bytes(content)
        words = ["--model", ".."] if "leaves" in name else []
        with pytest.raises(BenchError, match=message) as caught:
            command(monkeypatch, "--from", "jsonl", file, *words, "--out", tmp_path / "tree")
        assert "\n" not in str(caught.value), name
        assert not [path for path in tmp_path.iterdir() if "tree" in path.name], name


def test_a_tree_is_not_mixed_with_other_responses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor with those of another log of the same name that it has for another benchmark."""
    tree = tmp_path / "tree"

    def add(name: str, rows: Sequence[Mapping[str, Any]], key: str = "sums") -> None:
        file = written(tmp_path / key / f"{name}.jsonl", rows)
        command(monkeypatch, "--from", "jsonl", file, "--benchmark", key, "--out", tree)

    add("a", ROWS)
    add("a", ROWS[:4], "more")
    add("a", ROWS)
    assert (scores(tree)["a", "sums"], scores(tree)["a", "more"]) == (pytest.approx(2 / 3), 0.5)
    state = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    for name, rows, said in (
        ("a", ROWS[:4], "has other responses on sums; set --model, --benchmark or --out"),
        ("b", ROWS[:4], "4 responses on 2 problems of sums, .* has 6 on 3"),
        ("b", [row | {"gold": "7"} for row in ROWS], r"sums: 'What is 1 \+ 1.*gold '7', '2' in .*; set --benchmark"),
    ):
        with pytest.raises(ConfigError, match=said):
            add(name, rows)
        assert {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()} == state


def test_a_verdict_may_be_text_or_one_for_each_response(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["true", "false", "1", "0", "-1", None]
    rows = [row | {"correct": text} for row, text in zip(ROWS, texts, strict=True)]
    row = {"problem": "1 + 1?", "gold": "2", "response": ["\\boxed{2}", "\\boxed{3}"], "correct": [True, False]}
    for name, given, wanted in (
        ("text", rows, [True, False, True, False, False, None]),
        ("list", [row], [True, False]),
    ):
        command(monkeypatch, "--from", "jsonl", written(tmp_path / f"{name}.jsonl", given), "--out", tmp_path / "tree")
        assert [row["tool_correct"] for row in cells(tmp_path / "tree", name, name)] == wanted
    short = written(tmp_path / "short.jsonl", [row | {"correct": [True]}])
    with pytest.raises(BenchError, match="row 1: correct: correct has 1 verdicts on 2 responses; set --fields corr"):
        command(monkeypatch, "--from", "jsonl", short, "--out", tmp_path / "tree")


@pytest.mark.slow
def test_lm_evals_own_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two repeats and two filters, by `--log_samples`; the verdict counts where a filter sees one response."""
    docs = [{"problem": f"What is {n} + {n}, é?", "answer": str(2 * n)} for n in range(3)]
    for key, repeats in (("one", 1), ("two", 2)):
        task = {
            "task": f"sums_{key}", "dataset_path": "json", "test_split": "test", "output_type": "generate_until",
            "dataset_kwargs": {"data_files": {"test": str(written(tmp_path / "docs.jsonl", docs))}},
            "doc_to_text": "Q: {{problem}}", "doc_to_target": "{{answer}}", "repeats": repeats,
            "generation_kwargs": {"until": ["\n"], "do_sample": repeats > 1},
            "filter_list": [
                {"name": name, "filter": [{"function": "regex", "regex_pattern": text}, {"function": "take_first"}]}
                for name, text in (("strict", "(x)"), ("loose", "(\\w+)"))
            ],
            "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        }  # fmt: skip
        (tmp_path / "tasks").mkdir(exist_ok=True)
        (tmp_path / f"tasks/{key}.yaml").write_text(json.dumps(task))
    done = subprocess.run(
        [sys.executable, "-c", LM_EVAL, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    logs = sorted((tmp_path / "out").rglob("samples_*.jsonl"))
    with pytest.raises(ConfigError, match=r"filter 'loose', before 'strict'; set --filter"):
        command(monkeypatch, "--from", "lm-eval", *logs, "--out", tmp_path / "tree")
    words = "--filter", "strict", "--model", "dummy", "--out", tmp_path / "tree"
    command(monkeypatch, "--from", "lm-eval", *logs, *words)
    one, two = (cells(tmp_path / "tree", "dummy", f"sums_{key}") for key in ("one", "two"))
    assert [row["tool_correct"] for row in one] == [False] * 3
    assert [row["tool_correct"] for row in two] == [None] * 6
    assert [row["sample"] for row in two] == [0, 1] * 3
    assert {row["response"] for row in two} == {"lol"}
    assert [row["prompt"] for row in one] == [f"Q: {doc['problem']}" for doc in docs]
    items = [json.loads(line) for line in (tmp_path / "tree/data/sums_one.jsonl").read_text().splitlines()]
    assert [(item["problem"], item["answer"]) for item in items] == [(doc["problem"], doc["answer"]) for doc in docs]


LM_EVAL = """
import os, sys
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_DATASETS_CACHE": sys.argv[1] + "/cache"}
from lm_eval.__main__ import cli_evaluate
sys.argv = ["lm_eval", "--model", "dummy", "--tasks", "sums_one,sums_two", "--include_path", sys.argv[1] + "/tasks",
            "--log_samples", "--output_path", sys.argv[1] + "/out"]
cli_evaluate()
"""


def test_what_a_field_may_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """NaN where it is not read; and the hint of an error is one that works."""
    row = {"problem": "1 + 1?", "gold": "2", "loss": math.nan, "text": 'NaN \\" Infinity', "out": -math.inf}
    talk = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "\\boxed{2}"}]
    for name, fields, options, message in (
        ("read", {"response": "NaN"}, "", ""),
        ("verdict", {"response": "1", "correct": math.nan}, "", 'row 1: correct: .*"not a number": "NaN"'),
        ("gold", {"response": "1", "gold": math.inf}, "", 'row 1: gold: .*"Infinity"'),
        (
            "null",
            {"response": None},
            "",
            "row 1: response: response must be text, got null; set --fields response=FIELD",
        ),
        ("messages", {"output": talk}, "", r"set --fields response=output\.1\.content$"),
        ("hint", {"output": talk}, "--fields response=output.1.content", ""),
    ):
        file = written(tmp_path / f"{name}.jsonl", [row | fields])
        words = "--from", "jsonl", file, "--out", tmp_path / "tree", *options.split()
        if message:
            with pytest.raises(BenchError, match=message):
                command(monkeypatch, *words)
        else:
            command(monkeypatch, *words)
            assert [row["response"] for row in cells(tmp_path / "tree", name, name)] == [
                fields.get("response", "\\boxed{2}")
            ]
    (tmp_path / "log.jsonl.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(BenchError, match=r"is compressed; type: gunzip --keep .*log\.jsonl\.gz, and"):
        command(monkeypatch, "--from", "jsonl", tmp_path / "log.jsonl.gz", "--out", tmp_path / "tree")

    # what the tool left out
    log = written(tmp_path / "m/samples_sums_2025-01-01T00-00-00.0.jsonl", [
        {"doc_id": 0, "doc": {"problem": "1 + 1?"}, "target": "2", "resps": [["2"]], "arguments": {}},
    ])  # fmt: skip
    counts = {"n-samples": {"sums": {"original": 9, "effective": 1}}, "results": {"stderr": math.nan}}
    written(log.with_name("results_2025-01-01T00-00-00.0.json"), [counts])
    document = json.loads((LOGS / "pair.json").read_text())
    cut = written(tmp_path / "cut.json", [document | {"samples": document["samples"][:1]}])
    for tool, file, said in (("lm-eval", log, "1 of 9 problems"), ("inspect", cut, "1 of 2 samples")):
        command(monkeypatch, "--from", tool, file, "--out", tmp_path / tool)
        assert f"note: {file}: {said}, by its tool's own account" in capsys.readouterr().out


LOGS = Path(__file__).parent / "logs"


def test_inspects_own_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JSON document is read; cut, failed, of another kind or an archive, each is one line."""
    command(monkeypatch, "--from", "inspect", LOGS / "pair.json", "--out", tmp_path / "pair")
    pair = {row["prompt"]: row["tool_correct"] for row in cells(tmp_path / "pair", "model", "sums")}
    assert pair == {"What is 1 + 1?": True, "What is 2^10? é\U0001f600": False}

    document = json.loads((LOGS / "pair.json").read_text())
    # of a run that tolerates errors (fail_on_error): an empty response there is not an answer of the model
    failed = [document["samples"][0], document["samples"][1] | {"error": {"message": "out of memory"}}]
    for name, content, said in (
        ("archive.eval", b"PK", "inspect log convert --to json"),
        ("cut.json", (LOGS / "pair.json").read_bytes()[:9000], "is not valid JSON"),
        ("stopped.json", json.dumps(document | {"status": "cancelled"}).encode(), 'status: "cancelled"'),
        ("other.json", b'{"samples": []}', "not a finished log of inspect"),
        ("failed.json", json.dumps(document | {"samples": failed}).encode(), 'sample 2: error: "out of memory"'),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BenchError, match=said):
            command(monkeypatch, "--from", "inspect", tmp_path / name, "--out", tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_a_registered_benchmark_needs_its_golds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same problems and golds it has the registry's title; with another gold it is the log's own."""
    fetch(benchmark("syn_as3"), tmp_path / "data")
    items = data.load(benchmark("syn_as3"), tmp_path / "data")[:4]
    rows = [{"problem": item.problem, "gold": item.answer, "response": f"\\boxed{{{item.answer}}}"} for item in items]
    for name, changed, title in (
        ("same", rows, benchmark("syn_as3").title),
        ("other", [*rows[1:], rows[0] | {"gold": "x"}], "syn_as3"),
    ):
        file = written(tmp_path / f"{name}.jsonl", changed)
        words = "--benchmark", "syn_as3", "--data", tmp_path / "data", "--out", tmp_path / name
        command(monkeypatch, "--from", "jsonl", file, *words)
        (planned,) = json.loads((tmp_path / name / "matrix.json").read_text())["benchmarks"]
        assert planned == {"key": "syn_as3", "title": title}
        assert {row["item_id"] for row in cells(tmp_path / name, name, "syn_as3")} == {item.item_id for item in items}
