"""Read `tables.yaml`: what a table consists of, checked before anything is computed.

Nothing here knows results, methods or the paper: `report.tables.fill` fills a declaration with numbers,
`report.tables.check` looks its methods up in the catalog.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from core.declared import Declared, Tuple, validated
from core.errors import ConfigError, unknown
from core.files import read_yaml
from core.layout import BASE
from core.provenance import ROOT
from core.scores import MACRO, POOLED

DATA = ("report/tables.yaml",)
TABLES = ROOT / DATA[0]
AVERAGES = (POOLED, MACRO)  # columns that no benchmark fills
# Columns of the table of all runs that are no score: difference of the pooled average to the baseline, probability of
# having the highest one of the block, and measures of `evals.learning_curves`.
DELTA, BEST = "delta", "best"
MEASURES = {"final": "Final reward", "area": "Area under reward"}

ALPHA = 0.05  # level of every comparison, after Holm's correction

Kind = Literal["base", "run", "delta", "mean"]
Step = int | Literal["long"] | None  # rollouts; long: the scale's second look; None: its table_step


class Row(Declared):
    """The checkpoints of a method, the difference of two rows, or the mean over rows that differ in seeds only."""

    id: str
    label: str
    method: str | None = None  # as the configuration names it; `base`: the untrained model
    delta: Tuple[str] | None = None  # [row, minus row]
    mean: Tuple[str] | None = None
    when: Literal["run"] | None = None  # run: the row is left out where the scale does not train it
    seeds: Tuple[int] | None = None  # places in the rising order of the matrix's seeds, from 1; None: all of them
    numbers: Tuple[int] | None = None  # of a table made for one tree: its seeds themselves
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
        """Two rows of one block with the same value here would print the same numbers."""
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
    """Rows of one model of the paper."""

    model: str  # a key of the file's `models`
    rows: Tuple[Row]
    title: str | None = None  # heads the block where a table has panels
    baseline: str | None = None  # id of the row, of any block of this model, that the rows are compared with


class Body(Declared):
    title: str = ""
    columns: Tuple[str]  # keys of the file's `columns`
    blocks: Tuple[Block]


class File(Declared):
    """`tables.yaml`. A file of a user's own may leave models and columns out: they are then those of `tables.yaml`."""

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
    source: str  # file that declares it, for errors
    generated: bool = False  # from matrix.json (`report.tables.runs`): slots are keys of the tree's models, benchmarks

    @property
    def rows(self) -> list[Row]:
        return [row for block in self.blocks for row in block.rows]

    @property
    def heading(self) -> str:
        """`Table 1: ...`; a table that the paper does not number has its title only."""
        return f"Table {self.key}: {self.title}" if self.key.isdigit() else self.title or self.key


def tables(path: Path | str = TABLES) -> dict[str, Table]:
    """Return every table of a specification file by key; ConfigError where a name or row does not fit."""
    where, content = str(path), read_yaml(path, "specification")
    if isinstance(content.get("tables"), dict):  # YAML reads the key of `1:` as a number
        content["tables"] = {str(key): body for key, body in content["tables"].items()}
    file = validated(File, content, where)
    # A file of one table, tried out beside the shipped one, need not repeat the paper's models and columns.
    shipped = file if file.models and file.columns else validated(File, read_yaml(TABLES), str(TABLES))
    models, columns = file.models or shipped.models, file.columns or shipped.columns
    declared = {}
    for key, body in file.tables.items():
        at = f"tables.{key}"
        for slot in body.columns:
            if slot not in columns:
                raise unknown(where, f"{at}.columns", slot, columns)
        _once(body.columns, f"{where}: {at}.columns: column")
        table = Table(
            key=key,
            title=body.title,
            columns={slot: columns[slot] for slot in body.columns},
            blocks=body.blocks,
            models=models,
            source=where,
        )
        _once([row.id for row in table.rows], f"{where}: {at}: row id")
        for number, block in enumerate(table.blocks):
            _check_block(block, table, f"{at}.blocks.{number}")
        declared[key] = table
    return declared


def table(key: str, path: Path | str = TABLES) -> Table:
    """Return table `key` of a specification file; errors as in `tables`, and for an unknown key."""
    declared = tables(path)
    if key not in declared:
        raise unknown(str(path), "tables", key, declared)
    return declared[key]


def _check_block(block: Block, table: Table, at: str) -> None:
    where = table.source
    if block.model not in table.models:
        raise unknown(where, f"{at}.model", block.model, table.models)
    for row in block.rows:
        if same := next((other for other in block.rows if other is not row and other.content == row.content), None):
            raise ConfigError(f"{where}: {at}: rows {row.id} and {same.id} are the same ({row.method or row.of})")
        _check_parts(row, block, where, at)
    # A baseline may stand in another block, but its model must be the same: else two things differ at once.
    rows = (row for other in table.blocks if other.model == block.model for row in other.rows)
    comparable = [row.id for row in rows if row.kind in ("run", "mean")]
    if block.baseline is not None and block.baseline not in comparable:
        raise unknown(where, f"{at}.baseline", block.baseline, comparable)


def _check_parts(row: Row, block: Block, where: str, at: str) -> None:
    """A derived row is computed from rows of its block; a mean from rows that differ in nothing but the seed."""
    parts = {other.id: other for other in block.rows if other.delta is None and other is not row}
    for name in row.of:
        if name not in parts:
            raise unknown(where, f"{at}: row {row.id}: {row.kind}", name, parts)
        if row.mean and parts[name].kind != "run":
            raise ConfigError(f"{where}: {at}: row {row.id}: mean: {name} is no trained row")
    if row.mean is None:
        return
    first, *others = (parts[name] for name in row.mean)
    for other in others:
        if (first.method, first.step) != (other.method, other.step):
            raise ConfigError(
                f"{where}: {at}: row {row.id}: mean: {first.id} and {other.id} differ in more than the seed"
            )
    seeds = [seed for name in row.mean for seed in parts[name].seeds or (None,)]
    if None in seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(f"{where}: {at}: row {row.id}: mean: its rows must name different seeds")


def _once(names: Iterable[str], what: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ConfigError(f"{what} {name} is given twice")
