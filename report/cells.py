"""Fill a table's declaration with numbers: one `Cell` per row and column, each knowing where it came from.

Values are fractions here, as in scores.csv; `percent` and `interval` are the only places that turn them into percent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from records.layout import BASE, Checkpoint
from report import estimates
from report.results import Tree
from report.spec import AVERAGES, Block, Row, Table

State = Literal["measured", "missing", "not run"]
NOT_RUN: State = "not run"  # this scale does not plan the run or the benchmark
MISSING: State = "missing"  # planned, but scores.csv has no figure for it


@dataclass(frozen=True)
class Cell:
    """One number of a table. Value and interval are fractions; None where `state` is not `measured`."""

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

    @property
    def shown(self) -> str:
        """The number as printed, in percent; or why there is none."""
        return percent(self.value) if self.value is not None else self.state


@dataclass(frozen=True)
class FilledRow:
    row: Row
    label: str
    model: str
    method: str | None
    step: int | None
    cells: Mapping[str, Cell]

    @property
    def seeds(self) -> tuple[int, ...]:
        """Training seeds behind the row; empty for the base model and for a row without figures."""
        return tuple(sorted({seed for cell in self.cells.values() for seed in cell.seeds}))

    @property
    def ran(self) -> bool:
        return any(cell.state != NOT_RUN for cell in self.cells.values())


@dataclass(frozen=True)
class FilledBlock:
    model: Mapping[str, Any]
    title: str | None
    stands_for: str | None  # the paper's model, None where the model is the paper's own
    rows: tuple[FilledRow, ...]
    best: Mapping[str, str]  # column -> highest printed value of the block's methods


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
    columns: tuple[Column, ...]
    blocks: tuple[FilledBlock, ...]
    notes: tuple[str, ...]

    @property
    def cells(self) -> list[Cell]:
        return [
            cell for block in self.blocks for row in block.rows for cell in (row.cells[c.slot] for c in self.columns)
        ]


def fill(table: Table, tree: Tree) -> FilledTable:
    """Every cell of `table` from the scores of `tree`.

    A block whose model the scale does not have is left out with a note; a row whose run is not planned says `not run`;
    a planned one without scores says `missing` and is listed in the notes.
    """
    columns = tuple(_column(slot, heading, tree) for slot, heading in table.columns.items())
    blocks, notes = [], []
    for block in table.blocks:
        model = tree.model_for(block.model, table.models[block.model])
        if model is None:
            notes.append(f"Rows of {table.models[block.model]} are left out: no model of this scale stands for it.")
        else:
            blocks.append(_block(block, model, table, columns, tree))
    for column in columns:
        if column.benchmark is None:
            notes.append(f"Column {column.heading}: no benchmark of this scale stands for it.")
    filled = FilledTable(table, tree.scale, columns, tuple(blocks), ())
    notes += [*_settings(filled), *_gaps(filled, tree)]
    return FilledTable(table, tree.scale, columns, tuple(blocks), tuple(dict.fromkeys(notes)))


def percent(value: float | None) -> str:
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


def _settings(filled: FilledTable) -> list[str]:
    """Rows whose method this scale runs with other settings than the catalog's, which the label does not tell."""
    return [
        f"{row.label} is run as {row.method} at this scale."
        for block in filled.blocks
        for row in block.rows
        if row.method not in (None, row.row.method)
    ]


def _gaps(filled: FilledTable, tree: Tree) -> list[str]:
    """Planned checkpoints that scores.csv does not have: whole cells, or seeds a mean had to do without."""
    planned = {
        checkpoint
        for block in filled.blocks
        for row in block.rows
        if row.method is not None
        for checkpoint in _planned(row.row, row.model, row.method, tree)
    }
    scored = {checkpoint for checkpoint, _ in tree.scores}
    return [f"Missing: {c.path.as_posix()} has no scores." for c in sorted(planned - scored)]


def _planned(row: Row, model: str, method: str | None, tree: Tree) -> list[Checkpoint]:
    if method == BASE:
        return [c for c in tree.checkpoints if c == Checkpoint.base(model)]
    step = row.step if row.step is not None else int(tree.matrix["table_step"])
    runs = [run for run in tree.runs if (run.model, run.method) == (model, method)]
    wanted = [Checkpoint(run, step) for run in runs if row.seeds is None or run.seed in row.seeds]
    return [checkpoint for checkpoint in wanted if checkpoint in tree.checkpoints]


