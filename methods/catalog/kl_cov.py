"""KL-Cov: GRPO/DAPO without a clip, with a penalty |log ratio| on the tokens of highest covariance of A and log pi."""

from dataclasses import replace

from methods import recipe
from methods.catalog.grpo import grpo
from methods.options import Option
from methods.parts import Parts, masks
from methods.recipe import Recipe, Settings


def kl_cov(s: Settings) -> Parts:
    where = masks.top_covariance(fraction=s["fraction"])
    return replace(grpo(s), ratio=recipe.ratio(s), penalties=(recipe.kl(s, where=where),))


METHODS = [
    Recipe(
        key="kl_cov",
        title="KL-Cov",
        source="arXiv 2505.22617",
        rows=("Table 1: w. KL-Cov", "Table 3, Panel B: w. KL-Cov"),
        differs="No ratio clip; the tokens of highest covariance pay |log ratio|.",
        quote="For KL-Cov, the parameter k is set to [2e-3] and the KL coefficient [beta = 1].",
        where="section 4.1",
        equation="J = (1/N) sum_i sum_t { r_t A_i - beta |log r_t| I_t }\n"
        "cov_t = (A_i - mean A)(log pi_t - mean log pi)\n"
        "I: the max(1, int(fraction N)) tokens of largest cov_t",
        options=(
            recipe.ADV_STD,
            recipe.TOKEN_RATIO,
            recipe.COV_LOW.but(default=None),
            recipe.COV_HIGH.but(default=None),
            recipe.DUAL_CLIP,
            Option("fraction", 2e-3, "printed", printed="k = 2e-3, section 4.1", original="2e-3 for 7B, 2e-4 for 32B"),
            Option("beta", 1.0, "printed", printed="1, section 4.1", original="1, 2505.22617's script"),
            recipe.KL_ANCHOR.but(printed="-", original="old, 2505.22617", why="the original's"),
            recipe.KL_ESTIMATOR.but(
                default="abs", original="KL(old || new) in print, abs in code", why="the original's code"
            ),
            recipe.AGG_SCOPE,
        ),
        parts=kl_cov,
    ),
]
