"""Fill a table's declaration with numbers: scores over seeds, differences, and each row against its baseline.

The statistics are those of `evals.stats`. What is decided here is which checkpoints stand behind a cell, what it is
compared with, and which comparisons of a table are corrected together. The result goes to the tidy file
(`report.tables.tidy`), from which everything else is shown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from paper import printed
from records.errors import ConfigError, unknown
from records.files import write_text
from records.layout import BASE, Checkpoint
from records.results_tree import Tree
from report.tables import again
from report.tables.spec import AVERAGES, BEST, DELTA, MEASURES, Block, Row, Table
from report.tables.tidy import (
    MEASURED,
    MISSING,
    NOT_COMPARED,
    NOT_RUN,
    Cell,
    Column,
    at_value,
    columns_of,
    is_part_of,
    method_of,
    model_of,
    planned,
    stand_in,
    tidy_csv,
    with_options,
)

if TYPE_CHECKING:
    from evals.stats.estimate import Comparison

# `evals.stats` is imported where it is used: Snakemake imports this file in every job of a cluster, through
# `report.tables.check`, and would load numpy and scipy for nothing.

ALPHA = 0.05  # a difference whose corrected p is not below this is called inside noise
PRINTED_ID = re.compile(r"T\d+\.\d+")  # such ids belong to the paper's rows
PRINTED_STEPS = {72: None, 132: "long"}  # the paper's rollouts -> `step` of a declared row

Cells = dict[str, Cell]  # cells of one row by column
Rows = dict[str, Cells]  # by id of the row
Family = dict[tuple[object, object], float | None]  # p by the runs of both sides: each comparison of a column once


def fill(table: Table, tree: Tree) -> list[Cell]:
    """Every cell of `table` from the scores of `tree`: block by block, row by row, column by column; then the A/A arm.

    A block whose model the scale does not have is left out. A row whose run is not planned says `not run`, a planned
    one without scores `missing`. A table about a variant is empty where nothing is trained under it.

    Raises `ConfigError` where a row has the id of a printed row and is another run; `CorruptInputError` where the
    scores contradict the grades.
    """
    for block in table.blocks:
        for row in block.rows:
            check_printed(row, block, table.source)
    if not is_part_of(tree, table):
        return []
    columns = columns_of(table, tree)
    rows: Rows = {}
    for block in table.blocks:
        model = model_of(tree, table, block.model)
        if model is not None:
            # What a sweep chose for each method is not what the paper printed.
            own_model = stand_in(str(model["title"]), table.models[block.model]) is None and not tree.chosen
            rows |= _fill_block(block, model, columns, tree, own_model=own_model)
    # Only now: the baseline of a block may stand in another one.
    for block in table.blocks:
        for row in block.rows:
            if row.id in rows:
                rows[row.id] = {slot: _compare(cell, block, rows, tree) for slot, cell in rows[row.id].items()}
    if table.generated:
        for block in table.blocks:
            _add_comparisons(block, rows)
    families = {column.slot: _correct(column.slot, table, rows) for column in columns}
    order = [row.id for row in table.rows if row.id in rows]
    cells = [rows[id][column.slot] for id in order for column in columns]
    return cells + [cell for arm in again.arms(tree) for cell in _fill_again(arm, columns, families, tree)]


def write(table: Table, tree: Tree) -> str:
    """Fill the table and write its tidy file; returns the path."""
    path = tree.layout.tables / f"table{table.key}.tidy.csv"
    write_text(path, tidy_csv(fill(table, tree)))
    return str(path)


def check_printed(row: Row, block: Block, where: str) -> None:
    """Raise when `row` has the id of a printed row but is another model, method, seed, step or combination of rows.

    The paper's number would otherwise stand beside that of another run.
    """
    if not PRINTED_ID.fullmatch(row.id):
        return
    paper = _paper().get(row.id)
    if paper is None:
        raise unknown(where, "row id (the form T1.2 is the paper's)", row.id, _paper())
    compared: list[tuple[str, object, object]] = [("model", block.model, paper.model), ("kind", row.kind, paper.kind)]
    if row.kind == paper.kind and paper.run is not None:
        compared.append(("method", row.method, paper.run.method))
        if row.seeds is not None:  # where a row takes every seed there is, the printed one is one of them
            compared.append(("seeds", row.seeds, (paper.run.seed,)))
        compared.append(("step", row.step, None if paper.run.steps is None else PRINTED_STEPS[paper.run.steps]))
    else:
        compared.append(("made of", row.of, paper.of))
    for what, ours, theirs in compared:
        if ours != theirs:
            raise ConfigError(f"{where}: row {row.id}: {what} {ours!r}, but the printed row is {theirs!r}")


def printed_value(row: str, slot: str) -> Decimal | None:
    """What the paper prints in this row and column, as a fraction with the printed digits; None where it prints
    nothing, and for the macro average."""
    paper = _paper().get(row)
    percent = None if paper is None else paper.cells.get(printed.AVERAGE if slot == "avg_pooled" else slot)
    return None if percent is None else percent.scaleb(-2)


def printed_whole(row: str) -> bool:
    """Whether the printed row has a number in every column: else its average counts the absent benchmarks as wrong."""
    paper = _paper().get(row)
    return paper is not None and None not in paper.cells.values()


@cache
def _paper() -> Mapping[str, printed.Row]:
    return printed.read()


# The cells of one block.


def _fill_block(
    block: Block, model: Mapping[str, Any], columns: Sequence[Column], tree: Tree, *, own_model: bool
) -> Rows:
    """The block's rows; one with `when: run` is there only if the scale plans it."""
    filled: Rows = {}
    for kind in ("base", "run", "mean", "delta"):  # runs first, then what is computed from them
        for row in block.rows:
            if row.kind == kind:
                filled[row.id] = _fill_row(row, block, model, filled, columns, tree)
    optional = {row.id for row in block.rows if row.when is not None}
    return {
        id: {c.slot: _with_printed(cells[c.slot], c, columns, tree, own_model=own_model) for c in columns}
        for id, cells in filled.items()
        if id not in optional or any(cell.state != NOT_RUN for cell in cells.values())
    }


