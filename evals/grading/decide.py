"""Decide by the cheap stages: text, exact numbers, tolerance. The rest goes to `symbolic`, in a worker.

This module is pure and bounded, so it runs in the caller's process: a training reward on integer answers takes
microseconds and starts no process.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from core.errors import ConfigError
from evals.grading import Rule, structure
from evals.grading.boxes import balanced, last_box
from evals.grading.normalise import COMMAND, LONGEST_ANSWER, WHERE, choice, normalise, words
from evals.grading.numbers import PLAIN, Number, number

NUMERIC = ("integer", "decimal", "scientific", "exact")
# 2,500, 1,234,567 and, as in India, 12,34,567; not 1,25
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:,\d{3})+|(?:,\d{2})+,\d{3})(?![\d,])")
_ROW = re.compile(r"\\begin\{([pbB]?matrix)\}([^\\]*&[^\\]*)\\end\{\1\}")
_UNIT_VECTOR = re.compile(
    r"([-+]?)((?:\([^()]*\)|[^-+()])*?)(?:\\(?:vec|hat|widehat) ?\{?)?\\?([ijk])(?:math)?\}?(?=[-+]|$)"
)
LONGEST_SUM = 200  # characters of a sum of unit vectors: finding one takes quadratic time
_NUMERAL = re.compile(r"\(?(-?[0-9A-F]+)\)?_\{?(-?\d+)\}?")  # 52_8: digits with their base
_LETTER = re.compile(r"[A-Za-z!]")  # a side of an equation that is not only numbers and signs; `!` for 5!=120
_TEXT_ONLY = re.compile(r"\\text\{\w*\}")  # how `normalise` writes an answer in words
_WORD = re.compile(r"[A-Za-z]{2,}|[A-DF-HJ-Za-df-hj-z]")  # no single e, E, i, I: they may be numbers
_MARKUP = re.compile(r"\\(?:text|mbox|mathrm|textbf)\s*\{[^{}]*\}|\\[A-Za-z]+")
_PROSE = re.compile(r"(?<![A-Za-z])[A-Za-z]{2,}(?=\s)")  # a word of plain text; three of them are a sentence
# A control character besides tab and newline, or the rest of a command without its backslash, or without that and its
# first letter (an escape): rac{7}{12}, ext{cm}
_BROKEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f]"
    r"|(?<![\\A-Za-z])(?:[dt]?f?rac|t?ext|d?b?inom|b?egin|b?oxed|qrt|m?athrm|m?athbf|m?box|o?verline)\s*\{"
)
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_CLOCK = re.compile(r"(\d{1,2})(?::(\d{2}))?([ap]m)?")  # 4:30, 4:30pm, 4pm
_RESIDUE = re.compile(  # N\equiv907\pmod{1000}, 907(\bmod1000)
    r"(?:(?P<left>.+)\\equiv ?)?(?P<residue>-?\d+)\(?\\?[pb]?mod ?\{?(?P<modulus>\d+)\}?\)?"
)
# Units of bare letters, and seconds of arc. Not in `normalise`: for a symbolic gold `3m/s` is a quotient of letters.
_BARE_UNIT = re.compile(
    r"(?<=\d)''?|(?<=[\d})])(?:(?:[kcmn]?m|k?g|k?J|k?N|rad)/(?:s|hr?|mol|kg|g|K|m|cm|L)(?:\^[23])?|[kMG]?(?:Hz|eV|Pa))"
)
_HEAD = re.compile(r"([A-Za-z]|\\[A-Za-z]+ ?)\(([A-Za-z](?:,[A-Za-z])*)\)")  # f(x), g(x,y)
# A side that relates unknowns, unlike a quantity with its value: `AB+CD=12`, `\\frac{NO}{BO}=2`
_UNKNOWNS = re.compile(r"[a-z].*[-+]|[-+].*[a-z]|[a-z]\^|\d[a-z]")
_SIGN_OF_RELATION = re.compile(r"[=<>]|\\(?:[lgn]eq|in)(?![A-Za-z])")
_SYMBOL = re.compile(r"\\[A-Za-z]+|[A-Za-z]")
_ONE = Fraction(1)
_PERCENT = Fraction(1, 100)
SIX_DECIMALS = Fraction(1, 2_000_000)  # half a unit of the sixth decimal


class Gold(NamedTuple):
    """A gold answer, read once."""

    text: str  # normalised
    kind: str  # string, integer, decimal, scientific, exact, list, symbolic, unparsed
    tolerance: Fraction | None = None  # absolute, from the item
    multiple: bool = False  # the item requires several comma-separated values
    radians: str | None = None  # normalised with degrees as radians; None where the gold has no angle in degrees


class Decision(NamedTuple):
    """The decision of a stage: whether the answer equals the gold, and by which rule."""

    equal: bool | None  # None: a later stage must decide
    rule: Rule = Rule.STRING


@lru_cache(maxsize=20_000)  # the seven benchmarks have 4411 golds
def gold(answer: str, *, tolerance: str | float | None = None, multiple: bool = False, where: str = "item") -> Gold:
    r"""Read a gold as stored in an items file.

    Raises ConfigError, which names `where`, for a tolerance that is not a positive number.

    >>> gold("142.0").kind, gold("4.5e33").kind, gold(r"\text{Evelyn}").kind, gold("1,-2").kind
    ('integer', 'scientific', 'string', 'list')
    """
    answer = str(answer)  # a trainer may pass a number
    text = normalise(answer)
    if ordinal := _ORDINAL.fullmatch(text):  # a gold 12th, not the product of t and h that an answer may be
        text = ordinal[1]
    try:
        bound = None if tolerance is None else Fraction(str(tolerance))
    except ValueError:
        bound = Fraction(0)
    if bound is not None and bound <= 0:
        raise ConfigError(f"{where}: tolerance: {tolerance!r} is not a positive number")
    if not multiple and number(text):
        text = text.replace(",", "")
    content = last_box(answer) or answer
    sentence = len(_PROSE.findall(_MARKUP.sub(" ", content))) >= 3
    # Control characters, a truncated command, unbalanced braces or a sentence: nothing is repaired, and such a gold is
    # only compared as text.
    if sentence or _BROKEN.search(answer) or balanced(content + "}", 0) != content:
        return Gold(text, "unparsed", bound, multiple)
    return Gold(text, _kind(text, multiple), bound, multiple, _in_radians(answer))


def _kind(text: str, multiple: bool) -> str:
    if _TEXT_ONLY.fullmatch(text):
        return "string"
    value = None if multiple and "," in text else number(text.removesuffix("%"))
    if value is not None:
        return value.form
    return "list" if structure.parse(text.partition(WHERE)[0]).form else "symbolic"


def decide(gold: Gold, answer: str) -> Decision:
    """Return the decision of the cheap stages on a normalised `answer`.

    The result is the same on every machine and under every load, because there is no time limit here.
    """
    # Equal texts first: they are right for every kind of gold, even one that cannot be parsed.
    if answer == gold.text:
        return Decision(True)
    if len(answer) > LONGEST_ANSWER or structure.too_deep(answer):
        return Decision(False, Rule.LENGTH)
    if gold.kind in ("unparsed", "string"):
        return Decision(words(answer) == words(gold.text) if gold.kind == "string" else None)
    used = {Rule.STRING}  # the rules that decided members; the weakest is reported

    def leaf(gold_text: str, answer_text: str) -> bool | None:
        equal, rule = compare_objects(gold_text, answer_text, gold.tolerance)
        used.add(rule)
        return equal

    equal = compare(gold, answer, leaf)
    return Decision(equal, next(rule for rule in (Rule.TOLERANCE, Rule.NUMBER, Rule.STRING) if rule in used))


def compare(gold: Gold, answer: str, leaf: structure.Compare) -> bool | None:
    """Compare `gold` with every reading of `answer`, member by member with `leaf`: True if one reading is equal."""
    numeric = gold.kind in NUMERIC  # then 2,500 is not a list
    if structure.integers(gold.text, answer) is None:
        return False
    gold_text, answer = as_intervals(gold.text, answer)
    expected = structure.Structure(gold_text) if numeric else structure.parse(gold_text)
    undecided = False
    for reading in _readings(answer, gold.kind, ordered=expected.ordered):
        one_number = numeric and number(reading) is not None
        parsed = structure.Structure(reading) if one_number else structure.parse(reading)
        equal = structure.compare(expected, parsed, leaf)
        if equal:
            return True
        undecided |= equal is None
    return None if undecided else False


def _readings(answer: str, kind: str, *, ordered: bool) -> list[str]:
    """Return the possible readings of `answer`: `2,500` is one number or a list of two; 2,74 may be a decimal.

    kind: of the gold. ordered: whether the gold is a point or an interval.
    """
    readings = [_THOUSANDS.sub(lambda match: match.group().replace(",", ""), answer)]
    if kind == "decimal" and re.fullmatch(r"-?\d+,(?!\d{3}$)\d+", answer):
        readings.append(answer.replace(",", "."))
    else:
        readings += [answer, re.sub(r"^(-?\d*\.\d+)\((\d+)\)$", r"\1\\overline{\2}", answer)]  # 0.1(6); or a product
        readings += ordinal.groups() if (ordinal := _ORDINAL.fullmatch(answer)) else ()
    if kind in NUMERIC and (unit := _BARE_UNIT.search(answer)) and unit.end() == len(answer):
        readings.append(answer[: unit.start()])
    if ordered and (point := _as_point(answer)):
        readings.append(point)
    return list(dict.fromkeys(readings))


def _as_point(answer: str) -> str | None:
    r"""Return a row, or a sum of the unit vectors i, j, k in this order, as a point: `3i-k` is (3,0,-1)."""
    if row := _ROW.fullmatch(answer):
        return f"({row[2].replace('&', ',')})"
    terms = list(_UNIT_VECTOR.finditer(answer[:LONGEST_SUM]))
    letters = [term[3] for term in terms]
    if len(terms) < 2 or "".join(term[0] for term in terms) != answer or letters != sorted(set(letters)):
        return None
    members = {term[3]: term[1].replace("+", "") + (term[2].removesuffix("\\cdot ") or "1") for term in terms}
    return f"({','.join(members.get(letter, '0') for letter in 'ijk'[: 3 if 'k' in letters else 2])})"


def as_intervals(gold: str, answer: str) -> tuple[str, str]:
    r"""Return inequalities as intervals, where the other text is an interval or has inequalities of the same variable.

    `x<2\cup x>3` becomes `(-\infty,2)\cup(3,\infty)`; other texts stay unchanged. Both without conditions.
    """
    gold, answer = (text.partition(WHERE)[0] for text in (gold, answer))
    expected, found = structure.as_interval(gold), structure.as_interval(answer)
    # all reals but some numbers are written without a variable, too
    same = expected is not None and found is not None and ("" in (expected[0], found[0]) or expected[0] == found[0])
    return (
        expected[1] if expected and (same or (not found and structure.parse(answer).is_interval)) else gold,
        found[1] if found and (same or (not expected and structure.parse(gold).is_interval)) else answer,
    )


def compare_objects(gold: str, answer: str, tolerance: Fraction | None) -> Decision:
    """Compare two single objects as text and as numbers."""
    if gold == answer:
        return Decision(True)
    for same, rule in ((_same_time, Rule.STRING), (_same_residue, Rule.NUMBER)):
        if (equal := same(gold, answer)) is not None:
            return Decision(equal, rule)
    bare = behind_signs(gold, answer)
    if bare is None:
        if not _SIGN_OF_RELATION.search(answer) and any(
            _UNKNOWNS.search(COMMAND.sub("", side)) for side in structure.sides(gold)[:-1]
        ):
            return Decision(False)  # x+y=5 is not 5
        # Two equations that are not comparable, or plain text that is not a number: against a number it is wrong.
        malformed = PLAIN.fullmatch(answer) and number(gold) is not None
        return Decision(False if malformed else None)
    return _compare_values(*bare, tolerance)


def behind_signs(gold: str, answer: str) -> tuple[str, str] | None:
    """Return the sides left to compare of `x=5` and `5`, or of `y=2x` and `y=3x`; None for other equations.

    One text may name its value (`x=`) when the other does not; where both have names, these must be equal.
    """
    gold_sides = structure.sides(gold)
    answer_sides = _renamed(gold_sides, structure.sides(answer))
    if len(gold_sides) > 1 and len(answer_sides) > 1:
        heads = gold_sides[0], answer_sides[0]  # f(x)=2x is y=2x
        same = len(gold_sides) == len(answer_sides) == 2 and "y" in heads and any(map(_HEAD.fullmatch, heads))
        return (gold_sides[-1], answer_sides[-1]) if same or gold_sides[:-1] == answer_sides[:-1] else None
    if len(gold_sides) > 1:
        calculated = number(gold_sides[-1]) is not None  # z=1+1=2, but not 0=a+b
        named = all(structure.NAMES.fullmatch(side) or (calculated and number(side)) for side in gold_sides[:-1])
        return (gold_sides[-1], answer) if named else None
    if all(_LETTER.search(side) or number(side) for side in answer_sides[:-1]):
        return gold, answer_sides[-1]  # a quantity, `AB+CD=12`, or a calculation, `2+3=5`
    return None


def _renamed(gold: tuple[str, ...], answer: tuple[str, ...]) -> tuple[str, ...]:
    """Return the answer's sides with the gold's letters for the function's arguments: `f(z)=z` is `f(x)=x`."""
    expected, found = _HEAD.fullmatch(gold[0]), _HEAD.fullmatch(answer[0])
    if not (expected and found) or len(gold) < 2 or len(answer) < 2 or expected[1] != found[1]:
        return answer
    new, old = expected[2].split(","), found[2].split(",")
    if new == old or not len(new) == len(old) == len(set(old)) == len(set(new)):
        return answer
    # Both ways: in `f(z)=z+x` the x is another quantity, and must not become the argument. Any remaining letters
    # take the places of those that were used.
    letters = dict(zip(old, new, strict=True))
    letters |= dict(zip((n for n in new if n not in old), (o for o in old if o not in new), strict=True))
    return tuple(_SYMBOL.sub(lambda match: letters.get(match.group(), match.group()), side) for side in answer)


