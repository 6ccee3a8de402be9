r"""Values to a few digits of closed expressions with roots and pi: they show that two differ, not that they are equal.

Most wrong answers to a gold such as `\frac{\sqrt{3}}{2}` are far from it; seeing that here saves a worker the parsing.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

from evals.grading.rational import NotArithmeticError, Reader, read

FAR = 1e-4  # relative; what is closer is left to the worker


class _Rough(Reader):
    r"""Floats, with `\sqrt` and `\pi`. A factor without a sign after a quotient, `1/2\pi`, is ambiguous: not read."""

    token = re.compile(rf"{Reader.token.pattern}|\\(?:sqrt|pi)(?![A-Za-z]) ?")
    factors = ("(", "\\sqrt", "\\pi")

    def product(self, depth: int) -> Any:
        start = self.at
        value = super().product(depth)
        used = self.tokens[start : self.at]
        if "/" in used and used[-1] != "/":
            after = used[used.index("/") + 1 :]
            if any(token in self.factors for token in after[1:]):
                raise NotArithmeticError
        return value

    def atom(self, depth: int) -> Any:
        if self.peek() == "\\pi":
            self.next()
            return math.pi
        if self.peek() == "\\sqrt":
            self.next()
            radicand = self.atom(depth + 1)
            if radicand < 0:
                raise NotArithmeticError
            return math.sqrt(radicand)
        return super().atom(depth)

    def number(self, digits: str) -> float:
        return float(digits)

    def raised(self, base: Any, exponent: Any) -> float:
        if base < 0:
            raise NotArithmeticError
        return math.pow(base, exponent)

    def bounded(self, value: Any) -> Any:
        if not math.isfinite(value):
            raise NotArithmeticError
        return value


def clearly_differ(gold: str, answer: str, tolerance: Fraction) -> bool:
    """Whether both are such expressions and lie apart by more than twice the tolerance and a ten-thousandth."""
    expected, found = read(_Rough, gold), read(_Rough, answer)
    if expected is None or found is None:
        return False
    distance = abs(expected - found)
    return bool(distance > FAR * max(abs(expected), abs(found), 1e-3) and distance > 2 * tolerance)
