"""`python -m report.tables --results results/quick --table 1`: fill a table of tables.yaml, then render it.

    cells    each row's scores over its seeds, with the paper's printed numbers
    compare  each cell's paired difference to its baseline, corrected over its column and over the table

The statistics are those of `evals.stats`. This module defines the checkpoints behind a cell, its baseline, and which
comparisons of a table are corrected together. `report.view` shows the filled table.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from core import errors
from core.errors import CorruptInputError, Parser, written_by
from core.files import cells_of, read_csv, to_csv, write_all
from core.layout import BASE, Checkpoint, split
from evals.scores import POOLED
from evals.tree import Tree, open_tree
from paper import printed
from report import rows, view
from report.markdown import command
from report.rows import AVERAGES, KINDS, MEASURES, Block, Row, Table
from report.view import AGAIN, ALSO, MEASURED, MISSING, NOT_COMPARED, NOT_RUN, STATES, Column

ONCE = "once"  # kind of the cells that an A/A arm's are compared with; not written to a file

Cell = dict[str, Any]  # a line of the tidy file: by COLUMNS


def _number(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not a number")
    return value


# Columns of the tidy file, and the parser of cells that are not empty; an empty one is None. Values are fractions.
COLUMNS: dict[str, Callable[[str], Any]] = {
    "row": str,  # id
    "label": str,
    "kind": {kind: kind for kind in (*KINDS, ALSO, AGAIN)}.__getitem__,
    "block": str,  # title of the block
    "state": {state: state for state in STATES}.__getitem__,
    "model": str,
    "method": str,  # canonical key with variant; `a - b` (ids of rows) in a difference
    "step": int,
    "seeds": lambda text: tuple(map(int, text.split())),
    # `<seed>:<value>` with every digit; in a difference of the seeds that both sides have
    "by_seed": lambda text: {int(seed): float(value) for seed, value in (word.split(":") for word in text.split())},
    "column": str,
    "benchmark": str,
    **dict.fromkeys(("value", "low", "high"), _number),
    "level": str,  # unit of the interval: problem, seed
    "how": str,
    "n": int,
    "printed": lambda text: Decimal(text) if _number(text) is not None else None,  # by the paper, with its digits
    "comparable": "True".__eq__,  # whether value and printed may be compared
    "baseline": str,  # id of the row that the cell is compared with; None: not compared
    # value minus the baseline's, paired; p_holm: corrected for the comparisons of the column; None: could not be tested
    **dict.fromkeys(("versus", "versus_low", "versus_high", "versus_p", "versus_p_holm"), _number),
    "versus_tests": int,
    "versus_p_table": _number,  # corrected for the comparisons of the whole table
    "versus_level": str,
    "versus_how": str,
    "versus_n": int,
    # detectable: the smallest true difference found in 80 % of repetitions, after Holm's correction
    **dict.fromkeys(("versus_se", "versus_df", "versus_detectable"), _number),
    "collapsed": lambda text: tuple(text.split()),  # runs that lost their reward: seed<k>:<rollout>/<rollouts planned>
    "runs": lambda text: tuple(map(Checkpoint.parse, text.split())),  # behind the cell; for a missing one the planned
}
EMPTY: Cell = dict.fromkeys(COLUMNS) | {"seeds": (), "by_seed": {}, "collapsed": (), "runs": ()}


def tidy_csv(filled: Iterable[Cell]) -> str:
    """Return the tidy file's content."""
    lines = []
    for cell in filled:
        by_seed = tuple(f"{seed}:{value!r}" for seed, value in sorted(cell["by_seed"].items()))
        lines.append(cell | {"by_seed": by_seed, "runs": tuple(run.path.as_posix() for run in cell["runs"])})
    return to_csv(tuple(COLUMNS), lines)


