"""KL-Cov: GRPO/DAPO without a clip, with a penalty |log ratio| on the tokens of highest covariance of A and log pi."""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.options import Option
from methods.parts import Parts, advantages, masks, penalties, ratios, reducers, surrogates


def kl_cov(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=ratios.at_level(s["ratio"]),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], dual=s["dual-clip"]),  # by default no bound
        penalties=(
            penalties.kl(
                beta=s["beta"],
                estimator=s["kl-estimator"],
                anchor=s["kl-anchor"],
                mask=masks.top_covariance(fraction=s["fraction"]),
            ),
        ),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


METHODS = [
    CatalogEntry(
        key="kl_cov",
        title="KL-Cov",
        source="arXiv 2505.22617",
        paper_rows=("Table 1: w. KL-Cov", "Table 3, Panel B: w. KL-Cov"),
        differs_from_grpo="No ratio clip; the tokens of highest covariance pay |log ratio|.",
        quote="For KL-Cov, the parameter k is set to [2e-3] and the KL coefficient [beta = 1].",
        quoted_from="section 4.1",
        equation="J = (1/N) sum_i sum_t { r_t A_i - beta |log r_t| I_t }\n"
        "cov_t = (A_i - mean A)(log pi_t - mean log pi)\n"
        "I: the max(1, int(fraction N)) tokens of largest cov_t",
        options=(
            options.ADV_STD,
            options.TOKEN_RATIO,
            options.COV_LOW.with_(default=None),
            options.COV_HIGH.with_(default=None),
            options.DUAL_CLIP,
            Option(
                "fraction", 2e-3, why="printed", printed="k = 2e-3, section 4.1", original="2e-3 for 7B, 2e-4 for 32B"
            ),
            Option("beta", 1.0, why="printed", printed="1, section 4.1", original="1, 2505.22617's script"),
            options.KL_ANCHOR.with_(printed="-", original="old, 2505.22617", why="the original's"),
            options.KL_ESTIMATOR.with_(
                default="abs", original="KL(old || new) in print, abs in code", why="the original's code"
            ),
            options.AGG_SCOPE,
        ),
        parts=kl_cov,
    ),
]
