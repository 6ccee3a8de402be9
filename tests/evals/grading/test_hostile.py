"""Outputs that want time, memory or a shell: each gets a verdict within its limit, and the next item its own."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest

from evals import reward
from evals.grading.decide import gold
from evals.grading.grader import Grader, Question
from evals.grading.pool import Pool
from evals.grading.verdict import Verdict
from evals.reward import boxed

CPU_SECONDS = 1.0
PROOF = "/tmp/grading-was-here"


def _box(text: str) -> str:
    return f"\\boxed{{{text}}}"


HOSTILE = {
    "tower of powers": _box("9^{9^{9^{9^{9}}}}"),
    "tower with a letter": _box("2^{2^{2^{2^{2^{2^{x}}}}}}"),
    "huge factorial": _box("1000000000!"),
    "factorial of factorial": _box("((1000!)!)!"),
    "huge binomial": _box(r"\binom{10^{12}}{10^{11}}"),
    "endless sum": _box(r"\sum_{n=1}^{10^{12}} \frac{1}{n^{2}+\sin n}"),
    "integral": _box(r"\int_0^1 \sin(\cos(\tan(x^x))) e^{x^{x}} dx"),
    "a million digits": _box("9" * 10**6),
    "a million characters of prose": "so on and " * 10**5 + _box("6"),
    "e-notation": _box("1e999999999"),
    "deep braces": _box("{" * 10**5 + "1" + "}" * 10**5),
    "open boxes": "\\boxed{" * 10**5,
    "deep roots": _box(r"\sqrt{" * 300 + "x" + "}" * 300),
    "2000 boxes": _box("x+6") * 2000,
    "NUL": _box("6\x00") + "\x00",
    "lone surrogates": "\udfff" + _box("6\ud800"),
    "macro": r"\def\boxed#1{5}\newcommand{\five}{5}" + _box(r"\five"),
    "file": _box(r"\input{/etc/passwd}"),
    "TeX shell": _box(rf"\immediate\write18{{touch {PROOF}}}"),
    "Python": _box(f"__import__('os').system('touch {PROOF}')"),
    "Python in a name": _box(f"x_{{__import__('os').system('touch {PROOF}')}}+1"),
    "Python in words": _box(rf"\text{{__import__('os').system('touch {PROOF}')}}+x"),
    "long list": _box(",".join(f"\\sqrt{{{n}}}+x" for n in range(300))),
    "union of intervals": _box(r"\cup".join(f"({n},{n}.5)" for n in range(60))),
    "large power of a sum": _box("(" + "+".join(f"x_{{{n}}}" for n in range(12)) + ")^{40}"),
    "blanks": _box("1" + "~" * 3900 + "x"),
    "backslashes": _box("\\ " * 1900),
    "signs": _box("\\pm" * 1300),
    "fractions": _box("\\frac{" * 600 + "}" * 600),
}
GOLDS = ("5", r"\sqrt{2}x")


@pytest.fixture(scope="module")
def graded() -> dict[str, tuple[Verdict, ...]]:
    questions = [Question(gold(stored), text) for text in HOSTILE.values() for stored in GOLDS]
    questions.append(Question(gold(r"\sqrt{8}"), _box(r"2\sqrt{2}")))
    began = time.monotonic()
    with Grader(pool=Pool(cpu_seconds=CPU_SECONDS)) as grader:
        grades = grader.grade(questions)
    print(f"{len(questions)} hostile comparisons in {time.monotonic() - began:.0f} s")
    by_case = {name: tuple(g.verdict for g in grades[2 * i : 2 * i + 2]) for i, name in enumerate(HOSTILE)}
    return {**by_case, "harmless item after them": (grades[-1].verdict,)}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_output_is_never_right(case: str, graded: dict[str, tuple[Verdict, ...]]) -> None:
    allowed = {Verdict.WRONG, Verdict.NO_ANSWER, Verdict.TIMEOUT, Verdict.ERROR}
    assert set(graded[case]) <= allowed


def test_the_next_item_is_unaffected(graded: dict[str, tuple[Verdict, ...]]) -> None:
    assert graded["harmless item after them"] == (Verdict.CORRECT,)


def test_most_need_no_kill(graded: dict[str, tuple[Verdict, ...]]) -> None:
    killed = [case for case, verdicts in graded.items() if set(verdicts) & {Verdict.TIMEOUT, Verdict.ERROR}]
    assert len(killed) <= 6, killed


def test_nothing_was_run(graded: dict[str, tuple[Verdict, ...]]) -> None:
    assert not Path(PROOF).exists()


def test_memory_stayed_bounded(graded: dict[str, tuple[Verdict, ...]]) -> None:
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        assert resource.getrusage(who).ru_maxrss < 3 * 2**20  # kB; torch in the test process itself counts too


SLOW = (
    r"\sum_{{n=1}}^{{10^{{{}}}}} \frac{{1}}{{n^{{2}}+\sin n}}",
    r"\begin{{vmatrix}} x & y & z & 1\\ y & z & x & {}\\ z & x & {} & 3\\ w & 2 & x & y \end{{vmatrix}}",
    r"\sum_{{i=1}}^{{{}}}\sum_{{j=1}}^{{n}}\sum_{{k=1}}^{{n}} \frac{{i^2 j}}{{k+ij}}",
    r"\int_0^1\int_0^1 e^{{xy{}}} dx dy",
)


@pytest.mark.slow
@pytest.mark.parametrize("grade", ["grader", "reward"])
def test_a_batch_of_512_takes_a_minute_of_cpu(grade: str) -> None:
    answers = [_box(SLOW[n % len(SLOW)].format(n + 10, n)) for n in range(512)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if grade == "reward":
        assert boxed([""] * 512, answers, [r"\sqrt{2}x"] * 512) == [0.0] * 512
        reward._close(os.getpid())
    else:
        with Grader() as grader:
            grades = grader.grade([Question(gold(r"\sqrt{2}x"), answer) for answer in answers])
        assert Verdict.TIMEOUT in {grade.verdict for grade in grades} <= {Verdict.TIMEOUT, Verdict.WRONG}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 60


@pytest.mark.parametrize("case", HOSTILE)
def test_the_cheap_stages_stay_cheap(case: str) -> None:
    from evals.grading.grader import cheap_grade

    began = time.process_time()
    for stored in (*GOLDS, "1,2", "(1,2)"):
        cheap_grade(Question(gold(stored), HOSTILE[case]))
    assert time.process_time() - began < 2.0
