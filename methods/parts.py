"""A part: a pure function bound to its hyper-parameters, which knows what it reads and what a split may do to it.

`Parts`: the seven slots that a method fills with them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal

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
