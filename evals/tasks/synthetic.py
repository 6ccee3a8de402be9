r"""Synthetic stand-ins: held-out problems for tiny models, made by `evals.arithmetic`, never downloaded.

They replace the paper's sets in tables, but do not measure those sets. Difficulty is part of the key, so that
no cell of the quick profile can be mistaken for one of the full. The seven of the embedded scale are seven abilities,
and RL does not train two of them there. An item: problem "6+8-9*9?", answer "5".
"""

from evals.arithmetic import held_out
from evals.benchmark import Benchmark, Decoding, Generated, Row

SEED = 0
MAX_TOKENS = 64  # the longest written-out answer has 52
_MODULO = "modulo 10, from left to right"
MEANT = {  # family -> knowledge needed to check an answer
    "as": _MODULO,
    "mul": _MODULO,
    "mix": _MODULO,
    "seq": _MODULO,
    "inv": _MODULO,
    "swap": "under which of five cups is the ball, after swapping pairs of cups?",
    "sort": "the digits in rising order",
    "iter": "the digits before the colon are f(1), f(2), ..; f is applied once per comma",
}


SHA256 = {
    "syn_mix4_greedy": "a6a0435720d778c58750343365baf43a57a5ade12be429c9c4630e86849d8f97",
    "syn_swap4_greedy": "9b6023a5a5ecc6ac24cf0c8673b0e6d84a9e86ee167ce587a0e37a01c7e46ed7",
    "syn_mix6": "744eae29426dae09e6d3c940b5eefdccdb0ce932d15d9b901bd6b2025f5506dd",
    "syn_mix6_greedy": "744eae29426dae09e6d3c940b5eefdccdb0ce932d15d9b901bd6b2025f5506dd",
    "syn_swap6_greedy": "e9bf9e1a3c7491114cc7e2d6444ac16ff5c5a9862251e6f92ee047c3f4230368",
    "syn_mix4": "1ed8f51638b2c6a84330ac9fbe24a63dc6aae0f44ddf8d6910d22bc03dee7b12",
    "syn_solve2": "6127f1e0347e81b7d1681c268ce67787ce959218875d48fab16640384f2c470a",
    "syn_add2": "0c27179475eefc5c75016cd2784465dde5df40bafb2ffb99c6db0016fa5d1727",
    "syn_swap4": "9b6023a5a5ecc6ac24cf0c8673b0e6d84a9e86ee167ce587a0e37a01c7e46ed7",
    "syn_sort": "321874a160c34ac1b95350894fe7fec2c8488208327f304e387bd520e4aa80be",
    "syn_iter3": "ce66579423d64325026cc49b52c08015fe91d3788aff2504bf9d06687f78b2b3",
    "syn_seq": "30a2e6c898779378ed14f1a71e88f3311e9e754749b994fe536c99eb0c7fd708",
    "syn_mix3": "afe009c0e5da1739cd749777ae8ac8aa05f2aad64ed924344a3690120878cc6c",
    "syn_inv2": "ce986da5c788dccab0278bcc8d4459bcfd9ced92ceb6d81600771c70cfa7a6e3",
    "syn_add2q": "e250156de6dbf37754f87e7c1c54f4491d798f8138e6c398aad5d39ac9d0fb10",
    "syn_as3": "4ecfccc8faeeed9598486f19b587e56ce64f475c4acf17029f79008970fa13c3",
    "syn_as3_sampled": "4ecfccc8faeeed9598486f19b587e56ce64f475c4acf17029f79008970fa13c3",
    "syn_mix2": "d29b33bac2aca6057c5a72d674e1768c26f3026ccb547f9a2b820362474eb082",
    "syn_mul4": "bf75a16050cdafa9fe4b5774ac1cff0d4961433517c8952c6cd14a0f147be0e9",
    "syn_seq1": "8bcf28dd8dbfc32cc4eb0658463ee8aeabdf0a51f133855a0887b58e636198d1",
}


