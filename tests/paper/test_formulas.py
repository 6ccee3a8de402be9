"""The paper's formulas on random softmax policies: on how many of them does each hold? (`paper/formulas.csv`)

Two kinds of policy, both small enough for exact sums in float64:

- one state: logits phi ~ N(0, s^2) over `ACTIONS` actions, s uniform on [0.5, 6]: from nearly uniform to nearly
  decided. dH/dphi = -pi (log pi + H). One sampled action a with advantage A gives the policy gradient A (e_a - pi).
- responses of up to `LENGTH` tokens over `WORDS` words, the last of which ends a response: every response is listed.

Names of axes: N policies, A actions, S responses, T tokens, X prefixes, V words, P = X V parameters, G a group.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from core.files import read_csv
from methods import catalog
from methods.batch import Batch
from paper.evidence import FORMULAS

POLICIES = 2000  # with all of them right, Clopper-Pearson's lower end is .998: above the 99 % that claims test against
ACTIONS = 50
STEP = 1e-5  # of a small update: small against the logits, large against rounding in float64
TINY = 1e-30  # of complex steps, f'(x) = Im f(x + i h) / h: no difference of near numbers, exact to rounding
EQUAL = 1e-9  # relative distance below which two sides are equal: far above rounding, far below any other distance
CERTAIN = 0.9  # "pi -> 1" in the proof of Lemma 3.2
WORDS, LENGTH = 3, 3
SAMPLES = 4  # responses in a group
Array = NDArray[np.float64]
Holds = NDArray[np.bool_]


# ---- One state ----


def policies(least: float = 0.0) -> Array:
    """(N, A) log-probabilities, the same ones every time; least: of the largest probability of each."""
    draw = np.random.default_rng(0)
    kept: list[Array] = []
    while sum(map(len, kept)) < POLICIES:
        scale_N1 = draw.uniform(0.5, 6.0, size=(POLICIES, 1))
        log_NA = _log_softmax(scale_N1 * draw.normal(size=(POLICIES, ACTIONS)))
        kept.append(log_NA[log_NA.max(-1) >= np.log(least)] if least else log_NA)
    return np.concatenate(kept)[:POLICIES]


def entropy_gradient(log_NA: Array) -> Holds:
    """Equation 1 as printed, dH/dphi_i = pi_i (log pi_i + H), against the derivative by one logit: signs (N,) equal?"""
    shift = np.zeros(log_NA.shape[1])
    shift[0] = TINY
    true_N = _entropy(_log_softmax(log_NA + 1j * shift)).imag / TINY
    return np.sign(-_entropy_slope(log_NA)[:, 0]) == np.sign(true_N)


def equation_3(log_NA: Array) -> Holds:
    """dJ/dphi_i = pi_i (A_i - E[A]) for J = E[A] with A held fixed, along a random direction of the logits."""
    draw = np.random.default_rng(4)
    advantage_NA, direction_NA = draw.normal(size=(2, *log_NA.shape))
    printed_NA = _policy_slope(log_NA, advantage_NA)
    stepped_NA = np.exp(_log_softmax(log_NA + 1j * TINY * direction_NA))
    true_N = (stepped_NA * advantage_NA).sum(-1).imag / TINY
    scale_N = _norm(printed_NA) * _norm(direction_NA)
    return abs((printed_NA * direction_NA).sum(-1) - true_N) / scale_N < EQUAL


def inner_product(log_NA: Array) -> Holds:
    """Section 3.2.2: sum_i pi_i^2 (log pi_i + H) A_i has the sign of <grad H, grad J>; A ~ N(0, 1) for every action.

    Substituting Equations 1 and 3 gives A_i - E[A] in the place of A_i; Equation 1 lacks a minus.
    """
    advantage_NA = np.random.default_rng(5).normal(size=log_NA.shape)
    slope_NA, p_NA = _entropy_slope(log_NA), np.exp(log_NA)
    true_N = (slope_NA * _policy_slope(log_NA, advantage_NA)).sum(-1)
    printed_N = (-slope_NA * p_NA * advantage_NA).sum(-1)
    return np.sign(printed_N) == np.sign(true_N)


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


def _target(log_NA: Array) -> tuple[Array, Array, Array]:
    """A (N, A), beta (N, 1) and log pi* (N, A) of Equation 6."""
    draw = np.random.default_rng(6)
    advantage_NA, beta_N1 = draw.normal(size=log_NA.shape), draw.uniform(0.1, 2.0, size=(len(log_NA), 1))
    return advantage_NA, beta_N1, _log_softmax(log_NA + advantage_NA / beta_N1)


def equation_8(log_NA: Array) -> Holds:
    """KL(p || pi*) = (beta KL(p || pi_k) - E_p[A]) / beta, but for log Z, at another random policy p."""
    advantage_NA, beta_N1, target_NA = _target(log_NA)
    other_NA = log_NA[::-1]
    p_NA = np.exp(other_NA)
    divergence_N = (p_NA * (other_NA - target_NA)).sum(-1)
    printed_N = (p_NA * (other_NA - log_NA - advantage_NA / beta_N1)).sum(-1)
    log_z_N = np.log((np.exp(log_NA + advantage_NA / beta_N1)).sum(-1))
    return abs(divergence_N - printed_N - log_z_N) / np.maximum(1.0, abs(divergence_N)) < EQUAL


def ppo_penalty(log_NA: Array) -> Holds:
    """Is pi* also stationary under PPO's penalised objective, E_p[A] - beta KL(pi_k || p)?"""
    advantage_NA, beta_N1, target_NA = _target(log_NA)
    slope_NA = _policy_slope(target_NA, advantage_NA)
    slope_NA -= beta_N1 * (np.exp(target_NA) - np.exp(log_NA))
    return _norm(slope_NA) / _norm(_policy_slope(target_NA, advantage_NA)) < EQUAL


