"""Check the grader on rewritten golds: what says the same must be accepted, what says something else rejected.

    python -m tests.evals.grading.rewritten_golds --data DIR                every gold of every benchmark found there
    python -m tests.evals.grading.rewritten_golds --data DIR --every 10     every tenth gold

Every gold of the benchmarks is rewritten by rules that the grader has too, so this finds golds that are read in an odd
way, and says nothing about spellings that the rules do not make. For those there are `tests/evals/grading/cases`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from core import errors
from core.errors import MissingInputError, Parser, whole
from core.progress import Progress
from evals import data
from evals.benchmark import Item, keys, select
from evals.grading import Verdict, structure
from evals.grading.decide import Gold, gold
from evals.grading.grader import Grader, Question
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


@dataclass
class Rates:
    """How the rewritten golds of one benchmark fared: pairs of (as wanted, all)."""

    golds: int
    accept: tuple[int, int]  # rewritings that say the same, and are accepted
    reject: tuple[int, int]  # texts that say something else, and are rejected
    reject_integers: tuple[int, int]  # the same for integer golds alone
    unparsed: list[str]  # item_ids
    failures: list[tuple[str, str, str, str, str]]  # item_id, gold, rewriting, text, verdict


def check(items: Sequence[Item], grader: Grader, *, label: str = "rewritten") -> Rates:
    """Grade every rewriting of every gold, except those equal to the gold's own text, which would prove nothing."""
    unparsed = []
    cases: list[tuple[Item, Gold, str, str, bool]] = []
    for item in items:
        target = gold(item.answer, tolerance=item.tolerance, multiple=item.multiple)
        if target.kind == "unparsed":
            unparsed.append(item.item_id)
            continue
        cases += [(item, target, name, text, True) for name, text in same(target) if text != target.text]
        cases += [(item, target, name, text, False) for name, text in different(target)]
    questions = [Question(target, f"so \\boxed{{{text}}}.") for _, target, _, text, _ in cases]
    progress = Progress(label, len(questions))
    grades = grader.grade(questions, report=progress.update)
    accept, reject, reject_integers = [], [], []
    failures = []
    for (item, target, name, text, equal), grade in zip(cases, grades, strict=True):
        right = (grade.verdict is Verdict.CORRECT) == equal
        if equal:
            accept.append(right)
        else:
            reject.append(right)
            if target.kind == "integer":
                reject_integers.append(right)
        if not right:
            failures.append((item.item_id, item.answer, name, text, str(grade.verdict)))
    return Rates(
        golds=len(items),
        accept=(sum(accept), len(accept)),
        reject=(sum(reject), len(reject)),
        reject_integers=(sum(reject_integers), len(reject_integers)),
        unparsed=unparsed,
        failures=failures,
    )


def _percent(share: tuple[int, int]) -> str:
    part, whole = share
    return f"{part}/{whole} {100 * part / whole:.2f}%" if whole else "-"


def main() -> int:
    parser = Parser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder with <benchmark>.jsonl")
    parser.add_argument("--benchmarks", nargs="+", metavar="KEY", help="default: all that are found")
    parser.add_argument("--every", type=whole(1), default=1, metavar="N", help="take every N-th gold")
    parser.add_argument("--failures", type=whole(0), default=20, metavar="N", help="failures to print per benchmark")
    args = parser.parse_args()
    benchmarks = select(args.benchmarks or keys())
    if not args.benchmarks:
        benchmarks = tuple(b for b in benchmarks if data.path_in(args.data, b))
    if not benchmarks:
        raise MissingInputError(f"{args.data}: no benchmark's items; run: python -m evals.fetch --data {args.data}")
    print(f"{'benchmark':<14} {'golds':>5}  {'accept':>15}  {'reject':>15}  {'reject integers':>17}  unparsed golds")
    with Grader() as grader:
        for benchmark in benchmarks:
            items = data.load(benchmark, args.data)[:: args.every]
            rates = check(items, grader, label=f"rewritten {benchmark.key}")
            print(
                f"{benchmark.key:<14} {rates.golds:>5}  {_percent(rates.accept):>15}  {_percent(rates.reject):>15}"
                f"  {_percent(rates.reject_integers):>17}  {len(rates.unparsed)}"
            )
            for failure in rates.failures[: args.failures]:
                print("   ", *(part if len(part) < 90 else part[:87] + "..." for part in failure), sep="  ")
    return 0


if __name__ == "__main__":
    errors.run(main)