def _column(slot: str, heading: str, tree: Tree) -> Column:
    if slot in AVERAGES:
        return Column(slot, heading, None, slot, heading)
    benchmark = tree.benchmark_for(slot, heading)
    if benchmark is None:
        return Column(slot, heading, None, None, heading)
    stands_for = benchmark.get("stands_for")
    key = str(benchmark["key"])
    return Column(slot, key if stands_for else heading, heading if stands_for else None, key, str(benchmark["title"]))


def _block(block: Block, model: Mapping[str, Any], table: Table, columns: Sequence[Column], tree: Tree) -> FilledBlock:
    rows: dict[str, FilledRow] = {}
    for row in block.rows:
        filled = _difference(row, model, rows, columns, tree) if row.delta else _run(row, model, columns, tree)
        if filled.ran or not row.optional:
            rows[row.id] = filled
    best: dict[str, str] = {}
    for column in columns:
        shown = [
            percent(v) for r in rows.values() if r.row.delta is None and (v := r.cells[column.slot].value) is not None
        ]
        if len(shown) > 1:
            best[column.slot] = max(shown, key=float)
    stands_for = table.models[block.model] if model.get("stands_for") else None
    return FilledBlock(model, block.title, stands_for, tuple(rows.values()), best)


def is_best(cell: Cell, block: FilledBlock, row: FilledRow) -> bool:
    """Whether the printed number is the highest of its column in the block; a difference never is."""
    return row.row.delta is None and cell.value is not None and percent(cell.value) == block.best.get(cell.column)


def _run(row: Row, model: Mapping[str, Any], columns: Sequence[Column], tree: Tree) -> FilledRow:
    key, method = str(model["key"]), tree.method_for(row.method or "")
    planned = _planned(row, key, method, tree)
    step = planned[0].step if planned else None
    cells = {column.slot: _cell(row, column, planned, tree) for column in columns}
    return FilledRow(row, row.label.replace("{model}", str(model["title"])), key, method, step, cells)


def _cell(row: Row, column: Column, planned: Sequence[Checkpoint], tree: Tree) -> Cell:
    if not planned or column.benchmark is None:
        return Cell(row.id, column.slot, NOT_RUN, column.benchmark)
    there = {c: s for c in planned if (s := tree.scores.get((c, column.benchmark))) is not None}
    scores = {c: s for c, s in there.items() if s.value is not None}
    if not scores:  # a row without a figure is a benchmark that was left out on purpose
        state = NOT_RUN if len(there) == len(planned) else MISSING
        return Cell(row.id, column.slot, state, column.benchmark, checkpoints=tuple(planned))
    estimate = estimates.over_seeds(scores)
    return _measured(row, column, estimate, tuple(scores))


def _difference(
    row: Row, model: Mapping[str, Any], rows: Mapping[str, FilledRow], columns: Sequence[Column], tree: Tree
) -> FilledRow:
    """Row a minus row b of `row.delta`, on the seeds that both have."""
    assert row.delta is not None
    cells = {}
    for column in columns:
        parts = [rows[name].cells[column.slot] if name in rows else None for name in row.delta]
        a, b = parts
        if a is None or b is None or a.value is None or b.value is None:
            states = {part.state if part else NOT_RUN for part in parts} - {"measured"}
            state: State = MISSING if MISSING in states else NOT_RUN
            cells[column.slot] = Cell(row.id, column.slot, state, column.benchmark)
            continue
        estimate = estimates.difference(tree, column.benchmark or "", a.checkpoints, b.checkpoints)
        if estimate is None:  # the two rows have no seed in common
            cells[column.slot] = Cell(row.id, column.slot, MISSING, column.benchmark)
        else:
            cells[column.slot] = _measured(row, column, estimate, (*a.checkpoints, *b.checkpoints))
    return FilledRow(row, row.label.replace("{model}", str(model["title"])), str(model["key"]), None, None, cells)


def _measured(row: Row, column: Column, estimate: estimates.Estimate, checkpoints: tuple[Checkpoint, ...]) -> Cell:
    return Cell(
        row=row.id,
        column=column.slot,
        state="measured",
        benchmark=column.benchmark,
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        level=estimate.level,
        how=estimate.how,
        n=estimate.n,
        seeds=tuple(sorted({c.run.seed for c in checkpoints if c.run.method != BASE})),
        checkpoints=checkpoints,
    )
