"""Compare two expressions by a computer algebra system, the expensive stage. Imported only in a worker process.

LaTeX is parsed by `expressions`, and where that fails by latex2sympy2_extended's grammar; math-verify compares
non-expressions, and pairs that values leave undecided. No text ever reaches `sympify` or `parse_expr`, which evaluate
Python. There is no time limit here: the worker is killed from outside.
"""

import math
import random
import re
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import latex2sympy2_extended.latex2sympy2
import math_verify.parser
import mpmath
import sympy
import sympy.parsing.sympy_parser
import sympy.physics.units  # noqa: F401 - `simplify` imports it late, and loading it evaluates names
from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
from latex2sympy2_extended.latex2sympy2 import ConversionConfig
from math_verify import verify

from evals.grading import Verdict, structure
from evals.grading.decide import SIX_DECIMALS, Gold, agree, as_intervals, behind_signs, compare, compare_objects
from evals.grading.expressions import Power, TooLargeError, read, without_derivatives
from evals.grading.numbers import Number, number

# Units, boxes and decimals are handled before: math-verify's unit rule would drop the t of `\frac{1}{m} t`.
_READING = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none")
_LETTERS = ConversionConfig(lowercase_symbols=False)
# Characters of one object; the longest gold of the seven benchmarks has 210. An explicit bound on parse depth, far
# below the worker's (`worker.RECURSION`): Python's available recursion depth depends on caches.
LONGEST_OBJECT = 600
# Not an object: 3:4:5. Deep without being long: \sin\sin\sin..., ----x, x!!!!!, five primes, and towers of powers.
# Their time and memory depend on caches, so they are recognised by pattern.
_CHAIN = re.compile(r":.*:|(?:\\[A-Za-z]+\s?){13}|[-+]{13}|!{5}|'{5}|\^\{[^{}]*\^\{[^{}]*\^\{[^{}]*\^")
_DIGITS, _MOST_DIGITS = 30, 3000  # of a result, and of the terms where they cancel
_EXACT = 1e-22  # relative: values to 30 digits, less cancelled digits
_SAME = 1e-9  # relative; decimals in an expression carry fifteen digits
_AGREE = 1e-20  # relative; of values of two expressions in variables
# Positive and without a simple relation: roots and logarithms stay real, and sqrt(xy) is sqrt(x)sqrt(y). The first two
# points rule out most wrong answers; only those that agree there need the others.
_POINTS, _STEP = (1.3717, 2.6183, 0.5539, 7.2361), 0.4142
# Functions that can agree at some positive points and differ elsewhere, or that have no value alone.
_UNEVEN = (
    sympy.floor, sympy.ceiling, sympy.frac, sympy.Mod, sympy.Derivative, sympy.Abs, sympy.sign, sympy.Heaviside,
    sympy.Piecewise, sympy.Max, sympy.Min, sympy.re, sympy.im, sympy.arg, sympy.conjugate, sympy.Sum, sympy.Product,
    sympy.Integral, sympy.Limit,
)  # fmt: skip
_LETTER_I = sympy.Symbol("i", real=True)
_INDEXED_NUMBER = re.compile(r"\d\)?_")
_POINT = re.compile(r"\d*\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+")


def _refuse(*_: Any, **__: Any) -> Any:
    raise sympy.SympifyError("text is not evaluated here")


def _sympify_number(value: Any, *arguments: Any, **options: Any) -> Any:
    """Replace `sympify` for sympy's number classes, without `eval` of text: digits and decimals only."""
    if not isinstance(value, str):
        return sympy.sympify(value, *arguments, **options)
    if re.fullmatch(r"\d+", value):
        return sympy.Integer(int(value))
    return sympy.Float(value) if _POINT.fullmatch(value) else _refuse()


def forbid_evaluation() -> None:
    """Remove every path by which sympy runs text as Python. Called once, in the worker."""
    sympy.core.numbers.sympify = _sympify_number
    for module in (sympy.parsing.sympy_parser, latex2sympy2_extended.latex2sympy2, math_verify.parser):
        module.parse_expr = _refuse


