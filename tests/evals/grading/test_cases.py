"""Answers beside golds: each is graded as it should be, or listed as a known error; order and company do not matter."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.files import read_jsonl
from core.provenance import ROOT
from evals.benchmark import PAPER
from evals.grading import Rule, Verdict
from evals.grading.decide import gold
from evals.grading.grader import Grader, Question, Task, cheap_grade

DOCS = ROOT / "docs" / "notebook" / "grading.md"


def test_rules_by_example(grader: Grader) -> None:
    """`rules.tsv`: what each rule accepts, and near misses; `text` is decided in the calling process."""
    pairs = rows(FOLDER / "rules.tsv", ("verdict", "stage", "gold", "answer", "note"))
    questions = [Question(gold(row["gold"]), f"so \\boxed{{{row['answer']}}}.") for row in pairs]
    stages = ["algebra" if isinstance(cheap_grade(question), Task) else "text" for question in questions]
    found = zip(pairs, grader.grade(questions), stages, strict=True)
    assert [(r, g.verdict, at) for r, g, at in found if (g.verdict, at) != (r["verdict"], r["stage"])] == []
    assert len(pairs) > 400


@pytest.mark.slow
def test_all_cases_in_two_orders(grader: Grader) -> None:
    """Exactly the known errors: a mended case leaves the list, and the figures in the documentation are today's."""
    found = cases()
    verdicts = dict(zip(found, grader.grade([question for _, question in found.values()]), strict=True))
    wrong = {key for key, (right, _) in found.items() if (verdicts[key].verdict is Verdict.CORRECT) != right}
    listed = rows(FOLDER / "known_errors.tsv", ("set", "gold", "answer", "reason"))
    assert wrong == {(row["set"], row["gold"], row["answer"]) for row in listed}
    # set -> equivalents accepted, equivalents, near misses rejected, near misses
    table = re.findall(r"^\| (\w+) \| (\d+)/(\d+) [^|]*\| (\d+)/(\d+) ", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    for name, *counts in table:
        inside = [key for key in found if name in (key[0], "all")]
        parts = [[key for key in inside if found[key][0] is right] for right in (True, False)]
        assert [*map(int, counts)] == [n for part in parts for n in (len({*part} - wrong), len(part))], name
    assert [name for name, *_ in table] == [*PAPER, "all"]
    order = random.Random(2).sample(list(found), len(found))
    with Grader(workers=1) as other:
        again = other.grade([found[key][1] for key in order])
    assert [grade.verdict for grade in again] == [verdicts[key].verdict for key in order]


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


FOLDER = Path(__file__).with_name("cases")


def cases() -> dict[tuple[str, str, str], tuple[bool, Question]]:
    """By set, gold and answer: whether it is right, as mathematics and the problem say, and the grader's question."""
    found = {}
    for name, right in (("equal.tsv", True), ("different.tsv", False)):
        for row in rows(FOLDER / name, ("set", "kind", "gold", "answer", "item", "note")):
            tolerance = row["item"].removeprefix("tolerance=") if "=" in row["item"] else None
            stored = gold(row["gold"], tolerance=tolerance, multiple=row["item"] == "multiple")
            response = row["answer"] if "\\boxed" in row["answer"] else f"\\boxed{{{row['answer']}}}"
            found[row["set"], row["gold"], row["answer"]] = right, Question(stored, response)
    return found


def rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """The lines of a file of cases. Not CSV: LaTeX is full of commas, quotes and backslashes, and stands here as is."""
    header, *lines = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    assert header == list(columns), path
    return [dict(zip(columns, line, strict=True)) for line in lines]


def test_real_outputs_agree_with_their_labels(shared: Path, grader: Grader) -> None:
    outputs = read_jsonl(shared / "outputs" / "qwen25math_math25x8.jsonl")
    grades = grader.grade([Question(gold(str(row["gold"])), str(row["output"])) for row in outputs])
    right = [grade.verdict is Verdict.CORRECT for grade in grades]
    count = Counter((bool(row["label"]), verdict) for row, verdict in zip(outputs, right, strict=True))
    # the one is a thousands separator that the label counts as wrong
    assert count == {(True, True): 176, (False, True): 1, (False, False): 23}
