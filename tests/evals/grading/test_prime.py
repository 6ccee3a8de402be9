"""The PRIME grader: what it is known to accept and to miss, and the table of disagreements."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evals.grade import disagreements
from evals.grading import prime
from evals.grading.decide import gold
from evals.grading.grader import Grader, Question, grade_by_prime_rules
from evals.grading.pool import Pool
from evals.grading.verdict import Verdict

CASES = {
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


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(cpu_seconds=prime.CPU_SECONDS) as made:
        yield made


@pytest.fixture(scope="module")
def verdicts(pool: Pool) -> dict[str, Verdict]:
    questions = [Question(gold(stored), response) for stored, response, _ in CASES.values()]
    return dict(
        zip(CASES, grade_by_prime_rules(questions, [stored for stored, *_ in CASES.values()], pool), strict=True)
    )


@pytest.mark.parametrize("case", CASES)
def test_known_verdicts(case: str, verdicts: dict[str, Verdict]) -> None:
    assert verdicts[case] == CASES[case][2]


def test_disagreements_list_both_directions(pool: Pool, grader: Grader) -> None:
    pairs = [("5", r"\boxed{5}"), ("4.7e33", r"\boxed{4.7\times10^{33}}"), ("52_8", r"\boxed{52_9}")]
    golds = [stored for stored, _ in pairs]
    questions = [Question(gold(stored), response) for stored, response in pairs]
    keys = [(f"item{n}", 0) for n in range(3)]
    rows = disagreements("set", keys, golds, grader.grade(questions), grade_by_prime_rules(questions, golds, pool))
    assert [(row.item_id, row.ours, row.lineage) for row in rows] == [
        ("item1", "correct", "wrong"),
        ("item2", "wrong", "correct"),
    ]
