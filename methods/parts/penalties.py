"""Per-token terms subtracted from the objective: coefficient x divergence or entropy, on the tokens of a mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from core.errors import ConfigError
from methods.parts import Part, part

if TYPE_CHECKING:
    from torch import Tensor

    from methods.parts import Terms

# d = log pi/pi_anchor at the sampled token. E_pi[k1] = KL(pi || anchor); k3 = k1 + (1/r - 1) >= 0.
ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "k3": lambda d: (-d).exp() + d - 1,
    "abs": lambda d: d.abs(),
    "k1": lambda d: d,
    "k2": lambda d: d**2 / 2,
}


def kl(
    *, beta: float, estimator: str, anchor: str, mask: Part, norm: str = "tokens", clamp: float | None = None
) -> Part:
    """Return the part beta KL(pi, anchor) on the tokens of `mask`; estimator: R4, anchor: R3, clamp: R33.

    norm (R7): with "tokens" the reducer divides by all tokens, with "masked" by the masked ones. Raises `ConfigError`
    for contradictory settings.
    """
    if clamp is not None and estimator != "k3":
        raise ConfigError(f"kl-clamp: bounds kl-estimator=k3, and has no meaning with kl-estimator={estimator}")
    needs = {"ref_logp"} if anchor == "ref" else set()
    by = per_masked(mask=mask) if norm == "masked" else norm
    settings = {"beta": beta, "estimator": estimator, "anchor": anchor, "mask": mask, "norm": by, "clamp": clamp}
    return Part(_kl, settings, frozenset(needs))


def _kl(
    t: Terms, *, beta: float, estimator: str, anchor: str, mask: Part, norm: Part | str, clamp: float | None
) -> Tensor:
    """Return beta KL_t(pi || anchor) on the tokens of `mask`."""
    masked, dtype = _tokens(t, mask), t.batch.logp.dtype
    # the divergence is 0 at padding
    on_BT = None if masked is t.batch.mask else masked.to(dtype)
    kl_BT = divergence(t, estimator=estimator, anchor=anchor, clamp=clamp, on_BT=on_BT)
    return kl_BT * ((norm(t) * beta).to(dtype) if isinstance(norm, Part) else beta)


@part(scope="batch")
def per_masked(t: Terms, *, mask: Part) -> Tensor:
    """Return N / (masked tokens), in float64: turns the reducer's division by N into a mean over the masked tokens.

    A separate part: a micro-batch takes this number from its minibatch, but not the divergence, which has a gradient.
    """
    count = int((_tokens(t, mask) & t.batch.mask).count_nonzero())
    return t.batch.mask.double() * (t.batch.tokens / max(count, 1))


def _tokens(t: Terms, mask: Part) -> Tensor:
    masked: Tensor = mask(t)
    if masked.is_floating_point():
        raise ConfigError(f"{t.batch.label}: {mask.name}: a weight; the mask of a KL is True or False")
    return masked


def divergence(
    t: Terms, *, estimator: str, anchor: str, clamp: float | None = None, on_BT: Tensor | None = None
) -> Tensor:
    """Return the divergence (B, T), zero at padding. k3_is = r k3, r = pi/pi_old: unbiased, gradient too.

    clamp: upper bound of k3, beyond which it has no gradient. on_BT: 1 at the tokens that count, 0 elsewhere.
    """
    d, log_ratio_BT = t.log_ratio_to(anchor), t.log_ratio_BT
    if on_BT is not None:
        # Masked before exp, because every estimator is 0 at d = 0. After exp, an overflow of exp(-d) (d < -88.7 in
        # float32) at a token that does not count would be infinity times 0, which is NaN.
        d, log_ratio_BT = d * on_BT, log_ratio_BT * on_BT
    if estimator == "k3_is":
        return log_ratio_BT.exp() * ESTIMATORS["k3"](d)
    if clamp is not None:
        # d is bounded as well, at verl's -20: the gradient of an infinite exp(-d) times the clamp's 0 would be NaN
        return ESTIMATORS[estimator](d.clamp(min=-20.0)).clamp(max=clamp)
    return ESTIMATORS[estimator](d)


@part("entropy")
def entropy(t: Terms, *, coefficient: float, mask: Part) -> Tensor:
    """Return coefficient x H with its gradient: negative rewards entropy (max-entropy), positive penalises it."""
    entropy_BT = t.batch.entropy
    assert entropy_BT is not None
    if t.batch.logp.requires_grad and not entropy_BT.requires_grad:
        raise ConfigError(f"{t.batch.label}: entropy: carries no gradient, so an entropy term would do nothing")
    return t.batch.valid(entropy_BT) * (coefficient * mask(t).to(entropy_BT.dtype))