def read(tree: Tree, key: str) -> list[Cell]:
    """Return table `key` as `fill` returned it, from its tidy file.

    Raises MissingInputError without the file, CorruptInputError where it is damaged or was filled from another
    specification or matrix.json.
    """
    declared = rows.declaration(tree, key)
    file = tree.layout.tables / f"table{key}.tidy.csv"
    with written_by(command("report.tables", tree, "--table", key)), cells_of(file):
        lines = read_csv(file, "the table", tuple(COLUMNS), allow_empty=True)
        filled = [EMPTY | {name: COLUMNS[name](line[name]) for name in COLUMNS if line[name]} for line in lines]
        # An earlier version had more columns.
        filled = [cell for cell in filled if cell["column"] in declared.columns]
        again = {row.id for arm in rows.arms(tree) for row in arm.rows}
        known = again | {row.id for row in declared.rows}
        if other := [cell["row"] for cell in filled if cell["row"] not in known]:
            raise CorruptInputError(f"{file}: row {other[0]}: not filled from tables.yaml and matrix.json as they are")
    return filled


def shown(tree: Tree, key: str) -> dict[str, Any]:
    """Return `report.view.view` of a table that `read` returns."""
    return view.view(read(tree, key), rows.declaration(tree, key), tree)


# Each row's scores.


def fill(table: Table, tree: Tree) -> list[Cell]:
    """Return the filled table, one entry a cell, in the order of blocks, rows and columns; then cells of the A/A arms.

    A row whose run is not planned is `not run`, a planned one without scores `missing`. Raises CorruptInputError where
    the scores contradict the grades.
    """
    found = {(cell["model"], cell["row"], cell["column"]): cell for cell in cells(table, tree)}
    compare(found, table, tree)
    optional = {row.id for row in table.rows if row.when == "run"}
    shown = {cell["row"] for cell in found.values() if cell["row"] not in optional or cell["state"] != NOT_RUN}
    return [cell for cell in found.values() if cell["row"] in shown and cell["kind"] != ONCE]


def cells(table: Table, tree: Tree) -> Iterator[Cell]:
    """Yield each row's scores over its seeds, with the printed numbers; those of A/A arms last. Cells of differences
    are empty: `compare` fills them."""
    columns, arms = view.columns_of(table, tree), rows.arms(tree)
    for block in [*table.blocks, *arms]:
        paper = table.models.get(block.model, block.model)
        if (model := tree.model_for(block.model, paper)) is None:
            continue
        # Values that a sweep chose are not comparable with the paper's.
        own_model = view.stand_in(str(model["title"]), paper) is None and not tree.chosen
        for place, row in enumerate(block.rows):
            kind = (ONCE, AGAIN)[place] if block in arms else ALSO if isinstance(block, rows.Also) else row.kind
            about, checkpoints = _row(row, block, model, tree)
            for column in columns:
                content = _score(checkpoints, column, tree, whole=row.kind == "mean")
                cell = about | {"kind": kind, "column": column.slot, "benchmark": column.benchmark} | content
                yield cell | _printed(cell, columns, tree, own_model=own_model)


def _row(row: Row, block: Block, model: Mapping[str, Any], tree: Tree) -> tuple[Cell, list[Checkpoint]]:
    """Return what all cells of a row have in common, and its checkpoints."""
    key, method, checkpoints = str(model["key"]), " - ".join(row.delta or ()), list[Checkpoint]()
    parts = [part for part in block.rows if part.id in (row.mean or (row.id,))]
    if row.delta is None:
        of_parts = [rows.planned(part, key, tree) for part in parts]
        method = rows.method_of(parts[0], key, tree) or ""
        # A mean needs all of its rows.
        checkpoints = [checkpoint for part in of_parts for checkpoint in part] if all(of_parts) else []
    label = _label(row, key, method, tree).replace("{model}", str(model["title"]))
    label = label.replace("{step}", str(tree.step(parts[0].step) or "more"))
    about = {"row": row.id, "label": label, "block": block.title, "model": key, "method": method or None}
    step, lost = checkpoints[0].step if checkpoints else None, []
    for run in (checkpoint.run for checkpoint in checkpoints if checkpoint.run.method != BASE):
        record = tree.record(run) or {}
        if record.get("collapsed_at") is not None:
            rollouts = (record["spec"].get("training") or {}).get("rollouts")
            lost.append(f"seed{run.seed}:{int(record['collapsed_at'])}/{rollouts or ''}")
    return EMPTY | about | {"step": step, "collapsed": tuple(lost)}, checkpoints


def _label(row: Row, model: str, method: str | None, tree: Tree) -> str:
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
        points = {(point["model"], point["method"]): point["values"] for point in tree.matrix["sweep"]["points"]}
        for axis, value in points.get((model, method), {}).items():
            if axis.startswith("training."):
                name = axis.removeprefix("training.").replace("_", " ")
                text += f", {name} {value:g}" if isinstance(value, float) else f", {name} {value}"
    return text


