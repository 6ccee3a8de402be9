"""`python -m report.tables --results results/quick --table 1`: fill a table of tables.yaml, then render it.

    cells    each row's scores over its seeds, with the paper's printed numbers
    compare  each cell's paired difference to its baseline, corrected over its column and over the table

The statistics are those of `evals.stats`. This module defines the checkpoints behind a cell, its baseline, and which
comparisons of a table are corrected together. `report.view` reads the filled table back and shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import errors
from core.errors import Parser
from core.files import write_all
from core.layout import BASE, Checkpoint, split
from evals.scores import POOLED
from report import markdown, rows, view
from report.markdown import ALPHA
from report.rows import AVERAGES, BEST, DELTA, KINDS, MEASURES, Block, Row, Table
from report.view import Column

if TYPE_CHECKING:
    import pandas as pd

    from evals.stats.estimate import Comparison
    from evals.tree import Tree

ONCE = "once"  # kind of the cells that an A/A arm's are compared with; not written to a file

Cell = dict[str, Any]  # a line of the tidy file; keys: `report.view.COLUMNS`


def fill(table: Table, tree: Tree) -> pd.DataFrame:
    """Return the filled table, one line a cell, in the order of blocks, rows and columns; then cells of the A/A arms.

    A row whose run is not planned is `not run`, a planned one without scores `missing`. Raises CorruptInputError where
    the scores contradict the grades.
    """
    return view.frame(compare(cells(table, tree), table, tree))


def cells(table: Table, tree: Tree) -> list[Cell]:
    """Return each row's scores over its seeds, with the printed numbers; those of A/A arms last."""
    columns = view.columns_of(table, tree)
    found: list[Cell] = []
    for block in table.blocks:
        model = view.model_of(tree, table, block.model)
        if model is None:
            continue
        # Values that a sweep chose are not comparable with the paper's.
        own_model = view.stand_in(str(model["title"]), table.models[block.model]) is None and not tree.chosen
        filled: dict[str, dict[str, Cell]] = {}
        for row in sorted(block.rows, key=lambda row: KINDS.index(row.kind)):
            filled[row.id] = _row(row, block, model, filled, columns, tree)
        for row in block.rows:
            of_row = list(filled[row.id].values())
            if row.when is None or any(cell["state"] != view.NOT_RUN for cell in of_row):
                found += [cell | _printed(cell, columns, tree, own_model=own_model) for cell in of_row]
    for arm in rows.arms(tree):
        model = next(model for model in tree.models if model["key"] == arm.model)
        for kind, row in ((ONCE, arm.once), (view.AGAIN, arm.again)):
            of_arm = _row(row, Block(model=arm.model, rows=()), model, {}, columns, tree).values()
            found += [cell | {"kind": kind} for cell in of_arm]
    return found


def _row(
    row: Row,
    block: Block,
    model: Mapping[str, Any],
    earlier: Mapping[str, Mapping[str, Cell]],
    columns: Sequence[Column],
    tree: Tree,
) -> dict[str, Cell]:
    """Return the cells of a row by column. earlier: rows of the block that a derived row may be computed from."""
    parts = [earlier[name] for name in row.of]
    checkpoints: Sequence[Checkpoint] = ()  # of the whole row: its step and collapses follow from them
    step = row.step
    if row.delta is not None:
        method: str | None = " - ".join(row.delta)
        contents = {c.slot: _difference(parts[0][c.slot], parts[1][c.slot], row.delta[1], tree) for c in columns}
    elif row.mean is not None:
        method = parts[0][columns[0].slot]["method"]
        step = next(other.step for other in block.rows if other.id == row.mean[0])
        contents = {c.slot: _mean([part[c.slot] for part in parts], c, tree) for c in columns}
        checkpoints = [run for content in contents.values() for run in content.get("runs", ())]
    else:
        method = view.method_of(row, str(model["key"]), tree)
        checkpoints = view.planned(row, str(model["key"]), tree)
        contents = {c.slot: _score(checkpoints, c, tree) for c in columns}
    of_row = {
        "row": row.id,
        "label": label(row, str(model["key"]), method, tree)
        .replace("{model}", str(model["title"]))
        .replace("{step}", str(tree.step(step) or "more")),
        "kind": row.kind,
        "block": block.title,
        "model": str(model["key"]),
        "method": method,
        "step": checkpoints[0].step if checkpoints else None,
        "collapsed": _collapses(checkpoints, tree),  # reads run records: once per row and not once per cell
    }
    return {
        c.slot: view.EMPTY | of_row | {"column": c.slot, "benchmark": c.benchmark} | contents[c.slot] for c in columns
    }


