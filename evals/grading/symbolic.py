"""The expensive stage: two expressions compared by a computer algebra system. Imported only in a worker process.

LaTeX is read by latex2sympy2_extended's grammar and compared by math-verify. No text ever reaches `sympify` or
`parse_expr`, which evaluate Python. Nothing is timed here: the worker is killed from outside.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import latex2sympy2_extended.latex2sympy2
import math_verify.parser
import mpmath
import sympy
import sympy.parsing.sympy_parser
import sympy.physics.units  # noqa: F401 - `simplify` imports it late, and it evaluates names of its own while loading
from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
from math_verify import verify

from evals.grading import structure
from evals.grading.decide import SIX_DECIMALS, Gold, agree, as_intervals, behind_signs, compare, compare_objects
from evals.grading.numbers import Number, number
from evals.grading.verdict import Outcome

# Units, boxes and decimals are settled before: math-verify's own unit rule would drop the t of `\frac{1}{m} t`.
_READING = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none")
# Characters of one object; the longest gold of the seven benchmarks has 210. An explicit bound for the depth of what is
# parsed, far below the worker's (`worker.RECURSION`): how deep Python recurses depends on what caches hold.
LONGEST_OBJECT = 600
# What is deep without being long: \sin\sin\sin..., ----x, x!!!!!, five primes, and towers of powers. How much time and
# memory they take depends on what caches hold, so they are told by their look.
_CHAIN = re.compile(r"(?:\\[A-Za-z]+\s?){13}|[-+]{13}|!{5}|'{5}|\^\{[^{}]*\^\{[^{}]*\^\{[^{}]*\^")
_DIGITS, _MOST_DIGITS = 30, 3000  # of a result, and of the terms where they cancel
_WRITABLE = 20_000  # digits; longer integers are not written out
_EXACT = 1e-22  # relative: values to 30 digits, less what cancels
_SAME = 1e-9  # relative; decimals in an expression carry fifteen digits
_AGREE = 1e-20  # relative; of values of two expressions in variables
# Positive and in no simple relation: roots and logarithms stay real, and sqrt(xy) is sqrt(x)sqrt(y). The first two
# points show that most wrong answers differ; only what agrees there needs the others.
_POINTS, _STEP = (1.3717, 2.6183, 0.5539, 7.2361), 0.4142
# What agrees at some positive points and is different elsewhere, or has no value by itself.
_UNEVEN = (
    sympy.floor, sympy.ceiling, sympy.frac, sympy.Mod, sympy.Derivative, sympy.Abs, sympy.sign, sympy.Heaviside,
    sympy.Piecewise, sympy.Max, sympy.Min, sympy.re, sympy.im, sympy.arg, sympy.conjugate, sympy.Sum, sympy.Product,
    sympy.Integral, sympy.Limit,
)  # fmt: skip
_LETTER_I = sympy.Symbol("i", real=True)
_NUMERAL = re.compile(r"\d+")
_POINT = re.compile(r"\d*\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+")


def _refuse(*_: Any, **__: Any) -> Any:
    raise sympy.SympifyError("text is not evaluated here")


def _sympify_number(value: Any, *arguments: Any, **options: Any) -> Any:
    """`sympify` for sympy's number classes, that never turns text into code by `eval`: digits and decimals only."""
    if not isinstance(value, str):
        return sympy.sympify(value, *arguments, **options)
    if _NUMERAL.fullmatch(value):
        return sympy.Integer(int(value))
    return sympy.Float(value) if _POINT.fullmatch(value) else _refuse()


def forbid_evaluation() -> None:
    """Remove every way in which sympy turns text into Python that runs. Called once, in the worker."""
    sympy.core.numbers.sympify = _sympify_number
    for module in (sympy.parsing.sympy_parser, latex2sympy2_extended.latex2sympy2, math_verify.parser):
        module.parse_expr = _refuse


class _Parser(latex2sympy2_extended.latex2sympy2.PSParser):
    """The grammar's parser in ANTLR's fast mode, by class attribute `mode`.

    SLL gives the parse that LL gives or a syntax error (so ANTLR's documentation); `_read` then asks LL.
    """

    mode = PredictionMode.SLL

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._interp.predictionMode = _Parser.mode


latex2sympy2_extended.latex2sympy2.PSParser = _Parser


def _read(latex: str) -> Any:
    """The sympy object that the grammar makes of `latex`; raises what the grammar raises."""
    try:
        return latex2sympy(latex, is_real=True, normalization_config=None)
    except (MemoryError, RecursionError):
        raise
    except Exception:
        _Parser.mode = PredictionMode.LL
        try:
            return latex2sympy(latex, is_real=True, normalization_config=None)
        finally:
            _Parser.mode = PredictionMode.SLL


