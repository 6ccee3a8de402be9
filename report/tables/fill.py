"""Fill a table's declaration with numbers: `cells` with scores over seeds, `compare` with differences to baselines.

The statistics are those of `evals.stats`. Here is which checkpoints are behind a cell, what it is compared with, and
which comparisons of a table are corrected together. The cells are lines of the tidy file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.layout import BASE, Checkpoint
from core.results_tree import Tree
from core.scores import POOLED
from evals.stats import compare as statistics
from evals.stats.estimate import Comparison
from paper import printed
from report.tables import spec, tidy
from report.tables.spec import ALPHA, AVERAGES, BEST, DELTA, MEASURES, Block, Row, Table
from report.tables.tidy import MEASURED, MISSING, NOT_COMPARED, NOT_RUN, Cell, Column

KINDS = ("base", "run", "mean", "delta")  # of rows; each is computed from those before it
COMPARISON = ("low", "high", "p", "level", "how", "n", "se", "df")  # fields of a `Comparison`: `versus_...` of a `Cell`
AGAIN, ONCE = "again", "once"  # kinds of an A/A arm's cells; those it is compared with are in no file

Content = dict[str, Any]  # fields of a `Cell`
Place = tuple[str, str | None, str]  # model, id of the row, column


def fill(table: Table, tree: Tree) -> list[Cell]:
    """Return every cell in the order of blocks, rows and columns; then those of the A/A arm.

    A row whose run is not planned is `not run`, a planned one without scores `missing`. Raises CorruptInputError where
    the scores contradict the grades.
    """
    return compare(cells(table, tree), table, tree)


def cells(table: Table, tree: Tree) -> list[Cell]:
    """Each row's scores over its seeds, with what the paper prints; those of A/A arms at the end."""
    columns = tidy.columns_of(table, tree)
    found: list[Cell] = []
    for block in table.blocks:
        model = tidy.model_of(tree, table, block.model)
        if model is None:
            continue
        # What a sweep chose for each method is not what the paper printed.
        own_model = tidy.stand_in(str(model["title"]), table.models[block.model]) is None and not tree.chosen
        rows: dict[str, dict[str, Cell]] = {}
        for row in sorted(block.rows, key=lambda row: KINDS.index(row.kind)):
            rows[row.id] = _row(row, block, model, rows, columns, tree)
        for row in block.rows:
            of_row = list(rows[row.id].values())
            if row.when is None or any(cell.state != NOT_RUN for cell in of_row):
                found += [_with_printed(cell, columns, tree, own_model=own_model) for cell in of_row]
    for arm in spec.arms(tree):
        model = next(model for model in tree.models if model["key"] == arm.model)
        block = Block(model=arm.model, rows=())
        for kind, row in ((ONCE, arm.once), (AGAIN, arm.again)):
            of_arm = _row(row, block, model, {}, columns, tree).values()
            found += [cell.model_copy(update={"kind": kind}) for cell in of_arm]
    return found


def _row(
    row: Row,
    block: Block,
    model: Mapping[str, Any],
    earlier: Mapping[str, Mapping[str, Cell]],
    columns: Sequence[Column],
    tree: Tree,
) -> dict[str, Cell]:
    """By column. earlier: the rows of the block that a derived row may be computed from."""
    checkpoints: list[Checkpoint] = []  # behind the row as a whole: its step and its collapses are theirs
    step = row.step
    if row.delta is not None:
        a, b = (earlier[name] for name in row.delta)
        method: str | None = f"{row.delta[0]} - {row.delta[1]}"
        contents = {c.slot: _difference(a[c.slot], b[c.slot], row.delta[1], tree) for c in columns}
    elif row.mean is not None:
        parts = [earlier[name] for name in row.mean]
        method = parts[0][columns[0].slot].method
        step = next(other.step for other in block.rows if other.id == row.mean[0])
        contents = {c.slot: _mean([part[c.slot] for part in parts], c, tree) for c in columns}
        checkpoints = [Checkpoint.parse(run) for content in contents.values() for run in content.get("runs", ())]
    else:
        method = tidy.method_of(row, str(model["key"]), tree)
        checkpoints = tidy.planned(row, str(model["key"]), tree)
        contents = {c.slot: _score(checkpoints, c, tree) for c in columns}
    name = row.label if row.method is None or method is None else tidy.with_options(row.label, row.method, method)
    if tree.chosen and row.numbers is None and method is not None:
        name = tidy.at_value(name, str(model["key"]), method, tree)
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


