"""Two checkpoints or two printed scores: what is paired, bounds where nothing more is known, errors of one line."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from scipy import stats

from core.errors import BenchError
from core.layout import Checkpoint, Run
from core.provenance import ROOT
from core.results_tree import Tree
from core.scores import MACRO, POOLED
from evals import adopt, score
from evals.stats.estimate import read_graded
from report import difference, noise
from tests.report.conftest import Command

A, B = (Checkpoint(Run("tiny_qwen2", method, 1), 12) for method in ("gspo", "grpo"))


def side(tree: Tree, checkpoint: Checkpoint) -> str:
    return f"{tree.root}:{checkpoint.path.as_posix()}"


def test_two_checkpoints_are_compared_as_everywhere_else(scored: Tree) -> None:
    keys = [str(entry["key"]) for entry in scored.benchmarks]
    expected = score.paired(scored.layout, A, B, keys)
    found = {line.benchmark: line for line in noise.lines(*(noise.read(side(scored, at)) for at in (A, B)))}
    assert found.keys() - {noise.ALL} == expected.keys() - {POOLED, MACRO}
    for key, line in found.items():
        c, e = line.main.comparison, expected[POOLED if key == noise.ALL else key]
        for name in ("difference", "se", "low", "high", "p", "detectable", "n"):
            assert getattr(c, name) == pytest.approx(getattr(e, name), rel=1e-9, abs=1e-12)
        assert len(line.cases) == 1


def test_a_csv_of_its_problems_is_the_tree_and_sampling_leaves_what_problems_differ_by(
    scored: Tree, tmp_path: Path
) -> None:
    key, lines = "syn_mix3", {}
    for name, at in (("a", A), ("b", B)):
        samples = read_graded(scored.layout, at, [key])[key].samples
        rows = [f"{item},{row.sum()},{len(row)}" for item, row in zip(samples.items, samples.right, strict=True)]
        # As a spreadsheet writes it: a mark of the encoding, carriage returns, no end of the last line; other order.
        text = "\ufeff" + "\r\n".join(["problem,correct,samples", *(rows if name == "a" else rows[::-1])])
        (tmp_path / f"{name}.csv").write_bytes(text.encode())
        lines[name] = str(tmp_path / f"{name}.csv")
    (of_csv,) = noise.lines(noise.read(lines["a"]), noise.read(lines["b"]))
    of_tree = noise.lines(*(noise.read(side(scored, at)) for at in (A, B)))
    assert of_csv.main == next(line for line in of_tree if line.benchmark == key).main
    (mixed,) = noise.lines(noise.read(lines["a"]), {key: noise.read(side(scored, B))[key]})
    assert (mixed.benchmark, mixed.main) == (key, of_csv.main)

    error, n = of_csv.main.error, of_csv.main.comparison.n
    sides = [noise.read(lines[name])[""] for name in "ab"]
    sampled = [y * (1 - y) / (k - 1) for one in sides for y, k, _ in one.by_problem.values()]
    assert error.floor == pytest.approx(max(0.0, error.total - math.fsum(sampled) / n**2))
    fewer = dict(list(sides[1].by_problem.items())[1:])
    (half,) = noise.lines({"": sides[0]}, {"": sides[1]._replace(by_problem=fewer)})
    assert half.problems == f"{n - 1} of {n}, {n}"
    lone = {"": sides[0]._replace(by_problem=dict(list(sides[0].by_problem.items())[:1]))}
    assert noise.lines({"x": sides[0], "y": lone[""]}, {"x": sides[1], "y": lone[""]})[-1].main.comparison.low is None


def test_adopted_logs_are_paired_across_trees(tmp_path: Path, command: Command) -> None:
    for name, wrong in (("alpha", 2), ("beta", 3)):
        answers = {n: 2 * n if n % wrong else -1 for n in range(1, 13)}
        rows = [
            {"id": n, "problem": f"{n} + {n}?", "gold": str(2 * n), "response": rf"\boxed{{{answer}}}"}
            for n, answer in answers.items()
        ]
        log = tmp_path / f"{name}.jsonl"
        log.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        assert command(adopt.main, "--from", "jsonl", log, "--benchmark", "sums", "--out", tmp_path / name)[0] == 0
    (line,) = noise.lines(noise.read(str(tmp_path / "alpha")), noise.read(f"{tmp_path / 'beta'}:beta"))
    assert (line.benchmark, line.problems, len(line.cases)) == ("sums", "12", 1)
    test = stats.ttest_rel(*([float(bool(n % wrong)) for n in range(1, 13)] for wrong in (2, 3)))
    assert line.main.comparison.difference == pytest.approx(-1 / 6)
    assert line.main.comparison.se == pytest.approx(-1 / 6 / test.statistic)
    assert line.main.samples is None, "one sample a problem"


def test_table_1_of_the_paper(command: Command) -> None:
    found = noise.lines(noise.read("paper:tepo"), noise.read("paper:T1.2"))
    aime = found[0]
    p, q, n, k = 0.1260, 0.1125, 30, 32
    between = [x * (1 - x) / 1.73 for x in (p, q)]
    floor = between[0] + between[1] - 2 * 0.9 * math.sqrt(math.prod(between))
    total = floor + sum(x * (1 - x) * 0.73 / 1.73 / k for x in (p, q))
    expected = [(p - q) * (1 - p + q) / k, total, p + q - (p - q) ** 2]
    assert [n * case.error.total for case in aime.cases] == pytest.approx(expected)
    assert n * (aime.main.error.floor or 0) == pytest.approx(floor)
    assert [line.benchmark for line in found][-1] == noise.ALL
    whole = found[-1].main.comparison
    assert (whole.n, round(100 * (whole.difference or 0), 2)) == (4401, 1.74), "the printed difference of Avg."
    _, out, _ = command(difference.main, "paper:tepo", "paper:grpo")
    assert "| aime24 | the same 30 | 32 | 12.6 | 11.2 | +1.3 [" in out
    assert "paper:tepo is 1.7 points above paper:grpo" in out
    assert noise.lines(noise.read("paper:q7/tepo"), noise.read("paper:grpo")) == found


def test_unequal_sets_are_not_paired_and_a_correlation_narrows(command: Command) -> None:
    (line,) = noise.lines(noise.read("0.4:30:32"), noise.read("0.3:60:1"))
    binomial = 0.4 * 0.6 / 30 / 32 + 0.3 * 0.7 / 60
    assert (line.problems, line.cases[0].error.total) == ("30 and 60", pytest.approx(binomial))
    assert line.cases[2].error.total == pytest.approx(0.4 * 0.6 / 30 + 0.3 * 0.7 / 60)
    wide, narrow = (
        noise.lines(noise.read("0.4:30:32"), noise.read("aime24=0.3:30:32"), correlation=value)[0].main.error.total
        for value in (0.0, 0.99)
    )
    assert narrow < wide / 5
    _, out, _ = command(difference.main, "0.367:30:32", "0.346:30:32", "--correlation", "0", "--spread", "2")
    assert "a + b = 2;" in out
    assert "correlate at 0." in out


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ("0.4:30:32", "0.4:30:32", "0.4:30:32 equals 0.4:30:32; with 30 problems only differences of"),
        ("1:1:1", "0:1:1", "is 100.0 points above 0:1:1; 1 problem decides nothing."),
        ("0.9:1000:32", "0.1:1000:32", "more than noise (p = "),
        ("0.4:2:4", "0.5:2:4", "is 10.0 points below 0.5:2:4; with 2 problems no difference would be found"),
        ("0.5:30:1", "0.45:30:1", "(no number of samples of each of these would do)"),
    ],
)
def test_the_sentence(a: str, b: str, words: str) -> None:
    assert words in noise.sentence(a, b, noise.lines(noise.read(a), noise.read(b))[-1])


HEAD = b"problem,correct,samples\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1: column wanted"),
        (HEAD, "line 1: no rows follow"),
        (b"problem,corect,samples\n1,1,2\n", "line 1: column wanted: unknown value 'correct'.*nearest: corect"),
        (b"problem,correct,samples,correct\n1,1,2,1\n", "line 1: columns, each once: .*'correct'"),
        (b"problem;correct;samples\n1;1;2\n", "line 1: column wanted"),
        (HEAD + b"1,1,2\n2,nan,2\n", "line 3: correct: must be a whole number from 0 to 2, got 'nan'"),
        (HEAD + b"1,3,2\n", "line 2: correct: must be a whole number from 0 to 2, got '3'"),
        (HEAD + b"1,0,0\n", "line 2: samples: must be a whole number from 1"),
        (HEAD + b"1,1,2\n1,1,2\n", "line 3: '1' is given twice"),
        (HEAD + b"1,1\n", "line 2: 2 fields"),
        (HEAD + b"\xe9,1,2\n", "not UTF-8"),
        (HEAD.decode().encode("utf-16"), "not UTF-8"),
        (b"score,problems,samples\ninf,30,32\n", "line 2: score .* got 'inf'"),
        (b"benchmark,score,problems,samples\nx,0.1,3,2\nx,0.2,3,2\n", "line 3: 'x' is given twice"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_line(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    with pytest.raises(BenchError, match=message) as error:
        noise.read(str(path))
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ("paper:tepoo", "paper:grpo", "the paper's tables: row: unknown value 'tepoo'.*nearest: tepo"),
        ("36.7:30:32", "0.3:30:32", "36.7:30:32: score .a fraction.: must be a number from 0 to 1"),
        ("nothing", "0.3:30:32", "nothing: no file or folder there; give a tree"),
        ("0.3:30:32", "paper:grpo", "0.3:30:32 and paper:grpo: no benchmark in common: one without a name and aime24"),
        ("results/reference/embedded:tiny_qwen2/tepo/seed1/step", "paper:grpo", "nearest: .*tepo/seed1/step7"),
        ("a.csv", "b.csv", "a.csv and b.csv: problems: no problem in common: the first are '1' and '2'"),
        ("0.3:30:32 --compared own", "0.3:30:32", "--compared is for comparisons with --results"),
        ("tepo --results results/reference/embedded --spread 1", "grpo", "--spread is for comparisons without"),
    ],
)
def test_sides_that_cannot_be_compared_are_one_line(
    a: str, b: str, message: str, monkeypatch: pytest.MonkeyPatch, command: Command, tmp_path: Path
) -> None:
    for name, row in (("a.csv", b"1,1,2\n"), ("b.csv", b"2,1,2\n")):
        (tmp_path / name).write_bytes(HEAD + row)
    (tmp_path / "results").symlink_to(ROOT / "results")
    monkeypatch.chdir(tmp_path)
    code, _, error = command(difference.main, *a.split(), b)
    assert (code, error.count("\n")) == (2, 1)
    assert re.search(message, error)
