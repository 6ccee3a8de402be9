"""The batches that every framework gets: fields of `methods.batch.Batch` and rewards, float64, from fixed seeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Fields = dict[str, NDArray]

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
