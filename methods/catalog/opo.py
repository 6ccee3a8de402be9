"""OPO: GRPO/DAPO, except that the baseline weights each response of the group by its length, and nothing divides it.

A group of equal rewards has advantage 0.
"""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.parts import Parts, advantages, ratios, reducers, surrogates


def opo(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.length_weighted_baseline(),
        ratio=ratios.token(),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], dual=s["dual-clip"]),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


METHODS = [
    CatalogEntry(
        key="opo",
        title="OPO",
        source="arXiv 2505.23585",
        differs_from_grpo="The advantage is R - sum |y| R / sum |y| over the group; the clip is symmetric. A group of "
        "equal rewards has advantage 0. The paper makes one update per rollout, where no clip acts.",
        equation="J = (1/N) sum_i sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)\n"
        "A_i = R_i - (sum_j |y_j| R_j) / (sum_j |y_j|),  j over the group",
        options=(
            options.LOW.with_(printed="-", original="never reached; 0.2, verl's default", why="upstream's"),
            options.HIGH.with_(
                default=0.2, printed="-", original="never reached; 0.2, verl's default", why="upstream's"
            ),
            options.DUAL_CLIP,
            options.AGG_SCOPE,
        ),
        parts=opo,
    ),
]
