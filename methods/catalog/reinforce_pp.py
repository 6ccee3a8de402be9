"""REINFORCE++: GRPO/DAPO, except that the advantage is whitened over all tokens of the rollout, not within the group.

The baseline form subtracts the group's mean before. Neither has advantage 0 on a group of equal rewards: without the
baseline a group of wrong answers is pushed down; with it, all of its responses get minus the mean over tokens. Our
trainers drop such groups before the advantage is computed, unless they are told not to: the mean is over the others.
"""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.parts import Parts, advantages, ratios, reducers, surrogates

OPTIONS = (
    options.LOW.with_(printed="-", original="0.2, OpenRLHF and verl", why="upstream's"),
    options.HIGH.with_(default=0.2, printed="-", original="0.2, OpenRLHF and verl", why="upstream's"),
    options.DUAL_CLIP,
    options.of_reading("whiten-std", original="biased, OpenRLHF; unbiased, verl"),
    options.AGG_SCOPE,
)


def reinforce_pp(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.whitened(baseline="none", std=s["whiten-std"]),
        ratio=ratios.token(),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], dual=s["dual-clip"]),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


def reinforce_pp_baseline(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.whitened(baseline="group", std=s["whiten-std"]),
        ratio=ratios.token(),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], dual=s["dual-clip"]),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


METHODS = [
    CatalogEntry(
        key="reinforce_pp",
        title="REINFORCE++",
        source="arXiv 2501.03262",
        differs_from_grpo="The advantage is the reward, whitened over all tokens of the rollout; the clip is "
        "symmetric. A group of equal rewards has an advantage too: R - mean of all. The paper's KL in the reward is "
        "left out, as in verl's default.",
        equation="J = (1/N) sum_i sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)\n"
        "A_i = (R_i - mean R) / sqrt(var R + 1e-8),  mean and var over all tokens of the rollout",
        options=OPTIONS,
        parts=reinforce_pp,
    ),
    CatalogEntry(
        key="reinforce_pp_baseline",
        title="REINFORCE++ baseline",
        source="arXiv 2501.03262",
        differs_from_grpo="The centred reward is whitened over all tokens of the rollout instead of divided by the "
        "group's deviation; the clip is symmetric. A group of equal rewards gets minus the mean over tokens, which is "
        "not 0 where lengths differ. The paper's KL to the initial model is left out, as in verl's default.",
        equation="J = (1/N) sum_i sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)\n"
        "A_i = (b_i - mean b) / sqrt(var b + 1e-8),  b_i = R_i - mean of the group;  mean and var over all tokens",
        options=OPTIONS,
        parts=reinforce_pp_baseline,
    ),
]
