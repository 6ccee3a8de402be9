"""Declare the rows and columns of tables: those of `tables.yaml`, validated as it is read, and the one of all runs.

`report.tables` fills a declaration with numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from core.declared import Declared, Tuple, validated
from core.errors import ConfigError, unknown
from core.files import read_yaml
from core.layout import BASE, REFERENCE, Checkpoint, Run, split
from core.provenance import ROOT
from evals.scores import MACRO, POOLED
from paper import printed

if TYPE_CHECKING:  # keep `report.tables --help` fast: no slow import
    from evals.tree import Tree

DATA = ("report/tables.yaml",)
TABLES = ROOT / DATA[0]
RUNS = "runs"  # key of the table of all runs, which is derived from matrix.json
AVERAGES = (POOLED, MACRO)  # columns over several benchmarks
# Columns of the table of all runs that are not scores: difference of the pooled average to the baseline, probability of
# the highest average in the block, and measures of `evals.learning_curves`.
DELTA, BEST = "delta", "best"
MEASURES = {"final": "Final reward", "area": "Area under reward"}

Kind = Literal["base", "run", "mean", "delta"]
KINDS: tuple[Kind, ...] = ("base", "run", "mean", "delta")  # each is computed from rows of the kinds before it
Step = int | Literal["long"] | None  # rollouts; long: the scale's second look; None: its table_step
PRINTED_STEPS = {72: None, printed.LONG_STEPS: "long"}  # the paper's rollouts -> `step` of a declared row


class Row(Declared):
    """A method's checkpoints, the difference of two rows, or the mean over rows that differ only in the seed."""

    id: str
    label: str
    method: str | None = None  # as the configuration names it; `base`: the untrained model
    delta: Tuple[str] | None = None  # [row, subtracted row]
    mean: Tuple[str] | None = None
    when: Literal["run"] | None = None  # run: the row is omitted where the scale does not train it
    seeds: Tuple[int] | None = None  # positions in the ascending order of the matrix's seeds, from 1; None: all of them
    numbers: Tuple[int] | None = None  # of a table generated for one tree: the seeds as numbers
    step: Step = None

    @field_validator("step", mode="before")
    @classmethod
    def _is_a_step(cls, step: object) -> object:
        if step is None or step == "long" or (type(step) is int and step > 0):
            return step
        raise ValueError(f"must be a number of rollouts or `long`, got {step!r}")

    @property
    def kind(self) -> Kind:
        if self.method is not None:
            return "base" if self.method == BASE else "run"
        return "delta" if self.delta else "mean"

    @property
    def of(self) -> tuple[str, ...]:
        """The rows that a derived row is computed from."""
        return self.delta or self.mean or ()

    @property
    def content(self) -> tuple[Any, ...]:
        """Key of the numbers: two rows of one block with equal keys would show the same numbers."""
        return self.method or self.kind, self.of, self.seeds, self.numbers, self.step

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Row:
        row = f"row {self.id}"
        if sum(part is not None for part in (self.method, self.delta, self.mean)) != 1:
            raise ValueError(f"{row} needs either method, delta or mean")
        if self.delta is not None and len(self.delta) != 2:
            raise ValueError(f"{row}: delta must be [row, minus row], got {list(self.delta)}")
        if self.mean is not None and len(self.mean) < 2:
            raise ValueError(f"{row}: mean must be a list of two rows or more, got {list(self.mean)}")
        for key in ("seeds", "step"):
            if self.of and getattr(self, key) is not None:
                raise ValueError(f"{row}: {key} belongs to the rows that it is computed from")
        if self.seeds is not None and (not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 1):
            raise ValueError(f"{row}: seeds must name one place or more, from 1, each once, got {list(self.seeds)}")
        return self


class Block(Declared):
    """Rows of one of the paper's models."""

    model: str  # a key of the file's `models`
    rows: Tuple[Row]
    title: str | None = None  # heads the block where a table has panels
    baseline: str | None = None  # id of the row that the rows are compared with, in any block of this model


class Body(Declared):
    title: str = ""
    columns: Tuple[str]  # keys of the file's `columns`
    blocks: Tuple[Block]


class File(Declared):
    """`tables.yaml`. A user's own file may omit models and columns: those of `tables.yaml` then apply."""

    models: dict[str, str] = Field(default_factory=dict)
    columns: dict[str, str] = Field(default_factory=dict)
    tables: dict[str, Body]


