"""Fill a table's declaration with numbers: one `Cell` per row and column, each knowing where it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from records.layout import BASE, Checkpoint
from report import estimates
from report.results import Tree, plain
from report.tables import twins, versus
from report.tables.filled import (
    MISSING,
    NOT_RUN,
    Cell,
    Collapse,
    Column,
    FilledBlock,
    FilledRow,
    FilledTable,
    State,
    Versus,
    interval,
    is_best,
    percent,
)
from report.tables.row import Row, Step
from report.tables.spec import AVERAGES, Block, Table

__all__ = ["Cell", "Column", "FilledBlock", "FilledRow", "FilledTable", "fill", "interval", "is_best", "percent"]

Model = Mapping[str, Any]
"""An entry of the matrix's `models`."""


def fill(table: Table, tree: Tree) -> FilledTable:
    """Every cell of `table` from the scores of `tree`.

    A block whose model the scale does not have is left out with a note; a row whose run is not planned says `not run`;
    a planned one without scores says `missing` and is listed in the notes. A table about a variant is empty where
    nothing is trained under it.
    """
    columns = tuple(_column(slot, heading, tree) for slot, heading in table.columns.items())
    if table.variant is not None and all(run.variant != table.variant for run in tree.runs):
        return FilledTable(table, tree.scale, tuple(tree.lead), columns, (), ())
    models = {block.model: tree.model_for(block.model, table.models[block.model]) for block in table.blocks}
    notes = [
        f"Rows of {table.models[slot]} are left out: no model of this scale stands for it."
        for slot, model in models.items()
        if model is None
    ]
    notes += [f"Column {c.heading}: no benchmark of this scale stands for it." for c in columns if c.benchmark is None]
    here = [(block, model) for block in table.blocks if (model := models[block.model]) is not None]
    rows: dict[str, FilledRow] = {}
    for block, model in here:
        rows |= _rows(block, model, table.models[block.model], columns, tree)
    rows = versus.compare(table.blocks, rows, tree)
    best = _best(rows.values(), columns)
    blocks = tuple(
        FilledBlock(
            model=model,
            title=block.title,
            stands_for=_stands_for(model, table.models[block.model]),
            baseline=block.baseline,
            rows=tuple(rows[row.id] for row in block.rows if row.id in rows),
            best={(slot, mean): top for (of, slot, mean), top in best.items() if of == model["key"]},
        )
        for block, model in here
        if any(row.id in rows for row in block.rows)
    )
    filled = FilledTable(table, tree.scale, tuple(tree.lead), columns, blocks, ())
    notes += [*_settings(filled), *_collapses(filled), *_gaps(filled, tree)]
    return replace(filled, notes=tuple(dict.fromkeys(notes)))


def _rows(block: Block, model: Model, paper: str, columns: Sequence[Column], tree: Tree) -> dict[str, FilledRow]:
    """The block's rows by id: runs first, then what is computed from them; optional ones only where they are run."""
    filled: dict[str, FilledRow] = {}
    for kind, make in (("base", _run), ("run", _run), ("mean", _mean), ("delta", _difference)):
        for row in block.rows:
            if row.kind == kind:
                filled[row.id] = make(row, model, filled, columns, tree)
    own = _stands_for(model, paper) is None
    return {
        id: replace(row, cells={c.slot: _printed(row.cells[c.slot], c, columns, own, tree) for c in columns})
        for id, row in filled.items()
        if row.ran or not row.row.optional
    }


def _run(row: Row, model: Model, rows: Mapping[str, FilledRow], columns: Sequence[Column], tree: Tree) -> FilledRow:
    key, method = str(model["key"]), tree.method_for(row.method or "")
    planned = _planned(row, key, method, tree)
    cells = {column.slot: _cell(row, column, planned, tree) for column in columns}
    return _named(row, model, method, row.step, planned, cells, tree)


def _mean(row: Row, model: Model, rows: Mapping[str, FilledRow], columns: Sequence[Column], tree: Tree) -> FilledRow:
    """The mean over the seeds of `row.mean`, which all must be measured."""
    parts = [rows[name] for name in row.mean or ()]
    cells: dict[str, Cell] = {}
    for column in columns:
        gap = _gap(part.cells[column.slot] for part in parts)
        checkpoints = [c for part in parts for c in part.cells[column.slot].checkpoints]
        cells[column.slot] = (
            Cell(row.id, column.slot, gap, column.benchmark) if gap else _cell(row, column, checkpoints, tree)
        )
    behind = [c for cell in cells.values() for c in cell.checkpoints]
    return _named(row, model, parts[0].method, parts[0].row.step, behind, cells, tree)


def _difference(
    row: Row, model: Model, rows: Mapping[str, FilledRow], columns: Sequence[Column], tree: Tree
) -> FilledRow:
    """Row a minus row b of `row.delta`, on the seeds that both have."""
    assert row.delta is not None
    cells = {}
    for column in columns:
        a, b = (rows[name].cells[column.slot] for name in row.delta)
        gap = _gap((a, b))
        gain = None if gap else estimates.difference(tree, column.benchmark or "", a.checkpoints, b.checkpoints)
        if gain is None or gain.difference is None:  # without a gap: no seed in common
            cells[column.slot] = Cell(row.id, column.slot, gap or MISSING, column.benchmark)
        else:
            estimate = estimates.Estimate(gain.difference, gain.low, gain.high, gain.level, gain.how, gain.n)
            cell = _measured(row, column, estimate, (*a.checkpoints, *b.checkpoints))
            cells[column.slot] = replace(cell, versus=Versus(row.delta[1], gain))
    return _named(row, model, None, None, (), cells, tree)