def _score(wanted: Sequence[Checkpoint], column: Column, tree: Tree) -> Content:
    """One seed: the score as it is, its interval over problems. Several: their mean, its interval over seeds."""
    from evals import learning_curves

    if column.slot in (DELTA, BEST):  # filled when the whole block is there: `_add_comparisons`
        return {"state": NOT_COMPARED}
    if not wanted or (column.benchmark is None and column.slot not in MEASURES):
        return {"state": NOT_RUN}
    if column.slot in MEASURES:
        wanted = [checkpoint for checkpoint in wanted if checkpoint.run.method != BASE]
        if not wanted:  # an untrained model has no learning curve
            return {"state": NOT_COMPARED}
    key = column.benchmark or column.slot
    figures = {c: value for c in wanted if (value := learning_curves.figure(tree, c, key)) is not None}
    if not figures:  # a score without a value is of a benchmark that was left out on purpose
        left_out = all((c, column.benchmark) in tree.scores for c in wanted)
        return {"state": NOT_RUN if left_out else MISSING, "runs": _paths(wanted)}
    by_seed = {c.run.seed: value for c, value in figures.items()}
    first = next(iter(figures))
    if len(by_seed) == 1 and column.benchmark is not None:
        score = tree.scores[first, column.benchmark]
        return _measured(score.value, score, score.items, figures, by_seed)
    mean = statistics.over_seeds(by_seed, clusters=tree.clean_models(first.run.model))
    return _measured(mean.value, mean, mean.n, figures, by_seed)


def _mean(parts: Sequence[Cell], column: Column, tree: Tree) -> Content:
    """The mean over the seeds of several cells, which all must be measured."""
    gap = _gap(parts)
    return {"state": gap} if gap else _score([c for part in parts for c in part.checkpoints], column, tree)


def _difference(a: Cell, b: Cell, minus: str, tree: Tree) -> Content:
    """a - b, on the seeds that both have. minus: the row of b."""
    gap = _gap((a, b))
    comparison = None if gap else _comparison(a, b, tree)
    if comparison is None:  # without a gap: no seed in common
        return {"state": gap or NOT_COMPARED}
    checkpoints = dict.fromkeys([*a.checkpoints, *b.checkpoints])
    by_seed = _gains(a.seed_values, b.seed_values)
    content = _measured(comparison.difference, comparison, comparison.n, checkpoints, by_seed)
    return content | _versus(comparison, minus)


def _gains(a: Mapping[int, float], b: Mapping[int, float]) -> dict[int, float]:
    """a - b by the seeds that both have."""
    return {seed: a[seed] - b[seed] for seed in a if seed in b}


def _gap(cells: Sequence[Cell]) -> str | None:
    """Why a number computed from these cells cannot be had; None when all are measured."""
    states = {cell.state for cell in cells}
    return MISSING if MISSING in states else NOT_RUN if NOT_RUN in states else None


def _measured(
    value: float | None,
    source: Any,
    n: int | None,
    checkpoints: Iterable[Checkpoint],
    by_seed: Mapping[int, float],
) -> Content:
    """source: whatever has the interval, its level and how it was made: a score, an estimate or a comparison."""
    checkpoints = list(checkpoints)
    # A number of a single base has no seed: it says nothing about other bases.
    bases = {c.run for c in checkpoints if c.run.method == BASE}
    seeds = {c.run.seed for c in checkpoints if c.run.method != BASE or len(bases) > 1}
    return {
        "state": MEASURED,
        "value": value,
        "by_seed": tidy.by_seed(by_seed),
        "low": source.low,
        "high": source.high,
        "level": source.level,
        "how": source.how,
        "n": n,
        "seeds": tuple(sorted(seeds)),
        "runs": _paths(checkpoints),
    }


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


def _with_printed(cell: Cell, columns: Sequence[Column], tree: Tree, *, own_model: bool) -> Cell:
    """The cell with what the paper prints there, as a fraction with the printed digits.

    The two may be set side by side only where nothing is a stand-in; for an average, nothing that it averages, and no
    benchmark that the paper left out and counted as wrong.
    """
    row = spec.printed_rows().get(cell.row)
    percent = None if row is None else row.cells.get(printed.AVERAGE if cell.column == POOLED else cell.column)
    if row is None or percent is None:  # it never prints the macro average
        return cell
    column = next(column for column in columns if column.slot == cell.column)
    if column.slot in AVERAGES:
        parts = [c for c in columns if c.slot not in AVERAGES]
        averaged = {c.benchmark for c in parts if c.stands_for is None}
        every_benchmark = averaged == {str(b["key"]) for b in tree.benchmarks} and len(averaged) == len(parts)
        own_benchmark = every_benchmark and None not in row.cells.values()
    else:
        own_benchmark = column.benchmark is not None and column.stands_for is None
    return cell.model_copy(update={"printed": percent.scaleb(-2), "comparable": own_benchmark and own_model})


# Each row against its block's baseline, and what of the difference may be chance.


