"""From responses to grades: extract, normalise, decide cheaply; the rest goes to the pool, each distinct pair once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from evals.grading.cache import Cache
from evals.grading.decide import Gold, decide
from evals.grading.normalise import LONGEST_ANSWER, clean, last_box, normalise
from evals.grading.pool import Answer, Pool, Task
from evals.grading.verdict import Grade, Rule, Verdict


@dataclass(frozen=True)
class Question:
    """What is to be graded. stop: `stop`, `length` or `unknown`, as generation ended."""

    gold: Gold
    response: str
    stop: str = "unknown"


class Grader:
    """Grades responses; keep one for many calls, its workers stay warm. A context manager.

    cache: folder of earlier comparisons, None for none on disk. pool: limits and workers, by default `Pool()`.
    """

    def __init__(self, *, cache: Path | str | None = None, pool: Pool | None = None):
        self.cache = Cache(cache)
        self.pool = pool or Pool()

    def __enter__(self) -> Grader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers and the cache's file."""
        self.pool.close()
        self.cache.close()

    def grade(self, questions: Sequence[Question], *, report: Callable[[int], None] | None = None) -> list[Grade]:
        """One grade per question, in order; the same whatever was graded before, and however busy the machine is.

        `report(n)` is called whenever n questions have their grade.
        """
        self.cache.trim()
        grades = [_cheap(question) for question in questions]
        waiting: dict[Task, list[int]] = {}
        for index, grade in enumerate(grades):
            if isinstance(grade, Task):
                waiting.setdefault(grade, []).append(index)
        new = [task for task in waiting if not self._known(task)]
        done = len(questions) - sum(len(waiting[task]) for task in new)

        def keep(number: int, answer: Answer) -> None:
            nonlocal done
            self.cache.put(new[number], answer)
            done += len(waiting[new[number]])
            if report:
                report(done)

        if report:
            report(done)
        if new:
            self.pool.compare(new, report=keep)
        finished: list[Grade] = []
        for question, grade in zip(questions, grades, strict=True):
            finished.append(_from_answer(question, grade, self.cache[grade]) if isinstance(grade, Task) else grade)
        return finished

    def _known(self, task: Task) -> bool:
        """Whether the comparison was made before; one that ran out of time counts only if it had as much as now."""
        answer = self.cache.get(task)
        if answer is None or answer.outcome == "error":
            return False
        return answer.outcome != "timeout" or answer.seconds >= self.pool.limits["cpu_seconds"]


def _cheap(question: Question) -> Grade | Task:
    """The grade if extraction, text and numbers give one, else the comparison that is left to make."""
    found = last_box(question.response)
    if not found:
        cut = found is None and question.stop == "length"
        return Grade(Verdict.TRUNCATED if cut else Verdict.NO_ANSWER, None, None, Rule.NONE)
    found = clean(found)
    if len(found) > LONGEST_ANSWER:
        return Grade(Verdict.WRONG, found[:LONGEST_ANSWER], None, Rule.LENGTH)
    answer = normalise(found)
    decision = decide(question.gold, answer)
    if decision is None:
        if question.gold.kind == "unparsed":
            return Grade(Verdict.UNPARSED_GOLD, found, answer, Rule.STRING)
        return Task(question.gold, answer)
    return Grade(Verdict.CORRECT if decision.equal else Verdict.WRONG, found, answer, decision.rule)


_VERDICTS = {
    "equal": Verdict.CORRECT,
    "different": Verdict.WRONG,
    "unparsed_gold": Verdict.UNPARSED_GOLD,
    "timeout": Verdict.TIMEOUT,
    "error": Verdict.ERROR,
}


def _from_answer(question: Question, task: Task, answer: Answer) -> Grade:
    found = last_box(question.response)
    rule = answer.reason or Rule.SYMBOLIC if answer.outcome == "error" else Rule.SYMBOLIC
    return Grade(_VERDICTS[answer.outcome], clean(found or ""), task.answer, rule, round(answer.seconds, 4))
