"""GSPO and Panel D: TEPO without KL, except for the reducer; against GRPO/DAPO, also one weight per sequence."""

from methods import recipe
from methods.catalog.tepo import NO_KL, sequence_weighted
from methods.parts import Parts, reducers
from methods.recipe import Recipe, Settings

OPTIONS = tuple(option for option in NO_KL if option is not recipe.AGG_SCOPE)


def gspo(s: Settings) -> Parts:
    return sequence_weighted(s, reducers.seq_mean_token_mean())


def tepo_seqsum(s: Settings) -> Parts:
    return sequence_weighted(s, reducers.seq_mean_token_sum())


METHODS = [
    Recipe(
        key="gspo",
        title="GSPO",
        source="arXiv 2507.18071",
        rows=("Table 1: w. GSPO", "Table 3, Panel D: w. sequence-mean token-mean/GSPO aggregation"),
        differs="The weight is the geometric mean of the sequence's token ratios, and every sequence counts the same.",
        quote="Evaluations for aggregation: a. 'sequence-mean token-mean [aggregation'/GSPO]",
        where="section 4.1",
        equation="J = (1/B) sum_i min(w_i A_i, clip(w_i, 1 - low, 1 + high) A_i),  w_i = exp((1/|y_i|) sum_t log r_t)",
        options=OPTIONS,
        parts=gspo,
    ),
    Recipe(
        key="tepo_seqsum",
        title="TEPO without KL, summed over tokens",
        source="arXiv 2604.12736v1",
        rows=("Table 3, Panel D: w. sequence-mean token-sum aggregation",),
        differs="The weight is the geometric mean of the sequence's token ratios; the sum is divided by sequences.",
        quote="b. 'sequence-mean token-sum aggregation'",
        where="section 4.1; Table 5",
        equation="J = (1/B) sum_i sum_t min(w_i A_i, clip(w_i, 1 - low, 1 + high) A_i),  w_i as in GSPO",
        options=OPTIONS,
        parts=tepo_seqsum,
    ),
]
