"""One run's curve.csv: read strictly, its updates made into one figure per rollout."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from records.errors import CorruptInputError, unknown
from report.columns import read_csv

INDEX = ("rollout", "update", "minibatch")

# How the updates of a rollout become one figure; each is given the values of all wanted columns, in order, by update.
AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "first": lambda values: values[0],  # figures of the rollout itself, which stand on each of its rows
    "mean": lambda values: math.fsum(values) / len(values),
    "sum": math.fsum,
}


@dataclass(frozen=True)
class Curve:
    """Rows of a curve.csv by rollout. Everything is still text: only the columns asked for must be numbers."""

    path: Path
    rollouts: tuple[tuple[Mapping[str, str], ...], ...]

    def series(self, columns: Sequence[str], aggregate: str = "mean") -> list[float | None]:
        """One figure per rollout; None where none of the columns has one.

        Raises for a column that the file has not, and for a value that is no finite number, naming line and column.
        """
        for column in columns:
            if column not in self.rollouts[0][0]:
                raise unknown(str(self.path), "column wanted", column, self.rollouts[0][0])
        return [self._figure(rows, columns, AGGREGATES[aggregate]) for rows in self.rollouts]

    def _figure(
        self, rows: Sequence[Mapping[str, str]], columns: Sequence[str], aggregate: Callable[[Sequence[float]], float]
    ) -> float | None:
        values = [self._number(row, column) for row in rows for column in columns if row[column]]
        return aggregate(values) if values else None

    def _number(self, row: Mapping[str, str], column: str) -> float:
        try:
            value = float(row[column])
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            line = int(row["update"]) + 2
            raise CorruptInputError(f"{self.path}: line {line}: {column} is {row[column]!r}, not a finite number")
        return value


def read_curve(path: Path | str) -> Curve:
    """The curve at `path`; rollouts must run 1, 2, 3, ... and updates 0, 1, 2, ... without a gap."""
    rows = read_csv(path, "the learning curve", INDEX)
    for number, row in enumerate(rows):
        for column in ("rollout", "update"):
            if not row[column].isdecimal():
                raise CorruptInputError(
                    f"{path}: line {number + 2}: {column} is {row[column]!r}, not a whole number from 0 on"
                )
        if int(row["update"]) != number:
            raise CorruptInputError(f"{path}: update {number} is missing: line {number + 2} has update {row['update']}")
    rollouts = []
    for number, (rollout, group) in enumerate(groupby(rows, key=lambda row: int(row["rollout"])), 1):
        if rollout != number:
            raise CorruptInputError(f"{path}: rollout {number} is missing: after rollout {number - 1} comes {rollout}")
        rollouts.append(tuple(group))
    return Curve(Path(path), tuple(rollouts))
