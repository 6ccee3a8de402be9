r"""MATH-500: 500 problems of the MATH test set. 311 golds are integers, others tuples, intervals, expressions, text.

An item looks like this (invented): problem "Write $\frac{3}{8}$ as a decimal.", answer "0.375", level 1.
"""

from evals.benchmark import Benchmark, Decoding, HubFile, RepositoryFile, Row


def read(row: Row) -> Row:
    """An upstream row in the project's names."""
    return {
        "problem": row["problem"],
        "answer": row["answer"],
        "source": row["subject"],
        "level": row["level"],
        "upstream_id": row["unique_id"],
    }


BENCHMARK = Benchmark(
    key="math500",
    title="MATH-500",
    source=RepositoryFile("hkust-nlp/simpleRL-reason", "examples/simplelr_math_eval/data/math500/test.jsonl", read),
    revision="cf1c7858bfc145a27aa733e75d930d34f0d318a6",
    sha256="28cb036d54b6d186dffba80c2bc6f8097c0a873e55df3722cae719e186a7b473",
    n=500,
    licence="MIT",
    prompt="system",
    answer_kind="mixed",
    decoding=Decoding(samples=1, temperature=0.0, top_p=1.0, max_tokens=8192),
    alternatives=(HubFile("HuggingFaceH4/MATH-500", "test.jsonl", read),),
    checked_against="the repository file at this commit, all 500 rows, read with this file's reader",
    notes="The hub file is tried when the repository cannot be reached; the sha256 decides whether it is the same.",
)
