"""From responses to grades: extract, normalise, decide cheaply; the rest goes to the pool, each distinct pair once.

`Grader` is the project's own grader, whose grades are scored. `grade_by_prime_rules` is for comparison only.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TextIO

from evals.grading import prime
from evals.grading.decide import Gold, decide
from evals.grading.normalise import LONGEST_ANSWER, clean, last_box, normalise
from evals.grading.pool import Answer, Pool, Task
from evals.grading.verdict import Grade, Rule, Verdict
from records.code_hashes import closure, code_hash
from records.errors import CorruptInputError
from records.provenance import version

# The grader's identity: its own source, and the packages below it that can change a verdict.

PACKAGES = (
    "math-verify",
    "latex2sympy2-extended",
    "sympy",
    "mpmath",
    "antlr4-python3-runtime",  # verdicts on percentages differ between its versions
)


@cache
def versions() -> dict[str, str | None]:
    return {package: version(package) for package in PACKAGES}


@cache
def grader_version() -> str:
    """`g-` and 12 digits over the code behind a verdict and `versions()`."""
    facts = json.dumps([code_hash(closure("evals.grading.grader")), versions()], sort_keys=True)
    return "g-" + hashlib.sha256(facts.encode()).hexdigest()[:12]


# Earlier comparisons: `<folder>/<grader version>/<process>-<time>.jsonl`, one comparison per line.
#
# Each process writes a file of its own, so that any number of jobs share a folder without locks. Only what reached a
# worker is kept; the cheap stages are faster than a look-up. A line is appended as soon as it is known, so a killed job
# continues where it was.

MOST_IN_MEMORY = 100_000  # comparisons kept without a folder: a training asks for rewards for days


class Cache:
    """Known comparisons of this grader version; `folder` None keeps them in memory only."""

    def __init__(self, folder: Path | str | None):
        self.folder = None if folder is None else Path(folder) / grader_version()
        self.known: dict[str, Answer] = {}
        self.stream: TextIO | None = None
        for path in sorted(self.folder.glob("*.jsonl")) if self.folder is not None else ():
            self._load(path)

    def _load(self, path: Path) -> None:
        lines = path.read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines[:-1], 1):  # what follows the last newline was cut off by a kill
            try:
                entry = json.loads(line)
                self.known[entry["key"]] = Answer(entry["outcome"], entry["seconds"], entry["reason"])
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise CorruptInputError(f"{path}: line {number}: no comparison ({error}); delete the file") from error

    @staticmethod
    def key(task: Task) -> str:
        """Digest of everything that can change the answer: the gold, how it is read, the answer, the grader."""
        gold = task.gold
        tolerance = None if gold.tolerance is None else str(gold.tolerance)
        facts = [gold.text, gold.kind, tolerance, gold.multiple, task.answer, task.grader]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    def get(self, task: Task) -> Answer | None:
        return self.known.get(self.key(task))

    def trim(self) -> None:
        """Forget everything when there is no folder and a long training has filled the memory."""
        if self.folder is None and len(self.known) >= MOST_IN_MEMORY:
            self.known.clear()

    def put(self, task: Task, answer: Answer) -> None:
        """Remember a final answer. Errors are not written: their cause may be gone next time."""
        key = self.key(task)
        self.known[key] = answer
        if self.folder is None or answer.outcome == "error":
            return
        if self.stream is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            ignore = self.folder.parent / ".gitignore"  # a cache inside the repository must not make it dirty
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
            path = self.folder / f"{os.getpid()}-{time.time_ns()}.jsonl"
            self.stream = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open as long as the cache
        entry = {"key": key, "outcome": answer.outcome, "seconds": answer.seconds, "reason": answer.reason}
        self.stream.write(json.dumps(entry) + "\n")
        self.stream.flush()

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None


# The grader


@dataclass(frozen=True)
class Question:
    """One response to be graded."""

    gold: Gold
    response: str
    stop: str = "unknown"  # how generation ended: stop | length | unknown


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
        grades = [cheap_grade(question) for question in questions]
        # Equal comparisons are made once: samples of one problem often give the same answer.
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
            if isinstance(grade, Task):
                answer = self.cache.get(grade)
                assert answer is not None  # known before, or compared just now
                grade = _grade_of(question, grade, answer)
            finished.append(grade)
        return finished

    def _known(self, task: Task) -> bool:
        """Whether the comparison is in the cache; one that timed out counts only if its limit was at least today's."""
        answer = self.cache.get(task)
        if answer is None or answer.outcome == "error":
            return False
        return answer.outcome != "timeout" or answer.seconds >= self.pool.limits["cpu_seconds"]


def cheap_grade(question: Question) -> Grade | Task:
    """The grade if extraction, text and numbers give one, else the comparison that is left to make."""
    box = last_box(question.response)
    if not box:  # None: no balanced box; empty: nothing in it
        cut = box is None and question.stop == "length"
        return Grade(Verdict.TRUNCATED if cut else Verdict.NO_ANSWER, None, None, Rule.NONE)
    box = clean(box)
    if len(box) > LONGEST_ANSWER:
        return Grade(Verdict.WRONG, box[:LONGEST_ANSWER], None, Rule.LENGTH)
    answer = normalise(box)
    decision = decide(question.gold, answer)
    if decision is None:
        if question.gold.kind == "unparsed":
            return Grade(Verdict.UNPARSED_GOLD, box, answer, Rule.STRING)
        return Task(question.gold, answer)
    return Grade(Verdict.CORRECT if decision.equal else Verdict.WRONG, box, answer, decision.rule)


_VERDICTS = {
    "equal": Verdict.CORRECT,
    "different": Verdict.WRONG,
    "unparsed_gold": Verdict.UNPARSED_GOLD,
    "timeout": Verdict.TIMEOUT,
    "error": Verdict.ERROR,
}


def _grade_of(question: Question, task: Task, answer: Answer) -> Grade:
    box = clean(last_box(question.response) or "")
    rule = answer.reason if answer.outcome == "error" and answer.reason else Rule.SYMBOLIC
    return Grade(_VERDICTS[answer.outcome], box, task.answer, rule, round(answer.seconds, 4))


def grade_by_prime_rules(questions: Sequence[Question], golds: Sequence[str], pool: Pool) -> list[Verdict]:
    """The PRIME grader's verdicts `correct`, `wrong` or `no_answer`, in order. golds: as stored, one per question.

    `pool` should have the limit `cpu_seconds=prime.CPU_SECONDS`.
    """
    verdicts: list[Verdict | Task] = []
    for question, gold in zip(questions, golds, strict=True):
        answer = prime.answer_of(clean(question.response))
        if answer is None:
            verdicts.append(Verdict.NO_ANSWER)
        elif prime.same_by_text(gold, answer):
            verdicts.append(Verdict.CORRECT)
        elif len(answer) > LONGEST_ANSWER or prime.loops(answer):
            verdicts.append(Verdict.WRONG)
        else:
            verdicts.append(Task(Gold(gold, "symbolic"), answer, grader="lineage"))
    tasks = list(dict.fromkeys(verdict for verdict in verdicts if isinstance(verdict, Task)))
    answers = dict(zip(tasks, pool.compare(tasks), strict=True))
    return [
        verdict
        if isinstance(verdict, Verdict)
        else (Verdict.CORRECT if answers[verdict].outcome == "equal" else Verdict.WRONG)
        for verdict in verdicts
    ]
