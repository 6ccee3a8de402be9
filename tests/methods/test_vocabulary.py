"""Identities that need whole distributions: gradients by the logits of a softmax policy, expectations summed exactly.

The batch has one row per action and one token per row; a row's loss weighted by the old policy's probability is then
the exact expectation over samples from the old policy. With advantage 0 only the penalty is left of a loss.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from methods import catalog
from methods.batch import Batch
from tests.methods.subjects import distance

EXACT = 64 * torch.finfo(torch.float64).eps
VOCABULARY = 7


def policies(seed: int, drift: float = 0.5) -> tuple[Tensor, Tensor]:
    """Logits of the current policy, with gradient, and log-probabilities of the old one, (V,)."""
    draw = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(VOCABULARY, generator=draw, dtype=torch.float64)
    old = logits + drift * torch.randn(VOCABULARY, generator=draw, dtype=torch.float64)
    return logits.requires_grad_(), old.log_softmax(0)


def expected_penalty(estimator: str, logits: Tensor, old_logp: Tensor, anchor: Tensor | None = None) -> Tensor:
    """Gradient by the logits of E_{a ~ old}[penalty(a)], summed over all actions."""
    full = logits.log_softmax(0)
    total = torch.zeros((), dtype=torch.float64)
    for action in range(VOCABULARY):
        batch = Batch(
            logp=full[action].view(1, 1),
            old_logp=old_logp[action].view(1, 1),
            ref_logp=(old_logp if anchor is None else anchor)[action].view(1, 1),
            full_logp=full.view(1, 1, -1),
            old_full_logp=old_logp.view(1, 1, -1),
            advantage=torch.zeros(1, dtype=torch.float64),
            mask=torch.ones(1, 1, dtype=torch.bool),
            group=torch.zeros(1, dtype=torch.long),
        )
        against = "old" if anchor is None else "ref"
        method = catalog.parse(f"tepo_kl_all+beta=1+kl-estimator={estimator}+kl-anchor={against}")
        total = total + old_logp[action].exp() * method.loss(batch)
    (gradient,) = torch.autograd.grad(total, logits)
    return gradient


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) of log-probabilities (V,)."""
    return (p.exp() * (p - q)).sum()


def gradient_of(value: Tensor, logits: Tensor) -> Tensor:
    return torch.autograd.grad(value, logits)[0]


def cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a, b, dim=0))


@pytest.mark.parametrize("estimator", ["abs", "k2", "k3", "k3_is", "full"])
def test_p13_on_policy_the_penalty_has_no_gradient(estimator: str) -> None:
    logits, _ = policies(1)
    old = logits.detach().log_softmax(0)
    assert float(expected_penalty(estimator, logits, old).abs().max()) <= EXACT


def test_p13_on_policy_k1_has_one_at_every_token() -> None:
    """Its expectation vanishes, the gradient at the sampled token does not: pure noise on the update."""
    logits, _ = policies(1)
    old = logits.detach().log_softmax(0)
    assert float(expected_penalty("k1", logits, old).abs().max()) <= EXACT
    one = old.exp().clone()
    one[0] = 0.0  # without the first action the expectation is not complete
    assert float(gradient_of((logits.log_softmax(0) * one).sum(), logits).abs().max()) > 0.01


@pytest.mark.parametrize("seed", range(5))
def test_p14_k1_pushes_away_from_the_old_policy(seed: int) -> None:
    logits, old = policies(seed)
    away = -gradient_of(kl(old, logits.log_softmax(0)), logits)
    assert distance(expected_penalty("k1", logits, old), away) <= EXACT


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("estimator", ["k3_is", "full"])
def test_p14_weighted_k3_and_the_full_sum_are_the_gradient_of_the_kl(estimator: str, seed: int) -> None:
    logits, old = policies(seed)
    wanted = gradient_of(kl(logits.log_softmax(0), old), logits)
    got = expected_penalty(estimator, logits, old)
    # `full` does not depend on the sampled token, so each row holds the whole gradient and the weights sum to 1.
    assert distance(got, wanted) <= EXACT


@pytest.mark.parametrize("estimator", ["k2", "k3", "abs"])
def test_p14_the_others_only_point_the_same_way(estimator: str) -> None:
    angles = []
    for seed in range(20):
        logits, old = policies(seed)
        angles.append(
            cosine(expected_penalty(estimator, logits, old), gradient_of(kl(logits.log_softmax(0), old), logits))
        )
    assert 0.7 < sum(angles) / len(angles) < 0.9999


def test_p14_k3_is_weights_by_the_sampling_policy_whatever_the_anchor() -> None:
    """Samples come from the old policy, so r = pi/pi_old also where the KL is to another reference."""
    logits, old = policies(3)
    reference = policies(4)[1]
    wanted = gradient_of(kl(logits.log_softmax(0), reference), logits)
    assert distance(expected_penalty("k3_is", logits, old, anchor=reference), wanted) <= EXACT


def entropy(logits: Tensor) -> Tensor:
    full = logits.log_softmax(0)
    return -(full.exp() * full).sum()


@pytest.mark.parametrize("seed", range(5))
def test_p19_the_entropy_gradient_has_the_minus_that_eq_1_lacks(seed: int) -> None:
    logits, _ = policies(seed)
    full = logits.detach().log_softmax(0)
    printed = full.exp() * (full + entropy(logits.detach()))
    assert distance(gradient_of(entropy(logits), logits), -printed) <= EXACT


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_p19_first_order_change_of_the_own_states_entropy(sign: float) -> None:
    """Moving the logits along A (e_a - p) changes H by -A [p(log p + H) - sum p^2 (log p + H)] to first order."""
    for seed in range(5):
        logits, _ = policies(seed)
        full, h = logits.detach().log_softmax(0), float(entropy(logits.detach()))
        p, step = full.exp(), 1e-6
        for action in range(VOCABULARY):
            direction = sign * (torch.eye(VOCABULARY, dtype=torch.float64)[action] - p)
            moved = float(entropy(logits.detach() + step * direction) - entropy(logits.detach() - step * direction))
            wanted = -sign * (p[action] * (full[action] + h) - (p**2 * (full + h)).sum())
            assert moved / (2 * step) == pytest.approx(float(wanted), abs=1e-8)


def test_p19_the_likeliest_token_never_has_negative_log_p_plus_h() -> None:
    """Case 2 of Lemma 3.2 needs log p + H < 0 there."""
    for seed in range(50):
        logits, _ = policies(seed)
        assert float(logits.detach().log_softmax(0).max() + entropy(logits.detach())) >= 0