def _same_time(gold: str, answer: str) -> bool | None:
    """Return whether two times of day are equal; None where the gold is not one, or both may be ratios (2:3, 4:6).

    A gold without a.m. or p.m. accepts either; 16:30 is 4:30 p.m. As quotients 12:00 and 1:00 would have no value.
    """
    expected, found = _CLOCK.fullmatch(gold), _CLOCK.fullmatch(answer)
    if expected is None or not (expected[2] or expected[3]):
        return None
    if found is None or not (found[2] or found[3]):
        return False if expected[3] else None
    if any(int(time[1]) > 24 or int(time[2] or 0) > 59 for time in (expected, found)):
        return None
    halves = [time[3] or ("pm" if int(time[1]) > 12 else None) for time in (expected, found)]
    minutes = [int(time[1]) % 12 * 60 + int(time[2] or 0) for time in (expected, found)]
    return minutes[0] == minutes[1] and halves[0] in (None, halves[1])


def _same_residue(gold: str, answer: str) -> bool | None:
    """Return whether two residues, or a residue and a number, are equal; None where neither text is a residue.

    In a comparison with a number only the residue counts: the problem states the modulus.
    """
    if "mod" not in gold and "mod" not in answer:
        return None
    expected, found = _RESIDUE.fullmatch(gold), _RESIDUE.fullmatch(answer)
    if expected and found:
        lefts = {match["left"] for match in (expected, found)} - {None}
        if len(lefts) > 1 and not all(_WORD.fullmatch(left) for left in lefts):
            return None  # 2n and n
        modulus = int(expected["modulus"])
        return modulus == int(found["modulus"]) and (int(expected["residue"]) - int(found["residue"])) % modulus == 0
    residue = expected or found
    other = number(structure.sides(answer if expected else gold)[-1])
    return other.value == int(residue["residue"]) if residue and other else None


