"""Declare the rows and columns of tables: those of `tables.yaml`, and the table of all runs, derived from matrix.json.

`report.tables` fills a declaration with numbers.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from core.declared import Declared, Tuple, validated
from core.errors import ConfigError, unknown
from core.files import read_yaml
from core.layout import BASE, REFERENCE, Checkpoint, Run, split
from core.provenance import ROOT
from evals.scores import MACRO, POOLED
from evals.tree import Tree
from paper import printed

TABLES = ROOT / "report/tables.yaml"
RUNS = "runs"  # key of the table of all runs
AVERAGES = (POOLED, MACRO)  # columns over several benchmarks
# Columns of the table of all runs that are not scores: measures of `evals.learning_curves`.
MEASURES = {"final": "Final reward", "area": "Area under reward"}

Kind = Literal["base", "run", "mean", "delta"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Row(Declared):
    """A method's checkpoints, the difference of two rows, or the mean over rows that differ only in the seed."""

    id: str
    label: str
    method: str | None = None  # as the configuration names it; `base`: the untrained model
    delta: Annotated[tuple[str, str], Field(strict=False)] | None = None  # row, subtracted row
    mean: Annotated[tuple[str, ...], Field(strict=False, min_length=2)] | None = None
    when: Literal["run"] | None = None  # run: the row is omitted where the scale does not train it
    # places in the matrix's ascending seeds; None: all of them
    seeds: Annotated[Tuple[Annotated[int, Field(gt=0)]], Field(min_length=1)] | None = None
    numbers: Tuple[int] | None = None  # of a table generated for one tree: the seeds as numbers
    # rollouts; long: the scale's second look; None: its table_step
    step: Literal["long"] | Annotated[int, Field(gt=0)] | None = None

    @property
    def kind(self) -> Kind:
        if self.method is not None:
            return "base" if self.method == BASE else "run"
        return "delta" if self.delta else "mean"

    @property
    def of(self) -> tuple[str, ...]:
        """The rows that a derived row is computed from."""
        return self.delta or self.mean or ()

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        if sum(part is not None for part in (self.method, self.delta, self.mean)) != 1:
            raise ValueError(f"row {self.id} needs either method, delta or mean")
        if self.of and (self.seeds, self.step) != (None, None):
            raise ValueError(f"row {self.id}: seeds and step belong to the rows that it is computed from")
        return self


class Block(Declared):
    """Rows of one of the paper's models."""

    model: str  # a key of the file's `models`
    rows: Tuple[Row]
    title: str | None = None  # heads the block where a table has panels
    baseline: str | None = None  # id of the row that the rows are compared with, in any block of this model

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        known = {row.id: row for row in self.rows}
        for row in self.rows:
            allowed = [other.id for other in self.rows if other.delta is None and other is not row]
            for name in row.of:
                if name not in allowed:
                    raise unknown(f"row {row.id}", row.kind, name, allowed)
            of = [known[name] for name in row.mean or ()]
            seeds = [seed for part in of for seed in part.seeds or (None,)]
            if len({(part.method, part.step) for part in of}) > 1 or None in seeds or len(set(seeds)) < len(seeds):
                raise ValueError(f"row {row.id}: mean: its rows must differ in `seeds`, and in nothing else")
            paper = printed.read().get(row.id)
            # The paper's number would be shown next to another run's.
            if paper and (paper.model, paper.of, paper.run and paper.run.method) != (self.model, row.of, row.method):
                raise ValueError(f"row {row.id}: another run than the paper's row of this id; give it another id")
        return self


