r"""Parse LaTeX expressions into sympy objects by recursive descent; imported only in a worker.

Numbers, letters with indices, sums, products, powers, roots, factorials, binomials, absolute values, common functions
and one relation between two of these: most boxed answers, in a twentieth of the time of the grammar
(`symbolic._by_grammar`), which reads the rest. Numbers too large to write out are never computed.
"""

import re
from typing import Any

import mpmath
import sympy

from evals.grading.numbers import DEEPEST, MOST_BITS, OVER, SIGNS, NotArithmeticError, Reader

_CLOSING = {"(": ")", "{": "}", "[": "]", "|": "|", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}
_RELATIONS = {"=": sympy.Eq, "<": sympy.Lt, ">": sympy.Gt, "\\leq": sympy.Le, "\\geq": sympy.Ge, "\\neq": sympy.Ne}
_NAMES = "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth exp log ln lg"
_FUNCTIONS = {
    f"\\{name}": getattr(sympy, name.replace("arc", "a").replace("ln", "log").replace("lg", "log"))
    for name in re.findall(r"\w+", _NAMES)
}
_FUNCTIONS["\\cis"] = lambda angle: sympy.cos(angle) + sympy.I * sympy.sin(angle)
_INVERSES = {sympy.sin: sympy.asin, sympy.cos: sympy.acos, sympy.tan: sympy.atan}
_CONSTANTS = {"e": sympy.E, "i": sympy.I, "\\pi": sympy.pi, "\\infty": sympy.oo}
_ACCENT = re.compile(r"\\(?:vec|hat|widehat|bar|overline|tilde|overrightarrow)")
_LETTER = re.compile(
    rf"[A-Za-z]|{_ACCENT.pattern}|\\(?:alpha|beta|(?:var)?epsilon|zeta|eta|(?:var)?theta|iota|kappa|mu|nu|(?:var)?rho|tau"
    r"|(?:var)?phi|chi|[Gg]amma|[Dd]elta|Theta|[Ll]ambda|[Xx]i|Pi|pi|[Ss]igma|[Uu]psilon|Phi|[Pp]si|[Oo]mega|infty|hbar|ell)"
)
_EXPANDED = 100  # exponents up to this one may be multiplied out: (2x)^{100} becomes 2^{100} x^{100}
_WRITTEN = 3000  # factorials and binomials up to this one are integers


class TooLargeError(Exception):
    """A number without even a rounded value, such as ((1000!)!)!."""


class Power(sympy.Function):
    """A large power that is never written out, such as 2^(2^100); sympy would write it out in a product."""

    nargs = 2

    def _eval_evalf(self, precision: int) -> Any:
        precise = precision + 20 + abs(self.args[1].p).bit_length()  # the exponent magnifies errors of the base
        base, exponent = (part.evalf(mpmath.libmp.prec_to_dps(precise) + 2)._to_mpmath(precise) for part in self.args)
        with mpmath.workprec(precise):
            return sympy.Expr._from_mpmath(mpmath.power(base, exponent), precision)


def read(text: str) -> Any:
    """Return the expression, equation or inequality of normalised LaTeX; None for what the grammar must read.

    Raises TooLargeError.
    """
    try:
        reader = Latex(text)
        value = reader.sum(0)
        if sign := reader.accept(*_RELATIONS):
            value = _RELATIONS[sign](_real(value), _real(reader.sum(0)), evaluate=False)
    except NotArithmeticError:
        return None
    return value if reader.at == len(reader.tokens) else None


