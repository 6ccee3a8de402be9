"""Rollout correction: a constant weight per token for the mismatch of the sampler and the trainer's old policy.

An inference engine computes other log-probs than the trainer, even with the same weights. The weight is computed from
rho = pi_old / pi_sampler of the token or of the whole sequence. It multiplies the surrogate after its clip and its
mask, as in TRL and verl; it is available for every method (`methods.options.CORRECTION`).
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
}


def correction(*, kind: str, cap: float | None, floor: float | None) -> Part | None:
    """Return the correction `kind`, None for "none"; raise `ConfigError` for bounds that exclude each other."""
    if kind == "none":
        return None
    level, action, *_ = pick(KINDS, "correction", kind)
    if cap is not None and floor is not None and floor >= cap:
        raise ConfigError(f"correction-floor: {floor} is not below correction-cap={cap}")
    settings = {"level": level, "action": action, "cap": cap, "floor": floor}
    scope: Scope = "token" if level == "token" else "sequence"
    return Part(_correction, settings, frozenset({"sampling_logp"}), scope)


def _correction(t: Terms, *, level: str, action: str, cap: float | None, floor: float | None) -> Tensor:
    """Return rho clamped to [floor, cap] (truncate), or rho inside and 0 outside (mask); no gradient."""
    batch = t.batch
    assert batch.sampling_logp is not None
    log_rho = batch.valid(batch.old_logp - batch.sampling_logp)
    rho = (log_rho if level == "token" else log_rho.sum(1, keepdim=True)).exp()
    if action == "truncate":
        return rho if cap is None and floor is None else rho.clamp(floor, cap)
    outside = rho > (math.inf if cap is None else cap)
    if floor is not None:
        outside = outside | (rho < floor)
    return rho.masked_fill(outside, 0.0)