def _benchmark(
    key: str,
    stands_for: str,
    family: str,
    sizes: dict[int, int],  # problems per difficulty k
    samples: int,
    temperature: float = 0.0,  # greedy
    *,
    # whether RL on the ladder `taught` trains on this family; the base has learnt it either way
    taught: bool = True,
) -> Benchmark:
    def make() -> list[Row]:
        return [
            {"problem": problem.prompt, "answer": problem.answer, "family": family, "k": k}
            for k, n in sizes.items()
            for problem in held_out(family, k, n, SEED)
        ]

    calls = " + ".join(f"held_out({family!r}, {k}, {n}, {SEED})" for k, n in sizes.items())
    difficulty = " and ".join(str(k) for k in sizes)
    # next to the same set decoded otherwise
    decoded = next((f", {word}" for word in ("greedy", "sampled") if key.endswith(f"_{word}")), "")
    meant = MEANT.get(family, "")
    modulo = ", modulo 10" if meant == _MODULO else ""
    return Benchmark(
        key=key,
        title=f"synthetic {family} k={difficulty}{modulo}{decoded}{'' if taught else ', not trained by RL'}",
        stands_for=stands_for,
        source=Generated(f"evals.arithmetic: {calls}", make),
        revision=f"seed {SEED}",
        sha256=SHA256[key],
        n=sum(sizes.values()),
        licence="Apache-2.0 (this repository)",
        prompt="arithmetic",
        decoding=Decoding(samples, temperature, top_p=1.0, max_tokens=MAX_TOKENS),
        duplicates="keep",
        meant=meant,
    )


BENCHMARKS = [
    # embedded: sampled at temperature 1, as the policy is trained. Greedy answers of GRPO/DAPO are right to .89 on
    # average after 6 rollouts, sampled ones to .46 (tiny_qwen2, 14 families and difficulties): near a ceiling no two
    # methods differ.
    _benchmark("syn_mix4", "aime24", "mix", {4: 30}, 32, 1.0),
    _benchmark("syn_solve2", "aime25", "inv", {2: 30}, 32, 1.0),
    _benchmark("syn_add2", "amc", "add2", {2: 40}, 32, 1.0),
    _benchmark("syn_swap4", "math500", "swap", {4: 400}, 1, 1.0),
    _benchmark("syn_sort", "omni_math", "sort", {3: 100, 4: 300}, 1, 1.0),
    _benchmark("syn_iter3", "olympiadbench", "iter", {3: 400}, 1, 1.0, taught=False),
    _benchmark("syn_seq", "minerva", "seq", {1: 150, 2: 150}, 1, 1.0, taught=False),
    # clean: the same levels sampled and greedy, then levels that RL does not train on
    _benchmark("syn_mix4_greedy", "aime25", "mix", {4: 400}, 1),
    _benchmark("syn_swap4_greedy", "omni_math", "swap", {4: 400}, 1),
    _benchmark("syn_mix6", "amc", "mix", {6: 400}, 1, 1.0),
    _benchmark("syn_mix6_greedy", "olympiadbench", "mix", {6: 400}, 1),
    _benchmark("syn_swap6_greedy", "minerva", "swap", {6: 400}, 1),
    # quick: at temperature 1 too, where models are right to 44 to 83 % after four rollouts. Greedy answers of `as` are
    # right to 96 % by then; for tests of greedy decoding that set stays.
    _benchmark("syn_mix3", "aime24", "mix", {3: 20}, 32, 1.0),
    _benchmark("syn_inv2", "aime25", "inv", {2: 20}, 32, 1.0),
    _benchmark("syn_add2q", "amc", "add2", {2: 20}, 32, 1.0),
    _benchmark("syn_as3", "math500", "as", {3: 100}, 1),
    _benchmark("syn_as3_sampled", "math500", "as", {3: 100}, 1, 1.0),
    _benchmark("syn_mix2", "omni_math", "mix", {2: 100}, 1, 1.0),
    _benchmark("syn_mul4", "olympiadbench", "mul", {4: 100}, 1, 1.0),
    _benchmark("syn_seq1", "minerva", "seq", {1: 100}, 1, 1.0),
]
