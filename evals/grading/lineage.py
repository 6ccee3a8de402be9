r"""The grader behind the paper's numbers, rebuilt from its description, to show where it and ours disagree.

Last `\boxed{}`, else last `\fbox{}`, by brace matching; no box is wrong. Right when the texts are equal after the
rewriting that graders of the MATH data set share, or their members are equal one by one, or math-verify says so within
a second. No percent rule, no e-notation, no tolerance, a timeout is a silent wrong. A looping answer (over 128
characters, one piece again and again) is not compared further.

Differs from the original in one way by design: members are read by the LaTeX grammar, never by evaluating text.
Source of the facts: the validation loop of PRIME-RL/Entropy-Mechanism-of-RL at commit 88505792.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from evals.grading.decide import Gold
from evals.grading.extract import balanced
from evals.grading.grader import Question
from evals.grading.normalise import LONGEST_ANSWER, braced_fractions, clean
from evals.grading.pool import Pool, Task
from evals.grading.verdict import Verdict

SECONDS = 1.0
LONG, PIECE, REPEATS = 128, 16, 4

_DROPPED = ("\n", "\\!", "\\left", "\\right", "^{\\circ}", "^\\circ", "\\$", "$", "\\%", "%", "\\,", "\\ ")
_UNIT = re.compile(r"\\(?:text|mbox)\{ .*$")
_WRAPPED = re.compile(r"\\(?:text|mbox|textbf|mathrm)\{([^{}]*)\}")
_ROOT = re.compile(r"\\sqrt(\w)")
_SLASH = re.compile(r"(-?\d+)/(\d+)")
_COMMAS = re.compile(r"(?<=\d),(?:\\!)?(?=\d{3}(?!\d))")
_INTEGER = re.compile(r"[-+]?\d+(?:\.0*)?")
_FRACTION = re.compile(r"[-+]?(?:\\frac\{-?\d+\}\{-?\d+\}|\d+/\d+)")


def answer_of(response: str) -> str | None:
    r"""Content of the last `\boxed{...}`; of the last `\fbox{...}` only when there is no `\boxed` at all."""
    for command in ("\\boxed", "\\fbox"):
        start = response.rfind(command)
        if start >= 0:
            opening = response.find("{", start)
            inside = balanced(response, opening + 1) if opening >= 0 else None
            return None if inside is None else inside.strip()
    return None


def rewritten(text: str) -> str:
    r"""One spelling for what the MATH graders know: spacing, `\dfrac`, degree and percent signs, units, `x=`, `a/b`."""
    for piece in _DROPPED:
        text = text.replace(piece, "")
    text = text.replace("\\\\", "\\").replace("tfrac", "frac").replace("dfrac", "frac")
    text = _UNIT.sub("", text)
    text = _WRAPPED.sub(r"\1", text).strip().rstrip(".")
    sides = text.split("=")
    if len(sides) == 2 and len(sides[0].strip()) <= 2:
        text = sides[1]
    text = _ROOT.sub(r"\\sqrt{\1}", text.replace(" ", ""))
    text = braced_fractions(text)
    if text.startswith("."):
        text = "0" + text
    if text == "0.5":
        text = "\\frac{1}{2}"
    return _SLASH.sub(r"\\frac{\1}{\2}", text) if _SLASH.fullmatch(text) else text


def members(text: str) -> list[str]:
    """A tuple, interval or set as its brackets and members; thousands separators go first."""
    text = _COMMAS.sub("", rewritten(text).lower())
    if len(text) > 2 and text[0] in "([" and text[-1] in ")]" and not set(text[1:-1]) & set("()[]"):
        return [text[0], *text[1:-1].split(","), text[-1]]
    return [text]


def same_by_text(gold: str, answer: str) -> bool | None:
    """What texts decide; None when one member at least is left to algebra."""
    if rewritten(gold) == rewritten(answer):
        return True
    expected, found = members(gold), members(answer)
    return True if expected == found else None


def numeric_members_differ(gold: str, answer: str) -> bool:
    """Two plain fractions that are spelled differently, or an integer gold and no integer: not equal, by its rule."""
    if _FRACTION.fullmatch(gold) and _FRACTION.fullmatch(answer):
        return gold != answer
    return _INTEGER.fullmatch(gold) is not None and _INTEGER.fullmatch(answer) is None


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
