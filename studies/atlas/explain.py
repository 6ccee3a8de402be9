"""What a framework computed, in ingredients: the composition of this project's parts that gives the same gradient.

A loss is six words: the importance weight, how it is bounded, a second bound, the selection of tokens, the denominator,
and the KL term. The compositions of a family are tried from the fewest changes of our own method upwards, and the first
that gives the framework's value and gradient on every batch is what it computes. Each batch is there to show a
difference that others hide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from core.errors import BenchError
from methods import catalog
from methods.batch import Batch
from methods.method import Method
from methods.parts import Part, Parts, masks, penalties, ratios, reducers, surrogates

SAME = 1e-5  # of the largest entry: frameworks add up to 1e-6 to denominators, which is no other loss
Answer = tuple[float, torch.Tensor]
Fields = dict[str, NDArray]

# The batches that every framework gets: fields of `methods.batch.Batch` and rewards, float64, from fixed seeds.

GROUPS, PER_GROUP, WIDTH = 3, 4, 7


@dataclass(frozen=True)
class Kind:
    """What is special about a batch. Each sees a difference that another hides."""

    drift: float = 0.4  # standard deviation of the log-ratio
    lengths: str = "ragged"  # ragged, equal, or one (a token each)
    holes: bool = False  # the mask is False inside responses, as on the output of a tool
    equal_rewards: bool = False  # of the first group


KINDS = {
    "first": Kind(drift=0.0),  # on policy: no clip, no bound of a weight; denominators remain
    "even": Kind(lengths="equal"),  # equal lengths: token and sequence means agree, clips remain
    "ragged": Kind(),
    "far": Kind(drift=2.0),  # ratios beyond 3, where second clips and caps act
    "holes": Kind(holes=True),
    "one token": Kind(lengths="one"),
    "equal rewards": Kind(equal_rewards=True),
}


def batches() -> dict[str, Fields]:
    """By name. (B, T): logp, old_logp, ref_logp, entropy, mask; (B,): advantage (z-score, n - 1), reward, group."""
    return {name: _batch(seed, kind) for seed, (name, kind) in enumerate(KINDS.items())}


def _batch(seed: int, kind: Kind) -> Fields:
    draw = np.random.default_rng(seed)
    rows = GROUPS * PER_GROUP
    lengths = {
        "ragged": draw.integers(1, WIDTH, size=rows),
        "equal": np.full(rows, WIDTH - 1),
        "one": np.ones(rows, dtype=np.int64),
    }[kind.lengths]
    mask = np.arange(WIDTH) < lengths[:, None]
    if kind.holes:
        mask = draw.permuted(mask, axis=1)
    old_logp = -draw.gamma(1.0, 1.0, size=(rows, WIDTH)) - 0.01
    # at most 0: a probability stays one
    logp = np.minimum(old_logp + kind.drift * draw.normal(size=old_logp.shape), -1e-3)
    reward = draw.integers(0, 2, size=(GROUPS, PER_GROUP)).astype(float)
    reward[:, :2] = 0.0, 1.0  # every group has both
    if kind.equal_rewards:
        reward[0] = 1.0
    centred = reward - reward.mean(1, keepdims=True)
    advantage = centred / (reward.std(1, ddof=1, keepdims=True) + 1e-6)
    return {
        "logp": logp if kind.drift else old_logp.copy(),
        "old_logp": old_logp,
        "ref_logp": np.minimum(old_logp + 0.3 * draw.normal(size=old_logp.shape), -1e-3),
        "entropy": draw.gamma(2.0, 0.5, size=old_logp.shape),
        "mask": mask,
        "advantage": advantage.ravel(),
        "reward": reward.ravel(),
        "group": np.repeat(np.arange(GROUPS), PER_GROUP),
    }


def packed(named: dict[str, Fields]) -> dict[str, NDArray]:
    """As one npz holds them: `<batch>|<field>`."""
    return {f"{batch}|{field}": array for batch, fields in named.items() for field, array in fields.items()}


# The parts that compositions are made of.

REDUCERS: dict[str, Part] = {
    "tokens of the minibatch": reducers.token_mean(scope="minibatch"),
    "mean over sequences of token means": reducers.seq_mean_token_mean(),
    "sequences": reducers.seq_mean_token_sum(),
    "sequences x longest response": reducers.seq_mean_token_sum_norm(),
    "tokens of the prompt group": reducers.token_mean(scope="group"),
}
RATIOS: dict[str, Part] = {
    "token": ratios.token(),
    "sequence, geometric mean": ratios.sequence(),
    "sequence, product": ratios.product(most=20.0),
    "none": ratios.none(),
}
BOUNDS = ((0.2, 0.28), (0.2, 0.2), (3e-4, 4e-4), (None, None))
SECOND = (None, 3.0, 10.0)
WEIGHT_BOUNDS = ((None, 0.28), (None, -0.8), (0.2, 0.2), (0.0, 5.0), (1.0, 5.0), (None, 4.0), (0.1, 0.1), (None, None))
KL: dict[str, tuple[Part, ...]] = {
    "none": (),
    "k3 to the initial model, 0.04": (penalties.kl(beta=0.04, estimator="k3", anchor="ref", mask=masks.everywhere()),),
    "k3 times the ratio to the initial model, 0.04": (
        penalties.kl(beta=0.04, estimator="k3_is", anchor="ref", mask=masks.everywhere()),
    ),
    "k2 to the old policy, 0.05": (
        penalties.kl(beta=0.05, estimator="k2", anchor="old", mask=masks.everywhere()),
    ),
}  # fmt: skip
DPPO_TV = {
    f"total variation {low:g}/{high:g}": masks.within_tv(low=low, high=high)
    for low, high in ((0.15, 0.15), (0.2, 0.2), (0.2, 0.28))
}
DPPO_KL = {
    f"KL {low:g}/{high:g}": masks.within_kl(low=low, high=high) for low, high in ((0.05, 0.05), (0.2, 0.2), (0.2, 0.28))
}


def _side(low: float | None, high: float | None) -> str:
    lower = "0" if low is None else f"{1 - low:g}"
    return "none" if low is None and high is None else f"[{lower}, {'inf' if high is None else f'{1 + high:g}'}]"


@dataclass(frozen=True)
class Ingredients:
    """What a loss is made of, in the order in which a difference is named."""

    weight: str
    bounds: str
    second: str
    tokens: str
    denominator: str
    kl: str
    times: str = "1"  # a constant factor
    other: str = ""  # what else is set otherwise, where an option of the catalog says it

    def changes(self, other: Ingredients) -> dict[str, tuple[str, str]]:
        """Ingredient -> (here, there) for every one that differs."""
        return {name: (mine, theirs) for name, mine in vars(self).items() if mine != (theirs := getattr(other, name))}


def _family(
    weights: tuple[str, ...], bounds: Mapping[str, Any], *, second: tuple[float | None, ...] = (None,),
    tokens: Mapping[str, Part | None] | None = None, kl: tuple[str, ...] = ("none",),
) -> Iterator[tuple[Ingredients, Parts]]:  # fmt: skip
    """Every composition; a bound is a surrogate, or for a clip its low and high ends, which a second bound joins."""
    advantage = catalog.parse("grpo").parts.advantage  # not asked: the batch brings its advantages
    for weight, (word, bound), dual, (chosen, mask), (unit, reduce), term in product(
        weights, bounds.items(), second, (tokens or {"all": None}).items(), REDUCERS.items(), kl
    ):
        surrogate = bound if isinstance(bound, Part) else surrogates.clipped(low=bound[0], high=bound[1], dual=dual)
        parts = Parts(
            advantage=advantage,
            ratio=RATIOS[weight],
            surrogate=surrogate,
            mask=mask,
            penalties=KL[term],
            reduce=reduce,
        )
        yield Ingredients(weight, word, "none" if dual is None else f"{dual:g} where A < 0", chosen, unit, term), parts


def _weighted(bounds: tuple[tuple[float | None, float | None], ...]) -> dict[str, Part]:
    return {_side(low, high): surrogates.weighted(low=low, high=high) for low, high in bounds}


_CLIPS = {_side(low, high): (low, high) for low, high in BOUNDS}
_PPO = {"weights": ("token", "sequence, geometric mean"), "bounds": _CLIPS, "second": SECOND}
_CAPS = _weighted(((None, 19.0), (None, 2.0), (None, None), (0.2, 0.28)))
FAMILIES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("default", "GRPO", "DAPO", "BNPO", "Dr. GRPO", "GSPO", "LUSPO"), _PPO),
    "GRPO, KL 0.04": {**_PPO, "kl": tuple(KL)},
    "CISPO": {"weights": ("token",), "bounds": _weighted(WEIGHT_BOUNDS)},
    "SAPO": {
        "weights": ("token",),
        "bounds": {
            f"gate, tau {p:g}/{n:g}": surrogates.soft_gate(tau_positive=p, tau_negative=n)
            for p, n in ((1, 1.05), (1, 1))
        },
    },
    "GMPO": {
        "weights": ("token",),
        "bounds": {
            f"log ratio within {low:g}/{high:g}": surrogates.geometric_clipped(low=low, high=high)
            for low, high in ((0.4, 0.4), (0.2, 0.2), (0.2, 0.28))
        },
    },
    "GPG": {"weights": ("none",), "bounds": {"none": surrogates.log_likelihood()}},
    "DRO": {"weights": ("none",), "bounds": {"none": surrogates.log_likelihood()}, "kl": tuple(KL)},
    "VESPO": {
        "weights": ("sequence, product",),
        "bounds": {"gamma 2/3, 3/2": surrogates.gamma_weighted(k_pos=2.0, lambda_pos=3.0, k_neg=3.0, lambda_neg=2.0)},
    },
    **{
        name: {"weights": ("token",), "bounds": _CAPS | _CLIPS, "tokens": {**tokens, "all": None}, "second": SECOND[:2]}
        for name, tokens in (("DPPO-TV", DPPO_TV), ("DPPO-KL", DPPO_KL))
    },
}
# Where the catalog has the other form as an option: word -> key.
KEYS: dict[str, dict[str, str]] = {
    "KL-Cov": {f"coefficient {beta:g}": f"kl_cov+beta={beta:g}" for beta in (0.1, 0.2, 1.0)},
    "advantage: GPG": {"scaled by responses over rewarded ones": "gpg+gpg-scale=inverse-accuracy"},
    "advantage: GRPO": {
        "deviation over n": "grpo+adv-std=biased",
        "eps 1e-4": "grpo+adv-std=unbiased-1e-4",
    },
}
# The catalog's method behind a name.
OURS = {
    "default": "grpo", "GRPO": "grpo", "GRPO, KL 0.04": "grpo_2024", "DAPO": "grpo", "BNPO": "grpo",
    "Dr. GRPO": "dr_grpo", "GSPO": "gspo", "LUSPO": "tepo_seqsum", "CISPO": "cispo", "SAPO": "sapo", "GMPO": "gmpo",
    "GPG": "gpg", "DRO": "dro", "VESPO": "vespo", "DPPO-TV": "dppo_tv", "DPPO-KL": "dppo_kl", "Clip-Cov": "clip_cov",
    "KL-Cov": "kl_cov", "advantage: GRPO": "grpo", "advantage: RLOO": "rloo", "advantage: OPO": "opo",
    "advantage: GPG": "gpg", "advantage: REINFORCE++": "reinforce_pp",
    "advantage: REINFORCE++ baseline": "reinforce_pp_baseline", "advantage: MaxRL": "maxrl",
}  # fmt: skip


def answer(method: Method, fields: Fields) -> Answer:
    """Value and gradient (B, T) of a method's loss."""
    tensors = {name: torch.from_numpy(fields[name]) for name in fields if name != "reward"}
    leaf = tensors.pop("logp").clone().requires_grad_()
    batch = Batch(logp=leaf, old_entropy=tensors["entropy"], max_tokens=leaf.shape[1], **tensors)
    loss = method.loss(batch, generator=torch.Generator().manual_seed(0))
    (gradient,) = torch.autograd.grad(loss, leaf)
    return float(loss.detach()), gradient


