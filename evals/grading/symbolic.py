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
from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
from math_verify import verify

from evals.grading import structure
from evals.grading.decide import SIX_DECIMALS, Gold, agree, behind_signs, compare, compare_objects
from evals.grading.numbers import Number, number
from evals.grading.verdict import Outcome

# Units, boxes and decimals are settled before: math-verify's own unit rule would drop the t of `\frac{1}{m} t`.
_READING = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none")
_DIGITS, _MOST_DIGITS = 30, 3000  # of a result, and of the terms where they cancel
_WRITABLE = 20_000  # digits; longer integers are not written out
_EXACT = 1e-22  # relative: values to 30 digits, less what cancels
_SAME = 1e-9  # relative; decimals in an expression carry fifteen digits
_POINTS, _STEP = (1.3717, 2.6183), 0.4142  # positive and in no simple relation: roots and logarithms stay real
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


_PRODUCT = re.compile(
    r"(?<![\w^\\.])(?P<number>\d+(?:\.\d+)?)(?P<rest>\(|\\binom|\\frac(?:\{(?P<over>\d{1,9})\}\{(?P<under>\d{1,9})\})?)"
)
# Spellings that the grammar refuses, with ones that it reads; applied to both sides alike.
_DIALECT = (
    (re.compile(r"(\d+|(?<![\\A-Za-z])[A-Za-z])!(?=\^)"), r"(\1!)"),
    (re.compile(r"([_^])([A-Za-z])"), r"\1{\2}"),
    (re.compile(r"_\{\\([A-Za-z]+)\}"), r"_{\1}"),
    (re.compile(r"\\hbar(?![A-Za-z])"), r"h_{bar}"),
    # To the grammar the Greek letter is a function, infinite without an argument.
    (re.compile(r"\\gamma(?![A-Za-z])"), r"g_{gamma}"),
    (re.compile(r"(\\log_\{[^{}]*\})(\d+)"), r"\1{\2}"),
    (re.compile(r"(?<![A-Za-z\\])E_"), r"\\Xi_"),  # a bare E is Euler's number to the grammar, even with an index
)


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
        equal = _equal(gold.text, answer, gold.tolerance)
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

    A lack of memory is no failure of the algebra: that error goes on to the worker, which ends.
    """
    try:
        return compute()
    except MemoryError:
        raise
    except Exception:
        return None


@lru_cache(maxsize=256)  # a gold meets many answers
def _parse(text: str) -> Any:
    """The sympy object that LaTeX `text` denotes, None when the grammar refuses it."""
    text = _PRODUCT.sub(_times, text)
    for pattern, replacement in _DIALECT:
        text = pattern.sub(replacement, text)
    latex = normalize_latex(text.removesuffix("%"), config=_READING)
    for candidate in dict.fromkeys((latex, structure.sides(latex)[-1])):
        parsed = _attempt(partial(latex2sympy, candidate, is_real=True, normalization_config=None))
        if parsed is not None:
            return _with_imaginary_unit(parsed)
    return None


def _times(match: re.Match[str]) -> str:
    r"""Put a sign between factors. The grammar takes any number before a fraction or `\binom` for a mixed number.

    It reads 2\binom{4}{2} as 2 + 6; only a text like `1\frac{4}{5}`, with a fraction below 1, is a mixed number.
    """
    mixed = match["over"] and int(match["over"]) < int(match["under"])
    return match.group() if mixed else f"{match['number']}\\cdot{match['rest']}"


def _with_imaginary_unit(parsed: Any) -> Any:
    """i as the imaginary unit. The grammar reads it as a letter, which it is only as the index of a sum or product."""
    if not isinstance(parsed, (sympy.Basic, sympy.MatrixBase)) or parsed.has(sympy.Sum, sympy.Product):
        return parsed
    return parsed.subs(_LETTER_I, sympy.I) if parsed.has(_LETTER_I) else parsed


def _equal(gold: str, answer: str, tolerance: Fraction | None) -> bool | None:
    """Whether two texts are equal; None when the gold cannot be parsed. What cannot be compared is not equal."""
    expected = _parse(gold)
    if expected is None:
        return None
    value = _parse(answer)
    if value is None:
        return False
    return bool(_attempt(lambda: _same(expected, value, number(gold.removesuffix("%")), tolerance)))


def _same(expected: Any, value: Any, gold_number: Number | None, tolerance: Fraction | None) -> bool:
    """Two sympy objects: by structure, by value, by value at two points, by expansion, and then by math-verify."""
    if expected == value:
        return True
    if isinstance(expected, sympy.Expr) and isinstance(value, sympy.Expr):
        if not (expected.free_symbols or value.free_symbols):
            same = _same_value(expected, value, gold_number, tolerance)
            if same is not None:
                return same
        if _differ_somewhere(expected, value):
            return False
        # Expanding finds equal polynomials; math-verify would compare a lone symbol by its name only.
        if _attempt(lambda: sympy.expand(expected - value)) == 0:
            return True
    # The gold comes first: math-verify is not symmetric. No timeout: its alarm could not interrupt C code anyway.
    return bool(verify(expected, value, timeout_seconds=None, allow_set_relation_comp=True))


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
    return _attempt(lambda: _evaluate(expression.doit())) if written is None else written


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


def _differ_somewhere(gold: Any, answer: Any) -> bool:
    """Whether two expressions in variables have clearly different values at both of two points.

    Equal ones never do; the point of asking first is that `simplify` takes a hundred times longer to give up.
    """
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    for start in _POINTS:
        point = {symbol: sympy.Float(start + step * _STEP, _DIGITS) for step, symbol in enumerate(symbols)}
        expected, value = _value(gold.xreplace(point)), _value(answer.xreplace(point))
        if expected is None or value is None or abs(expected - value) <= 1e-6 * max(abs(expected), abs(value)):
            return False
    return True