def _fill_row(
    row: Row, block: Block, model: Mapping[str, Any], earlier: Rows, columns: Sequence[Column], tree: Tree
) -> Cells:
    """earlier: the rows of the block that a derived row may be computed from."""
    checkpoints: list[Checkpoint] = []  # behind the row as a whole: its step and its collapses are theirs
    step = row.step
    if row.delta is not None:
        a, b = (earlier[name] for name in row.delta)
        method: str | None = f"{row.delta[0]} - {row.delta[1]}"
        contents = {c.slot: _difference(a[c.slot], b[c.slot], row.delta[1], c, tree) for c in columns}
    elif row.mean is not None:
        parts = [earlier[name] for name in row.mean]
        method = parts[0][columns[0].slot].method
        step = next(other.step for other in block.rows if other.id == row.mean[0])
        contents = {c.slot: _mean([part[c.slot] for part in parts], c, tree) for c in columns}
        checkpoints = [Checkpoint.parse(run) for content in contents.values() for run in content.get("runs", ())]
    else:
        method = method_of(row, str(model["key"]), tree)
        checkpoints = planned(row, str(model["key"]), tree)
        contents = {c.slot: _score(checkpoints, c, tree) for c in columns}
    name = row.label if row.method is None or method is None else with_options(row.label, row.method, method)
    if tree.chosen and row.numbers is None and method is not None:
        name = at_value(name, str(model["key"]), method, tree)
    label = name.replace("{model}", str(model["title"])).replace("{step}", str(tree.step(step) or "more"))
    collapsed = _collapses(checkpoints, tree)  # reads run records: once per row and not once per cell
    return {
        column.slot: Cell(
            row=row.id,
            label=label,
            kind=row.kind,
            block=block.title,
            model=str(model["key"]),
            method=method,
            step=checkpoints[0].step if checkpoints else None,
            column=column.slot,
            benchmark=column.benchmark,
            collapsed=collapsed,
            **contents[column.slot],
        )
        for column in columns
    }


# The columns of the tidy file in which the cells of one row differ: state, value, interval, seeds, runs, versus.
Content = dict[str, Any]


def _score(wanted: Sequence[Checkpoint], column: Column, tree: Tree) -> Content:
    """One seed: the score as it is, its interval over problems. Several: their mean, its interval over seeds."""
    if column.slot in MEASURES:
        return _measure(wanted, column.slot, tree)
    if column.slot in (DELTA, BEST):  # filled when the whole block is there: `_add_comparisons`
        return {"state": NOT_COMPARED}
    if not wanted or column.benchmark is None:
        return {"state": NOT_RUN}
    there = {c: score for c in wanted if (score := tree.scores.get((c, column.benchmark))) is not None}
    scores = {c: score for c, score in there.items() if score.value is not None}
    if not scores:  # a score without a value is of a benchmark that was left out on purpose
        return {"state": NOT_RUN if len(there) == len(wanted) else MISSING, "runs": _paths(wanted)}
    values = {c.run.seed: score.value for c, score in scores.items() if score.value is not None}
    if len(values) == 1:
        (score,) = scores.values()
        return _measured(score.value, score, score.items, scores, values)
    from evals.stats import compare

    first = next(iter(scores))
    mean = compare.over_seeds(
        values, **tree.once(_spread, column.benchmark, first.run.model, first.run.variant, first.step)
    )
    return _measured(mean.value, mean, mean.n, scores, values)