def outcome(gold: Gold, answer: str) -> Verdict:
    """Compare a gold with a normalised answer that the cheap stages could not decide."""
    integers = structure.integers(gold.text, answer)
    expected, found = as_intervals(gold.text, answer)

    def leaf(gold_text: str, answer_text: str) -> bool | None:
        equal, _ = compare_objects(gold_text, answer_text, gold.tolerance)
        if equal is None:
            bare = behind_signs(gold_text, answer_text) or (gold_text, answer_text)
            equal = _equal(*bare, gold.tolerance, integers)
        return equal

    equal = compare(gold, answer, leaf)
    # Undecided member by member: the grammar may still parse the whole, such as a union of intervals or an inequality.
    # Of two lists or tuples all members have been compared, so the whole adds nothing.
    if equal is None and {structure.parse(text).form for text in (expected, found)} & {"", structure.UNION}:
        equal = _equal(expected, found, gold.tolerance)
    if equal is None:
        return Verdict.UNPARSED_GOLD if _is_unread(structure.parse(expected)) else Verdict.WRONG
    return Verdict.CORRECT if equal else Verdict.WRONG


def _is_unread(gold: structure.Structure) -> bool:
    """Return whether no parser accepts a gold, or a member of it."""
    return any(map(_is_unread, gold.members)) if gold.form else _attempt(lambda: _parse(gold.text, "")[0]) is None


def _attempt(compute: Callable[[], Any]) -> Any:
    """Return the result, or None where the algebra fails: its errors have no common class.

    Running out of memory or stack is not a failure of the algebra: that error propagates to the worker, which ends.
    """
    try:
        return compute()
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return None


@lru_cache(maxsize=256)  # a gold is compared with many answers
def _by_grammar(text: str) -> Any:
    """Parse a text with the grammar; None when it rejects the text, or would leave out a base."""
    if _INDEXED_NUMBER.search(text):
        return None
    latex = normalize_latex(text, config=_READING)
    parsed = _attempt(lambda: latex2sympy(latex, is_real=True, normalization_config=None, conversion_config=_LETTERS))
    # the grammar parses i as a letter, which it is only as the index of a sum or product
    if isinstance(parsed, sympy.Basic) and parsed.has(_LETTER_I) and not parsed.has(sympy.Sum, sympy.Product):
        return parsed.subs(_LETTER_I, sympy.I)
    return parsed


def _parse(gold: str, answer: str) -> tuple[Any, Any]:
    """Parse two texts with one parser, because the two parsers name letters differently. None for unparsable text."""
    texts = without_derivatives(gold.removesuffix("%"), answer.removesuffix("%"))
    expected, value = map(read, texts)
    if expected is not None and value is not None:
        return expected, value
    value = _by_grammar(texts[1])
    # an unparsable answer is wrong whatever the gold is
    return _by_grammar(texts[0]) if value is not None or expected is None else expected, value


def _equal(gold: str, answer: str, tolerance: Fraction | None, integers: Any = None) -> bool | None:
    """Return whether two texts are equal; None when the gold cannot be parsed. Incomparable texts are not equal."""
    if len(answer) > LONGEST_OBJECT or _CHAIN.search(answer):
        return False
    try:
        expected, value = _parse(gold, answer)
    except TooLargeError:
        return False
    if expected is None or value is None:
        return None if expected is None else False
    gold_number = number(gold.removesuffix("%"))
    same = _attempt(lambda: _same(expected, value, gold_number, tolerance))
    return bool(same or (integers and _attempt(lambda: _same_family(expected, value, *integers))))


def _same(gold: Any, answer: Any, printed: Number | None = None, tolerance: Fraction | None = None) -> bool:
    """Compare two sympy objects: by structure, value, value at some points, expansion, and then math-verify.

    printed: the gold, where it is a number.
    """
    if any(isinstance(side, sympy.Basic) and side.has(sympy.zoo, sympy.nan) for side in (gold, answer)):
        return False  # a quotient by zero equals no other value
    if isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr):
        answer = _in_case_of(gold, answer)
        closed = not (gold.free_symbols or answer.free_symbols)
        same = gold == answer or (
            _same_value(gold, answer, printed, tolerance) if closed else _same_at_points(gold, answer)
        )
        if same is not None:
            return bool(same)
        # Expanding finds equal polynomials; math-verify would compare a lone symbol by its name only.
        if _attempt(lambda: sympy.expand(gold - answer)) == 0:
            return True
    if isinstance(gold, sympy.Eq) and isinstance(answer, sympy.Eq):  # to math-verify all unsolvable equations are equal
        return _proportional(*(sympy.fraction(sympy.together(side.lhs - side.rhs))[0] for side in (gold, answer)))
    # The gold comes first: math-verify is not symmetric. No timeout: its alarm could not interrupt C code anyway.
    return bool(gold == answer or verify(gold, answer, timeout_seconds=None, allow_set_relation_comp=True))