def _compare_values(gold: str, answer: str, tolerance: Fraction | None) -> Decision:
    if gold == answer:
        return Decision(True)
    if (bases := _same_numeral(gold, answer)) is not None:
        return Decision(bases)
    gold_number, answer_number = number(gold.removesuffix("%")), number(answer.removesuffix("%"))
    if gold_number and answer_number:
        rule = agree(gold_number, answer_number, tolerance)
        if rule is None and gold.endswith("%") != answer.endswith("%"):  # a percentage is p and p/100
            scales = (_PERCENT, _ONE) if gold.endswith("%") else (_ONE, _PERCENT)
            rule = agree(gold_number, answer_number, tolerance, *scales)
        return Decision(rule is not None, rule or Rule.NUMBER)
    if _TEXT_ONLY.fullmatch(gold) or _TEXT_ONLY.fullmatch(answer):
        return Decision(words(gold) == words(answer))
    # One of the two is not a number. A plain word or digits need no algebra.
    plain = gold_number and (PLAIN.fullmatch(answer) or _WORD.fullmatch(answer))
    return Decision(False if plain else None)


def _same_numeral(gold: str, answer: str) -> bool | None:
    """Compare numerals: a gold `52_8` equals `52_8` and 52 (the problem has the base), not `52_9`; 42 equals `52_8`.

    None where neither text is one, or the base has no digits.
    """
    expected, found = _NUMERAL.fullmatch(gold), _NUMERAL.fullmatch(answer)
    if expected:
        return expected.groups() == found.groups() if found else expected[1] == answer
    value = number(gold)
    if found is None or value is None or not 2 <= int(found[2]) <= 36:
        return None
    try:
        return int(found[1], int(found[2])) == value.value
    except ValueError:  # a digit outside the base
        return False


