"""GSPO and Panel D: against GRPO/DAPO, one weight per sequence and another reducer; TEPO without KL has this weight."""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.parts import Parts, advantages, ratios, reducers, surrogates

OPTIONS = (options.ADV_STD, *options.SEQUENCE_CLIP, options.GRADIENT)


def gspo(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=ratios.sequence(gradient=s["gradient"]),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], form=s["clip-form"], dual=s["dual-clip"]),
        reduce=reducers.seq_mean_token_mean(),
    )


def tepo_seqsum(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=ratios.sequence(gradient=s["gradient"]),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], form=s["clip-form"], dual=s["dual-clip"]),
        reduce=reducers.seq_mean_token_sum(),
    )


METHODS = [
    CatalogEntry(
        key="gspo",
        title="GSPO",
        source="arXiv 2507.18071",
        paper_rows=("Table 1: w. GSPO", "Table 3, Panel D: w. sequence-mean token-mean/GSPO aggregation"),
        differs_from_grpo="The weight is the geometric mean of the sequence's token ratios, and every sequence counts "
        "the same.",
        quote="Evaluations for aggregation: a. 'sequence-mean token-mean [aggregation'/GSPO]",
        quoted_from="section 4.1",
        equation="J = (1/B) sum_i min(w_i A_i, clip(w_i, 1 - low, 1 + high) A_i),  w_i = exp((1/|y_i|) sum_t log r_t)",
        options=OPTIONS,
        parts=gspo,
        # GSPO-token (eq. 14) has another gradient only where the advantage varies within a response
        aliases={"gspo_token": {}},
    ),
    CatalogEntry(
        key="tepo_seqsum",
        title="TEPO without KL, summed over tokens",
        source="arXiv 2604.12736v1",
        paper_rows=("Table 3, Panel D: w. sequence-mean token-sum aggregation",),
        differs_from_grpo="The weight is the geometric mean of the sequence's token ratios; the sum is divided by "
        "sequences.",
        quote="b. 'sequence-mean token-sum aggregation'",
        quoted_from="section 4.1; Table 5",
        equation="J = (1/B) sum_i sum_t min(w_i A_i, clip(w_i, 1 - low, 1 + high) A_i),  w_i as in GSPO",
        options=OPTIONS,
        parts=tepo_seqsum,
        aliases={"luspo": {}},  # arXiv 2602.05261: the sequence weight, summed over tokens
    ),
]
