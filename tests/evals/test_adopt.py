"""Logs of other tools, written by the tools themselves, become trees that grade, score, and page read."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from core.errors import BenchError, ConfigError
from core.files import write_text
from core.layout import Checkpoint
from evals import adopt
from evals import benchmark as data
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
    write_text(path, lines(rows))
    return path


class Adopt:
    """The command in a folder, and what its tree holds."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.tree, self.monkeypatch = folder / "tree", monkeypatch

    def __call__(self, *words: object) -> None:
        self.monkeypatch.setattr("sys.argv", ["adopt", *map(str, words), "--out", str(self.tree)])
        adopt.main()

    def cells(self, model: str, key: str, kind: str = "samples") -> list[dict[str, Any]]:
        path = self.tree / kind / Checkpoint.base(model).path / f"{key}.parquet"
        return list(pq.read_table(path).to_pylist())

    def scores(self) -> dict[tuple[str, str], float]:
        rows = read_scores(self.tree / "scores.csv").to_dict("records")
        return {(row["model"], row["benchmark"]): row["score"] for row in rows if row["how"] != "not run"}

    def state(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.tree.rglob("*") if path.is_file()}


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Adopt:
    return Adopt(tmp_path, monkeypatch)


def test_json_lines_become_a_tree_with_page_and_are_not_mixed_with_other_responses(
    tmp_path: Path, command: Adopt
) -> None:
    first, second = (written(tmp_path / f"{name}.jsonl", ROWS) for name in ("a", "b"))
    command("--from", "jsonl", first, second, "--benchmark", "sums")
    assert command.scores()["a", "sums"] == command.scores()["b", "sums"] == pytest.approx(2 / 3)
    for row, given in zip(command.cells("a", "sums"), ROWS, strict=True):
        theirs = given["problem"], given["sample"], given["correct"], given["response"]
        assert (row["prompt"], row["sample"], row["tool_correct"], row["response"]) == theirs

    # Another call adds, of a file of the same name too; the same one changes nothing.
    other = written(tmp_path / "more/a.jsonl", [row | {"problem": f"{row['problem']}!"} for row in ROWS[:4]])
    command("--from", "jsonl", other, "--benchmark", "more")
    assert command.scores()["a", "more"] == 0.5
    assert ("b", "more") not in command.scores()
    before = command.state()[command.tree / "scores.csv"]
    command("--from", "jsonl", other, "--benchmark", "more")
    assert command.state()[command.tree / "scores.csv"] == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")], "a temporary folder stayed"
    page = build(open_tree(command.tree))
    assert all(text in page for text in ("sums", "more", 'id="samples"'))
    assert 'href="#samples?left=' in page, "a number leads to its responses"

    state = command.state()
    for name, rows, said in (
        ("a", ROWS[:4], "has other responses on sums; set --model, --benchmark or --out"),
        ("c", ROWS[:4], "4 responses on 2 problems of sums, .* has 6 on 3"),
        ("c", [row | {"problem": f"{row['id']}!"} for row in ROWS], "has 6 on 3, not all of them the same"),
        ("c", [row | {"gold": "7"} for row in ROWS], r"sums: 'What is 1 \+ 1.*gold '7', '2' in .*; set --benchmark"),
    ):
        with pytest.raises(ConfigError, match=said):
            command("--from", "jsonl", written(tmp_path / f"{name}.jsonl", rows), "--benchmark", "sums")
        assert command.state() == state


