"""Read a filled table from `tables/table<key>.tidy.csv` and prepare what every form of it shows.

Titles, headings and notes follow from the declaration and matrix.json. No number is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from core.errors import CorruptInputError, written_by
from core.files import cells_of, read_csv, to_csv
from core.layout import BASE, Checkpoint, Run, split
from evals.tree import Tree, plain
from report import captions, markdown, rows
from report.markdown import ALPHA, COLLAPSED
from report.rows import AVERAGES, DELTA, MEASURES, Row, Table

if TYPE_CHECKING:
    import pandas as pd

MEASURED = "measured"
NOT_RUN = "not run"  # this scale does not plan the run or the benchmark
MISSING = "missing"  # planned, but scores.csv has no number for it
NOT_COMPARED = "not compared"  # a base model's reward, a baseline minus itself, two rows without a common seed
STATES = (MEASURED, NOT_RUN, MISSING, NOT_COMPARED)
AGAIN = "again"  # kind of the cells of an A/A arm, which is not a row of the table


def number(text: str) -> float | None:
    """Parse a float as Python wrote it, keeping every digit; empty is None."""
    value = float(text) if text else None
    if value is not None and not math.isfinite(value):
        raise ValueError(f"{text} is not a number")
    return value


def by_seed(values: Mapping[int, float]) -> tuple[str, ...]:
    """Return the value of each seed in the form used in files, `<seed>:<value>` with every digit."""
    return tuple(f"{seed}:{values[seed]!r}" for seed in sorted(values))


def from_by_seed(text: str) -> dict[int, float]:
    """Parse words of `by_seed` that are separated by spaces; ValueError for another form."""
    pairs = (word.split(":") for word in text.split())
    return {int(seed): float(value) for seed, value in pairs}


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r} is not one of {', '.join(allowed)}")
        return text

    return read


def _decimal(text: str) -> Decimal:
    number(text)
    return Decimal(text)


# Columns of the tidy file, and the parser of cells that are not empty; an empty one is None. Values are fractions.
COLUMNS: dict[str, Callable[[str], Any]] = {
    "row": str,  # id
    "label": str,
    "kind": _one_of(*rows.KINDS, AGAIN),
    "block": str,  # title of the block
    "state": _one_of(*STATES),
    "model": str,
    "method": str,  # canonical key with variant; `a - b` (ids of rows) in a difference
    "step": int,
    "seeds": lambda text: tuple(map(int, text.split())),
    "by_seed": from_by_seed,  # the value of each seed; in a difference the seeds that both sides have
    "column": str,
    "benchmark": str,
    **dict.fromkeys(("value", "low", "high"), number),
    "level": str,  # unit of the interval: problem, seed
    "how": str,
    "n": int,
    "printed": _decimal,  # by the paper, with its digits; None where the row is not in the paper
    "comparable": "True".__eq__,  # whether value and printed may be compared
    "baseline": str,  # id of the row that the cell is compared with; None: not compared
    # value minus the baseline's, paired; p_holm: corrected for the comparisons of the column; None: could not be tested
    **dict.fromkeys(("versus", "versus_low", "versus_high", "versus_p", "versus_p_holm"), number),
    "versus_tests": int,
    "versus_p_table": number,  # corrected for the comparisons of the whole table
    "versus_level": str,
    "versus_how": str,
    "versus_n": int,
    # detectable: the smallest true difference found in 80 % of repetitions, after Holm's correction
    **dict.fromkeys(("versus_se", "versus_df", "versus_detectable"), number),
    "inside_noise": "True".__eq__,  # None where that is undecided or does not apply
    "collapsed": lambda text: tuple(text.split()),  # runs that lost their reward: seed<k>:<rollout>/<rollouts planned>
    "runs": lambda text: tuple(map(Checkpoint.parse, text.split())),  # behind the cell; for a missing one the planned
}
EMPTY = dict.fromkeys(COLUMNS) | {"seeds": (), "by_seed": {}, "collapsed": (), "runs": ()}


def frame(cells: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return one line a cell with the columns of the tidy file, as Python objects: None where there is no value."""
    import pandas as pd

    return pd.DataFrame([dict(cell) for cell in cells], columns=list(COLUMNS), dtype=object)


def cells_in(filled: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(column): value for column, value in cell.items()} for cell in filled.to_dict("records")]