def _in_case_of(gold: Any, answer: Any) -> Any:
    """Return the answer in the gold's capital and small letters, where each text has a letter in one case only."""
    names = {symbol.name.lower(): symbol for symbol in gold.free_symbols}
    renamed = {symbol: names.get(symbol.name.lower(), symbol) for symbol in answer.free_symbols}
    clash = len(names) < len(gold.free_symbols) or len(set(renamed.values())) < len(renamed)
    return answer if clash else answer.xreplace(renamed)


def _proportional(gold: Any, answer: Any) -> bool:
    """Return whether one expression is a constant multiple of the other: f(x) g(y) = f(y) g(x)."""
    others = {symbol: sympy.Symbol(f"{symbol.name}'", real=True) for symbol in gold.free_symbols | answer.free_symbols}
    return gold != 0 and answer != 0 and _same(gold * answer.xreplace(others), gold.xreplace(others) * answer)


def _same_family(gold: Any, answer: Any, gold_letter: str | None, answer_letter: str | None, whole: bool) -> bool:
    """Return whether two expressions in one integer each, which may be different letters, run through the same values.

    gold_letter, answer_letter: as declared; whole: they run through all integers.

    Without a declaration that its letter is an integer, an expression counts as such a family only when it repeats by a
    rational multiple of pi, or by right angles in degrees. Over all integers, `a + bk` may begin at another member and
    run backwards.
    """
    k, sides, steps = sympy.Symbol("k", positive=True), [], []
    for side, declared in ((gold, gold_letter), (answer, answer_letter)):
        found = [symbol for symbol in side.free_symbols if symbol.name == declared]
        found = found or [symbol for symbol in side.free_symbols if symbol.name in "klmn"]
        if len(found) != 1:
            return False
        sides.append(side.xreplace({found[0]: k}))
        steps.append(sympy.diff(sides[-1], k))
    linear = not any(step.has(k) or step == 0 for step in steps)
    turns = linear and all((step / sympy.pi).is_Rational or (step.is_Integer and step % 90 == 0) for step in steps)
    if not (turns or gold_letter or answer_letter):
        return False
    if _same(*sides) or not (linear and whole):
        return _same(*sides)
    apart = (sides[0] - sides[1]).xreplace({k: sympy.Integer(0)})
    turned, offset = (_value(part / steps[0]) for part in (steps[1], apart))
    return bool(abs(abs(turned) - 1) < _EXACT and abs(offset - mpmath.nint(offset.real)) < _EXACT)


def _same_value(gold: Any, answer: Any, gold_number: Number | None, tolerance: Fraction | None) -> bool | None:
    """Compare two closed expressions by their values to 30 digits; None when one of them has no value.

    math-verify rounds absolutely: to it 1/2^1007 and 1/2^1006 are both 0.
    """
    expected, value = _value(gold), _value(answer)
    if expected is None or value is None:
        return None
    printed = gold_number is not None and (tolerance is not None or gold_number.last_digit is not None)
    if gold_number and printed and value.imag == 0 and abs(int(value.real._mpf_[2])) < 100_000:  # else not written out
        exact = Fraction(*map(int, mpmath.libmp.to_rational(value.real._mpf_)))
        return agree(gold_number, Number(exact, "exact"), tolerance) is not None
    difference, size = abs(expected - value), abs(expected)
    if not answer.has(sympy.Float) and not gold.has(sympy.Float):
        return bool(difference <= _EXACT * size) and _confirmed(gold, answer)
    # agreement() in mpmath: a printed decimal matches an exact value to six decimals, never an integer
    whole = expected.imag == 0 and expected.real == mpmath.nint(expected.real)
    allowed = 0 if whole else float(SIX_DECIMALS) * min(1, 1000 * size)
    return bool(difference <= max(allowed, _SAME * size))