def agree(
    gold: Number, answer: Number, tolerance: Fraction | None, scale: Fraction = _ONE, other: Fraction = _ONE
) -> Rule | None:
    """Return the rule by which two numbers, each times its scale, agree; None when they do not.

    Integers agree exactly. Decimal and e-notation golds bound the answer by half a unit of their last printed digit
    (`Number.last_digit`), so by at most 5 %; an item's own tolerance replaces that. An exact gold (`1/3`) accepts a
    decimal answer that agrees to six decimals, and to three digits of a tiny value: with only math-verify's six
    decimals, every value below 5e-7 would equal every other.
    """
    value = gold.value * scale
    difference = abs(value - answer.value * other)
    if difference == 0:
        return Rule.NUMBER
    if tolerance is not None:
        return Rule.TOLERANCE if difference <= tolerance else None
    if gold.last_digit is not None:
        return Rule.TOLERANCE if 2 * difference <= gold.last_digit * scale else None
    if value.denominator == 1 or answer.last_digit is None:
        return None
    return Rule.NUMBER if difference <= SIX_DECIMALS * min(_ONE, 1000 * abs(value)) else None


# Angles

_TURN = re.compile(r"(?:\\circ|\\degree|°|(?<![A-Za-z])deg(?:ree)?s?(?![A-Za-z]))")
_TRIGONOMETRY = re.compile(r"(?:sin|cos|tan|cot|sec|csc|cis)(?![A-Za-z])")


