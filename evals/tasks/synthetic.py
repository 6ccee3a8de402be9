r"""Synthetic stand-ins: held-out last-digit arithmetic for tiny models, made by `evals.arithmetic`, never downloaded.

They stand where the paper's sets stand in tables, and say nothing about those sets. Difficulty is in the key, so that
no cell of the quick profile can be read as one of the full. Chance is 10 % (two-digit sums: about 3 %).
An item: problem "6+8-9*9?", answer "5".
"""

from evals.arithmetic import held_out
from evals.benchmark import Benchmark, Decoding, Generated, Row

SEED = 0
MAX_TOKENS = 64  # the longest written-out answer has 52


def _generated(family: str, sizes: dict[int, int]) -> Generated:
    """`sizes`: problems per difficulty k."""

    def make() -> list[Row]:
        return [
            {"problem": problem.prompt, "answer": problem.answer, "family": family, "k": k}
            for k, n in sizes.items()
            for problem in held_out(family, k, n, SEED)
        ]

    calls = " + ".join(f"held_out({family!r}, {k}, {n}, {SEED})" for k, n in sizes.items())
    return Generated(f"evals.arithmetic: {calls}", make)


def _benchmark(key: str, stands_for: str, family: str, sizes: dict[int, int], samples: int, sha256: str) -> Benchmark:
    difficulty = " and ".join(str(k) for k in sizes)
    modulo = "" if family == "add2" else ", modulo 10"
    return Benchmark(
        key=key,
        title=f"synthetic {family} k={difficulty}{modulo}",
        stands_for=stands_for,
        source=_generated(family, sizes),
        revision=f"seed {SEED}",
        sha256=sha256,
        n=sum(sizes.values()),
        licence="Apache-2.0 (this repository)",
        prompt="arithmetic",
        answer_kind="integer",
        decoding=Decoding(samples, 0.6 if samples > 1 else 0.0, top_p=1.0, max_tokens=MAX_TOKENS),
        duplicates="keep",
        checked_against="its generator, at every load",
        notes=f"Stands in the place of {stands_for}; its numbers say nothing about that set.",
        meant="modulo 10, from left to right" if modulo else "",
    )


BENCHMARKS = [
    # full
    _benchmark(
        "syn_mix6", "aime24", "mix", {6: 30}, 32, "c787c180720cd26ad44737fcda39f490165df3d125a6089285622b3c26c344b0"
    ),
    _benchmark(
        "syn_inv4", "aime25", "inv", {4: 30}, 32, "0da6da4e66123df21e0a8b1fc81395db4d76d0d3b58399c67189e7ddf92cfdae"
    ),
    _benchmark(
        "syn_add2", "amc", "add2", {2: 40}, 32, "0c27179475eefc5c75016cd2784465dde5df40bafb2ffb99c6db0016fa5d1727"
    ),
    _benchmark(
        "syn_as4", "math500", "as", {4: 400}, 1, "0d91d216c55eacd9e1665992ad62e48d694d8bd660dd2b39436f739de1377a9d"
    ),
    _benchmark(
        "syn_mix5", "omni_math", "mix", {5: 400}, 1, "6d4ab2f2ff4c6064b686758c03ce3c099b103c78c7afd03d6d82ed2c1e8d2a3e"
    ),
    _benchmark(
        "syn_mul5",
        "olympiadbench",
        "mul",
        {5: 400},
        1,
        "aa26f092bd73e148fef810de07c0d3924358e3863b5ff4c8a0c727dc1a5d6bd6",
    ),
    _benchmark(
        "syn_seq",
        "minerva",
        "seq",
        {1: 150, 2: 150},
        1,
        "30a2e6c898779378ed14f1a71e88f3311e9e754749b994fe536c99eb0c7fd708",
    ),
    # quick
    _benchmark(
        "syn_mix3", "aime24", "mix", {3: 20}, 32, "afe009c0e5da1739cd749777ae8ac8aa05f2aad64ed924344a3690120878cc6c"
    ),
    _benchmark(
        "syn_inv2", "aime25", "inv", {2: 20}, 32, "ce986da5c788dccab0278bcc8d4459bcfd9ced92ceb6d81600771c70cfa7a6e3"
    ),
    _benchmark(
        "syn_add2q", "amc", "add2", {2: 20}, 32, "e250156de6dbf37754f87e7c1c54f4491d798f8138e6c398aad5d39ac9d0fb10"
    ),
    _benchmark(
        "syn_as3", "math500", "as", {3: 100}, 1, "4ecfccc8faeeed9598486f19b587e56ce64f475c4acf17029f79008970fa13c3"
    ),
    _benchmark(
        "syn_mix2", "omni_math", "mix", {2: 100}, 1, "d29b33bac2aca6057c5a72d674e1768c26f3026ccb547f9a2b820362474eb082"
    ),
    _benchmark(
        "syn_mul4",
        "olympiadbench",
        "mul",
        {4: 100},
        1,
        "bf75a16050cdafa9fe4b5774ac1cff0d4961433517c8952c6cd14a0f147be0e9",
    ),
    _benchmark(
        "syn_seq1", "minerva", "seq", {1: 100}, 1, "8bcf28dd8dbfc32cc4eb0658463ee8aeabdf0a51f133855a0887b58e636198d1"
    ),
]
