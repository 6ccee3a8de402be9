"""Where two graders disagree: the rows behind a difference between two scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from evals.grading.verdict import Grade, Verdict


@dataclass(frozen=True)
class Disagreement:
    """One response on which two graders differ in right or not right."""

    benchmark: str
    item_id: str
    sample: int
    gold: str
    extracted: str | None
    ours: str
    rule: str
    lineage: str


COLUMNS = tuple(field.name for field in fields(Disagreement))


def disagreements(
    benchmark: str,
    keys: Sequence[tuple[str, int]],
    golds: Sequence[str],
    ours: Sequence[Grade],
    lineage: Sequence[Verdict],
) -> list[Disagreement]:
    """Rows where exactly one of the two says `correct`. keys: (item_id, sample) per response; all in one order."""
    return [
        Disagreement(benchmark, item, sample, gold, mine.extracted, mine.verdict, mine.rule, theirs)
        for (item, sample), gold, mine, theirs in zip(keys, golds, ours, lineage, strict=True)
        if (mine.verdict is Verdict.CORRECT) != (theirs is Verdict.CORRECT)
    ]


def confusion(right: Iterable[tuple[bool, bool]]) -> tuple[int, int, int, int]:
    """Counts ++, -+, +-, -- of (reference says right, grader says right).

    >>> confusion([(True, True), (False, True), (False, False)])
    (1, 1, 0, 1)
    """
    count = Counter(right)
    return count[True, True], count[False, True], count[True, False], count[False, False]
