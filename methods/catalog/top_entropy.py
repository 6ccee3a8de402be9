"""Top-entropy selection, the 80/20 rule: GRPO/DAPO, except that only the fifth of the tokens with the highest entropy
keep their term; the divisor still counts all tokens.

A group of equal rewards has advantage 0, but its tokens are ranked with the others.
"""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.options import Option
from methods.parts import Parts, advantages, masks, ratios, reducers, surrogates


def top_entropy(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=ratios.token(),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], dual=s["dual-clip"]),
        mask=masks.top_entropy(share=s["share"]),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


METHODS = [
    CatalogEntry(
        key="top_entropy",
        title="Top-entropy tokens (80/20)",
        source="arXiv 2506.01939",
        differs_from_grpo="Only the 20 % of the minibatch's tokens with the highest entropy keep their term. A group "
        "of equal rewards has advantage 0, but its tokens are ranked with the others.",
        equation="J = (1/N) sum_i sum_t 1[H_t >= tau] min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)\n"
        "tau: the (1 - share) quantile of the entropies of the minibatch's tokens",
        options=(
            options.ADV_STD,
            *options.TOKEN_CLIP,
            Option(
                "share",
                0.2,
                least=1e-6,
                most=1.0,
                why="the original's",
                original="0.2, 2506.01939; TRL's top_entropy_quantile is 1, all tokens, until it is set",
            ),
            options.AGG_SCOPE,
        ),
        parts=top_entropy,
    ),
]
