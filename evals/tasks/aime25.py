r"""AIME 2025, both papers. Answers are integers from 0 to 999.

An item looks like this (invented): problem "Let $N$ be the least positive integer with exactly $12$ divisors that is
divisible by $25$. Find $N$.", answer "150".
"""

from evals.benchmark import Benchmark, Decoding, RepositoryFile
from evals.tasks.aime24 import read

BENCHMARK = Benchmark(
    key="aime25",
    title="AIME25",
    source=RepositoryFile("QwenLM/QwQ", "eval/data/aime25.jsonl", read),
    revision="620a5eadc89ff464d339367dd9c9973a93215c81",
    sha256="1858f2ccc1e8e29a31d5a3af26aadfc762261e570d8a44bcd74e4768fb4e8dc4",
    n=30,
    licence="Apache-2.0 (repository); problems (c) MAA",
    prompt="system",
    answer_kind="integer",
    decoding=Decoding(samples=32, temperature=0.6, top_p=1.0, max_tokens=8192),
    checked_against="the repository file at this commit, all 30 rows, read with this file's reader",
    notes="Also on the hub: math-ai/aime25 (test), yentinglin/aime_2025 (train); not compared.",
)
