"""TEPO: GRPO/DAPO with one weight per sequence, the geometric mean of its ratios, still averaged over tokens (so a long response
counts more), and a KL to the old policy on tokens with A > 0 whose entropy falls. Without the KL it is GSPO with a token mean."""

from dataclasses import replace

from methods import ratios, selections
from methods.choices import (
    ADV_STD,
    AGG_SCOPE,
    ENTROPY_CHANGE,
    GRADIENT,
    KL,
    MASK_NORM,
    SEQUENCE_CLIP,
    clip,
    delta_entropy,
    kl,
    token_mean,
    z_score,
)  # fmt: skip
from methods.method import Parts
from methods.options import Option
from methods.recipe import Recipe, Settings

BETA = Option(
    "beta",
    0.001,
    "Qwen2.5-7B's; Table 2 states none",
    printed="0.001 for Qwen2.5-7B, 1 for Qwen3-14B, section 4.1",
    reading="beta",
)
NO_KL = (ADV_STD, *SEQUENCE_CLIP, GRADIENT, AGG_SCOPE)
MASKED_KL = (BETA, *KL, *ENTROPY_CHANGE, MASK_NORM)


def tepo_nokl(s: Settings) -> Parts:
    ratio = ratios.sequence()
    if s["gradient"] == "alg1_line21":
        ratio = ratios.own_share(of=ratio)
    return Parts(advantage=z_score(s), ratio=ratio, surrogate=clip(s), reduce=token_mean(s))


def tepo(s: Settings) -> Parts:
    return replace(tepo_nokl(s), penalties=(kl(s, where=selections.sure_and_sharpening(dh=delta_entropy(s))),))


METHODS = [
    Recipe(
        key="tepo_nokl",
        title="TEPO without KL",
        source="arXiv 2604.12736v1",
        rows=("Table 3: TEPO-w/o. KL",),
        differs="The weight is the geometric mean of the sequence's token ratios.",
        quote="we define the sequence-level weight w_i(theta) as the geometric mean of token-level importance ratios",
        where="section 3.3.1",
        equation="J = (1/N) sum_i sum_t min(w_i A_i, clip(w_i, 1 - low, 1 + high) A_i),  w_i = exp((1/|y_i|) sum_t log r_t)",
        options=NO_KL,
        parts=tepo_nokl,
    ),
    Recipe(
        key="tepo",
        title="TEPO",
        source="arXiv 2604.12736v1",
        rows=("Table 1, 2, 4: TEPO", "Table 3, Panel E: TEPO"),
        differs="The weight is the geometric mean of the sequence's token ratios, and a KL to the old policy acts on tokens with "
        "positive advantage and falling entropy.",
        quote="introduces a token-level KL-Divergence mask constraint that targets tokens with positive advantages and decreasing "
        "entropy to mitigate abrupt policy updates",
        where="abstract; eq. 4",
        equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) - beta KL_t(pi || pi_old) M_t },  M_t = 1[A_i > 0 and dH_t < 0]",
        options=(*NO_KL, *MASKED_KL),
        parts=tepo,
        also={
            "tepo_line21": {"gradient": "alg1_line21"}, "tepo_eq4": {"clip-form": "eq4"}, "tepo_noclip": {"clip-form": "none"},
        },
    ),
]  # fmt: skip
