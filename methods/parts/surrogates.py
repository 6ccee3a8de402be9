"""The objective per token, larger is better. A clip is a region for the weight, whose ends depend on the sign of A."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from core.errors import ConfigError
from methods.parts import Part, part

if TYPE_CHECKING:
    from torch import Tensor

    from methods.parts import Terms

INF = float("inf")
CLIP_HIGHER = (0.2, 0.28)  # DAPO's bounds (2503.14476) and the default of the options `low` and `high`


def clipped(*, low: float | None, high: float | None, form: str = "ppo", dual: float | None = None) -> Part:
    """The clipped objective; `form` (R1) is ppo, eq4 or none, `dual` (R21) a second upper bound where A < 0.

    None for `low` or `high` leaves that side open. Raises `ConfigError` for settings that the form would not read.
    """
    if form != "ppo" and dual is not None:
        raise ConfigError(f"dual-clip: has no meaning with clip-form={form}")
    # the options' defaults are passed whatever the form; other bounds were set on purpose and would do nothing
    if form == "none" and (low, high) != CLIP_HIGHER:
        raise ConfigError("low, high: have no meaning with clip-form=none")
    if form == "none" or (low is None and high is None and dual is None):
        return plain()
    return Part(_clipped, {"low": low, "high": high, "form": form, "dual": dual})


@part()
def plain(t: Terms) -> Tensor:
    """w A: importance sampling without a clip."""
    return t.log_weight.exp() * t.advantage


def _clipped(t: Terms, *, low: float | None, high: float | None, form: str, dual: float | None) -> Tensor:
    """The weight held in its region, times A: for `form="ppo"` this is min(w A, clip(w, 1 - low, 1 + high) A)."""
    lower, upper = region(t.advantage, low=low, high=high, form=form, dual=dual)
    # clamped before exp: a weight that overflows would get the gradient 0 * inf
    return t.log_weight.clamp(lower, upper).exp() * t.advantage


def region(
    advantage: Tensor, *, low: float | None, high: float | None, form: str, dual: float | None
) -> tuple[Tensor, Tensor]:
    """Logarithms of the ends between which the weight keeps its gradient; None, or low >= 1, leaves a side open.

    ppo  A > 0: up to 1 + high;  A < 0: from 1 - low, up to `dual` if there is one
    eq4  up to 1 + high for either sign: the paper's min(w, clip(w)) A, with A outside the minimum
    """
    lower, upper = advantage.new_full(advantage.shape, -INF), advantage.new_full(advantage.shape, INF)
    if high is not None:
        upper = upper.masked_fill((advantage > 0) | (form == "eq4"), math.log1p(high))
    # eq4 has no lower bound: where w < 1 - low, clip(w) = 1 - low is the larger of the two and the minimum is w
    if form == "ppo" and low is not None and low < 1:
        lower = lower.masked_fill(advantage < 0, math.log1p(-low))
    if form == "ppo" and dual is not None:
        upper = upper.masked_fill(advantage < 0, math.log(dual))
    return lower, upper


@part()
def weighted(t: Terms, *, low: float | None, high: float | None) -> Tensor:
    """sg[clip(w, 1 - low, 1 + high)] A log pi: the clip bounds a weight and removes no gradient (CISPO, 2506.13585)."""
    weight = t.log_weight.detach().exp().clamp(None if low is None else 1 - low, INF if high is None else 1 + high)
    return weight * t.advantage * t.logp_BT


# Weights beyond these give no gradient in float64 any more; without the bounds exp would overflow, and 0 * inf is NaN.
FARTHEST = (math.log(1e-8), 20.0)  # of log w; TRL's


@part()
def soft_gate(t: Terms, *, tau_positive: float, tau_negative: float) -> Tensor:
    """(4/tau) sigmoid(tau (w - 1)) A, tau by the sign of A: the clip's smooth relative (SAPO, arXiv 2511.20347)."""
    tau = t.advantage.new_full(t.advantage.shape, tau_negative).masked_fill(t.advantage > 0, tau_positive)
    gate = (tau * (t.log_weight.clamp(max=FARTHEST[1]).exp() - 1)).sigmoid()
    return gate * (4 / tau * t.advantage)  # factors of a row first: every product over (B, T) costs


@part(scope="sequence")
def geometric_clipped(t: Terms, *, low: float, high: float) -> Tensor:
    """exp( mean_t clip(d_t) ) A, d_t kept at most `high` where A > 0, at least -low where A < 0 (GMPO, 2507.20673)."""
    lower, upper = log_region(t.advantage, low=low, high=high)
    clipped_BT = t.batch.valid(t.log_weight.clamp(lower, upper))
    return (clipped_BT.sum(1, keepdim=True) / t.lengths_B1).exp() * t.advantage


def log_region(advantage: Tensor, *, low: float, high: float) -> tuple[Tensor, Tensor]:
    """As `region`, for bounds that are logarithms already."""
    upper = advantage.new_full(advantage.shape, INF).masked_fill(advantage > 0, high)
    return advantage.new_full(advantage.shape, -INF).masked_fill(advantage < 0, -low), upper


@part()
def gamma_weighted(t: Terms, *, k_pos: float, lambda_pos: float, k_neg: float, lambda_neg: float) -> Tensor:
    """sg[phi(w)] A log pi, phi(w) = w^k exp(lambda (1 - w)), k and lambda by the sign of A (VESPO, 2602.10693)."""
    log_weight = t.log_weight.detach().clamp(*FARTHEST)
    positive = t.advantage >= 0
    k = log_weight.new_full(positive.shape, k_neg).masked_fill(positive, k_pos)
    decay = log_weight.new_full(positive.shape, lambda_neg).masked_fill(positive, lambda_pos)
    return (decay + k * log_weight - decay * log_weight.exp()).exp() * t.advantage * t.logp_BT


@part()
def log_likelihood(t: Terms) -> Tensor:
    """A log pi: REINFORCE's surrogate, no weight (GPG, arXiv 2504.02546)."""
    return t.advantage * t.logp_BT


def outside(t: Terms) -> Tensor:
    """Valid tokens whose surrogate gradient the clip removes, bool (B, T): weight outside its region, A != 0."""
    regions: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {"clipped": region, "geometric_clipped": log_region}
    surrogate = t.parts.surrogate
    if surrogate.name not in regions:  # no clip, or one that bounds a weight and removes no gradient
        return t.batch.mask & False
    lower, upper = regions[surrogate.name](t.advantage, **surrogate.settings)
    log_weight = t.log_weight.detach()
    # strict: at the very end of a region torch's clamp keeps the gradient
    return ((log_weight < lower) | (log_weight > upper)) & (t.advantage != 0) & t.batch.mask