def _sampled_action(log_NA: Array) -> tuple[NDArray[np.intp], Array]:
    """One action of each policy, as sampling draws it, and its advantage, -1 or 1."""
    draw = np.random.default_rng(2)
    p_NA = np.exp(log_NA)
    action_N = (p_NA.cumsum(-1) < draw.uniform(size=(len(p_NA), 1))).sum(-1).clip(max=p_NA.shape[1] - 1)
    return action_N, draw.choice([-1.0, 1.0], size=len(p_NA))


def lemma_holds(log_NA: Array, action_N: NDArray[np.intp], advantage_N: Array) -> Holds:
    """Lemma 3.2: <grad H, grad J> has the sign opposite to A, J being one sampled action's."""
    step_NA = advantage_N[:, None] * (np.eye(log_NA.shape[1])[action_N] - np.exp(log_NA))
    return np.sign((_entropy_slope(log_NA) * step_NA).sum(-1)) == -np.sign(advantage_N)


def premise_holds(log_NA: Array, action_N: NDArray[np.intp]) -> Holds:
    """log pi(a) + H < 0: what both cases of the proof of Lemma 3.2 derive the sign from."""
    return (log_NA[np.arange(len(log_NA)), action_N] + _entropy(log_NA)) < 0


def premise_gives_sign(log_NA: Array) -> Holds:
    """Where log pi(a) + H < 0, the inner product has the sign of the lemma.

    It never has: the inner product is A (Cov_pi(pi, log pi) - pi(a) (log pi(a) + H)), and that covariance is positive.
    One action of each policy, drawn among those for which the premise holds.
    """
    p_NA = np.where(log_NA + _entropy(log_NA)[:, None] < 0, np.exp(log_NA), 0.0)
    action_N, advantage_N = _sampled_action(
        np.log(p_NA / p_NA.sum(-1, keepdims=True), where=p_NA > 0, out=np.full_like(p_NA, -np.inf))
    )
    return lemma_holds(log_NA, action_N, advantage_N)


def covariance(log_NA: Array) -> Holds:
    """Appendix C.5: a small natural-gradient step lowers H where Cov(log pi, A) > 0 and raises it where it is < 0."""
    advantage_NA = np.random.default_rng(3).normal(size=log_NA.shape)
    p_NA = np.exp(log_NA)
    centred_NA = log_NA - (p_NA * log_NA).sum(-1, keepdims=True)
    covariance_N = (p_NA * centred_NA * advantage_NA).sum(-1)
    change_N = _entropy(_log_softmax(log_NA + STEP * advantage_NA)) - _entropy(log_NA)
    return np.sign(change_N) == -np.sign(covariance_N)


# ---- Responses of several tokens -------------------------------------------------------------------------------------

