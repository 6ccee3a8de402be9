r"""The PRIME grader: the rules by which the code that the paper builds on judges answers.

That code is the PRIME team's (PRIME-RL/Entropy-Mechanism-of-RL, built on verl); the facts here are from its validation
loop at commit 88505792. The grader is rebuilt from its description, to show where it and the project's own grader
disagree (`python -m evals.graders`).

The answer is the last `\boxed{}`, else the last `\fbox{}`; no box is wrong. It is right when the texts are equal after
the rewriting that graders of the MATH data set share, or when their members are equal one by one, or when math-verify
says so within a second. There is no percent rule, no e-notation and no tolerance; a timeout is a silent wrong. An
answer that loops is not compared further.

It differs from the original in one way by design: members are read by the LaTeX grammar, never by evaluating text.
"""

import re
from typing import Any

from evals.grading.normalise import LONGEST_ANSWER, balanced, braced_fractions, clean

CPU_SECONDS = 1.0  # of one comparison
LONG, PIECE, REPEATS = 128, 16, 4  # an answer of more than LONG characters that has one PIECE this often loops

# An escaped sign comes before the bare one, which would leave the backslash behind.
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


def loops(answer: str) -> bool:
    """Whether a long answer repeats one piece; comparing it would take the algebra's whole time for nothing."""
    pieces = [answer[at : at + PIECE] for at in range(0, len(answer) - PIECE, PIECE)]
    return len(answer) > LONG and any(pieces.count(piece) >= REPEATS for piece in set(pieces))


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
    if text == "0.5":  # as the graders of MATH do; no other decimal becomes a fraction
        text = "\\frac{1}{2}"
    return _SLASH.sub(r"\\frac{\1}{\2}", text) if _SLASH.fullmatch(text) else text


def members(text: str) -> list[str]:
    """A tuple, interval or set as its brackets and members; thousands separators are removed first."""
    text = _COMMAS.sub("", rewritten(text).lower())
    if len(text) > 2 and text[0] in "([" and text[-1] in ")]" and not set(text[1:-1]) & set("()[]"):
        return [text[0], *text[1:-1].split(","), text[-1]]
    return [text]


def judge(gold: str, response: str) -> tuple[bool, str | None]:
    """Whether a response is right, and its answer. gold: as stored. Imports the algebra: called in a worker process."""
    from math_verify import LatexExtractionConfig, parse, verify

    answer = answer_of(clean(response))
    if answer is None:
        return False, None
    expected, own = members(gold), members(answer)
    if rewritten(gold) == rewritten(answer) or expected == own:
        return True, answer
    if len(answer) > LONGEST_ANSWER or loops(answer):
        return False, answer
    if len(expected) == len(own) and all(map(_same_member, expected, own)):
        return True, answer
    boxes = (
        parse(f"\\boxed{{{text}}}", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None)
        for text in (gold, answer)
    )
    return bool(verify(*boxes, timeout_seconds=None)), answer


def _same_member(gold: str, answer: str) -> bool:
    import sympy

    if gold == answer:
        return True
    # Two plain fractions that are spelled differently, or an integer gold and no integer: not equal, by its rules.
    if _FRACTION.fullmatch(gold) and _FRACTION.fullmatch(answer):
        return False
    if _INTEGER.fullmatch(gold) and not _INTEGER.fullmatch(answer):
        return False
    expected, value = _read(gold), _read(answer)
    if expected is None or value is None:
        return False
    try:
        return bool(sympy.simplify(expected - value) == 0)
    except MemoryError:
        raise
    except Exception:  # no difference can be formed, or it cannot be simplified
        return False


def _read(text: str) -> Any:
    from latex2sympy2_extended import latex2sympy

    try:
        return latex2sympy(text, is_real=True)
    except MemoryError:
        raise
    except Exception:  # the grammar refuses it
        return None
