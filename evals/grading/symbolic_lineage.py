"""The part of the `lineage` grader that needs algebra. Imported only in a worker process."""

from __future__ import annotations

from typing import Any

import sympy
from latex2sympy2_extended import latex2sympy
from math_verify import LatexExtractionConfig, parse, verify

from evals.grading.decide import Gold
from evals.grading.lineage_text import members, numeric_members_differ
from evals.grading.verdict import Outcome


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