class Table(Declared):
    """A table as declared, with the names that its declaration refers to."""

    title: str = ""
    columns: Tuple[str]  # keys of the file's `columns`
    blocks: Tuple[Block]
    key: str = ""
    headings: dict[str, str] = Field(default_factory=dict)  # column -> the paper's heading
    models: dict[str, str] = Field(default_factory=dict)  # slot -> the paper's model

    @property
    def rows(self) -> list[Row]:
        return [row for block in self.blocks for row in block.rows]

    @property
    def generated(self) -> bool:
        """True if derived from matrix.json (`of_runs`): slots are then keys of the tree's models and benchmarks."""
        return self.key == RUNS

    @property
    def heading(self) -> str:
        """`Table 1: ...`; only the title for a table without a number in the paper."""
        return f"Table {self.key}: {self.title}" if self.key.isdigit() else self.title or self.key

    @model_validator(mode="after")
    def _rows_are_distinct(self) -> Self:
        for id, count in Counter(row.id for row in self.rows).items():
            if count > 1:
                raise ValueError(f"row id {id} is given twice")
        for block in self.blocks:  # a baseline of another model would make two things differ at once
            rows = (row for other in self.blocks if other.model == block.model for row in other.rows)
            comparable = [row.id for row in rows if row.kind in ("run", "mean")]
            if block.baseline is not None and block.baseline not in comparable:
                raise unknown(f"block of {block.model}", "baseline", block.baseline, comparable)
        return self


class File(Declared):
    """The content of `tables.yaml`."""

    models: dict[str, str]
    columns: dict[str, str]
    tables: dict[str, Table]

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        for key, table in self.tables.items():
            uses = [("columns", slot, self.columns) for slot in table.columns]
            for what, name, known in [*uses, *(("model", block.model, self.models) for block in table.blocks)]:
                if name not in known:
                    raise unknown(f"tables.{key}", what, name, known)
        return self


def tables(path: Path | str = TABLES) -> dict[str, Table]:
    """Return every table of a specification file by key; raises ConfigError where a name or row does not fit."""
    content = read_yaml(path, "specification")
    if isinstance(content.get("tables"), dict):  # YAML reads the key of `1:` as a number
        content["tables"] = {str(key): body for key, body in content["tables"].items()}
    file = validated(File, content, str(path))
    names = {"headings": file.columns, "models": file.models}
    return {key: table.model_copy(update={"key": key, **names}) for key, table in file.tables.items()}


_shipped = cache(tables)  # those of tables.yaml


def models() -> dict[str, str]:
    """Return the models of tables.yaml: slot -> the paper's model."""
    return next(iter(_shipped().values())).models


def declaration(tree: Tree, key: str) -> Table:
    """Return a table of tables.yaml, or the table of all runs; raises ConfigError for another key."""
    if key == RUNS:
        return of_runs(tree)
    declared = _shipped()
    if key not in declared:
        raise unknown(str(TABLES), "tables", key, declared)
    table, also = declared[key], list[Block]()
    baselines = {block.model: block.baseline for block in reversed(table.blocks)}
    for slot in dict.fromkeys(block.model for block in table.blocks):
        model = tree.model_for(slot, table.models[slot])
        # The first table with a model lists its other methods.
        first = next(other.key for other in declared.values() if slot in {block.model for block in other.blocks})
        if first == key and model and (found := undeclared(tree, str(model["key"]))):
            about = {"title": "Also trained here", "baseline": baselines[slot]}
            also.append(Also(model=slot, rows=tuple(found.values()), **about))
    return table.model_copy(update={"blocks": (*table.blocks, *also)})


def offered() -> list[str]:
    """Return the keys of the tables: those of tables.yaml, and the one of all runs."""
    return [*tables(), RUNS]


def check(table: Table) -> None:
    """Raise ConfigError for a method that the catalog lacks: a misspelt one would otherwise show as `not run`."""
    from methods import catalog

    for row in table.rows:
        if row.kind == "run":
            try:
                catalog.parse(split(row.method or "")[0])
            except ConfigError as error:
                raise ConfigError(f"{TABLES}: tables.{table.key}: row {row.id}: method: {error}") from error


# The checkpoints of a row in a tree.


def planned(row: Row, model: str, tree: Tree) -> list[Checkpoint]:
    """Return the checkpoints of a row of kind base or run that matrix.json plans for `model`, in its order."""
    method, step = method_of(row, model, tree), tree.step(row.step)
    runs = [run for run in tree.runs if run.model == model and method in (BASE, run.method)]
    # In a sweep, either the fresh seeds or the others: a mean over both would mix two things.
    name = model, row.method
    fresh = any(chosen == model for chosen, _ in tree.chosen) if method == BASE else name in tree.chosen
    own = sorted({run.seed for run in runs if tree.is_fresh(run) == fresh})
    # Places, not numbers: training on seeds 11 and 12 also gives a first and a second seed.
    seeds = own if row.seeds is None else [own[place - 1] for place in sorted(row.seeds) if place <= len(own)]
    seeds = seeds if row.numbers is None else sorted(row.numbers)
    if method == BASE:  # where the model's runs start: one base, or one per seed
        wanted = [tree.base(model, seed) for seed in seeds]
    else:  # without a step, the scale has no second look
        wanted = [Checkpoint(run, step) for run in runs if step is not None and run.seed in seeds]
    return [checkpoint for checkpoint in dict.fromkeys(wanted) if checkpoint in tree.evaluated]