def label(row: Row, model: str, method: str | None, tree: Tree) -> str:
    """Return the label of a row with what its runs add to the declaration: a changed method never has the plain name.

    These are options that `method` has beyond the declared one, and training settings that a sweep chose.
    """
    text = row.label
    if row.method is not None and method is not None:
        (theirs, *known), (ours, *options) = (split(name)[0].split("+") for name in (row.method, method))
        # A declared alias has another first word; its options are in the canonical key, and are not a change.
        if theirs == ours and (added := [option.replace("=", " ") for option in options if option not in known]):
            text += f" ({', '.join(added)})"
    if tree.chosen and row.numbers is None:
        points = tree.matrix["sweep"]["points"]
        values: Mapping[str, Any] = next(
            (p["values"] for p in points if (p["model"], p["method"]) == (model, method)), {}
        )
        for axis, value in values.items():
            if axis.startswith("training."):
                name = axis.removeprefix("training.").replace("_", " ")
                text += f", {name} {value:g}" if isinstance(value, float) else f", {name} {value}"
    return text


def _score(wanted: Sequence[Checkpoint], column: Column, tree: Tree) -> Cell:
    """Return the score of one seed with its interval over problems, or the mean of several with one over seeds."""
    from evals import learning_curves
    from evals.stats.compare import over_seeds

    if column.slot in (DELTA, BEST):  # filled once the whole block is known: `_add_columns`
        return {"state": view.NOT_COMPARED}
    if not wanted or (column.benchmark is None and column.slot not in MEASURES):
        return {"state": view.NOT_RUN}
    if column.slot in MEASURES:
        wanted = [checkpoint for checkpoint in wanted if checkpoint.run.method != BASE]
        if not wanted:  # an untrained model has no learning curve
            return {"state": view.NOT_COMPARED}
    key = column.benchmark or column.slot
    figures = {c: value for c in wanted if (value := learning_curves.figure(tree, c, key)) is not None}
    if not figures:  # an empty score means a benchmark that was left out on purpose
        left_out = all((c, column.benchmark) in tree.scores for c in wanted)
        return {"state": view.NOT_RUN if left_out else view.MISSING, "runs": tuple(wanted)}
    by_seed = {c.run.seed: value for c, value in figures.items()}
    first = next(iter(figures))
    if len(by_seed) == 1 and column.benchmark is not None:
        score = tree.scores[first, column.benchmark]
        return _measured(score.value, score, score.items, figures, by_seed)
    mean = over_seeds(by_seed, clusters=tree.clean_models(first.run.model))
    return _measured(mean.value, mean, mean.n, figures, by_seed)


def _mean(parts: Sequence[Cell], column: Column, tree: Tree) -> Cell:
    """Return the mean of several cells over their seeds; all must be measured."""
    gap = _gap(parts)
    return {"state": gap} if gap else _score([run for part in parts for run in part["runs"]], column, tree)


def _difference(a: Cell, b: Cell, minus: str, tree: Tree) -> Cell:
    """Return a - b over the seeds that both have. minus: the row of b."""
    gap = _gap((a, b))
    comparison = None if gap else _comparison(a, b, tree)
    if comparison is None:  # without a gap: no seed in common
        return {"state": gap or view.NOT_COMPARED}
    both = dict.fromkeys([*a["runs"], *b["runs"]])
    return _measured(comparison.difference, comparison, comparison.n, both, _gains(a, b)) | _versus(comparison, minus)


def _gains(a: Cell, b: Cell) -> dict[int, float]:
    """Return a - b by seed, for seeds that both have."""
    return {seed: value - b["by_seed"][seed] for seed, value in a["by_seed"].items() if seed in b["by_seed"]}


def _gap(parts: Sequence[Cell]) -> str | None:
    """Return why a number cannot be computed from these cells; None when all are measured."""
    states = {cell["state"] for cell in parts}
    return next((state for state in (view.MISSING, view.NOT_RUN) if state in states), None)


def _measured(
    value: float | None, source: Any, n: int | None, runs: Iterable[Checkpoint], by_seed: Mapping[int, float]
) -> Cell:
    """Build a measured cell. source: a score, estimate or comparison, for the interval, its level and its method."""
    runs = tuple(runs)
    # A number of a single base has no seed: it does not generalise to other bases.
    bases = {c.run for c in runs if c.run.method == BASE}
    seeds = {c.run.seed for c in runs if c.run.method != BASE or len(bases) > 1}
    interval = {name: getattr(source, name) for name in ("low", "high", "level", "how")}
    by_seed = {seed: by_seed[seed] for seed in sorted(by_seed)}
    content = {"state": view.MEASURED, "value": value, "n": n, "by_seed": by_seed, "runs": runs}
    return content | interval | {"seeds": tuple(sorted(seeds))}


