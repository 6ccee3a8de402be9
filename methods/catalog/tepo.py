"""TEPO, its loss with another term in place of its KL (Panel B), or with its KL on other tokens (Panels A and E).

TEPO is GRPO/DAPO with one weight per sequence, the geometric mean of its ratios, and with a KL to the old policy on
tokens with A > 0 whose entropy falls. The loss is still a mean over tokens, so a long response counts more.
Panel B: max-entropy rewards every token's entropy, min-entropy penalises it. Held rewards or penalises it in proportion
to the mean's distance from a target, to test whether reward needs entropy to fall. STEER gives less weight to tokens
that would change entropy much. Panels A and E: KL on every token; where A < 0 and entropy rises, alone or in addition.
"""

from dataclasses import replace
from functools import partial

from methods import options
from methods.options import Option, Settings, method
from methods.parts import Part, Parts, masks, penalties

NO_KL = (options.ADV_STD, *options.SEQUENCE_CLIP, options.GRADIENT, options.AGG_SCOPE)
SHARED = (*NO_KL, options.SEQUENCE_RATIO)
COEFFICIENT = Option("coefficient", 1e-3)

without_kl = partial(options.clipped_loss, level="sequence")  # `ratio` is an option of Panel B


def entropy_change(s: Settings) -> Part:
    return masks.entropy_change(s["dh-def"], tolerance=s["dh-tol"])


@method(key="tepo_nokl", title="TEPO without KL", source="arXiv 2604.12736v1", options=NO_KL)
def tepo_nokl(s: Settings) -> Parts:
    return without_kl(s)


@method(
    key="tepo",
    title="TEPO",
    source="arXiv 2604.12736v1",
    options=(*NO_KL, *options.MASKED_KL),
    aliases={
        "tepo_line21": {"gradient": "alg1_line21"},
        "tepo_eq4": {"clip-form": "eq4"},
        "tepo_noclip": {"clip-form": "none"},
    },
)
def tepo(s: Settings) -> Parts:
    return options.with_kl(without_kl(s), s, masks.falling_entropy_on_positive(dh=entropy_change(s)))


def with_entropy(s: Settings, coefficient: float, mask: Part) -> Parts:
    """Return TEPO's loss without KL, minus `coefficient` times the entropy of the tokens in `mask`."""
    return replace(without_kl(s), penalties=(penalties.entropy(coefficient=coefficient, mask=mask),))


@method(
    key="tepo_maxent", title="TEPO without KL, max-entropy", source="arXiv 2604.12736v1", options=(*SHARED, COEFFICIENT)
)
def tepo_maxent(s: Settings) -> Parts:
    # penalties are subtracted, so a negative one rewards entropy
    return with_entropy(s, -s["coefficient"], masks.everywhere())


@method(
    key="tepo_minent",
    title="TEPO without KL, min-entropy",
    source="arXiv 2604.12736v1; arXiv 2505.15134 replaces the reward instead",
    options=(*SHARED, COEFFICIENT),
)
def tepo_minent(s: Settings) -> Parts:
    return with_entropy(s, s["coefficient"], masks.everywhere())


TARGET = Option("target", 0.2)
# The coefficient is proportional to the deficit; the original changes its coefficient by a constant at each step. Here
# no state is carried between updates: the loss is a function of its batch, also in a resumed run.
# At 10 the entropy of a rollout overshoots by a quarter; at 2 it stays a tenth below the target (tiny models).
HOLD = Option("hold", 5.0)


@method(
    key="tepo_held",
    title="TEPO without KL, entropy held",
    source="after arXiv 2505.22312, which moves its coefficient step by step while entropy is below the target",
    options=(*SHARED, TARGET, HOLD),
)
def tepo_held(s: Settings) -> Parts:
    return with_entropy(s, -s["hold"], masks.short_of_entropy(target=s["target"]))


STEER = (
    # least > 0, because the exponential map takes its logarithm
    Option("lambda-min", 0.8, least=1e-6, most=1.0),
    Option("map", "exp", choices=("exp", "linear", "min-max")),
    Option("omega", "first-order", choices=("first-order", "ratio")),
)  # fmt: skip


@method(key="tepo_steer", title="TEPO without KL, STEER", source="arXiv 2510.10150", options=(*SHARED, *STEER))
def tepo_steer(s: Settings) -> Parts:
    """Return STEER, which the paper calls "STEEL"."""
    return replace(without_kl(s), mask=masks.steer(least=s["lambda-min"], map=s["map"], omega=s["omega"]))


@method(
    key="tepo_kl_all",
    title="TEPO with undifferentiated KL",
    source="arXiv 2604.12736v1",
    options=(*NO_KL, options.BETA, options.KL_ANCHOR, options.KL_ESTIMATOR, options.KL_CLAMP),
)
def tepo_kl_all(s: Settings) -> Parts:
    return options.with_kl(without_kl(s), s, masks.everywhere())


@method(
    key="tepo_kl_neg",
    title="TEPO with KL where A < 0 and dH > 0",
    source="arXiv 2604.12736v1",
    options=(*NO_KL, *options.MASKED_KL),
)
def tepo_kl_neg(s: Settings) -> Parts:
    return options.with_kl(without_kl(s), s, masks.rising_entropy_on_negative(dh=entropy_change(s)))


@method(
    key="tepo_kl_both",
    title="TEPO with KL on both misaligned sets",
    source="arXiv 2604.12736v1",
    options=(*NO_KL, *options.MASKED_KL),
)
def tepo_kl_both(s: Settings) -> Parts:
    return options.with_kl(without_kl(s), s, masks.misaligned(dh=entropy_change(s)))
