"""The formulas against other paths to the same numbers: autograd, plain loops, real steps, the catalog's losses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from methods import catalog
from methods.batch import Batch
from paper.claims import ledger, lemmas
from paper.claims.claims import read_claims
from paper.claims.lemmas import CHECKS, Responses
from paper.claims.tests import Outcome

VERDICTS = {
    "entropy_gradient": "contradicted",
    "equation_3": "supported",
    "inner_product": "contradicted",
    "tilting": "supported",
    "equation_8": "supported",
    "ppo_penalty": "contradicted",
    "entropy_signs": "contradicted",
    "suboptimal_rare": "contradicted",
    "suboptimal_rare_premise": "supported",
    "premise_gives_sign": "contradicted",
    "covariance": "supported",
    "optimal_probable": "supported",
    "optimal_probable_premise": "contradicted",
    "equation_3_in_responses": "contradicted",
    "appendix_b_steps": "supported",
    "appendix_b_advantage": "contradicted",
    "appendix_b_omission": "supported",
    "appendix_b_weight": "contradicted",
    "line_21": "contradicted",
}


def test_verdicts_of_the_formulas() -> None:
    found = {check: ledger.direction(Outcome((lemmas.share(check, 0.99),))) for check in CHECKS}
    assert {check: ledger.verdicts_of_family([seen])[0][0] for check, seen in found.items()} == VERDICTS


def test_every_formula_is_tested_by_a_claim() -> None:
    asked = {str(claim.test.arguments["check"]) for claim in read_claims() if claim.test.kind == "algebra"}
    assert set(CHECKS) <= asked


# ---- One state, by other paths ---------------------------------------------------------------------------------------


def _gradients(log_A: np.ndarray, advantage_A: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Of entropy and of E[A], by autograd."""
    phi_A = torch.tensor(log_A, requires_grad=True)
    p_A = phi_A.softmax(-1)
    (entropy_A,) = torch.autograd.grad(-(p_A * phi_A.log_softmax(-1)).sum(), phi_A, retain_graph=True)
    (reward_A,) = torch.autograd.grad((p_A * torch.tensor(advantage_A)).sum(), phi_A)
    return entropy_A, reward_A


def test_inner_product_by_autograd_and_a_loop() -> None:
    log_NA = lemmas.policies()[:60]
    advantage_NA = np.random.default_rng(5).normal(size=log_NA.shape)  # the advantages of `inner_product`
    holds = []
    for log_A, advantage_A in zip(log_NA, advantage_NA, strict=True):
        entropy_A, reward_A = _gradients(log_A, advantage_A)
        entropy = -sum(math.exp(x) * x for x in log_A)
        printed = sum(math.exp(x) ** 2 * (x + entropy) * a for x, a in zip(log_A, advantage_A, strict=True))
        holds.append((printed > 0) == (float(entropy_A @ reward_A) > 0))
    assert lemmas.inner_product(log_NA).holds.tolist() == holds
    assert 0 < sum(holds) < 20


def test_equation_8_by_loops() -> None:
    log_NA = lemmas.policies()[:20]
    advantage_NA, beta_N1, target_NA = lemmas._target(log_NA)
    for n in range(20):
        weights = [math.exp(x + a / beta_N1[n, 0]) for x, a in zip(log_NA[n], advantage_NA[n], strict=True)]
        assert np.exp(target_NA[n]) == pytest.approx(np.array(weights) / math.fsum(weights), rel=1e-9)
        other = log_NA[19 - n]
        left = math.fsum(math.exp(q) * (q - t) for q, t in zip(other, target_NA[n], strict=True))
        kl = math.fsum(math.exp(q) * (q - x) for q, x in zip(other, log_NA[n], strict=True))
        mean = math.fsum(math.exp(q) * a for q, a in zip(other, advantage_NA[n], strict=True))
        assert left - (beta_N1[n, 0] * kl - mean) / beta_N1[n, 0] == pytest.approx(
            math.log(math.fsum(weights)), abs=1e-9
        )


# ---- Responses, by autograd and by the catalog's own losses ----------------------------------------------------------


def _few(count: int) -> tuple[Responses, list[tuple[torch.Tensor, torch.Tensor]]]:
    """The first policies, and their logits and old logits as tensors."""
    w = lemmas.responses()
    few = Responses(w.logits_NXV[:count], w.old_NXV[:count], w.reward_NS[:count], w.length_S, w.mask_ST)
    tensors = [(torch.tensor(new), torch.tensor(old)) for new, old in zip(few.logits_NXV, few.old_NXV, strict=True)]
    return few, tensors


def _logp(logits_XV: torch.Tensor, mask_ST: np.ndarray) -> torch.Tensor:
    return logits_XV.log_softmax(-1)[lemmas._NODE_ST, lemmas._TOKEN_ST] * torch.tensor(mask_ST)


def test_gradients_in_responses_by_autograd() -> None:
    """True gradient of J, slopes of log-probabilities, and GRPO's surrogate."""
    w, tensors = _few(6)
    advantage_NS = w.standardised_NS(w.old_NXV)
    true_NP, ratio_NST = lemmas._true_gradient(w), lemmas._ratios(w)
    for n, (new, old) in enumerate(tensors):
        new.requires_grad_()
        p_S, old_S = _logp(new, w.mask_ST).sum(-1).exp(), _logp(old, w.mask_ST).sum(-1).exp()
        assert advantage_NS[n] @ old_S.numpy() == pytest.approx(0, abs=1e-12)
        assert advantage_NS[n] ** 2 @ old_S.numpy() == pytest.approx(1, rel=1e-12)
        (gradient,) = torch.autograd.grad((p_S * torch.tensor(advantage_NS[n])).sum(), new)
        assert true_NP[n] == pytest.approx(gradient.numpy().ravel(), rel=1e-9, abs=1e-14)
        ratio_ST = (_logp(new, w.mask_ST) - _logp(old, w.mask_ST)).exp() * torch.tensor(w.mask_ST)
        surrogate = (old_S[:, None] * torch.tensor(advantage_NS[n])[:, None] * ratio_ST).sum()
        (gradient,) = torch.autograd.grad(surrogate, new)
        assert lemmas._with_weight(w, ratio_NST)[n] == pytest.approx(gradient.numpy().ravel(), rel=1e-9, abs=1e-14)


@pytest.mark.parametrize(
    ("key", "side"),
    [
        ("tepo_nokl+clip-form=none+gradient=alg1_line21", "printed"),
        ("tepo_nokl+clip-form=none", "true"),
        ("gspo+clip-form=none", "gspo"),
    ],
)
def test_algorithm_1_by_the_catalogs_losses(key: str, side: str) -> None:
    w, tensors = _few(8)
    seen = lemmas.algorithm_1(w)
    for n, (new, old) in enumerate(tensors):
        new.requires_grad_()
        chosen = seen.responses[n]
        batch = Batch(
            logp=_logp(new, w.mask_ST)[chosen],
            old_logp=_logp(old, w.mask_ST)[chosen],
            advantage=torch.tensor(seen.advantage[n]),
            mask=torch.tensor(w.mask_ST[chosen] == 1),
            group=torch.zeros(len(chosen)).long(),
        )
        (gradient,) = torch.autograd.grad(-catalog.parse(key).loss(batch), new)
        assert getattr(seen, side)[n] == pytest.approx(gradient.numpy().ravel(), rel=1e-9, abs=1e-14)
