r"""OlympiadBench, the 675 English text-only mathematics problems with a checkable answer.

94 rows want several values, stored as one comma-separated text; one row states an absolute tolerance, 8 a unit; 266
golds carry `$`. An item looks like this (invented): problem "Find all real $x$ with $x^2=9$.",
answer "$-3,3$", multiple.
"""

from evals.benchmark import Benchmark, Decoding, KnownBad, RepositoryFile, Row


def read(row: Row) -> Row:
    """An upstream row in the project's names."""
    return {
        "problem": row["question"],
        "answer": ", ".join(row["final_answer"]),
        "multiple": row["is_multiple_answer"],
        "tolerance": row["error"],
        "unit": row["unit"],
        "answer_type": row["answer_type"],
        "source": row["subfield"],
        "upstream_id": row["id"],
    }


BENCHMARK = Benchmark(
    key="olympiadbench",
    title="OlympiadBench",
    source=RepositoryFile("QwenLM/Qwen2.5-Math", "evaluation/data/olympiadbench/test.jsonl", read),
    revision="a45202bd16f1ec06f433442dc1152d0074773465",
    sha256="93cc0968f9f3a68e17ca3b7f850eeb49f47990bb39c1f69b744067faa33ec768",
    n=675,
    licence="MIT (repository); Apache-2.0 (data card)",
    prompt="system",
    answer_kind="mixed",
    decoding=Decoding(samples=1, temperature=0.0, top_p=1.0, max_tokens=8192),
    known_bad=(KnownBad("a1ca5d792dfe9b09", "gold with an odd number of dollar signs"),),
    checked_against="the repository file at this commit, all 675 rows, read with this file's reader",
    notes="Also on the hub: Hothan/OlympiadBench, OE_TO_maths_en_COMP, with one row less; not compared.",
)
