r"""OMNI-MATH, the 2821-row subset with answers that a rule can check. The full set has 4428 rows.

Five problems occur twice, with equal golds: 2816 different problems, 2811 that occur once. The paper's column counts
the 2811, its average all 2821 (reading E2, `duplicates`).

An item looks like this (invented): problem "Let $p$ be a prime such that $p^2+8$ is prime. Find $p$.", answer "3",
difficulty 2.0.
"""

from evals.benchmark import Benchmark, Decoding, KnownBad, RepositoryFile, Row


def read(row: Row) -> Row:
    """An upstream row in the project's names."""
    return {name: row[name] for name in ("problem", "answer", "source", "difficulty")}


_CUT = "gold with an unclosed brace"

BENCHMARK = Benchmark(
    key="omni_math",
    title="OMNI-MATH",
    source=RepositoryFile("KbsdJames/omni-math-rule", "omni_math_rule.jsonl", read),
    revision="4793415ef37d31c9cdb4e5b82dbe172f76f8cf08",
    sha256="159cd6dbed8d012ddb93541d8ddcba2134b95a221c81f56051eeaf23e8752418",
    n=2821,
    licence="none stated in the repository",
    prompt="system",
    answer_kind="mixed",
    decoding=Decoding(samples=1, temperature=0.0, top_p=1.0, max_tokens=8192),
    duplicates="paper",
    known_bad=(
        KnownBad("35b57ecb6d20a316", _CUT),
        KnownBad("92d2b82cd4dbb9de", _CUT),
        KnownBad("cdb3ed5ca063524c", _CUT),
        KnownBad("eaaf9b7adc0a8284", _CUT),
        KnownBad("27623371721f43cf", "gold with a form feed where the backslash and the f of a fraction were"),
        KnownBad("cac928a3a9ea859a", "gold `rac{7}{12}`: a fraction without its backslash and its first letter"),
        KnownBad("63917a904e60be02-2", "second copy of a problem"),
        KnownBad("6143239b7cb06570-2", "second copy of a problem"),
        KnownBad("c892095da4e30979-2", "second copy of a problem"),
        KnownBad("1bc5f69811992b20-2", "second copy of a problem"),
        KnownBad("3e95c7e85cbf3e09-2", "second copy of a problem"),
    ),
    files=("omni_math_rule",),
    checked_against="the repository file at this commit, all 2821 rows, read with this file's reader",
    notes="The full set is on the hub as KbsdJames/Omni-MATH; which rows the paper used follows from its denominator.",
)