def test_marks_of_thoughts_are_an_option_and_other_ones_grade_anew(
    tmp_path: Path, command: Adopt, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = r"(+ \boxed{3} +) \boxed{2}", r"(+ \boxed{2}"
    rows = [{"problem": f"{n}?", "gold": "2", "response": text} for n, text in enumerate(texts)]
    words = "--from", "jsonl", written(tmp_path / "a.jsonl", rows)
    for marks, verdicts in (
        ((), ["correct", "correct"]),
        (("--thoughts", "(+", "+)"), ["correct", "no_answer"]),
    ):
        for again in (False, True):
            command(*words, *marks)
            assert ("grades are there" in capsys.readouterr().out) is again
            assert [row["verdict"] for row in command.cells("a", "a", "grades")] == verdicts
    with pytest.raises(ConfigError, match="argument --thoughts: an empty mark"):
        command(*words, "--thoughts", "<plan>", "")


AMBIGUOUS: dict[str, tuple[bytes, str]] = {
    "two golds": (lines([row | {"answer": "1"} for row in ROWS]), "gold and answer are there; set --fields gold="),
    "no sample number": (
        lines([{k: v for k, v in row.items() if k != "sample"} for row in ROWS]),
        "row 1: id '1' has samples 0, 0; each id needs 2, .*; set --fields sample=FIELD, or sample=@order",
    ),
    "an id for each sample": (
        lines([row | {"id": n, "sample": 0} for n, row in enumerate(ROWS)]),
        "row 2: an earlier problem under another id; set --fields id=problem,sample=@order",
    ),
    "no gold": (lines([row | {"gold": None} for row in ROWS]), "row 1: gold: expected one text, got null; set"),
    "golds differ": (lines([ROWS[0], ROWS[1] | {"gold": "7"}]), "row 2: gold of id '1' is another than at .*row 1"),
    "a name that leaves the tree": (lines(ROWS), "'..' cannot be a name; set --model"),
    "fewer verdicts": (lines([ROWS[0] | {"response": ["1", "2"], "correct": [True]}]), "1 verdicts on 2 responses"),
    "no text": (lines([ROWS[0] | {"response": None}]), "response must be text, got null; set --fields response=FIELD"),
    "infinite": (lines([ROWS[0] | {"gold": math.inf}]), 'row 1: gold: .*"Infinity"'),
    "a verdict that is not a number": (lines([ROWS[0] | {"correct": math.nan}]), "row 1: correct: .*not a number"),
    "messages": (
        lines([ROWS[0] | {"response": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "2"}]}]),
        r"set --fields response=response\.1\.content$",
    ),
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_what_is_ambiguous_or_broken_is_one_line_and_nothing_is_written(
    tmp_path: Path, command: Adopt, case: str
) -> None:
    content, message = AMBIGUOUS[case]
    write_text(tmp_path / "log.jsonl", content)
    words = ["--model", ".."] if "leaves" in case else []
    with pytest.raises(BenchError, match=message) as caught:
        command("--from", "jsonl", tmp_path / "log.jsonl", *words)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


def test_what_a_field_may_hold(tmp_path: Path, command: Adopt) -> None:
    """A verdict as text, or one for each response; NaN where it is not read; a path as a field's name."""
    texts = ["true", "false", "1", "0", "-1", None]
    rows = [row | {"correct": text} for row, text in zip(ROWS, texts, strict=True)]
    command("--from", "jsonl", written(tmp_path / "a.jsonl", rows))
    assert [row["tool_correct"] for row in command.cells("a", "a")] == [True, False, True, False, False, None]
    row = {"problem": "1 + 1?", "gold": "2", "loss": math.nan, "text": 'NaN \\" Infinity'}
    row |= {"out": [{"content": "\\boxed{2}"}], "right": [True]}
    command("--from", "jsonl", written(tmp_path / "b.jsonl", [row]), "--fields", "response=out.0.content,correct=right")
    (found,) = command.cells("b", "b")
    assert (found["response"], found["tool_correct"]) == ("\\boxed{2}", True)


LOGS = Path(__file__).parent / "logs"


def test_lm_evals_own_log(command: Adopt) -> None:
    """Two repeats and two filters; the verdict counts where a filter sees one response."""
    logs = sorted(LOGS.glob("samples_*.jsonl"))
    with pytest.raises(ConfigError, match=r"filter 'loose', before 'strict'; set --filter"):
        command("--from", "lm-eval", *logs)
    command("--from", "lm-eval", *logs, "--filter", "strict", "--model", "dummy")
    one, two = (command.cells("dummy", f"sums_{key}") for key in ("one", "two"))
    problems = [f"What is {n} + {n}, é?" for n in range(3)]
    assert [(row["prompt"], row["tool_correct"]) for row in one] == [(f"Q: {text}", False) for text in problems]
    assert [(row["sample"], row["tool_correct"], row["response"]) for row in two] == [
        (0, None, "lol"),
        (1, None, "lol"),
    ] * 3
    items = [json.loads(line) for line in (command.tree / "data/sums_one.jsonl").read_text().splitlines()]
    assert [(item["problem"], item["answer"]) for item in items] == list(zip(problems, "024", strict=True))


