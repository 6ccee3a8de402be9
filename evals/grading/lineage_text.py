"""What the `lineage` grader decides by texts alone. Source of the facts: see `evals.grading.lineage`."""

from __future__ import annotations

import re

from evals.grading.normalise import braced_fractions

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
