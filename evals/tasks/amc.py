r"""AMC 12 of 2022 and 2023, 83 problems: the validation set of the AIMO prize, not one of the 40-problem AMC sets.

Golds are stored as decimals of integers and stay so; the grader reads 142.0 as 142. An item looks like this (invented):
problem "What is the sum of the digits of $10^{12}-1$?", answer "108.0".
"""

from evals.benchmark import Benchmark, Decoding, RepositoryFile, Row


def read(row: Row) -> Row:
    """An upstream row in the project's names."""
    return {"problem": row["question"], "answer": str(row["answer"]), "source": row["url"]}


BENCHMARK = Benchmark(
    key="amc",
    title="AMC",
    source=RepositoryFile("PRIME-RL/PRIME", "eval/data/AI-MO/aimo-validation-amc/aimo-validation-amc.jsonl", read),
    revision="18ad596f08d487bb546d80d738d99ec697bd2e75",
    sha256="02db6cbe28afde33011426e663af934e3993872967a1580f6afa61cc37a63144",
    n=83,
    licence="Apache-2.0 (repository); problems (c) MAA",
    prompt="system",
    answer_kind="integer",
    decoding=Decoding(samples=32, temperature=0.6, top_p=1.0, max_tokens=8192),
    checked_against="the repository file at this commit, all 83 rows, read with this file's reader",
    notes="Also on the hub: AI-MO/aimo-validation-amc (train); not compared.",
)
