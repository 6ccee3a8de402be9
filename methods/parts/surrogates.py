"""The objective per token, larger is better. A clip is a region for the weight, whose ends depend on the sign of A."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from methods.parts import part

if TYPE_CHECKING:
    from torch import Tensor

    from methods.parts import Terms

INF = float("inf")


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
    if form == "ppo" and low is not None and low < 1:
        lower = lower.masked_fill(advantage < 0, math.log1p(-low))
    if form == "ppo" and dual is not None:
        upper = upper.masked_fill(advantage < 0, math.log(dual))
    return lower, upper


@part()
def plain(t: Terms) -> Tensor:
    """w A: importance sampling without a clip."""
    return t.log_weight.exp() * t.advantage


@part()
def clipped(t: Terms, *, low: float | None, high: float | None, form: str, dual: float | None) -> Tensor:
    """The weight held in its region, times A: for `form="ppo"` this is min(w A, clip(w, 1 - low, 1 + high) A)."""
    lower, upper = region(t.advantage, low=low, high=high, form=form, dual=dual)
    # clamped before exp: a weight that overflows would get the gradient 0 * inf
    return t.log_weight.clamp(lower, upper).exp() * t.advantage


@part()
def weighted(t: Terms, *, low: float | None, high: float | None) -> Tensor:
    """sg[clip(w, 1 - low, 1 + high)] A log pi: the clip bounds a weight and removes no gradient (CISPO, 2506.13585)."""
    weight = t.log_weight.detach().exp().clamp(None if low is None else 1 - low, INF if high is None else 1 + high)
    return weight * t.advantage * t.logp_BT


@part()
def log_likelihood(t: Terms) -> Tensor:
    """A log pi: REINFORCE's surrogate, no weight (GPG, arXiv 2504.02546)."""
    return t.advantage * t.logp_BT


def outside(t: Terms) -> Tensor:
    """Valid tokens whose surrogate gradient the clip removes, bool (B, T): weight outside its region, A != 0."""
    surrogate = t.parts.surrogate
    if surrogate.name != clipped.__name__:
        return t.batch.mask & False
    lower, upper = region(t.advantage, **surrogate.settings)
    log_weight = t.log_weight.detach()
    return ((log_weight < lower) | (log_weight > upper)) & (t.advantage != 0) & t.batch.mask