def compare(found: Sequence[Cell], table: Table, tree: Tree) -> list[Cell]:
    """The cells with their differences to the baselines, corrected over each column.

    An A/A arm is corrected as if it were one more row of the table, or as the row that it is there; the table's own
    corrections do not count it.
    """
    lines: dict[Place, Cell] = {(cell.model, cell.row, cell.column): cell for cell in found}
    # The row that each is compared with. A difference row is its own comparison.
    against = {row.id: row.delta[1] if row.delta else block.baseline for block in table.blocks for row in block.rows}
    against |= {arm.again.id: arm.once.id for arm in spec.arms(tree)}
    for place, cell in lines.items():
        other = lines.get((cell.model, against.get(cell.row), cell.column))
        # A base model is not compared: it is what all rows start from.
        if other is None or cell.baseline is not None or cell.kind == "base" or None in (cell.value, other.value):
            continue
        comparison = _comparison(cell, other, tree)
        if comparison is not None:
            name = other.method if other.kind == ONCE else other.row
            lines[place] = cell.model_copy(update=_versus(comparison, str(name)))
    if table.generated:
        for block in table.blocks:
            _add_comparisons(block, lines, tree)
    minuend = {row.id: row.delta[0] for row in table.rows if row.delta is not None}
    whole: dict[Place, Any] = {}  # of each comparison of the table
    for slot in table.columns:
        # What both sides are of: a row that repeats another's run is no second test, nor is a difference row beside its
        # minuend, nor a learning curve beside a second checkpoint of its run. DELTA is the average's difference, and
        # the baseline has no runs in it: without these, one method beside two baselines would be one test.
        of = POOLED if slot == DELTA else slot
        sides = {
            place: (
                lines[cell.model, minuend.get(cell.row, cell.row), of].sources,
                lines[cell.model, against[cell.row], of].sources,
            )
            for place, cell in lines.items()
            if cell.column == slot and (cell.baseline is not None or cell.kind == AGAIN)
        }
        family = {test: lines[place].versus_p for place, test in sides.items() if lines[place].kind != AGAIN}
        for place, test in sides.items():
            lines[place] = _corrected(lines[place], {**family, test: lines[place].versus_p}, test)
            if lines[place].kind != AGAIN:
                whole[place] = of, test
    corrected = _holm({test: lines[place].versus_p for place, test in whole.items()})
    for place, test in whole.items():
        lines[place] = lines[place].model_copy(update={"versus_p_table": corrected[test]})
    return [cell for cell in lines.values() if cell.kind != ONCE]


def _holm(family: Mapping[Any, float | None]) -> dict[Any, float | None]:
    """Correct p of each distinct comparison by Holm's rule."""
    return dict(zip(family, statistics.holm(list(family.values())), strict=True))


def _corrected(cell: Cell, family: Mapping[Any, float | None], test: object) -> Cell:
    """The cell with its p corrected over a column. family: p of each comparison, by the runs of its sides."""
    p = _holm(family)[test]
    tests = sum(other is not None for other in family.values())
    inside = None if p is None else bool(p >= ALPHA)
    changes: Content = {"versus_p_holm": p, "versus_tests": tests, "inside_noise": inside}
    if cell.kind != AGAIN and cell.versus_se is not None and cell.versus_df is not None:
        changes["versus_detectable"] = statistics.detectable(cell.versus_se, cell.versus_df, tests)
    return cell.model_copy(update=changes)


def _comparison(cell: Cell, other: Cell, tree: Tree) -> Comparison | None:
    """cell minus other, paired: by seed if several are common, by problem if one is; measures of curves by seed.

    None when no seed is common, or when the two are the same checkpoints there: that compares nothing.
    """
    a, b = ({checkpoint.run.seed: checkpoint for checkpoint in side.checkpoints} for side in (cell, other))
    common = sorted(set(a) & set(b))
    if not common or all(a[seed] == b[seed] for seed in common):
        return None
    if len(common) == 1 and cell.column not in MEASURES:
        from evals.score import difference_of_scores

        return difference_of_scores(tree, cell.benchmark or "", a[common[0]], b[common[0]])
    comparison = statistics.compare_seeds(cell.seed_values, other.seed_values, clusters=tree.clean_models(cell.model))
    return None if comparison.difference is None else comparison


def _versus(comparison: Comparison, baseline: str) -> Content:
    values = {f"versus_{name}": getattr(comparison, name) for name in COMPARISON}
    return {"baseline": baseline, "versus": comparison.difference, **values}


def _add_comparisons(block: Block, lines: dict[Place, Cell], tree: Tree) -> None:
    """Two columns that follow from the average's: its difference to the baseline, and the probability of being best."""
    average = {row.id: lines[block.model, row.id, POOLED] for row in block.rows if row.kind == "run"}
    for id, cell in average.items():
        if cell.versus is not None and block.baseline is not None:
            gains = _gains(cell.seed_values, average[block.baseline].seed_values)
            changes: Content = {
                "column": DELTA,
                "benchmark": None,
                "value": cell.versus,
                "by_seed": tidy.by_seed(gains),
            }
            changes |= {name: getattr(cell, f"versus_{name}") for name in ("n", "low", "high", "level", "how")}
            lines[block.model, id, DELTA] = cell.model_copy(update=changes)
    values = {id: cell.seed_values for id, cell in average.items() if cell.value is not None}
    chances, how = statistics.chances_of_being_best(values, tree.clean_models(block.model))
    for id, chance in chances.items():
        chance_of: Content = {"column": BEST, "benchmark": None, "value": chance, "level": "seed", "how": how}
        nothing = dict.fromkeys(["low", "high", "n", "baseline", "versus", *(f"versus_{name}" for name in COMPARISON)])
        lines[block.model, id, BEST] = average[id].model_copy(update=nothing | chance_of | {"by_seed": ()})
