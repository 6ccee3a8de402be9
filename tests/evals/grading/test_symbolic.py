r"""What algebra decides, through real workers: accepted, rejected, and golds that no reader reads."""

from __future__ import annotations

import pytest

from evals.grading import expressions, symbolic
from evals.grading.decide import gold
from evals.grading.grader import Grader, Question
from evals.grading.pool import QUICK
from evals.grading.verdict import Rule, Verdict

SAME = {
    "root": (r"\sqrt{8}", r"2\sqrt{2}"),
    "root as power": (r"\sqrt{7}", "7^{1/2}"),
    "order of terms": (r"\frac{5+3b}{7}", r"\frac{3b+5}{7}"),
    "expanded": ("(a+2)(b+3)", "ab+3a+2b+6"),
    "complex": ("6-5i", "-5i+6"),
    "complex with root": (r"-8-8 \sqrt{3} i", r"-8 - 8i\sqrt{3}"),
    "complex product": ("(1+2i)(1-2i)", "5"),
    "trigonometry": (r"\tan x", r"\frac{\sin x}{\cos x}"),
    "logarithm": (r"\log_{10} 250", r"\frac{\ln 250}{\ln 10}"),
    "exponential": (r"\frac{1}{2a}(\exp{a*t} - \exp{-a*t})", r"\frac{e^{at}-e^{-at}}{2a}"),
    "code-like": ("np.arcsin(10/13)", r"\arcsin\frac{10}{13}"),
    "binomial": (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"),
    "number times binomial": (r"3\binom{5}{2}", "30"),
    "factorial": ("120", "5!"),
    "power of a factorial": (r"\frac{1}{4!^{2}}", r"\frac{1}{576}"),
    "decimal for a root": (r"\sqrt{2}", "1.414214"),
    "root for a decimal": ("1.41", r"\sqrt{2}"),
    "pi": (r"\frac{20000}{\pi}", r"20000\pi^{-1}"),
    "matrix": (r"\begin{pmatrix} 1/5 \\ -18/5 \end{pmatrix}", r"\begin{pmatrix}0.2\\-3.6\end{pmatrix}"),
    "inequality": (r"x \le 3", r"(-\infty,3]"),
    "interval as inequality": (r"[1,\infty)", r"x \geq 1"),
    "factorial written out": ("120", "5!=120"),
    "inequality turned": ("k>3", "3<k"),
    "equation": ("5x - 7y + 4 = 0", "5x=7y-4"),
    "union in pieces": (r"(0,1)\cup[1,2)", "(0,2)"),
    "list of roots": (r"1,\sqrt{12}", r"2\sqrt3, 1"),
    "tuple of roots": (r"(\sqrt{12},0)", r"(2\sqrt3,0)"),
    "plus minus inside": (r"\frac{-4 \pm \sqrt{28}}{2}", r"-2+\sqrt{7},-2-\sqrt{7}"),
    "index": (r"\frac{1}{3} E_{1}+\frac{2}{3} E_{2}", r"\frac{E_1+2E_2}{3}"),
    "lone symbol": (r"\alpha", r"\frac{2\alpha}{2}"),
    "gamma": (r"\gamma^{2}-1", r"(\gamma-1)(\gamma+1)"),
    "large powers": (r"2^{2^{100}}", r"4^{2^{99}}"),
    "large powers of a sum": (r"(x+1)^{40}+1", r"1+(1+x)^{40}"),
    "large powers of roots": (r"(1+\sqrt2)^{60}", r"(3+2\sqrt2)^{30}"),
    "letter in another case": ("Ce^{2x}", "ce^{2x}"),
    "far too large to write out": (r"\frac{1}{2014!^{2014}}", r"2014!^{-2014}"),
}  # fmt: skip
OTHER = {
    "morning and evening": (r"6 \text{ p.m.}", r"6 \text{ a.m.}"),
    "Euler's number in roman": ("2", r"2\mathrm{e}"),
    "unit vectors": (r"a+2\mathbf{j}", r"a+2\mathbf{k}"),
    "root": (r"\sqrt{8}", r"2\sqrt{3}"),
    "variables": ("y=2x", "x=2y"),
    "unit that is a variable": (r"\frac{1}{m} t", r"\frac{1}{m}"),
    "tiny": (r"\frac{\pi}{2^{1007}}", r"\frac{\pi}{2^{1006}}"),
    "tiny and zero": (r"e^{-100}", "0"),
    "large and one more": (r"\binom{200}{100}", r"\binom{200}{100}+1"),
    "large power and one more": (r"2^{2^{100}}", r"2^{2^{100}}+1"),
    "large power of a sum and one more": (r"(x+1)^{40}+1", r"(x+1)^{40}+2"),
    "tiny term": (r"(x+1)^{40}+1", r"(x+1)^{40}+1+10^{-30}"),
    "tiny term beside a root": (r"\sqrt{2}", r"\sqrt{2}+\frac{1}{7^{60}}"),
    "tiny exponential": (r"e^{100}", r"2\cosh 100"),
    "multiple of a large number": (r"3^{500}+x", r"3^{500}+2x"),
    "the Mersenne prime and nothing": (r"2^{2^{100}}", r"2^{2^{100}}+2^{127}-1"),
    "capital and small letter": (r"\frac{M}{m}", r"\frac{m}{M}"),
    "decimal near an integer": (r"\binom{10}{3}", "120.0000004"),
    "five decimals are too few": (r"\sqrt{2}", "1.41421"),
    "beyond half a digit": ("1.41", r"\sqrt{2}+0.01"),
    "complex": ("6-5i", "6+5i"),
    "matrix": (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 2 \\ 1 \end{pmatrix}"),
    "interval ends": (r"(0,\sqrt{2}]", r"(0,\sqrt{2})"),
    "list with one more": (r"1,\frac{3+\sqrt{21}}{2}", r"1,\frac{3+\sqrt{21}}{2},98765"),
    "functions with one more": ("f(x)=x,f(x)=2-x", "f(x)=x,f(x)=2-x,f(x)=7"),
    "nonsense": (r"\sqrt{2}", r"\oops{2}"),
    "integral without meaning": (r"\sqrt{2}", r"\int_0^x \sin(x) dx dy"),
}
UNREAD = {
    "set builder": (r"\{ f \in \mathbb{R}[x] \colon 2 \mid \deg f \}", "5"),
    "unbalanced": (r"\frac{11}{2^{20}", r"\frac{11}{2^{20}}"),
    "sentence": ("The least value of the sum is 248.", "248"),
}


@pytest.fixture(scope="module")
def verdicts(grader: Grader) -> dict[tuple[str, str], Verdict]:
    pairs = [*SAME.values(), *OTHER.values(), *UNREAD.values()]
    grades = grader.grade([Question(gold(stored), f"so \\boxed{{{answer}}}.") for stored, answer in pairs])
    return {pair: grade.verdict for pair, grade in zip(pairs, grades, strict=True)}


@pytest.mark.parametrize("pair", SAME.values(), ids=SAME)
def test_same_is_accepted(pair: tuple[str, str], verdicts: dict[tuple[str, str], Verdict]) -> None:
    assert verdicts[pair] == Verdict.CORRECT


@pytest.mark.parametrize("pair", OTHER.values(), ids=OTHER)
def test_other_is_rejected(pair: tuple[str, str], verdicts: dict[tuple[str, str], Verdict]) -> None:
    assert verdicts[pair] == Verdict.WRONG


@pytest.mark.parametrize("pair", UNREAD.values(), ids=UNREAD)
def test_a_gold_that_no_reader_reads_decides_nothing(
    pair: tuple[str, str], verdicts: dict[tuple[str, str], Verdict]
) -> None:
    assert verdicts[pair] == Verdict.UNPARSED_GOLD


READ = (
    "3.5x-x^2", "-x^2", "1/2x", r"\frac{1}{2}x", r"2\frac{3}{4}", "n(n-1)", "xyz", "x^yz", "2^{n+1}", "n!", "(4!)^2",
    "a!b", r"\sqrt[3]{x}+\sqrt{2}", r"\binom{n}{2}", "|x-3|", r"\lfloor x\rfloor", r"\sin x/2", r"\sin^2 x\cos y",
    r"\sin^{-1}x", r"\sin a\cos b", r"\cos(2x)y", r"\ln x^2", r"\log_2 x", r"\log x", r"e^{-x}+\pi", "3i+2",
    "x_1+x_{2}", r"\alpha_1\beta", "[x+1]/2", "x(y+1)", r"\frac{\frac{a}{b}}{c}", r"a\cdot b\div c", r"\tan\frac{x}{2}",
)  # fmt: skip


@pytest.mark.parametrize("text", READ)
def test_expressions_are_read_as_the_grammar_reads_them(text: str) -> None:
    own, grammar = expressions.read(text), symbolic._by_grammar(text)
    values = [symbolic._value(side.xreplace(symbolic._point(own, grammar, 1.37, 30))) for side in (own, grammar)]
    assert abs(values[0] - values[1]) <= 1e-14 * abs(values[1])


def test_what_took_long_is_compared_again_with_the_next_batch() -> None:
    """What it gets of a batch's budget must not follow from an earlier batch."""
    with Grader() as grader:
        grades = grader.grade(
            [Question(gold("5"), rf"\boxed{{{text}}}") for text in (r"\sqrt{26}", r"\int_0^7 e^{x^x}dx")]
        )
        assert [grade.seconds <= QUICK for grade in grades] == [True, False]
        assert len(grader.known) == 1


ENDINGS = {
    "no box": ("It is 5.", "stop", Verdict.NO_ANSWER),
    "no box, cut off": ("It is 5 and", "length", Verdict.TRUNCATED),
    "box cut off": (r"It is \boxed{5", "length", Verdict.TRUNCATED),
    "box left open": (r"It is \boxed{5", "stop", Verdict.NO_ANSWER),
    "empty box": (r"\boxed{ }", "stop", Verdict.NO_ANSWER),
    "box, then cut off": (r"\boxed{5} and now", "length", Verdict.CORRECT),
    "wrong": (r"\boxed{6}", "stop", Verdict.WRONG),
    "longer than any gold": (r"\boxed{" + "5" * 5000 + "}", "stop", Verdict.WRONG),
}


@pytest.mark.parametrize(("response", "stop", "verdict"), ENDINGS.values(), ids=ENDINGS)
def test_every_way_to_end_has_its_verdict(response: str, stop: str, verdict: Verdict, grader: Grader) -> None:
    grade = grader.grade([Question(gold("5"), response, stop)])[0]
    assert grade.verdict == verdict
    assert (grade.extracted is None) == (verdict in (Verdict.NO_ANSWER, Verdict.TRUNCATED))


def test_grades_do_not_depend_on_order_or_company(grader: Grader) -> None:
    pairs = [*SAME.values(), *OTHER.values()][::3]
    questions = [Question(gold(stored), f"\\boxed{{{answer}}}") for stored, answer in pairs]
    alone = [Grader.grade(grader, [question])[0].verdict for question in questions]
    with Grader(pool=None) as fresh:
        backwards = [grade.verdict for grade in fresh.grade(questions[::-1])][::-1]
    assert alone == backwards


def test_the_rule_says_which_stage_decided(grader: Grader) -> None:
    pairs = [("5", "5"), ("5", "5.0"), ("0.33", "1/3"), (r"\sqrt{8}", r"2\sqrt{2}")]
    grades = grader.grade([Question(gold(stored), f"\\boxed{{{answer}}}") for stored, answer in pairs])
    assert [grade.rule for grade in grades] == [Rule.STRING, Rule.NUMBER, Rule.TOLERANCE, Rule.SYMBOLIC]
