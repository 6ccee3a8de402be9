"""Answers beside golds: each is graded as it should be, or listed as a known error; order and company do not matter."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest

from core.provenance import ROOT
from evals import data
from evals.benchmark import PAPER, benchmark
from evals.grading import Rule, Verdict, expressions, symbolic
from evals.grading.decide import gold
from evals.grading.grader import Grader, Question, Task, cheap_grade
from evals.grading.pool import QUICK, Pool
from tests.evals.grading.cases import FOLDER, Case, Key, accuracy, cases, grade, known_errors, rows

DOCS = ROOT / "docs" / "notebook" / "grading.md"


def errors_of(found: list[Case], verdicts: list[bool]) -> set[Key]:
    return {case.key for case, verdict in zip(found, verdicts, strict=True) if verdict != case.right}


def test_the_cases_are_many_and_not_contradictory() -> None:
    found = cases()
    for right in (True, False):
        count = Counter(case.set for case in found if case.right == right)
        assert sum(count.values()) >= 300
        assert set(count) == set(PAPER)
        assert min(count.values()) >= 30
    assert len({case.key for case in found}) == len(found)  # an answer is not both right and wrong
    assert all(case.gold and case.answer and case.kind for case in found)
    known = known_errors()
    assert known.keys() <= {case.key for case in found}
    assert all(known.values())


def test_every_gold_is_one_of_its_set(shared: Path) -> None:
    stored = {
        (key, " ".join(item.answer.split()), item.multiple, item.tolerance)
        for key in PAPER
        for item in data.load(benchmark(key), shared / "benchmarks")
    }
    assert [case for case in cases() if (case.set, case.gold, case.multiple, case.tolerance) not in stored] == []


def test_rules_by_example(grader: Grader) -> None:
    """`rules.tsv`: what each rule accepts, and near misses; `text` is decided in the calling process."""
    pairs = rows(FOLDER / "rules.tsv", ("verdict", "stage", "gold", "answer", "note"))
    questions = [Question(gold(row["gold"]), f"so \\boxed{{{row['answer']}}}.") for row in pairs]
    wrong = []
    for row, question, found in zip(pairs, questions, grader.grade(questions), strict=True):
        stage = "algebra" if isinstance(cheap_grade(question), Task) else "text"
        if (found.verdict, stage) != (row["verdict"], row["stage"]):
            wrong.append(f"{row}: {found.verdict} by {stage}")
    assert wrong == []
    assert len(pairs) > 400


def test_cases_that_need_no_algebra() -> None:
    """The same as the slow test below for the cases that are decided in this process: about half of them."""
    graded = [(case, cheap_grade(case.question())) for case in cases()]
    decided = [(case, grade.verdict is Verdict.CORRECT) for case, grade in graded if not isinstance(grade, Task)]
    assert len(decided) > 500
    found = [case for case, _ in decided]
    known = known_errors().keys() & {case.key for case in found}
    assert errors_of(found, [right for _, right in decided]) == known


def test_a_sample_of_cases_in_two_orders(grader: Grader) -> None:
    sample = [case for case in cases() if isinstance(cheap_grade(case.question()), Task)][::16]
    verdicts = dict(zip(sample, grade(sample, grader), strict=True))
    random.Random(1).shuffle(sample)
    with Grader(pool=Pool(workers=1)) as other:  # one process that meets all of them
        assert [verdicts[case] for case in sample] == grade(sample, other)
    assert errors_of(list(verdicts), list(verdicts.values())) == known_errors().keys() & {case.key for case in verdicts}


@pytest.mark.slow
def test_all_cases_in_two_orders(grader: Grader) -> None:
    """Exactly the known errors: a mended case leaves the list, and the figures in the documentation are today's."""
    found = cases()
    verdicts = grade(found, grader)
    assert errors_of(found, verdicts) == known_errors().keys()
    table = re.findall(r"^\| (\w+) \| (\d+)/(\d+) [^|]*\| (\d+)/(\d+) ", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: tuple(map(int, counts)) for name, *counts in table} == accuracy(found, verdicts)
    order = random.Random(2).sample(range(len(found)), len(found))
    with Grader(pool=Pool(workers=1)) as other:
        assert [verdicts[index] for index in order] == grade([found[index] for index in order], other)


