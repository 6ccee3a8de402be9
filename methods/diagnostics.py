"""Eleven metrics, each with one definition for all methods and trainers. None means undefined, never 0.

entropy                  mean over valid tokens of the full-vocabulary entropy, nats
clip_fraction_tokens     share of valid tokens whose surrogate gradient the clip removes
clip_fraction_sequences  share of sequences in which the clip removes every token's surrogate gradient
ratio_spread             standard deviation over valid tokens of the method's log importance weight; None without one
kl_old                   mean over valid tokens of k3 = exp(-d) + d - 1, d = log pi/pi_old, as frameworks report it: a
                         biased estimate of KL(pi || pi_old), because the tokens are sampled from pi_old, not from pi
mask_fraction            share of valid tokens penalised, or removed from the surrogate; None without either
theorem_sign_agreement   share of valid tokens with A != 0 and |dH| > tol whose sign(dH) = -sign(A) (TEPO, Theorem 3.1)
effective_sample_size    (sum w)^2 / (B sum w^2), w the geometric mean ratio of each of the B sequences; in (0, 1]
sampling_gap_mean        mean over valid tokens of |log pi_old - log pi_sampler|: trainer and sampler on the same policy
sampling_gap_p99         99th percentile of the same: the smallest value that 99 % of the tokens do not exceed
sampling_correlation     Pearson correlation of exp(log pi_old) and exp(log pi_sampler) over valid tokens

The last three are None if the sampler's log-probs are unknown.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from core.errors import ConfigError
from methods.parts import Terms, masks, objective
from methods.parts.penalties import divergence

if TYPE_CHECKING:
    from torch import Tensor

    from methods.batch import Batch
    from methods.parts import Parts

NAMES = (
    "entropy", "clip_fraction_tokens", "clip_fraction_sequences", "ratio_spread", "kl_old", "mask_fraction",
    "theorem_sign_agreement", "effective_sample_size", "sampling_gap_mean", "sampling_gap_p99", "sampling_correlation",
)  # fmt: skip


def diagnostics(parts: Parts, batch: Batch) -> dict[str, float | None]:
    """Return all of `NAMES`, without drawing from a shared random generator or keeping a graph."""
    import torch

    with torch.no_grad():
        if batch.tokens == 0:
            return dict.fromkeys(NAMES)
        # a separate generator: measuring must not change which tokens the next loss draws
        t = Terms(batch, parts, torch.Generator().manual_seed(0))
        removed_BT = objective.outside(t)
        metrics = {
            "entropy": None if batch.entropy is None else _mean(batch.entropy, batch),
            "clip_fraction_tokens": removed_BT.sum() / batch.tokens,
            # padding counts as removed, so that `all` considers valid tokens only
            "clip_fraction_sequences": (removed_BT | batch.padding_BT).all(1)[batch.lengths_B > 0].double().mean(),
            "ratio_spread": None if parts.ratio.name == "none" else _spread(t.log_weight, batch),
            "kl_old": _mean(divergence(t, estimator="k3", anchor="old"), batch),
            "mask_fraction": _mask_fraction(t),
            "theorem_sign_agreement": _sign_agreement(t),
            "effective_sample_size": _effective(t),
            **_sampler(batch),
        }
        return {name: None if value is None else float(value) for name, value in metrics.items()}


MOST_ROUNDING = 0.01  # largest share of the tokens of a first minibatch that may count as changed


def check_unchanged(parts: Parts, batch: Batch) -> dict[str, float | str] | None:
    """Measure rounding that a method would mistake for a change, on a minibatch of the policy that sampled it (R6).

    Returns `share`, of the valid tokens with |dH| above the tolerance, and `p99`, the 99th percentile of |dH| in nats.
    Returns None for a method without a difference of entropies, and for passes in the tensors' precision, whose
    tolerance is known. Raises `ConfigError` if `share` exceeds `MOST_ROUNDING`.
    """
    nested = [part for slot in parts.filled().values() for part in slot.nested]
    differences = [part for part in nested if part.name == "entropy_diff"]
    if not differences or batch.precision is None or batch.tokens == 0:
        return None
    assert batch.entropy is not None
    assert batch.old_entropy is not None
    noise = (batch.entropy.detach() - batch.old_entropy).abs()[batch.mask].double()
    p99 = float(noise.kthvalue(math.ceil(0.99 * len(noise))).values)
    share = float((differences[0](Terms(batch, parts)) != 0)[batch.mask].double().mean())
    if share > MOST_ROUNDING:
        raise ConfigError(
            f"{batch.label}: dh-tol: {share:.1%} of the tokens have another entropy though no weight has changed: "
            f"rounding in {batch.precision}; allowed: {MOST_ROUNDING:.0%}, which dh-tol={1.1 * p99:.1e} gives"
        )
    return {"precision": batch.precision, "share": share, "p99": p99}


def _mean(x: Tensor, batch: Batch) -> Tensor:
    """Return the mean over the valid tokens, in float64: sums over 10^5 tokens lose digits in float32."""
    return batch.valid(x.double()).sum() / batch.tokens


def _spread(log_weight: Tensor, batch: Batch) -> Tensor:
    """Return the standard deviation over the valid tokens."""
    return _mean((log_weight - _mean(log_weight, batch)).square(), batch).sqrt()


def _mask_fraction(t: Terms) -> Tensor | None:
    if t.parts.mask is not None:
        return 1 - _mean(t.parts.mask(t), t.batch)
    # the first penalty: no catalog method has two
    return _mean(t.parts.penalties[0].settings["mask"](t), t.batch) if t.parts.penalties else None


def _sign_agreement(t: Terms) -> Tensor | None:
    batch = t.batch
    # half precision lacks a default tolerance, because the sign of dH would be rounding noise
    if batch.entropy is None or batch.old_entropy is None or masks.tolerance(t, batch.entropy) is None:
        return None
    # always the measured change, whatever definition the method uses: the theorem is about this one
    change = masks.entropy_diff(tol=None)(t)
    # and the advantage before the method's shaping, for the same reason
    advantage = batch.advantage if batch.advantage.ndim == 2 else batch.advantage.unsqueeze(1)
    clear = batch.mask & (advantage != 0) & (change != 0)
    if not bool(clear.any()):
        return None
    agree = change.sign() == -advantage.sign()
    return agree[clear].double().mean()


def _effective(t: Terms) -> Tensor:
    # the sequence ratio for every method, so that the metric compares policies rather than losses
    weights = objective.sequence()(t).squeeze(1)[t.batch.lengths_B > 0].double().exp()
    return weights.sum() ** 2 / (len(weights) * weights.square().sum())


def _sampler(batch: Batch) -> dict[str, Tensor | None]:
    """Return how far the sampler's log-probs are from the trainer's for the same policy."""
    if batch.sampling_logp is None:
        return dict.fromkeys(("sampling_gap_mean", "sampling_gap_p99", "sampling_correlation"))
    old, sampler = batch.old_logp[batch.mask].double(), batch.sampling_logp[batch.mask].double()
    gap = (old - sampler).abs()
    centred = [x.exp() - x.exp().mean() for x in (old, sampler)]
    spread = (centred[0].square().sum() * centred[1].square().sum()).sqrt()
    return {
        "sampling_gap_mean": gap.mean(),
        "sampling_gap_p99": gap.kthvalue(math.ceil(0.99 * len(gap))).values,
        # the correlation is undefined without spread, for example with one token
        "sampling_correlation": (centred[0] * centred[1]).sum() / spread if float(spread) > 0 else None,
    }
