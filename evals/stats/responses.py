"""The responses of one checkpoint to one benchmark, kept by problem: the only thing an interval can be computed from.

There is no function here or beside that takes "121 right of 960": thirty problems asked 32 times are thirty draws,
and forgetting which response belongs to which problem is what makes the binomial interval cover 35 %.
This file is the one place that decides what a problem is: rows with the same prompt are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from records.errors import ConfigError, CorruptInputError

POLICIES = ("paper", "unique", "keep")
"""Copies of a problem (reading E2). paper: problems that occur twice leave the column and stay in the pool.
unique: one copy stays, the one whose id sorts first. keep: every row counts everywhere."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Right or wrong, for every row of a benchmark and each of its k samples.

    items: one id per row. right_IK: (rows, k) bool. problems: one label per row, equal for copies of one problem
    (default: the items themselves). Rows are kept sorted by item id, so that equal data are equal in every order.
    Raises CorruptInputError for a wrong shape, values that are not bool, or a repeated item.
    """

    items: tuple[str, ...]
    right: NDArray[np.bool_]
    problems: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        right = np.asarray(self.right)
        if right.dtype != np.bool_:
            raise CorruptInputError(f"samples: right must be bool, got {right.dtype}: an unknown verdict has no number")
        if right.ndim != 2 or right.shape[0] != len(self.items) or right.size == 0:
            raise CorruptInputError(f"samples: {len(self.items)} items need a (items, k) table, got {right.shape}")
        if len(set(self.items)) != len(self.items):
            copies = sorted({i for i in self.items if self.items.count(i) > 1})
            raise CorruptInputError(f"samples: item {copies[0]!r} occurs more than once")
        problems = self.problems or self.items
        if len(problems) != len(self.items):
            raise CorruptInputError(f"samples: {len(self.items)} items but {len(problems)} problem labels")
        order = sorted(range(len(self.items)), key=lambda row: self.items[row])
        object.__setattr__(self, "items", tuple(self.items[row] for row in order))
        object.__setattr__(self, "problems", tuple(problems[row] for row in order))
        right = right[order].copy()
        right.setflags(write=False)
        object.__setattr__(self, "right", right)

    @classmethod
    def from_rows(
        cls, rows: Iterable[tuple[str, int, bool]], *, problems: dict[str, str] | None = None, where: str = "samples"
    ) -> Samples:
        """From (item, sample index, right) in any order; every item must have samples 0 .. k-1 exactly once.

        >>> Samples.from_rows([("b", 0, True), ("a", 0, False)]).score
        0.5
        """
        table: dict[str, dict[int, bool]] = {}
        for item, sample, right in rows:
            answers = table.setdefault(item, {})
            if sample in answers:
                raise CorruptInputError(f"{where}: item {item!r} sample {sample} occurs more than once")
            answers[sample] = right
        if not table:
            raise CorruptInputError(f"{where}: holds no rows")
        k = max(len(answers) for answers in table.values())
        for item, answers in table.items():
            if sorted(answers) != list(range(k)):
                raise CorruptInputError(f"{where}: item {item!r} has samples {sorted(answers)}, expected 0 to {k - 1}")
        items = tuple(table)
        right_IK = np.array([[table[item][s] for s in range(k)] for item in items], dtype=np.bool_)
        return cls(items, right_IK, tuple((problems or {}).get(item, item) for item in items))

    @property
    def k(self) -> int:
        """Samples per row."""
        return int(self.right.shape[1])

    @property
    def responses(self) -> int:
        return int(self.right.size)

    @property
    def correct(self) -> int:
        return int(self.right.sum())

    @property
    def score(self) -> float:
        """avg@k: right responses over responses."""
        return self.correct / self.responses

    @cached_property
    def problem_of_row(self) -> NDArray[np.intp]:
        """The number, 0 .. P-1, of the problem each row belongs to; problems in the order of their labels."""
        return np.unique(np.array(self.problems, dtype=object), return_inverse=True)[1]

    @cached_property
    def rows_per_problem(self) -> NDArray[np.float64]:
        """How many rows each problem has: 1, or more for copied problems."""
        return np.bincount(self.problem_of_row).astype(float)

    @cached_property
    def right_per_problem(self) -> NDArray[np.float64]:
        """Sum over a problem's rows of the share of right samples."""
        return np.asarray(np.bincount(self.problem_of_row, weights=self.right.mean(1)), float)

    def column(self, policy: str) -> Samples:
        """The rows that count in the benchmark's own column under a policy for copies (`POLICIES`)."""
        if policy == "keep":
            return self
        if policy == "paper":
            return self._rows(np.flatnonzero(self.rows_per_problem[self.problem_of_row] == 1))
        return self.pool(policy)

    def pool(self, policy: str) -> Samples:
        """The rows that count in the pooled average under a policy for copies."""
        if policy not in POLICIES:
            raise ConfigError(f"duplicates: unknown value {policy!r}; allowed: {', '.join(POLICIES)}")
        if policy == "unique":
            return self._rows(np.unique(self.problem_of_row, return_index=True)[1])
        return self

    def _rows(self, rows: Sequence[int] | NDArray[np.intp]) -> Samples:
        if len(rows) == len(self.items):
            return self
        if not len(rows):
            raise CorruptInputError("samples: every problem occurs more than once, nothing is left for the column")
        return Samples(
            tuple(self.items[r] for r in rows), self.right[list(rows)], tuple(self.problems[r] for r in rows)
        )


def same_problems(a: Samples, b: Samples) -> None:
    """Raise CorruptInputError unless both hold the same items, grouped into the same problems."""
    if a.items != b.items:
        extra = sorted(set(a.items) ^ set(b.items))
        raise CorruptInputError(
            f"a paired comparison needs the same problems: {len(a.items)} and {len(b.items)} items, "
            f"{len(extra)} on one side only, first {extra[0]!r}"
        )
    if not np.array_equal(a.problem_of_row, b.problem_of_row):
        raise CorruptInputError("a paired comparison needs the same problems: copies are grouped differently")
