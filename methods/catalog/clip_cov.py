"""Clip-Cov: GRPO/DAPO, except that some tokens of high covariance (of A and log pi) lose their term; clip at [0, 2]."""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.options import Option
from methods.parts import Parts, advantages, masks, ratios, reducers, surrogates


def clip_cov(s: Settings) -> Parts:
    band = masks.random_in_band(fraction=s["fraction"], lower=s["lower"], upper=s["upper"])
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=ratios.at_level(s["ratio"]),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], dual=s["dual-clip"]),
        mask=masks.all_but(of=band),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


METHODS = [
    CatalogEntry(
        key="clip_cov",
        title="Clip-Cov",
        source="arXiv 2505.22617",
        paper_rows=("Table 1: w. CLIP-Cov", "Table 3, Panel B: w. CLIP-Cov"),
        differs_from_grpo="A random share of the tokens with 1 < cov < 5 loses its term; the ratio is clipped to "
        "[0, 2] only.",
        quote="Clip-Cov [...] clips tokens with high covariance using a clip ratio [r = 2e-4]",
        quoted_from="section 4.1",
        equation="J = (1/N) sum_i sum_t (1 - I_t) min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)\n"
        "cov_t = (A_i - mean A)(log pi_t - mean log pi)\n"
        "I: max(1, int(fraction N)) unclipped tokens with lower < cov_t < upper, drawn uniformly",
        options=(
            options.ADV_STD,
            options.TOKEN_RATIO,
            # 1 and 1 keep the ratio in [0, 2], which is almost no clip: the covariance decides
            options.COV_LOW.with_(default=1.0),
            options.COV_HIGH.with_(default=1.0),
            options.DUAL_CLIP,
            Option("fraction", 2e-4, why="printed", printed="r = 2e-4, section 4.1", original="2e-4, 2505.22617"),
            Option("lower", 1.0, why="the original's", original="1, 2505.22617's script"),
            Option("upper", 5.0, why="the original's", original="5, 2505.22617's script"),
            options.AGG_SCOPE,
        ),
        parts=clip_cov,
    ),
]
