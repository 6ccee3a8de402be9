"""Hand-written answers to golds of the seven benchmarks, and how often a grader decides on them as it should.

The cases stand in `cases/`. `equal.tsv` has answers that mean what the gold means, `different.tsv` near misses.
`known_errors.tsv` lists the cases that the grader gets wrong, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evals.benchmark import PAPER
from evals.grading import Verdict
from evals.grading.decide import gold
from evals.grading.grader import Grader, Question

FOLDER = Path(__file__).with_name("cases")

Key = tuple[str, str, str]
"""What names a case: set, gold, answer."""


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
    def key(self) -> Key:
        """Set, gold and answer: no two cases have the same."""
        return self.set, self.gold, self.answer

    @property
    def response(self) -> str:
        """The shortest response that gives this answer."""
        return self.answer if "\\boxed" in self.answer else f"\\boxed{{{self.answer}}}"

    def question(self) -> Question:
        """What the grader is asked."""
        return Question(gold(self.gold, tolerance=self.tolerance, multiple=self.multiple), self.response)


def cases(folder: Path = FOLDER) -> list[Case]:
    """All cases, equivalents first, in the order of the files."""
    found = []
    for name, right in (("equal.tsv", True), ("different.tsv", False)):
        for row in rows(folder / name, ("set", "kind", "gold", "answer", "item", "note")):
            found.append(
                Case(
                    set=row["set"],
                    kind=row["kind"],
                    gold=row["gold"],
                    answer=row["answer"],
                    multiple=row["item"] == "multiple",
                    tolerance=row["item"].removeprefix("tolerance=") if "=" in row["item"] else None,
                    right=right,
                )
            )
    return found


def known_errors(folder: Path = FOLDER) -> dict[Key, str]:
    """The cases that the grader gets wrong, each with the reason."""
    found = rows(folder / "known_errors.tsv", ("set", "gold", "answer", "reason"))
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
    counts: dict[str, Counter[tuple[bool, bool]]] = {}
    for case, verdict in zip(found, verdicts, strict=True):
        for name in (case.set, "all"):
            counts.setdefault(name, Counter())[case.right, verdict] += 1
    order = [key for key in (*PAPER, "all") if key in counts]
    return {
        name: (
            counts[name][True, True],
            counts[name][True, True] + counts[name][True, False],
            counts[name][False, False],
            counts[name][False, True] + counts[name][False, False],
        )
        for name in order
    }


def percent(part: int, whole: int) -> str:
    """`97/99 98.0%`."""
    return f"{part}/{whole} {100 * part / whole:.1f}%"