_PREFIXES = [p for length in range(LENGTH) for p in product(range(WORDS - 1), repeat=length)]
_RESPONSES = [
    (*prefix, word)
    for prefix in _PREFIXES
    for word in range(WORDS)
    if word == WORDS - 1 or len(prefix) == LENGTH - 1  # the last word ends a response, the longest prefix any does
]


_NODE_ST = np.array([[_PREFIXES.index(r[: min(t, len(r) - 1)]) for t in range(LENGTH)] for r in _RESPONSES])
_TOKEN_ST = np.array([[*r, *[0] * (LENGTH - len(r))] for r in _RESPONSES])


@dataclass(frozen=True, eq=False)
class Responses:
    """Random policies with every response listed, the policies some updates older that sampled, and rewards."""

    logits_NXV: Array  # noqa: N815
    old_NXV: Array  # noqa: N815
    reward_NS: Array  # noqa: N815 - 0 or 1
    length_S: Array  # noqa: N815
    mask_ST: Array  # noqa: N815 - 1 for a token of the response

    def logp_NST(self, logits_NXV: Any) -> Any:  # noqa: N802
        """Log-probabilities of all tokens of all responses; 0 beyond the end. Complex for complex logits."""
        return _log_softmax(logits_NXV)[:, _NODE_ST, _TOKEN_ST] * self.mask_ST

    @cached_property
    def old_logp_NST(self) -> Array:  # noqa: N802
        return self.logp_NST(self.old_NXV)

    @cached_property
    def slope_NSTP(self) -> Array:  # noqa: N802
        """Derivatives of the tokens' log-probabilities by the logits, from the softmax rule of Section 2.1."""
        p_NXV = np.exp(_log_softmax(self.logits_NXV))
        rule_NSTXV = np.eye(WORDS)[_TOKEN_ST][None, :, :, None, :] - p_NXV[:, None, None]
        here_STX = np.eye(len(_PREFIXES))[_NODE_ST] * self.mask_ST[..., None]
        return (here_STX[None, ..., None] * rule_NSTXV).reshape(*self.old_logp_NST.shape, -1)

    def standardised_NS(self, logits_NXV: Any) -> Any:  # noqa: N802
        """Equation 9 with mean and standard deviation under a policy: the limit of a large group."""
        p_NS = np.exp(self.logp_NST(logits_NXV).sum(-1))
        mean_N1 = (p_NS * self.reward_NS).sum(-1, keepdims=True)
        return (self.reward_NS - mean_N1) / np.sqrt(mean_N1 * (1 - mean_N1))  # rewards are 0 or 1

    def derivative_NP(self, objective: Callable[[Any], Any]) -> Array:  # noqa: N802
        """Of an objective (N,) of the logits, by a complex step for each parameter."""
        columns = []
        for step_XV in TINY * np.eye(self.logits_NXV[0].size).reshape(-1, *self.logits_NXV.shape[1:]):
            columns.append(objective(self.logits_NXV + 1j * step_XV).imag / TINY)
        return np.stack(columns, -1)


@cache
def responses() -> Responses:
    """The same ones every time."""
    draw = np.random.default_rng(7)
    logits_NXV = 1.5 * draw.normal(size=(POLICIES, len(_PREFIXES), WORDS))
    away_N11 = draw.uniform(0.05, 0.5, size=(POLICIES, 1, 1))  # from hardly to clearly another policy
    reward_NS = draw.integers(0, 2, size=(POLICIES, len(_RESPONSES))).astype(float)
    reward_NS[:, :2] = 0.0, 1.0  # at least one wrong and one right response
    length_S = np.array([len(r) for r in _RESPONSES], dtype=float)
    return Responses(
        logits_NXV=logits_NXV,
        old_NXV=logits_NXV + away_N11 * draw.normal(size=logits_NXV.shape),
        reward_NS=reward_NS,
        length_S=length_S,
        mask_ST=(np.arange(LENGTH) < length_S[:, None]).astype(float),
    )


def _gradient(w: Responses, advantage_NS: Array) -> Array:
    """Of J = E[A], (N, P), with A held fixed."""
    return w.derivative_NP(lambda x: (np.exp(w.logp_NST(x).sum(-1)) * advantage_NS).sum(-1))