# (response, how generation ended) -> verdict, rule; the gold is 5.
ENDINGS = {
    ("It is 5.", "stop"): (Verdict.NO_ANSWER, Rule.NONE),
    ("It is 5 and", "length"): (Verdict.TRUNCATED, Rule.NONE),
    (r"It is \boxed{5", "length"): (Verdict.TRUNCATED, Rule.NONE),
    (r"It is \boxed{5", "stop"): (Verdict.NO_ANSWER, Rule.NONE),
    (r"\boxed{ }", "stop"): (Verdict.NO_ANSWER, Rule.NONE),
    (r"\boxed{5} and now", "length"): (Verdict.CORRECT, Rule.STRING),
    (r"\boxed{5.0}", "stop"): (Verdict.CORRECT, Rule.NUMBER),
    (r"\boxed{6}", "stop"): (Verdict.WRONG, Rule.NUMBER),
    (r"\boxed{\sqrt{25}}", "stop"): (Verdict.CORRECT, Rule.SYMBOLIC),
    (r"\boxed{" + "5" * 5000 + "}", "stop"): (Verdict.WRONG, Rule.LENGTH),
}


def test_every_way_to_end_has_its_verdict_and_rule(grader: Grader) -> None:
    grades = grader.grade([Question(gold("5"), *asked) for asked in ENDINGS])
    assert {asked: (g.verdict, g.rule) for asked, g in zip(ENDINGS, grades, strict=True)} == ENDINGS
    for found in grades:
        assert (found.extracted is None) == (found.verdict in (Verdict.NO_ANSWER, Verdict.TRUNCATED))


READ = (
    "3.5x-x^2", "-x^2", "1/2x", r"\frac{1}{2}x", r"2\frac{3}{4}", "n(n-1)", "xyz", "x^yz", "2^{n+1}", "n!", "(4!)^2",
    "a!b", r"\sqrt[3]{x}+\sqrt{2}", r"\binom{n}{2}", "|x-3|", r"\lfloor x\rfloor", r"\sin x/2", r"\sin^2 x\cos y",
    r"\sin^{-1}x", r"\sin a\cos b", r"\cos(2x)y", r"\ln x^2", r"\log_2 x", r"\log x", r"e^{-x}+\pi", "3i+2",
    "x_1+x_{2}", r"\alpha_1\beta", "[x+1]/2", "x(y+1)", r"\frac{\frac{a}{b}}{c}", r"a\cdot b\div c", r"\tan\frac{x}{2}",
)  # fmt: skip


@pytest.mark.slow  # the grammar takes its time
def test_expressions_are_read_as_the_grammar_reads_them() -> None:
    differing = []
    for text in READ:
        own, grammar = expressions.read(text), symbolic._by_grammar(text)
        point = symbolic._point(own, grammar, 1.37, 30)
        values = [symbolic._value(side.xreplace(point)) for side in (own, grammar)]
        if not abs(values[0] - values[1]) <= 1e-14 * abs(values[1]):
            differing.append((text, values))
    assert differing == []


def test_what_took_long_is_compared_again_with_the_next_batch() -> None:
    """What it gets of a batch's budget must not follow from an earlier batch."""
    with Grader() as grader:
        grades = grader.grade(
            [Question(gold("5"), rf"\boxed{{{text}}}") for text in (r"\sqrt{26}", r"\int_0^7 e^{x^x}dx")]
        )
        assert [grade.seconds <= QUICK for grade in grades] == [True, False]
        assert len(grader.known) == 1
