"""Rewrite golds: texts that mean the same, which a grader must accept, and texts that do not.

The grader has the same rules, so this finds golds that are read in an odd way, and no spellings that the rules do not
make. For those there are `tests/evals/grading/cases`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from evals.grading import structure
from evals.grading.decide import Gold
from evals.grading.numbers import number

# Each function takes a gold and yields (name, text) pairs, chosen by what kind of gold it is.

Pair = tuple[str, str]

LONGEST = 600  # characters of a value; longer ones are not rewritten

_RELATION = re.compile(
    r"[=<>]|\\(?:n?leq|geq|neq|in|equiv|sim|approx|begin|cup|subset|colon|pmod|text|mathbb)(?![A-Za-z])"
)
_NUMERAL = re.compile(r"\d+_.*")
_NUMERIC = ("integer", "decimal", "scientific", "exact")


def same(gold: Gold) -> Iterator[Pair]:
    """Texts that say what the gold says."""
    text = gold.text
    yield "dollars", f"${text}$"
    yield "sentence dot", f"{text}."
    if "\\frac" in text:
        yield "dfrac", text.replace("\\frac", "\\dfrac")
        yield "tfrac spaced", text.replace("\\frac{", "\\tfrac { ").replace("}{", " } { ")
    if gold.kind in _NUMERIC:
        yield from _same_number(gold)
    elif gold.kind == "list":
        yield from _same_list(text)
    elif gold.kind == "string":
        word = text.removeprefix("\\text{").removesuffix("}")
        yield "bare word", word
        yield "capital word", f"\\textbf{{{word.title()}}}"
    elif gold.kind == "symbolic" and not (_RELATION.search(text) or _NUMERAL.fullmatch(text)):
        yield "x =", f"x={text}"
        if len(text) > 1 and "\\pm" not in text:
            yield "parentheses", f"\\left({text}\\right)"
            yield "twice the half", f"\\frac{{2\\left({text}\\right)}}{{2}}"


def _same_number(gold: Gold) -> Iterator[Pair]:
    text = gold.text.removesuffix("%")
    if gold.text.endswith("%"):
        yield "percent sign", f"{text}\\%"
        yield "without percent sign", text
        yield "hundredths", _decimal(Fraction(text) / 100)
        return
    parsed = number(text)
    assert parsed is not None  # the gold is of a numeric kind
    yield "x =", f"x = {text}"
    yield "unit", f"{text}\\text{{ cm}}"
    yield "unit squared", f"{text} \\mathrm{{~cm}}^2"
    if len(str(parsed.value)) < LONGEST:
        yield "twice the half", _fraction(2 * parsed.value.numerator, 2 * parsed.value.denominator)
    if parsed.form == "integer":
        yield from _same_integer(int(parsed.value))
    if parsed.form == "decimal":
        yield "trailing zero", f"{text}0"
    if parsed.form == "exact" and parsed.value.denominator > 1 and len(str(parsed.value)) < LONGEST:
        yield "slash", f"{parsed.value.numerator}/{parsed.value.denominator}"
        # tiny values must agree to three digits as well, which eight decimals may not show (`decide.agreement`)
        if 1000 * abs(parsed.value) > 1 and (decimals := _rounded(parsed.value, 8)).rstrip("0")[-1] != ".":
            yield "eight decimals", decimals
    if parsed.form in ("decimal", "scientific"):
        yield from _scientific(parsed.value)
        if abs(parsed.value) > Fraction(1, 10**40):
            yield "digits", _decimal(parsed.value)


def _same_integer(value: int) -> Iterator[Pair]:
    yield "n.0", f"{value}.0"
    if abs(value) < 1000:
        return
    yield "thousands comma", f"{value:,}"
    yield "thousands brace", f"{value:,}".replace(",", "{,}")
    yield "thousands thin space", f"{value:,}".replace(",", "\\,")
    if len(str(abs(value))) < 300:
        yield from _scientific(Fraction(value))


def _same_list(text: str) -> Iterator[Pair]:
    yield "spaced commas", re.sub(r",(?=[^\d]|\d{1,2}(?!\d))", ", ", text)
    parsed = structure.parse(text)
    if parsed.ordered and text[0] in "([":
        yield "sized brackets", f"\\left{text[0]}{text[1:-1]}\\right{text[-1]}"
    elif parsed.form == structure.LIST and "\\pm" not in text:
        parts = structure.split(text)
        yield "other order", ", ".join(reversed(parts))
        yield "as a set", f"\\{{{', '.join(parts)}\\}}"
        yield "and", f"{', '.join(parts[:-1])} \\text{{ and }} {parts[-1]}"


def different(gold: Gold) -> Iterator[Pair]:
    """Texts that say something else."""
    text = gold.text
    if gold.kind == "string":
        yield "other word", "\\text{otherwise}"
    elif gold.kind in _NUMERIC and not gold.text.endswith("%"):
        yield from _different_number(gold)
    elif gold.kind == "list":
        yield from _different_list(text)
    elif gold.kind == "symbolic" and not _RELATION.search(text) and "\\pm" not in text:
        yield "gold + 1", f"{text}+1"
        yield "twice", f"2\\left({text}\\right)"


def _different_number(gold: Gold) -> Iterator[Pair]:
    parsed = number(gold.text)
    assert parsed is not None
    if parsed.form == "integer":
        value = int(parsed.value)
        yield "gold + 1", str(value + 1)
        yield "gold - 1", str(value - 1)
        digits = str(value)
        for place in range(min(len(digits), 12)):
            if digits[place].isdigit():
                changed = (int(digits[place]) + 3) % 10
                yield "changed digit", f"{digits[:place]}{changed}{digits[place + 1 :]}"
        yield "gold + 1/2", f"{value}.5"
        yield "gold + 1e-6", _decimal(parsed.value + Fraction(1, 10**6))
        yield "ten times", str(value * 10 or 10)
        return
    if parsed.last_digit is not None:
        # twice the tolerance: half a unit of the last printed digit, or the item's own
        step = max(parsed.last_digit, 2 * (gold.tolerance or 0))
        yield "gold + 1 unit", _fraction_of(parsed.value + step)
        yield "ten times", _fraction_of(parsed.value * 10)
        yield "other sign", _fraction_of(-parsed.value)
        return
    if len(str(parsed.value)) > LONGEST:
        return
    yield "numerator + 1", _fraction(parsed.value.numerator + 1, parsed.value.denominator)
    yield "gold + 1", _fraction_of(parsed.value + 1)
    yield "other sign", _fraction_of(-parsed.value)


def _different_list(text: str) -> Iterator[Pair]:
    parsed = structure.parse(text)
    if parsed.ordered and text[0] in "([":
        parts = structure.split(text[1:-1])
        if parts != parts[::-1]:
            yield "other order", f"{text[0]}{','.join(reversed(parts))}{text[-1]}"
        place = next(index for index, part in enumerate(parts) if "\\infty" not in part)
        changed = [*parts[:place], f"{parts[place]}+1", *parts[place + 1 :]]
        yield "one member + 1", f"{text[0]}{','.join(changed)}{text[-1]}"
    elif parsed.form == structure.LIST and "\\pm" not in text:
        parts = structure.split(text)
        if len(set(parts)) > 1:
            yield "one member missing", ",".join(part for part in parts if part != parts[-1])
        yield "one member more", ",".join([*parts, "98765"])


def _fraction(numerator: int, denominator: int) -> str:
    sign = "-" if numerator * denominator < 0 else ""
    return f"{sign}\\frac{{{abs(numerator)}}}{{{abs(denominator)}}}"


def _fraction_of(value: Fraction) -> str:
    return _fraction(value.numerator, value.denominator)


def _scientific(value: Fraction) -> Iterator[Pair]:
    """`a \\times 10^{b}` and `aeb` for a value that is a finite decimal."""
    if value == 0:
        return
    digits, exponent = _digits(value)
    mantissa = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
    sign = "-" if value < 0 else ""
    yield "times ten to the", f"{sign}{mantissa} \\times 10^{{{exponent}}}"
    yield "e-notation", f"{sign}{mantissa}e{exponent}"


def _digits(value: Fraction) -> tuple[str, int]:
    """Significant digits of a finite decimal, and the power of ten of the first."""
    places = 0
    scaled = abs(value)
    while scaled.denominator != 1:
        scaled, places = scaled * 10, places + 1
    digits = str(scaled.numerator)
    return digits.rstrip("0"), len(digits) - 1 - places


def _decimal(value: Fraction) -> str:
    """A finite decimal written out."""
    digits, exponent = _digits(value) if value else ("0", 0)
    places = max(0, len(digits) - 1 - exponent)
    return _rounded(value, places)


def _rounded(value: Fraction, places: int) -> str:
    whole = round(abs(value) * 10**places)
    digits = str(whole).rjust(places + 1, "0")
    sign = "-" if value < 0 and whole else ""
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)
