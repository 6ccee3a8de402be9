"""Distances by which training moves the policy: the columns `MOVEMENT` of curve.csv. None means unknown.

kl_step         KL(after || before): `before` sampled the rollout, `after` is the policy after its last update
kl_base         KL(after || base), base: the weights that the run started from
                Both are in nats per token, means over the tokens of every `SHARE`-th response trained on. Up to
                `EXACT` words a token's divergence is a sum over the vocabulary. Above, it is w k3 at the sampled token,
                w = after/before and k3 = 1/r + log r - 1 with r = after/before or after/base, unbiased for that sum.
kl_step_se      standard error of the mean, with prompt groups as independent units; None with one group
kl_base_se      likewise
update_norm     L2 norm of the change of all parameters in an update; 0 without an update
effective_step  update_norm / (learning_rate sqrt(parameters)): root mean square of AdamW's normalised step
                m/(sqrt(v) + eps), with its weight decay
grad_clipped    1 if the gradient's norm was above the clip, otherwise 0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

KL = ("kl_step", "kl_step_se", "kl_base", "kl_base_se")  # one value per rollout, in the row of its last update
MOVEMENT = (*KL, "update_norm", "effective_step", "grad_clipped")

SHARE = 4  # one response in 4 is measured: three passes over all would take a fifth of a tiny run
EXACT = 1024  # largest vocabulary for which whole distributions are compared
TOLERANCE, TRIES = 0.02, 16  # for `move`: relative error of the KL, and largest number of measurements
QUADRATIC = 5  # for `move`: so many guesses expect a quadratic KL, which then has settled

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


def move(parameters: Sequence[Tensor], start: Sequence[Tensor], kl: Callable[[], float], target: float) -> None:
    """Rescale the change of the parameters since `start` so that `kl()` of the result is `target`, within TOLERANCE.

    The divergence grows roughly quadratically, which the next guess uses; where it grows faster, that guess leaves the
    sizes known to be too short and too long, or does not settle, and their geometric mean is next. If the target
    cannot be reached, in TRIES or at all, the nearest size measured stays. A zero change stays, because no multiple
    reaches the target.
    """
    change = [p.detach() - old for p, old in zip(parameters, start, strict=True)]
    if not any(bool(moved.any()) for moved in change):
        return
    size, low, high = 1.0, 0.0, math.inf
    sizes: dict[float, float] = {}  # distance from the target, a ratio's logarithm -> size
    for tries in range(TRIES + 1):
        for p, old, moved in zip(parameters, start, change, strict=True):
            p.data.copy_(old).add_(moved, alpha=size)
        if tries == TRIES or abs((reached := kl()) / target - 1) <= TOLERANCE:
            return
        # A step that is far too short rounds to zero; a KL that is not finite means that it is far too long.
        ratio = math.inf if reached <= 0 else target / reached if reached < math.inf else 0.0
        sizes[abs(math.log(ratio)) if 0 < ratio < math.inf else math.inf] = size
        low, high = (max(low, size), high) if ratio > 1 else (low, min(high, size))
        size *= min(max(math.sqrt(ratio), 0.25), 4.0)
        if 0 < low < high < math.inf and (tries >= QUADRATIC or not low < size < high):
            size = math.sqrt(low * high)
        if tries == TRIES - 1:
            size = sizes[min(sizes)]


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