def _measure(wanted: Sequence[Checkpoint], key: str, tree: Tree) -> Content:
    """A measure of the runs' learning curves over seeds; an untrained model has none."""
    from evals import learning_curves
    from evals.stats import compare

    if not wanted:
        return {"state": NOT_RUN}
    checkpoints = [checkpoint for checkpoint in wanted if checkpoint.run.method != BASE]
    if not checkpoints:
        return {"state": NOT_COMPARED}
    figures = {c: tree.once(learning_curves.measure_run, c.run).values[key] for c in checkpoints}
    measured = {c: value for c, value in figures.items() if value is not None}
    if not measured:
        return {"state": MISSING, "runs": _paths(checkpoints)}
    by_seed = {c.run.seed: value for c, value in measured.items()}
    run = checkpoints[0].run
    mean = compare.over_seeds(by_seed, **tree.once(_spread_of_measure, key, run.model, run.variant))
    return _measured(mean.value, mean, mean.n, measured, by_seed)


def _spread(tree: Tree, benchmark: str, model: str, variant: str | None, step: int) -> dict[str, Any]:
    """`answers` and `shared` of `evals.stats.compare`, from all runs of a model under one variant after `step`.

    Of that model alone: seeds of two models differ by other amounts, and a spread that all models share covers too
    often where it is smaller (docs/statistics.md).
    """
    from evals.stats import compare

    rows: dict[str, dict[int, float]] = {}
    answers = math.inf
    for (checkpoint, key), score in tree.scores.items():
        run = checkpoint.run
        like_it = (key, checkpoint.step, run.model, run.variant) == (benchmark, step, model, variant)
        if like_it and run.method != BASE and score.value is not None:
            rows.setdefault(run.method, {})[run.seed] = score.value
            answers = min(answers, score.responses or math.inf)
    return {"answers": answers, "shared": compare.shared_spread(rows, answers=answers)}


def _spread_of_measure(tree: Tree, measure: str, model: str, variant: str | None) -> dict[str, Any]:
    """Likewise of a measure of the learning curves, which is no share of so many answers."""
    from evals import learning_curves
    from evals.stats import compare

    rows: dict[str, dict[int, float]] = {}
    for run in tree.runs:
        if (run.model, run.variant) == (model, variant):
            value = tree.once(learning_curves.measure_run, run).values[measure]
            if value is not None:
                rows.setdefault(run.method, {})[run.seed] = value
    return {"shared": compare.shared_spread(rows)}


def _mean(parts: Sequence[Cell], column: Column, tree: Tree) -> Content:
    """The mean over the seeds of several cells, which all must be measured."""
    gap = _gap(parts)
    return {"state": gap} if gap else _score([c for part in parts for c in part.checkpoints], column, tree)


def _difference(a: Cell, b: Cell, minus: str, column: Column, tree: Tree) -> Content:
    """a - b, on the seeds that both have. minus: the row of b."""
    gap = _gap((a, b))
    comparison = None if gap else difference(tree, column.benchmark or "", a.checkpoints, b.checkpoints)
    if comparison is None or comparison.difference is None:  # without a gap: no seed in common
        return {"state": gap or MISSING}
    checkpoints = dict.fromkeys([*a.checkpoints, *b.checkpoints])
    left, right = a.seed_values, b.seed_values
    by_seed = {seed: left[seed] - right[seed] for seed in left if seed in right}
    content = _measured(comparison.difference, comparison, comparison.n, checkpoints, by_seed)
    return content | _versus(comparison, minus)


def _gap(cells: Sequence[Cell]) -> str | None:
    """Why a number computed from these cells cannot be had; None when all are measured."""
    states = {cell.state for cell in cells}
    return MISSING if MISSING in states else NOT_RUN if NOT_RUN in states else None


def _measured(
    value: float | None,
    source: Any,
    n: int | None,
    checkpoints: Iterable[Checkpoint],
    by_seed: Mapping[int, float] | None = None,
) -> Content:
    """source: whatever has the interval, its level and how it was made: a score, an estimate or a comparison."""
    checkpoints = list(checkpoints)
    return {
        "state": MEASURED,
        "value": value,
        "by_seed": () if by_seed is None else tuple(f"{seed}:{by_seed[seed]!r}" for seed in sorted(by_seed)),
        "low": source.low,
        "high": source.high,
        "level": source.level,
        "how": source.how,
        "n": n,
        "seeds": tuple(sorted(_seeds(checkpoints))),
        "runs": _paths(checkpoints),
    }


