"""Where two graders disagree: the rows behind a difference between two scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from evals.grading.decide import Gold
from evals.grading.grader import Question
from evals.grading.normalise import LONGEST_ANSWER, balanced, clean
from evals.grading.pool import Pool, Task
from evals.grading.prime_rules import same_by_text
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


# The grader behind the paper's numbers, rebuilt from its description, to show where it and ours disagree.
#
# Last `\boxed{}`, else last `\fbox{}`, by brace matching; no box is wrong. Right when the texts are equal after the
# rewriting that graders of the MATH data set share, or their members are equal one by one, or math-verify says so
# within a second. No percent rule, no e-notation, no tolerance, a timeout is a silent wrong. A looping answer (over 128
# characters, one piece again and again) is not compared further.
#
# Differs from the original in one way by design: members are read by the LaTeX grammar, never by evaluating text.
# Source of the facts: the validation loop of PRIME-RL/Entropy-Mechanism-of-RL at commit 88505792.


SECONDS = 1.0
LONG, PIECE, REPEATS = 128, 16, 4


def answer_of(response: str) -> str | None:
    r"""Content of the last `\boxed{...}`; of the last `\fbox{...}` only when there is no `\boxed` at all."""
    for command in ("\\boxed", "\\fbox"):
        start = response.rfind(command)
        if start >= 0:
            opening = response.find("{", start)
            inside = balanced(response, opening + 1) if opening >= 0 else None
            return None if inside is None else inside.strip()
    return None


def loops(answer: str) -> bool:
    """Whether a long answer repeats one piece; it would keep the algebra busy for nothing."""
    pieces = [answer[at : at + PIECE] for at in range(0, len(answer) - PIECE, PIECE)]
    return len(answer) > LONG and any(pieces.count(piece) >= REPEATS for piece in set(pieces))


def grade(questions: Sequence[Question], golds: Sequence[str], pool: Pool) -> list[Verdict]:
    """Verdicts `correct`, `wrong` or `no_answer`, in order. golds: as stored, one per question.

    `pool` should have been made with `cpu_seconds=SECONDS`.
    """
    verdicts: list[Verdict | Task] = [
        _grade(question.response, gold) for question, gold in zip(questions, golds, strict=True)
    ]
    tasks = list(dict.fromkeys(entry for entry in verdicts if isinstance(entry, Task)))
    found = dict(zip(tasks, pool.compare(tasks), strict=True))
    return [
        entry if isinstance(entry, Verdict) else (Verdict.CORRECT if found[entry].outcome == "equal" else Verdict.WRONG)
        for entry in verdicts
    ]


def _grade(response: str, gold: str) -> Verdict | Task:
    answer = answer_of(clean(response))
    if answer is None:
        return Verdict.NO_ANSWER
    if same_by_text(gold, answer):
        return Verdict.CORRECT
    if len(answer) > LONGEST_ANSWER or loops(answer):
        return Verdict.WRONG
    return Task(Gold(gold, "symbolic"), answer, grader="lineage")
