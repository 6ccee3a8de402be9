"""Rollout correction: a constant weight on each token for what the sampler did otherwise than the trainer's old policy.

An inference engine computes other log-probs than the trainer, even with the same weights. The weight is made of
rho = pi_old / pi_sampler, of the token, of the whole sequence, or their geometric mean. It multiplies the surrogate
after its clip and its mask, as in TRL and verl; any method can have one (`methods.options.CORRECTION`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from methods.parts import Part, Scope, pick
from records.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from methods.parts import Terms

# option `correction` -> (whose rho, what happens outside [floor, cap])
KINDS = {
    "tis": ("token", "truncate"),  # truncated importance sampling; TRL token_truncate, verl rollout_is=token
    "icepop": ("token", "mask"),  # TRL token_mask, verl rollout_is=token with two thresholds
    "seq-tis": ("sequence", "truncate"),  # TRL sequence_truncate, verl rollout_is=sequence
    "seq-mis": ("sequence", "mask"),  # masked importance sampling; TRL sequence_mask
    "token-rs": ("token", "reject"),  # rejection sampling; verl rollout_rs=token_k1
    "seq-rs": ("sequence", "reject"),  # verl rollout_rs=seq_sum_k1
    "geo-rs": ("mean", "reject"),  # verl rollout_rs=seq_mean_k1
}


def correction(*, kind: str, cap: float | None, floor: float | None, on: str) -> Part | None:
    """The correction `kind`, None for "none"; it weighs the surrogate, or with on="objective" the penalties too.

    Raises `ConfigError` for bounds that exclude each other.
    """
    if kind == "none":
        return None
    level, action = pick(KINDS, "correction", kind)
    if cap is not None and floor is not None and floor >= cap:
        raise ConfigError(f"correction-floor: {floor} is not below correction-cap={cap}")
    settings = {"level": level, "action": action, "cap": cap, "floor": floor, "on": on}
    scope: Scope = "token" if level == "token" else "sequence"
    return Part(_correction, settings, frozenset({"sampling_logp"}), scope)


def _correction(t: Terms, *, level: str, action: str, cap: float | None, floor: float | None, on: str) -> Tensor:
    """rho held in [floor, cap] (truncate), rho or 0 outside (mask), 1 or 0 outside (reject); no gradient."""
    batch = t.batch
    assert batch.sampling_logp is not None
    log_rho = batch.valid(batch.old_logp - batch.sampling_logp)
    if level != "token":
        log_rho = log_rho.sum(1, keepdim=True)
    rho = (log_rho / t.lengths_B1 if level == "mean" else log_rho).exp()
    if action == "truncate":
        return rho if cap is None and floor is None else rho.clamp(floor, cap)
    outside = rho > (float("inf") if cap is None else cap)
    if floor is not None:
        outside = outside | (rho < floor)
    return (rho if action == "mask" else rho.new_ones(rho.shape)).masked_fill(outside, 0.0)
