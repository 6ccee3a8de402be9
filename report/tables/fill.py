"""Fill a table's declaration with numbers: one `Cell` per row and column, each knowing where it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from records.errors import CorruptInputError
from records.layout import BASE, Checkpoint, Run
from records.results_tree import Score, Tree, plain
from report.tables import spec
from report.tables.spec import AVERAGES, Block, Row, Step, Table

if TYPE_CHECKING:
    from evals.stats.estimate import Comparison


# From scores to one cell: over seeds, and the difference of two rows. The statistics are `evals.stats`.


ROUNDING = 1e-9  # averages are summed in another order in the two places


@dataclass(frozen=True)
class Estimate:
    """A figure (fraction) with its interval, the level that the interval speaks about, and how it was computed."""

    value: float
    low: float | None
    high: float | None
    level: str
    how: str
    n: int | None


def over_seeds(scores: Mapping[Checkpoint, Score]) -> Estimate:
    """One seed: the score as it is, its interval over problems. Several: their mean, its interval over seeds."""
    known = {c.run.seed: s for c, s in scores.items() if s.value is not None}
    if len(known) == 1:
        (score,) = known.values()
        assert score.value is not None
        return Estimate(score.value, score.low, score.high, score.level, score.how, score.items)
    from evals.stats import compare

    mean = compare.over_seeds({seed: score.value for seed, score in known.items() if score.value is not None})
    assert mean.value is not None
    return Estimate(mean.value, mean.low, mean.high, mean.level, mean.how, mean.n)


def difference(
    tree: Tree, benchmark: str, left: Sequence[Checkpoint], right: Sequence[Checkpoint]
) -> Comparison | None:
    """left minus right, paired: by seed if several are common, by problem if one is.

    None when no seed is common, or when the two sides are the same checkpoints there: that compares nothing.
    """
    a, b = ({c.run.seed: c for c in side} for side in (left, right))
    common = sorted(set(a) & set(b))
    if not common or all(a[seed] == b[seed] for seed in common):
        return None
    if len(common) == 1:
        return _paired_problems(tree, benchmark, a[common[0]], b[common[0]])
    from evals.stats import compare

    values = [{seed: tree.scores[side[seed], benchmark].value for seed in common} for side in (a, b)]
    gain = compare.compare_seeds(*({s: v for s, v in side.items() if v is not None} for side in values))
    return None if gain.difference is None else gain


def _paired_problems(tree: Tree, benchmark: str, a: Checkpoint, b: Checkpoint) -> Comparison | None:
    x, y = (tree.scores[c, benchmark] for c in (a, b))
    if x.value is None or y.value is None:
        return None
    compared = tree.paired(a, b)
    if compared is None:
        from evals.stats.estimate import Comparison

        how = "no grades beside the scores: no paired interval"
        return Comparison(x.value - y.value, None, None, None, None, None, "problem", how, int(x.items or 0))
    gain = compared[benchmark]
    if gain.difference is None or abs(gain.difference - (x.value - y.value)) > ROUNDING:
        raise CorruptInputError(
            f"{tree.layout.scores}: {benchmark}: {a.path.as_posix()} minus {b.path.as_posix()} is "
            f"{x.value - y.value}, their grades give {gain.difference}: score again"
        )
    return gain


# What a filled table consists of: every cell with its figure, its doubt, and where both came from.
#
# Values are fractions here, as in scores.csv; `percent` and `interval` are the only places that turn them into percent.


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


# Each row against its block's baseline, and what of the difference may be chance.
#
# The comparisons are those of `evals.stats`; here is only decided which are made, and which form one family.


Rows = Mapping[str, FilledRow]
"""Filled rows of a table by id; a row that was left out is not in it."""


def compare(blocks: Sequence[Block], rows: Rows, tree: Tree) -> dict[str, FilledRow]:
    """The rows with `versus` in their cells.

    Every trained row and every mean is compared with the baseline of its block, a difference row is its own
    comparison. Holm's correction runs over the distinct comparisons of a column: a row that repeats another's run is
    no second test. A base model has no training seed, so it is not compared.
    """
    home = {row.id: block.baseline for block in blocks for row in block.rows}
    compared = {
        id: replace(row, cells={slot: _versus(cell, row, home[id], rows, tree) for slot, cell in row.cells.items()})
        for id, row in rows.items()
    }
    slots = dict.fromkeys(slot for row in compared.values() for slot in row.cells)
    return _adjusted(compared, {slot: _corrected(slot, compared) for slot in slots})


def _versus(cell: Cell, row: FilledRow, baseline: str | None, rows: Rows, tree: Tree) -> Cell:
    if cell.versus is not None or cell.value is None or row.row.kind == "base" or baseline is None:
        return cell
    other = rows[baseline].cells[cell.column] if baseline in rows else None
    if other is None or other.value is None:
        return cell
    gain = difference(tree, cell.benchmark or "", cell.checkpoints, other.checkpoints)
    return cell if gain is None else replace(cell, versus=Versus(baseline, gain))


def _corrected(slot: str, rows: Rows) -> dict[str, tuple[float | None, int]]:
    """Row id -> (corrected p, number of tests) for the comparisons of one column."""
    from evals.stats.compare import holm

    tested = {id: cell for id, row in rows.items() if (cell := row.cells[slot]).versus is not None}
    family = {_what(cell, rows): cell for cell in tested.values()}
    p_of = dict(zip(family, holm([c.versus.comparison.p for c in family.values() if c.versus]), strict=True))
    tests = sum(p is not None for p in p_of.values())
    return {id: (p_of[_what(cell, rows)], tests) for id, cell in tested.items()}


def _what(cell: Cell, rows: Rows) -> tuple[object, object]:
    """What is compared with what: the checkpoints of both sides."""
    assert cell.versus is not None
    own = rows[cell.row].row
    left = rows[own.delta[0]].cells[cell.column] if own.delta else cell
    return left.checkpoints, rows[cell.versus.baseline].cells[cell.column].checkpoints


def _adjusted(rows: Rows, found: Mapping[str, Mapping[str, tuple[float | None, int]]]) -> dict[str, FilledRow]:
    def cell(old: Cell) -> Cell:
        if old.versus is None:
            return old
        p, tests = found[old.column][old.row]
        return replace(old, versus=replace(old.versus, p_holm=p, tests=tests))

    return {id: replace(row, cells={slot: cell(old) for slot, old in row.cells.items()}) for id, row in rows.items()}


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
    rows = compare(table.blocks, rows, tree)
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
        gain = None if gap else difference(tree, column.benchmark or "", a.checkpoints, b.checkpoints)
        if gain is None or gain.difference is None:  # without a gap: no seed in common
            cells[column.slot] = Cell(row.id, column.slot, gap or MISSING, column.benchmark)
        else:
            estimate = Estimate(gain.difference, gain.low, gain.high, gain.level, gain.how, gain.n)
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
    return _measured(row, column, over_seeds(scores), tuple(scores))


def _measured(row: Row, column: Column, estimate: Estimate, checkpoints: tuple[Checkpoint, ...]) -> Cell:
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
    value = spec.value(cell.row, cell.column)
    if value is None:
        return cell
    if column.slot in AVERAGES:
        averaged = {c.benchmark for c in columns if c.slot not in AVERAGES and c.stands_for is None}
        own = averaged == {str(b["key"]) for b in tree.benchmarks} and spec.whole(cell.row)
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
