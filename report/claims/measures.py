"""Figures of one learning curve that claims speak about and `report.convergence` has not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from report.curve import Curve


class Extra(NamedTuple):
    """of: a finished run's curve -> the figure, None where it is not defined. low, top: between which it lies."""

    of: Callable[[Curve], float | None]
    unit: str
    low: float = -math.inf
    top: float = math.inf


def sign_agreement(curve: Curve) -> float | None:
    """Mean over rollouts of the share of tokens on which entropy moves against the sign of the advantage."""
    return _mean(curve.series(["theorem_sign_agreement"]))


def entropy_fall(curve: Curve) -> float | None:
    """Mean entropy of the first rollout minus that of the last, nats per token."""
    entropy = [value for value in curve.series(["entropy"]) if value is not None]
    return entropy[0] - entropy[-1] if entropy else None


def reward_falls(curve: Curve) -> float | None:
    """What the reward lost from one rollout to the next, mean over all steps (0 where it rose): unsteadiness."""
    reward = _known(curve.series(["reward"], "first"))
    falls = [max(0.0, before - after) for before, after in pairwise(reward)]
    return _mean(falls)


def reward_by_entropy(curve: Curve) -> float | None:
    """Correlation over rollouts of reward and exp(entropy); -1: R = -a exp(H) + b with a > 0."""
    points = [
        (r, math.exp(h))
        for r, h in zip(curve.series(["reward"], "first"), curve.series(["entropy"]), strict=True)
        if r is not None and h is not None
    ]
    if len(points) < 3:
        return None
    (mean_r, mean_h), n = (sum(side) / len(points) for side in zip(*points, strict=True)), len(points)
    covariance = sum((r - mean_r) * (h - mean_h) for r, h in points) / n
    spread = math.sqrt(sum((r - mean_r) ** 2 for r, _ in points) * sum((h - mean_h) ** 2 for _, h in points)) / n
    return covariance / spread if spread else None


def response_tokens(curve: Curve) -> float | None:
    """Mean length of a sampled response over all rollouts."""
    return _mean(curve.series(["response_tokens"], "first"))


EXTRAS: dict[str, Extra] = {
    "sign_agreement": Extra(sign_agreement, "share", 0.0, 1.0),
    "entropy_fall": Extra(entropy_fall, "nats per token"),
    "reward_falls": Extra(reward_falls, "reward", 0.0, 1.0),
    "reward_by_entropy": Extra(reward_by_entropy, "correlation", -1.0, 1.0),
    "response_tokens": Extra(response_tokens, "tokens", 0.0),
}


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    return math.fsum(known) / len(known) if known else None
