r"""AIME 2024, both papers. Answers are integers from 0 to 999.

An item looks like this (invented): problem "Find the number of ordered pairs $(a,b)$ of positive integers with
$a+b=1000$ and neither divisible by $2$.", answer "500".
"""

from evals.benchmark import Benchmark, Decoding, RepositoryFile, Row

INSTRUCTION = "\nPlease reason step by step, and put your final answer within \\boxed{}."
"""Part of every prompt in the upstream file; taken off, because the prompt is ours to choose (reading E3)."""


def read(row: Row) -> Row:
    """An upstream row in the project's names."""
    return {"problem": str(row["prompt"]).removesuffix(INSTRUCTION), "answer": str(row["answer"])}


BENCHMARK = Benchmark(
    key="aime24",
    title="AIME24",
    source=RepositoryFile("QwenLM/QwQ", "eval/data/aime24.jsonl", read),
    revision="620a5eadc89ff464d339367dd9c9973a93215c81",
    sha256="d9a48594c2319f8a6287dd41bb30fd6ff5bb88c7628c45779e4099156a881c12",
    n=30,
    licence="Apache-2.0 (repository); problems (c) MAA",
    prompt="system",
    answer_kind="integer",
    decoding=Decoding(samples=32, temperature=0.6, top_p=1.0, max_tokens=8192),
    checked_against="the repository file at this commit, all 30 rows, read with this file's reader",
    notes="Also on the hub: HuggingFaceH4/aime_2024 (train), Maxwell-Jia/AIME_2024 (train); not compared.",
)
