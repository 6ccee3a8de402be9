"""What the `lineage` grader decides by texts alone. Source of the facts: see `evals.grading.compare`."""

from __future__ import annotations

import re
from typing import Any

import sympy
from latex2sympy2_extended import latex2sympy
from math_verify import LatexExtractionConfig, parse, verify

from evals.grading.decide import Gold
from evals.grading.normalise import braced_fractions
from evals.grading.verdict import Outcome

_DROPPED = ("\n", "\\!", "\\left", "\\right", "^{\\circ}", "^\\circ", "\\$", "$", "\\%", "%", "\\,", "\\ ")
_UNIT = re.compile(r"\\(?:text|mbox)\{ .*$")
_WRAPPED = re.compile(r"\\(?:text|mbox|textbf|mathrm)\{([^{}]*)\}")
_ROOT = re.compile(r"\\sqrt(\w)")
_SLASH = re.compile(r"(-?\d+)/(\d+)")
_COMMAS = re.compile(r"(?<=\d),(?:\\!)?(?=\d{3}(?!\d))")
_INTEGER = re.compile(r"[-+]?\d+(?:\.0*)?")
_FRACTION = re.compile(r"[-+]?(?:\\frac\{-?\d+\}\{-?\d+\}|\d+/\d+)")


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


# The part of the `lineage` grader that needs algebra. Imported only in a worker process.


def outcome(gold: Gold, answer: str) -> Outcome:
    """Equal when all members are, or when math-verify with its own defaults says so. gold.text: as stored."""
    expected, found = members(gold.text), members(answer)
    if len(expected) == len(found) and all(map(_same_member, expected, found)):
        return Outcome.EQUAL
    boxes = (
        parse(f"\\boxed{{{text}}}", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None)
        for text in (gold.text, answer)
    )
    return Outcome.EQUAL if verify(*boxes, timeout_seconds=None) else Outcome.DIFFERENT


def _same_member(gold: str, answer: str) -> bool:
    if gold == answer:
        return True
    if numeric_members_differ(gold, answer):
        return False
    expected, found = _read(gold), _read(answer)
    if expected is None or found is None:
        return False
    try:
        return bool(sympy.simplify(expected - found) == 0)
    except MemoryError:
        raise
    except Exception:  # no difference can be formed, or it cannot be simplified
        return False


def _read(text: str) -> Any:
    try:
        return latex2sympy(text, is_real=True)
    except MemoryError:
        raise
    except Exception:  # the grammar refuses it
        return None
