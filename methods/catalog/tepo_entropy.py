"""TEPO without KL, with entropy rewarded, punished, held, or spared by weights (Panel B).

Max-entropy rewards every token's entropy and min-entropy punishes it. Held rewards or punishes it by its mean's
distance from a target: does reward need entropy to fall? Tokens that would change the entropy much weigh less in STEER.
"""

from dataclasses import replace

from methods import options
from methods.options import Option, Settings, method
from methods.parts import Part, Parts, advantages, masks, penalties, ratios, reducers, surrogates

NO_ENTROPY = (options.ADV_STD, *options.SEQUENCE_CLIP, options.GRADIENT, options.AGG_SCOPE)
SHARED = (*NO_ENTROPY, options.SEQUENCE_RATIO)
COEFFICIENT = Option(
    "coefficient", 1e-3, why="the customary value", original="1e-4 to 1e-2 tried in 2505.22617", reading="ent-coef"
)


def without_kl(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=ratios.at_level(s["ratio"], gradient=s["gradient"]),
        surrogate=surrogates.clipped(low=s["low"], high=s["high"], form=s["clip-form"], dual=s["dual-clip"]),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


def with_entropy(s: Settings, coefficient: float, mask: Part) -> Parts:
    """TEPO's loss without KL, minus `coefficient` times the entropy of the tokens of `mask`."""
    return replace(without_kl(s), penalties=(penalties.entropy(coefficient=coefficient, mask=mask),))


@method(
    key="tepo_maxent",
    title="TEPO without KL, max-entropy",
    source="arXiv 2604.12736v1",
    paper_rows=("Table 3, Panel B: w. Max-Entropy",),
    differs_from_grpo="TEPO's sequence weight, and every token's entropy is rewarded.",
    quote="[...] entropy regularization (maximizing or minimizing entropy) in the first two parts",
    quoted_from="section 4.1",
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
    quote="methods either minimize entropy to ensure credible outputs [...] or maximize it to enhance exploration",
    quoted_from="section 1",
    equation="J = (1/N) sum_i sum_t { min(w_i A_i, clip(w_i) A_i) - c H_t }",
    options=(*SHARED, COEFFICIENT),
)
def tepo_minent(s: Settings) -> Parts:
    return with_entropy(s, s["coefficient"], masks.everywhere())


TARGET = Option(
    "target", 0.2, why="the original's; to hold entropy, set it to that of the base model", original="0.2 nats"
)
# A coefficient in proportion to what is missing; the original moves its coefficient by a constant each step. This way
# nothing is carried from one update to the next: the loss is a function of its batch, and a resumed run needs no state.
# At 10 the entropy of a rollout overshoots by a quarter, at 2 it stays a tenth below the target (tiny models).
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


@method(
    key="tepo_steer",
    title="TEPO without KL, STEER",
    source="arXiv 2510.10150",
    paper_rows=("Table 3, Panel B: w. STEEL",),
    differs_from_grpo="TEPO's sequence weight, and each token's term is multiplied by a weight in [lambda_min, 1].",
    quote="STEEL [...] proposes an adaptive token-reweighting method that mitigates entropy collapse",
    quoted_from="section 4.1",
    equation="J = (1/N) sum_i sum_t lambda_t min(w_i A_i, clip(w_i) A_i)\n"
    "lambda_t = lambda_min^(|Omega_t| / max(max |Omega|, 0.02)),  Omega_t = A_i (1 - pi_t)(log pi_t + H_t)",
    options=(
        *NO_ENTROPY,
        options.SEQUENCE_RATIO.with_(reading="steer"),
        # least above 0, because the exponential map takes its logarithm
        Option(
            "lambda-min",
            0.8,
            least=1e-6,
            most=1.0,
            reading="steer",
            why="the original's script",
            original=".8, 2510.10150's script",
        ),
        Option(
            "map",
            "exp",
            choices=("exp", "linear", "min-max"),
            reading="steer",
            why="the original's script run_exp",
            original="exp; min-max in its script run_linear, to [0.8, 1.2]",
        ),
        Option(
            "omega",
            "first-order",
            choices=("first-order", "ratio"),
            reading="steer",
            why="the change at the policy that is trained; equal in the first update of a rollout",
            original="ratio, 2510.10150's code",
        ),
    ),
)
def tepo_steer(s: Settings) -> Parts:
    """The paper prints it as "STEEL"."""
    return replace(without_kl(s), mask=masks.steer(least=s["lambda-min"], map=s["map"], omega=s["omega"]))
