"""TEPO: GRPO/DAPO with one weight per sequence, the geometric mean of its ratios (still averaged over tokens, so a
long response counts more), and with a KL to the old policy on tokens with A > 0 whose entropy falls."""

from dataclasses import replace

from methods import options
from methods.options import Settings, method
from methods.parts import Parts, advantages, masks, objective, penalties

NO_KL = (options.ADV_STD, *options.SEQUENCE_CLIP, options.GRADIENT, options.AGG_SCOPE)


@method(
    key="tepo_nokl",
    title="TEPO without KL",
    source="arXiv 2604.12736v1",
    paper_rows=("Table 3: TEPO-w/o. KL",),
    differs_from_grpo="The weight is the geometric mean of the sequence's token ratios.",
    quote="we define the sequence-level weight [w_i] as the geometric mean of token-level importance ratios",
    quoted_from="section 3.3.1",
    equation="J = (1/N) sum_i sum_t min(w_i A_i, clip(w_i, 1 - low, 1 + high) A_i)\nw_i = exp((1/|y_i|) sum_t log r_t)",
    options=NO_KL,
)
def tepo_nokl(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=objective.sequence(gradient=s["gradient"]),
        surrogate=objective.clipped(low=s["low"], high=s["high"], form=s["clip-form"], dual=s["dual-clip"]),
        reduce=objective.token_mean(scope=s["agg-scope"]),
    )


@method(
    key="tepo",
    title="TEPO",
    source="arXiv 2604.12736v1",
    paper_rows=("Table 1, 2, 4: TEPO", "Table 3, Panel E: TEPO"),
    differs_from_grpo="The weight is the geometric mean of the sequence's token ratios, and a KL to the old policy "
    "acts on tokens with positive advantage and falling entropy.",
    quote="introduces a token-level KL-Divergence mask constraint that targets tokens with positive advantages and "
    "decreasing entropy to mitigate abrupt policy updates",
    quoted_from="abstract; eq. 4",
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
    kl = penalties.kl(
        beta=s["beta"],
        estimator=s["kl-estimator"],
        anchor=s["kl-anchor"],
        mask=masks.falling_entropy_on_positive(dh=entropy_change),
        norm=s["mask-norm"],
        clamp=s["kl-clamp"],
    )
    return replace(tepo_nokl(s), penalties=(kl,))
