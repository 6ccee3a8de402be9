"""Prefix importance sampling: GRPO/DAPO, except that a token's weight is the geometric mean of the ratios up to it."""

from methods import recipe
from methods.parts import Part, Parts, ratios, surrogates
from methods.readings import option
from methods.recipe import Recipe, Settings

PREFIX_GRAD = option("prefix-grad")


def weights(gradient: str) -> Part:
    """The prefix weight with the gradient that the reading `prefix-grad` gives it."""
    return ratios.own_token(of=ratios.prefix()) if gradient == "own_token" else ratios.prefix()


def prefix_is(s: Settings) -> Parts:
    surrogate = surrogates.weighted(low=s["low"], high=s["high"]) if s["prefix-grad"] == "stop" else recipe.clip(s)
    return Parts(
        advantage=recipe.z_score(s), ratio=weights(s["prefix-grad"]), surrogate=surrogate, reduce=recipe.token_mean(s)
    )


METHODS = [
    Recipe(
        key="prefix_is",
        title="Prefix importance sampling",
        source="arXiv 2604.12736v1",
        rows=("Table 3, Panel C: w. Sentence Prefix IS",),
        differs="The weight of token t is the geometric mean of the ratios of tokens 1 to t.",
        quote="Prefix importance sampling, [w_t] denotes the prefix of the i-th sentence up to the t-th token",
        where="section 4.1; Table 5, without its stray sum",
        equation="J = (1/N) sum_i sum_t min(w_t A_i, clip(w_t, 1 - low, 1 + high) A_i)\n"
        "w_t = exp((1/t) sum_{u<=t} log r_u)",
        options=(recipe.ADV_STD, recipe.SEQ_LOW, recipe.SEQ_HIGH, recipe.DUAL_CLIP, PREFIX_GRAD, recipe.AGG_SCOPE),
        parts=prefix_is,
    ),
]
