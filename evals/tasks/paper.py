r"""The paper's seven sets, in the order of its tables; four of them also in versions for one GPU in one evening.

Answers are kept as upstream stores them: the grader parses `142.0` as 142. In OMNI-MATH five problems occur twice, with
equal golds. So 2811 of its 2821 rows occur once: the paper's column counts these, its average all rows (reading E2).
"""

from dataclasses import replace

from evals.benchmark import Benchmark, Decoding, HubFile, RepositoryFile, Row
from evals.grading.normalise import last_box

SAMPLED = Decoding(samples=32, temperature=0.6, top_p=1.0, max_tokens=8192)
GREEDY = Decoding(samples=1, temperature=0.0, top_p=1.0, max_tokens=8192)
MAA = "Apache-2.0 (repository); problems (c) MAA"

# Part of every prompt in the upstream files of AIME; removed, because the prompt is our choice (reading E3).
INSTRUCTION = "\nPlease reason step by step, and put your final answer within \\boxed{}."


def _aime(row: Row) -> Row:
    return {"problem": str(row["prompt"]).removesuffix(INSTRUCTION), "answer": str(row["answer"])}


def _amc(row: Row) -> Row:
    return {"problem": row["question"], "answer": str(row["answer"]), "source": row["url"]}


def _math500(row: Row) -> Row:
    return {
        "problem": row["problem"],
        "answer": row["answer"],
        "source": row["subject"],
        "level": row["level"],
        "upstream_id": row["unique_id"],
    }


def _omni_math(row: Row) -> Row:
    return {name: row[name] for name in ("problem", "answer", "source", "difficulty")}


def _olympiadbench(row: Row) -> Row:
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


def _minerva(row: Row) -> Row:
    """Parse a row; the gold is the last box of the worked solution, and a solution without one is an error."""
    return {"problem": row["problem"], "answer": last_box(row["solution"]), "source": row["type"]}


# The integers from 0 to 999 are the possible answers of both.
AIME24 = Benchmark(
    key="aime24",
    title="AIME24",
    source=RepositoryFile("QwenLM/QwQ", "eval/data/aime24.jsonl", _aime),
    revision="620a5eadc89ff464d339367dd9c9973a93215c81",
    sha256="d9a48594c2319f8a6287dd41bb30fd6ff5bb88c7628c45779e4099156a881c12",
    n=30,
    licence=MAA,
    prompt="system",
    decoding=SAMPLED,
)
AIME25 = replace(
    AIME24,
    key="aime25",
    title="AIME25",
    source=RepositoryFile("QwenLM/QwQ", "eval/data/aime25.jsonl", _aime),
    sha256="1858f2ccc1e8e29a31d5a3af26aadfc762261e570d8a44bcd74e4768fb4e8dc4",
)
# The validation set of the AIMO prize, AMC 12 of 2022 and 2023; not one of the AMC sets with 40 problems.
AMC = replace(
    AIME24,
    key="amc",
    title="AMC",
    source=RepositoryFile("PRIME-RL/PRIME", "eval/data/AI-MO/aimo-validation-amc/aimo-validation-amc.jsonl", _amc),
    revision="18ad596f08d487bb546d80d738d99ec697bd2e75",
    sha256="02db6cbe28afde33011426e663af934e3993872967a1580f6afa61cc37a63144",
    n=83,
)
# 311 golds are integers, others tuples, intervals, expressions, text.
MATH500 = Benchmark(
    key="math500",
    title="MATH-500",
    source=RepositoryFile("hkust-nlp/simpleRL-reason", "examples/simplelr_math_eval/data/math500/test.jsonl", _math500),
    revision="cf1c7858bfc145a27aa733e75d930d34f0d318a6",
    sha256="28cb036d54b6d186dffba80c2bc6f8097c0a873e55df3722cae719e186a7b473",
    n=500,
    licence="MIT",
    prompt="system",
    decoding=GREEDY,
    # tried when the repository is unavailable; the sha256 decides whether it is the same
    alternatives=(HubFile("HuggingFaceH4/MATH-500", "test.jsonl", _math500),),
)
# The subset with answers that a rule can check; which rows the paper used follows from its denominator.
OMNI_MATH = Benchmark(
    key="omni_math",
    title="OMNI-MATH",
    source=RepositoryFile("KbsdJames/omni-math-rule", "omni_math_rule.jsonl", _omni_math),
    revision="4793415ef37d31c9cdb4e5b82dbe172f76f8cf08",
    sha256="159cd6dbed8d012ddb93541d8ddcba2134b95a221c81f56051eeaf23e8752418",
    n=2821,
    licence="none stated in the repository",
    prompt="system",
    decoding=GREEDY,
    files=("omni_math_rule",),
)
# English, text only. 94 rows require several values, stored as one comma-separated text; one states an absolute
# tolerance, 8 a unit; 266 golds contain `$`.
OLYMPIADBENCH = Benchmark(
    key="olympiadbench",
    title="OlympiadBench",
    source=RepositoryFile("QwenLM/Qwen2.5-Math", "evaluation/data/olympiadbench/test.jsonl", _olympiadbench),
    revision="a45202bd16f1ec06f433442dc1152d0074773465",
    sha256="93cc0968f9f3a68e17ca3b7f850eeb49f47990bb39c1f69b744067faa33ec768",
    n=675,
    licence="MIT (repository); Apache-2.0 (data card)",
    prompt="system",
    decoding=GREEDY,
)
# From university courses in science: 58 golds are in e-notation, 67 are decimals, others formulas or code-like.
MINERVA = Benchmark(
    key="minerva",
    title="Minerva",
    source=RepositoryFile("QwenLM/Qwen2.5-Math", "evaluation/data/minerva_math/test.jsonl", _minerva),
    revision="a45202bd16f1ec06f433442dc1152d0074773465",
    sha256="a09824a4d894eb357bebee11f82b41cfd0d0f3a6792a3c8e4114c331c26b37e7",
    n=272,
    licence="MIT (repository); problems CC BY-NC-SA (MIT OpenCourseWare)",
    prompt="system",
    decoding=GREEDY,
)

# For one GPU: longer responses of small models are nearly all endless repetitions. Training stops at 1024.
MAX_TOKENS = 2048


def _fewer(benchmark: Benchmark, samples: int) -> Benchmark:
    """Return the same items with fewer, shorter responses; the key ends with the samples, unlike the paper's."""
    return replace(
        benchmark,
        key=f"{benchmark.key}_{samples}",
        title=f"{benchmark.title} @{samples}",
        stands_for=benchmark.key,
        decoding=replace(benchmark.decoding, samples=samples, max_tokens=MAX_TOKENS),
        files=(benchmark.key, *benchmark.files),
    )


BENCHMARKS = [
    *(AIME24, AIME25, AMC, MATH500, OMNI_MATH, OLYMPIADBENCH, MINERVA),
    *(_fewer(benchmark, samples) for benchmark, samples in ((AIME24, 8), (AIME25, 8), (AMC, 8), (MATH500, 1))),
]
