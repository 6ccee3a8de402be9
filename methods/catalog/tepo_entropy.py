"""TEPO without KL, plus an entropy term on every token: max-entropy rewards it, min-entropy punishes it (Panel B)."""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.options import Option
from methods.parts import Parts, advantages, masks, penalties, ratios, reducers, surrogates

OPTIONS = (
    options.ADV_STD,
    *options.SEQUENCE_CLIP,
    options.GRADIENT,
    options.AGG_SCOPE,
    options.SEQUENCE_RATIO,
    Option(
        "coefficient", 1e-3, why="the customary value", original="1e-4 to 1e-2 tried in 2505.22617", reading="ent-coef"
    ),
)


def with_entropy(s: Settings, coefficient: float) -> Parts:
    """TEPO's loss without KL, minus `coefficient` times the entropy."""
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=ratios.at_level(s["ratio"], gradient=s["gradient"]),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], form=s["clip-form"], dual=s["dual-clip"]),
        penalties=(penalties.entropy(coefficient=coefficient, mask=masks.everywhere()),),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


def tepo_maxent(s: Settings) -> Parts:
    return with_entropy(s, -s["coefficient"])  # penalties are subtracted, so a negative one rewards entropy


def tepo_minent(s: Settings) -> Parts:
    return with_entropy(s, s["coefficient"])


METHODS = [
    CatalogEntry(
        key="tepo_maxent",
        title="TEPO without KL, max-entropy",
        source="arXiv 2604.12736v1",
        paper_rows=("Table 3, Panel B: w. Max-Entropy",),
        differs_from_grpo="TEPO's sequence weight, and every token's entropy is rewarded.",
        quote="[...] entropy regularization (maximizing or minimizing entropy) in the first two parts",
        quoted_from="section 4.1",
        equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) + c H_t }",
        options=OPTIONS,
        parts=tepo_maxent,
    ),
    CatalogEntry(
        key="tepo_minent",
        title="TEPO without KL, min-entropy",
        source="arXiv 2604.12736v1; arXiv 2505.15134 replaces the reward instead",
        paper_rows=("Table 3, Panel B: w. Min-Entropy",),
        differs_from_grpo="TEPO's sequence weight, and every token's entropy is punished.",
        quote="methods either minimize entropy to ensure credible outputs [...] or maximize it to enhance exploration",
        quoted_from="section 1",
        equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) - c H_t }",
        options=OPTIONS,
        parts=tepo_minent,
    ),
]
