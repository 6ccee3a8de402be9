"""The kinds of test that a claim can name in `claims.yaml`: one small function each.

A test asks a `Source` (the printed tables, or a results tree) for contrasts, and says on which side of their null the
claim puts them and how many may fail; `paper.claims.ledger` decides. Rows are ids of printed rows
(`paper/tables/rows.csv`); a list of rows is one row for each of several models, taken together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from core.errors import unknown
from core.files import read_csv
from core.provenance import ROOT
from paper.claims.contrast import Contrast, Gap, of_share
from paper.printed import AVERAGE

DATA = ("paper/formulas.csv",)
FORMULAS = ROOT / DATA[0]  # on how many policies each formula holds; `tests/paper/test_formulas.py` counts them again
Side = Literal["above", "below"]
Rows = str | Sequence[str]
LEAST_KEPT = 0.75  # share of the first rollout's entropy that is left at the end where entropy counts as held
SCORE = "score"  # the measure that has a column: share of right responses
MATCHED = "sweep/matched.csv"  # what `report.frontier` writes, below the results folder


class Source:
    """Where numbers come from. Every method raises `contrast.Gap` when it has none."""

    def difference(
        self, left: Rows, right: Rows, measure: str, column: str, null: float, times: float = 1.0
    ) -> Contrast:
        """left minus `times` right, held against `null`; several rows: the mean over models."""
        raise NotImplementedError

    def ratio(self, left: Rows, right: Rows, measure: str, null: float) -> Contrast:
        """left over right."""
        raise Gap("learning curves are drawn, not printed as numbers")

    def value(self, rows: Rows, measure: str, null: float) -> Contrast:
        """The mean of the rows."""
        raise Gap(f"{measure.replace('_', ' ')} is not printed")

    def matched(self, left: str, right: str) -> Contrast:
        """Area under the reward curve of left minus that of right, where both moved the policy equally far."""
        raise Gap("no movement of a policy is printed")

    def bases(self, runs: Sequence[str]) -> str:
        """Which models are behind a contrast's `runs`, and of which family their bases are."""
        raise NotImplementedError

    def spread(self, steadier: Rows, than: Rows, column: str, measure: str = SCORE) -> Contrast:
        """Standard deviation over seeds, the first over the second, held against 1."""
        raise NotImplementedError

    def collapsed(self, row: str, by: int, below: float) -> Contrast:
        """What the run still gets right after `by` steps, held against `below`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Outcome:
    contrasts: tuple[Contrast, ...]
    side: Side = "above"  # of its null, on which the claim puts every contrast
    allow: int = 0  # so many contrasts may be elsewhere


def difference_of_rows(
    source: Source, *, left: Rows, right: Rows, column: str = AVERAGE, least: float = 0.0
) -> Outcome:
    """left is above right, by more than `least` (a fraction)."""
    return Outcome((source.difference(left, right, SCORE, column, least),))


def highest(
    source: Source, *, over: Mapping[str, Sequence[str]], columns: Sequence[str] = (AVERAGE,), measure: str = SCORE
) -> Outcome:
    """Each row is above all the rows it is listed over, in every column."""
    pairs = [(top, other, column) for top, others in over.items() for other in others for column in columns]
    return Outcome(tuple(source.difference(top, other, measure, column, 0.0) for top, other, column in pairs))


def ordering(source: Source, *, tiers: Sequence[Sequence[str]], column: str = AVERAGE) -> Outcome:
    """Every row of a tier is above every row of the next one."""
    pairs = [(a, b) for upper, lower in pairwise(tiers) for a in upper for b in lower]
    return Outcome(tuple(source.difference(a, b, SCORE, column, 0.0) for a, b in pairs))


def rank(source: Source, *, row: str, among: Sequence[str], column: str, place: int) -> Outcome:
    """At most place - 1 of the other rows are above the row."""
    contrasts = tuple(source.difference(row, other, SCORE, column, 0.0) for other in among)
    return Outcome(contrasts, allow=place - 1)


def convergence(source: Source, *, left: Rows, right: Rows, measure: str, factor: float = 1.0) -> Outcome:
    """left needs less than `factor` times the rollouts of right."""
    return Outcome((source.ratio(left, right, measure, factor),), "below")


def curve_ratio(source: Source, *, left: Rows, right: Rows, measure: str, side: Side = "above") -> Outcome:
    """A positive figure of left's learning curve over right's is above (or below) 1."""
    return Outcome((source.ratio(left, right, measure, 1.0),), side)


def gain_kept(source: Source, *, held: Rows, free: Rows, measure: str, share: float) -> Outcome:
    """With entropy held, less than this share of the figure of free's learning curve is left.

    Raises `Gap` when entropy was not held: then nothing follows.
    """
    kept = source.value(held, "entropy_kept", 1.0)
    if kept.value is not None and kept.value < LEAST_KEPT:
        raise Gap(f"entropy was not held: {100 * kept.value:.0f} % of it is left; {100 * LEAST_KEPT:.0f} % are needed")
    return Outcome((source.difference(held, free, measure, AVERAGE, 0.0, times=share),), "below")


def curve_mean_difference(source: Source, *, left: Rows, right: Rows, measure: str, side: Side = "above") -> Outcome:
    """A figure of left's learning curve is above (or below) right's."""
    return Outcome((source.difference(left, right, measure, AVERAGE, 0.0),), side)


def equal_movement(source: Source, *, left: str, right: str) -> Outcome:
    """Where both moved the policy equally far, left's area under the reward curve is above right's."""
    return Outcome((source.matched(left, right),))


def sign_agreement(source: Source, *, rows: Rows, against: float) -> Outcome:
    """On more than this share of tokens entropy moves against the sign of the advantage (Theorem 3.1)."""
    return Outcome((source.value(rows, "sign_agreement", against),))


def collapse_by(source: Source, *, row: str, by: int, below: float) -> Outcome:
    """After `by` steps, or at the end of a shorter run, less than `below` of the answers are right."""
    return Outcome((source.collapsed(row, by, below),), "below")


def seed_spread(source: Source, *, steadier: Rows, than: Rows, column: str = AVERAGE, measure: str = SCORE) -> Outcome:
    """The scores, or another figure, of the first rows differ less between seeds than those of the others."""
    return Outcome((source.spread(steadier, than, column, measure),), "below")


def algebra(source: Source, *, check: str, against: float) -> Outcome:
    """A printed formula holds for more than this share of random softmax policies: the counts of `FORMULAS`."""
    columns = ("check", "holds", "policies", "drawn", "figures")
    rows = {row["check"]: row for row in read_csv(FORMULAS, "counts of the formulas", columns)}
    if check not in rows:
        raise unknown("algebra", "check", check, rows)
    row = rows[check]
    how = f"{row['holds']} of {row['policies']} {row['drawn']}, Clopper-Pearson"
    how = "; ".join(part for part in (how, row["figures"]) if part)
    return Outcome((of_share(f"{check} holds", int(row["holds"]), int(row["policies"]), null=against, how=how),))


KINDS: dict[str, Callable[..., Outcome]] = {
    kind.__name__: kind
    for kind in (
        difference_of_rows, highest, ordering, rank, convergence, curve_ratio, curve_mean_difference, equal_movement,
        gain_kept, sign_agreement, collapse_by, seed_spread, algebra,
    )
}  # fmt: skip


def listed(rows: Rows) -> list[str]:
    """A list of rows is one row per model."""
    return [rows] if isinstance(rows, str) else list(rows)


def rows_of(arguments: Mapping[str, object]) -> list[str]:
    """Every row that the arguments of a test name."""

    def named(value: object) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from named([*value, *value.values()])
        elif isinstance(value, Sequence):
            for part in value:
                yield from named(part)

    sides = ("left", "right", "row", "rows", "among", "over", "tiers", "steadier", "than", "held", "free")
    return list(dict.fromkeys(named([arguments.get(side, ()) for side in sides])))
