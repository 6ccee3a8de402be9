"""Rules of the grader by example: what each accepts, and the near misses that it rejects; through real workers."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.grading.decide import decide, gold
from evals.grading.grader import Grader, Question
from evals.grading.normalise import normalise
from evals.grading.verdict import Verdict

SAME = (
    (r"m\frac{dv}{dt}+bv=f", r"bv+m\frac{dv}{dt}=f"),
    (r"m\frac{dv}{dt}+bv=f", r"m\dot{v}+bv=f"),
    (r"x^{\prime}+\frac{r}{V} x-r c=0", r"x'+\frac{rx}{V}=rc"),
    (r"y^{\prime}+r y-r x(t)=0", "y'+ry=rx(t)"),
    (r"2\sin x", r"\sin x \cdot 2"),
    (r"2\ln x", r"\ln x \cdot 2"),
    (r"\sin a\cos b", r"\sin a \cdot \cos b"),
    (r"\sin a\cos b", r"\cos b \times \sin a"),
    (r"\sin 2x", r"\sin(2x)"),
    (r"\sin^2 x\cos y", r"\cos y\cdot\sin^2 x"),
    (r"\sin^2 x\cos y", r"\sin^2 x\cdot\cos y"),
    (r"3\log_2 x", r"\log_2 x\cdot 3"),
    ("5000000", r"5\text{ million}"),
    ("5000000", "5 million"),
    ("2500000000", r"2.5 \text{ billion}"),
    ("36", r"3\text{ dozen}"),
    ("5000000", r"\$5\text{ million}"),
    ("4:30", "4:30"),
    ("4:30", r"\text{4:30 p.m.}"),
    (r"\text{4:30 p.m.}", "4:30 pm"),
    (r"4:30\text{ p.m.}", r"\text{4:30 p.m.}"),
    ("2:3", "4:6"),
    (r"6 \text{ p.m.}", "6:00 p.m."),
    (r"6 \text{ p.m.}", "6 PM"),
    ("(6,5)", "6,5"),
    ("(-1,6)", "-1<x<6"),
    ("0.33", r"\frac{1}{3}"),
    ("2.19e6", "2.192e6"),
    ("1e11", r"1.02\times10^{11}"),
    ("2.0e-3", "2.04e-3"),
    (r"\sqrt{xy}", r"\sqrt{x}\sqrt{y}"),
    (r"\ln(ab)", r"\ln a+\ln b"),
    (r"2\pi\sqrt{m/k}", r"2\pi\frac{\sqrt{m}}{\sqrt{k}}"),
    (r"\sqrt{4\pi G\rho_0 r_0^2}", r"2 r_0\sqrt{\pi G\rho_0}"),
    ("f(x)=x", "f(z)=z"),
    ("f(x,y)=x-y", "f(a,b)=a-b"),
    ("f(x,y)=x-y", "f(y,x)=y-x"),
    ("f(x)=x,f(x)=2-x", "f(t)=2-t, f(t)=t"),
    ("f(x)=ax+b", "f(t)=at+b"),
    (r"(-\infty, 2) \cup (3, \infty)", r"x<2 \text{ or } x>3"),
    (r"x<2 \text{ or } x>3", r"(-\infty,2)\cup(3,\infty)"),
    (r"(-\infty, 2) \cup (3, \infty)", r"x > 3 \text{ or } x < 2"),
    (r"(-\infty, 2) \cup (3, \infty)", "x<2, x>3"),
    (r"(-\infty,-2]\cup[2,\infty)", r"x\le -2\text{ or }x\ge 2"),
    ("(2,3)", r"x>2 \text{ and } x<3"),
    (r"(0,9) \cup (9,36)", r"0<x<9 \text{ or } 9<x<36"),
    (
        r"\frac{-9}{2} \leq x \leq -2 \cup \frac{1-\sqrt{5}}{2} < x < \frac{1+\sqrt{5}}{2}",
        r"[-9/2,-2]\cup(\frac{1-\sqrt5}{2},\frac{1+\sqrt5}{2})",
    ),
    (r"x\le 2", "x <= 2"),
    (r"(-\infty,2]", "x <= 2"),
    (r"x \ne 2", "x != 2"),
    (r"k\geqslant 2", "k>=2"),
    ("120", "5!=120"),
    (r"1\le x\le 2", "1 <= x <= 2"),
    (r"2\pi/3", r"120^\circ"),
    (r"\frac{2\pi}{3}", r"120^{\circ}"),
    (r"120^\circ", r"\frac{2\pi}{3}"),
    (r"120^\circ", "120"),
    ("120", r"120^\circ"),
    (r"\frac12", r"\sin 30^\circ"),
    (r"\frac{\pi}{6},\frac{\pi}{3}", r"60^\circ, 30^\circ"),
    ("12", "12th"),
    ("12", r"12^{\text{th}}"),
    ("12", "12^{th}"),
    ("12", r"12\text{th}"),
    ("1", "1st"),
    ("3.5", "3 1/2"),
    (r"\frac{7}{2}", "3 1/2"),
    ("-3.5", "-3 1/2"),
    (r"3\frac12", "3 1/2"),
    ("2500,7500", r"2,500 \text{ and } 7,500"),
    ("7500, 2500", r"2,500 \text{ and } 7,500"),
    ("2,500, 7,500", "2,500 and 7,500"),
    ("2.5", r"2.5 M_\odot"),
    ("2.5", r"2.5\,M_{\odot}"),
    (r"\sqrt{M_\odot}", r"M_{\odot}^{1/2}"),
    ("y'", r"y^{\prime}"),
    ("y''", r"y^{\prime\prime}"),
    ("f'(x)=2x", r"f^{\prime}(x)=2x"),
    ("81", r"\textbf{(E) } 81"),
    ("36", r"\text{(C)}\ 36"),
    ("-5", r"\text{(B) }-5"),
    ("36", "(C) 36"),
    (r"7\frac13", r"\text{(B) } 7\frac{1}{3}"),
    (r"\text{(C)}", r"\text{(C) Plane}"),
    (r"\text{(C)}", r"\textbf{(C) } 36"),
    (r"\text{Plane}", r"\text{(C) Plane}"),
    ("A+B", "(A) + B"),
    ("23", r"\text{Answer: } 23"),
    ("23", "Answer: 23"),
    ("23", r"\text{There are } 23 \text{ ways}"),
    ("23", r"\text{The answer is 23}"),
    ("211", "= 211"),
    ("468", r"\approx 468"),
    ("1.24", "x ≈ 1.24"),
    ("907", r"N \equiv 907 \pmod{1000}"),
    ("907", r"907 \pmod{1000}"),
    ("16", r"2016 \equiv 16 (\text{mod } 1000)"),
    (r"\[ N \equiv 672 \pmod{1000} \]", "672"),
    (r"n \equiv 1 \pmod{3}", r"k \equiv -2 \ (\bmod\ 3)"),
    ("70", r"\ 70\ "),
    ("510", r"\underline{\textbf{510}}"),
    ("361", r"361 \text{ pm}"),
    ("3e8", "3*10^8 m/s"),
    ("9.8", "9.8 m/s^2"),
    (r"\frac{3m}{s}", "3m/s"),
    ("0.006", r"0.006 \, \mathrm{m\,s^{-2}}"),
    ("0.49", "0.49''"),
    ("7.4e-12", "7.4 × 10⁻¹²"),
    ("x^{10}", "x¹⁰"),
    (r"\sqrt{51}", "√51"),
    ("2516_8", "(2516)_8"),
    (r"\text{ellipse}", r"\text{an ellipse}"),
    ("540000", r"540\text{k}"),
    ("0", r"20!-20\cdot 19!"),  # no value to many digits: computed exactly
)
OTHER = (
    (r"m\frac{dv}{dt}+bv=f", "bv=f"),
    (r"m\frac{d^2x}{dt^2}+kx=0", "kx=0"),
    ("y'+ry-rx=0", "ry-rx=0"),
    (r"y^{\prime}+r y-r x(t)=0", "r y-r x(t)=0"),
    (r"x^{\prime}+\frac{r}{V} x-r c=0", r"\frac{r}{V} x-r c=0"),
    (r"\sin(2x)", r"\sin x \cdot 2"),
    (r"\ln(2x)", r"\ln x \cdot 2"),
    ("5", r"5\text{ million}"),
    ("5", "5 million"),
    ("3", r"3\text{ dozen}"),
    ("3", r"3\text{ thousand}"),
    ("5", r"\text{5 million}"),
    ("5", r"5\text{ million dollars}"),
    ("12:00", "1:00"),
    ("1:00", "12:00"),
    (r"\frac{1}{0}", r"\frac{2}{0}"),
    (r"4:30\text{ p.m.}", r"\text{4:30 a.m.}"),
    ("4:30", "9:00"),
    ("2:3", "3:2"),
    ("(2,7]", "2,7"),
    ("[2,7]", "2,7"),
    (r"(-\infty,3)", r"-\infty,3"),
    ("2,7", "(2,7]"),
    (r"[\frac12,8]", r"\frac12,8"),
    ("1e11", "1.4e11"),
    ("1e11", "1.1e11"),
    ("1e-5", "1.4e-5"),
    ("1e-5", "0.6e-5"),
    ("0.05", "0.054"),
    ("0.5", "0.54"),
    (r"\lfloor x\rfloor", r"\lceil x\rceil -1"),
    ("|x|", "x"),
    (r"\left\lfloor \frac{n}{2} \right\rfloor", r"\left\lceil \frac{n}{2}\right\rceil"),
    (r"\ln(ab)", r"\ln a\ln b"),
    ("f(x)=x", "f(z)=2z"),
    ("f(x)=x", "f(z)=x"),
    ("f(x,y)=x-y", "f(a,b)=b-a"),
    (r"(-\infty, 2) \cup (3, \infty)", r"x<2 \text{ or } x\geq3"),
    (r"(-\infty, 2) \cup (3, \infty)", r"x<3 \text{ or } x>2"),
    (r"x\le 2", "x >= 2"),
    (r"\frac{\pi}{3}", r"120^\circ"),
    ("120", r"\frac{2\pi}{3}"),
    ("13", "12th"),
    ("3/2", "3 1/2"),
    ("2500,7500", r"2,500 \text{ and } 7,501"),
    (r"2M_\odot", r"3M_\odot"),
    (r"\text{(A) and (C)}", r"\text{(B) and (C)}"),
    (r"\text{(C)}", r"\text{(B), (C)}"),
    ("5", r"\text{(B) }-5"),
    ("23", r"\text{The answer is not } 23"),
    ("23", r"\text{at least } 23"),
    ("5", r"\text{minus } 5"),
    ("7", "=-7"),
    ("3", r"x \neq 3"),
    ("907", r"N \equiv 906 \pmod{1000}"),
    (r"n \equiv 1 \pmod{3}", r"n \equiv 1 \pmod{4}"),
    ("6:00 p.m.", r"6 \text{ am}"),
    (r"\frac{3m}{s}", "3"),
    ("5", "5x"),
    ("5", r"5\mathrm{x^{2}}"),
    ("5", r"5\mathrm{e^{2}}"),
    ("0.49", "0.48''"),
    (r"\sqrt{51}", "√52"),
    ("2516_8", "(2516)_9"),
    (r"\text{ellipse}", r"\text{a hyperbola}"),
    ("540", r"540\text{k}"),
    ("0", "20!-19!"),
    ("5", "((1000!)!)!"),  # wrong, not out of time: it is never written out
    ("5", r"\frac{1}{5!!!!}"),
    ("5", r"\frac{5}{1-1}"),
    ("y'", "y"),
)


@pytest.fixture(scope="module")
def verdicts(grader: Grader) -> dict[tuple[str, str], Verdict]:
    pairs = [*SAME, *OTHER]
    grades = grader.grade([Question(gold(stored), f"so \\boxed{{{answer}}}.") for stored, answer in pairs])
    return {pair: grade.verdict for pair, grade in zip(pairs, grades, strict=True)}


@pytest.mark.parametrize("pair", SAME, ids=" = ".join)
def test_same_is_accepted(pair: tuple[str, str], verdicts: dict[tuple[str, str], Verdict]) -> None:
    assert verdicts[pair] == Verdict.CORRECT


@pytest.mark.parametrize("pair", OTHER, ids=" != ".join)
def test_other_is_rejected(pair: tuple[str, str], verdicts: dict[tuple[str, str], Verdict]) -> None:
    assert verdicts[pair] == Verdict.WRONG


@pytest.mark.parametrize("stored", ["rac{7}{12}", "frac{7}{12}", r"3 ext{ cm}", r"\frac{inom{4}{2}}{3}"])
def test_a_command_without_its_head_is_a_damaged_gold(stored: str) -> None:
    assert gold(stored).kind == "unparsed"


@given(
    digits=st.integers(1, 999), places=st.integers(0, 3), exponent=st.integers(-30, 30), sign=st.sampled_from(["", "-"])
)
def test_no_gold_accepts_a_tenth_more_or_less(digits: int, places: int, exponent: int, sign: str) -> None:
    value = Fraction(digits, 10**places) * Fraction(10) ** exponent * (-1 if sign else 1)
    mantissa = f"{digits:0{places + 1}d}"
    point = len(mantissa) - places
    stored = f"{sign}{mantissa[:point]}{'.' if places else ''}{mantissa[point:]}e{exponent}"
    for factor in (Fraction(9, 10), Fraction(11, 10)):
        answer = value * factor
        found = decide(gold(stored), normalise(f"\\frac{{{answer.numerator}}}{{{answer.denominator}}}"))
        assert found is not None
        assert not found.equal
    assert decide(gold(stored), normalise(f"\\frac{{{value.numerator}}}{{{value.denominator}}}")).equal  # type: ignore[union-attr]
