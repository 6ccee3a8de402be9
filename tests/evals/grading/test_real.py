"""Real golds and real outputs (private copies): rates and agreement, each with a bound that has failed before."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from core.files import read_jsonl
from evals import data
from evals.benchmark import PAPER, benchmark
from evals.grade import disagreements, prime_verdicts
from evals.grading import Verdict
from evals.grading.decide import gold
from evals.grading.grader import Grader, Question
from tests.evals.grading.rewritten_golds import different, same


def test_a_sample_of_rewritten_golds(shared: Path, grader: Grader) -> None:
    """What is equal to the gold's own text is left out: it would prove nothing."""
    for key in PAPER:
        items = data.load(benchmark(key), shared / "benchmarks")[::40]
        golds = [gold(item.answer, tolerance=item.tolerance, multiple=item.multiple) for item in items]
        read = [one for one in golds if one.kind != "unparsed"]
        asked = [(one, text, True) for one in read for _, text in same(one) if text != one.text]
        asked += [(one, text, False) for one in read for _, text in different(one)]
        grades = grader.grade([Question(one, f"so \\boxed{{{text}}}.") for one, text, _ in asked])
        wrong = [
            (equal, one.kind, one.text, text)
            for (one, text, equal), grade in zip(asked, grades, strict=True)
            if (grade.verdict is Verdict.CORRECT) != equal
        ]
        for equal in (True, False):
            count = sum(case[-1] == equal for case in asked)
            assert sum(case[0] == equal for case in wrong) <= 0.005 * count > 0, (key, wrong)
        assert not [case for case in wrong if case[:2] == (False, "integer")], (key, wrong)
        assert len(golds) - len(read) <= 0.005 * len(golds) + 1


def test_every_real_gold_is_read(shared: Path) -> None:
    kinds = {
        key: [
            gold(item.answer, tolerance=item.tolerance, multiple=item.multiple).kind
            for item in data.load(benchmark(key), shared / "benchmarks")
        ]
        for key in PAPER
    }
    assert sum(map(len, kinds.values())) == 4411
    for key in ("aime24", "aime25", "amc"):
        assert set(kinds[key]) == {"integer"}
    assert kinds["minerva"].count("scientific") == 58
    assert sum(found.count("unparsed") for found in kinds.values()) <= 12


def test_all_scientific_golds_accept_their_latex_form(shared: Path, grader: Grader) -> None:
    items = data.load(benchmark("minerva"), shared / "benchmarks")
    golds = [item.answer for item in items if gold(item.answer).kind == "scientific"]
    parts = [stored.lower().split("e") for stored in golds]
    questions = [
        Question(gold(stored), f"\\boxed{{{mantissa} \\times 10^{{{int(exponent)}}}}}")
        for stored, (mantissa, exponent) in zip(golds, parts, strict=True)
    ]
    assert [grade.verdict for grade in grader.grade(questions)] == [Verdict.CORRECT] * 58


@pytest.fixture(scope="module")
def outputs(shared: Path) -> list[dict[str, object]]:
    return read_jsonl(shared / "outputs" / "qwen25math_math25x8.jsonl")


def confusion(rows: list[dict[str, object]], right: list[bool]) -> tuple[int, int, int, int]:
    """Counts ++, -+, +-, -- of (label says right, grader says right)."""
    count = Counter((bool(row["label"]), verdict) for row, verdict in zip(rows, right, strict=True))
    return count[True, True], count[False, True], count[True, False], count[False, False]


def test_real_outputs_agree_with_their_labels(outputs: list[dict[str, object]], grader: Grader) -> None:
    questions = [Question(gold(str(row["gold"])), str(row["output"])) for row in outputs]
    right = [grade.verdict is Verdict.CORRECT for grade in grader.grade(questions)]
    differing = [
        (row["id"], row["gold"], row["label"]) for row, r in zip(outputs, right, strict=True) if r != row["label"]
    ]
    print(differing)
    # the one is a thousands separator that the label counts as wrong
    assert confusion(outputs, right) == (176, 1, 0, 23)


def test_real_outputs_by_the_prime_grader(outputs: list[dict[str, object]]) -> None:
    verdicts = prime_verdicts([str(row["output"]) for row in outputs], [str(row["gold"]) for row in outputs])
    right = [verdict is Verdict.CORRECT for verdict in verdicts]
    assert confusion(outputs, right) == (176, 1, 0, 23)


# The PRIME grader's rules, for comparison.

PRIME = {
    "equal": ("5", r"\boxed{5}", Verdict.CORRECT),
    "dfrac": (r"\frac{3}{7}", r"\boxed{\dfrac37}", Verdict.CORRECT),
    "slash": (r"\frac{3}{7}", r"\boxed{3/7}", Verdict.CORRECT),
    "unit": ("12", r"\boxed{12\text{ cm}}", Verdict.CORRECT),
    "thousands": ("12000", r"\boxed{12,000}", Verdict.CORRECT),
    "short name": ("5", r"\boxed{x=5}", Verdict.CORRECT),
    "root": (r"\sqrt{8}", r"\boxed{2\sqrt{2}}", Verdict.CORRECT),
    "tuple": (r"(\sqrt{8},1)", r"\boxed{(2\sqrt{2},1)}", Verdict.CORRECT),
    "fbox": ("5", r"\fbox{5}", Verdict.CORRECT),
    "wrong": ("5", r"\boxed{6}", Verdict.WRONG),
    "no box": ("5", "It is 5.", Verdict.NO_ANSWER),
    "open box": ("5", r"\boxed{5", Verdict.NO_ANSWER),
    "fbox after an open box": ("5", r"\boxed{6 \fbox{5}", Verdict.NO_ANSWER),
    "no rewriting of e-notation": ("4.7e33", r"\boxed{4.7\times10^{33}}", Verdict.WRONG),
    "no tolerance": ("0.33", r"\boxed{0.333}", Verdict.WRONG),
    "looping answer": ("5", r"\boxed{" + "1+1+1+1+1+1+1+1+" * 20 + "}", Verdict.WRONG),
}


def test_the_prime_grader_and_where_it_disagrees(grader: Grader) -> None:
    pairs = [("5", r"\boxed{5}"), ("4.7e33", r"\boxed{4.7\times10^{33}}"), ("52_8", r"\boxed{52_9}")]
    asked = [*((stored, response) for stored, response, _ in PRIME.values()), *pairs]
    golds = [stored for stored, _ in asked]
    questions = [Question(gold(stored), response) for stored, response in asked]
    verdicts = prime_verdicts([response for _, response in asked], golds)
    assert dict(zip(PRIME, verdicts[: len(PRIME)], strict=True)) == {name: row[2] for name, row in PRIME.items()}
    last = slice(len(PRIME), None)
    keys = [(f"item{n}", 0) for n in range(3)]
    rows = disagreements("set", keys, golds[last], grader.grade(questions[last]), verdicts[last])
    assert [(row["item_id"], row["ours"], row["lineage"]) for row in rows] == [
        ("item1", "correct", "wrong"),
        ("item2", "wrong", "correct"),
    ]
