r"""Questions for the pretrained model of `config/smollm.yaml`: held-out from `evals.questions`, never downloaded.

They replace the paper's sets in tables, and their numbers are not comparable with those of the sets. Three are
from families that RL trains on, two from their harder levels, and two from families that RL does not train on. An item:
problem "largest: 40 9 73", answer "73".
"""

from evals.benchmark import Benchmark, Decoding, Generated, Row
from evals.questions import LADDERS, held_out

SEED = 0
MAX_TOKENS = 8  # a box takes four, the longest answer two, its brace and the end token one each
DRAWS = 8  # where the paper has 32: a checkpoint takes minutes of a core, and there are few questions
SHA256 = {
    "syn_q_next": "5238131f169eeecd547a001caee7712e94fd5429499452731a2d464f1a1219bd",
    "syn_q_repeated": "5d83972031e0352594958cd1e848354ce10a86b060af7e3c0926ea65876eb438",
    "syn_q_largest": "ebf49b41b5212b20e07ca20f7ecd0a995b4a2c9abdd5dcb65a481eeee85cfe24",
    "syn_q_places": "53a9a1ce7d34bb1996224bc44a55decb069f3a26fa5ec90a39f694a5611807ec",
    "syn_q_harder": "ee341a53f58890dfadd6524b4d6b42ed0e7bc8d0d545fd977cbc4c2b67d3bad4",
    "syn_q_smallest": "7e04e85882f495dbadf4969e77d07e467c333809d12011e8d75f9517893d0cd8",
    "syn_q_words": "1ca9e87cc2950fefe05affa388158cbc12c827ba6ba24ec8e2c6624f8503ae88",
}


def _benchmark(key: str, stands_for: str, cells: dict[tuple[str, int], int], samples: int) -> Benchmark:
    """Define a benchmark. cells: number of questions by family and difficulty."""

    def make() -> list[Row]:
        return [
            {"problem": one.prompt, "answer": one.answer, "family": family, "k": k}
            for (family, k), n in cells.items()
            for one in held_out(family, k, n, SEED)
        ]

    trained = {family for family, _ in LADDERS["mixed"]}
    untaught = not any(family in trained for family, _ in cells)
    return Benchmark(
        key=key,
        title="questions: " + ", ".join(f"{family} k={k}" for family, k in cells) + ", not trained by RL" * untaught,
        stands_for=stands_for,
        source=Generated(f"evals.questions: {cells}, seed {SEED}", make),
        revision=f"seed {SEED}",
        sha256=SHA256[key],
        n=sum(cells.values()),
        licence="Apache-2.0 (this repository)",
        prompt="questions",
        decoding=Decoding(samples, 1.0, top_p=1.0, max_tokens=MAX_TOKENS),  # as the policy is trained
        duplicates="keep",
    )


BENCHMARKS = [
    _benchmark("syn_q_next", "aime24", {("next number", 1): 10, ("number before", 2): 10}, DRAWS),
    _benchmark("syn_q_repeated", "aime25", {("repeated number", 4): 20}, DRAWS),
    _benchmark("syn_q_largest", "amc", {("largest", 3): 20}, DRAWS),
    _benchmark("syn_q_places", "math500", {("second number", 3): 60, ("last number", 3): 60}, 1),
    _benchmark(
        "syn_q_harder", "omni_math", {("largest", 5): 40, ("second number", 5): 40, ("repeated number", 6): 40}, 1
    ),
    _benchmark("syn_q_smallest", "olympiadbench", {("smallest", 3): 120}, 1),
    _benchmark("syn_q_words", "minerva", {("last word", 3): 120}, 1),
]