def _collapses(checkpoints: Sequence[Checkpoint], tree: Tree) -> tuple[str, ...]:
    """Return `seed<k>:<rollout>/<rollouts planned>` for each run of a row that lost its reward."""
    collapses = []
    for checkpoint in dict.fromkeys(checkpoints):
        record = None if checkpoint.run.method == BASE else tree.record(checkpoint.run)
        if record is not None and record.get("collapsed_at") is not None:
            rollouts = (record["spec"].get("training") or {}).get("rollouts")
            collapses.append(f"seed{checkpoint.run.seed}:{int(record['collapsed_at'])}/{rollouts or ''}")
    return tuple(collapses)


def _printed(cell: Cell, columns: Sequence[Column], tree: Tree, *, own_model: bool) -> Cell:
    """Return the paper's number for a cell, as a fraction with the printed digits; empty where there is none.

    The two are comparable only without stand-ins; averages also only over the same benchmarks, and without a
    benchmark that the paper left out and counted as wrong.
    """
    row = rows.printed_rows().get(cell["row"])
    percent = None if row is None else row.cells.get("avg" if cell["column"] == POOLED else cell["column"])
    if row is None or percent is None:  # the paper never prints the macro average
        return {}
    column = next(column for column in columns if column.slot == cell["column"])
    own_benchmark = column.benchmark is not None and column.stands_for is None
    if column.slot in AVERAGES:
        parts = [c for c in columns if c.slot not in AVERAGES]
        averaged = {c.benchmark for c in parts if c.stands_for is None}
        every_benchmark = averaged == {str(b["key"]) for b in tree.benchmarks} and len(averaged) == len(parts)
        own_benchmark = every_benchmark and None not in row.cells.values()
    return {"printed": percent.scaleb(-2), "comparable": own_benchmark and own_model}


# Comparison of each row with its block's baseline, and what of the difference may be chance.


def compare(found: Sequence[Cell], table: Table, tree: Tree) -> list[Cell]:
    """Return the cells with their differences to the baselines, corrected over each column and over the table.

    An A/A arm is corrected as if it were an additional row of the table, or as the row that it already is; the table's
    corrections do not count it.
    """
    at = {(cell["model"], cell["row"], cell["column"]): cell for cell in found}
    # The row that each is compared with. A difference row already is a comparison.
    against = {row.id: row.delta[1] if row.delta else block.baseline for block in table.blocks for row in block.rows}
    against |= {arm.again.id: arm.once.id for arm in rows.arms(tree)}
    for cell in at.values():
        other = at.get((cell["model"], against.get(cell["row"]), cell["column"]))
        # A base model is not compared: all rows start from it.
        if other is None or cell["baseline"] or cell["kind"] == "base" or None in (cell["value"], other["value"]):
            continue
        if (comparison := _comparison(cell, other, tree)) is not None:
            cell |= _versus(comparison, other["method" if other["kind"] == ONCE else "row"])
    if table.generated:
        for block in table.blocks:
            _add_columns(block, at, tree)
    minuend = {row.id: row.delta[0] for row in table.rows if row.delta is not None}

    def test(cell: Cell) -> tuple[object, ...]:
        """Return what both sides consist of: a row that repeats another's run is not a separate test; neither is a
        difference row next to the row it is taken from, nor a learning curve next to a second checkpoint of its run."""
        # DELTA is the average's difference and does not contain the baseline's runs: otherwise one method next to two
        # baselines would count as one test.
        of = POOLED if cell["column"] == DELTA else cell["column"]
        sides = minuend.get(cell["row"], cell["row"]), against[cell["row"]]
        return (of, *(view.sources(at[cell["model"], side, of]) for side in sides))

    compared = [cell for cell in at.values() if cell["baseline"] is not None or cell["kind"] == view.AGAIN]
    own = [cell for cell in compared if cell["kind"] != view.AGAIN]
    for slot in table.columns:
        family = {test(cell): cell["versus_p"] for cell in own if cell["column"] == slot}
        for cell in compared:
            if cell["column"] == slot:
                _correct(cell, family | {test(cell): cell["versus_p"]}, test(cell))
    corrected = _holm({test(cell): cell["versus_p"] for cell in own})
    for cell in own:
        cell["versus_p_table"] = corrected[test(cell)]
    return [cell for cell in at.values() if cell["kind"] != ONCE]


