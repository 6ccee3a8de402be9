"""Clip-Cov: GRPO/DAPO, except that some tokens of high covariance (of A and log pi) lose their term; clip at [0, 2]."""

from dataclasses import replace

from methods import recipe
from methods.catalog.grpo import grpo
from methods.options import Option
from methods.parts import Parts, masks
from methods.recipe import Recipe, Settings

BAND = (
    Option("fraction", 2e-4, "printed", printed="r = 2e-4, section 4.1", original="2e-4, 2505.22617"),
    Option("lower", 1.0, "the original's", original="1, 2505.22617's script"),
    Option("upper", 5.0, "the original's", original="5, 2505.22617's script"),
)


def clip_cov(s: Settings) -> Parts:
    band = masks.random_in_band(fraction=s["fraction"], lower=s["lower"], upper=s["upper"])
    return replace(grpo(s), ratio=recipe.ratio(s), selection=masks.all_but(of=band))


METHODS = [
    Recipe(
        key="clip_cov",
        title="Clip-Cov",
        source="arXiv 2505.22617",
        rows=("Table 1: w. CLIP-Cov", "Table 3, Panel B: w. CLIP-Cov"),
        differs="A random share of the tokens with 1 < cov < 5 loses its term; the ratio is clipped to [0, 2] only.",
        quote="Clip-Cov [...] clips tokens with high covariance using a clip ratio [r = 2e-4]",
        where="section 4.1",
        equation="J = (1/N) sum_i sum_t (1 - I_t) min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)\n"
        "cov_t = (A_i - mean A)(log pi_t - mean log pi)\n"
        "I: max(1, int(fraction N)) unclipped tokens with lower < cov_t < upper, drawn uniformly",
        options=(
            recipe.ADV_STD,
            recipe.TOKEN_RATIO,
            recipe.COV_LOW.but(default=1.0),
            recipe.COV_HIGH.but(default=1.0),
            recipe.DUAL_CLIP,
            *BAND,
            recipe.AGG_SCOPE,
        ),
        parts=clip_cov,
    ),
]