_PRODUCT = re.compile(
    r"(?<![\w^\\.])(?P<number>\d+(?:\.\d+)?)(?P<rest>\(|\\binom|\\frac(?:\{(?P<over>\d{1,9})\}\{(?P<under>\d{1,9})\})?)"
)
# Spellings that the grammar refuses, with ones that it reads; applied to both sides alike.
_DIALECT = (
    (re.compile(r"(\d+|(?<![\\A-Za-z])[A-Za-z])!(?=\^)"), r"(\1!)"),
    (re.compile(r"([_^])([A-Za-z])"), r"\1{\2}"),
    (re.compile(r"_\{\\([A-Za-z]+)\}"), r"_{\1}"),
    (re.compile(r"_\\([A-Za-z]+) ?"), r"_{\1}"),
    (re.compile(r"\\hbar(?![A-Za-z])"), r"h_{bar}"),
    # To the grammar the Greek letter is a function, infinite without an argument.
    (re.compile(r"\\gamma(?![A-Za-z])"), r"g_{gamma}"),
    (re.compile(r"(\\log_\{[^{}]*\})(\d+)"), r"\1{\2}"),
    (re.compile(r"(?<![A-Za-z\\])E_"), r"\\Xi_"),  # a bare E is Euler's number to the grammar, even with an index
)


# Derivatives. The grammar reads dv/dt as a quotient of products, or as the derivative of a constant, which is 0; and it
# drops the prime of y'. Each derivative of a letter becomes a letter of its own: only the same one is equal to it.
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
# A function's argument without brackets ends at a sign: \sin x\cdot2 is (\sin x)\cdot2. The grammar would read sin(2x).
_FUNCTION = re.compile(
    r"\\(?:arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|ln|log|lg|exp)(?![A-Za-z]) ?"
    r"(?:[_^](?:\w|\{[^{}]*\}))*"
)
_ARGUMENT_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|.", re.DOTALL)


def _variable(*texts: str) -> str:
    """The variable of the primes and dots in two texts: the only one by which either differentiates, else t."""
    found = {m["by"] or m["by2"] or m["by3"] for text in texts for m in _DERIVATIVE.finditer(text)} - {None}
    return found.pop() if len(found) == 1 else "t"


def _derivatives(text: str, variable: str) -> str:
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


def _arguments(text: str) -> str:
    """`text` with brackets around arguments that end at a sign for a product."""
    done, at = [], 0
    while match := _FUNCTION.search(text, at):
        end, depth = match.end(), 0
        if text[end : end + 1] not in ("(", "["):
            for token in _ARGUMENT_TOKEN.finditer(text, end):
                sign = token.group()
                depth += (sign in ("{", "(", "[")) - (sign in ("}", ")", "]"))
                if depth == 0 and sign in ("\\cdot", "\\times", "\\div", "*") and token.start() > end:
                    done.append(f"{text[at:end]}({text[end : token.start()]})")
                    at = end = token.start()
                    break
                ends = sign in "=<>,;" or (sign in "+-" and token.start() > end) or _FUNCTION.match(text, token.start())
                if depth < 0 or (depth == 0 and ends):
                    break
        done.append(text[at:end])
        at = end
    return "".join(done) + text[at:]


def outcome(gold: Gold, answer: str) -> Outcome:
    """Compare a gold with a normalised answer that the cheap stages could not decide."""

    def leaf(gold_text: str, answer_text: str) -> bool | None:
        decision = compare_objects(gold_text, answer_text, gold.tolerance)
        if decision is not None:
            return decision.equal
        bare = behind_signs(gold_text, answer_text) or (gold_text, answer_text)
        return _equal(*bare, gold.tolerance)

    equal = compare(gold, answer, leaf)
    # Undecided member by member: the grammar may still read the whole, such as a union of intervals or an inequality.
    if equal is None and not _both_taken_apart(gold, answer):
        equal = _equal(*as_intervals(gold.text, answer), gold.tolerance)
    if equal is None:
        unread = any(_parse(text) is None for text in structure.leaves(structure.parse(gold.text)))
        return Outcome.UNPARSED_GOLD if unread else Outcome.DIFFERENT
    return Outcome.EQUAL if equal else Outcome.DIFFERENT


def _both_taken_apart(gold: Gold, answer: str) -> bool:
    """Whether both are lists or tuples: their members have been compared, and the whole knows nothing more."""
    kinds = structure.parse(gold.text), structure.parse(answer)
    return not any(isinstance(s, structure.Leaf) or (isinstance(s, structure.Listing) and s.union) for s in kinds)


