"""Prefix importance sampling: GRPO/DAPO, except that a token's weight is the geometric mean of the ratios up to it."""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.parts import Parts, advantages, ratios, reducers, surrogates


def prefix_is(s: Settings) -> Parts:
    # A clipped objective whose weight is detached has no gradient at all; `weighted` takes it from log pi instead.
    if s["prefix-grad"] == "stop":
        surrogate = surrogates.weighted(low=s["low"], high=s["high"])
    else:
        surrogate = surrogates.clipped(low=s["low"], high=s["high"], dual=s["dual-clip"])
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=ratios.prefix(gradient=s["prefix-grad"]),
        surrogate=surrogate,
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


METHODS = [
    CatalogEntry(
        key="prefix_is",
        title="Prefix importance sampling",
        source="arXiv 2604.12736v1",
        paper_rows=("Table 3, Panel C: w. Sentence Prefix IS",),
        differs_from_grpo="The weight of token t is the geometric mean of the ratios of tokens 1 to t.",
        quote="Prefix importance sampling, [w_t] denotes the prefix of the i-th sentence up to the t-th token",
        quoted_from="section 4.1; Table 5, without its stray sum",
        equation="J = (1/N) sum_i sum_t min(w_t A_i, clip(w_t, 1 - low, 1 + high) A_i)\n"
        "w_t = exp((1/t) sum_{u<=t} log r_u)",
        options=(
            options.ADV_STD,
            options.SEQ_LOW,
            options.SEQ_HIGH,
            options.DUAL_CLIP,
            options.of_reading("prefix-grad"),
            options.AGG_SCOPE,
        ),
        parts=prefix_is,
    ),
]
