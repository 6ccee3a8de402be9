"""The tidy file of a table, `tables/table<key>.tidy.csv`: one line per cell, everything known about it.

`report.tables.fill` computes the cells; everything that shows a table reads the file by `read_table`. Titles, headings
and notes follow from the declaration and matrix.json. Nothing here computes a number.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import groupby
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict

from core.declared import validated
from core.errors import CorruptInputError, written_by
from core.files import cells_of, read_csv, to_csv
from core.layout import BASE, Checkpoint, Run, split
from core.results_tree import Tree, plain
from report import captions
from report.tables import spec
from report.tables.spec import AVERAGES, Block

State = Literal["measured", "missing", "not run", "not compared"]
MEASURED: State = "measured"
NOT_RUN: State = "not run"  # this scale does not plan the run or the benchmark
MISSING: State = "missing"  # planned, but scores.csv has no number for it
NOT_COMPARED: State = "not compared"  # a base model's reward, a baseline minus itself, two rows without a common seed


def _words(value: Any) -> Any:
    return tuple(value.split()) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Numbers = Annotated[tuple[int, ...], BeforeValidator(_words)]


class Cell(BaseModel):
    """One line of the tidy file; the fields are its columns (docs/results.md). Values are fractions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    row: str  # id of the row
    label: str = ""
    kind: spec.Kind | Literal["again"]  # again: of an A/A arm, which is no row of the table
    block: str | None = None  # title of the block
    state: State
    model: str
    method: str | None = None  # canonical key with variant; `a - b` (ids of rows) in a difference
    step: int | None = None
    seeds: Numbers = ()
    by_seed: Words = ()  # the value of each seed, `<seed>:<value>`; of a difference the seeds that both sides have
    column: str
    benchmark: str | None = None
    value: float | None = None  # None where `state` is not `measured`
    low: float | None = None
    high: float | None = None
    level: str = ""  # what the interval is about: problem, seed
    how: str = ""
    n: int | None = None
    printed: Decimal | None = None  # by the paper, with its digits; None where the row is not the paper's
    comparable: bool | None = None  # whether value and printed may be set side by side
    baseline: str | None = None  # id of the row that the cell is compared with; None: not compared
    versus: float | None = None  # value minus the baseline's, paired
    versus_low: float | None = None
    versus_high: float | None = None
    versus_p: float | None = None
    versus_p_holm: float | None = None  # corrected for the comparisons of the column; None: could not be tested
    versus_tests: int | None = None
    versus_p_table: float | None = None  # corrected for the comparisons of the whole table
    versus_level: str | None = None
    versus_how: str | None = None
    versus_n: int | None = None
    versus_se: float | None = None
    versus_df: float | None = None  # degrees of freedom of its t test
    versus_detectable: float | None = None  # smallest true difference found in 80 % of repetitions, after Holm
    inside_noise: bool | None = None  # None where that cannot be said, or is not asked
    collapsed: Words = ()  # runs behind the row that lost their reward: seed<k>:<rollout>/<rollouts planned>
    runs: Words = ()  # checkpoints behind the cell, as paths below the results folder; of a missing one the planned

    @property
    def is_difference(self) -> bool:
        return self.kind == "delta" or self.column == spec.DELTA

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return [Checkpoint.parse(path) for path in self.runs]

    @property
    def sources(self) -> tuple[object, ...]:
        """What the number is of: checkpoints, or for a measure of learning curves whole runs, whatever their step."""
        return tuple(c.run for c in self.checkpoints) if self.column in spec.MEASURES else self.runs

    @property
    def seed_values(self) -> dict[int, float]:
        return from_by_seed(self.by_seed)


def by_seed(values: Mapping[int, float]) -> tuple[str, ...]:
    """The value of each seed as files have it, `<seed>:<value>` with every digit."""
    return tuple(f"{seed}:{values[seed]!r}" for seed in sorted(values))


