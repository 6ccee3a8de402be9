r"""Minerva: 272 problems from university courses in science. The gold is the last box of the worked solution.

58 golds are in e-notation, 67 are decimals, others formulas or code-like. Without a box in the solution there is no
gold, which is an error. An item looks like this (invented): problem "How many electrons carry a charge of 1.6 mC?",
answer "1e16".
"""

from evals.benchmark import Benchmark, Decoding, RepositoryFile, Row
from evals.grading.normalise import last_box


def read(row: Row) -> Row:
    """An upstream row in the project's names."""
    return {"problem": row["problem"], "answer": last_box(row["solution"]), "source": row["type"]}


BENCHMARK = Benchmark(
    key="minerva",
    title="Minerva",
    source=RepositoryFile("QwenLM/Qwen2.5-Math", "evaluation/data/minerva_math/test.jsonl", read),
    revision="a45202bd16f1ec06f433442dc1152d0074773465",
    sha256="a09824a4d894eb357bebee11f82b41cfd0d0f3a6792a3c8e4114c331c26b37e7",
    n=272,
    licence="MIT (repository); problems CC BY-NC-SA (MIT OpenCourseWare)",
    prompt="system",
    answer_kind="mixed",
    decoding=Decoding(samples=1, temperature=0.0, top_p=1.0, max_tokens=8192),
    checked_against="the repository file at this commit, all 272 rows, read with this file's reader",
    notes="Also on the hub: math-ai/minervamath (test), knoveleng/Minerva-Math (train); not compared.",
)