def _attempt(compute: Callable[[], Any]) -> Any:
    """The result, or None where the algebra fails: its grammar and functions raise errors without a common class.

    A lack of memory or of stack is no failure of the algebra: that error goes on to the worker, which ends.
    """
    try:
        return compute()
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return None


@lru_cache(maxsize=256)  # a gold meets many answers
def _parse(text: str, variable: str = "t") -> Any:
    """The sympy object that LaTeX `text` denotes, None when the grammar refuses it.

    variable: by which a prime or dot differentiates.
    """
    text = _arguments(_derivatives(text, variable))
    text = _PRODUCT.sub(_times, text)
    for pattern, replacement in _DIALECT:
        text = pattern.sub(replacement, text)
    latex = normalize_latex(text.removesuffix("%"), config=_READING)
    for candidate in dict.fromkeys((latex, structure.sides(latex)[-1])):
        parsed = _attempt(partial(_read, candidate))
        if parsed is not None:
            return _with_symbols(parsed)
    return None


def _times(match: re.Match[str]) -> str:
    r"""Put a sign between factors. The grammar takes any number before a fraction or `\binom` for a mixed number.

    It reads 2\binom{4}{2} as 2 + 6; only a text like `1\frac{4}{5}`, with a fraction below 1, is a mixed number.
    """
    mixed = match["over"] and int(match["over"]) < int(match["under"])
    return match.group() if mixed else f"{match['number']}\\cdot{match['rest']}"


def _with_symbols(parsed: Any) -> Any:
    """i as the imaginary unit, and derivatives of letters as letters.

    The grammar reads i as a letter, which it is only as the index of a sum or product.
    """
    if not isinstance(parsed, (sympy.Basic, sympy.MatrixBase)):
        return parsed
    if parsed.has(sympy.Derivative):
        constant = [d for d in parsed.atoms(sympy.Derivative) if not set(d.variables) <= d.expr.free_symbols]
        parsed = parsed.xreplace({d: sympy.Symbol(str(d), real=True) for d in constant})
    if parsed.has(sympy.Sum, sympy.Product):
        return parsed
    return parsed.subs(_LETTER_I, sympy.I) if parsed.has(_LETTER_I) else parsed


def _equal(gold: str, answer: str, tolerance: Fraction | None) -> bool | None:
    """Whether two texts are equal; None when the gold cannot be parsed. What cannot be compared is not equal."""
    if len(answer) > LONGEST_OBJECT or _CHAIN.search(answer):
        return False
    variable = _variable(gold, answer)
    expected = _parse(gold, variable)
    if expected is None:
        return None
    value = _parse(answer, variable)
    if value is None:
        return False
    return bool(_attempt(lambda: _same(expected, value, number(gold.removesuffix("%")), tolerance)))


def _same(expected: Any, value: Any, gold_number: Number | None, tolerance: Fraction | None) -> bool:
    """Two sympy objects: by structure, by value, by value at some points, by expansion, and then by math-verify."""
    if _is_undefined(expected) or _is_undefined(value):
        return False  # a quotient by zero is equal to no other
    if expected == value:
        return True
    if isinstance(expected, sympy.Expr) and isinstance(value, sympy.Expr):
        if not (expected.free_symbols or value.free_symbols):
            same = _same_value(expected, value, gold_number, tolerance)
            if same is not None:
                return same
            if not (_is_writable(expected) and _is_writable(value)):
                return False  # math-verify would compute them too
            if any(_is_undefined(_attempt(side.doit)) for side in (expected, value)):
                return False  # 1/(1-1), which the grammar leaves as it is
        same = _same_at_points(expected, value)
        if same is not None:
            return same
        # Expanding finds equal polynomials; math-verify would compare a lone symbol by its name only.
        if _attempt(lambda: sympy.expand(expected - value)) == 0:
            return True
    # The gold comes first: math-verify is not symmetric. No timeout: its alarm could not interrupt C code anyway.
    return bool(verify(expected, value, timeout_seconds=None, allow_set_relation_comp=True))


def _is_writable(expression: Any) -> bool:
    """Whether a closed expression surely is small enough for `doit`: `((1000!)!)!` would use up the worker's time."""
    # The innermost first: what stands around something too large is not asked.
    parts = expression.atoms(sympy.Pow, sympy.factorial, sympy.factorial2, sympy.binomial, sympy.gamma)
    for part in sorted(parts, key=lambda part: part.count_ops()):
        digits = _attempt(partial(_digits_of, part))
        if digits is None:  # 1/(1-1) has no value, and is quickly computed
            if isinstance(part, sympy.Pow) and part.exp.is_Integer and abs(part.exp) < _DIGITS:
                continue
            return False
        if digits > _WRITABLE:
            return False
    return True


