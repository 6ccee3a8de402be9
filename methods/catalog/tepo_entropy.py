"""TEPO without KL, plus an entropy term on every token: max-entropy rewards it, min-entropy punishes it (Panel B).
Held rewards or punishes it by its mean's distance from a target: does reward need entropy to fall?"""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.options import Option
from methods.parts import Part, Parts, advantages, masks, penalties, ratios, reducers, surrogates

SHARED = (options.ADV_STD, *options.SEQUENCE_CLIP, options.GRADIENT, options.AGG_SCOPE, options.SEQUENCE_RATIO)
OPTIONS = (
    *SHARED,
    Option(
        "coefficient", 1e-3, why="the customary value", original="1e-4 to 1e-2 tried in 2505.22617", reading="ent-coef"
    ),
)

TARGET = Option(
    "target", 0.2, why="the original's; to hold entropy, set it to that of the base model", original="0.2 nats"
)
# A coefficient in proportion to what is missing; the original moves its coefficient by a constant each step. This way
# nothing is carried from one update to the next: the loss is a function of its batch, and a resumed run needs no state.
# At 10 the entropy of a rollout overshoots by a quarter, at 2 it stays a tenth below the target (tiny models).
HOLD = Option("hold", 5.0, why="keeps a rollout's entropy within about 10 % of the target on the tiny models")


def with_entropy(s: Settings, coefficient: float, mask: Part) -> Parts:
    """TEPO's loss without KL, minus `coefficient` times the entropy of the tokens of `mask`."""
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=ratios.at_level(s["ratio"], gradient=s["gradient"]),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], form=s["clip-form"], dual=s["dual-clip"]),
        penalties=(penalties.entropy(coefficient=coefficient, mask=mask),),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


def tepo_maxent(s: Settings) -> Parts:
    return with_entropy(
        s, -s["coefficient"], masks.everywhere()
    )  # penalties are subtracted, so a negative one rewards entropy


def tepo_minent(s: Settings) -> Parts:
    return with_entropy(s, s["coefficient"], masks.everywhere())


def tepo_held(s: Settings) -> Parts:
    return with_entropy(s, -s["hold"], masks.short_of_entropy(target=s["target"]))


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
    CatalogEntry(
        key="tepo_held",
        title="TEPO without KL, entropy held",
        source="after arXiv 2505.22312, which moves its coefficient step by step while entropy is below the target",
        differs_from_grpo="TEPO's sequence weight, and the squared distance of the mean entropy to a target is "
        "punished.",
        equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) + c (h - sg[mean H]) H_t }\n"
        "with the gradient of -(c/2) (mean H - h)^2 for the last term;  c hold, h target",
        options=(*SHARED, TARGET, HOLD),
        parts=tepo_held,
    ),
]