def equation_3_in_responses(w: Responses) -> Holds:
    """Equation 3 where a state is a prefix and A(s, a) the mean advantage of the responses that go on with a.

    The gradient of J = E[A(y)] has the probability of reaching s as a factor, which Equation 3 lacks.
    """
    advantage_NS = w.standardised_NS(w.logits_NXV)
    p_NS = np.exp(w.logp_NST(w.logits_NXV).sum(-1))
    policy_NXV = np.exp(_log_softmax(w.logits_NXV))
    through_SXV = (
        np.eye(len(_PREFIXES))[_NODE_ST][..., None] * np.eye(WORDS)[_TOKEN_ST][:, :, None] * w.mask_ST[..., None, None]
    ).sum(1)
    mass_NXV = np.einsum("ns,sxv->nxv", p_NS, through_SXV)
    action_NXV = np.einsum("ns,sxv->nxv", p_NS * advantage_NS, through_SXV) / mass_NXV
    printed_NXV = policy_NXV * (action_NXV - (policy_NXV * action_NXV).sum(-1, keepdims=True))
    return _apart(printed_NXV.reshape(len(p_NS), -1), _gradient(w, advantage_NS)) < EQUAL


def _with_weight(w: Responses, weight_NST: Array) -> Array:
    """E under the old policy of A sum_t weight_t grad log pi_t, (N, P), with the old policy's A."""
    p_NS = np.exp(w.old_logp_NST.sum(-1)) * w.standardised_NS(w.old_NXV)
    return np.einsum("ns,nst,nstp->np", p_NS, weight_NST, w.slope_NSTP)


def _ratios(w: Responses) -> Array:
    """pi/pi_old of the tokens, (N, S, T); 1 beyond the end."""
    return np.exp(w.logp_NST(w.logits_NXV) - w.old_logp_NST)


def appendix_b_steps(w: Responses) -> Holds:
    """Appendix B from the score function to the last expression, A_old held fixed: all are the gradient of J."""
    true_NP, ratio_NST = _gradient(w, w.standardised_NS(w.old_NXV)), _ratios(w)
    advantage_NS = w.standardised_NS(w.old_NXV)
    p_NS, old_NS = (np.exp(x.sum(-1)) for x in (w.logp_NST(w.logits_NXV), w.old_logp_NST))
    score_NSP = w.slope_NSTP.sum(2)
    # the product rule, token by token: the other tokens' probabilities times this one's gradient
    token_NST = np.exp(w.logp_NST(w.logits_NXV))
    product_NSP = np.einsum("nst,nstp->nsp", p_NS[..., None] / token_NST, token_NST[..., None] * w.slope_NSTP)
    steps = (
        np.einsum("ns,nsp->np", p_NS * advantage_NS, score_NSP),
        np.einsum("ns,nsp->np", old_NS * (p_NS / old_NS) * advantage_NS, score_NSP),
        np.einsum("ns,nsp->np", old_NS * advantage_NS / old_NS, product_NSP),
        _with_weight(w, np.broadcast_to(ratio_NST.prod(-1, keepdims=True), ratio_NST.shape)),
    )
    return np.max([_apart(step_NP, true_NP) for step_NP in steps], axis=0) < EQUAL


def appendix_b_advantage(w: Responses) -> Holds:
    """The third equality of Appendix B: A standardised under the policy is replaced with A under the old one.

    With the A of Equation 9 the first equality fails as well: J = E[A] is 0 for every policy.
    """
    p_NS, score_NSP = np.exp(w.logp_NST(w.logits_NXV).sum(-1)), w.slope_NSTP.sum(2)
    own_NP, old_NP = (
        np.einsum("ns,nsp->np", p_NS * w.standardised_NS(logits_NXV), score_NSP)
        for logits_NXV in (w.logits_NXV, w.old_NXV)
    )
    return _apart(old_NP, own_NP) < EQUAL


def appendix_b_omission(w: Responses) -> Holds:
    """The gradient of GRPO's surrogate is the last expression of Appendix B without the other tokens' ratios."""
    ratio_NST = _ratios(w)
    p_NS = np.exp(w.old_logp_NST.sum(-1)) * w.standardised_NS(w.old_NXV)

    def surrogate(logits_NXV: Any) -> Any:  # no clip, no 1/|y|: those are about aggregation
        ratio = np.exp(w.logp_NST(logits_NXV) - w.old_logp_NST) * w.mask_ST
        return np.einsum("ns,nst->n", p_NS, ratio)

    return _apart(_with_weight(w, ratio_NST), w.derivative_NP(surrogate)) < EQUAL


