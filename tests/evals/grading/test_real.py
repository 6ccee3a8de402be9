"""Real golds and real outputs (private copies): rates and agreement, each with a bound that has failed before."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from evals import data
from evals.benchmark import PAPER, benchmark
from evals.grading import prime
from evals.grading.decide import gold
from evals.grading.grader import Grader, Question, grade_by_prime_rules
from evals.grading.pool import Pool
from evals.grading.verdict import Verdict
from tests.evals.grading.conftest import rows
from tests.evals.grading.rewritten_golds import Rates, check


def _rates(key: str, shared: Path, grader: Grader, every: int) -> Rates:
    items = data.load(benchmark(key), shared / "benchmarks")
    found = check(items[::every], grader, label=key)
    print(key, found.golds, found.accept, found.reject, found.reject_integers, found.failures[:20])
    return found


def _bounds(found: Rates) -> None:
    assert found.accept[0] >= 0.995 * found.accept[1] > 0
    assert found.reject[0] >= 0.995 * found.reject[1]
    assert found.reject_integers[0] == found.reject_integers[1]
    assert len(found.unparsed) <= 0.005 * found.golds + 1


@pytest.mark.parametrize("key", PAPER)
def test_a_sample_of_rewritten_golds(key: str, shared: Path, grader: Grader) -> None:
    _bounds(_rates(key, shared, grader, every=40))


@pytest.mark.slow
@pytest.mark.parametrize("key", PAPER)
def test_all_rewritten_golds(key: str, shared: Path, grader: Grader) -> None:
    _bounds(_rates(key, shared, grader, every=1))


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
    return rows(shared / "outputs" / "qwen25math_math25x8.jsonl")


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
    questions = [Question(gold(str(row["gold"])), str(row["output"])) for row in outputs]
    with Pool(cpu_seconds=prime.CPU_SECONDS) as pool:
        verdicts = grade_by_prime_rules(questions, [str(row["gold"]) for row in outputs], pool)
    right = [verdict is Verdict.CORRECT for verdict in verdicts]
    assert confusion(outputs, right) == (176, 1, 0, 23)
