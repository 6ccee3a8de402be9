"""Distances by which training moves the policy: the columns `MOVEMENT` of curve.csv. None means unknown.

kl_step         KL(after || before): `before` sampled the rollout, `after` is the policy after its last update
kl_base         KL(after || base), base: the weights that the run started from
                Both are in nats per token, means over the tokens of every `SHARE`-th response trained on. Up to
                `EXACT` words a token's divergence is a sum over the vocabulary. Above, it is w k3 at the sampled token,
                w = after/before and k3 = 1/r + log r - 1 with r = after/before or after/base, unbiased for that sum.
kl_step_se      standard error of the mean, with prompt groups as independent units; None with one group
kl_base_se      likewise
kl_target       with `training.kl_target`: the KL that `kl_step` should have
kl_scale        factor by which the change of the rollout was scaled for it
kl_missed       1 if `kl_step` differs from it by more than `MISS`, otherwise 0
update_norm     L2 norm of the change of all parameters in an update; 0 without an update
effective_step  update_norm / (learning_rate sqrt(parameters)): root mean square of AdamW's normalised step
                m/(sqrt(v) + eps), with its weight decay
grad_clipped    1 if the gradient's norm was above the clip, otherwise 0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

# One value per rollout, in the row of its last update.
KL = ("kl_step", "kl_step_se", "kl_base", "kl_base_se")
AIM = ("kl_target", "kl_scale", "kl_missed")
MOVEMENT = (*KL, "update_norm", "effective_step", "grad_clipped", *AIM)

SHARE = 4  # one response in 4 is measured: three passes over all would take a fifth of a tiny run
EXACT = 1024  # largest vocabulary for which whole distributions are compared
TOLERANCE, TRIES = 0.02, 16  # for `move`: relative error of the KL, and largest number of measurements
MISS = 0.05  # relative error from which a rollout counts as one that missed its target

NOTHING_TRAINED: dict[str, float | None] = {**dict.fromkeys(KL), "kl_step": 0.0}


def divergences(before: Tensor, after: Tensor, base: Tensor | None, group_N: Tensor) -> dict[str, float | None]:
    """Return `KL` of a rollout. before, after, base: (N,) log-probs of N sampled tokens, or (N, V) distributions.

    group_N: the prompt group of each token. Without `base`, its two columns are None.
    """
    found = dict(NOTHING_TRAINED)
    for name, anchor in (("kl_step", before), ("kl_base", base)):
        if anchor is not None and len(after):
            found[name], found[f"{name}_se"] = _mean(_divergence(before, after, anchor), group_N)
    return found


def _divergence(before: Tensor, after: Tensor, anchor: Tensor) -> Tensor:
    """Return KL(after || anchor) per token, (N,) float64, or its estimate from the token that `before` sampled."""
    from methods.parts.penalties import ESTIMATORS  # here, because the page imports only the names above

    before, after, anchor = before.double(), after.double(), anchor.double()
    if after.ndim == 2:
        return (after.exp() * (after - anchor)).sum(1)
    return (after - before).exp() * ESTIMATORS["k3"](after - anchor)


def _mean(x_N: Tensor, group_N: Tensor) -> tuple[float | None, float | None]:
    """Return the mean and its standard error, as of a ratio of sums over groups; None if not finite."""
    import torch

    mean = x_N.mean()
    _, index_N = group_N.unique(return_inverse=True)
    groups = int(index_N.max()) + 1
    residual_G = torch.zeros(groups, dtype=x_N.dtype, device=x_N.device).index_add_(0, index_N, x_N - mean)
    error = residual_G.square().sum().mul(groups / max(groups - 1, 1)).sqrt() / len(x_N)
    return _finite(mean), _finite(error) if groups > 1 else None


def _finite(x: Tensor) -> float | None:
    value = float(x)
    return value if math.isfinite(value) else None


def move(parameters: Sequence[Tensor], start: Sequence[Tensor], kl: Callable[[], float], target: float) -> float:
    """Scale the change of the parameters since `start` until `kl()` is `target`, within TOLERANCE; return the factor.

    A change that meets the target stays bit for bit. If no size meets it, in TRIES or at all, the nearest one measured
    stays. A zero change stays, because no multiple reaches the target. The last call of `kl` is at the size returned,
    unless that is 0 or the change is zero.
    """
    change = [p.detach() - old for p, old in zip(parameters, start, strict=True)]

    def place(size: float) -> None:
        for p, old, moved in zip(parameters, start, change, strict=True):
            p.data.copy_(old).add_(moved, alpha=size)

    if target == 0:
        place(0.0)
        return 0.0
    if not any(bool(moved.any()) for moved in change):
        return 1.0
    size, measured = 1.0, dict[float, float]()  # size -> KL, in the order of measurement
    for _ in range(TRIES):
        measured[size] = kl()
        if abs(measured[size] / target - 1) <= TOLERANCE:
            return size
        size = _next_size(measured, target)
        place(size)
    nearest = min(measured, key=lambda size: abs(_log(measured[size]) - math.log(target)))
    place(nearest)
    kl()
    return nearest


def _next_size(measured: Mapping[float, float], target: float) -> float:
    """Return the next size to measure: by the secant in logarithms, kept between the sizes known to be too short and
    too long. The first guess expects a KL that grows quadratically."""
    *before, last = measured
    low = max((size for size, reached in measured.items() if reached < target), default=0.0)
    high = min((size for size, reached in measured.items() if not reached < target), default=math.inf)
    power = 2.0
    if before and math.isfinite(slope := _log(measured[last]) - _log(measured[before[-1]])):
        power = min(max(slope / math.log(last / before[-1]), 0.5), 16.0)
    # A step that is far too short rounds to zero, or below; a KL that is not finite means that it is far too long.
    guess = last * min(max(math.exp(min((math.log(target) - _log(measured[last])) / power, 9.0)), 0.25), 4.0)
    # Where the KL jumps the secant does not settle: every fourth guess halves the interval.
    if 0 < low < high < math.inf and (len(measured) % 4 == 0 or not low < guess < high):
        return math.sqrt(low * high)
    return guess


def _log(x: float) -> float:
    """Return the natural logarithm; of zero and below minus infinity, of NaN infinity."""
    return math.inf if math.isnan(x) else math.log(x) if x > 0 else -math.inf


def aim(target: float, scale: float, reached: float | None) -> dict[str, float | None]:
    """Return `AIM` of a rollout. reached: its `kl_step`."""
    return {"kl_target": target, "kl_scale": scale, "kl_missed": int(is_miss(target, reached))}


def is_miss(target: float, reached: float | None) -> bool:
    """Return whether a rollout with this `kl_step` missed its target by more than `MISS`, a share of the target."""
    return reached is None or abs(reached - target) > MISS * target


class Update(NamedTuple):
    """The change of the parameters in one update."""

    norm: float
    parameters: int  # number of scalars

    def effective(self, learning_rate: float) -> float:
        """Return `effective_step`."""
        return self.norm / (learning_rate * math.sqrt(self.parameters))


def copies(parameters: Iterable[Tensor]) -> list[Tensor]:
    """Return copies of the parameters."""
    return [p.detach().clone() for p in parameters]


def update(before: Sequence[Tensor], parameters: Iterable[Tensor]) -> Update:
    """Return the change since `copies` made `before`, which is overwritten; sharded parameters count once."""
    from torch.nn.utils import get_total_norm

    count = 0
    for old, new in zip(before, parameters, strict=True):
        old.sub_(new.detach())
        count += new.numel()
    norm: Any = get_total_norm(before)
    if hasattr(norm, "full_tensor"):  # of shards; with `offload` on the host, while the ranks talk through their GPUs
        norm = norm.to(norm.device_mesh.device_type).full_tensor()
    return Update(float(norm), count)


@contextmanager
def weights(parameters: Sequence[Tensor], values: Sequence[Tensor]) -> Iterator[None]:
    """Set the parameters to these values inside the block; afterwards each has its original memory again, unchanged."""
    own = [p.data for p in parameters]
    try:
        for p, value in zip(parameters, values, strict=True):
            p.data = value
        yield
    finally:
        for p, value in zip(parameters, own, strict=True):
            p.data = value