def appendix_b_weight(w: Responses) -> Holds:
    """Does TEPO's weight, the geometric mean of the ratios, give the gradient that Appendix B derives?"""
    true_NP, ratio_NST = _gradient(w, w.standardised_NS(w.old_NXV)), _ratios(w)
    product_NS = ratio_NST.prod(-1)
    mean_NST = np.broadcast_to((product_NS ** (1 / w.length_S))[..., None], ratio_NST.shape)
    return _apart(_with_weight(w, mean_NST), true_NP) < EQUAL


class Algorithm1(NamedTuple):
    """Gradients (N, P) of one group of responses for each policy."""

    printed: Array  # line 20 with line 21
    true: Array  # of the objective of line 18
    gspo: Array  # of sum_i w_i A_i / G
    responses: NDArray[np.intp]  # (N, G)
    advantage: Array  # (N, G)


def algorithm_1(w: Responses) -> Algorithm1:
    """Groups of `SAMPLES` responses of unequal length with random advantages; no clip and no KL, as printed."""
    draw = np.random.default_rng(8)
    p_NS = np.exp(w.old_logp_NST.sum(-1))
    below_NGS = p_NS.cumsum(-1)[:, None] < draw.uniform(size=(len(p_NS), SAMPLES, 1))
    chosen_NG = below_NGS.sum(-1).clip(max=p_NS.shape[1] - 1)
    # with equal lengths a factor |y_i| would be one factor for the whole gradient
    chosen_NG[:, 0], chosen_NG[:, 1] = w.length_S.argmin(), w.length_S.argmax()
    advantage_NG = draw.normal(size=chosen_NG.shape)
    length_NG = w.length_S[chosen_NG]
    tokens_N1 = length_NG.sum(-1, keepdims=True)
    pick = np.arange(len(p_NS))[:, None], chosen_NG

    def weight(logits_NXV: Any) -> Any:  # lines 9 to 13
        return np.exp((w.logp_NST(logits_NXV) - w.old_logp_NST).sum(-1)[pick] / length_NG)

    def line_18(logits_NXV: Any) -> Any:  # L_{i,t} is the same for every token of a response
        return (weight(logits_NXV) * advantage_NG * length_NG / tokens_N1).sum(-1)

    def gspo(logits_NXV: Any) -> Any:
        return (weight(logits_NXV) * advantage_NG).mean(-1)

    # line 21: A w / (|y| pi_t) grad pi_t = A w / |y| grad log pi_t; line 20: its sum over tokens and responses over M
    factor_NG = advantage_NG * weight(w.logits_NXV) / length_NG / tokens_N1
    printed_NP = np.einsum("ng,ngp->np", factor_NG, w.slope_NSTP.sum(2)[pick])
    true_NP, gspo_NP = w.derivative_NP(line_18), w.derivative_NP(gspo)
    return Algorithm1(printed_NP, true_NP, gspo_NP, chosen_NG, advantage_NG)


def line_21(w: Responses) -> Holds:
    """Algorithm 1: is line 20 with line 21 the gradient of line 18?

    w_i depends on every token of its response, and L_{i,t} with it; line 21 keeps the own token's path, 1/|y_i| of the
    whole. Summed over a response the factor |y_i| is missing, and what is left is GSPO's gradient times G/M.
    """
    seen = algorithm_1(w)
    return _apart(seen.printed, seen.true) < EQUAL


# ---- Counts ----------------------------------------------------------------------------------------------------------