def _confirmed(gold: Any, answer: Any) -> bool:
    """Return whether two exact expressions that agree to many digits are equal: x^40 + 1 and x^40 + 2 agree too.

    Sums, products and integer powers are computed modulo a large prime derived from the expressions, with other parts
    as letters. Equal remainders prove equality, up to a chance of 2^-100; different ones prove inequality, unless those
    parts are related. Then as many digits are compared as the numbers in the expressions can cancel, and a case that
    would need too many is refused.
    """
    rng = random.Random(hash((gold, answer)))  # the same in every worker: they have one hash seed
    prime = sympy.nextprime(2**127 + rng.getrandbits(120))
    letters: dict[Any, int] = defaultdict(lambda: rng.randrange(prime))
    remainders = _attempt(lambda: [_remainder(side, prime, letters) for side in (gold, answer)])
    if remainders and (remainders[0] == remainders[1] or all(letter.is_Symbol for letter in letters)):
        return bool(remainders[0] == remainders[1])
    digits = _attempt(lambda: _DIGITS + int(_cancelled(gold) + _cancelled(answer)))
    if digits is None or digits > _MOST_DIGITS:
        return False
    point = _point(gold, answer, _POINTS[0], digits)
    expected, value = (_value(side.xreplace(point), digits) for side in (gold, answer))
    with mpmath.workdps(digits):
        return bool(abs(expected - value) <= mpmath.mpf(10) ** (8 - digits) * abs(expected))


def _remainder(expression: Any, prime: int, letters: dict[Any, int]) -> int:
    """Return the value modulo `prime`; raise ValueError for a quotient by a multiple of it."""
    parts = expression.args
    if expression.is_Rational:
        return int(expression.p) * pow(int(expression.q), -1, prime) % prime
    if expression.is_Add or expression.is_Mul:
        values = [_remainder(part, prime, letters) for part in parts]
        return (sum(values) if expression.is_Add else math.prod(values)) % prime
    if isinstance(expression, (sympy.Pow, Power)) and parts[1].is_Integer:
        return pow(_remainder(parts[0], prime, letters), int(parts[1]), prime)
    return letters[expression]


def _cancelled(expression: Any) -> float:
    """Return a bound on the digits that can cancel in a sum of such expressions: those of its numbers, times powers."""
    if expression.is_Rational:
        return 0.302 * (int(expression.p).bit_length() + int(expression.q).bit_length())
    if isinstance(expression, (sympy.Pow, Power)) and expression.args[1].is_Rational:
        return _cancelled(expression.args[0]) * max(1.0, float(abs(expression.args[1])))
    closed = expression.args and not (expression.free_symbols or expression.is_Add or expression.is_Mul)
    size = _value(expression, 5) if closed else 1
    return 1.0 + (float(abs(mpmath.log10(abs(size)))) if size else 0.0) + sum(map(_cancelled, expression.args))


def _value(expression: Any, digits: int = _DIGITS) -> Any:
    """Return the complex value (mpmath) of a closed expression, None when it has none."""

    def evaluate(written: Any) -> Any:
        parts = written.evalf(digits, maxn=_MOST_DIGITS, strict=True).as_real_imag()
        if not all(part.is_Float or part.is_Rational for part in parts):
            raise ValueError("no number")
        with mpmath.workdps(digits):
            return mpmath.mpc(*(part._to_mpmath(mpmath.mp.prec) for part in parts))

    value = _attempt(lambda: evaluate(expression))
    return value if value is not None else _attempt(lambda: evaluate(expression.doit()))


def _same_at_points(gold: Any, answer: Any) -> bool | None:
    """Return whether two expressions in variables agree at some points; None when that is inconclusive.

    Different: clearly so at the first two points; equal expressions never are. Equal: to twenty digits at all points,
    unless one of them is piecewise or has no value alone (`_UNEVEN`). This runs first because
    `simplify` takes a hundred times longer to fail, and has no assumption of positive numbers.
    """
    agreeing: list[bool] = []
    for start in _POINTS:
        point = _point(gold, answer, start, _DIGITS)
        expected, value = _value(gold.xreplace(point)), _value(answer.xreplace(point))
        if expected is None or value is None:
            return None
        difference, size = abs(expected - value), max(abs(expected), abs(value))
        agreeing.append(difference <= _AGREE * size)
        if len({*agreeing}) > 1 or not (agreeing[-1] or difference > 1e-6 * size):
            return None
        if agreeing == [False, False]:
            return False
    if gold.has(*_UNEVEN) or answer.has(*_UNEVEN):
        return None
    return gold.has(sympy.Float) or answer.has(sympy.Float) or _confirmed(gold, answer)


def _point(gold: Any, answer: Any, start: float, digits: int) -> dict[Any, Any]:
    """Return a value for every letter of two expressions, the same for letters of one name."""
    symbols = gold.free_symbols | answer.free_symbols
    names = sorted({symbol.name for symbol in symbols})
    return {symbol: sympy.Float(start + names.index(symbol.name) * _STEP, digits) for symbol in symbols}
