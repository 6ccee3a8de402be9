"""What a loss reads: one update minibatch, or a micro-batch of it, response tokens only. Validated on construction."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

from records.errors import CorruptInputError

if TYPE_CHECKING:
    from torch import Tensor

# Fields by shape: (B, T), (B,) and (B, T, V); B rows, T columns with padding, V words in the vocabulary.
PER_TOKEN = ("logp", "old_logp", "entropy", "old_entropy", "ref_logp", "sampling_logp")
PER_ROW = ("advantage", "group", "dropped", "group_tokens")
VOCABULARY = ("full_logp", "old_full_logp")
# Fields that must not carry gradient: with one, the loss would also train whatever produced them.
CONSTANT = ("old_logp", "advantage", "old_entropy", "ref_logp", "old_full_logp", "sampling_logp")


# eq=False: comparing two tensors gives a tensor, not one truth value.
@dataclass(frozen=True, eq=False)
class Batch:
    """Log-probs at the sampling temperature and full-vocabulary entropies, in nats. Values on padding are ignored.

    Raises `CorruptInputError`, which names the tensor and its shape or index, for shapes that disagree, a value that is
    not finite on a valid token, a constant that carries gradient, and a row without tokens that is not marked dropped.
    """

    logp: Tensor  # (B, T) log-probs of the sampled tokens under the current policy; carries the gradient
    old_logp: Tensor  # (B, T) under the policy that sampled them, as the trainer computes it
    advantage: Tensor  # (B,) from `Method.advantage`, over whole prompt groups
    mask: Tensor  # (B, T) bool, True on response tokens; may have holes, such as the output of a tool
    group: Tensor  # (B,) long: rows answering one prompt
    entropy: Tensor | None = None  # (B, T) of the current policy; with gradient where a penalty reads it
    old_entropy: Tensor | None = None  # (B, T)
    ref_logp: Tensor | None = None  # (B, T) under the frozen initial model
    sampling_logp: Tensor | None = None  # (B, T) as the sampler computed it, for a rollout correction; None: unknown
    full_logp: Tensor | None = None  # (B, T, V) of the current policy, for kl-estimator=full
    old_full_logp: Tensor | None = None  # (B, T, V) of the policy that sampled
    dropped: Tensor | None = None  # (B,) bool: rows left out on purpose; exactly these have an empty mask
    group_tokens: Tensor | None = None  # (B,) tokens of the row's group in the whole minibatch, for agg-scope=group
    groups: int | None = None  # groups in the whole minibatch, for agg-scope=group
    max_tokens: int | None = None  # most tokens that a response may have, the trainer's limit; for Dr. GRPO's divisor
    # Of the passes that gave log-probs and entropies, where it is lower than the tensors': "bfloat16" under autocast.
    precision: str | None = None
    label: str = "batch"  # what errors call it, such as the method's key

    def __post_init__(self) -> None:
        self._check_shapes()
        self._check_rows()
        self._check_finite()

    @cached_property
    def padding_BT(self) -> Tensor:  # noqa: N802
        """(B, T) bool, the complement of `mask`."""
        return ~self.mask

    @cached_property
    def weight_BT(self) -> Tensor:  # noqa: N802
        """(B, T) of the log-probs' dtype: 1 on response tokens, 0 on padding."""
        return self.mask.to(self.logp.dtype)

    @cached_property
    def lengths_B(self) -> Tensor:  # noqa: N802
        """(B,) long: valid tokens per row, 0 for dropped rows."""
        return self.mask.sum(1)

    @cached_property
    def tokens(self) -> int:
        """Valid tokens here."""
        return int(self.lengths_B.sum())

    @cached_property
    def sequences(self) -> int:
        """Rows here that hold a token."""
        return int(self.lengths_B.count_nonzero())

    def valid(self, x_BT: Tensor) -> Tensor:
        """`x_BT` with zeros on padding, in value and in gradient, whatever the padding held."""
        # a product is twenty times faster than masked_fill on a CPU, but 0 * inf is NaN
        return x_BT * self.weight_BT if self._clean else x_BT.masked_fill(self.padding_BT, 0.0)

    def rows(self, index: slice | Tensor) -> Batch:
        """The micro-batch of these rows; the caller passes the minibatch's `tokens` and `sequences` to the loss."""
        # every other field has one entry per row
        names = [f.name for f in fields(self) if f.name not in ("groups", "max_tokens", "precision", "label")]
        return replace(self, **{n: getattr(self, n)[index] for n in names if getattr(self, n) is not None})

    def _error(self, name: str, problem: str) -> CorruptInputError:
        return CorruptInputError(f"{self.label}: {name}: {problem}")

    def _check_shapes(self) -> None:
        if self.logp.ndim != 2:
            raise self._error("logp", f"shape {tuple(self.logp.shape)}, expected (B, T)")
        rows, width = self.logp.shape
        expected: dict[str, tuple[int, ...]] = dict.fromkeys((*PER_TOKEN, "mask"), (rows, width))
        expected |= dict.fromkeys(PER_ROW, (rows,))
        for name, shape in expected.items():
            x = getattr(self, name)
            if x is not None and tuple(x.shape) != shape:
                raise self._error(name, f"shape {tuple(x.shape)}, expected {shape} as logp is {(rows, width)}")
        for name in VOCABULARY:
            x = getattr(self, name)
            if x is not None and (x.ndim != 3 or tuple(x.shape[:2]) != (rows, width)):
                raise self._error(name, f"shape {tuple(x.shape)}, expected ({rows}, {width}, V)")
        full, old = self.full_logp, self.old_full_logp
        if full is not None and old is not None and full.shape != old.shape:
            raise self._error("old_full_logp", f"shape {tuple(old.shape)}, expected {tuple(full.shape)} as full_logp")
        for name in ("mask", "dropped"):
            x = getattr(self, name)
            # compared as text, because this module does not import torch
            if x is not None and str(x.dtype) != "torch.bool":
                raise self._error(name, f"dtype {x.dtype}, expected torch.bool")
        for name in CONSTANT:
            x = getattr(self, name)
            if x is not None and x.requires_grad:
                raise self._error(name, "carries gradient; it is a constant of the loss, detach it")

    def _check_rows(self) -> None:
        empty = self.lengths_B == 0
        if self.dropped is None:
            if bool(empty.any()):
                raise self._error(
                    "mask", f"row {int(empty.nonzero()[0])} has no token (rows left out go into `dropped`)"
                )
        elif bool((empty != self.dropped).any()):
            row = int((empty != self.dropped).nonzero()[0])
            state = "has no token but is not in `dropped`" if empty[row] else "is in `dropped` but has tokens"
            raise self._error("mask", f"row {row} {state}")
        if self.max_tokens is not None and bool((self.lengths_B > self.max_tokens).any()):
            row = int(self.lengths_B.argmax())
            raise self._error(
                "mask", f"row {row} has {int(self.lengths_B[row])} tokens, max_tokens is {self.max_tokens}"
            )

    @cached_property
    def _clean(self) -> bool:
        """Whether all per-token values are finite, those on padding included.

        A sum is finite only if its terms are. One sum per tensor and one transfer to the host cost far less than a mask
        of finite values, so the elements are inspected only when a sum is not finite.
        """
        tensors = [getattr(self, name) for name in (*PER_TOKEN, "advantage")]
        sums = [x.detach().sum() for x in tensors if x is not None]
        return math.isfinite(sum(sums[1:], sums[0]))

    def _check_finite(self) -> None:
        # `_clean` does not sum the (B, T, V) tensors, so they are always checked element by element
        names = VOCABULARY if self._clean else (*PER_TOKEN, "advantage", *VOCABULARY)
        for name in names:
            x = getattr(self, name)
            if x is None:
                continue
            bad = ~x.detach().isfinite()
            if x.ndim > 1:  # padding may hold anything
                bad &= self.mask.view(*self.mask.shape, *[1] * (x.ndim - 2))
            if bool(bad.any()):
                index = tuple(bad.nonzero()[0].tolist())
                raise self._error(name, f"{float(x.detach()[index])} at {list(index)}")
