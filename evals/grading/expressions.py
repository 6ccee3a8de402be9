r"""LaTeX expressions as sympy objects, by recursive descent; imported only in a worker.

Numbers, letters with indices, sums, products, powers, fractions, roots, factorials, binomials, absolute values, common
functions and one relation between two of these: most of what stands in boxes. It takes a hundredth of the time of the
grammar (`symbolic.by_grammar`), which reads what is left, and keeps capital letters apart from small ones. Nothing that
could be too large to write out is ever computed: such powers stay `Power` objects, which have a value but no digits.
"""

from __future__ import annotations

import re
from typing import Any

import mpmath
import sympy

from evals.grading.numbers import DEEPEST, MOST_BITS, NotArithmeticError, Reader

_TOKEN = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+|\\[A-Za-z]+|\\[{}|]|[A-Za-z]|[-+*/:^_(){}\[\]!|=<>,'])\s*")
_CLOSING = {"(": ")", "{": "}", "[": "]", "|": "|", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}
_TIMES, _OVER = ("*", "\\cdot", "\\times"), ("/", "\\div", ":")
_RELATIONS = {"=": sympy.Eq, "<": sympy.Lt, ">": sympy.Gt, "\\leq": sympy.Le, "\\geq": sympy.Ge, "\\neq": sympy.Ne}
_FUNCTIONS = {
    **{f"\\{name}": getattr(sympy, name) for name in "sin cos tan cot sec csc sinh cosh tanh coth exp".split()},
    **{f"\\arc{name}": getattr(sympy, f"a{name}") for name in "sin cos tan cot sec csc".split()},
    "\\ln": sympy.log, "\\log": sympy.log, "\\lg": sympy.log,
}  # fmt: skip
_INVERSES = {sympy.sin: sympy.asin, sympy.cos: sympy.acos, sympy.tan: sympy.atan}
_CONSTANTS = {"e": sympy.E, "i": sympy.I, "\\pi": sympy.pi, "\\infty": sympy.oo}
_LETTERS = frozenset(
    "\\alpha \\beta \\gamma \\delta \\epsilon \\varepsilon \\zeta \\eta \\theta \\vartheta \\iota \\kappa \\lambda \\mu"
    " \\nu \\xi \\rho \\varrho \\sigma \\tau \\upsilon \\phi \\varphi \\chi \\psi \\omega \\Gamma \\Delta \\Theta"
    " \\Lambda \\Xi \\Pi \\Sigma \\Phi \\Psi \\Omega \\hbar \\ell".split()
)
_ACCENTS = frozenset("\\vec \\hat \\widehat \\bar \\overline \\tilde \\overrightarrow".split())
_EXPANDED = 100  # exponents up to this one may multiply out numbers: (2x)^{100} becomes 2^{100} x^{100}
_WRITTEN = 3000  # factorials and binomials up to this one are integers


class TooLargeError(Exception):
    """A number that has not even a rounded value, such as ((1000!)!)!."""


class Power(sympy.Function):  # type: ignore[misc]
    """A power of numbers that is never written out, such as 2^(2^100); sympy's own would be by the next product."""

    nargs = 2

    def _eval_evalf(self, precision: int) -> Any:
        precise = precision + 20 + abs(self.args[1].p).bit_length()  # what the exponent magnifies
        base, exponent = (part.evalf(mpmath.libmp.prec_to_dps(precise) + 2) for part in self.args)
        with mpmath.workprec(precise):
            base, exponent = base._to_mpmath(precise), exponent._to_mpmath(precise)
            return sympy.Expr._from_mpmath(mpmath.power(base, exponent), precision)


def read(text: str) -> Any:
    """The expression, equation or inequality that normalised LaTeX denotes; None for what is left to the grammar.

    Raises TooLargeError.
    """
    tokens, end = [], 0
    while end < len(text):
        token = _TOKEN.match(text, end)
        if token is None:
            return None
        tokens.append(token[1])
        end = token.end()
    reader = Latex(tokens)
    try:
        value = reader.sum(0)
        if relation := _RELATIONS.get(reader.peek()):
            reader.next()
            value = _real(relation(value, reader.sum(0), evaluate=False))
        return value if reader.at == len(tokens) else None
    except NotArithmeticError:
        return None


class Latex(Reader):
    """The descent of `numbers.Reader` with letters and functions. A product without a sign binds more tightly than `/`:
    1/2x is 1/(2x), as the grammar has it."""

    bars = 0  # open absolute values: the next bar closes one

    def bounded(self, value: Any) -> Any:
        return value

    def product(self, depth: int) -> Any:
        value = self.factors(depth)
        while (sign := self.peek()) in (*_TIMES, *_OVER):
            self.next()
            other = self.factors(depth)
            value = value * other if sign in _TIMES else value / other
        return value

    def is_proper(self, part: Any) -> bool:
        return bool(part.is_Rational and 0 <= part < 1)

    def factors(self, depth: int) -> Any:
        """Factors without a sign between them."""
        value = self.mixed(depth)
        while self.begins_factor():
            value = value * self.power(depth)
        return value

    def begins_factor(self) -> bool:
        token = self.peek()
        return (
            token.isalpha()
            or token in ("(", "{", "[", "\\frac", "\\sqrt", "\\binom", "\\lfloor", "\\lceil")
            or (token == "|" and not self.bars)
            or token in _FUNCTIONS
            or token in _CONSTANTS
            or token in _LETTERS
            or token in _ACCENTS
        )

    def power(self, depth: int) -> Any:
        value = self.atom(depth)
        while self.peek() == "!":
            self.next()
            value = _factorial(value)
        if self.peek() == "^":
            self.next()
            token = self.peek()  # a letter alone: in `e^x(2)` nothing is a function of 2
            if token.isalpha() and token not in _CONSTANTS:
                self.next()
                exponent = sympy.Symbol(token, positive=True)
            else:
                exponent = self.atom(depth + 1)
            value = _raised(value, exponent)
        if self.peek() in ("^", "!", "_", "'"):
            raise NotArithmeticError
        return value

    def atom(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise NotArithmeticError
        token = self.next()
        if token[:1].isdigit() or token[:1] == ".":
            return sympy.Float(token) if "." in token else sympy.Integer(token)
        if token in _CLOSING:
            return self.group(token, depth)
        if token in _FUNCTIONS:
            return self.function(_FUNCTIONS[token], sympy.Integer(10) if token in ("\\log", "\\lg") else None, depth)
        if token == "\\frac":
            over, under = self.atom(depth + 1), self.atom(depth + 1)
            return over / under
        if token == "\\binom":
            return _binomial(self.atom(depth + 1), self.atom(depth + 1))
        if token == "\\sqrt":
            index = self.atom(depth + 1) if self.peek() == "[" else sympy.Integer(2)
            return _raised(self.atom(depth + 1), 1 / index)
        if token.isalpha() or token in _CONSTANTS or token in _LETTERS or token in _ACCENTS:
            return self.letter(token)
        raise NotArithmeticError

    def group(self, opening: str, depth: int) -> Any:
        """What stands in brackets or bars, which `opening` has begun."""
        outer, self.bars = self.bars, int(opening == "|")
        value = self.sum(depth + 1)
        self.bars = outer
        if self.next() != _CLOSING[opening]:
            raise NotArithmeticError
        if opening == "|":
            return sympy.Abs(_real(value))
        if opening in ("\\lfloor", "\\lceil"):
            return (sympy.floor if opening == "\\lfloor" else sympy.ceiling)(value, evaluate=False)
        return value

    def letter(self, token: str) -> Any:
        """A letter with its accent, index and argument: `x_{1}`, `\\vec{v}`, `f(x)`. An argument is a letter or number,
        so `n(n-1)` is a product, as the grammar has it."""
        name = token.removeprefix("\\") + (self.raw() if token in _ACCENTS else "")
        if self.peek() == "_":
            self.next()
            name += f"_{self.raw()}"
        elif token in _CONSTANTS:
            return _CONSTANTS[token]
        arguments = self.tokens[self.at + 1 : self.at + 1 + 2 * DEEPEST]
        if self.peek() == "(" and ")" in arguments:
            arguments = arguments[: arguments.index(")")]
            if all(word == "," if place % 2 else word[-1:].isalnum() for place, word in enumerate(arguments)):
                self.at += len(arguments) + 2
                name += f"({''.join(arguments)})"
        return sympy.Symbol(name, positive=True)

    def raw(self) -> str:
        """The text of the next token or group, without its braces."""
        if self.peek() != "{":
            return self.next().removeprefix("\\")
        self.next()
        words = []
        while (token := self.next()) != "}":
            if token in ("", "{"):
                raise NotArithmeticError
            words.append(token.removeprefix("\\"))
        return "".join(words)

    def function(self, function: Any, base: Any, depth: int) -> Any:
        """A function's value; an argument without brackets ends at the next sign for a product, and at a function."""
        exponent = None
        while self.peek() in ("^", "_"):
            if self.next() == "^":
                exponent = self.atom(depth + 1)
            elif function is not sympy.log:
                raise NotArithmeticError
            else:
                digits = self.peek()
                if digits.isdigit():  # an index is one digit: \log_28 is the logarithm of 8
                    self.tokens[self.at] = digits[1:]
                    self.at += len(digits) == 1
                    base = sympy.Integer(digits[0])
                else:
                    base = self.atom(depth + 1)
        if self.peek() in ("(", "{", "["):
            argument = self.atom(depth + 1)
        else:
            argument = self.mixed(depth + 1)
            while self.begins_factor() and self.peek() not in _FUNCTIONS:
                argument = argument * self.power(depth + 1)
            while self.peek() == "/":
                self.next()
                argument = argument / self.power(depth + 1)
        if exponent == -1 and function in _INVERSES:
            return _INVERSES[function](argument)
        value = function(argument) if base is None else sympy.log(argument) / sympy.log(base)
        return value if exponent is None else _raised(value, exponent)


def _real(value: Any) -> Any:
    """`value` with letters that may be negative: elsewhere sqrt(x^2) is x."""
    return value.xreplace({letter: sympy.Symbol(letter.name, real=True) for letter in value.free_symbols})


def _raised(base: Any, exponent: Any) -> Any:
    """A power, never written out where it is large."""
    if not exponent.is_Rational or abs(exponent.p) <= _EXPANDED or base.is_Symbol or base == sympy.E:
        if exponent.has(Power):
            raise TooLargeError
        return base**exponent
    small = base.is_Rational and exponent.is_Integer
    if small and abs(exponent.p) * max(abs(base.p), base.q).bit_length() <= MOST_BITS:
        return base**exponent
    return Power(base, exponent)


def _factorial(value: Any) -> Any:
    if value.is_number and not (value.is_Integer and value <= _WRITTEN):
        raise TooLargeError
    return sympy.factorial(value)


def _binomial(over: Any, under: Any) -> Any:
    if over.is_Integer and under.is_Integer and min(under, over - under) > _WRITTEN:
        raise TooLargeError
    return sympy.binomial(over, under)


# Derivatives. Each derivative of a letter becomes a letter of its own: only the same one is equal to it. As quotients of
# products they would be cancelled.
_LETTER = r"(?:\\[A-Za-z]+ ?|[A-Za-z])(?:_(?:\w|\{\w+\}))?"
_BY = r"\\partial ?|d"
_DERIVATIVE = re.compile(
    rf"\\frac\{{(?:{_BY})(?:\^(?P<order>\d))?(?P<of>{_LETTER})\}}\{{(?:{_BY})(?P<by>{_LETTER})(?:\^(?P<again>\d))?\}}"
    rf"|\\frac\{{(?:{_BY})\}}\{{(?:{_BY})(?P<by2>{_LETTER})\}}(?P<of2>{_LETTER})(?![A-Za-z^(])"
    rf"|(?<![A-Za-z\\])d(?P<of3>{_LETTER})/d(?P<by3>{_LETTER})(?![A-Za-z])"
    rf"|\\(?P<dots>d{{1,3}}ot)(?:\{{(?P<of4>{_LETTER})\}}| ?(?P<of5>{_LETTER}))(?:_(?P<index>\w|\{{\w+\}}))?"
    r"(?:\([a-z]\))?"
    rf"|(?<![\\A-Za-z])(?P<of6>{_LETTER})(?P<primes>'+)(?:\([a-z]\))?"
)


def variable_of(*texts: str) -> str:
    """The variable of the primes and dots in two texts: the only one by which either differentiates, else t."""
    found = {m["by"] or m["by2"] or m["by3"] for text in texts for m in _DERIVATIVE.finditer(text)} - {None}
    return found.pop() if len(found) == 1 else "t"


def derivatives(text: str, variable: str) -> str:
    """`text` with a letter of its own for each derivative of a letter."""

    def letter(match: re.Match[str]) -> str:
        of = next(match[name] for name in ("of", "of2", "of3", "of4", "of5", "of6") if match[name])
        of += f"_{match['index']}" if match["index"] else ""
        by = match["by"] or match["by2"] or match["by3"] or variable
        order = match["order"] or "1"
        if match["by"] and order != (match["again"] or "1"):
            return match.group()
        if match["primes"] or match["dots"]:
            order = str(len(match["primes"] or match["dots"][:-2]))
        name = f"{order}{of}/{by}".replace(" ", "").replace("{", "").replace("}", "")
        # an index of digits, which the grammar takes as it is
        return f"\\Xi_{{{''.join(f'{ord(c):03d}' for c in name)}}}"

    return _DERIVATIVE.sub(letter, text)