def from_by_seed(texts: Iterable[str]) -> dict[int, float]:
    """The opposite of `by_seed`; ValueError for another form."""
    pairs = (text.split(":") for text in texts)
    return {int(seed): float(value) for seed, value in pairs}


TIDY = tuple(Cell.model_fields)
WIDE = 0.5  # an interval of more points says hardly anything, as that of two seeds (12.7 standard errors to each side)
FEWEST = 5  # methods of a correlation


class Column(NamedTuple):
    """A column as this scale has it."""

    slot: str
    heading: str  # our benchmark's key where it is a stand-in, else the paper's heading
    stands_for: str | None  # the paper's heading where our benchmark is a stand-in
    benchmark: str | None  # None: no benchmark of this scale fills it


@dataclass(frozen=True)
class Row:
    """The cells of one row, and what they have in common."""

    id: str
    label: str
    kind: spec.Kind
    model: str
    model_title: str
    stands_for: str | None  # the paper's model in whose place the row's model stands; None: it is that model
    method: str | None
    step: int | None
    collapsed: tuple[str, ...]
    declared: spec.Row
    block: Block
    cells: Mapping[str, Cell]  # by column

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for cell in self.cells.values() for seed in cell.seeds})

    @property
    def ran(self) -> bool:
        return any(cell.state in (MEASURED, MISSING) for cell in self.cells.values())

    @property
    def measured(self) -> bool:
        return any(cell.state == MEASURED for cell in self.cells.values())

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return list(dict.fromkeys(checkpoint for cell in self.cells.values() for checkpoint in cell.checkpoints))


@dataclass(frozen=True)
class Table:
    """A table as it is shown."""

    declared: spec.Table
    scale: str
    lead: tuple[str, ...]  # what results of this scale can and cannot say
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    again: tuple[tuple[Cell, ...], ...]  # the cells of each A/A arm

    @property
    def key(self) -> str:
        return self.declared.key

    @property
    def blocks(self) -> list[list[Row]]:
        """The rows of each block; a block that the scale has no model for is not among them."""
        return [list(rows) for _, rows in groupby(self.rows, key=lambda row: id(row.block))]

    @property
    def cells(self) -> list[Cell]:
        return [row.cells[column.slot] for row in self.rows for column in self.columns]

    @property
    def measured(self) -> bool:
        return any(row.measured for row in self.rows)

    @cached_property
    def best(self) -> frozenset[tuple[str, str]]:
        """(row, column) of every number that is printed in bold: the highest of its column among the rows of a model,
        where its difference to the baseline is outside noise, or if it is the baseline's own, all others' are.

        Compared are the printed digits, and of equal ones none is the best. Means compete with means, differences with
        nothing, and one that has no competitor is not the best: a run that stands in several rows is one. A number that
        is compared with no baseline, as a base model's or a probability of being best, is none either.
        """
        baselines = {block.baseline for block in self.declared.blocks}
        groups: dict[tuple[str, str, bool], list[Cell]] = {}
        for cell in self.cells:
            if not cell.is_difference and cell.value is not None:
                groups.setdefault((cell.model, cell.column, cell.kind == "mean"), []).append(cell)
        best = set()
        for cells in groups.values():
            highest = max((percent(cell.value) for cell in cells), key=float)
            first = [cell for cell in cells if percent(cell.value) == highest]
            judged = [cell for cell in first if cell.versus is not None]
            if not judged and any(cell.row in baselines for cell in first):
                judged = [cell for cell in cells if cell.versus is not None]
            decided = bool(judged) and all(cell.inside_noise is False for cell in judged)
            if decided and len({cell.sources for cell in first}) == 1:
                best |= {(cell.row, cell.column) for cell in first}
        return frozenset(best)


def percent(value: float | Decimal | None) -> str:
    """A fraction in percent, `12.30`; the empty string for None, 0.00 for -0.00."""
    if value is None:
        return ""
    text = f"{100 * value:.2f}"
    return "0.00" if text == "-0.00" else text


