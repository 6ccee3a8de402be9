"""A part: a pure function bound to its hyper-parameters, which knows what it reads and what a split may do to it.

`Parts`: the seven slots that a method fills with them.
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

    pass  # DROPIMPORT

Scope = Literal["token", "sequence", "batch"]
SCOPES: tuple[Scope, ...] = ("token", "sequence", "batch")


@dataclass(frozen=True)
class Part:
    """`function` with keyword `settings`; prints as it is written in the catalog: `clipped(low=0.2, high=0.28)`."""

    function: Callable[..., Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    own_needs: frozenset[str] = frozenset()
    own_scope: Scope = "token"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs, **self.settings)

    @property
    def name(self) -> str:
        return self.function.__name__.lstrip("_")

    @property
    def inner(self) -> tuple[Part, ...]:
        """Parts among the settings: the estimator of a penalty, the tokens it acts on."""
        return tuple(value for value in self.settings.values() if isinstance(value, Part))

    @property
    def needs(self) -> frozenset[str]:
        """Optional `Batch` fields that this part and its inner parts read."""
        return self.own_needs.union(*(part.needs for part in self.inner))

    @property
    def scope(self) -> Scope:
        """The widest statistic taken: a micro-batch must keep this unit whole."""
        return widest([self.own_scope, *(part.scope for part in self.inner)])

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v}' for k, v in self.settings.items())})" if self.settings else self.name


def widest(scopes: list[Scope]) -> Scope:
    return max(scopes, key=SCOPES.index)


def part(*needs: str, scope: Scope = "token") -> Callable[[Callable[..., Any]], Callable[..., Part]]:
    """Turn a formula into a factory: `clipped(low=0.2, high=0.28)` binds the keyword-only settings, all of them.

    `needs` name the optional batch fields the formula reads; `scope` the widest statistic it takes.
    """

    def factory(function: Callable[..., Any]) -> Callable[..., Part]:
        wanted = {p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY}

        @wraps(function)
        def bind(**settings: Any) -> Part:
            if settings.keys() != wanted:
                raise TypeError(f"{function.__name__} takes {sorted(wanted)}, got {sorted(settings)}")
            return Part(function, settings, frozenset(needs), scope)

        return bind

    return factory


@dataclass(frozen=True)
class Parts:
    """The slots, in the order in which a loss passes through them."""

    advantage: Part  # (reward (B,), group (B,)) -> (B,)
    ratio: Part  # Terms -> log importance weight, (B, T) or (B, 1)
    surrogate: Part  # Terms -> (B, T) or (B, 1), larger is better
    reduce: Part  # (x, batch, tokens, sequences) -> scalar
    shape: Part | None = None  # (batch, advantage (B, 1)) -> (B, T)
    selection: Part | None = None  # Terms -> (B, T) weight on the surrogate
    penalties: tuple[Part, ...] = ()  # Terms -> (B, T), subtracted

    def filled(self) -> dict[str, Part]:
        """Slot name -> part, for the slots in use."""
        named = {
            "advantage": self.advantage, "shape": self.shape, "ratio": self.ratio, "surrogate": self.surrogate,
            "selection": self.selection, **{f"penalty {i}": p for i, p in enumerate(self.penalties, 1)},
            "reduce": self.reduce,
        }  # fmt: skip
        return {slot: part for slot, part in named.items() if part is not None}


# What the slots of one loss read, computed at most once. Made anew for every loss: no graph outlives its backward.


class Terms:
    """A batch seen through a method's parts. A value equal for all tokens of a row may be (B, 1) instead of (B, T)."""

    def __init__(self, batch: Batch, parts: Parts, generator: Generator | None = None):
        self.batch, self.parts, self.generator = batch, parts, generator

    @cached_property
    def logp_BT(self) -> Tensor:  # noqa: N802
        """log pi(y_t), zero on padding."""
        return self.batch.valid(self.batch.logp)

    @cached_property
    def log_ratio_BT(self) -> Tensor:  # noqa: N802
        """d_t = log pi(y_t) / pi_old(y_t), zero on padding."""
        return self.batch.valid(self.batch.logp - self.batch.old_logp)

    @cached_property
    def lengths_B1(self) -> Tensor:  # noqa: N802
        """|y| in the log-probs' dtype; 1 for dropped rows, so that dividing by it is safe."""
        return self.batch.lengths_B.clamp(min=1).to(self.batch.logp.dtype).unsqueeze(1)

    @cached_property
    def advantage(self) -> Tensor:
        """A, (B, 1), or (B, T) once shaped."""
        advantage_B1 = self.batch.advantage.to(self.batch.logp.dtype).unsqueeze(1)
        return self.parts.shape(self.batch, advantage_B1) if self.parts.shape else advantage_B1

    @cached_property
    def log_weight(self) -> Tensor:
        """Logarithm of the importance weight at the method's level."""
        return self.parts.ratio(self)
