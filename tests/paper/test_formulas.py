"""The formulas against other paths to the same numbers: autograd, plain loops, real steps, the catalog's losses.

And against errors: a formula that is wrong in one place changes its verdict.
"""

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


# ---- A planted error turns the verdict -------------------------------------------------------------------------------


def _no_mean(log_NA: np.ndarray, advantage_NA: np.ndarray) -> np.ndarray:
    return np.exp(log_NA) * advantage_NA


def _wrong_sign(log_NA: np.ndarray) -> np.ndarray:
    p_NA = np.exp(log_NA)
    return p_NA * (log_NA - (p_NA * log_NA).sum(-1, keepdims=True))


def _past_only(w: Responses) -> np.ndarray:
    return np.exp(w.logp_NST(w.logits_NXV) - w.old_logp_NST).cumprod(-1)


PLANTED = {
    "Equation 1 without the sign error": ("entropy_gradient", "_entropy_slope", _wrong_sign, 1.0),
    "Equation 3 without E[A]": ("equation_3", "_policy_slope", _no_mean, 0.0),
    "Appendix B with the ratios up to a token only": ("appendix_b_omission", "_ratios", _past_only, 0.0),
    "the target of Equation 6 without 1/beta": (
        "equation_8",
        "_log_softmax",
        lambda x: (
            x - 1.1 * np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)) - x.max(-1, keepdims=True)
        ),
        0.0,
    ),
}


@pytest.mark.parametrize("error", PLANTED)
def test_a_planted_error_is_seen(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check, name, other, share = PLANTED[error]
    function, population = CHECKS[check]
    drawn = lemmas.POPULATIONS[population]()
    assert lemmas.look(check).holds.mean() == 1 - share
    monkeypatch.setattr(lemmas, name, other)
    assert function(drawn).holds.mean() == share


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


def test_lemma_3_2_agrees_with_a_real_step() -> None:
    """Take the small step on the logits and look at the entropy."""
    log_NA = lemmas.policies()[:300]
    p_NA = np.exp(log_NA)
    draw = np.random.default_rng(2)  # the actions and advantages of `entropy_signs`
    action_N = [
        int(np.searchsorted(np.cumsum(p), u)) for p, u in zip(p_NA, draw.uniform(size=(300, 1))[:, 0], strict=True)
    ]
    advantage_N = draw.choice([-1.0, 1.0], size=300)

    def entropy(phi: np.ndarray) -> float:
        p = np.exp(phi - phi.max())
        p /= p.sum()
        return float(-(p * np.log(p)).sum())

    holds = []
    for log_A, p_A, a, advantage in zip(log_NA, p_NA, action_N, advantage_N, strict=True):
        step_A = -p_A * advantage
        step_A[a] += advantage
        change = entropy(log_A + 1e-4 * step_A) - entropy(log_A - 1e-4 * step_A)
        holds.append(np.sign(change) == -np.sign(advantage))
    assert np.mean(np.array(holds) == lemmas.entropy_signs(log_NA).holds) > 0.99


def test_premise_and_lemma_exclude_each_other_at_every_action() -> None:
    """The inner product is A (Cov(pi, log pi) - pi(a) (log pi(a) + H)), here by loops, with a positive covariance."""
    log_NA = lemmas.policies()[:40]
    for a in range(0, lemmas.ACTIONS, 7):
        action_N = np.full(len(log_NA), a)
        premise_N = lemmas.premise_holds(log_NA, action_N)
        for sign in (-1.0, 1.0):
            holds_N = lemmas.lemma_holds(log_NA, action_N, np.full(len(log_NA), sign))
            assert not (premise_N & holds_N).any()
            for log_A, holds in zip(log_NA, holds_N, strict=True):
                p_A = np.exp(log_A)
                entropy = -float(p_A @ log_A)
                covariance = float(p_A @ (p_A * log_A)) - float(p_A @ p_A) * float(p_A @ log_A)
                assert covariance > 0
                inner = sign * (covariance - p_A[a] * (log_A[a] + entropy))
                assert holds == (inner * sign < 0)


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


def test_ppos_objective_has_a_slope_at_the_target() -> None:
    """pi* is stationary under E[A] - beta KL(p || pi_k), not under E[A] - beta KL(pi_k || p)."""
    log_NA = lemmas.policies()[:50]
    advantage_NA, beta_N1, target_NA = lemmas._target(log_NA)
    for log_A, advantage_A, beta, target_A in zip(log_NA, advantage_NA, beta_N1[:, 0], target_NA, strict=True):
        for forward in (False, True):
            phi_A = torch.tensor(target_A, requires_grad=True)
            old_A = torch.tensor(log_A)

            def objective(phi_A: torch.Tensor, old_A=old_A, advantage_A=advantage_A, beta=beta, forward=forward):
                q_A = phi_A.log_softmax(-1)
                a, b = (old_A, q_A) if forward else (q_A, old_A)
                return (q_A.exp() * torch.tensor(advantage_A)).sum() - beta * (a.exp() * (a - b)).sum()

            (slope_A,) = torch.autograd.grad(objective(phi_A), phi_A)
            assert bool(slope_A.norm() > 1e-9) == forward


# ---- Responses, by autograd and by the catalog's own losses ----------------------------------------------------------


def _few(count: int) -> tuple[Responses, list[tuple[torch.Tensor, torch.Tensor]]]:
    """The first policies, and their logits and old logits as tensors."""
    w = lemmas.responses()
    few = Responses(w.logits_NXV[:count], w.old_NXV[:count], w.reward_NS[:count], w.length_S, w.mask_ST)
    tensors = [(torch.tensor(new), torch.tensor(old)) for new, old in zip(few.logits_NXV, few.old_NXV, strict=True)]
    return few, tensors


def _logp(logits_XV: torch.Tensor, mask_ST: np.ndarray) -> torch.Tensor:
    return logits_XV.log_softmax(-1)[lemmas._NODE_ST, lemmas._TOKEN_ST] * torch.tensor(mask_ST)


def test_responses_are_all_there_are() -> None:
    w, _ = _few(50)
    assert np.exp(w.logp_NST(w.logits_NXV).sum(-1)).sum(-1) == pytest.approx(np.ones(50), rel=1e-12)
    words = [tuple(r) for r in lemmas._RESPONSES]
    assert len(set(words)) == len(words)


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


def test_on_policy_the_weights_of_appendix_b_agree() -> None:
    """Where the old policy is the policy, every ratio is 1: nothing is omitted, and every weight gives the gradient."""
    w, _ = _few(100)
    same = Responses(w.logits_NXV, w.logits_NXV, w.reward_NS, w.length_S, w.mask_ST)
    for check in ("appendix_b_weight", "appendix_b_advantage", "appendix_b_steps"):
        assert CHECKS[check][0](same).holds.all(), check