def with_interval(row: Mapping[str, Any], name: str) -> str:
    """`name` of a row in percent with the interval in `name`_low and _high; – for None."""
    if row[name] is None:
        return "–"
    return bracketed(percent(row[name]), row[f"{name}_low"], row[f"{name}_high"], percent)


def bracketed(number: str, low: float | None, high: float | None, form: Callable[[float], str]) -> str:
    """`number` with the ends of its interval behind it, `12.30 [11.10, 13.50]`; alone where there is none."""
    return number if low is None or high is None else f"{number} [{form(low)}, {form(high)}]"


def tidy_csv(cells: Iterable[Cell]) -> str:
    return to_csv(TIDY, (cell.model_dump() for cell in cells))


def read_table(tree: Tree, key: str) -> Table:
    """Return table `key` of `tables.yaml`, or that of all runs, as `report.table` filled it for these results.

    Raises MissingInputError where the tidy file is not there, CorruptInputError where it does not parse, or was filled
    from another specification or matrix.json.
    """
    declared = spec.declaration(tree, key)
    file = tree.layout.tables / f"table{key}.tidy.csv"
    cells = []
    with written_by(f"python -m report.table --results {tree.root} --table {key}"):
        for number, line in enumerate(read_csv(file, "the table", TIDY, allow_empty=True), 2):
            fields = {name: text for name, text in line.items() if text != ""}
            cells.append(validated(Cell, fields, f"{file}: line {number}", error=CorruptInputError))
        rows = dict.fromkeys(cell.row for cell in cells)
        twice = {arm.again.id for arm in spec.arms(tree)} if cells else set()
        places = [(row, column) for row in rows for column in declared.columns]
        declared_rows = {row.id for row in declared.rows}
        fits = twice <= rows.keys() <= declared_rows | twice and [(cell.row, cell.column) for cell in cells] == places
        if not fits or not {cell.model for cell in cells} <= {model["key"] for model in tree.models}:
            raise CorruptInputError(f"{file}: not filled from {declared.source} and matrix.json as they are")
    return view(declared, tree, cells)


def checked_table(tree: Tree, key: str) -> Table:
    """`read_table`, after every file that `report.table` wrote of it was held against its hash."""
    with written_by(f"python -m report.table --results {tree.root} --table {key}"):
        tree.check_written(f"tables/table{key}", f"tables/table{key}.tidy.csv")
    return read_table(tree, key)


def view(declared: spec.Table, tree: Tree, cells: Iterable[Cell]) -> Table:
    """The cells with what the declaration and matrix.json say about them."""
    by_row: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        by_row.setdefault(cell.row, {})[cell.column] = cell
    titles = {model["key"]: model["title"] for model in tree.models}
    rows = []
    for block in declared.blocks:
        for row in block.rows:
            if row.id in by_row:
                cell = next(iter(by_row[row.id].values()))  # any: what is read from it is the same in all of a row
                rows.append(
                    Row(
                        id=row.id,
                        label=cell.label,
                        kind=row.kind,
                        model=cell.model,
                        model_title=titles[cell.model],
                        stands_for=stand_in(titles[cell.model], declared.models[block.model]),
                        method=cell.method,
                        step=cell.step,
                        collapsed=cell.collapsed,
                        declared=row,
                        block=block,
                        cells=by_row[row.id],
                    )
                )
    twice = [tuple(by_row[arm.again.id].values()) for arm in spec.arms(tree) if arm.again.id in by_row]
    columns = tuple(columns_of(declared, tree))
    notes = dict.fromkeys(_notes(declared, tree, columns, rows))
    lead = tuple(captions.lead(tree.matrix))
    return Table(declared, tree.scale, lead, columns, tuple(rows), tuple(notes), tuple(twice))


def stand_in(title: str, paper: str) -> str | None:
    """The paper's model in whose place a model with this title stands; None where it is that model."""
    return None if plain(title) == plain(paper) else paper


