"""Rollout correction: a constant weight on each token for what the sampler did otherwise than the trainer's old policy.

An inference engine computes other log-probs than the trainer, even with the same weights. The weight is made of
rho = pi_old / pi_sampler, of the token, of the whole sequence, or their geometric mean. It multiplies the surrogate
after its clip and its mask, as in TRL and verl; any method can have one (`methods.options.CORRECTION`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core.errors import ConfigError
from methods.parts import Part, Scope

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
REJECTIONS = tuple(kind for kind, (_, action) in KINDS.items() if action == "reject")
# kind -> (cap, floor) and where they are from, as docs/methods.md prints it
BOUNDS: dict[str, tuple[float | None, float | None, str]] = {
    "tis": (2.0, None, "verl's `decoupled_token_is`; TRL's cap is 3"),
    "icepop": (5.0, 0.5, "IcePop's, and verl's `decoupled_token_icepop`"),
    "seq-tis": (2.0, None, "verl's `decoupled_seq_is`; TRL's cap is 3"),
    "seq-mis": (3.0, None, "TRL's default"),
    "token-rs": (2.0, 0.5, "verl has no preset; as `seq-rs`"),
    "seq-rs": (2.0, 0.5, "verl's `decoupled_seq_is_rs`"),
    "geo-rs": (1.001, 0.999, "verl's `decoupled_geo_rs`"),
}
# Engine and trainer differ by .01 to .02 nats a token: a bound of the mean farther from 1 than this rejects nothing.
WIDEST_MEAN = 1.25


def correction(values: Mapping[str, Any]) -> Part | None:
    """What the options `methods.options.CORRECTION` and `REJECTION` say; None without a correction.

    It weighs the surrogate, or with correction-on=objective the penalties too. Raises `ConfigError` for bounds that
    exclude each other, that reject nothing, or that are missing where they are all.
    """
    rejection = _weight(values, "rejection", on="surrogate")
    return _weight(values, "correction", on=values["correction-on"], **({"rejection": rejection} if rejection else {}))


def _weight(values: Mapping[str, Any], option: str, **settings: object) -> Part | None:
    kind, cap, floor = (values[name] for name in (option, f"{option}-cap", f"{option}-floor"))
    if kind == "none":
        return None
    level, action = KINDS[kind]
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
    scope: Scope = "token" if level == "token" else "sequence"
    settings = {"level": level, "action": action, "cap": cap, "floor": floor, **settings}
    return Part(_correction, settings, frozenset({"sampling_logp"}), scope)


def _correction(
    t: Terms, *, level: str, action: str, cap: float | None, floor: float | None, on: str, rejection: Part | None = None
) -> Tensor:
    """rho held in [floor, cap] (truncate), rho or 0 outside (mask), 1 or 0 outside (reject); no gradient."""
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
