"""GMPO: GSPO, except that each token's log ratio is clipped before their mean is taken; bounds are logarithms."""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.options import Option
from methods.parts import Parts, advantages, ratios, reducers, surrogates


def gmpo(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=ratios.token(),
        surrogate=surrogates.geometric_clipped(low=s["low"], high=s["high"]),
        reduce=reducers.seq_mean_token_mean(),
    )


METHODS = [
    CatalogEntry(
        key="gmpo",
        title="GMPO",
        source="arXiv 2507.20673",
        differs_from_grpo="The weight is the geometric mean of the sequence's clipped token ratios, clipped in "
        "logarithms at .4; every sequence counts the same.",
        equation="J = (1/B) sum_i A_i exp( (1/|y_i|) sum_t d_t )\n"
        "d_t = min(log r_t, high) where A_i > 0, max(log r_t, -low) where A_i < 0",
        options=(
            options.ADV_STD,
            Option("low", 0.4, reading="gmpo-eps", why="the original's and TRL's", original="0.4; verl 0.2"),
            Option("high", 0.4, reading="gmpo-eps", why="the original's and TRL's", original="0.4; verl 0.2"),
        ),
        parts=gmpo,
    ),
]