def model_of(tree: Tree, declared: spec.Table, slot: str) -> Mapping[str, Any] | None:
    """The tree's model for a slot of the declaration; None where it has none."""
    if declared.generated:
        return next(model for model in tree.models if model["key"] == slot)
    return tree.model_for(slot, declared.models[slot])


def columns_of(declared: spec.Table, tree: Tree) -> list[Column]:
    """The columns as the benchmarks of the scale fill them."""
    own = {entry["key"]: entry for entry in tree.benchmarks}
    columns = []
    for slot, heading in declared.columns.items():
        if slot in AVERAGES:
            columns.append(Column(slot, heading, None, slot))
        elif (benchmark := own.get(slot) if declared.generated else tree.benchmark_for(slot, heading)) is None:
            columns.append(Column(slot, heading, None, None))
        elif benchmark.get("stands_for") and not declared.generated:
            columns.append(Column(slot, benchmark["key"], heading, benchmark["key"]))
        else:
            columns.append(Column(slot, heading, None, benchmark["key"]))
    return columns


def planned(row: spec.Row, model: str, tree: Tree) -> list[Checkpoint]:
    """The checkpoints of a row of kind base or run that matrix.json plans for `model`, in its order."""
    method, step = method_of(row, model, tree), tree.step(row.step)
    if method == BASE:
        wanted = _bases(row, model, tree)
    elif step is None:  # the scale takes no second look
        wanted = []
    else:
        runs = [run for run in tree.runs if (run.model, run.method) == (model, method)]
        seeds = _seeds(row, runs, tree, fresh=_chosen(row, model, tree) is not None)
        wanted = [Checkpoint(run, step) for run in runs if run.seed in seeds]
    return [checkpoint for checkpoint in wanted if checkpoint in tree.evaluated]


def method_of(row: spec.Row, model: str, tree: Tree) -> str | None:
    """Canonical key of a row's method; None where the scale does not train it. Once a sweep has its second round, that
    of the value chosen for it."""
    return _chosen(row, model, tree) or tree.method_for(row.method or "")


def _chosen(row: spec.Row, model: str, tree: Tree) -> str | None:
    """A row with seeds of its own names them and its method itself, as those of the table of all runs do."""
    return None if row.numbers is not None else tree.chosen.get((model, row.method or ""))


def _seeds(row: spec.Row, runs: Iterable[Run], tree: Tree, *, fresh: bool) -> set[int]:
    """The seeds of a row: of a sweep the fresh ones or the others. A mean over both would be of two things."""
    if row.numbers is not None:
        return set(row.numbers)
    own = sorted({run.seed for run in runs if tree.is_fresh(run) == fresh})
    # Places and not numbers: whoever trains on seeds 11 and 12 has a first and a second seed too.
    return set(own) if row.seeds is None else {own[place - 1] for place in row.seeds if place <= len(own)}


def _bases(row: spec.Row, model: str, tree: Tree) -> list[Checkpoint]:
    """What the model's runs start from: one base, or each seed's own; those of the seeds that its rows are over."""
    fresh = any(chosen == model for chosen, _ in tree.chosen)
    seeds = _seeds(row, [run for run in tree.runs if run.model == model], tree, fresh=fresh)
    found = [tree.base(model, seed) for seed in sorted(seeds)]
    return list(dict.fromkeys(base for base in found if base is not None))


