"""What a filled table consists of: every cell with its figure, its doubt, and where both came from.

Values are fractions here, as in scores.csv; `percent` and `interval` are the only places that turn them into percent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from records.layout import Checkpoint, Run
from report.tables.row import Row
from report.tables.spec import Table

if TYPE_CHECKING:
    from evals.stats.estimate import Comparison

State = Literal["measured", "missing", "not run"]
MEASURED: State = "measured"
NOT_RUN: State = "not run"  # this scale does not plan the run or the benchmark
MISSING: State = "missing"  # planned, but scores.csv has no figure for it

ALPHA = 0.05
"""A difference whose corrected p is not below this is called inside noise."""


@dataclass(frozen=True)
class Versus:
    """A cell against its baseline's: `comparison` is cell minus baseline, paired; p_holm its p corrected for the
    `tests` comparisons of the table's column (None: it could not be tested)."""

    baseline: str
    comparison: Comparison
    p_holm: float | None = None
    tests: int = 0


@dataclass(frozen=True)
class Cell:
    """One number of a table. Value and interval are fractions; None where `state` is not `measured`.

    printed: what the paper prints in this row and column (fraction, digits kept), None where the row is not the
    paper's. comparable: whether the two may be set side by side: the model and the benchmark are the paper's own.
    versus: the difference to the block's baseline; None for the baseline, a base model, and without a common seed.
    """

    row: str
    column: str
    state: State
    benchmark: str | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    level: str = ""
    how: str = ""
    n: int | None = None
    seeds: tuple[int, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    printed: Decimal | None = None
    comparable: bool = False
    versus: Versus | None = None

    @property
    def shown(self) -> str:
        """The number as printed, in percent; or why there is none."""
        return percent(self.value) if self.value is not None else self.state

    @property
    def inside_noise(self) -> bool | None:
        """Whether the difference to the baseline may be chance; None where that cannot be said, or is not asked."""
        return None if self.versus is None or self.versus.p_holm is None else self.versus.p_holm >= ALPHA


@dataclass(frozen=True)
class Collapse:
    """A run behind a row lost its reward at rollout `at` of `rollouts`; `step` is the checkpoint that is scored."""

    run: Run
    at: int
    rollouts: int | None
    step: int

    def __str__(self) -> str:
        planned = "" if self.rollouts is None else f" of {self.rollouts}"
        scored = "scored is what was left of the policy" if self.at <= self.step else f"scored is rollout {self.step}"
        return f"seed {self.run.seed} collapsed at rollout {self.at}{planned}; {scored}"


@dataclass(frozen=True)
class FilledRow:
    """method: canonical key with variant; None for a difference. collapsed: its runs whose reward went to zero."""

    row: Row
    label: str
    model: str
    method: str | None
    step: int | None
    cells: Mapping[str, Cell]
    collapsed: tuple[Collapse, ...] = ()

    @property
    def seeds(self) -> tuple[int, ...]:
        """Training seeds behind the row; empty for the base model and for a row without figures."""
        return tuple(sorted({seed for cell in self.cells.values() for seed in cell.seeds}))

    @property
    def ran(self) -> bool:
        return any(cell.state != NOT_RUN for cell in self.cells.values())

    @property
    def measured(self) -> bool:
        return any(cell.state == MEASURED for cell in self.cells.values())

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Everything behind the row's figures, each once."""
        return tuple(dict.fromkeys(c for cell in self.cells.values() for c in cell.checkpoints))


@dataclass(frozen=True)
class FilledBlock:
    model: Mapping[str, Any]
    title: str | None
    stands_for: str | None  # the paper's model, None where the model is the paper's own
    baseline: str | None
    rows: tuple[FilledRow, ...]
    best: Mapping[tuple[str, bool], str]  # column, whether among means -> highest printed value of the model's rows


@dataclass(frozen=True)
class Column:
    """A column as this scale has it: `heading` is our benchmark's key, `stands_for` the paper's where they differ."""

    slot: str
    heading: str
    stands_for: str | None
    benchmark: str | None
    title: str


@dataclass(frozen=True)
class FilledTable:
    table: Table
    scale: str
    lead: tuple[str, ...]  # what results of this scale can and cannot say
    columns: tuple[Column, ...]
    blocks: tuple[FilledBlock, ...]
    notes: tuple[str, ...]

    @property
    def rows(self) -> list[FilledRow]:
        return [row for block in self.blocks for row in block.rows]

    @property
    def cells(self) -> list[Cell]:
        return [row.cells[column.slot] for row in self.rows for column in self.columns]

    @property
    def measured(self) -> bool:
        return any(row.measured for row in self.rows)


def percent(value: float | Decimal | None) -> str:
    """A fraction in percent, `12.30` or `-0.40`; the empty string for None. -0.00 is printed as 0.00."""
    if value is None:
        return ""
    text = f"{100 * value:.2f}"
    return "0.00" if text == "-0.00" else text


def interval(cell: Cell, digits: int = 1) -> str:
    """The interval in percent, `62.1 to 80.0`; the empty string for a cell without one."""
    if cell.low is None or cell.high is None:
        return ""
    return f"{100 * cell.low:.{digits}f} to {100 * cell.high:.{digits}f}"


def is_best(cell: Cell, block: FilledBlock, row: FilledRow) -> bool:
    """Whether the printed number is the highest of its column among the model's rows; a difference never is, means
    are held against means."""
    best = block.best.get((cell.column, row.row.kind == "mean"))
    return row.row.kind != "delta" and cell.value is not None and percent(cell.value) == best