def _seeds(checkpoints: Sequence[Checkpoint]) -> set[int]:
    """Seeds that a number is about. A single base has none: it says nothing about other bases."""
    bases = {c.run for c in checkpoints if c.run.method == BASE}
    return {c.run.seed for c in checkpoints if c.run.method != BASE or len(bases) > 1}


def _paths(checkpoints: Iterable[Checkpoint]) -> tuple[str, ...]:
    return tuple(checkpoint.path.as_posix() for checkpoint in checkpoints)


def _collapses(checkpoints: Sequence[Checkpoint], tree: Tree) -> tuple[str, ...]:
    """`seed<k>:<rollout>/<rollouts planned>` for each run behind a row that lost its reward."""
    collapses = []
    for checkpoint in dict.fromkeys(checkpoints):
        record = None if checkpoint.run.method == BASE else tree.record(checkpoint.run)
        if record is not None and record.get("collapsed_at") is not None:
            rollouts = (record["spec"].get("training") or {}).get("rollouts")
            collapses.append(f"seed{checkpoint.run.seed}:{int(record['collapsed_at'])}/{rollouts or ''}")
    return tuple(collapses)


def _with_printed(cell: Cell, column: Column, columns: Sequence[Column], tree: Tree, *, own_model: bool) -> Cell:
    """The cell with the paper's value. The two may be set side by side only where nothing is a stand-in; for an
    average, nothing that it averages, and no benchmark that the paper left out and counted as wrong."""
    value = printed_value(cell.row, cell.column)
    if value is None:
        return cell
    if column.slot in AVERAGES:
        parts = [c for c in columns if c.slot not in AVERAGES]
        averaged = {c.benchmark for c in parts if c.stands_for is None}
        every_benchmark = averaged == {str(b["key"]) for b in tree.benchmarks} and len(averaged) == len(parts)
        own_benchmark = every_benchmark and printed_whole(cell.row)
    else:
        own_benchmark = column.benchmark is not None and column.stands_for is None
    return cell.model_copy(update={"printed": value, "comparable": own_benchmark and own_model})


# Each row against its block's baseline, and what of the difference may be chance.


def difference(
    tree: Tree, benchmark: str, left: Sequence[Checkpoint], right: Sequence[Checkpoint]
) -> Comparison | None:
    """left minus right, paired: by seed if several are common, by problem if one is.

    None when no seed is common, or when the two sides are the same checkpoints there: that compares nothing.
    """
    # Runs with the same seed saw the same prompts and began at the same weights: their difference has less noise than
    # that of the two means.
    a, b = ({checkpoint.run.seed: checkpoint for checkpoint in side} for side in (left, right))
    common = sorted(set(a) & set(b))
    if not common or all(a[seed] == b[seed] for seed in common):
        return None
    if len(common) == 1:
        from evals.score import difference_of_scores

        return difference_of_scores(tree, benchmark, a[common[0]], b[common[0]])
    from evals.stats import compare

    values = [{seed: tree.scores[side[seed], benchmark].value for seed in common} for side in (a, b)]
    known = [{seed: value for seed, value in side.items() if value is not None} for side in values]
    # The baseline's settings: an A/A arm has them too, and its variant has no other rows.
    run = b[common[0]].run
    spread = tree.once(_spread, benchmark, run.model, run.variant, a[common[0]].step)
    comparison = compare.compare_seeds(*known, **spread)
    return None if comparison.difference is None else comparison


def _compare(cell: Cell, block: Block, rows: Rows, tree: Tree) -> Cell:
    """The cell with its difference to the block's baseline.

    A difference row is its own comparison. A base model is not compared: it is what all rows start from.
    """
    if cell.baseline is not None or cell.value is None or cell.kind == "base" or block.baseline not in rows:
        return cell
    other = rows[block.baseline][cell.column]
    if other.value is None:
        return cell
    if cell.column in MEASURES:
        comparison = _difference_of_seeds(cell, other, tree)
    else:
        comparison = difference(tree, cell.benchmark or "", cell.checkpoints, other.checkpoints)
    return cell if comparison is None else cell.model_copy(update=_versus(comparison, block.baseline))


def _difference_of_seeds(cell: Cell, other: Cell, tree: Tree) -> Comparison | None:
    """Of two cells by their seeds' values alone; None for a cell and itself, and without a seed in common."""
    from evals.stats import compare

    run = other.checkpoints[0].run
    spread = tree.once(_spread_of_measure, cell.column, run.model, run.variant)
    comparison = compare.compare_seeds(cell.seed_values, other.seed_values, **spread)
    return None if comparison.difference is None or cell.runs == other.runs else comparison