def _holm(family: Mapping[Any, float | None]) -> dict[Any, float | None]:
    from evals.stats.compare import holm

    return dict(zip(family, holm(list(family.values())), strict=True))


def _correct(cell: Cell, family: Mapping[Any, float | None], test: object) -> None:
    """Correct the cell's p over a column. family: p of each distinct comparison."""
    from evals.stats.compare import detectable

    p = _holm(family)[test]
    tests = sum(other is not None for other in family.values())
    cell |= {"versus_p_holm": p, "versus_tests": tests, "inside_noise": None if p is None else bool(p >= ALPHA)}
    if cell["kind"] != view.AGAIN and None not in (cell["versus_se"], cell["versus_df"]):
        cell["versus_detectable"] = detectable(cell["versus_se"], cell["versus_df"], tests)


def _comparison(cell: Cell, other: Cell, tree: Tree) -> Comparison | None:
    """Return cell minus other, paired: by seed if several are common, by problem if one is; curve measures by seed.

    None when no seed is common, or when the two have the same checkpoints there, which would compare nothing.
    """
    from evals.score import difference_of_scores
    from evals.stats.compare import compare_seeds

    a, b = ({checkpoint.run.seed: checkpoint for checkpoint in side["runs"]} for side in (cell, other))
    common = sorted(set(a) & set(b))
    if not common or all(a[seed] == b[seed] for seed in common):
        return None
    if len(common) == 1 and cell["column"] not in MEASURES:
        return difference_of_scores(tree, cell["benchmark"] or "", a[common[0]], b[common[0]])
    comparison = compare_seeds(cell["by_seed"], other["by_seed"], clusters=tree.clean_models(cell["model"]))
    return None if comparison.difference is None else comparison


COMPARISON = ("low", "high", "p", "level", "how", "n", "se", "df")  # fields of a `Comparison`: `versus_...` of a cell


def _versus(comparison: Comparison, baseline: str) -> Cell:
    values = {f"versus_{name}": getattr(comparison, name) for name in COMPARISON}
    return {"baseline": baseline, "versus": comparison.difference, **values}


def _add_columns(block: Block, at: dict[tuple[str, str, str], Cell], tree: Tree) -> None:
    """Fill two columns that follow from the average: difference to the baseline, and probability of being best."""
    from evals.stats.compare import chances_of_being_best

    average = {row.id: at[block.model, row.id, POOLED] for row in block.rows if row.kind == "run"}
    for id, cell in average.items():
        if cell["versus"] is not None and block.baseline is not None:
            gains = _gains(cell, average[block.baseline])
            changes = {"column": DELTA, "benchmark": None, "value": cell["versus"], "by_seed": gains}
            changes |= {name: cell[f"versus_{name}"] for name in ("n", "low", "high", "level", "how")}
            at[block.model, id, DELTA] = cell | changes
    values = {id: cell["by_seed"] for id, cell in average.items() if cell["value"] is not None}
    chances, how = chances_of_being_best(values, tree.clean_models(block.model))
    nothing = dict.fromkeys(["low", "high", "n", "baseline", "versus", *(f"versus_{name}" for name in COMPARISON)])
    for id, chance in chances.items():
        changes = {"column": BEST, "benchmark": None, "value": chance, "level": "seed", "how": how, "by_seed": {}}
        at[block.model, id, BEST] = average[id] | nothing | changes


def write(tree: Tree, key: str, specification: Path = rows.TABLES) -> tuple[list[Path], dict[str, Any]]:
    """Write `tables/table<key>.*`; return the paths and the table as it is shown."""
    declared = rows.declaration(tree, key, specification)
    filled = fill(declared, tree)
    shown = view.view(filled, declared, tree)
    texts = {".tidy.csv": view.tidy_csv(filled)} | {end: make(shown) for end, make in markdown.RENDERINGS.items()}
    return write_all({tree.layout.tables / f"table{key}{end}": text for end, text in texts.items()}), shown


def main() -> None:
    parser = Parser(description="Fill a table of report/tables.yaml from finished results; render it.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--table", required=True, help="key in the specification, such as 1")
    parser.add_argument("--spec", type=Path, default=rows.TABLES, help="another specification file of the same form")
    args = parser.parse_args()

    from evals.tree import open_tree
    from methods import catalog

    if (key := args.table.removeprefix("table")) != rows.RUNS:
        rows.check(rows.table(key, args.spec), catalog)
    paths, shown = write(open_tree(args.results), key, args.spec)
    print("\n".join([*map(str, paths), *(f"note: {note}" for note in shown["notes"])]))


if __name__ == "__main__":
    errors.run(main)
