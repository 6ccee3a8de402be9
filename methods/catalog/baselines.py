"""GRPO/DAPO with another baseline of the advantage: what is subtracted from a reward, and what divides the rest.

A group of equal rewards has advantage 0, except with REINFORCE++, whose mean is taken over the whole rollout. Without
the group's baseline a group of wrong answers is pushed down; with it, all its responses get minus the mean over tokens.
Our trainers drop such groups before the advantage is computed, unless configured otherwise.
"""

from dataclasses import replace

from methods import options
from methods.options import Settings, method
from methods.parts import Parts, advantages, objective

CLIP = (options.LOW, options.HIGH.with_(default=0.2), options.DUAL_CLIP)  # symmetric


@method(key="dr_grpo", title="Dr. GRPO", source="arXiv 2503.20783", options=CLIP)
def dr_grpo(s: Settings) -> Parts:
    centred = advantages.group_centred(scale="one", reward="binary")
    return options.clipped_loss(s, advantage=centred, reduce=objective.seq_mean_token_sum_norm())


@method(key="maxrl", title="MaxRL", source="arXiv 2602.02710", options=(*CLIP, options.AGG_SCOPE))
def maxrl(s: Settings) -> Parts:
    """Weight rarely solved prompts more, as in the maximum likelihood of a right answer."""
    return options.clipped_loss(s, advantage=advantages.mean_scaled())


@method(key="opo", title="OPO", source="arXiv 2505.23585", options=(*CLIP, options.AGG_SCOPE))
def opo(s: Settings) -> Parts:
    return options.clipped_loss(s, advantage=advantages.length_weighted_baseline())


WHITENED = (*CLIP, options.of_reading("whiten-std", "unbiased", "biased"), options.AGG_SCOPE)


@method(key="reinforce_pp", title="REINFORCE++", source="arXiv 2501.03262", options=WHITENED)
def reinforce_pp(s: Settings) -> Parts:
    return options.clipped_loss(s, advantage=advantages.whitened(baseline="none", std=s["whiten-std"]))


@method(key="reinforce_pp_baseline", title="REINFORCE++ baseline", source="arXiv 2501.03262", options=WHITENED)
def reinforce_pp_baseline(s: Settings) -> Parts:
    return options.clipped_loss(s, advantage=advantages.whitened(baseline="group", std=s["whiten-std"]))


@method(key="rloo", title="RLOO", source="arXiv 2402.14740", options=(*CLIP, options.AGG_SCOPE))
def rloo(s: Settings) -> Parts:
    """Return RLOO's advantage with GRPO/DAPO's loss, as with verl's estimator."""
    return options.clipped_loss(s, advantage=advantages.leave_one_out())


@method(key="rloo_sequence", title="RLOO, one action per response", source="arXiv 2402.14740", options=CLIP)
def rloo_sequence(s: Settings) -> Parts:
    """Treat the response as one action, as in the paper and TRL; the mean is over one term per response."""
    loss = options.clipped_loss(s, advantage=advantages.leave_one_out(), reduce=objective.seq_mean_token_mean())
    return replace(loss, ratio=objective.product(most=None))