def _gap(cells: Any) -> State | None:
    """Why a figure made of these cells cannot be had; None when all are measured."""
    states = {cell.state for cell in cells}
    return MISSING if MISSING in states else NOT_RUN if NOT_RUN in states else None


def _named(
    row: Row,
    model: Model,
    method: str | None,
    which: Step,
    checkpoints: Sequence[Checkpoint],
    cells: Mapping[str, Cell],
    tree: Tree,
) -> FilledRow:
    planned = tree.step(which)
    label = row.label.replace("{model}", str(model["title"])).replace("{step}", str(planned or "more"))
    step = checkpoints[0].step if checkpoints else None
    collapsed = tuple(c for checkpoint in dict.fromkeys(checkpoints) if (c := _collapse(checkpoint, tree)))
    return FilledRow(row, label, str(model["key"]), method, step, cells, collapsed)


def _collapse(checkpoint: Checkpoint, tree: Tree) -> Collapse | None:
    record = None if checkpoint.run.method == BASE else tree.record(checkpoint.run)
    if record is None or record.get("collapsed_at") is None:
        return None
    rollouts = (record["spec"].get("training") or {}).get("rollouts")
    return Collapse(checkpoint.run, int(record["collapsed_at"]), rollouts, checkpoint.step)


def _cell(row: Row, column: Column, planned: Sequence[Checkpoint], tree: Tree) -> Cell:
    if not planned or column.benchmark is None:
        return Cell(row.id, column.slot, NOT_RUN, column.benchmark)
    there = {c: s for c in planned if (s := tree.scores.get((c, column.benchmark))) is not None}
    scores = {c: s for c, s in there.items() if s.value is not None}
    if not scores:  # a row without a figure is a benchmark that was left out on purpose
        state = NOT_RUN if len(there) == len(planned) else MISSING
        return Cell(row.id, column.slot, state, column.benchmark, checkpoints=tuple(planned))
    return _measured(row, column, estimates.over_seeds(scores), tuple(scores))


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


def _planned(row: Row, model: str, method: str | None, tree: Tree) -> list[Checkpoint]:
    if method == BASE:
        return [c for c in tree.checkpoints if c == Checkpoint.base(model)]
    step = tree.step(row.step)
    runs = [run for run in tree.runs if (run.model, run.method) == (model, method)]
    wanted = [Checkpoint(run, step) for run in runs if row.seeds is None or run.seed in row.seeds] if step else []
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


def _stands_for(model: Model, paper: str) -> str | None:
    """The paper's model in whose place this one stands; None where it is that model."""
    return None if plain(model["title"]) == plain(paper) else paper


def _printed(cell: Cell, column: Column, columns: Sequence[Column], own_model: bool, tree: Tree) -> Cell:
    """The cell with the paper's value. The two may be set side by side only where nothing is a stand-in; for an
    average, nothing that it averages, and no benchmark that the paper left out and counted as wrong."""
    value = twins.value(cell.row, cell.column)
    if value is None:
        return cell
    if column.slot in AVERAGES:
        averaged = {c.benchmark for c in columns if c.slot not in AVERAGES and c.stands_for is None}
        own = averaged == {str(b["key"]) for b in tree.benchmarks} and twins.whole(cell.row)
        own = own and len(averaged) == sum(c.slot not in AVERAGES for c in columns)
    else:
        own = column.benchmark is not None and column.stands_for is None
    return replace(cell, printed=value, comparable=own and own_model)


def _best(rows: Any, columns: Sequence[Column]) -> dict[tuple[str, str, bool], str]:
    """(model, column, among means) -> highest printed value, where there is more than one."""
    shown: dict[tuple[str, str, bool], dict[object, str]] = {}
    for row in rows:
        for column in columns:
            cell = row.cells[column.slot]
            if row.row.kind != "delta" and cell.value is not None:
                values = shown.setdefault((row.model, column.slot, row.row.kind == "mean"), {})
                values[cell.checkpoints] = percent(cell.value)  # a run that is printed twice is one
    return {key: max(values.values(), key=float) for key, values in shown.items() if len(values) > 1}


def _settings(filled: FilledTable) -> list[str]:
    """Rows whose method this scale runs with other settings than the catalog's, which the label does not tell."""
    return [
        f"{row.label} is run as {row.method} at this scale."
        for row in filled.rows
        if row.row.method is not None and row.method not in (None, row.row.content[0])
    ]


def _collapses(filled: FilledTable) -> list[str]:
    return [
        f"† {row.label} ({block.model['title']}): {collapse}."
        for block in filled.blocks
        for row in block.rows
        for collapse in row.collapsed
    ]


def _gaps(filled: FilledTable, tree: Tree) -> list[str]:
    """Planned checkpoints that scores.csv does not have, whole or on some benchmark."""
    wanted = [column.benchmark for column in filled.columns if column.benchmark is not None]
    planned = {
        checkpoint
        for row in filled.rows
        if row.row.method is not None
        for checkpoint in _planned(row.row, row.model, row.method, tree)
    }
    notes = []
    for checkpoint in sorted(planned):
        without = [key for key in wanted if (checkpoint, key) not in tree.scores]
        if without:
            what = "no scores" if len(without) == len(wanted) else f"no score of {', '.join(without)}"
            notes.append(f"Missing: {checkpoint.path.as_posix()} has {what}.")
    return notes