class Table(Declared):
    """A table with everything that its declaration refers to."""

    key: str
    title: str
    columns: dict[str, str]  # slot -> printed heading, in order
    blocks: Tuple[Block]
    models: dict[str, str]  # slot -> the paper's model
    source: str  # file with the declaration, for errors
    generated: bool = False  # from matrix.json (`of_runs`): slots are keys of the tree's models, benchmarks

    @property
    def rows(self) -> list[Row]:
        return [row for block in self.blocks for row in block.rows]

    @property
    def heading(self) -> str:
        """`Table 1: ...`; only the title for a table without a number in the paper."""
        return f"Table {self.key}: {self.title}" if self.key.isdigit() else self.title or self.key


def tables(path: Path | str = TABLES) -> dict[str, Table]:
    """Return every table of a specification file by key; ConfigError where a name or row does not fit."""
    where, content = str(path), read_yaml(path, "specification")
    if isinstance(content.get("tables"), dict):  # YAML reads the key of `1:` as a number
        content["tables"] = {str(key): body for key, body in content["tables"].items()}
    file = validated(File, content, where)
    # A one-table file used next to the shipped one need not repeat the paper's models and columns.
    shipped = file if file.models and file.columns else validated(File, read_yaml(TABLES), str(TABLES))
    models, columns = file.models or shipped.models, file.columns or shipped.columns
    declared = {}
    for key, body in file.tables.items():
        at = f"tables.{key}"
        for slot in body.columns:
            if slot not in columns:
                raise unknown(where, f"{at}.columns", slot, columns)
        _once(body.columns, f"{where}: {at}.columns: column")
        named = {slot: columns[slot] for slot in body.columns}
        table = Table(key=key, title=body.title, columns=named, blocks=body.blocks, models=models, source=where)
        _once([row.id for row in table.rows], f"{where}: {at}: row id")
        for number, block in enumerate(table.blocks):
            _check_block(block, table, f"{at}.blocks.{number}")
        declared[key] = table
    return declared


def table(key: str, path: Path | str = TABLES) -> Table:
    """Return table `key` of a specification file; raises as `tables`, and for an unknown key."""
    declared = tables(path)
    if key not in declared:
        raise unknown(str(path), "tables", key, declared)
    return declared[key]


def declaration(tree: Tree, key: str, path: Path | str = TABLES) -> Table:
    """Return a table of the specification file, or the table of all runs."""
    return of_runs(tree) if key == RUNS else table(key, path)


def offered() -> list[str]:
    """Return the keys of the tables: those of tables.yaml, and the one of all runs."""
    return [*tables(), RUNS]


def check(table: Table, catalog: ModuleType) -> None:
    """Look up the methods: a misspelt one would otherwise show as `not run`. catalog: `methods.catalog`, a parameter
    because showing a table does not require its import.

    Raises ConfigError for a method that is not in the catalog, and for two rows of a block that spell one method
    differently: `grpo` and `grpo+high=0.28` are the same where 0.28 is the default.
    """
    for number, block in enumerate(table.blocks):
        at, first = f"{table.source}: tables.{table.key}.blocks.{number}", dict[object, str]()
        for row in block.rows:
            if row.method in (None, BASE):
                continue
            method, variant = split(row.method or "")
            try:
                key = catalog.parse(method).key
            except ConfigError as error:
                raise ConfigError(f"{at}: row {row.id}: method: {error}") from error
            same = first.setdefault((key, variant, row.seeds, row.step), row.id)
            if same != row.id:
                raise ConfigError(f"{at}: rows {same} and {row.id} are the same ({row.method})")


def _check_block(block: Block, table: Table, at: str) -> None:
    where = table.source
    if block.model not in table.models:
        raise unknown(where, f"{at}.model", block.model, table.models)
    for row in block.rows:
        if same := next((other for other in block.rows if other is not row and other.content == row.content), None):
            raise ConfigError(f"{where}: {at}: rows {row.id} and {same.id} are the same ({row.method or row.of})")
        _check_parts(row, block, where, at)
        _check_printed(row, block, where)
    # A baseline may be in another block, but its model must be the same: otherwise two things differ at once.
    rows = (row for other in table.blocks if other.model == block.model for row in other.rows)
    comparable = [row.id for row in rows if row.kind in ("run", "mean")]
    if block.baseline is not None and block.baseline not in comparable:
        raise unknown(where, f"{at}.baseline", block.baseline, comparable)


