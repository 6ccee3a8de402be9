"""Dr. GRPO: GRPO/DAPO, except that the advantage is not divided by the group's deviation, nor the loss by the tokens of
the responses at hand, but by a constant: the most tokens that they may have.

A group of equal rewards has advantage 0.
"""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.parts import Parts, advantages, ratios, reducers, surrogates


def dr_grpo(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_centred(scale="one", reward="binary"),
        ratio=ratios.token(),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], dual=s["dual-clip"]),
        reduce=reducers.seq_mean_token_sum_norm(),
    )


METHODS = [
    CatalogEntry(
        key="dr_grpo",
        title="Dr. GRPO",
        source="arXiv 2503.20783",
        differs_from_grpo="The advantage is R - mean, the loss is divided by B L with L the most tokens a response may "
        "have, and the clip is symmetric. A group of equal rewards has advantage 0.",
        equation="J = (1/(B L)) sum_i sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i),  A_i = R_i - mean R",
        options=(
            options.LOW.with_(printed="-", original="0.2, sail-sg/understand-r1-zero and TRL", why="the original's"),
            options.HIGH.with_(
                default=0.2, printed="-", original="0.2, sail-sg/understand-r1-zero and TRL", why="the original's"
            ),
            options.DUAL_CLIP,
        ),
        parts=dr_grpo,
    ),
]
