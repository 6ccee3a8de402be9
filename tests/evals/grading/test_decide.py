r"""The cheap stages on invented golds: what they accept, what they reject, what they leave to algebra."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from evals.grading.decide import decide, gold
from evals.grading.normalise import normalise
from evals.grading.numbers import number
from records.errors import ConfigError

SAME = {
    "float integer": ("17", "17.0"),
    "gold is a float integer": ("31.0", "31"),
    "leading zero": ("42", "042"),
    "plus sign": ("+3", "3"),
    "unicode minus": ("-3", "−3"),
    "thousands comma": ("12345", "12,345"),
    "thousands brace": ("12345", "12{,}345"),
    "thousands thin space": ("1234567", r"1\,234\,567"),
    "thousands space": ("12345", "12 345"),
    "gold with comma": ("41,700", "41700"),
    "gold with comma and thin space": (r"52,\!417", "52417"),
    "scientific integer": ("12000", r"1.2 \times 10^{4}"),
    "dollars": ("$5$", "5"),
    "inline math": (r"\(5\)", "5"),
    "display math": ("\\[\n5\n\\]", "5"),
    "box inside": (r"\(\boxed{5}\)", "5"),
    "trailing dot": ("5", "5."),
    "x =": ("5", "x = 5"),
    "gold x =": ("x=5", "5"),
    "f(x) =": ("$f(x)=2x$", "2x"),
    "sum written out": ("5", "2+3=5"),
    "quantity named by an expression": ("12", "AB+CD=12"),
    "dfrac": (r"\frac{3}{7}", r"\dfrac{3}{7}"),
    "frac without braces": (r"\frac37", r"\frac{3}{7}"),
    "frac half braces": (r"\frac{37}8", r"\frac{37}{8}"),
    "slash": (r"\frac{3}{7}", "3/7"),
    "unreduced": (r"\frac{3}{7}", r"\frac{6}{14}"),
    "minus in front": (r"-\frac{3}{7}", r"\frac{-3}{7}"),
    "mixed number": (r"\frac{11}{4}", r"2\frac{3}{4}"),
    "six decimals": (r"\frac{1}{7}", "0.142857"),
    "repeating decimal": (r"\frac{1}{6}", r"0.1\overline{6}"),
    "gold is a repeating decimal": (r"0.\overline{45}", r"\frac{5}{11}"),
    "number as text": ("-1", r"\text{-1}"),
    "number and unit as text": ("12", r"\text{12 cm}"),
    "empty set": (r"\emptyset", r"\varnothing"),
    "power": ("2^{10}", "1024"),
    "text unit": ("12", r"12 \text{ cm}"),
    "gold with unit": (r"12\mbox{ m}^2", "12"),
    "roman unit": ("25", r"25~\mathrm{km}/\mathrm{h}"),
    "word unit": ("12", "12 inches"),
    "compound unit": ("3", r"3 \mathrm{~m} \mathrm{~s}^{-1}"),
    "degrees": (r"35^\circ", "35"),
    "degrees braced": ("35", r"35^{\circ}"),
    "degree sign": ("35", "35°"),
    "celsius": (r"21^{\circ} \mathrm{C}", "21"),
    "money": (r"\$7.50", "7.5"),
    "decimal without zero": (".25", "0.25"),
    "percent": (r"37.5\%", "37.5%"),
    "percent as number": ("37.5%", "37.5"),
    "percent as hundredths": ("37.5%", "0.375"),
    "percent as fraction": ("37.5%", r"\frac{3}{8}"),
    "percent on the answer": ("12", r"12\%"),
    "percent word": ("12", r"12 \text{ percent}"),
    "e-notation": ("3.7e21", r"3.7\times10^{21}"),
    "e-notation cdot": ("3.7e21", r"3.7 \cdot 10^{21}"),
    "e-notation star": ("3.7e21", "3.7*10^21"),
    "e-notation small": ("3.7e-21", r"3.7 \times 10^{-21}"),
    "e-notation written out": ("3.7e5", "370000"),
    "e-notation capital": ("3.7e5", "3.7E5"),
    "power of ten": ("1e-5", "10^{-5}"),
    "within half a digit": ("0.33", r"\frac{1}{3}"),
    "within half a digit, scientific": ("2.19e6", "2.192e6"),
    "edge of half a digit": ("0.25", "0.255"),
    "list order": ("3, 5, 7", "7,3,5"),
    "list and": ("1,-2", r"-2 \text{ and } 1"),
    "list or": ("1,-2", "x=1 or x=-2"),
    "list as set": ("1,-2", r"\{-2, 1\}"),
    "list with thousands": ("2500,7500", "7,500, 2,500"),
    "list in dollars": ("$8$,$251$", "251, 8"),
    "double root": ("-3,-3", "-3"),
    "plus minus": (r"1 \pm \sqrt{3}", r"1-\sqrt{3}, 1+\sqrt{3}"),
    "tuple": ("(3, -13)", r"\left(3,-13\right)"),
    "tuple of fractions": (r"(\frac{3}{2},1)", "(1.5,1)"),
    "tuple without brackets": ("(6,5)", "6,5"),
    "named tuple": ("(1,2)", "(x,y)=(1,2)"),
    "interval": ("(2,7]", r"\left(2,7\right]"),
    "interval x in": ("[-2,7]", r"x \in [-2,7]"),
    "union order": (r"(0,9) \cup (9,36)", r"(9,36)\cup(0,9)"),
    "tuples in any order": ("(1,2),(3,4)", "(3,4), (1,2)"),
    "words": (r"\text{Marta}", "Marta"),
    "words case": (r"\text{even}", r"\textbf{Even}"),
    "choice": (r"\text{(C)}", "C"),
    "base": ("52_8", "52_{8}"),
    "base left out": ("52_8", "52"),
    "less or equal": (r"k \leqslant 2", r"k\le 2"),
}
OTHER = {
    "sign within text": ("1", r"\text{-1}"),
    "plus one": ("17", "18"),
    "close integer": ("10000", "9999"),
    "close integer with separators": ("10{,}000", "9,999"),
    "decimal near an integer": ("10000", "10000.4"),
    "tiny excess": ("17", "17.0000001"),
    "tower": ("5", "9^{9^{9}}"),
    "beyond half a digit": ("0.33", "0.336"),
    "beyond half a digit, scientific": ("2.19e6", "2.196e6"),
    "tiny numbers": ("4.6e-24", "1.0e-24"),
    "exponent": ("3.7e21", "3.7e20"),
    "two decimals of a fraction": (r"\frac{1}{3}", "0.33"),
    "other sign": (r"-\frac{3}{7}", r"\frac{3}{7}"),
    "fraction upside down": (r"\frac{3}{7}", r"\frac{7}{3}"),
    "tiny fractions": (r"\frac{1}{2^{1007}}", r"\frac{1}{2^{1006}}"),
    "percent": ("37.5%", "3.75"),
    "list too short": ("1,-2", "1"),
    "list too long": ("1,-2", "1,-2,3"),
    "list for a number": ("10", "10,11"),
    "number and its digits": ("1234", "1,2,3,4"),
    "tuple order": ("(3,-13)", "(-13,3)"),
    "interval ends": ("(2,7]", "[2,7]"),
    "tuple for a number": ("3", "(3,4)"),
    "other word": (r"\text{Marta}", r"\text{Martin}"),
    "word for a number": ("7", r"\text{seven cats}"),
    "letter for a number": ("7", "n"),
    "unfinished sum": ("7", "3+4="),
    "question": ("7", "7+?"),
    "unknown": ("7", "x-7"),
    "sum without a side": ("7", "=7+x"),
    "base": ("52_8", "52_9"),
    "wrong side of the sum": ("5", "5+3=8"),
}
LEFT = {
    "Euler's number in roman": ("2", r"2\mathrm{e}"),
    "imaginary unit in roman": ("3", r"3\mathrm{i}"),
    "unit vectors": (r"a+2\mathbf{j}", r"a+2\mathbf{k}"),
    "roots": (r"\sqrt{8}", r"2\sqrt{2}"),
    "order of terms": ("6-5i", "-5i+6"),
    "factorial": ("120", "5!"),
    "decimal gold, root": ("1.41", r"\sqrt{2}"),
    "equations": ("x+y=1", "y=1-x"),
}


@pytest.mark.parametrize(("stored", "answer"), SAME.values(), ids=SAME)
def test_same_is_accepted(stored: str, answer: str) -> None:
    found = decide(gold(stored), normalise(answer))
    assert found is not None
    assert found.equal


@pytest.mark.parametrize(("stored", "answer"), OTHER.values(), ids=OTHER)
def test_other_is_rejected(stored: str, answer: str) -> None:
    found = decide(gold(stored), normalise(answer))
    assert found is not None
    assert not found.equal


@pytest.mark.parametrize(("stored", "answer"), LEFT.values(), ids=LEFT)
def test_algebra_is_left_to_a_worker(stored: str, answer: str) -> None:
    assert decide(gold(stored), normalise(answer)) is None


TOLERANCE: dict[str, tuple[dict[str, Any], str, str, bool]] = {
    "the item's own": ({"tolerance": "1e-1"}, "4.2", "4.3", True),
    "the item's own, beyond": ({"tolerance": "1e-1"}, "4.2", "4.31", False),
    "the item's own is narrower": ({"tolerance": "0.001"}, "4.2", "4.24", False),
    "never by itself on integers": ({}, "30000", "30001", False),
    "float gold is an integer": ({}, "30.0", "30.04", False),
    "list when the item says so": ({"multiple": True}, "1,234", "234, 1", True),
    "else a thousands separator": ({}, "1,234", "1234", True),
}


@pytest.mark.parametrize(("options", "stored", "answer", "equal"), TOLERANCE.values(), ids=TOLERANCE)
def test_what_the_item_says(options: dict[str, Any], stored: str, answer: str, equal: bool) -> None:
    found = decide(gold(stored, **options), normalise(answer))
    assert found is not None
    assert found.equal == equal


KINDS = {
    "17": "integer", "142.0": "integer", "58,500": "integer", "0.15": "decimal", "4.5e33": "scientific",
    r"\frac{3}{7}": "exact", "10^{2}": "exact", "1,-2": "list", "(2,7]": "list", r"1 \pm \sqrt{3}": "list",
    r"\text{Marta}": "string", r"\sqrt{2}": "symbolic", "x=5": "symbolic", "62.5%": "decimal",
    r"\frac{11}{2^{20}": "unparsed", "\x0crac{7}{12}": "unparsed", "a}b": "unparsed",
    "The least value of the sum is 248.": "unparsed",
}  # fmt: skip


@pytest.mark.parametrize(("stored", "kind"), KINDS.items())
def test_every_gold_has_a_kind(stored: str, kind: str) -> None:
    assert gold(stored).kind == kind


def test_a_malformed_gold_is_compared_as_text_and_never_repaired() -> None:
    broken = gold(r"\frac{11}{2^{20}")
    assert decide(broken, normalise(r"\frac{11}{2^{20}}")) is None
    assert decide(broken, normalise(r"\frac{11}{2^{20}")).equal  # type: ignore[union-attr]


@pytest.mark.parametrize("options", [{"tolerance": "wide"}, {"tolerance": "-1"}], ids=str)
def test_options_that_mean_nothing_are_errors(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        gold("4.2", **options)


NUMBERS = {
    "2+3*4": Fraction(14),
    "(2+3)*4": Fraction(20),
    "-2^2": Fraction(-4),
    "2^{-3}": Fraction(1, 8),
    r"\frac{1+1}{3}": Fraction(2, 3),
    r"2\frac{3}{4}": Fraction(11, 4),
    r"2\frac{5}{4}": Fraction(5, 2),  # no mixed number: a product
    r"3\cdot 4": None,  # a blank is left where normalisation has not run
    "10^{10^{9}}": None,
    "1/0": None,
    "0^0": None,
    "1..2": None,
    "": None,
}


@pytest.mark.parametrize(("text", "value"), NUMBERS.items())
def test_exact_values(text: str, value: Fraction | None) -> None:
    found = number(text)
    assert (found and found.value) == value


@pytest.mark.parametrize("text", [r"$\dfrac12\text{ cm}$", "10{,}000", r"x \in [-2,7]", r"\{1\pm\sqrt5,-2\}", "1 000"])
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)