def _digits_of(expression: Any) -> float:
    """How many digits the value of a closed expression has, before or behind the point."""
    real, imaginary = expression.evalf(5).as_real_imag()
    size = abs(mpmath.mpc(_float(real), _float(imaginary)))
    return float(abs(mpmath.log10(size))) if size else 0.0


def _is_undefined(expression: Any) -> bool:
    return isinstance(expression, sympy.Basic) and expression.has(sympy.zoo, sympy.nan)


def _same_value(gold: Any, answer: Any, gold_number: Number | None, tolerance: Fraction | None) -> bool | None:
    """Compare two closed expressions by their values to 30 digits; None when one of them has no value.

    math-verify itself rounds absolutely: to it 1/2^1007 and 1/2^1006 are both 0.
    """
    expected, value = _value(gold), _value(answer)
    if expected is None or value is None:
        return None
    if gold_number is not None and (tolerance is not None or gold_number.last_digit is not None):
        printed = _fraction(value)
        if printed is not None:
            return agree(gold_number, Number(printed, "exact"), tolerance) is not None
    difference, size = abs(expected - value), abs(expected)
    if not answer.has(sympy.Float) and not gold.has(sympy.Float):
        if difference > _EXACT * size:
            return False
        return _same_rational(gold, answer, size)
    # agreement() in mpmath: a printed decimal stands for an exact value by six decimals, never for an integer
    whole = expected.imag == 0 and expected.real == mpmath.nint(expected.real)
    allowed = 0 if whole else float(SIX_DECIMALS) * min(1, 1000 * size)
    return bool(difference <= max(allowed, _SAME * size))


def _same_rational(gold: Any, answer: Any, size: Any) -> bool:
    """Whether two closed exact expressions that agree to many digits are equal: 2^2007 and 2^2007 + 1 agree so too.

    Written out they are compared digit by digit; roots, logarithms and values beyond writing out are equal by then.
    """
    if size != 0 and abs(mpmath.log10(size)) > _WRITABLE:
        return True
    expected, value = _attempt(gold.doit), _attempt(answer.doit)
    if isinstance(expected, sympy.Rational) and isinstance(value, sympy.Rational):
        return bool(expected == value)
    if size < 1 / _EXACT:
        return True
    return bool(verify(gold, answer, timeout_seconds=None))


def _value(expression: Any) -> Any:
    """The complex value (mpmath) of a closed expression to 30 digits, None when it has none."""
    written = _attempt(partial(_evaluate, expression))
    if written is not None or not _is_writable(expression):
        return written
    return _attempt(lambda: _evaluate(expression.doit()))


def _evaluate(expression: Any) -> Any:
    real, imaginary = expression.evalf(_DIGITS, maxn=_MOST_DIGITS, strict=True).as_real_imag()
    with mpmath.workdps(_DIGITS):
        return mpmath.mpc(_float(real), _float(imaginary))


def _float(value: Any) -> Any:
    if not isinstance(value, (sympy.Float, sympy.Rational)):
        raise ValueError(f"{type(value).__name__} is no number")
    return mpmath.mpf(value.p) / value.q if isinstance(value, sympy.Rational) else mpmath.make_mpf(value._mpf_)


def _fraction(value: Any) -> Fraction | None:
    """A real value as a fraction; None for a complex one, or one too large or small to write out."""
    sign, mantissa, exponent, _ = value.real._mpf_
    if value.imag != 0 or abs(int(exponent)) > 100_000:
        return None
    magnitude = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return -magnitude if sign else magnitude


def _same_at_points(gold: Any, answer: Any) -> bool | None:
    """Whether two expressions in variables have the same values at some points; None when that does not tell.

    Different: clearly so at the first two points; equal expressions never are. Equal: to twenty digits at all points,
    unless one of them is made of pieces or has no value by itself (`_UNEVEN`). The point of asking first is that
    `simplify` takes a hundred times longer to give up, and that it knows no positive numbers.
    """
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    agreeing = differing = 0
    for start in _POINTS:
        point = {symbol: sympy.Float(start + step * _STEP, _DIGITS) for step, symbol in enumerate(symbols)}
        expected, value = _value(gold.xreplace(point)), _value(answer.xreplace(point))
        if expected is None or value is None:
            return None
        difference, size = abs(expected - value), max(abs(expected), abs(value))
        if difference <= _AGREE * size:
            agreeing += 1
        elif difference > 1e-6 * size:
            differing += 1
        else:
            return None
        if agreeing and differing:
            return None
        if differing == 2:
            return False
    return True if agreeing == len(_POINTS) and not (gold.has(*_UNEVEN) or answer.has(*_UNEVEN)) else None
