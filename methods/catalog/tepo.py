"""TEPO: GRPO/DAPO, except that a sequence has one weight, the geometric mean of its ratios (still averaged over
tokens: a long response counts more), and that tokens with A > 0 whose entropy falls pay a KL to the old policy."""

from dataclasses import replace

from methods import recipe
from methods.options import Option
from methods.parts import Part, Parts, masks, ratios
from methods.recipe import Recipe, Settings

BETA = Option(
    "beta",
    0.001,
    "Qwen2.5-7B's; Table 2 states none",
    printed="0.001 for Qwen2.5-7B, 1 for Qwen3-14B, section 4.1",
    reading="beta",
)
NO_KL = (recipe.ADV_STD, *recipe.SEQUENCE_CLIP, recipe.GRADIENT, recipe.AGG_SCOPE)
MASKED_KL = (BETA, *recipe.KL, *recipe.ENTROPY_CHANGE, recipe.MASK_NORM)


def sequence_weighted(s: Settings, reduce: Part) -> Parts:
    """Everything but the reducer: what TEPO without KL, GSPO and Panel D share."""
    level = recipe.ratio(s) if "ratio" in s else ratios.sequence()
    weight = ratios.own_share(of=level) if s["gradient"] == "alg1_line21" else level
    return Parts(advantage=recipe.z_score(s), ratio=weight, surrogate=recipe.clip(s), reduce=reduce)


def tepo_nokl(s: Settings) -> Parts:
    return sequence_weighted(s, recipe.token_mean(s))


def tepo(s: Settings) -> Parts:
    return replace(tepo_nokl(s), penalties=(recipe.kl(s, where=masks.sure_and_sharpening(dh=recipe.delta_entropy(s))),))


METHODS = [
    Recipe(
        key="tepo_nokl",
        title="TEPO without KL",
        source="arXiv 2604.12736v1",
        rows=("Table 3: TEPO-w/o. KL",),
        differs="The weight is the geometric mean of the sequence's token ratios.",
        quote="we define the sequence-level weight [w_i] as the geometric mean of token-level importance ratios",
        where="section 3.3.1",
        equation="J = (1/N) sum_i sum_t min(w_i A_i, clip(w_i, 1 - low, 1 + high) A_i)\n"
        "w_i = exp((1/|y_i|) sum_t log r_t)",
        options=NO_KL,
        parts=tepo_nokl,
    ),
    Recipe(
        key="tepo",
        title="TEPO",
        source="arXiv 2604.12736v1",
        rows=("Table 1, 2, 4: TEPO", "Table 3, Panel E: TEPO"),
        differs="The weight is the geometric mean of the sequence's token ratios, and a KL to the old policy acts on "
        "tokens with positive advantage and falling entropy.",
        quote="introduces a token-level KL-Divergence mask constraint that targets tokens with positive advantages and "
        "decreasing entropy to mitigate abrupt policy updates",
        where="abstract; eq. 4",
        equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) - beta KL_t(pi || pi_old) M_t }\n"
        "M_t = 1[A_i > 0 and dH_t < 0]",
        options=(*NO_KL, *MASKED_KL),
        parts=tepo,
        also={
            "tepo_line21": {"gradient": "alg1_line21"},
            "tepo_eq4": {"clip-form": "eq4"},
            "tepo_noclip": {"clip-form": "none"},
        },
    ),
]