# What a check looks at, and what that is called.
POPULATIONS: dict[str, Callable[[], Any]] = {
    f"random softmax policies over {ACTIONS} actions": policies,
    f"random softmax policies over {ACTIONS} actions, one of them above {CERTAIN:g}": lambda: policies(CERTAIN),
    f"random policies over {WORDS} words and up to {LENGTH} tokens, every response listed": responses,
}
ANY, DECIDED, LISTED = POPULATIONS
_ON: dict[str, tuple[Callable[[Any], Holds], ...]] = {
    ANY: (
        entropy_gradient, equation_3, inner_product, tilting, equation_8, ppo_penalty, premise_gives_sign, covariance,
    ),
    LISTED: (
        equation_3_in_responses, appendix_b_steps, appendix_b_advantage, appendix_b_omission, appendix_b_weight,
        line_21,
    ),
}  # fmt: skip
CHECKS: dict[str, tuple[Callable[[Any], Holds], str]] = {
    check.__name__: (check, population) for population, checks in _ON.items() for check in checks
} | {
    # Lemma 3.2 for a sampled action, all cases together
    "entropy_signs": (lambda log_NA: lemma_holds(log_NA, *_sampled_action(log_NA)), ANY),
    # case 1: the rarest action, A < 0. The proof also lets H go to 0, which does not follow.
    "suboptimal_rare": (lambda log_NA: lemma_holds(log_NA, log_NA.argmin(-1), np.full(len(log_NA), -1.0)), ANY),
    "suboptimal_rare_premise": (lambda log_NA: premise_holds(log_NA, log_NA.argmin(-1)), ANY),
    # case 2: an action with pi > `CERTAIN`, A > 0. Its premise: log pi + H = (1 - pi) log pi < 0.
    "optimal_probable": (lambda log_NA: lemma_holds(log_NA, log_NA.argmax(-1), np.ones(len(log_NA))), DECIDED),
    "optimal_probable_premise": (lambda log_NA: premise_holds(log_NA, log_NA.argmax(-1)), DECIDED),
}


# ---- Softmax ---------------------------------------------------------------------------------------------------------


def _log_softmax(x: Any) -> Any:
    """Over the last axis; complex logits keep their imaginary parts."""
    shifted = x - x.real.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _entropy(log_NA: Any) -> Any:
    return -(np.exp(log_NA) * log_NA).sum(-1)


def _entropy_slope(log_NA: Array) -> Array:
    """dH/dphi = -pi (log pi + H)."""
    return -np.exp(log_NA) * (log_NA + _entropy(log_NA)[:, None])


def _policy_slope(log_NA: Array, advantage_NA: Array) -> Array:
    """dJ/dphi = pi (A - E[A])."""
    p_NA = np.exp(log_NA)
    return p_NA * (advantage_NA - (p_NA * advantage_NA).sum(-1, keepdims=True))


def _norm(x_NP: Array) -> Array:
    return np.sqrt((x_NP**2).sum(-1))


def _apart(x_NP: Array, true_NP: Array) -> Array:
    """Distance in units of the length of the second, (N,)."""
    return _norm(x_NP - true_NP) / _norm(true_NP)


# ---- Tests: the kept counts, which the claims are judged on, and the catalog's own losses ----------------------------

KEPT = {row["check"]: row for row in read_csv(FORMULAS, "counts of the formulas", ())}
OF_SAMPLERS = {"sequence_weight_has_less_bias", "sequence_weight_has_less_noise", "tepo_has_less_bias"}


def test_the_kept_counts_are_those_of_the_formulas() -> None:
    assert KEPT.keys() - OF_SAMPLERS == CHECKS.keys()
    for name, (check, population) in CHECKS.items():
        holds_N = check(POPULATIONS[population]())
        found = int(holds_N.sum()), len(holds_N), population
        row = KEPT[name]
        assert (int(row["holds"]), int(row["policies"]), row["drawn"]) == found, name


@pytest.mark.parametrize(
    ("key", "side"),
    [
        ("tepo_nokl+clip-form=none+gradient=alg1_line21", "printed"),
        ("tepo_nokl+clip-form=none", "true"),
        ("gspo+clip-form=none", "gspo"),
    ],
)
def test_algorithm_1_by_the_catalogs_losses(key: str, side: str) -> None:
    w = responses()
    seen = algorithm_1(w)
    for n in range(8):
        new = torch.tensor(w.logits_NXV[n], requires_grad=True)
        chosen, mask_ST = seen.responses[n], torch.tensor(w.mask_ST)
        batch = Batch(
            logp=(new.log_softmax(-1)[_NODE_ST, _TOKEN_ST] * mask_ST)[chosen],
            old_logp=torch.tensor(w.old_logp_NST[n, chosen]),
            advantage=torch.tensor(seen.advantage[n]),
            mask=mask_ST[chosen] == 1,
            group=torch.zeros(len(chosen)).long(),
        )
        (gradient,) = torch.autograd.grad(-catalog.parse(key).loss(batch), new)
        assert getattr(seen, side)[n] == pytest.approx(gradient.numpy().ravel(), rel=1e-9, abs=1e-14)
