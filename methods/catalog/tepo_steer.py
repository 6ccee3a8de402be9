"""STEER, printed "STEEL", on TEPO without KL: tokens that would change the entropy much weigh less (Panel B)."""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.options import Option
from methods.parts import Parts, advantages, masks, ratios, reducers, surrogates


def tepo_steer(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=ratios.at_level(s["ratio"], gradient=s["gradient"]),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], form=s["clip-form"], dual=s["dual-clip"]),
        mask=masks.steer(least=s["lambda-min"], map=s["map"], omega=s["omega"]),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


METHODS = [
    CatalogEntry(
        key="tepo_steer",
        title="TEPO without KL, STEER",
        source="arXiv 2510.10150",
        paper_rows=("Table 3, Panel B: w. STEEL",),
        differs_from_grpo="TEPO's sequence weight, and each token's term is multiplied by a weight in [lambda_min, 1].",
        quote="STEEL [...] proposes an adaptive token-reweighting method that mitigates entropy collapse",
        quoted_from="section 4.1",
        equation="J = (1/N) sum_i sum_t lambda_t min(w_i A_i, clip(w_i) A_i)\n"
        "lambda_t = lambda_min^(|Omega_t| / max(max |Omega|, 0.02)),  Omega_t = A_i (1 - pi_t)(log pi_t + H_t)",
        options=(
            options.ADV_STD,
            *options.SEQUENCE_CLIP,
            options.GRADIENT,
            options.AGG_SCOPE,
            options.SEQUENCE_RATIO.with_(reading="steer"),
            # least above 0, because the exponential map takes its logarithm
            Option(
                "lambda-min",
                0.8,
                least=1e-6,
                most=1.0,
                reading="steer",
                why="the original's script",
                original=".8, 2510.10150's script",
            ),
            Option(
                "map",
                "exp",
                choices=("exp", "linear", "min-max"),
                reading="steer",
                why="the original's script run_exp",
                original="exp; min-max in its script run_linear, to [0.8, 1.2]",
            ),
            Option(
                "omega",
                "first-order",
                choices=("first-order", "ratio"),
                reading="steer",
                why="the change at the policy that is trained; equal in the first update of a rollout",
                original="ratio, 2510.10150's code",
            ),
        ),
        parts=tepo_steer,
    ),
]
