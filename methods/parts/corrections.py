"""Rollout correction: a constant weight per token for the mismatch of the sampler and the trainer's old policy.

An inference engine computes other log-probs than the trainer, even with the same weights. The weight is computed from
rho = pi_old / pi_sampler of the token, of the whole sequence, or their geometric mean. It multiplies the surrogate
after its clip and its mask, as in TRL and verl; it is available for every method (`methods.options.CORRECTION`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from core.errors import ConfigError
from methods.parts import Part, Scope, pick

if TYPE_CHECKING:
    from torch import Tensor

    from methods.parts import Terms

# option `correction` -> (level of rho, action outside [floor, cap], default cap, default floor)
KINDS: dict[str, tuple[str, str, float, float | None]] = {
    # truncated importance sampling; TRL token_truncate with cap 3, verl rollout_is=token, `decoupled_token_is`
    "tis": ("token", "truncate", 2.0, None),
    # TRL token_mask, verl rollout_is=token with two thresholds; IcePop's, and verl's `decoupled_token_icepop`
    "icepop": ("token", "mask", 5.0, 0.5),
    "seq-tis": ("sequence", "truncate", 2.0, None),  # TRL sequence_truncate with cap 3, verl's `decoupled_seq_is`
    "seq-mis": ("sequence", "mask", 3.0, None),  # masked importance sampling; TRL sequence_mask, its default
    "token-rs": ("token", "reject", 2.0, 0.5),  # rejection sampling; verl rollout_rs=token_k1 without preset: as seq-rs
    "seq-rs": ("sequence", "reject", 2.0, 0.5),  # verl rollout_rs=seq_sum_k1, `decoupled_seq_is_rs`
    "geo-rs": ("mean", "reject", 1.001, 0.999),  # verl rollout_rs=seq_mean_k1, `decoupled_geo_rs`
}
REJECTIONS = tuple(kind for kind, (_, action, *_bounds) in KINDS.items() if action == "reject")
# Engine and trainer differ by .01 to .02 nats per token, and the mean of a response's log rho by no more. A bound
# farther from 1 than this, .22 nats for every token, rejects nothing: it would correct in name only.
WIDEST_MEAN = 1.25


def correction(
    *,
    kind: str,
    cap: float | None,
    floor: float | None,
    on: str = "surrogate",
    rejection: Part | None = None,
    option: str = "correction",
) -> Part | None:
    """Return the correction `kind`, None for "none"; it weights the surrogate, with on="objective" also the penalties.

    rejection: a second correction, whose weight of 1 or 0 multiplies the first. Raises `ConfigError` with the bounds of
    `option` if they exclude each other, reject nothing, or are missing for a rejection.
    """
    if kind == "none":
        return None
    level, action, *_ = pick(KINDS, option, kind)
    if cap is not None and floor is not None and floor >= cap:
        raise ConfigError(f"{option}-floor: {floor} is not below {option}-cap={cap}")
    if action == "reject" and cap is None and floor is None:
        raise ConfigError(f"{option}={kind}: rejects nothing without a bound; set {option}-cap or {option}-floor")
    for bound, value in (("cap", cap), ("floor", floor)):
        if level == "mean" and value is not None and not 1 / WIDEST_MEAN <= value <= WIDEST_MEAN:
            raise ConfigError(
                f"{option}-{bound}: got {value:g}, allowed for the geometric mean of {kind}: {1 / WIDEST_MEAN:g} to "
                f"{WIDEST_MEAN:g}, farther from 1 it rejects nothing (verl's are 0.999 and 1.001)"
            )
    settings: dict[str, object] = {"level": level, "action": action, "cap": cap, "floor": floor, "on": on}
    if rejection is not None:
        settings["rejection"] = rejection
    scope: Scope = "token" if level == "token" else "sequence"
    return Part(_correction, settings, frozenset({"sampling_logp"}), scope)


def _correction(
    t: Terms,
    *,
    level: str,
    action: str,
    cap: float | None,
    floor: float | None,
    on: str,
    rejection: Part | None = None,
) -> Tensor:
    """Return rho clamped to [floor, cap] (truncate), rho or 0 outside (mask), 1 or 0 outside (reject); no gradient."""
    batch = t.batch
    assert batch.sampling_logp is not None
    log_rho = batch.valid(batch.old_logp - batch.sampling_logp)
    if level != "token":
        log_rho = log_rho.sum(1, keepdim=True)
    rho = (log_rho / t.lengths_B1 if level == "mean" else log_rho).exp()
    if action == "truncate":
        weight = rho if cap is None and floor is None else rho.clamp(floor, cap)
    else:
        outside = rho > (math.inf if cap is None else cap)
        if floor is not None:
            outside = outside | (rho < floor)
        weight = (rho if action == "mask" else rho.new_ones(rho.shape)).masked_fill(outside, 0.0)
    return weight if rejection is None else weight * rejection(t)