def _score(wanted: Sequence[Checkpoint], column: Column, tree: Tree, *, whole: bool) -> Cell:
    """Return the score of one seed with its interval over problems, or the mean of several with one over seeds.

    whole: only where all of them have one."""
    from evals import learning_curves
    from evals.stats.compare import over_seeds

    untrained = bool(wanted) and wanted[0].run.method == BASE
    if column.slot in MEASURES and untrained:  # it has no learning curve
        return {"state": NOT_COMPARED}
    if not wanted or (column.benchmark is None and column.slot not in MEASURES):
        return {"state": NOT_RUN}
    found = {c: learning_curves.figure(tree, c, column.benchmark or column.slot) for c in wanted}
    figures = {c: value for c, value in found.items() if value is not None}
    if not figures or (whole and len(figures) < len(found)):
        left_out = all((c, column.benchmark) in tree.scores for c in wanted)  # on purpose: with an empty score
        return {"state": NOT_RUN if left_out else MISSING, "runs": tuple(wanted)}
    by_seed = {c.run.seed: value for c, value in figures.items()}
    first = next(iter(figures))
    if len(by_seed) == 1 and column.benchmark is not None:
        score = tree.scores[first, column.benchmark]
        return _measured(score.value, score, score.items, figures, by_seed)
    mean = over_seeds(by_seed, clusters=tree.clean_models(first.run.model))
    return _measured(mean.value, mean, mean.n, figures, by_seed)


def _measured(
    value: float | None, source: Any, n: int | None, runs: Iterable[Checkpoint], by_seed: Mapping[int, float]
) -> Cell:
    """Return a measured cell. source: a score, estimate or comparison, for the interval, its level and its method."""
    runs = tuple(runs)
    # A number of a single base has no seed: it does not generalise to other bases.
    bases = {c.run for c in runs if c.run.method == BASE}
    seeds = {c.run.seed for c in runs if c.run.method != BASE or len(bases) > 1}
    content = {name: getattr(source, name) for name in ("low", "high", "level", "how")}
    content |= {"state": MEASURED, "value": value, "n": n, "by_seed": dict(sorted(by_seed.items()))}
    return content | {"runs": runs, "seeds": tuple(sorted(seeds))}


def _printed(cell: Cell, columns: Sequence[Column], tree: Tree, *, own_model: bool) -> Cell:
    """Return the paper's number for a cell, as a fraction with the printed digits; empty where there is none.

    The two are comparable only without stand-ins; averages also only over the same benchmarks, and without a
    benchmark that the paper left out and counted as wrong.
    """
    row, slot = printed.read().get(cell["row"]), cell["column"]
    percent = None if row is None else row.cells.get("avg" if slot == POOLED else slot)
    if row is None or percent is None:  # the paper never prints the macro average
        return {}
    same = [c.benchmark for c in columns if c.benchmark is not None and c.stands_for is None]
    comparable = own_model and cell["benchmark"] in same
    if slot in AVERAGES:
        every = {benchmark["key"] for benchmark in tree.benchmarks}
        comparable = own_model and len(same) == len(columns) and set(same) - set(AVERAGES) == every
        comparable = comparable and None not in row.cells.values()
    return {"printed": percent.scaleb(-2), "comparable": comparable}


# Comparison of each row with its block's baseline, and how much of the difference may be chance.


