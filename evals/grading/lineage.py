r"""The grader behind the paper's numbers, rebuilt from its description, to show where it and ours disagree.

Last `\boxed{}`, else last `\fbox{}`, by brace matching; no box is wrong. Right when the texts are equal after the
rewriting that graders of the MATH data set share, or their members are equal one by one, or math-verify says so within
a second. No percent rule, no e-notation, no tolerance, a timeout is a silent wrong. A looping answer (over 128
characters, one piece again and again) is not compared further.

Differs from the original in one way by design: members are read by the LaTeX grammar, never by evaluating text.
Source of the facts: the validation loop of PRIME-RL/Entropy-Mechanism-of-RL at commit 88505792.
"""

from __future__ import annotations

from collections.abc import Sequence

from evals.grading.decide import Gold
from evals.grading.extract import balanced
from evals.grading.grader import Question
from evals.grading.lineage_text import same_by_text
from evals.grading.normalise import LONGEST_ANSWER, clean
from evals.grading.pool import Pool, Task
from evals.grading.verdict import Verdict

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