def _check_parts(row: Row, block: Block, where: str, at: str) -> None:
    """Check that a derived row refers to rows of its block, and a mean to rows that differ only in the seed."""
    parts = {other.id: other for other in block.rows if other.delta is None and other is not row}
    for name in row.of:
        if name not in parts:
            raise unknown(where, f"{at}: row {row.id}: {row.kind}", name, parts)
    if row.mean is None:
        return
    of = [parts[name] for name in row.mean]
    seeds = [seed for part in of for seed in part.seeds or (None,)]
    problem = None
    if untrained := [part.id for part in of if part.kind != "run"]:
        problem = f"{untrained[0]} is not a trained row"
    elif others := [part.id for part in of if (part.method, part.step) != (of[0].method, of[0].step)]:
        problem = f"{of[0].id} and {others[0]} differ in more than the seed"
    elif None in seeds or len(set(seeds)) < len(seeds):
        problem = "its rows must name different seeds"
    if problem:
        raise ConfigError(f"{where}: {at}: row {row.id}: mean: {problem}")


def _check_printed(row: Row, block: Block, where: str) -> None:
    """Raise ConfigError where `row` has the id of a printed row (T1.2) but is another run: the paper's number would
    be shown next to it."""
    prefix, dot, number = row.id.partition(".")
    if not (prefix[:1] == "T" and prefix[1:].isdigit() and dot and number.isdigit()):
        return
    paper = printed_rows().get(row.id)
    if paper is None:
        raise unknown(where, "row id (the form T1.2 is the paper's)", row.id, printed_rows())
    compared: list[tuple[str, object, object]] = [("model", block.model, paper.model), ("kind", row.kind, paper.kind)]
    if row.kind == paper.kind and paper.run is not None:
        compared.append(("method", row.method, paper.run.method))
        if row.seeds is not None:  # a row over all seeds includes the printed one
            compared.append(("seeds", row.seeds, (paper.run.seed,)))
        compared.append(("step", row.step, None if paper.run.steps is None else PRINTED_STEPS[paper.run.steps]))
    else:
        compared.append(("made of", row.of, paper.of))
    for what, ours, theirs in compared:
        if ours != theirs:
            raise ConfigError(f"{where}: row {row.id}: {what} {ours!r}, but the printed row is {theirs!r}")


@cache
def printed_rows() -> Mapping[str, printed.Row]:
    """Return the paper's rows by id, read once: every cell of a table looks up its row."""
    return printed.read()


