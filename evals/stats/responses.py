"""The responses of one checkpoint to one benchmark, kept by problem: the only thing an interval can be computed from.

There is no function here that takes "121 right of 960". Thirty problems asked 32 times are thirty draws; forgetting
which response belongs to which problem is what makes the binomial interval cover 35 %. This file is the one place that
decides what a problem is: rows with the same prompt are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.errors import CorruptInputError
from core.layout import Checkpoint, Results
from evals.grading import Verdict
from evals.store import VERDICTS, entry_of, grid, read_record, read_table


@dataclass(frozen=True, eq=False)
class Samples:
    """Right or wrong, for every row of a benchmark and each of its k samples.

    Rows are kept sorted by item id, so that equal data are equal in every order. Raises CorruptInputError for a wrong
    shape, values that are not bool, or a repeated item.
    """

    items: tuple[str, ...]  # one id per row
    right: NDArray[np.bool_]  # (rows, k)
    problems: tuple[str, ...] = ()  # one label per row, equal for copies of one problem; default: the items

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
        """The rows that count in the benchmark's own column under a policy for copies (`evals.benchmark.COPIES`)."""
        if policy == "keep":
            return self
        if policy == "paper":
            return self._rows(np.flatnonzero(self.rows_per_problem[self.problem_of_row] == 1))
        return self.pool(policy)

    def pool(self, policy: str) -> Samples:
        """The rows that count in the pooled average under a policy for copies."""
        return self._rows(np.unique(self.problem_of_row, return_index=True)[1]) if policy == "unique" else self

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


# One checkpoint's grades and samples, from its files.


@dataclass(frozen=True, eq=False)
class Graded:
    """One benchmark's responses with verdicts; rows I in the order of `samples.items`, K samples each."""

    samples: Samples
    verdict: NDArray[np.int64]  # (I, K) index into VERDICTS
    answer: NDArray[np.object_]  # (I, K) normalised answer or None
    tokens: NDArray[np.float64]  # (I, K) length, nan where unknown

    def only(self, samples: Samples) -> Graded:
        """The rows of a subset of the items (a column or pool of `self.samples`)."""
        if samples is self.samples:
            return self
        keep = np.isin(np.array(self.samples.items, dtype=object), np.array(samples.items, dtype=object))
        return Graded(samples, self.verdict[keep], self.answer[keep], self.tokens[keep])

    @property
    def tokens_each(self) -> float | None:
        """Mean length of a response; None where any is unknown."""
        mean = float(self.tokens.mean())
        return None if np.isnan(mean) else mean

    def counts(self) -> dict[str, int]:
        """Responses by verdict, every verdict named."""
        return dict(zip(VERDICTS, np.bincount(self.verdict.ravel(), minlength=len(VERDICTS)).tolist(), strict=True))


def read_graded(results: Results, checkpoint: Checkpoint, benchmarks: Sequence[str]) -> dict[str, Graded]:
    """Grades and samples of a checkpoint. Raises MissingInputError or CorruptInputError naming the file at fault.

    Checked: what `read_table` and `grid` check, and that the graded samples are the samples at hand.
    """
    grades, samples = results.grades(checkpoint), results.samples(checkpoint)
    graded, sampled = read_record(grades / "grades.json"), read_record(samples / "samples.json")
    found = {}
    for key in benchmarks:
        grade, sample = entry_of(graded, grades / "grades.json", key), entry_of(sampled, samples / "samples.json", key)
        found[key] = _benchmark(grades / f"{key}.parquet", grade, samples / f"{key}.parquet", sample)
    return found


def _benchmark(grades: Path, grade: dict[str, Any], samples: Path, sample: dict[str, Any]) -> Graded:
    graded = read_table(grades, ("item_id", "sample", "verdict", "normalised"), grade)
    sampled = read_table(samples, ("item_id", "sample", "prompt_sha256", "tokens"), sample)
    if grade.get("samples_sha256") != sample["sha256"]:
        raise CorruptInputError(
            f"{grades}: graded other samples than {samples} (samples_sha256 {str(grade.get('samples_sha256'))[:12]}, "
            f"now {sample['sha256'][:12]}); grade again"
        )
    items, grade_order = grid(graded, grades)
    sampled_items, sample_order = grid(sampled, samples)
    if items != sampled_items or sampled.num_rows != graded.num_rows:
        one_sided = sorted(set(items) ^ set(sampled_items))
        raise CorruptInputError(
            f"{grades}: {graded.num_rows} rows of {len(items)} items, but {samples} has {sampled.num_rows} of "
            f"{len(sampled_items)}" + (f"; first item on one side only: {one_sided[0]!r}" if one_sided else "")
        )

    def by_item(values: Sequence[Any], order: NDArray[np.intp], kind: type) -> NDArray[Any]:
        return np.array(values, dtype=kind)[order].reshape(len(items), -1)

    verdict_IK = by_item([VERDICTS.index(word) for word in graded["verdict"].to_pylist()], grade_order, int)
    answer_IK = by_item(graded["normalised"].to_pylist(), grade_order, object)
    lengths = [np.nan if length is None else length for length in sampled["tokens"].to_pylist()]
    tokens_IK = by_item(lengths, sample_order, float)
    prompt_IK = by_item(sampled["prompt_sha256"].to_pylist(), sample_order, object)
    if several := np.flatnonzero((prompt_IK != prompt_IK[:, :1]).any(1)).tolist():
        raise CorruptInputError(f"{samples}: item {items[several[0]]!r} was asked with several prompts")
    right_IK = verdict_IK == VERDICTS.index(Verdict.CORRECT)
    return Graded(Samples(items, right_IK, tuple(prompt_IK[:, 0])), verdict_IK, answer_IK, tokens_IK)
