"""The objective per token before penalties, larger is better. A clip is a trust region for the weight that depends on sign(A)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from methods.parts import part

if TYPE_CHECKING:
    from torch import Tensor

    from methods.terms import Terms

INF = float("inf")


def bounds(
    advantage: Tensor, *, low: float | None, high: float | None, form: str, dual: float | None
) -> tuple[Tensor, Tensor]:
    """Lower and upper end of the region in which the weight keeps its gradient.

    ppo   A > 0: (-inf, 1+high];  A < 0: [1-low, inf), or [1-low, dual]:  min(wA, clip(w)A), dual clip max(., dual A)
    eq4   (-inf, 1+high] for either sign: the paper's min(w, clip(w)) A with A outside the minimum
    none  everything
    `low`, `high`, `dual` None: no bound on that side.
    """
    below = (advantage < 0) if form == "ppo" and low is not None else None
    above = (advantage > 0) if form == "ppo" else advantage == advantage
    lower, upper = advantage.new_full(advantage.shape, -INF), advantage.new_full(advantage.shape, INF)
    if below is not None and low is not None:
        lower = lower.masked_fill(below, 1 - low)
    if form != "none" and high is not None:
        upper = upper.masked_fill(above, 1 + high)
    if form == "ppo" and dual is not None:
        upper = upper.masked_fill(advantage < 0, dual)
    return lower, upper


@part()
def clipped(t: Terms, *, low: float | None, high: float | None, form: str, dual: float | None) -> Tensor:
    """clamp(w, region) A, which for `form="ppo"` is min(wA, clip(w, 1-low, 1+high) A)."""
    lower, upper = bounds(t.advantage, low=low, high=high, form=form, dual=dual)
    return t.weight.clamp(lower, upper) * t.advantage


@part()
def weighted(t: Terms, *, low: float | None, high: float | None) -> Tensor:
    """sg[clip(w, 1-low, 1+high)] A log pi: the clip bounds the weight and removes no gradient (CISPO, arXiv 2506.13585)."""
    weight = t.weight.detach().clamp(None if low is None else 1 - low, INF if high is None else 1 + high)
    return weight * t.advantage * t.logp_BT


@part()
def log_likelihood(t: Terms) -> Tensor:
    """A log pi: REINFORCE's surrogate, no weight (GPG, arXiv 2504.02546)."""
    return t.advantage * t.logp_BT


def outside(t: Terms) -> Tensor:
    """Where the clip removes the surrogate's gradient: w beyond the region and A != 0. Broadcasts to (B, T)."""
    settings = t.parts.surrogate.settings
    if "form" not in settings:
        return t.batch.mask & False
    lower, upper = bounds(t.advantage, **settings)
    weight = t.weight.detach()
    return ((weight < lower) | (weight > upper)) & (t.advantage != 0)
