"""TEPO: GRPO/DAPO with one weight per sequence, the geometric mean of its ratios, and with a KL to the old policy on
tokens with A > 0 whose entropy falls. The loss is still a mean over tokens, so a long response counts more."""

from methods import options
from methods.options import Settings, method
from methods.parts import Parts, masks

NO_KL = (options.ADV_STD, *options.SEQUENCE_CLIP, options.GRADIENT, options.AGG_SCOPE)


@method(
    key="tepo_nokl",
    title="TEPO without KL",
    source="arXiv 2604.12736v1",
    paper_rows=("Table 3: TEPO-w/o. KL",),
    differs_from_grpo="The weight is the geometric mean of the sequence's token ratios.",
    equation="J = (1/N) sum_i sum_t min(w_i A_i, clip(w_i, 1 - low, 1 + high) A_i)\nw_i = exp((1/|y_i|) sum_t log r_t)",
    options=NO_KL,
)
def tepo_nokl(s: Settings) -> Parts:
    return options.clipped_loss(s, level="sequence")


@method(
    key="tepo",
    title="TEPO",
    source="arXiv 2604.12736v1",
    paper_rows=("Table 1, 2, 4: TEPO", "Table 3, Panel E: TEPO"),
    differs_from_grpo="The weight is the geometric mean of the sequence's token ratios, and a KL to the old policy "
    "acts on tokens with positive advantage and falling entropy.",
    equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) - beta KL_t(pi || pi_old) M_t }\n"
    "M_t = 1[A_i > 0 and dH_t < 0]",
    options=(*NO_KL, *options.MASKED_KL),
    aliases={
        "tepo_line21": {"gradient": "alg1_line21"},
        "tepo_eq4": {"clip-form": "eq4"},
        "tepo_noclip": {"clip-form": "none"},
    },
)
def tepo(s: Settings) -> Parts:
    entropy_change = masks.entropy_change(s["dh-def"], tolerance=s["dh-tol"])
    mask = masks.falling_entropy_on_positive(dh=entropy_change)
    return options.with_kl(options.clipped_loss(s, level="sequence"), s, mask)
