"""The building blocks of a loss: a `Part` is a pure function with its hyper-parameters, `Parts` are a method's slots.

The formulas are in this folder's modules. A part declares which optional fields of the batch it reads (`needs`) and
over which unit it takes statistics (`scope`); those of a method are derived from its parts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from methods.batch import Batch

Scope = Literal["token", "sequence", "batch"]
SCOPES: tuple[Scope, ...] = ("token", "sequence", "batch")  # from narrow to wide
ANCHORS = {"old": "old_logp", "ref": "ref_logp", "sampler": "sampling_logp"}  # policy -> its log-probs in a `Batch`


@dataclass(frozen=True)
class Part:
    """A formula bound to its settings. Its text is the call: `clipped(low=0.2, high=0.28, form=ppo, dual=None)`."""

    function: Callable[..., Any]  # the formula
    settings: Mapping[str, Any] = field(default_factory=dict)  # its keyword arguments; may contain other parts
    own_needs: frozenset[str] = frozenset()  # optional `Batch` fields that the formula reads, without inner parts
    own_scope: Scope = "token"  # widest unit over which the formula takes a statistic, without inner parts

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # a micro-batch cannot take a statistic over its minibatch: the trainer took it beforehand (`Method.select`)
        if self.own_scope == "batch" and isinstance(args[0], Terms) and args[0].selected is not None:
            return args[0].selected[str(self)]
        return self.function(*args, **kwargs, **self.settings)

    @property
    def name(self) -> str:
        """The formula's name, without the leading underscore of a formula whose factory has the same name."""
        return self.function.__name__.lstrip("_")

    @property
    def nested(self) -> list[Part]:
        """This part and all parts inside it, at any depth, such as the mask of a penalty."""
        inner = [value for value in self.settings.values() if isinstance(value, Part)]
        return [self, *(part for value in inner for part in value.nested)]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v}' for k, v in self.settings.items())})" if self.settings else self.name


def part(
    *needs: str, scope: Scope = "token", also: Callable[..., str | None] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Part]]:
    """Decorate a formula, turning it into a factory of parts that takes the formula's keyword-only arguments.

    `needs`: optional batch fields that the formula reads; `also`: returns one more, given the settings; `scope`: the
    widest unit over which it takes a statistic.
    """

    def factory(function: Callable[..., Any]) -> Callable[..., Part]:
        names = inspect.getfullargspec(function).kwonlyargs
        defaults = function.__kwdefaults__ or {}

        @wraps(function)
        def bind(**settings: Any) -> Part:
            found = defaults | settings
            # checked here, not when the loss runs, so that a mistake is reported when the method is composed
            if found.keys() != set(names):
                raise TypeError(f"{function.__name__} takes {sorted(names)}, got {sorted(settings)}")
            more = also(**found) if also else None
            return Part(function, found, frozenset(needs) | ({more} if more else set()), scope)

        # where pickle finds the formula, because its name now refers to the factory
        function.__qualname__ += ".__wrapped__"
        return bind

    return factory


@dataclass(frozen=True)
class Parts:
    """The slots that a method fills. The loss is -reduce( correction * mask * surrogate - sum of penalties )."""

    advantage: Part  # (reward (B,), group (B,), lengths (B,) or None) -> (B,); called once per rollout, before the loss
    ratio: Part  # Terms -> log importance weight, (B, T) or (B, 1)
    surrogate: Part  # Terms -> objective, (B, T) or (B, 1), larger is better
    reduce: Part  # (x, batch, tokens, sequences) -> scalar
    shape: Part | None = None  # (batch, advantage (B, 1) or (B, T)) -> advantage per token (B, T)
    mask: Part | None = None  # Terms -> (B, T), multiplies the surrogate: bool, or a weight in [0, 1]
    penalties: tuple[Part, ...] = ()  # Terms -> (B, T) each, subtracted; not multiplied by `mask`
    correction: Part | None = None  # Terms -> weight for the sampler's mismatch, (B, T) or (B, 1), no gradient

    def filled(self) -> dict[str, Part]:
        """Return slot name -> part for the slots in use, in the order in which the loss evaluates them."""
        slots = {
            "advantage": self.advantage, "shape": self.shape, "ratio": self.ratio, "surrogate": self.surrogate,
            "mask": self.mask, "correction": self.correction,
            **{f"penalty {i}": p for i, p in enumerate(self.penalties, 1)}, "reduce": self.reduce,
        }  # fmt: skip
        return {slot: part for slot, part in slots.items() if part is not None}

    @property
    def statistics(self) -> list[Part]:
        """Parts that select or weight tokens by a statistic over the minibatch, such as a mask inside a penalty.

        The reducer is excluded: `agg-scope=microbatch` divides by the micro-batch's tokens on purpose.
        """
        slots = [part for slot, part in self.filled().items() if slot not in ("advantage", "reduce")]
        return [part for slot in slots for part in slot.nested if part.own_scope == "batch"]


class Terms:
    """Quantities that the slots of one loss read, each computed at most once.

    Created for every loss, so that no graph outlives its backward pass. A value that is equal for all tokens of a
    row may be (B, 1) instead of (B, T).
    """

    def __init__(
        self,
        batch: Batch,
        parts: Parts,
        generator: Generator | None = None,
        selected: Mapping[str, Tensor] | None = None,
    ):
        self.batch, self.parts, self.generator = batch, parts, generator
        self.selected = selected  # values of `Method.select` for these rows; None: the batch is the whole minibatch

    @cached_property
    def logp_BT(self) -> Tensor:  # noqa: N802
        """log pi(y_t), zero at padding."""
        return self.batch.valid(self.batch.logp)

    @cached_property
    def log_ratio_BT(self) -> Tensor:  # noqa: N802
        """d_t = log pi(y_t) / pi_old(y_t), zero at padding."""
        return self.batch.valid(self.batch.logp - self.batch.old_logp)

    def anchor_logp(self, anchor: str) -> Tensor:
        """Return log pi_anchor(y_t), (B, T), zero at padding; anchor: old, ref or sampler."""
        return self.batch.valid(getattr(self.batch, ANCHORS[anchor]))

    def log_ratio_to(self, anchor: str) -> Tensor:
        """Return log pi(y_t) / pi_anchor(y_t), (B, T), zero at padding."""
        if anchor == "old":
            return self.log_ratio_BT
        return self.batch.valid(self.batch.logp - getattr(self.batch, ANCHORS[anchor]))

    @cached_property
    def lengths_B1(self) -> Tensor:  # noqa: N802
        """|y| in the log-probs' dtype; 1 for dropped rows, so that dividing by it is safe."""
        return self.batch.lengths_B.clamp(min=1).to(self.batch.logp.dtype).unsqueeze(1)

    @cached_property
    def advantage(self) -> Tensor:
        """A, (B, 1), or (B, T) if it is given per token or shaped."""
        advantage = self.batch.advantage.to(self.batch.logp.dtype)
        advantage = advantage.unsqueeze(1) if advantage.ndim == 1 else self.batch.valid(advantage)
        return self.parts.shape(self.batch, advantage) if self.parts.shape else advantage

    @cached_property
    def log_weight(self) -> Tensor:
        """Logarithm of the importance weight at the method's level, (B, T) or (B, 1)."""
        return self.parts.ratio(self)