def tidy_csv(filled: pd.DataFrame) -> str:
    cells = cells_in(filled)
    for cell in cells:
        cell |= {"by_seed": by_seed(cell["by_seed"]), "runs": tuple(run.path.as_posix() for run in cell["runs"])}
    return to_csv(tuple(COLUMNS), cells)


def read(tree: Tree, key: str) -> pd.DataFrame:
    """Return table `key` of `tables.yaml`, or that of all runs, as `report.tables` filled it (`frame`).

    Raises MissingInputError without the tidy file, CorruptInputError where it is damaged or was filled from
    another specification or matrix.json.
    """
    declared = rows.declaration(tree, key)
    file = tree.layout.tables / f"table{key}.tidy.csv"
    with written_by(f"python -m report.tables --results {tree.root} --table {key}"):
        lines = read_csv(file, "the table", tuple(COLUMNS), allow_empty=True)
        with cells_of(file):
            cells = [EMPTY | {name: COLUMNS[name](line[name]) for name in COLUMNS if line[name]} for line in lines]
        there = dict.fromkeys(cell["row"] for cell in cells)
        twice = {arm.again.id for arm in rows.arms(tree)} if cells else set()
        places = [(row, column) for row in there for column in declared.columns]
        declared_rows = {row.id for row in declared.rows}
        fits = twice <= there.keys() <= declared_rows | twice
        fits = fits and [(cell["row"], cell["column"]) for cell in cells] == places
        if not fits or not {cell["model"] for cell in cells} <= {model["key"] for model in tree.models}:
            raise CorruptInputError(f"{file}: not filled from {declared.source} and matrix.json as they are")
    return frame(cells)


def table(tree: Tree, key: str) -> dict[str, Any]:
    """Return `view` of a table that `read` returns."""
    return view(read(tree, key), rows.declaration(tree, key), tree)


# How the scale's models, benchmarks and checkpoints map to places of the declaration.


class Column(NamedTuple):
    """A column as this scale has it."""

    slot: str
    heading: str  # our benchmark's key where it is a stand-in, else the paper's heading
    stands_for: str | None  # the paper's heading where our benchmark is a stand-in
    benchmark: str | None  # None: this scale has no benchmark for it


def columns_of(declared: Table, tree: Tree) -> list[Column]:
    """Return the columns as the benchmarks of the scale fill them."""
    own = {entry["key"]: entry for entry in tree.benchmarks}
    columns = []
    for slot, heading in declared.columns.items():
        entry = own.get(slot) if declared.generated else tree.benchmark_for(slot, heading)
        if slot in AVERAGES or entry is None:
            columns.append(Column(slot, heading, None, slot if slot in AVERAGES else None))
        elif entry.get("stands_for") and not declared.generated:
            columns.append(Column(slot, entry["key"], heading, entry["key"]))
        else:
            columns.append(Column(slot, heading, None, entry["key"]))
    return columns


def stand_in(title: str, paper: str) -> str | None:
    """Return the paper's model that a model with this title replaces; None where it is that model."""
    return None if plain(title) == plain(paper) else paper


def model_of(tree: Tree, declared: Table, slot: str) -> Mapping[str, Any] | None:
    """Return the tree's model for a slot of the declaration; None where it has none."""
    if declared.generated:
        return next(model for model in tree.models if model["key"] == slot)
    return tree.model_for(slot, declared.models[slot])


def planned(row: Row, model: str, tree: Tree) -> list[Checkpoint]:
    """Return the checkpoints of a row of kind base or run that matrix.json plans for `model`, in its order."""
    method, step = method_of(row, model, tree), tree.step(row.step)
    if method == BASE:  # where the model's runs start: one base, or one per seed
        fresh = any(chosen == model for chosen, _ in tree.chosen)
        seeds = sorted(_seeds(row, [run for run in tree.runs if run.model == model], tree, fresh=fresh))
        wanted = [base for seed in seeds if (base := tree.base(model, seed)) is not None]
    elif step is None:  # the scale takes no second look
        wanted = []
    else:
        runs = [run for run in tree.runs if (run.model, run.method) == (model, method)]
        own = _seeds(row, runs, tree, fresh=_chosen(row, model, tree) is not None)
        wanted = [Checkpoint(run, step) for run in runs if run.seed in own]
    return [checkpoint for checkpoint in dict.fromkeys(wanted) if checkpoint in tree.evaluated]