def _add_comparisons(block: Block, rows: Rows) -> None:
    """Two columns that follow from the average's: its difference to the baseline, and the probability of being best."""
    from evals.stats import compare

    average = {row.id: rows[row.id]["avg_pooled"] for row in block.rows if row.kind == "run"}
    for id, cell in average.items():
        if cell.versus is not None and block.baseline is not None:
            theirs = average[block.baseline].seed_values
            by_seed = {seed: value - theirs[seed] for seed, value in cell.seed_values.items() if seed in theirs}
            changes: Content = {"column": DELTA, "benchmark": None, "value": cell.versus, "n": cell.versus_n}
            changes |= {"low": cell.versus_low, "high": cell.versus_high}
            changes |= {"level": cell.versus_level, "how": cell.versus_how}
            changes |= {"by_seed": tuple(f"{seed}:{value!r}" for seed, value in by_seed.items())}
            rows[id][DELTA] = cell.model_copy(update=changes)
    measured = {id: cell.seed_values for id, cell in average.items() if cell.value is not None}
    chances, how = compare.chances_of_being_best(measured)
    for id, chance in chances.items():
        chance_of: Content = {"column": BEST, "benchmark": None, "value": chance, "level": "seed", "how": how}
        nothing = dict.fromkeys(("low", "high", "n", *(name for name in Cell.model_fields if "versus" in name)))
        rows[id][BEST] = average[id].model_copy(update=nothing | chance_of | {"by_seed": (), "baseline": None})


def _versus(comparison: Comparison, baseline: str) -> Content:
    return {
        "baseline": baseline,
        "versus": comparison.difference,
        "versus_low": comparison.low,
        "versus_high": comparison.high,
        "versus_p": comparison.p,
        "versus_level": comparison.level,
        "versus_how": comparison.how,
        "versus_n": comparison.n,
        "versus_se": comparison.se,
        "versus_df": comparison.df,
    }


def _fill_again(
    arm: again.Arm, columns: Sequence[Column], families: Mapping[str, Family], tree: Tree
) -> Iterator[Cell]:
    """The cells of an A/A arm, each corrected as if it were one more row of the table, or as the row that it is there.

    families: of each column. The table's own corrections do not count the arm.
    """
    from evals.stats.compare import holm

    block = Block(model=arm.model, rows=(), baseline=arm.once.id)
    model = next(model for model in tree.models if model["key"] == arm.model)
    rows = {row.id: _fill_row(row, block, model, {}, columns, tree) for row in (arm.once, arm.again)}
    for column in columns:
        cell = _compare(rows[arm.again.id][column.slot], block, rows, tree).model_copy(update={"kind": "again"})
        sides = cell.runs, rows[arm.once.id][column.slot].runs
        family = {**families[column.slot], sides: cell.versus_p}
        corrected = dict(zip(family, holm(list(family.values())), strict=True))
        p, tests = corrected[sides], sum(p is not None for p in corrected.values())
        inside = None if p is None else bool(p >= ALPHA)
        yield cell.model_copy(update={"versus_p_holm": p, "versus_tests": tests, "inside_noise": inside})


def _correct(slot: str, table: Table, rows: Rows) -> Family:
    """Holm's correction over the distinct comparisons of one column, written into `rows`; returns them.

    A row that repeats another's run is no second test, nor is a difference row beside its minuend.
    """
    from evals.stats.compare import detectable, holm

    minuend = {row.id: row.delta[0] for row in table.rows if row.delta is not None}
    compared: dict[str, tuple[object, object]] = {}  # row -> the runs of both sides
    p_values: Family = {}
    for id, cells in rows.items():
        cell = cells[slot]
        if cell.baseline is not None:
            compared[id] = rows[minuend.get(id, id)][slot].runs, rows[cell.baseline][slot].runs
            p_values[compared[id]] = cell.versus_p
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    tests = sum(p is not None for p in corrected.values())
    for id, sides in compared.items():
        p = corrected[sides]
        inside = None if p is None else bool(p >= ALPHA)
        cell = rows[id][slot]
        changes: Content = {"versus_p_holm": p, "versus_tests": tests, "inside_noise": inside}
        if cell.versus_se is not None and cell.versus_df is not None:
            changes["versus_detectable"] = detectable(cell.versus_se, cell.versus_df, tests)
        rows[id][slot] = cell.model_copy(update=changes)
    return p_values
