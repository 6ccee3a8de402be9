"""TEPO without KL, plus an entropy term on every token: max-entropy rewards it, min-entropy punishes it (Panel B)."""

from dataclasses import replace

from methods import recipe
from methods.catalog.tepo import NO_KL, tepo_nokl
from methods.options import Option
from methods.parts import Parts, masks, penalties
from methods.recipe import Recipe, Settings

COEFFICIENT = Option(
    "coefficient", 1e-3, "the customary value", original="1e-4 to 1e-2 tried in 2505.22617", reading="ent-coef"
)
OPTIONS = (*NO_KL, recipe.SEQUENCE_RATIO.but(reading="panel-b-base"), COEFFICIENT)


def with_entropy(s: Settings, coefficient: float) -> Parts:
    return replace(tepo_nokl(s), penalties=(penalties.entropy(coefficient=coefficient, where=masks.everywhere()),))


def tepo_maxent(s: Settings) -> Parts:
    return with_entropy(s, -s["coefficient"])


def tepo_minent(s: Settings) -> Parts:
    return with_entropy(s, s["coefficient"])


METHODS = [
    Recipe(
        key="tepo_maxent",
        title="TEPO without KL, max-entropy",
        source="arXiv 2604.12736v1",
        rows=("Table 3, Panel B: w. Max-Entropy",),
        differs="TEPO's sequence weight, and every token's entropy is rewarded.",
        quote="[...] entropy regularization (maximizing or minimizing entropy) in the first two parts",
        where="section 4.1",
        equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) + c H_t }",
        options=OPTIONS,
        parts=tepo_maxent,
    ),
    Recipe(
        key="tepo_minent",
        title="TEPO without KL, min-entropy",
        source="arXiv 2604.12736v1; arXiv 2505.15134 replaces the reward instead",
        rows=("Table 3, Panel B: w. Min-Entropy",),
        differs="TEPO's sequence weight, and every token's entropy is punished.",
        quote="methods either minimize entropy to ensure credible outputs [...] or maximize it to enhance exploration",
        where="section 1",
        equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) - c H_t }",
        options=OPTIONS,
        parts=tepo_minent,
    ),
]