def method_of(row: Row, model: str, tree: Tree) -> str | None:
    """Return the canonical key of a row's method, None where the scale does not train it. After a sweep's second round,
    it is that of the chosen value."""
    return _chosen(row, model, tree) or tree.method_for(row.method or "")


def _chosen(row: Row, model: str, tree: Tree) -> str | None:
    """Return the chosen method; a row with explicit seeds already has its method, as in the table of all runs."""
    return None if row.numbers is not None else tree.chosen.get((model, row.method or ""))


def _seeds(row: Row, runs: Iterable[Run], tree: Tree, *, fresh: bool) -> set[int]:
    """Return the seeds of a row: of a sweep the fresh ones or the others. A mean over both would mix two things."""
    if row.numbers is not None:
        return set(row.numbers)
    own = sorted({run.seed for run in runs if tree.is_fresh(run) == fresh})
    # Positions and not numbers: training on seeds 11 and 12 also gives a first and a second seed.
    return set(own) if row.seeds is None else {own[place - 1] for place in row.seeds if place <= len(own)}


# Content of a table as shown, in nested lists and mappings.


def view(filled: pd.DataFrame, declared: Table, tree: Tree) -> dict[str, Any]:
    """Return everything that a table shows: `blocks` have `rows`, rows have `cells` by column (`columns` are in order).

    A cell has its columns of the tidy file and the texts of `report.markdown.shown`; a row what its cells have in
    common, its declaration, and its checkpoints. Then come sentences: `lead` (what results of this scale can
    show), `errors` (how many marks are expected by chance), `caption`, `levels` (of the intervals), `notes` (what is
    omitted, missing, collapsed), `empty` (in place of a table without a number).
    """
    columns, own = columns_of(declared, tree), {row.id for row in declared.rows}
    found = cells_in(filled)
    best = _best([cell for cell in found if cell["row"] in own], declared)
    by_row: dict[str, dict[str, dict[str, Any]]] = {}
    for cell in found:
        of_row = by_row.setdefault(cell["row"], {})
        of_row[cell["column"]] = cell | markdown.shown(cell, best=(cell["row"], cell["column"]) in best)
    titles = {model["key"]: str(model["title"]) for model in tree.models}
    shown_rows = {row.id: _row(row, by_row[row.id]) for row in declared.rows if row.id in by_row}
    blocks = []
    for block in declared.blocks:
        of_block = [shown_rows[row.id] for row in block.rows if row.id in shown_rows]
        if of_block:
            title = titles[of_block[0]["model"]]
            paper = stand_in(title, declared.models[block.model])
            of = f"{title}, standing for {paper}" if paper else title
            compared = shown_rows.get(block.baseline or "")
            about = {"title": block.title, "model": title, "stands_for": paper, "of": of, "reference": block.baseline}
            about["head"] = f"{block.title}: {of}" if block.title else of
            about["baseline"] = f"Marks compare with {compared['name']}." if compared else ""
            blocks.append(about | {"rows": of_block})
    cells = [cell for row in shown_rows.values() for cell in row["cells"].values()]
    again = [list(of_row.values()) for id, of_row in by_row.items() if id not in own]
    measured, ran = (any(row[state] for row in shown_rows.values()) for state in ("measured", "ran"))
    state = "" if measured else "no score yet" if ran else "not part of this scale"
    levels = {cell["level"] for cell in cells if cell["measured"]}
    table: dict[str, Any] = {
        "key": declared.key,
        "title": declared.title,
        "heading": declared.heading,
        "generated": declared.generated,
        "scale": tree.scale,
        "lead": captions.lead(tree.matrix),
        "columns": [column._asdict() for column in columns],
        "blocks": blocks,
        "cells": cells,
        "again": list(zip(again_lines(again), again or [[]], strict=True)),  # a line, and the cells that it is about
        "notes": list(dict.fromkeys(_notes(declared, tree, columns, blocks))),
        "levels": [text for level, text in captions.LEVELS.items() if level in levels],
        "empty": f"{declared.heading}: {state}." if state else "",
    }
    table["errors"] = [] if state else [*table_lines(cells), *(line for line, _ in table["again"])]
    table["caption"] = [*captions.paragraphs(f"table{declared.key}"), *footnotes(table), *table["levels"]]
    return table