class Latex(Reader):
    """Letters and functions besides numbers. A product without a sign binds more tightly than `/`: 1/2x is 1/(2x)."""

    TOKEN = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+|\\[A-Za-z]+|[A-Za-z]|[-+*/:^_(){}\[\]!|=<>,])\s*")
    bars = False  # whether an absolute value is open, which the next bar closes

    def bounded(self, value: Any) -> Any:
        return value

    def product(self, depth: int) -> Any:
        value = self.factors(depth)
        while sign := self.accept(*SIGNS):
            other = self.factors(depth)
            value = value / other if sign in OVER else value * other
        return value

    def factors(self, depth: int, functions: bool = True) -> Any:
        """Parse factors without a sign between them; without functions, up to the first one."""
        value = self.mixed(depth)
        while self.begins_factor() and (functions or self.peek() not in _FUNCTIONS):
            value = value * self.power(depth)
        return value

    def begins_factor(self) -> bool:
        token = self.peek()
        if token[:1].isdigit():  # n2^n, but not two numbers
            return not self.tokens[self.at - 1][-1].isdigit()
        if token in _CLOSING:
            return not (token == "|" and self.bars)
        return token in ("\\frac", "\\sqrt", "\\binom") or token in _FUNCTIONS or _LETTER.fullmatch(token) is not None

    def power(self, depth: int) -> Any:
        value = self.atom(depth)
        while self.accept("!"):
            if value.is_number and not (value.is_Integer and value <= _WRITTEN):
                raise TooLargeError
            value = sympy.factorial(value)
        if self.accept("^"):
            bare = self.peek().isalpha()  # in `e^x(2)` x is not a function of 2
            value = _raised(value, self.letter(self.next(), bare=True) if bare else self.atom(depth + 1))
        if self.peek() in ("^", "!", "_"):
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
            return self.function(token, depth)
        if token in ("\\frac", "\\binom"):
            over, under = self.atom(depth + 1), self.atom(depth + 1)
            if token == "\\frac":
                return over / under
            if over.is_Integer and under.is_Integer and min(under, over - under) > _WRITTEN:
                raise TooLargeError
            return sympy.binomial(over, under)
        if token == "\\sqrt":
            index = self.atom(depth + 1) if self.peek() == "[" else 2
            return _raised(self.atom(depth + 1), sympy.Integer(1) / index)
        if not _LETTER.fullmatch(token):
            raise NotArithmeticError
        return self.letter(token)

    def group(self, opening: str, depth: int) -> Any:
        """Parse the contents of brackets or bars that `opening` has begun."""
        outer, self.bars = self.bars, opening == "|"
        value = self.sum(depth + 1)
        self.bars = outer
        if not self.accept(_CLOSING[opening]):
            raise NotArithmeticError
        if opening == "|":
            return sympy.Abs(_real(value))
        if opening in ("\\lfloor", "\\lceil"):
            integer = sympy.floor if opening == "\\lfloor" else sympy.ceiling
            return integer(value, evaluate=not value.is_number)
        return value

    def letter(self, token: str, *, bare: bool = False) -> Any:
        """Parse a letter with its accent, index and argument: `x_{1}`, `\\vec{v}`, `f(x)`; bare: without them.

        An argument is a letter or number: `n(n-1)` is a product.
        """
        name = token.removeprefix("\\") + (self.raw() if _ACCENT.fullmatch(token) else "")
        if not bare and self.accept("_"):
            name += f"_{self.raw()}"
        elif token in _CONSTANTS:
            return _CONSTANTS[token]
        inside = self.tokens[self.at + 1 : self.at + 10]
        if self.peek() == "(" and not bare and ")" in inside:
            inside = inside[: inside.index(")")]
            if all(word == "," if place % 2 else word[-1].isalnum() for place, word in enumerate(inside)):
                self.at += len(inside) + 2
                name += f"({''.join(inside)})"
        return sympy.Symbol(name, positive=True)

    def raw(self) -> str:
        """Return the text of the next token or group, without its braces."""
        if not self.accept("{"):
            return self.next().removeprefix("\\")
        words = []
        while (token := self.next()) != "}":
            if token in ("", "{"):
                raise NotArithmeticError
            words.append(token.removeprefix("\\"))
        return "".join(words)

    def function(self, name: str, depth: int) -> Any:
        """Parse a function's value; an argument without brackets ends at the next product sign or function."""
        function, exponent = _FUNCTIONS[name], None
        base = sympy.Integer(10) if name in ("\\log", "\\lg") else None
        while script := self.accept("^", "_"):
            digits = self.peek()
            if script == "^":
                exponent = self.atom(depth + 1)
            elif function is not sympy.log:
                raise NotArithmeticError
            elif digits.isdigit():  # an index is one digit: \log_28 is the logarithm of 8
                base = sympy.Integer(digits[0])
                self.tokens[self.at : self.at + 1] = [digits[1:]] if digits[1:] else []
            else:
                base = self.atom(depth + 1)
        if self.peek() in ("(", "{", "["):
            argument = self.atom(depth + 1)
        else:
            argument = self.factors(depth + 1, functions=False)
            while self.accept("/"):
                argument = argument / self.power(depth + 1)
        if exponent == -1 and function in _INVERSES:
            return _INVERSES[function](argument)
        value = function(argument) if base is None else sympy.log(argument) / sympy.log(base)
        return value if exponent is None else _raised(value, exponent)


def _real(value: Any) -> Any:
    """Return `value` with letters that may be negative; elsewhere they are positive, and sqrt(x^2) is x."""
    return value.xreplace({letter: sympy.Symbol(letter.name, real=True) for letter in value.free_symbols})


def _raised(base: Any, exponent: Any) -> Any:
    """Return a power, never written out where it is large."""
    if not exponent.is_Rational or abs(exponent.p) <= _EXPANDED or base.is_Symbol or base == sympy.E:
        if exponent.has(Power):
            raise TooLargeError
        return base**exponent
    small = base.is_Rational and exponent.is_Integer
    if small and abs(exponent.p) * max(abs(base.p), base.q).bit_length() <= MOST_BITS:
        return base**exponent
    return Power(base, exponent)


# Each derivative of a letter becomes a separate letter, equal only to the same derivative. As quotients of products
# derivatives would be cancelled.
_OF = r"((?:\\[A-Za-z]+ ?|[A-Za-z])(?:_(?:\w|\{\w+\}))?)"
_BY = r"(?:\\partial ?|d)"
_DERIVATIVE = re.compile(
    rf"\\frac\{{{_BY}(?:\^(\d))?{_OF}\}}\{{{_BY}{_OF}(?:\^\1)?\}}|(?<![A-Za-z\\])d{_OF}/d{_OF}(?![A-Za-z])"
    rf"|(?<![\\A-Za-z]){_OF}('+)(?:\([a-z]\))?|\\(d{{1,3}})ot(?:\{{{_OF}\}}| ?{_OF})(_(?:\w|\{{\w+\}}))?(?:\([a-z]\))?"
)


def without_derivatives(*texts: str) -> list[str]:
    """Return texts with a letter for each derivative of a letter. A prime differentiates by the only variable used
    for derivatives in any of the texts, else by t."""
    by = {match[3] or match[5] for text in texts for match in _DERIVATIVE.finditer(text)} - {None}
    variable = by.pop() if len(by) == 1 else "t"

    def letter(match: re.Match[str]) -> str:
        order, of, by, of2, by2, of3, primes, dots, of4, of5, index = match.groups()
        of = f"{of or of2 or of3 or of4 or of5}{index or ''}"
        name = f"{order or len(primes or dots or 'd')}{of}/{by or by2 or variable}"
        return f"\\Xi_{{{re.sub(r'[ {}]', '', name)}}}"

    return [_DERIVATIVE.sub(letter, text) for text in texts]