def test_inspects_own_log_and_what_a_tool_left_out(
    tmp_path: Path, command: Adopt, capsys: pytest.CaptureFixture[str]
) -> None:
    """A JSON document is read; cut, failed, of another kind, an archive, each is one line; a partial one is noted."""
    document = json.loads((LOGS / "pair.json").read_text())
    # of a run that tolerates errors (fail_on_error): an empty response there is not an answer of the model
    failed = [document["samples"][0], document["samples"][1] | {"error": {"message": "out of memory"}}]
    for name, content, said in (
        ("archive.eval", b"PK\x03\xff", "archive.eval: only a .json log .* inspect log convert --to json"),
        ("log.json.gz", b"\x1f\x8b", r"is compressed; type: gunzip --keep .*log\.json\.gz, and"),
        ("cut.json", (LOGS / "pair.json").read_bytes()[:9000], "is not valid JSON"),
        ("stopped.json", lines([document | {"status": "cancelled"}]), 'status: "cancelled"'),
        ("other.json", b'{"samples": []}', "not a finished log of inspect"),
        ("failed.json", lines([document | {"samples": failed}]), 'sample 2: error: "out of memory"'),
    ):
        write_text(tmp_path / name, content)
        with pytest.raises(BenchError, match=said):
            command("--from", "inspect", tmp_path / name)
    assert not command.tree.exists()
    command("--from", "inspect", LOGS / "pair.json")
    pair = {row["prompt"]: (row["sample"], row["tool_correct"]) for row in command.cells("model", "sums")}
    assert pair == {"What is 1 + 1?": (0, True), "What is 2^10? é\U0001f600": (0, False)}

    log = written(tmp_path / "m/samples_sums_2025-01-01T00-00-00.0.jsonl", [
        {"doc_id": 0, "doc": {"problem": "1 + 1?"}, "target": "2", "resps": [["2"]], "arguments": {}},
    ])  # fmt: skip
    counts = {"n-samples": {"sums": {"original": 9, "effective": 1}}, "results": {"stderr": math.nan}}
    written(log.with_name("results_2025-01-01T00-00-00.0.json"), [counts])
    cut = written(tmp_path / "cut.json", [document | {"samples": document["samples"][:1]}])
    for tool, file, said in (("lm-eval", log, "1 of 9 problems"), ("inspect", cut, "1 of 2 samples")):
        command("--from", tool, file, "--benchmark", tool)
        assert f"note: {file}: {said}, by its tool's own account" in capsys.readouterr().out


def test_a_registered_benchmark_needs_its_golds(tmp_path: Path, command: Adopt) -> None:
    """With the same problems and golds it has the registry's title; with another gold it is the log's own."""
    fetch(benchmark("syn_as3"), tmp_path / "data")
    items = data.load(benchmark("syn_as3"), tmp_path / "data")[:4]
    rows = [{"problem": item.problem, "gold": item.answer, "response": f"\\boxed{{{item.answer}}}"} for item in items]
    for name, changed, title in (
        ("same", rows, benchmark("syn_as3").title),
        ("other", [*rows[1:], rows[0] | {"gold": "x"}], "syn_as3"),
    ):
        file, command.tree = written(tmp_path / f"{name}.jsonl", changed), tmp_path / name
        command("--from", "jsonl", file, "--benchmark", "syn_as3", "--data", tmp_path / "data")
        (planned,) = json.loads((command.tree / "matrix.json").read_text())["benchmarks"]
        assert planned == {"key": "syn_as3", "title": title}
        assert {row["item_id"] for row in command.cells(name, "syn_as3")} == {item.item_id for item in items}