def method_of(row: Row, model: str, tree: Tree) -> str | None:
    """Return the canonical key of a row's method, None where the scale does not train it. After a sweep's second round,
    it is that of the chosen value."""
    if row.numbers is not None:  # generated: a key, which may also be another method's name in the configuration
        return row.method
    return tree.chosen.get((model, row.method or "")) or tree.method_for(row.method or "")


def rollouts(run: Run, tree: Tree) -> int:
    """Return for how many rollouts a run is planned: its variant's, the scale's, or up to its last checkpoint."""
    changes = tree.matrix.get("variants", {}).get(run.variant, {}).get("changes", {})
    given = changes.get("training.rollouts") or tree.matrix.get("training", {}).get("rollouts")
    return int(given or max(tree.runs[run]["steps"]))


# A tree's own methods.


class Also(Block):
    """Methods of a tree that no table declares: compared with the baseline, but corrected apart from declared rows."""


def undeclared(tree: Tree, model: str) -> dict[str, Row]:
    """Return a row for each method that is evaluated on a model at the scale's own or at a sweep's chosen settings and
    is in no row of tables.yaml for that model, by its key without the sweep."""
    points = (tree.matrix.get("sweep") or {"points": ()})["points"]
    base_of = {point["method"]: point["base"] for point in points if point["model"] == model}
    seeds: dict[tuple[str, str], set[int]] = {}  # key without the sweep, key -> seeds
    for run in (run for run in tree.runs if run.model == model):
        base = base_of.get(run.method, run.method)
        chosen = tree.chosen.get((model, base))
        is_shown = run.method == (chosen or base) and tree.is_fresh(run) == (chosen is not None)
        if is_shown and split(base)[1] is None and Checkpoint(run, tree.matrix["table_step"]) in tree.evaluated:
            seeds.setdefault((base, run.method), set()).add(run.seed)
    known = {
        method_of(row, model, tree)
        for table in _shipped().values()
        for block in table.blocks
        if (tree.model_for(block.model, table.models[block.model]) or {}).get("key") == model
        for row in block.rows
        if row.kind in ("base", "run")
    }
    return {
        base: Row(id=f"{model}/{key}", label=tree.methods[key]["title"], method=key, numbers=tuple(sorted(own)))
        for (base, key), own in seeds.items()
        if key not in known
    }


# Tables derived from matrix.json: the table of all runs, and the A/A arms.
#
# The table of all runs contains every evaluated checkpoint. A block holds runs trained under the same settings and
# evaluated at the same step, so that its rows differ only in the method.

FRESH = {
    "chosen": "fresh seeds, each method with the value chosen on other seeds, ",
    "own": "fresh seeds, every method with the scale's own value, ",
    "": "",
}


def of_runs(tree: Tree) -> Table:
    """Declare the table of all runs. Slots of models and benchmarks are the tree's keys."""
    headings = {POOLED: "Avg. (pooled)"} | {str(own["key"]): str(own["key"]) for own in tree.benchmarks} | MEASURES
    models = {str(model["key"]): str(model["title"]) for model in tree.models}
    columns, blocks = tuple(headings), tuple(_blocks(tree))
    return Table(key=RUNS, title="All runs", columns=columns, headings=headings, models=models, blocks=blocks)


