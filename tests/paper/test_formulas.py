"""The paper's formulas on random softmax policies: on how many of them does each hold? (`paper/formulas.csv`)

Two kinds of policy, both small enough for exact sums in float64; automatic differentiation gives the true gradients:

- one state: logits phi ~ N(0, s^2) over `ACTIONS` actions, s uniform on [0.5, 6]: from nearly uniform to nearly
  decided. dH/dphi = -pi (log pi + H). One sampled action a with advantage A gives the policy gradient A (e_a - pi).
- responses of up to `LENGTH` tokens over `WORDS` words, the last of which ends a response: every response is listed.

Names of axes: N policies, A actions, S responses, T tokens, X prefixes, V words, G a group.
"""

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.files import read_csv
from paper.claims import FORMULAS

POLICIES = 2000  # with all of them right, Clopper-Pearson's lower end is .998: above the 99 % that claims test against
ACTIONS = 50
STEP = 1e-5  # of a small update: small against the logits, large against rounding in float64
EQUAL = 1e-9  # relative distance below which two sides are equal: far above rounding, far below any other distance
CERTAIN = 0.9  # "pi -> 1" in the proof of Lemma 3.2
WORDS, LENGTH = 3, 3
SAMPLES = 4  # responses in a group


def gradient(objective: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Gradient of an objective (N,) by the logits of each policy, (N, ...)."""
    at = at.detach().requires_grad_()
    return torch.autograd.grad(objective(at).sum(), at)[0]


def equal(x: Tensor, true: Tensor) -> Tensor:
    """Whether the distance is small against the length of the second, (N,)."""
    return (x - true).flatten(1).norm(dim=1) / true.flatten(1).norm(dim=1) < EQUAL


# One state.


def normal(seed: int, like_NA: Tensor) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=like_NA.shape))


def policies(least: float = 0.0) -> Tensor:
    """(N, A) log-probabilities, the same ones every time; least: of the largest probability of each."""
    draw = np.random.default_rng(0)
    kept: list[Tensor] = []
    while sum(map(len, kept)) < POLICIES:
        scale_N1 = draw.uniform(0.5, 6.0, size=(POLICIES, 1))
        log_NA = torch.from_numpy(scale_N1 * draw.normal(size=(POLICIES, ACTIONS))).log_softmax(-1)
        kept.append(log_NA[log_NA.amax(-1).exp() >= least])
    return torch.cat(kept)[:POLICIES]


def entropy(logits_NA: Tensor) -> Tensor:
    log_NA = logits_NA.log_softmax(-1)
    return -(log_NA.exp() * log_NA).sum(-1)


def entropy_slope(log_NA: Tensor) -> Tensor:
    """dH/dphi = -pi (log pi + H)."""
    return -log_NA.exp() * (log_NA + entropy(log_NA)[:, None])


def policy_slope(log_NA: Tensor, advantage_NA: Tensor) -> Tensor:
    """dJ/dphi = pi (A - E[A])."""
    p_NA = log_NA.exp()
    return p_NA * (advantage_NA - (p_NA * advantage_NA).sum(-1, keepdim=True))


def mean(logits_NA: Tensor, advantage_NA: Tensor) -> Tensor:
    """E[A]."""
    return (logits_NA.softmax(-1) * advantage_NA).sum(-1)


def premise(log_NA: Tensor) -> Tensor:
    """log pi + H < 0: what both cases of the proof of Lemma 3.2 derive the sign from."""
    return log_NA + entropy(log_NA)[:, None] < 0


def inner_product(log_NA: Tensor) -> Tensor:
    """Section 3.2.2: sum_i pi_i^2 (log pi_i + H) A_i has the sign of <grad H, grad J>; A ~ N(0, 1) for every action.

    Substituting Equations 1 and 3 gives A_i - E[A] in the place of A_i; Equation 1 lacks a minus.
    """
    advantage_NA, slope_NA = normal(5, log_NA), entropy_slope(log_NA)
    true_N = (slope_NA * policy_slope(log_NA, advantage_NA)).sum(-1)
    return (-slope_NA * log_NA.exp() * advantage_NA).sum(-1).sign() == true_N.sign()


def tilting(log_NA: Tensor) -> Tensor:
    """Lemma 3.1: no policy near pi exp(A/beta)/Z has a higher E[A] - beta KL(. || pi), beta = 1."""
    draw = np.random.default_rng(1)
    advantage_NA = torch.from_numpy(draw.normal(size=log_NA.shape))

    def objective(other_NA: Tensor) -> Tensor:
        return (other_NA.exp() * (advantage_NA - other_NA + log_NA)).sum(-1)

    best_NA = (log_NA + advantage_NA).log_softmax(-1)
    size_N1 = draw.uniform(0.01, 2.0, size=(len(log_NA), 1))
    near_NA = (best_NA + torch.from_numpy(size_N1 * draw.normal(size=log_NA.shape))).log_softmax(-1)
    return objective(best_NA) >= objective(near_NA)


def _target(log_NA: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A (N, A), beta (N, 1) and log pi* (N, A) of Equation 6."""
    draw = np.random.default_rng(6)
    advantage_NA = torch.from_numpy(draw.normal(size=log_NA.shape))
    beta_N1 = torch.from_numpy(draw.uniform(0.1, 2.0, size=(len(log_NA), 1)))
    return advantage_NA, beta_N1, (log_NA + advantage_NA / beta_N1).log_softmax(-1)


def equation_8(log_NA: Tensor) -> Tensor:
    """KL(p || pi*) = (beta KL(p || pi_k) - E_p[A]) / beta, but for log Z, at another random policy p."""
    advantage_NA, beta_N1, target_NA = _target(log_NA)
    other_NA = log_NA.flip(0)
    divergence_N = (other_NA.exp() * (other_NA - target_NA)).sum(-1)
    printed_N = (other_NA.exp() * (other_NA - log_NA - advantage_NA / beta_N1)).sum(-1)
    log_z_N = (log_NA + advantage_NA / beta_N1).logsumexp(-1)
    return (divergence_N - printed_N - log_z_N).abs() / divergence_N.abs().clamp(min=1.0) < EQUAL


def ppo_penalty(log_NA: Tensor) -> Tensor:
    """Is pi* also stationary under PPO's penalised objective, E_p[A] - beta KL(pi_k || p)?"""
    advantage_NA, beta_N1, target_NA = _target(log_NA)
    slope_NA = policy_slope(target_NA, advantage_NA)
    penalty_NA = beta_N1 * (target_NA.exp() - log_NA.exp())
    return (slope_NA - penalty_NA).norm(dim=-1) / slope_NA.norm(dim=-1) < EQUAL


def sampled_action(log_NA: Tensor) -> tuple[Tensor, Tensor]:
    """One action of each policy, as sampling draws it, and its advantage, -1 or 1."""
    draw = np.random.default_rng(2)
    below_NA = log_NA.exp().cumsum(-1) < torch.from_numpy(draw.uniform(size=(len(log_NA), 1)))
    return below_NA.sum(-1).clamp(max=ACTIONS - 1), torch.from_numpy(draw.choice([-1.0, 1.0], size=len(log_NA)))


def lemma_holds(log_NA: Tensor, action_N: Tensor, advantage_N: Tensor) -> Tensor:
    """Lemma 3.2: <grad H, grad J> has the sign opposite to A, J being one sampled action's."""
    step_NA = advantage_N[:, None] * (torch.eye(ACTIONS, dtype=log_NA.dtype)[action_N] - log_NA.exp())
    return (entropy_slope(log_NA) * step_NA).sum(-1).sign() == -advantage_N.sign()


def covariance(log_NA: Tensor) -> Tensor:
    """Appendix C.5: a small natural-gradient step lowers H where Cov(log pi, A) > 0 and raises it where it is < 0."""
    advantage_NA, p_NA = normal(3, log_NA), log_NA.exp()
    covariance_N = (p_NA * (log_NA + entropy(log_NA)[:, None]) * advantage_NA).sum(-1)
    return (entropy(log_NA + STEP * advantage_NA) - entropy(log_NA)).sign() == -covariance_N.sign()


# Responses of several tokens.

_PREFIXES = [p for length in range(LENGTH) for p in product(range(WORDS - 1), repeat=length)]
_RESPONSES = [
    (*prefix, word)
    for prefix in _PREFIXES
    for word in range(WORDS)
    if word == WORDS - 1 or len(prefix) == LENGTH - 1  # the last word ends a response, the longest prefix any does
]
_NODE_ST = torch.tensor([[_PREFIXES.index(r[: min(t, len(r) - 1)]) for t in range(LENGTH)] for r in _RESPONSES])
_TOKEN_ST = torch.tensor([[*r, *[0] * (LENGTH - len(r))] for r in _RESPONSES])
_LENGTH_S = torch.tensor([len(r) for r in _RESPONSES], dtype=torch.float64)
_MASK_ST = torch.arange(LENGTH) < _LENGTH_S[:, None]


def logp(logits_NXV: Tensor) -> Tensor:
    """(N, S, T) log-probabilities of all tokens of all responses; 0 beyond the end."""
    return logits_NXV.log_softmax(-1)[:, _NODE_ST, _TOKEN_ST] * _MASK_ST


class Responses(NamedTuple):
    """Random policies with every response listed, the policies some updates older that sampled, and rewards."""

    logits: Tensor  # (N, X, V)
    old: Tensor  # (N, X, V)
    reward: Tensor  # (N, S), 0 or 1

    def standardised(self, logits_NXV: Tensor) -> Tensor:
        """Equation 9 with mean and standard deviation under a policy, (N, S): the limit of a large group."""
        mean_N1 = (logp(logits_NXV).sum(-1).exp() * self.reward).sum(-1, keepdim=True)
        return (self.reward - mean_N1) / (mean_N1 * (1 - mean_N1)).sqrt()  # rewards are 0 or 1

    def weighted(self, weight_NST: Tensor) -> Tensor:
        """Sum over tokens of weight times grad log pi_t, (N, X, V)."""
        return gradient(lambda x: (weight_NST * logp(x)).sum((1, 2)), self.logits)

    @property
    def ratios(self) -> Tensor:
        """pi/pi_old of the tokens, (N, S, T); 1 beyond the end."""
        return (logp(self.logits) - logp(self.old)).exp()

    @property
    def mean_ratio(self) -> Tensor:
        """The geometric mean over a response, (N, S, T)."""
        return (self.ratios.prod(-1) ** (1 / _LENGTH_S))[..., None].expand_as(self.ratios)

    @property
    def expected(self) -> Tensor:
        """(N, S, 1) A under the old policy, times the old policy's probability: a sum over S is E[A ...]."""
        return (logp(self.old).sum(-1).exp() * self.standardised(self.old))[..., None]

    def slope(self, advantage_NS: Tensor) -> Tensor:
        """Gradient of J = E[A] with A held fixed."""
        return gradient(lambda x: (logp(x).sum(-1).exp() * advantage_NS).sum(-1), self.logits)


@cache
def responses() -> Responses:
    """The same ones every time."""
    draw = np.random.default_rng(7)
    logits_NXV = 1.5 * draw.normal(size=(POLICIES, len(_PREFIXES), WORDS))
    away_N11 = draw.uniform(0.05, 0.5, size=(POLICIES, 1, 1))  # from hardly to clearly another policy
    reward_NS = draw.integers(0, 2, size=(POLICIES, len(_RESPONSES))).astype(float)
    reward_NS[:, :2] = 0.0, 1.0  # at least one wrong and one right response
    old_NXV = logits_NXV + away_N11 * draw.normal(size=logits_NXV.shape)
    return Responses(*map(torch.from_numpy, (logits_NXV, old_NXV, reward_NS)))


def equation_3_in_responses(w: Responses) -> Tensor:
    """Equation 3 where a state is a prefix and A(s, a) the mean advantage of the responses that go on with a.

    The gradient of J = E[A(y)] has the probability of reaching s as a factor, which Equation 3 lacks.
    """
    advantage_NS, p_NS = w.standardised(w.logits), logp(w.logits).sum(-1).exp()
    through_SXV = torch.zeros(len(_RESPONSES), len(_PREFIXES), WORDS, dtype=p_NS.dtype)
    through_SXV[torch.arange(len(_RESPONSES))[:, None], _NODE_ST, _TOKEN_ST] = 1.0
    mass_NXV = torch.einsum("ns,sxv->nxv", p_NS, through_SXV)
    action_NXV = torch.einsum("ns,sxv->nxv", p_NS * advantage_NS, through_SXV) / mass_NXV
    return equal(policy_slope(w.logits.log_softmax(-1), action_NXV), w.slope(advantage_NS))


def appendix_b_steps(w: Responses) -> Tensor:
    """Appendix B from the score function to the last expression, A_old held fixed: all are the gradient of J."""
    advantage_NS1, token_NST = w.standardised(w.old)[..., None], logp(w.logits).exp()
    p_NS1, old_NS1 = (logp(x).sum(-1, keepdim=True).exp() for x in (w.logits, w.old))
    every_NST = torch.ones_like(token_NST)
    others_NST = p_NS1 / token_NST  # the product rule, token by token: the other tokens' probabilities
    steps = (
        w.weighted(p_NS1 * advantage_NS1 * every_NST),
        w.weighted(old_NS1 * (p_NS1 / old_NS1) * advantage_NS1 * every_NST),
        gradient(lambda x: (old_NS1 * advantage_NS1 / old_NS1 * others_NST * logp(x).exp()).sum((1, 2)), w.logits),
        w.weighted(w.expected * w.ratios.prod(-1, keepdim=True) * every_NST),
    )
    true_NXV = w.slope(w.standardised(w.old))
    return torch.stack([equal(step_NXV, true_NXV) for step_NXV in steps]).all(0)


def appendix_b_omission(w: Responses) -> Tensor:
    """The gradient of GRPO's surrogate is the last expression of Appendix B without the other tokens' ratios."""

    def surrogate(logits_NXV: Tensor) -> Tensor:  # no clip, no 1/|y|: those are about aggregation
        return (w.expected * (logp(logits_NXV) - logp(w.old)).exp() * _MASK_ST).sum((1, 2))

    return equal(w.weighted(w.expected * w.ratios), gradient(surrogate, w.logits))


def line_21(w: Responses) -> Tensor:
    """Algorithm 1: is line 20 with line 21 the gradient of line 18, for groups of `SAMPLES` responses of unequal length
    with random advantages, no clip and no KL?

    w_i depends on every token of its response, and L_{i,t} with it; line 21 keeps the own token's path, 1/|y_i| of the
    whole. Summed over a response the factor |y_i| is missing, and what is left is GSPO's gradient times G/M.
    """
    draw = np.random.default_rng(8)
    edge_NGS = torch.from_numpy(draw.uniform(size=(POLICIES, SAMPLES, 1)))
    chosen_NG = (logp(w.old).sum(-1).exp().cumsum(-1)[:, None] < edge_NGS).sum(-1).clamp(max=len(_RESPONSES) - 1)
    # with equal lengths a factor |y_i| would be one factor for the whole gradient
    chosen_NG[:, 0], chosen_NG[:, 1] = _LENGTH_S.argmin(), _LENGTH_S.argmax()
    advantage_NG = torch.from_numpy(draw.normal(size=chosen_NG.shape))
    length_NG = _LENGTH_S[chosen_NG]
    tokens_N1 = length_NG.sum(-1, keepdim=True)

    def weight(logits_NXV: Tensor) -> Tensor:  # lines 9 to 13
        return ((logp(logits_NXV) - logp(w.old)).sum(-1).gather(1, chosen_NG) / length_NG).exp()

    # line 21: A w / (|y| pi_t) grad pi_t = A w / |y| grad log pi_t; line 20: its sum over tokens and responses over M
    factor_NG = advantage_NG * weight(w.logits) / length_NG / tokens_N1
    printed_NXV = gradient(lambda x: (factor_NG * logp(x).sum(-1).gather(1, chosen_NG)).sum(-1), w.logits)
    # L_{i,t} is the same for every token of a response
    true_NXV = gradient(lambda x: (weight(x) * advantage_NG * length_NG / tokens_N1).sum(-1), w.logits)
    return equal(printed_NXV, true_NXV)


# What a check looks at, and what that is called.
POPULATIONS: dict[str, Callable[[], Any]] = {
    f"random softmax policies over {ACTIONS} actions": policies,
    f"random softmax policies over {ACTIONS} actions, one of them above {CERTAIN:g}": lambda: policies(CERTAIN),
    f"random policies over {WORDS} words and up to {LENGTH} tokens, every response listed": responses,
}
ANY, DECIDED, LISTED = POPULATIONS
CHECKS: dict[str, tuple[str, Callable[[Any], Tensor]]] = {
    # Equation 1 as printed, dH/dphi_i = pi_i (log pi_i + H), against the derivative by one logit: are the signs equal?
    "entropy_gradient": (ANY, lambda x: (-entropy_slope(x)).sign()[:, 0] == gradient(entropy, x).sign()[:, 0]),
    # dJ/dphi_i = pi_i (A_i - E[A]) for J = E[A] with A held fixed
    "equation_3": (ANY, lambda x: equal(policy_slope(x, A := normal(4, x)), gradient(lambda y: mean(y, A), x))),
    "inner_product": (ANY, inner_product),
    "tilting": (ANY, tilting),
    "equation_8": (ANY, equation_8),
    "ppo_penalty": (ANY, ppo_penalty),
    "covariance": (ANY, covariance),
    # Lemma 3.2 for a sampled action, all cases together
    "entropy_signs": (ANY, lambda x: lemma_holds(x, *sampled_action(x))),
    # Where its premise holds, the inner product has the sign of the lemma. It never has: the inner product is
    # A (Cov_pi(pi, log pi) - pi(a) (log pi(a) + H)), and that covariance is positive. One action of each policy, drawn
    # among those for which the premise holds.
    "premise_gives_sign": (
        ANY, lambda x: lemma_holds(x, *sampled_action(x.masked_fill(~premise(x), -torch.inf).log_softmax(-1))),
    ),
    # case 1: the rarest action, A < 0. The proof also lets H go to 0, which does not follow.
    "suboptimal_rare": (ANY, lambda x: lemma_holds(x, x.argmin(-1), -torch.ones(len(x)))),
    "suboptimal_rare_premise": (ANY, lambda x: premise(x)[torch.arange(len(x)), x.argmin(-1)]),
    # case 2: an action with pi > `CERTAIN`, A > 0. Its premise: log pi + H = (1 - pi) log pi < 0.
    "optimal_probable": (DECIDED, lambda x: lemma_holds(x, x.argmax(-1), torch.ones(len(x)))),
    "optimal_probable_premise": (DECIDED, lambda x: premise(x)[torch.arange(len(x)), x.argmax(-1)]),
    "equation_3_in_responses": (LISTED, equation_3_in_responses),
    "appendix_b_steps": (LISTED, appendix_b_steps),
    # The third equality of Appendix B: A standardised under the policy is replaced with A under the old one. With the
    # A of Equation 9 the first equality fails as well: J = E[A] is 0 for every policy.
    "appendix_b_advantage": (LISTED, lambda w: equal(*(w.slope(w.standardised(x)) for x in (w.old, w.logits)))),
    "appendix_b_omission": (LISTED, appendix_b_omission),
    # Does TEPO's weight, the geometric mean of the ratios, give the gradient that Appendix B derives?
    "appendix_b_weight": (
        LISTED, lambda w: equal(w.weighted(w.expected * w.mean_ratio), w.slope(w.standardised(w.old))),
    ),
    "line_21": (LISTED, line_21),
}  # fmt: skip

# The kept counts, which the claims are judged on.

KEPT = {row["check"]: row for row in read_csv(FORMULAS, "counts of the formulas", ())}
OF_SAMPLERS = {"sequence_weight_has_less_bias", "sequence_weight_has_less_noise", "tepo_has_less_bias"}


def test_the_kept_counts_are_those_of_the_formulas() -> None:
    assert KEPT.keys() - OF_SAMPLERS == CHECKS.keys()
    for name, (population, check) in CHECKS.items():
        holds_N = check(POPULATIONS[population]())
        row = KEPT[name]
        found = int(holds_N.sum()), len(holds_N), population
        assert (int(row["holds"]), int(row["policies"]), row["drawn"]) == found, name