def _row(row: Row, cells: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a row with its cells by column."""
    any_cell = next(iter(cells.values()))  # the values read from it are equal in all cells of a row
    states = {cell["state"] for cell in cells.values()}
    seeds = {seed for cell in cells.values() for seed in cell["seeds"]}
    return {name: any_cell[name] for name in ("kind", "model", "method", "step", "collapsed")} | {
        "id": row.id,
        "declared": row,
        "name": any_cell["label"],
        "label": any_cell["label"] + f" {COLLAPSED}" * bool(any_cell["collapsed"]),
        "seeds": f"{len(seeds)} seed{'s' * (len(seeds) > 1)}" if seeds else "",
        "ran": bool(states & {MEASURED, MISSING}),
        "measured": MEASURED in states,
        "checkpoints": list(dict.fromkeys(run for cell in cells.values() for run in cell["runs"])),
        "cells": cells,
    }


def sources(cell: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the sources of a number: checkpoints, or whole runs for a learning-curve measure, whatever their step."""
    return tuple(run.run for run in cell["runs"]) if cell["column"] in MEASURES else cell["runs"]


def _best(cells: Iterable[Mapping[str, Any]], declared: Table) -> set[tuple[str, str]]:
    """Return (row, column) of every number printed in bold: the highest of its column among the rows of a model,
    where its difference to the baseline is outside noise, or for the baseline, all others' are.

    Printed digits are compared, and of equal ones none is the best. Means compete with means, differences do not
    compete, and a number without a competitor is not the best: a run in several rows counts once. Neither is a
    number without a baseline, such as a base model's or a probability of being best.
    """
    baselines = {block.baseline for block in declared.blocks}
    groups: dict[tuple[str, str, bool], list[Mapping[str, Any]]] = {}
    for cell in cells:
        if not markdown.is_difference(cell) and cell["value"] is not None:
            groups.setdefault((cell["model"], cell["column"], cell["kind"] == "mean"), []).append(cell)
    best = set()
    for group in groups.values():
        highest = max((markdown.percent(cell["value"]) for cell in group), key=float)
        first = [cell for cell in group if markdown.percent(cell["value"]) == highest]
        judged = [cell for cell in first if cell["versus"] is not None]
        if not judged and any(cell["row"] in baselines for cell in first):
            judged = [cell for cell in group if cell["versus"] is not None]
        decided = bool(judged) and all(cell["inside_noise"] is False for cell in judged)
        if decided and len({sources(cell) for cell in first}) == 1:
            best |= {(cell["row"], cell["column"]) for cell in first}
    return best


def again_lines(arms: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return how often a method under two names was marked: one line per A/A arm, or that there is none."""
    lines = []
    for cells in arms:
        judged = [c["mark"] for c in cells if c["versus_level"] == "seed" and c["inside_noise"] is not None]
        arrows = [sign for sign in judged if sign[0] in "↑↓"]
        certain = sum(not sign.endswith("?") for sign in arrows)
        n = len({seed for cell in cells for seed in cell["seeds"]})
        counts = f"{certain} of {len(judged)} cells marked; {len(arrows)} before Holm's correction"
        counts = counts if judged else "no cell can be marked"
        lines.append(f"{rows.AGAIN} arm ({cells[0]['label']}, {n} seed{'s' * (n != 1)}): {counts}.")
    return lines or [f"{rows.AGAIN} arm: not run."]


def table_lines(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return how many marks survive correction over the table, and how likely chance alone makes one: C columns, each
    with a false mark in at most 5 % of tables (Holm), have one in at most C times 5 %.

    The result is empty where nothing is compared.
    """
    cells = list(cells)
    compared = [c for c in cells if c["versus_p_table"] is not None and c["column"] != DELTA]
    tests = {c["column"]: c["versus_tests"] or 0 for c in compared}
    if not tests:
        return []
    marked = [c["versus_p_table"] for c in cells if c["mark"].strip("()") in ("↑", "↓")]
    held = sum(p is not None and p < ALPHA for p in marked)
    bound = min(100, round(100 * ALPHA * len(tests)))
    return [
        f"{held} of {len(marked)} marks ↑ ↓ also hold corrected over all {sum(tests.values())} "
        "comparisons of the table. If no method differed, chance would put one somewhere in at most "
        f"{bound} % of such tables ({len(tests)} columns, {100 * ALPHA:.0f} % each)."
    ]


def footnotes(table: Mapping[str, Any]) -> list[str]:
    """Return one line for each mark and word that the table's cells have, in the order of `captions.FOOTNOTES`."""
    cells = table["cells"]
    signs = [cell["mark"] for cell in cells]
    occurring = {sign.strip("()").replace("↓", "↑") for sign in signs} | {cell["text"] for cell in cells}
    occurring |= {"bold"} if any(cell["best"] for cell in cells) else set()
    occurring |= {"()"} if any(sign.startswith("(") for sign in signs) else set()
    occurring |= {"/"} if any(markdown.few_seeds(cell) for cell in cells) else set()
    occurring |= {COLLAPSED} if any(cell["collapsed"] for cell in cells) else set()
    occurring |= {column["heading"] for column in table["columns"]}
    return [line for key, line in captions.FOOTNOTES.items() if key in occurring or not key]


def _notes(
    declared: Table, tree: Tree, columns: Sequence[Column], blocks: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Yield sentences on what is omitted, run differently, collapsed or missing; some may repeat."""
    for slot in dict.fromkeys(block.model for block in declared.blocks):
        if model_of(tree, declared, slot) is None:
            yield f"Rows of {declared.models[slot]} are left out: no model of this scale stands for it."
    without = [c.heading for c in columns if c.benchmark is None and c.slot not in MEASURES]
    if without and not declared.generated:
        yield f"No benchmark of this scale stands for {', '.join(without)}."
    for block in declared.blocks:
        if declared.generated and block.baseline is None:
            yield f"{block.title}: no run of the baseline under these settings; nothing is compared."
    if tree.chosen and not declared.generated:
        select, test = (", ".join(map(str, tree.matrix["sweep"][key])) for key in ("select_seeds", "test_seeds"))
        yield (
            f"Each method at the value that was best for it on seeds {select}; what is shown is over seeds {test}, "
            "which chose nothing. What chose, and all methods at one value: sweep/sweep.md."
        )
    shown = [(row, block["model"]) for block in blocks for row in block["rows"]]
    for row, _ in shown:
        declared_as, run_as = row["declared"].method, row["method"]
        if run_as and run_as in tree.chosen.values():
            run_as = split(run_as)[0]  # the label has the values that the sweep chose
        # A scale may set options of a method (`clip_cov+fraction=0.01` for `clip_cov`), which the label does not show.
        # Where the catalog's name differs as well, the declared one is only an alias of the method.
        names = [split(name)[0].partition("+")[0] for name in (declared_as, run_as) if name]
        if len(names) == 2 and run_as != declared_as and names[0] == names[1]:
            yield f"{row['name']} is run as {run_as} at this scale."
    for row, model in shown:
        for collapse in row["collapsed"]:  # seed2:6/16
            seed, _, rollouts = collapse.removeprefix("seed").partition(":")
            at, _, of = rollouts.partition("/")
            scored = f"scored is rollout {row['step']}"
            if int(at) <= (row["step"] or 0):
                scored = "scored is what was left of the policy"
            what = f"seed {seed} collapsed at rollout {at}{f' of {of}' if of else ''}; {scored}"
            yield f"{COLLAPSED} {row['name']} ({model}): {what}."
    benchmarks = [column.benchmark for column in columns if column.benchmark is not None]
    missing: dict[Checkpoint, set[str]] = {}  # checkpoint -> benchmarks without a score for it
    for row, _ in shown:
        for cell in row["cells"].values():
            if row["declared"].method is None or cell["benchmark"] is None or cell["state"] == NOT_RUN:
                continue
            # The runs of a measured cell are those with a score, the runs of a missing one those that are planned.
            there = cell["runs"] if cell["state"] == MEASURED else ()
            for checkpoint in planned(row["declared"], row["model"], tree):
                if checkpoint not in there:
                    missing.setdefault(checkpoint, set()).add(cell["benchmark"])
    for checkpoint, of_checkpoint in sorted(missing.items()):
        absent = [benchmark for benchmark in benchmarks if benchmark in of_checkpoint]
        what = "no scores" if len(absent) == len(benchmarks) else f"no score of {', '.join(absent)}"
        yield f"Missing: {checkpoint.path.as_posix()} has {what}."
