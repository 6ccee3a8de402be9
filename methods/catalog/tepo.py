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
COEFFICIENT = Option(
    "coefficient", 1e-3, why="the customary value", original="1e-4 to 1e-2 tried in 2505.22617", reading="ent-coef"
)


without_kl = partial(options.clipped_loss, level="sequence")  # `ratio` is an option of Panel B


def entropy_change(s: Settings) -> Part:
    return masks.entropy_change(s["dh-def"], tolerance=s["dh-tol"])


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
    return without_kl(s)


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
    return options.with_kl(without_kl(s), s, masks.falling_entropy_on_positive(dh=entropy_change(s)))


def with_entropy(s: Settings, coefficient: float, mask: Part) -> Parts:
    """Return TEPO's loss without KL, minus `coefficient` times the entropy of the tokens in `mask`."""
    return replace(without_kl(s), penalties=(penalties.entropy(coefficient=coefficient, mask=mask),))


@method(
    key="tepo_maxent",
    title="TEPO without KL, max-entropy",
    source="arXiv 2604.12736v1",
    paper_rows=("Table 3, Panel B: w. Max-Entropy",),
    differs_from_grpo="TEPO's sequence weight, and every token's entropy is rewarded.",
    equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) + c H_t }",
    options=(*SHARED, COEFFICIENT),
)
def tepo_maxent(s: Settings) -> Parts:
    # penalties are subtracted, so a negative one rewards entropy
    return with_entropy(s, -s["coefficient"], masks.everywhere())


@method(
    key="tepo_minent",
    title="TEPO without KL, min-entropy",
    source="arXiv 2604.12736v1; arXiv 2505.15134 replaces the reward instead",
    paper_rows=("Table 3, Panel B: w. Min-Entropy",),
    differs_from_grpo="TEPO's sequence weight, and every token's entropy is punished.",
    equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) - c H_t }",
    options=(*SHARED, COEFFICIENT),
)
def tepo_minent(s: Settings) -> Parts:
    return with_entropy(s, s["coefficient"], masks.everywhere())


TARGET = Option(
    "target", 0.2, why="the original's; to hold entropy, set it to that of the base model", original="0.2 nats"
)
# The coefficient is proportional to the deficit; the original changes its coefficient by a constant at each step. Here
# no state is carried between updates: the loss is a function of its batch, also in a resumed run.
# At 10 the entropy of a rollout overshoots by a quarter; at 2 it stays a tenth below the target (tiny models).
HOLD = Option("hold", 5.0, why="keeps a rollout's entropy within about 10 % of the target on the tiny models")


@method(
    key="tepo_held",
    title="TEPO without KL, entropy held",
    source="after arXiv 2505.22312, which moves its coefficient step by step while entropy is below the target",
    differs_from_grpo="TEPO's sequence weight, and the squared distance of the mean entropy to a target is punished.",
    equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) + c (h - sg[mean H]) H_t }\n"
    "with the gradient of -(c/2) (mean H - h)^2 for the last term;  c hold, h target",
    options=(*SHARED, TARGET, HOLD),
)
def tepo_held(s: Settings) -> Parts:
    return with_entropy(s, -s["hold"], masks.short_of_entropy(target=s["target"]))


STEER = (
    # least > 0, because the exponential map takes its logarithm
    Option("lambda-min", 0.8, least=1e-6, most=1.0, reading="steer", why="the original's script",
           original=".8, 2510.10150's script"),
    Option("map", "exp", choices=("exp", "linear", "min-max"), reading="steer", why="the original's script run_exp",
           original="exp; min-max in its script run_linear, to [0.8, 1.2]"),
    Option("omega", "first-order", choices=("first-order", "ratio"), reading="steer",
           why="the change at the policy that is trained; equal in the first update of a rollout",
           original="ratio, 2510.10150's code"),
)  # fmt: skip


@method(
    key="tepo_steer",
    title="TEPO without KL, STEER",
    source="arXiv 2510.10150",
    paper_rows=("Table 3, Panel B: w. STEEL",),
    differs_from_grpo="TEPO's sequence weight, and each token's term is multiplied by a weight in [lambda_min, 1].",
    equation="J = (1/N) sum_i sum_t lambda_t min(w_i A_i, clip(w_i) A_i)\n"
    "lambda_t = lambda_min^(|Omega_t| / max(max |Omega|, 0.02)),  Omega_t = A_i (1 - pi_t)(log pi_t + H_t)",
    options=(
        *NO_KL,
        options.SEQUENCE_RATIO.with_(reading="steer"),
        *STEER,
    ),
)
def tepo_steer(s: Settings) -> Parts:
    """Return STEER, which the paper calls "STEEL"."""
    return replace(without_kl(s), mask=masks.steer(least=s["lambda-min"], map=s["map"], omega=s["omega"]))


@method(
    key="tepo_kl_all",
    title="TEPO with undifferentiated KL",
    source="arXiv 2604.12736v1",
    paper_rows=tuple(f"Table 3, Panel A: w. beta = {beta}" for beta in ("1", "0.1", "0.01", "0.001", "0.0001")),
    differs_from_grpo="TEPO's sequence weight, and a KL to the old policy on every token.",
    equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) - beta KL_t(pi || pi_old) M_t }\nM_t = 1",
    options=(
        *NO_KL,
        options.BETA.with_(printed="1, 0.1, 0.01, 0.001, 0.0001, Panel A", why="TEPO's"),
        options.KL_ANCHOR,
        options.KL_ESTIMATOR,
        options.KL_CLAMP,
    ),
)
def tepo_kl_all(s: Settings) -> Parts:
    return options.with_kl(without_kl(s), s, masks.everywhere())


@method(
    key="tepo_kl_neg",
    title="TEPO with KL where A < 0 and dH > 0",
    source="arXiv 2604.12736v1",
    paper_rows=("Table 3, Panel E: TEPO-w. KL(A < 0 and dH > 0)",),
    differs_from_grpo="TEPO's sequence weight, and a KL to the old policy on tokens with A < 0 and rising entropy.",
    equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) - beta KL_t(pi || pi_old) M_t }\n"
    "M_t = 1[A_i < 0 and dH_t > 0]",
    options=(*NO_KL, *options.MASKED_KL),
)
def tepo_kl_neg(s: Settings) -> Parts:
    return options.with_kl(without_kl(s), s, masks.rising_entropy_on_negative(dh=entropy_change(s)))


@method(
    key="tepo_kl_both",
    title="TEPO with KL on both misaligned sets",
    source="arXiv 2604.12736v1",
    paper_rows=("Table 3, Panel E: TEPO-w. KL((A > 0 and dH < 0) or (A < 0 and dH > 0))",),
    differs_from_grpo="TEPO's sequence weight, and a KL to the old policy on tokens whose entropy moves against "
    "A's sign.",
    equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) - beta KL_t(pi || pi_old) M_t }\n"
    "M_t = 1[A_i > 0 and dH_t < 0, or A_i < 0 and dH_t > 0]",
    options=(*NO_KL, *options.MASKED_KL),
)
def tepo_kl_both(s: Settings) -> Parts:
    return options.with_kl(without_kl(s), s, masks.misaligned(dh=entropy_change(s)))
