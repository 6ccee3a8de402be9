"""Parse exact numbers from plain mathematical text: this stage decides most comparisons, in microseconds.

Digits, decimals, `\\frac`, `/`, powers of integers, products, sums and parentheses become one `Fraction`. Anything else
returns None and is left to later stages. Sizes are bounded before any computation, so no text can be slow.
"""

import re
from fractions import Fraction
from numbers import Rational
from typing import Any, NamedTuple

LONGEST_TEXT = 2000  # characters
DEEPEST = 24  # nested parentheses, fractions and powers
MOST_BITS = 20_000  # of a power's result; 2^2014 and 10^4000 are answers, 10^(10^9) is an attack

_DIGITS = r"(?:\d+(?:\.\d*)?|\.\d+)"
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
# -142.0, 4.5e33, 4.5\times10^{33}, 0.1\overline{6}
_PRINTED = re.compile(
    rf"([-+]?)(?:(\d*\.\d*)\\(?:overline|bar)\{{(\d+)\}}"
    rf"|({_DIGITS})(?:[eE]([-+]?\d{{1,5}})|(?:\\times|\\cdot|\*)10\^(?:\{{([-+]?\d{{1,5}})\}}|(\d)))?)"
)
# Only digits, operators, brackets and x, y, z: if such a text is not a number, it equals none.
PLAIN = re.compile(r"[-+*/^(){}\[\]\d.,:;?=<>#&@%$~'\" xyz]*")


class Number(NamedTuple):
    """An exact value and its printed form."""

    value: Fraction
    form: str  # integer, decimal, scientific or exact
    # One unit of the last printed digit, or of the second significant one where only one is printed: as a tolerance,
    # half a unit of a single digit would be up to 50 % (1e11 would accept 1.4e11). None for a value that is exact.
    last_digit: Fraction | None = None


def number(text: str) -> Number | None:
    r"""Return the number that normalised `text` denotes, or None.

    >>> number("4.50e3")
    Number(value=Fraction(4500, 1), form='scientific', last_digit=Fraction(10, 1))
    >>> number(r"1\frac{4}{5}").value
    Fraction(9, 5)
    """
    if not text or len(text) > LONGEST_TEXT:
        return None
    if text.isdecimal():  # most texts
        return Number(Fraction(int(text)), "integer")
    if printed := _PRINTED.fullmatch(text.replace(",", "") if _THOUSANDS.fullmatch(text) else text):
        return _printed(printed)
    if text.count(":") > 1:  # 3:4:5 is not a quotient
        return None
    try:
        reader = Reader(text)
        exact = reader.sum(0)
    except (NotArithmeticError, ArithmeticError):
        return None
    return Number(exact, "exact") if reader.at == len(reader.tokens) else None


def _printed(match: re.Match[str]) -> Number | None:
    sign, repeated, period, digits, e, braced, bare = match.groups()
    power = e or braced or bare
    exponent = int(power or 0)
    if abs(exponent) * 4 > MOST_BITS:  # a decimal digit takes less than four bits
        return None
    whole, _, decimals = (repeated or digits).partition(".")
    value = Fraction(int(f"{sign}{whole}{decimals}0"), 10 ** (len(decimals) + 1))
    if repeated:
        rest = Fraction(int(sign + period), (10 ** len(period) - 1) * 10 ** len(decimals))
        return Number(value + rest, "exact")
    if not power and whole and not decimals.strip("0"):  # 142.0 is an integer printed as a decimal
        return Number(value, "integer")
    single = len((whole + decimals).lstrip("0")) == 1
    scale = Fraction(10) ** exponent
    last_digit = scale / 10 ** (len(decimals) + single)
    return Number(value * scale, "scientific" if power else "decimal", last_digit)


class NotArithmeticError(Exception):
    """The tokens are not arithmetic, or a bound is exceeded."""


_CLOSING = {"(": ")", "{": "}"}
OVER = ("/", "\\div", ":")
SIGNS = ("*", "\\cdot", "\\times", *OVER)  # of products and quotients


class Reader:
    """Recursive descent over tokens; one method per level of precedence. Brackets only group.

    Values here are fractions; `expressions.Latex` parses letters, roots and functions by the same descent.
    """

    TOKEN = re.compile(rf"({_DIGITS}|\\(?:frac|cdot|times|div)|[-+*/:^(){{}}])")

    def __init__(self, text: str):
        if self.TOKEN.sub("", text):
            raise NotArithmeticError
        self.tokens: list[str] = self.TOKEN.findall(text)
        self.at = 0

    def bounded(self, value: Any) -> Any:
        """Return `value` unless it is too large: sums and products could otherwise grow without limit."""
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > 2 * MOST_BITS:
            raise NotArithmeticError
        return value

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def accept(self, *tokens: str) -> str:
        """Return the next token and step over it if it is one of `tokens`; else an empty text."""
        token = self.tokens[self.at] if self.at < len(self.tokens) else ""
        if token not in tokens:
            return ""
        self.at += 1
        return token

    def sum(self, depth: int) -> Any:
        negative = self.accept("+", "-") == "-"
        value = self.product(depth)
        value = -value if negative else value
        while sign := self.accept("+", "-"):
            term = self.product(depth)
            value = self.bounded(value + term if sign == "+" else value - term)
        return value

    def product(self, depth: int) -> Any:
        value = self.mixed(depth)
        while (sign := self.accept(*SIGNS)) or self.begins_factor():
            other = self.power(depth)
            value = self.bounded(value / other if sign in OVER else value * other)
        return value

    def begins_factor(self) -> bool:
        """Return whether the next token begins a factor without a sign before it."""
        return self.peek() == "(" or (self.peek() == "\\frac" and self.tokens[self.at - 1] in (")", "}"))

    def mixed(self, depth: int) -> Any:
        """Parse a mixed number: `1\\frac{4}{5}` is 9/5, an integer directly before a fraction."""
        start, whole = self.at, self.peek()
        value = self.power(depth)
        if whole.isdigit() and self.at == start + 1 and self.peek() == "\\frac":
            part = self.power(depth)
            rational = isinstance(part, Rational)  # not a letter of `expressions.Latex`
            return value + part if rational and 0 <= part < 1 else self.bounded(value * part)
        return value

    def power(self, depth: int) -> Any:
        base = self.atom(depth)
        if not self.accept("^"):
            return base
        exponent = self.atom(depth + 1)
        # 2^3^2 is ambiguous, 0^0 has no agreed value and 0^-1 none: they are not parsed here
        if self.peek() == "^" or (base == 0 and exponent <= 0):
            raise NotArithmeticError
        # bounded before the power is computed, by its predicted size; a root is left to the algebra
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if exponent.denominator != 1 or abs(exponent.numerator) * size > MOST_BITS:
            raise NotArithmeticError
        return Fraction(base**exponent.numerator)

    def atom(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise NotArithmeticError
        token = self.next()
        if token[:1].isdigit() or token[:1] == ".":
            return Fraction(token.rstrip(".") or "0")
        if token in _CLOSING:
            value = self.sum(depth + 1)
            if not self.accept(_CLOSING[token]):
                raise NotArithmeticError
            return value
        if token == "\\frac":
            return self.atom(depth + 1) / self.atom(depth + 1)
        raise NotArithmeticError
