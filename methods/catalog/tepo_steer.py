"""STEER, printed "STEEL", on TEPO without KL: tokens that would change the entropy much weigh less (Panel B)."""

from dataclasses import replace

from methods import recipe
from methods.catalog.tepo import NO_KL, tepo_nokl
from methods.options import Option
from methods.parts import Parts, masks
from methods.recipe import Recipe, Settings

LEAST = Option(
    "lambda-min",
    0.8,
    "the original's script",
    original=".8, 2510.10150's script",
    reading="steer",
    least=1e-6,
    most=1.0,
)
MAP = Option(
    "map",
    "exp",
    "the original's script",
    original="exp; linear in its code",
    choices=("exp", "linear"),
    reading="steer",
)


def tepo_steer(s: Settings) -> Parts:
    return replace(tepo_nokl(s), selection=masks.steer(least=s["lambda-min"], map=s["map"]))


METHODS = [
    Recipe(
        key="tepo_steer",
        title="TEPO without KL, STEER",
        source="arXiv 2510.10150",
        rows=("Table 3, Panel B: w. STEEL",),
        differs="TEPO's sequence weight, and each token's term is multiplied by a weight in [lambda_min, 1].",
        quote="STEEL [...] proposes an adaptive token-reweighting method that mitigates entropy collapse",
        where="section 4.1",
        equation="J = (1/N) sum_i sum_t lambda_t min(w_i A_i, clip(w_i) A_i)\n"
        "lambda_t = lambda_min^(|Omega_t| / max(max |Omega|, 0.02)),  Omega_t = A_i (1 - pi_t)(log pi_t + H_t)",
        options=(*NO_KL, recipe.SEQUENCE_RATIO.but(reading="steer"), LEAST, MAP),
        parts=tepo_steer,
    ),
]
