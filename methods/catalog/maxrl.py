"""MaxRL: GRPO/DAPO, except that the centred reward is divided by the group's mean reward, not by its deviation.

A prompt that is rarely solved weighs more, as in the maximum likelihood of a right answer. A group of equal rewards has
advantage 0.
"""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.parts import Parts, advantages, ratios, reducers, surrogates


def maxrl(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.mean_scaled(),
        ratio=ratios.token(),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], dual=s["dual-clip"]),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


METHODS = [
    CatalogEntry(
        key="maxrl",
        title="MaxRL",
        source="arXiv 2602.02710",
        differs_from_grpo="The advantage is (R - mean) / mean; the clip is symmetric. A group of equal rewards has "
        "advantage 0. Where the mean is not positive nothing is divided.",
        equation="J = (1/N) sum_i sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i),  A_i = (R_i - mean R) / mean R",
        options=(
            options.LOW.with_(
                printed="-", original="0.2, verl's default; never reached, tajwarfahim/maxrl", why="the original's"
            ),
            options.HIGH.with_(
                default=0.2,
                printed="-",
                original="0.2, verl's default; never reached, tajwarfahim/maxrl",
                why="the original's",
            ),
            options.DUAL_CLIP,
            options.AGG_SCOPE,
        ),
        parts=maxrl,
    ),
]