def _in_radians(answer: str) -> str | None:
    """Return a raw text normalised with degrees as radians; None where it has no angle in degrees."""
    radians = normalise(answer, radians=True) if _TURN.search(answer) else None
    return None if radians == normalise(answer) else radians


def angles(gold: Gold, answer: str) -> tuple[Gold, str]:
    """Return the gold, and the normalised `answer`, in one unit of angle.

    The degree sign is dropped, like all units, so that 120 and 120 degrees are equal. Where the other text has a pi,
    and for a function's argument, degrees become radians. Text that is nested too deeply stays unchanged.
    """
    if structure.too_deep(answer):
        return gold, answer
    if gold.text in ("A", "B", "C", "D", "E") and (letter := choice(answer)):
        return gold, letter
    text, radians = normalise(answer), _in_radians(answer)
    if radians is None and gold.radians is None:
        return gold, text
    pi = "\\pi" in text or "\\pi" in gold.text
    functions = _TRIGONOMETRY.search(gold.text if radians is None else text) is not None
    # a function of bare numbers next to one of degrees lacks its sign: sin 80 means sin 80 degrees
    lost = None in (radians, gold.radians) and _TRIGONOMETRY.search(text if radians is None else gold.text)
    if not pi and (lost or not functions):
        return gold, text
    if gold.radians is not None:
        gold = gold._replace(text=gold.radians, kind=_kind(gold.radians, gold.multiple))
    return gold, text if radians is None else radians
