"""Input of a loss: response tokens of an update minibatch, or of a micro-batch of it. Validated on construction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from core.errors import CorruptInputError

if TYPE_CHECKING:
    from torch import Tensor

# Fields of shape (B, T): B rows, T columns with padding.
LOG_PROBS = ("logp", "old_logp", "ref_logp", "sampling_logp")
PER_TOKEN = (*LOG_PROBS, "entropy", "old_entropy")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
WIDE = ("float64", "float32")
FLOATS = (*WIDE, "bfloat16", "float16")
REQUIRED = ("logp", "old_logp", "advantage", "mask", "group")
NUMBERS = (*FLOATS, *INTEGERS, "bool")  # allowed dtypes of a reward
DTYPES = {
    **dict.fromkeys(LOG_PROBS, WIDE),  # in half precision a ratio of 1.01 rounds to 1
    **dict.fromkeys(("entropy", "old_entropy", "advantage"), FLOATS),
    **dict.fromkeys(("mask", "dropped"), ("bool",)),
    "group": INTEGERS,
    "group_tokens": (*INTEGERS, *WIDE),
}
# A log-prob may exceed 0 by this much: in float32, with logits near 1000, logit minus logsumexp is accurate to 1e-4.
ABOVE_ZERO = 1e-3
# Fields that must not carry gradient: the loss would also train whatever produced them.
CONSTANT = ("old_logp", "advantage", "old_entropy", "ref_logp", "sampling_logp")


def check_tensor(name: str, x: object, shape: Sequence[int | str], dtypes: Sequence[str]) -> None:
    """Raise `CorruptInputError` unless `x` is a tensor of this shape and one of these dtypes; a letter is any size."""
    from torch import Tensor

    expected = f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
    if not isinstance(x, Tensor):
        raise CorruptInputError(f"{name}: got {type(x).__name__}, expected a tensor of shape {expected}")
    if len(x.shape) != len(shape) or any(n != m for n, m in zip(x.shape, shape, strict=True) if isinstance(m, int)):
        raise CorruptInputError(f"{name}: shape {tuple(x.shape)}, expected {expected}")
    # compared as text, because this module does not import torch
    if str(x.dtype).removeprefix("torch.") not in dtypes:
        raise CorruptInputError(f"{name}: dtype {x.dtype}, expected {' or '.join(f'torch.{d}' for d in dtypes)}")


# eq=False: comparing two tensors returns a tensor, not a truth value.
@dataclass(frozen=True, eq=False)
class Batch:
    """Log-probs at the sampling temperature and full-vocabulary entropies, in nats. Values at padding are ignored.

    Raises `CorruptInputError` with the tensor and its shape, dtype or index for: shapes that disagree, a dtype that
    `DTYPES` does not allow, a value that is not finite or a log-prob above 0 at a valid token, a constant that carries
    gradient, and a row without tokens that is not marked as dropped.
    """

    logp: Tensor  # (B, T) log-probs of the sampled tokens under the current policy, float32 or 64; carries the gradient
    old_logp: Tensor  # (B, T) under the policy that sampled them, as the trainer computes it
    advantage: Tensor  # (B,) from `Method.advantage`, over whole prompt groups; or (B, T), one for each token
    mask: Tensor  # (B, T) bool, True at response tokens; may have holes, such as the output of a tool
    group: Tensor  # (B,) long: rows with the same number answer the same prompt
    entropy: Tensor | None = None  # (B, T) of the current policy; with gradient where a penalty reads it
    old_entropy: Tensor | None = None  # (B, T)
    ref_logp: Tensor | None = None  # (B, T) under the frozen initial model
    sampling_logp: Tensor | None = None  # (B, T) as computed by the sampler, for a rollout correction; None: unknown
    dropped: Tensor | None = None  # (B,) bool: rows left out on purpose; these and only these have an empty mask
    group_tokens: Tensor | None = None  # (B,) tokens of the row's group in the whole minibatch, for agg-scope=group
    groups: int | None = None  # groups in the whole minibatch, for agg-scope=group
    max_tokens: int | None = None  # the trainer's limit on the tokens of a response; for Dr. GRPO's divisor
    # Precision of the passes that computed log-probs and entropies, if lower than the tensors': "bfloat16" in autocast.
    precision: str | None = None
    label: str = "batch"  # name in error messages, such as the method's key

    def __post_init__(self) -> None:
        self._check_tensors()
        self._check_rows()
        self._check_values()

    @cached_property
    def padding_BT(self) -> Tensor:  # noqa: N802
        """(B, T) bool, the complement of `mask`."""
        return ~self.mask

    @cached_property
    def weight_BT(self) -> Tensor:  # noqa: N802
        """(B, T) of the log-probs' dtype: 1 at response tokens, 0 at padding."""
        return self.mask.to(self.logp.dtype)

    @cached_property
    def lengths_B(self) -> Tensor:  # noqa: N802
        """(B,) long: valid tokens per row, 0 for dropped rows."""
        return self.mask.sum(1)

    @cached_property
    def tokens(self) -> int:
        """Number of valid tokens."""
        return int(self.lengths_B.sum())

    @cached_property
    def sequences(self) -> int:
        """Number of rows with at least one token."""
        return int(self.lengths_B.count_nonzero())

    def valid(self, x_BT: Tensor) -> Tensor:
        """Return `x_BT` with zeros at padding, in value and in gradient, whatever the padding contained."""
        # a product is twenty times faster than masked_fill on a CPU, but 0 * inf is NaN
        return x_BT * self.weight_BT if self._clean else x_BT.masked_fill(self.padding_BT, 0.0)

    def rows(self, index: slice | Tensor) -> Batch:
        """Return these rows as a micro-batch; the caller passes the minibatch's counts to the loss."""
        # every other field has one entry per row
        names = [f.name for f in fields(self) if f.name not in ("groups", "max_tokens", "precision", "label")]
        return replace(self, **{n: getattr(self, n)[index] for n in names if getattr(self, n) is not None})

    def detached(self) -> Batch:
        """Return the batch on the CPU, without gradient."""
        tensors = {f.name: x for f in fields(self) if hasattr(x := getattr(self, f.name), "detach")}
        moved: dict[str, Any] = {name: x.detach().cpu() for name, x in tensors.items()}
        return replace(self, **moved)

    def _error(self, name: str, problem: str) -> CorruptInputError:
        return CorruptInputError(f"{self.label}: {name}: {problem}")

    def _check_tensors(self) -> None:
        from torch import Tensor

        check_tensor(f"{self.label}: logp", self.logp, ("B", "T"), DTYPES["logp"])
        rows, width = self.logp.shape
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys((*PER_TOKEN, "mask"), (rows, width))
        shapes |= dict.fromkeys(("advantage", "group", "dropped", "group_tokens"), (rows,))
        if getattr(self.advantage, "ndim", 1) == 2:
            shapes["advantage"] = (rows, width)
        for name, shape in shapes.items():
            x = getattr(self, name)
            if x is None and name not in REQUIRED:
                continue
            # `check_tensor` on every tensor would triple the time of this function, so only a failing one gets it
            if not isinstance(x, Tensor) or x.shape != shape or str(x.dtype)[6:] not in DTYPES[name]:
                check_tensor(f"{self.label}: {name}", x, shape, DTYPES[name])
            if x.requires_grad and name in CONSTANT:
                raise self._error(name, "carries gradient; it is a constant of the loss, detach it")

    def _check_rows(self) -> None:
        empty = self.lengths_B == 0
        wrong = empty if self.dropped is None else empty != self.dropped
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            state = "has no token; mark it in `dropped`" if empty[row] else "is in `dropped` but has tokens"
            raise self._error("mask", f"row {row} {state}")
        if self.max_tokens is not None and bool((self.lengths_B > self.max_tokens).any()):
            row, most = int(self.lengths_B.argmax()), int(self.lengths_B.max())
            raise self._error("mask", f"row {row} has {most} tokens, max_tokens is {self.max_tokens}")

    @cached_property
    def _summary(self) -> tuple[float, float]:
        """Sum of all per-token values, padding included, and the largest log-prob.

        A sum is finite only if all its terms are. One pass over each tensor and two transfers to the host cost far less
        than a mask of finite values. Single elements are inspected only if these two numbers are not sufficient.
        """
        tensors = [x.detach() for n in (*PER_TOKEN, "advantage") if (x := getattr(self, n)) is not None]
        sums = [x.sum() for x in tensors]
        total = float(sum(sums[1:], sums[0]))
        if self.logp.numel() == 0:
            return total, 0.0
        highest = tensors[0].max()
        for x in tensors[1 : sum(getattr(self, n) is not None for n in LOG_PROBS)]:
            highest = highest.maximum(x.max())
        return total, float(highest)

    @cached_property
    def _clean(self) -> bool:
        """Whether all per-token values are finite, padding included."""
        return math.isfinite(self._summary[0])

    def _check_values(self) -> None:
        """Raise the error for the first bad element that is not at padding, where any value is allowed."""
        finite = () if self._clean else (*PER_TOKEN, "advantage")
        negative = () if self._summary[1] <= ABOVE_ZERO else LOG_PROBS  # NaN as well
        for name in (*finite, *negative):
            if (x := getattr(self, name)) is None:
                continue
            x, expected = x.detach(), ", expected a log-prob, at most 0" if name in negative else ""
            bad = ~x.isfinite() | (x > ABOVE_ZERO) if name in negative else ~x.isfinite()
            if bad.ndim == 2:
                bad = bad & self.mask
            if bool(bad.any()):
                index = tuple(bad.nonzero()[0].tolist())
                raise self._error(name, f"{float(x[index])} at {list(index)}{expected}")
