"""GRPO/DAPO with another baseline of the advantage: what is subtracted from a reward, and what divides the rest.

A group of equal rewards has advantage 0, except with REINFORCE++, whose mean is taken over the whole rollout. Without
the group's baseline a group of wrong answers is pushed down; with it, all its responses get minus the mean over tokens.
Our trainers drop such groups before the advantage is computed, unless configured otherwise.
"""

from dataclasses import replace

from methods import options
from methods.options import Settings, method
from methods.parts import Parts, advantages, objective

LOW, HIGH = options.LOW.with_(printed="-"), options.HIGH.with_(default=0.2, printed="-")


def clip(original: str, why: str) -> tuple[options.Option, ...]:
    """Return the options of a symmetric clip at 0.2."""
    return *(bound.with_(original=original, why=why) for bound in (LOW, HIGH)), options.DUAL_CLIP


@method(
    key="dr_grpo",
    title="Dr. GRPO",
    source="arXiv 2503.20783",
    differs_from_grpo="The advantage is R - mean, the loss is divided by B L with L the most tokens a response may "
    "have, and the clip is symmetric. A group of equal rewards has advantage 0.",
    equation="J = (1/(B L)) sum_i sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i),  A_i = R_i - mean R",
    options=clip("0.2, sail-sg/understand-r1-zero and TRL", why="the original's"),
)
def dr_grpo(s: Settings) -> Parts:
    centred = advantages.group_centred(scale="one", reward="binary")
    return options.clipped_loss(s, advantage=centred, reduce=objective.seq_mean_token_sum_norm())


@method(
    key="maxrl",
    title="MaxRL",
    source="arXiv 2602.02710",
    differs_from_grpo="The advantage is (R - mean) / mean; the clip is symmetric. A group of equal rewards has "
    "advantage 0. Where the mean is not positive nothing is divided.",
    equation="J = (1/N) sum_i sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i),  A_i = (R_i - mean R) / mean R",
    options=(*clip("0.2, verl's default; never reached, tajwarfahim/maxrl", why="the original's"), options.AGG_SCOPE),
)
def maxrl(s: Settings) -> Parts:
    """Weight rarely solved prompts more, as in the maximum likelihood of a right answer."""
    return options.clipped_loss(s, advantage=advantages.mean_scaled())


@method(
    key="opo",
    title="OPO",
    source="arXiv 2505.23585",
    differs_from_grpo="The advantage is R - sum |y| R / sum |y| over the group; the clip is symmetric. A group of "
    "equal rewards has advantage 0. The paper makes one update per rollout, where no clip acts.",
    equation="J = (1/N) sum_i sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)\n"
    "A_i = R_i - (sum_j |y_j| R_j) / (sum_j |y_j|),  j over the group",
    options=(*clip("never reached; 0.2, verl's default", why="upstream's"), options.AGG_SCOPE),
)
def opo(s: Settings) -> Parts:
    return options.clipped_loss(s, advantage=advantages.length_weighted_baseline())


WHITENED = (
    *clip("0.2, OpenRLHF and verl", why="upstream's"),
    options.of_reading("whiten-std", "unbiased", "biased", original="biased, OpenRLHF; unbiased, verl"),
    options.AGG_SCOPE,
)


@method(
    key="reinforce_pp",
    title="REINFORCE++",
    source="arXiv 2501.03262",
    differs_from_grpo="The advantage is the reward, whitened over all tokens of the rollout; the clip is symmetric. A "
    "group of equal rewards has an advantage too: R - mean of all. The paper's KL in the reward is left out, as in "
    "verl's default.",
    equation="J = (1/N) sum_i sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)\n"
    "A_i = (R_i - mean R) / sqrt(var R + 1e-8),  mean and var over all tokens of the rollout",
    options=WHITENED,
)
def reinforce_pp(s: Settings) -> Parts:
    return options.clipped_loss(s, advantage=advantages.whitened(baseline="none", std=s["whiten-std"]))


@method(
    key="reinforce_pp_baseline",
    title="REINFORCE++ baseline",
    source="arXiv 2501.03262",
    differs_from_grpo="The centred reward is whitened over all tokens of the rollout instead of divided by the group's "
    "deviation; the clip is symmetric. A group of equal rewards gets minus the mean over tokens, which is not 0 where "
    "lengths differ. The paper's KL to the initial model is left out, as in verl's default.",
    equation="J = (1/N) sum_i sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)\n"
    "A_i = (b_i - mean b) / sqrt(var b + 1e-8),  b_i = R_i - mean of the group;  mean and var over all tokens",
    options=WHITENED,
)
def reinforce_pp_baseline(s: Settings) -> Parts:
    return options.clipped_loss(s, advantage=advantages.whitened(baseline="group", std=s["whiten-std"]))


LEAVE_ONE_OUT = clip("0.2, verl and TRL; none, 2402.14740", why="upstream's")


@method(
    key="rloo",
    title="RLOO",
    source="arXiv 2402.14740",
    differs_from_grpo="The advantage is R - mean reward of the group's other responses; the clip is symmetric. "
    "A group of equal rewards has advantage 0.",
    equation="J = (1/N) sum_i sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)\n"
    "A_i = R_i - (1/(n - 1)) sum_{j != i} R_j,  n responses in the group",
    options=(*LEAVE_ONE_OUT, options.AGG_SCOPE),
)
def rloo(s: Settings) -> Parts:
    """Return RLOO's advantage with GRPO/DAPO's loss, as with verl's estimator."""
    return options.clipped_loss(s, advantage=advantages.leave_one_out())


@method(
    key="rloo_sequence",
    title="RLOO, one action per response",
    source="arXiv 2402.14740",
    differs_from_grpo="RLOO's advantage, and one weight per response, the product of its ratios. A group of equal "
    "rewards has advantage 0.",
    equation="J = (1/B) sum_i min(w_i A_i, clip(w_i, 1 - low, 1 + high) A_i),  w_i = exp(sum_t log r_t)\n"
    "A_i = R_i - (1/(n - 1)) sum_{j != i} R_j,  n responses in the group",
    options=LEAVE_ONE_OUT,
)
def rloo_sequence(s: Settings) -> Parts:
    """Treat the response as one action, as in the paper and TRL; the mean is over one term per response."""
    loss = options.clipped_loss(s, advantage=advantages.leave_one_out(), reduce=objective.seq_mean_token_mean())
    return replace(loss, ratio=objective.product(most=None))
