"""Importance weights, as logarithms. d_t = log pi(y_t)/pi_old(y_t), zero on padding; |y| the row's valid tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from methods.parts import Part, part, pick

if TYPE_CHECKING:
    from torch import Tensor

    from methods.parts import Terms


@part()
def none(t: Terms) -> Tensor:
    """Weight 1: no importance sampling."""
    return t.advantage.new_zeros(len(t.batch.mask), 1)


def token(*, gradient: str = "autograd") -> Part:
    """One weight per token, the ratio itself. `gradient`: see `sequence`."""
    return _with_gradient(_token(), gradient)


@part("sampling_logp")
def to_sampler(t: Terms) -> Tensor:
    """r_t = pi(y_t) / pi_sampler(y_t), the sampler's own log-probs in the place of the old policy's (DPPO's code)."""
    return t.log_ratio_to("sampler")


def sequence(*, gradient: str = "autograd") -> Part:
    """One weight per sequence, the geometric mean of its ratios. `gradient` (R2): autograd, or alg1_line21."""
    return _with_gradient(_sequence(), gradient)


def prefix(*, gradient: str = "through") -> Part:
    """One weight per token, the geometric mean of the ratios up to it. `gradient` (R8): through, own_token or stop.

    Under "stop" the weight is the same: `surrogates.weighted` is then the surrogate, and detaches it.
    """
    choices = {"through": _prefix(), "own_token": own_token(of=_prefix()), "stop": _prefix()}
    return pick(choices, "prefix-grad", gradient)


def at_level(level: str, *, gradient: str = "autograd") -> Part:
    """The weight of `token` or of `sequence`, for methods whose level the paper leaves open (R18, R19)."""
    return pick({"token": token, "sequence": sequence}, "ratio", level)(gradient=gradient)


def _with_gradient(weight: Part, gradient: str) -> Part:
    return pick({"autograd": weight, "alg1_line21": own_share(of=weight)}, "gradient", gradient)


@part()
def _token(t: Terms) -> Tensor:
    """r_t = exp d_t (GRPO, arXiv 2402.03300, eq. 3)."""
    return t.log_ratio_BT


@part(scope="sequence")
def _sequence(t: Terms) -> Tensor:
    """w = exp( (1/|y|) sum_t d_t ), the geometric mean, (B, 1) (TEPO section 3.3.1; GSPO, arXiv 2507.18071, eq. 7)."""
    return t.log_ratio_BT.sum(1, keepdim=True) / t.lengths_B1


@part(scope="sequence")
def product(t: Terms, *, most: float | None) -> Tensor:
    """w = pi(y)/pi_old(y) = exp( sum_t d_t ), the whole response as one action, (B, 1); each d_t within `most` nats."""
    log_ratio_BT = t.log_ratio_BT if most is None else t.log_ratio_BT.clamp(-most, most)
    return log_ratio_BT.sum(1, keepdim=True)


@part(scope="sequence")
def _prefix(t: Terms) -> Tensor:
    """w_t = exp( (1/t) sum_{u<=t} d_u ) (TEPO Table 5, without the stray sum in front)."""
    # t counts valid tokens, so holes in the mask do not lengthen a prefix; at least 1 before the first valid token
    return t.log_ratio_BT.cumsum(1) / t.batch.mask.cumsum(1).clamp(min=1)


@part()
def own_token(t: Terms, *, of: Part) -> Tensor:
    """The value of `of`, the gradient of the own token's d_t alone: sg[log w] + d_t - sg[d_t] (GSPO-token, eq. 14)."""
    return of(t).detach() + (t.log_ratio_BT - t.log_ratio_BT.detach())


@part()
def own_share(t: Terms, *, of: Part) -> Tensor:
    """The value of `of`, the own token's path through a mean over |y|: TEPO Algorithm 1, line 21."""
    return of(t).detach() + (t.log_ratio_BT - t.log_ratio_BT.detach()) / t.lengths_B1