def compare(at: dict[tuple[str, str, str], Cell], table: Table, tree: Tree) -> None:
    """Add to the cells their differences to the baselines, corrected over each column and over the table.

    An A/A arm is corrected as if it were an additional row of the table, or as the row that it already is; the table's
    corrections do not count it. Methods that no table declares are corrected over each column among themselves.
    at: the cells by model, row and column.
    """
    from evals.stats.compare import detectable, holm

    # What each row compares. A difference row and the row that it is taken from make the same comparison.
    blocks = [*table.blocks, *rows.arms(tree)]
    ids = {row.id: row.delta or (row.id, block.baseline) for block in blocks for row in block.rows}
    test: dict[tuple[str, str, str], object] = {}
    for place, cell in at.items():
        one, other = (at.get((cell["model"], id or "", cell["column"])) for id in ids[cell["row"]])
        if one is None or other is None:
            continue
        if cell["kind"] == "delta":
            states = one["state"], other["state"]
            cell["state"] = next((gap for gap in (MISSING, NOT_RUN) if gap in states), NOT_COMPARED)
        # A base model is not compared: all rows start from it.
        if cell["kind"] != "base" and None not in (one["value"], other["value"]):
            cell |= _compared(cell, one, other, tree)

        # A test is what both sides consist of: rows that repeat a run are one, as is a curve next to two checkpoints.
        if cell["baseline"] is not None or cell["kind"] == AGAIN:
            test[place] = cell["column"], view.sources(one), view.sources(other)
    own = [place for place in test if at[place]["kind"] not in (AGAIN, ALSO)]
    also = [place for place in test if at[place]["kind"] == ALSO]

    def corrected(places: Iterable[tuple[str, str, str]]) -> dict[object, float | None]:
        """Return Holm's p by distinct test."""
        family = {test[place]: at[place]["versus_p"] for place in places}
        return dict(zip(family, holm(list(family.values())), strict=True))

    of_table = corrected(own)
    for place in test:
        cell, family = at[place], also if at[place]["kind"] == ALSO else own
        p = corrected([*(other for other in family if other[2] == place[2]), place])
        p_holm, tests = p[test[place]], sum(one is not None for one in p.values())
        cell |= {"versus_p_holm": p_holm, "versus_tests": tests}
        if cell["kind"] != AGAIN:
            cell["versus_p_table"] = None if family is also else of_table[test[place]]
            cell["versus_detectable"] = detectable(cell["versus_se"], cell["versus_df"], tests)


def _compared(cell: Cell, one: Cell, other: Cell, tree: Tree) -> Cell:
    """Return what `one` minus `other` adds to a cell; to the cell of a difference, its number too. Empty when no seed
    is common, or when the two have the same checkpoints there.

    They are paired by seed if several are common, by problem if one is; measures of a curve always by seed.
    """
    from evals.stats.compare import compare_seeds, difference_of_scores

    a, b = ({checkpoint.run.seed: checkpoint for checkpoint in side["runs"]} for side in (one, other))
    common = sorted(set(a) & set(b))
    if not common or all(a[seed] == b[seed] for seed in common):
        return {}
    if len(common) == 1 and cell["column"] not in MEASURES:
        comparison = difference_of_scores(tree, one["benchmark"] or "", a[common[0]], b[common[0]])
    else:
        comparison = compare_seeds(one["by_seed"], other["by_seed"], clusters=tree.clean_models(cell["model"]))
    if comparison is None or comparison.difference is None:
        return {}
    fields = ("low", "high", "p", "level", "how", "n", "se", "df")
    found = {f"versus_{name}": getattr(comparison, name) for name in fields}
    found |= {"baseline": other["method" if other["kind"] == ONCE else "row"], "versus": comparison.difference}
    if cell["kind"] == "delta":
        gains = {seed: one["by_seed"][seed] - other["by_seed"][seed] for seed in common}
        runs = dict.fromkeys([*one["runs"], *other["runs"]])
        found |= _measured(comparison.difference, comparison, comparison.n, runs, gains)
    return found


def write(tree: Tree, key: str) -> tuple[list[Path], dict[str, Any]]:
    """Write `tables/table<key>.*`; return the paths and the table as it is shown."""
    declared = rows.declaration(tree, key)
    filled = fill(declared, tree)
    table = view.view(filled, declared, tree)
    texts = {".tidy.csv": tidy_csv(filled)} | {end: make(table) for end, make in view.RENDERINGS.items()}
    return write_all({tree.layout.tables / f"table{key}{end}": text for end, text in texts.items()}), table


def main() -> None:
    parser = Parser(description="Fill a table of report/tables.yaml from finished results; render it.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--table", required=True, help="key in report/tables.yaml, such as 1; or: runs")
    args = parser.parse_args()
    tree, key = open_tree(args.results), args.table.removeprefix("table")
    if not (declared := rows.declaration(tree, key)).generated:
        rows.check(declared)
    paths, table = write(tree, key)
    print("\n".join([*map(str, paths), *(f"note: {note}" for note in table["notes"])]))


if __name__ == "__main__":
    errors.run(main)
