"""GSPO: GRPO/DAPO with one weight per sequence, averaged over the sequence first. Against TEPO without KL only the reducer differs."""

from dataclasses import replace

from methods import reducers
from methods.catalog.tepo import tepo_nokl
from methods.choices import ADV_STD, GRADIENT, SEQUENCE_CLIP
from methods.method import Parts
from methods.recipe import Recipe, Settings

OPTIONS = (ADV_STD, *SEQUENCE_CLIP)


def gspo(s: Settings) -> Parts:
    return replace(
        tepo_nokl({**s, "gradient": GRADIENT.default, "agg-scope": "minibatch"}), reduce=reducers.seq_mean_token_mean()
    )


METHODS = [
    Recipe(
        key="gspo",
        title="GSPO",
        source="arXiv 2507.18071",
        rows=("Table 1: w. GSPO", "Table 3, Panel D: w. sequence-mean token-mean/GSPO aggregation"),
        differs="The weight is the geometric mean of the sequence's token ratios, and every sequence counts the same whatever its length.",
        quote="Aggregation Methods: Evaluations for aggregation: a. 'sequence-mean token-mean aggregation'/GSPO",
        where="section 4.1",
        equation="J = (1/B) sum_i min(w_i A_i, clip(w_i, 1 - low, 1 + high) A_i),  w_i = exp((1/|y_i|) sum_t log r_t)",
        options=OPTIONS,
        parts=gspo,
    ),
]
