"""The objective per token, larger is better. A clip is a region for the weight, whose ends depend on the sign of A."""

from __future__ import annotations

from typing import TYPE_CHECKING

from methods.parts import part

if TYPE_CHECKING:
    from torch import Tensor

    from methods.terms import Terms

INF = float("inf")


def region(
    advantage: Tensor, *, low: float | None, high: float | None, form: str, dual: float | None
) -> tuple[Tensor, Tensor]:
    """Lower and upper end of the region in which the weight keeps its gradient; None leaves a side open.

    ppo  A > 0: up to 1 + high;  A < 0: from 1 - low, up to `dual` if there is one
    eq4  up to 1 + high for either sign: the paper's min(w, clip(w)) A, with A outside the minimum
    """
    lower, upper = advantage.new_full(advantage.shape, -INF), advantage.new_full(advantage.shape, INF)
    if form == "eq4":
        return lower, upper if high is None else upper.fill_(1 + high)
    if low is not None:
        lower = lower.masked_fill(advantage < 0, 1 - low)
    if high is not None:
        upper = upper.masked_fill(advantage > 0, 1 + high)
    if dual is not None:
        upper = upper.masked_fill(advantage < 0, dual)
    return lower, upper


@part()
def plain(t: Terms) -> Tensor:
    """w A: importance sampling without a clip."""
    return t.weight * t.advantage


@part()
def clipped(t: Terms, *, low: float | None, high: float | None, form: str, dual: float | None) -> Tensor:
    """The weight held in its region, times A: for `form="ppo"` this is min(w A, clip(w, 1 - low, 1 + high) A)."""
    lower, upper = region(t.advantage, low=low, high=high, form=form, dual=dual)
    return t.weight.clamp(lower, upper) * t.advantage


@part()
def weighted(t: Terms, *, low: float | None, high: float | None) -> Tensor:
    """sg[clip(w, 1 - low, 1 + high)] A log pi: the clip bounds a weight and removes no gradient (CISPO, 2506.13585)."""
    weight = t.weight.detach().clamp(None if low is None else 1 - low, INF if high is None else 1 + high)
    return weight * t.advantage * t.logp_BT


@part()
def log_likelihood(t: Terms) -> Tensor:
    """A log pi: REINFORCE's surrogate, no weight (GPG, arXiv 2504.02546)."""
    return t.advantage * t.logp_BT


def outside(t: Terms) -> Tensor:
    """Where the clip removes the surrogate's gradient: weight outside its region, A != 0. Broadcasts to (B, T)."""
    surrogate = t.parts.surrogate
    if surrogate.name != clipped.__name__:
        return t.advantage != t.advantage
    lower, upper = region(t.advantage, **surrogate.settings)
    weight = t.weight.detach()
    return ((weight < lower) | (weight > upper)) & (t.advantage != 0)
