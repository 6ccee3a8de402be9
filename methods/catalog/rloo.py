"""RLOO: GRPO/DAPO, except that the baseline is the mean reward of the group's other responses and nothing divides it.

`rloo` changes the advantage alone, as verl's estimator does; `rloo_sequence` also takes the whole response as one
action, as the paper and TRL do. A group of equal rewards has advantage 0.
"""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.parts import Parts, advantages, ratios, reducers, surrogates

CLIP = (
    options.LOW.with_(printed="-", original="0.2, verl and TRL; none, 2402.14740", why="upstream's"),
    options.HIGH.with_(default=0.2, printed="-", original="0.2, verl and TRL; none, 2402.14740", why="upstream's"),
    options.DUAL_CLIP,
)


def rloo(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.leave_one_out(),
        ratio=ratios.token(),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], dual=s["dual-clip"]),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


def rloo_sequence(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.leave_one_out(),
        ratio=ratios.product(most=None),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], dual=s["dual-clip"]),
        reduce=reducers.seq_mean_token_mean(),  # of one term per response
    )


METHODS = [
    CatalogEntry(
        key="rloo",
        title="RLOO",
        source="arXiv 2402.14740",
        differs_from_grpo="The advantage is R - mean reward of the group's other responses; the clip is symmetric. "
        "A group of equal rewards has advantage 0.",
        equation="J = (1/N) sum_i sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)\n"
        "A_i = R_i - (1/(n - 1)) sum_{j != i} R_j,  n responses in the group",
        options=(*CLIP, options.AGG_SCOPE),
        parts=rloo,
    ),
    CatalogEntry(
        key="rloo_sequence",
        title="RLOO, one action per response",
        source="arXiv 2402.14740",
        differs_from_grpo="RLOO's advantage, and one weight per response, the product of its ratios. A group of equal "
        "rewards has advantage 0.",
        equation="J = (1/B) sum_i min(w_i A_i, clip(w_i, 1 - low, 1 + high) A_i),  w_i = exp(sum_t log r_t)\n"
        "A_i = R_i - (1/(n - 1)) sum_{j != i} R_j,  n responses in the group",
        options=CLIP,
        parts=rloo_sequence,
    ),
]
