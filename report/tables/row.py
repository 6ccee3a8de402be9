"""One row of a table as `tables.yaml` declares it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from records.errors import ConfigError, unknown
from records.layout import BASE, split

Kind = Literal["base", "run", "delta", "mean"]
Step = int | Literal["long"] | None
"""Rollouts; None: the scale's table step; long: its second look."""


@dataclass(frozen=True)
class Row:
    """One row: the checkpoints of a method, the difference of two rows (`delta`), or the mean over rows that differ in
    their seeds only (`mean`)."""

    id: str
    label: str
    method: str | None = None
    delta: tuple[str, str] | None = None
    mean: tuple[str, ...] | None = None
    optional: bool = False
    seeds: tuple[int, ...] | None = None  # None: all seeds of the matrix
    step: Step = None

    @property
    def kind(self) -> Kind:
        if self.method is not None:
            return "base" if self.method == BASE else "run"
        return "delta" if self.delta else "mean"

    @property
    def of(self) -> tuple[str, ...]:
        """The rows a derived row is made of."""
        return self.delta or self.mean or ()

    @property
    def content(self) -> tuple[Any, ...]:
        """Two rows of one block with the same value here would print the same numbers."""
        method = check_method(self.method, "", "") if self.method else self.kind
        return (method, self.of, self.seeds, self.step)


def check_method(name: str, where: str, key: str) -> str:
    """The canonical key of a method as the configuration names it; raises for one that the catalog does not have."""
    from methods import catalog

    if name == BASE:
        return BASE
    method, variant = split(name)
    known = (BASE, *catalog.keys(), *catalog.aliases())
    if method.split("+")[0] not in known:
        raise unknown(where, key, method, known)
    try:
        parsed = catalog.parse(method).key
    except ConfigError as error:
        raise ConfigError(f"{where}: {key}: {error}") from error
    return parsed if variant is None else f"{parsed}@{variant}"
