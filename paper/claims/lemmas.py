"""The paper's formulas on random softmax policies: on what share of them does each hold? No run is needed.

A policy: logits phi ~ N(0, s^2) over `ACTIONS` actions, s uniform on [0.5, 6]: from nearly uniform to nearly decided.
One action a is drawn from it with advantage +1 or -1, as one sampled token is. The first-order step of a policy
gradient on that token is A (e_a - pi); dH/dphi = -pi (log pi + H).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from paper import sampler
from paper.claims.contrast import Contrast
from records.errors import unknown

POLICIES = 2000  # with all of them right, Clopper-Pearson's lower end is .998: above the 99 % that claims test against
ACTIONS = 50
STEP = 1e-5  # of finite differences: small against the logits, large against rounding in float64
Array = NDArray[np.float64]
Holds = NDArray[np.bool_]


def entropy_gradient(log_NA: Array) -> Holds:
    """Equation 1 as printed, dH/dphi_i = pi_i (log pi_i + H), against central differences: signs (N,) equal?"""
    printed_NA = np.exp(log_NA) * (log_NA + _entropy(log_NA)[:, None])
    shift = np.zeros_like(log_NA)
    shift[:, 0] = STEP
    true_N = (_entropy(_log_softmax(log_NA + shift)) - _entropy(_log_softmax(log_NA - shift))) / (2 * STEP)
    return np.sign(printed_NA[:, 0]) == np.sign(true_N)


def tilting(log_NA: Array) -> Holds:
    """Lemma 3.1: no policy near pi exp(A/beta)/Z has a higher E[A] - beta KL(. || pi), beta = 1."""
    draw = np.random.default_rng(1)
    advantage_NA = draw.normal(size=log_NA.shape)

    def objective(other_NA: Array) -> Array:
        return (np.exp(other_NA) * (advantage_NA - other_NA + log_NA)).sum(-1)

    best_NA = _log_softmax(log_NA + advantage_NA)
    size_N1 = draw.uniform(0.01, 2.0, size=(len(log_NA), 1))
    near_NA = _log_softmax(best_NA + size_N1 * draw.normal(size=log_NA.shape))
    return objective(best_NA) >= objective(near_NA)


def entropy_signs(log_NA: Array) -> Holds:
    """Lemma 3.2: <grad H, grad J> has the sign opposite to A, for a sampled action."""
    draw = np.random.default_rng(2)
    p_NA = np.exp(log_NA)
    action_N = (p_NA.cumsum(-1) < draw.uniform(size=(len(p_NA), 1))).sum(-1).clip(max=p_NA.shape[1] - 1)
    advantage_N = draw.choice([-1.0, 1.0], size=len(p_NA))
    step_NA = advantage_N[:, None] * (np.eye(p_NA.shape[1])[action_N] - p_NA)
    slope_NA = -p_NA * (log_NA + _entropy(log_NA)[:, None])
    return np.sign((slope_NA * step_NA).sum(-1)) == -np.sign(advantage_N)


def covariance(log_NA: Array) -> Holds:
    """Appendix C.5: a small natural-gradient step lowers H where Cov(log pi, A) > 0 and raises it where it is < 0."""
    advantage_NA = np.random.default_rng(3).normal(size=log_NA.shape)
    p_NA = np.exp(log_NA)
    centred_NA = log_NA - (p_NA * log_NA).sum(-1, keepdims=True)
    covariance_N = (p_NA * centred_NA * advantage_NA).sum(-1)
    change_N = _entropy(_log_softmax(log_NA + STEP * advantage_NA)) - _entropy(log_NA)
    return np.sign(change_N) == -np.sign(covariance_N)


CHECKS: dict[str, Callable[[Array], Holds]] = {
    check.__name__: check for check in (entropy_gradient, tilting, entropy_signs, covariance)
}

# Shares that `paper.sampler` counted: study, tokens, sampler, loss and the column with the count.
OLD = "old, KL 0.01"  # the sampler is some updates old, as in the later minibatches of a rollout
SAMPLED = {
    "sequence_weight_has_less_bias": ("weights", 8, OLD, "sequence, geometric mean", "less_bias"),
    "sequence_weight_has_less_noise": ("weights", 8, OLD, "sequence, geometric mean", "less_noise"),
    "tepo_has_less_bias": ("methods", 6, OLD, "tepo", "less_bias"),
}


@cache
def share(check: str, null: float) -> Contrast:
    """Share of policies for which the formula holds: Clopper-Pearson and the exact binomial test against `null`."""
    from scipy.special import bdtr, betaincinv

    if check in CHECKS:
        n, hits = POLICIES, int(CHECKS[check](policies()).sum())
        how = f"{hits} of {n} random softmax policies over {ACTIONS} actions"
    elif check in SAMPLED:
        row, figure = sampler.row_of(*SAMPLED[check][:4]), SAMPLED[check][4]
        n, hits = row.policies, int(getattr(row, figure))
        how = f"{hits} of {n} random policies over {sampler.WORDS} words and {row.length} tokens, every response listed"
    else:
        raise unknown("algebra", "check", check, [*CHECKS, *SAMPLED])
    low = float(betaincinv(hits, n - hits + 1, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 1, n - hits, 0.975)) if hits < n else 1.0
    tails = float(bdtr(hits, n, null)), 1.0 - float(bdtr(hits - 1, n, null)) if hits else 1.0
    return Contrast(
        what=f"{check} holds",
        value=hits / n,
        null=null,
        low=low,
        high=high,
        p=min(1.0, 2 * min(tails)),
        detectable=None,
        unit="share",
        level="policy",
        how=f"{how}, Clopper-Pearson",
        n=n,
    )


def policies() -> Array:
    """(N, A) log-probabilities, the same ones every time."""
    draw = np.random.default_rng(0)
    scale_N1 = draw.uniform(0.5, 6.0, size=(POLICIES, 1))
    return _log_softmax(scale_N1 * draw.normal(size=(POLICIES, ACTIONS)))


def _log_softmax(x_NA: Array) -> Array:
    shifted_NA = x_NA - x_NA.max(-1, keepdims=True)
    return shifted_NA - np.log(np.exp(shifted_NA).sum(-1, keepdims=True))


def _entropy(log_NA: Array) -> Array:
    return -(np.exp(log_NA) * log_NA).sum(-1)
