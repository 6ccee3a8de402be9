"""Answers beside golds: each is graded as it should be, or listed as a known error; order and company do not matter."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from core.files import read_jsonl
from core.provenance import ROOT
from evals import data
from evals.benchmark import PAPER, benchmark
from evals.grading import Rule, Verdict, expressions, symbolic
from evals.grading.decide import gold
from evals.grading.grader import Grader, Question, Task, cheap_grade
from evals.grading.pool import QUICK, Pool

DOCS = ROOT / "docs" / "notebook" / "grading.md"


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


@pytest.mark.slow
def test_all_cases_in_two_orders(grader: Grader) -> None:
    """Exactly the known errors: a mended case leaves the list, and the figures in the documentation are today's."""
    found = cases()
    verdicts = grade(found, grader)
    errors = {case.key for case, verdict in zip(found, verdicts, strict=True) if verdict != case.right}
    assert errors == known_errors().keys()
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
    "3.5x-x^2", "-x^2", "1/2x", r"2\frac{3}{4}", "x^yz", "2^{n+1}", "(4!)^2", r"\sqrt[3]{x}+\sqrt{2}", r"\binom{n}{2}",
    "|x-3|", r"\lfloor x\rfloor", r"\sin x/2", r"\sin^2 x\cos y", r"\sin^{-1}x", r"\cos(2x)y", r"\ln x^2", r"\log_2 x",
    r"e^{-x}+\pi", "3i+2", "x_1+x_{2}", r"\alpha_1\beta", "[x+1]/2", r"\frac{\frac{a}{b}}{c}", r"a\cdot b\div c",
)  # fmt: skip


@pytest.mark.slow  # the grammar takes its time
def test_expressions_are_read_as_the_grammar_reads_them() -> None:
    for text in READ:
        own, grammar = expressions.read(text), symbolic._by_grammar(text)
        point = symbolic._point(own, grammar, 1.37, 30)
        mine, theirs = (symbolic._value(side.xreplace(point)) for side in (own, grammar))
        assert abs(mine - theirs) <= 1e-14 * abs(theirs), text


def test_what_took_long_is_compared_again_with_the_next_batch() -> None:
    """What it gets of a batch's budget must not follow from an earlier batch."""
    with Grader() as grader:
        grades = grader.grade(
            [Question(gold("5"), rf"\boxed{{{text}}}") for text in (r"\sqrt{26}", r"\int_0^7 e^{x^x}dx")]
        )
        assert [grade.seconds <= QUICK for grade in grades] == [True, False]
        assert len(grader.known) == 1


FOLDER = Path(__file__).with_name("cases")


@dataclass(frozen=True)
class Case:
    """An answer to one gold, and whether it is right."""

    set: str  # key of the benchmark
    kind: str  # what the case is an example of
    gold: str  # as stored upstream, but with single blanks for line breaks
    answer: str  # what stands in the model's box; with a box in it, all of the response
    multiple: bool  # the item wants several values (`Item.multiple`)
    tolerance: str | None  # the item's own (`Item.tolerance`)
    right: bool  # as mathematics and the problem say, whatever the grader says

    @property
    def key(self) -> tuple[str, str, str]:
        """Set, gold and answer: no two cases have the same."""
        return self.set, self.gold, self.answer

    def question(self) -> Question:
        """What the grader is asked: the shortest response that gives this answer."""
        response = self.answer if "\\boxed" in self.answer else f"\\boxed{{{self.answer}}}"
        return Question(gold(self.gold, tolerance=self.tolerance, multiple=self.multiple), response)


def cases() -> list[Case]:
    """All cases, equivalents first, in the order of the files."""
    return [
        Case(
            **{name: row[name] for name in ("set", "kind", "gold", "answer")},
            multiple=row["item"] == "multiple",
            tolerance=row["item"].removeprefix("tolerance=") if "=" in row["item"] else None,
            right=right,
        )
        for name, right in (("equal.tsv", True), ("different.tsv", False))
        for row in rows(FOLDER / name, ("set", "kind", "gold", "answer", "item", "note"))
    ]


def known_errors() -> dict[tuple[str, str, str], str]:
    """The cases that the grader gets wrong, each with the reason."""
    found = rows(FOLDER / "known_errors.tsv", ("set", "gold", "answer", "reason"))
    return {(row["set"], row["gold"], row["answer"]): row["reason"] for row in found}


def rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """The lines of a file of cases. Not CSV: LaTeX is full of commas, quotes and backslashes, and stands here as is."""
    header, *lines = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    assert header == list(columns), path
    return [dict(zip(columns, line, strict=True)) for line in lines]


def grade(found: Sequence[Case], grader: Grader) -> list[bool]:
    """Whether the grader calls each answer correct, in order."""
    return [grade.verdict is Verdict.CORRECT for grade in grader.grade([case.question() for case in found])]


def accuracy(found: Sequence[Case], verdicts: Sequence[bool]) -> dict[str, tuple[int, int, int, int]]:
    """Set -> equivalents accepted, equivalents, near misses rejected, near misses; `all` for their sum."""
    counts: dict[str, Counter[tuple[bool, bool]]] = {name: Counter() for name in (*PAPER, "all")}
    for case, verdict in zip(found, verdicts, strict=True):
        for name in (case.set, "all"):
            counts[name][case.right, verdict] += 1
    return {
        name: (n[True, True], n[True, True] + n[True, False], n[False, False], n[False, True] + n[False, False])
        for name, n in counts.items()
    }


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


def test_real_outputs_agree_with_their_labels(shared: Path, grader: Grader) -> None:
    outputs = read_jsonl(shared / "outputs" / "qwen25math_math25x8.jsonl")
    grades = grader.grade([Question(gold(str(row["gold"])), str(row["output"])) for row in outputs])
    right = [grade.verdict is Verdict.CORRECT for grade in grades]
    count = Counter((bool(row["label"]), verdict) for row, verdict in zip(outputs, right, strict=True))
    # the one is a thousands separator that the label counts as wrong
    assert count == {(True, True): 176, (False, True): 1, (False, False): 23}