def advantages(method: Method, fields: Fields) -> Answer:
    """Sum of advantage times log-prob, and its gradient: the advantage (B, T) on valid tokens."""
    mask = torch.from_numpy(fields["mask"])
    reward, group = torch.from_numpy(fields["reward"]), torch.from_numpy(fields["group"])
    spread = method.advantage(reward, group, mask.sum(1))[:, None] * mask
    return float((spread * torch.from_numpy(fields["logp"])).sum()), spread


def apart(a: Answer, b: Answer) -> float:
    """Largest difference of two gradients relative to the largest entry; 0 where both are 0."""
    size = float(torch.maximum(a[1].abs().max(), b[1].abs().max()))
    return float((a[1] - b[1]).abs().max()) / size if size else 0.0


def ours(name: str, fields: Fields) -> Answer:
    """Our loss, or advantage, under a framework's name."""
    method = catalog.parse(OURS[name])
    return advantages(method, fields) if name.startswith("advantage") else answer(method, fields)


def ingredients(
    name: str, theirs: Mapping[str, Answer], batches: Mapping[str, Fields], near: Ingredients | None
) -> Ingredients | None:
    """What gives these answers, by the fewest changes of `near`; None when nothing that is tried does.

    A composition whose gradients are theirs up to one constant factor counts, and the factor is named.
    """
    for word, key in KEYS.get(name, {}).items():
        call = advantages if name.startswith("advantage") else answer
        if all(apart(call(catalog.parse(key), batches[batch]), there) <= SAME for batch, there in theirs.items()):
            return Ingredients("", "", "", "", "", "", other=word)
    if name not in FAMILIES:
        return None
    candidates = list(_family(**FAMILIES[name]))
    if near is not None:
        candidates = sorted(candidates, key=lambda c: len(near.changes(c[0])))
    for found, parts in candidates:
        method = Method(key=name, title=name, source="", parts=parts)
        factor: float | None = None
        for batch, there in theirs.items():
            try:
                here = answer(method, batches[batch])
            except BenchError:  # a composition may overflow on the batch of large ratios
                break
            if factor is None:
                largest = int(here[1].abs().argmax())
                ratio = float(there[1].flatten()[largest] / here[1].flatten()[largest]) if here[1].abs().max() else 1.0
                factor = 1.0 if abs(ratio - 1) < SAME else ratio
            if apart((0.0, here[1] * factor), there) > SAME:
                break
        else:
            return found if factor in (None, 1.0) else Ingredients(**{**vars(found), "times": f"{factor:.6g}"})
    return None


def own_ingredients(name: str, batches: Mapping[str, Fields]) -> Ingredients | None:
    """What our own method of this name is made of."""
    return ingredients(name, {batch: ours(name, fields) for batch, fields in batches.items()}, batches, None)