def _notes(declared: spec.Table, tree: Tree, columns: Iterable[Column], rows: Iterable[Row]) -> Iterable[str]:
    """What is left out, run differently, collapsed or missing, in sentences; some may come twice."""
    for slot in dict.fromkeys(block.model for block in declared.blocks):
        if model_of(tree, declared, slot) is None:
            yield f"Rows of {declared.models[slot]} are left out: no model of this scale stands for it."
    without = [c.heading for c in columns if c.benchmark is None and c.slot not in spec.MEASURES]
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
    for row in rows:
        declared_as, run_as = row.declared.method, row.method
        if run_as and run_as in tree.chosen.values():
            run_as = split(run_as)[0]  # the label names what the sweep chose
        # A scale may set options of a method (`clip_cov+fraction=0.01` for `clip_cov`), which the label does not tell.
        # Where the catalog's name differs as well, the declared one is only another name of the method.
        if declared_as and run_as and run_as != declared_as and _name(run_as) == _name(declared_as):
            yield f"{row.label} is run as {run_as} at this scale."
    for row in rows:
        for collapse in row.collapsed:
            yield f"† {row.label} ({row.model_title}): {_collapse(collapse, row.step or 0)}."
    missing: dict[Checkpoint, list[str]] = {}  # checkpoint -> benchmarks that it has no score of
    benchmarks = [column.benchmark for column in columns if column.benchmark is not None]
    for row in rows:
        for cell in row.cells.values():
            if row.declared.method is None or cell.benchmark is None or cell.state == NOT_RUN:
                continue
            # The runs of a measured cell are those with a score, the runs of a missing one those that are planned.
            there = cell.checkpoints if cell.state == MEASURED else []
            for checkpoint in planned(row.declared, row.model, tree):
                if checkpoint not in there and cell.benchmark not in missing.setdefault(checkpoint, []):
                    missing[checkpoint].append(cell.benchmark)
    for checkpoint in sorted(missing):
        without = [benchmark for benchmark in benchmarks if benchmark in missing[checkpoint]]
        if without:
            what = "no scores" if len(without) == len(benchmarks) else f"no score of {', '.join(without)}"
            yield f"Missing: {checkpoint.path.as_posix()} has {what}."


def at_value(label: str, model: str, method: str, tree: Tree) -> str:
    """`label` with the settings of training that a sweep chose; options of the method are `with_options`'."""
    points = (tree.matrix.get("sweep") or {}).get("points", ())
    values: Mapping[str, Any] = next((p["values"] for p in points if (p["model"], p["method"]) == (model, method)), {})
    for axis, value in values.items():
        if axis.startswith("training."):
            name = axis.removeprefix("training.").replace("_", " ")
            label += f", {name} {value:g}" if isinstance(value, float) else f", {name} {value}"
    return label


def with_options(label: str, declared: str, method: str) -> str:
    """`label` with the options that `method` has beyond the declared one: a changed method never has the plain name."""
    (theirs, _), (ours, _) = split(declared), split(method)
    # A declared alias has another first word; its options are in the canonical key, and are no change.
    if _name(theirs) != _name(ours):
        return label
    added = [option.replace("=", " ") for option in ours.split("+")[1:] if option not in theirs.split("+")[1:]]
    return f"{label} ({', '.join(added)})" if added else label


def _name(method: str) -> str:
    """The catalog's name in a method's key, without options and variant."""
    return split(method)[0].partition("+")[0]


def _collapse(collapse: str, step: int) -> str:
    """`seed2:6/16`, scored at rollout `step`, in words."""
    seed, _, rollouts = collapse.removeprefix("seed").partition(":")
    at, _, of = rollouts.partition("/")
    scored = "scored is what was left of the policy" if int(at) <= step else f"scored is rollout {step}"
    return f"seed {seed} collapsed at rollout {at}{f' of {of}' if of else ''}; {scored}"


@contextmanager
def rows_of_curves(tree: Tree, files: Mapping[str, tuple[str, Sequence[str]]]) -> Iterator[list[list[dict[str, str]]]]:
    """The rows of files of `report.convergence`; errors in the block name them. files: name -> what it has, columns."""
    paths = {name: tree.layout.figures / name for name in files}
    with written_by(f"python -m report.convergence --results {tree.root}"), cells_of(*paths.values()):
        tree.check_written("figures/convergence", *(f"figures/{name}" for name in files))
        yield [read_csv(paths[name], what, columns, allow_empty=True) for name, (what, columns) in files.items()]


def number(text: str) -> float | None:
    """A cell of these files: a float as Python wrote it, so every digit comes back; empty is None."""
    value = float(text) if text else None
    if value is not None and not math.isfinite(value):
        raise ValueError(f"{text} is no number")
    return value
