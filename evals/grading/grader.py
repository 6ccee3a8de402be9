"""Grade responses: extract, normalise, decide cheaply; send the rest to the pool, each distinct pair once."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from core.code import Code
from core.provenance import version
from evals.grading import Grade, Rule, Verdict
from evals.grading.boxes import last_box
from evals.grading.decide import NUMERIC, Gold, angles, decide
from evals.grading.normalise import LONGEST_ANSWER, clean, normalise
from evals.grading.pool import Answer, Pool, Task
from evals.grading.readings import beside_number

# Packages that can change a verdict; those on percentages differ between versions of antlr4.
PACKAGES = ("math-verify", "latex2sympy2-extended", "sympy", "mpmath", "antlr4-python3-runtime")


@cache
def versions() -> dict[str, str | None]:
    return {package: version(package) for package in PACKAGES}


@cache
def grader_version() -> str:
    """Return `g-` and 12 digits over the code behind a verdict and `versions()`."""
    facts = json.dumps([Code("grade").hash, versions()], sort_keys=True)
    return "g-" + hashlib.sha256(facts.encode()).hexdigest()[:12]


class Question(NamedTuple):
    """One response to be graded."""

    gold: Gold
    response: str
    stop: str = "unknown"  # how generation ended: stop | length | unknown
    thoughts: tuple[str, ...] = ()  # marks before and after the model's thoughts, besides those of `boxes`


class Grader(Pool):
    """Grades responses; keep one for many calls to keep its workers warm. Close it, or use it as a context manager."""

    def grade(self, questions: Sequence[Question], *, report: Callable[[int], object] = lambda n: None) -> list[Grade]:
        """Return one grade per question, in order, independent of earlier calls and of the machine's load.

        `report(n)` is called whenever n questions have their grade. An unexpected exception is the verdict `error`: no
        response may end a training or evaluation.
        """
        grades: list[Grade | Task] = []
        for question in questions:
            try:
                grades.append(cheap_grade(question))
            except Exception as error:
                grades.append(Grade(Verdict.ERROR, None, None, type(error).__name__))
        # Equal comparisons run once: samples of one problem often give the same answer.
        waiting = Counter(grade for grade in grades if isinstance(grade, Task))
        tasks, done = list(waiting), len(questions) - waiting.total()

        def count(task: Task) -> None:
            nonlocal done
            done += waiting[task]
            report(done)

        report(done)
        answers = dict(zip(tasks, self.compare(tasks, batch=len(tasks), report=count), strict=True))
        return [_grade_of(grade, answers[grade]) if isinstance(grade, Task) else grade for grade in grades]


def cheap_grade(question: Question) -> Grade | Task:
    """Return the grade if extraction, text and numbers decide, else the comparison still to run."""
    several = question.gold.kind == "list" or question.gold.multiple
    box = last_box(question.response, several=several, thoughts=question.thoughts)
    if not box:  # None: no balanced box; empty: an empty box
        cut = box is None and question.stop == "length"
        return Grade(Verdict.TRUNCATED if cut else Verdict.NO_ANSWER, None, None, Rule.NONE)
    box = clean(box)
    if len(box) > LONGEST_ANSWER:
        return Grade(Verdict.WRONG, box[:LONGEST_ANSWER], None, Rule.LENGTH)
    gold, answer = angles(question.gold, box)
    equal, rule = decide(gold, answer)
    # an answer that is right unchanged stays right
    if gold.kind in NUMERIC and not equal and (other := beside_number(box)) is not None:
        answer = normalise(other)
        equal, rule = decide(gold, answer)
    if equal is None and gold.kind != "unparsed":
        return Task(gold, answer, box=box)
    known = {True: Verdict.CORRECT, False: Verdict.WRONG, None: Verdict.UNPARSED_GOLD}
    return Grade(known[equal], box, answer, rule)


def _grade_of(task: Task, answer: Answer) -> Grade:
    rule = answer.reason if answer.outcome == "error" and answer.reason else Rule.SYMBOLIC
    return Grade(Verdict(answer.outcome), task.box, task.answer, rule, round(answer.seconds, 4))