def _once(names: Iterable[str], what: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ConfigError(f"{what} {name} is given twice")


# Tables derived from matrix.json: the table of all runs, and the A/A arms.
#
# The table of all runs contains every evaluated checkpoint. A block holds runs trained under the same settings and
# evaluated at the same step, so that its rows differ only in the method.
#
# An A/A arm is a method under two names whose runs differ only in the samples drawn. Any mark on such a pair is
# false; the share of such pairs estimates how many marks of a table are due to chance. So the arm is computed for
# every table, compared like its rows (`report.tables`), and reported in one line.

FRESH = {
    "chosen": "fresh seeds, each method with the value chosen on other seeds, ",
    "own": "fresh seeds, every method with the scale's own value, ",
    "": "",
}


def of_runs(tree: Tree) -> Table:
    """Declare the table of all runs. Slots of models and benchmarks are the tree's keys."""
    benchmarks = {str(entry["key"]): str(entry["key"]) for entry in tree.benchmarks}
    name = str(tree.matrix.get("baseline") or REFERENCE)
    baseline = tree.methods.get(_baseline(tree, None) or "", {"title": name})
    columns = {POOLED: "Avg. (pooled)", DELTA: f"Δ {baseline['title']}", BEST: "P(best)"}
    return Table(
        key=RUNS,
        title="All runs",
        columns={**columns, **benchmarks, **MEASURES},
        blocks=tuple(_blocks(tree)),
        models={str(model["key"]): str(model["title"]) for model in tree.models},
        source=str(tree.layout.matrix),
        generated=True,
    )


def _blocks(tree: Tree) -> Iterator[Block]:
    # (model, variant, step, which comparison on a sweep's fresh seeds) -> method -> its runs
    groups: dict[tuple[str, str | None, int, str], dict[str, list[Run]]] = {}
    sweep = tree.matrix.get("sweep") or {}
    base_of = {(point["model"], point["method"]): point["base"] for point in sweep.get("points", ())}
    compared = _compared(tree, base_of)
    for run, entry in tree.runs.items():
        for step in entry["steps"]:
            if Checkpoint(run, step) not in tree.evaluated:  # trained only for its curve
                continue
            for fresh in compared[run.model, run.method] if tree.is_fresh(run) else ("",):
                place = run.model, None if fresh else run.variant, step, fresh
                groups.setdefault(place, {}).setdefault(run.method, []).append(run)
    order = list(FRESH)
    for (model, variant, step, fresh), runs in sorted(groups.items(), key=lambda group: order.index(group[0][3])):
        of_fresh = f"/fresh-{fresh}" if fresh else ""
        at = f"{of_fresh}/step{step}" if variant is None else f"@{variant}/step{step}"
        setting = "" if variant is None else str(tree.matrix["variants"][variant]["title"])  # title of the block
        titles = {method: str(tree.methods[method]["title"]) for method in runs}
        if setting:
            titles = {method: title.removesuffix(f", {setting}") for method, title in titles.items()}
        repeated = Counter(titles.values())
        every = tuple(sorted({run.seed for of_method in runs.values() for run in of_method})) if sweep else None
        rows = [Row(id=f"{model}/{BASE}{at}", label="{model} (base)", method=BASE, numbers=every)]
        for method in runs:
            title = titles[method] if repeated[titles[method]] == 1 else f"{titles[method]} ({method})"
            seeds = tuple(sorted(run.seed for run in runs[method])) if sweep else None
            id = f"{model}/{method}{of_fresh}/step{step}"
            rows.append(Row(id=id, label=title, method=method, step=step, numbers=seeds))
        wanted = _baseline(tree, variant)
        if fresh:
            wanted = next((m for m in runs if base_of[model, m] == wanted), None)
        baseline = next((row for row in rows if row.method == wanted and wanted is not None), None)
        # The baseline follows the untrained model, above everything that is compared with it.
        rows.sort(key=lambda row, own=baseline: (row.method != BASE, row is not own))  # type: ignore[misc]
        title = f"{FRESH[fresh] or (f'{setting}, ' if setting else '')}after {step} rollout{'s' if step > 1 else ''}"
        title = title[:1].upper() + title[1:]
        yield Block(model=model, rows=tuple(rows), title=title, baseline=None if baseline is None else baseline.id)


def _compared(tree: Tree, base_of: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], list[str]]:
    """Return (model, method) on fresh seeds -> its comparisons: with the value chosen for it, with the scale's own,
    or with both where they are the same."""
    fresh = {(run.model, run.method) for run in tree.runs if tree.is_fresh(run)}
    own = {pair for pair in fresh if pair[1] == base_of[pair]}
    elsewhere = {(model, base_of[model, method]) for model, method in fresh - own}  # another value was chosen
    both = ["chosen", "own"] if elsewhere and elsewhere <= own else ["chosen"]
    return {pair: ["chosen"] if pair not in own else ["own"] if pair in elsewhere else both for pair in fresh}


def _baseline(tree: Tree, variant: str | None) -> str | None:
    """Return the key of the method that a block's rows are compared with; None where the tree does not train it."""
    name = str(tree.matrix.get("baseline") or REFERENCE)
    if variant is not None and f"{name}@{variant}" in tree.methods:
        return f"{name}@{variant}"
    return tree.method_for(name if variant is None else f"{name}@{variant}")


AGAIN = "A/A"  # prefix of the row id of an arm's cells


class Arm(NamedTuple):
    model: str
    again: Row  # the second stream
    once: Row  # the row it is compared with


def arms(tree: Tree) -> list[Arm]:
    """Return every method and model that was planned twice, under variants that only change `stream`."""
    variants = tree.matrix.get("variants", {}).items()
    streams = {name for name, body in variants if body.get("changes", {}).keys() == {"stream"}}
    trained = dict.fromkeys((run.model, run.method) for run in tree.runs)
    found = []
    for model, method in trained:
        key, variant = split(method)
        if variant in streams and (model, key) in trained:
            label = f"{tree.methods[key]['title']} under two names, {{model}}"
            again = Row(id=f"{AGAIN} {model} {method}", label=label, method=method)
            # With explicit seeds, since a sweep would otherwise use the value that it chose.
            seeds = {run.seed for run in tree.averaged if (run.model, run.method) == (model, key)}
            once = Row(id=f"{AGAIN} {model} {key}", label=label, method=key, numbers=tuple(sorted(seeds)))
            found.append(Arm(model, again, once))
    return found