def _blocks(tree: Tree) -> Iterator[Block]:
    # (model, variant, step, which comparison on a sweep's fresh seeds) -> method -> seeds of its runs
    groups: dict[tuple[str, str | None, int, str], dict[str, set[int]]] = {}
    points = (tree.matrix.get("sweep") or {"points": ()})["points"]
    base_of = {(point["model"], point["method"]): point["base"] for point in points}
    compared = _compared(tree, base_of)
    for run, entry in tree.runs.items():
        for step in entry["steps"]:
            if Checkpoint(run, step) in tree.evaluated:  # else trained only for its curve
                fresh_in = [name for name, pairs in compared.items() if (run.model, run.method) in pairs]
                for fresh in fresh_in if tree.is_fresh(run) else ("",):
                    group = groups.setdefault((run.model, None if fresh else run.variant, step, fresh), {})
                    group.setdefault(run.method, set()).add(run.seed)
    order, named = list(FRESH), str(tree.matrix.get("baseline") or REFERENCE)
    for (model, variant, step, fresh), seeds in sorted(groups.items(), key=lambda group: order.index(group[0][3])):
        at = f"{f'/fresh-{fresh}' if fresh else ''}/step{step}"
        setting = "" if variant is None else str(tree.matrix["variants"][variant]["title"])
        titles = {method: str(tree.methods[method]["title"]).removesuffix(f", {setting}") for method in seeds}
        repeated = Counter(titles.values())
        baseline = tree.method_for(named if variant is None else f"{named}@{variant}")
        if fresh:
            baseline = next((method for method in seeds if base_of[model, method] == baseline), None)
        every = {seed for own in seeds.values() for seed in own}
        numbers = {method: tuple(sorted(own)) if base_of else None for method, own in {BASE: every, **seeds}.items()}
        base = BASE if variant is None else f"{BASE}@{variant}"
        rows = [Row(id=f"{model}/{base}{at}", label="{model} (base)", method=BASE, numbers=numbers[BASE])]
        for method in sorted(seeds, key=lambda method: method != baseline):  # the baseline above what is compared to it
            label = titles[method] if repeated[titles[method]] == 1 else f"{titles[method]} ({method})"
            id = f"{model}/{method}{at}"
            rows.append(Row(id=id, label=label, method=method, step=step, numbers=numbers[method]))
        planned = max(rollouts(Run(model, method, seed), tree) for method, own in seeds.items() for seed in own)
        rollout = (f"of {planned} " if step < planned else "") + "rollout" + "s" * (max(step, planned) > 1)
        title = f"{FRESH[fresh]}{setting and f'{setting}, '}after {step} {rollout}"
        of_baseline = f"{model}/{baseline}{at}" if baseline in seeds else None
        yield Block(model=model, rows=tuple(rows), title=title[:1].upper() + title[1:], baseline=of_baseline)


def _compared(tree: Tree, base_of: Mapping[tuple[str, str], str]) -> dict[str, set[tuple[str, str]]]:
    """Return which (model, method) on fresh seeds are compared at the values chosen for them, and which at the scale's
    own: a method whose own value was chosen is in both."""
    fresh = {(run.model, run.method) for run in tree.runs if tree.is_fresh(run)}
    own = {pair for pair in fresh if pair[1] == base_of[pair]}
    elsewhere = {(model, base_of[model, method]) for model, method in fresh - own}  # another value was chosen
    return {"chosen": fresh - elsewhere, "own": own if elsewhere and elsewhere <= own else own & elsewhere}


AGAIN = "A/A"  # prefix of the row ids of an arm


def arms(tree: Tree) -> list[Block]:
    """Return a block of two rows for every method and model that was planned twice, under variants that only change
    `stream`: its runs differ only in the samples drawn, so that any mark on the pair is false. The second stream's row
    is compared with the other."""
    variants = tree.matrix.get("variants", {}).items()
    streams = {name for name, body in variants if body.get("changes", {}).keys() == {"stream"}}
    trained = dict.fromkeys((run.model, run.method) for run in tree.runs)
    found = []
    for model, method in trained:
        key, variant = split(method)
        if variant in streams and (model, key) in trained:
            label = f"{tree.methods[key]['title']} under two names, {{model}}"
            # With explicit seeds, since a sweep would otherwise use the value that it chose.
            seeds = {run.seed for run in tree.averaged if (run.model, run.method) == (model, key)}
            once = Row(id=f"{AGAIN} {model} {key}", label=label, method=key, numbers=tuple(sorted(seeds)))
            again = Row(id=f"{AGAIN} {model} {method}", label=label, method=method)
            found.append(Block(model=model, rows=(once, again), baseline=once.id))
    return found
