"""Read `tables.yaml`: what a table consists of, checked before anything is computed.

Nothing here knows results: `report.tables.fill` fills the declarations with numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from records.errors import ConfigError, unknown
from records.layout import BASE, split
from records.yaml_files import need, only, read_yaml

if TYPE_CHECKING:
    from paper.printed import Row as Printed


# One row of a table as `tables.yaml` declares it.


Kind = Literal["base", "run", "delta", "mean"]
Step = int | Literal["long"] | None
"""Rollouts; None: the scale's table step; long: its second look."""


@dataclass(frozen=True)
class Row:
    """One row: the checkpoints of a method, the difference of two rows (`delta`), or the mean over rows that differ in
    their seeds only (`mean`)."""

    id: str
    label: str
    method: str | None = None
    delta: tuple[str, str] | None = None
    mean: tuple[str, ...] | None = None
    optional: bool = False
    seeds: tuple[int, ...] | None = None  # None: all seeds of the matrix
    step: Step = None

    @property
    def kind(self) -> Kind:
        if self.method is not None:
            return "base" if self.method == BASE else "run"
        return "delta" if self.delta else "mean"

    @property
    def of(self) -> tuple[str, ...]:
        """The rows a derived row is made of."""
        return self.delta or self.mean or ()

    @property
    def content(self) -> tuple[Any, ...]:
        """Two rows of one block with the same value here would print the same numbers."""
        method = check_method(self.method, "", "") if self.method else self.kind
        return (method, self.of, self.seeds, self.step)


def check_method(name: str, where: str, key: str) -> str:
    """The canonical key of a method as the configuration names it; raises for one that the catalog does not have."""
    from methods import catalog

    if name == BASE:
        return BASE
    method, variant = split(name)
    known = (BASE, *catalog.keys(), *catalog.aliases())
    if method.split("+")[0] not in known:
        raise unknown(where, key, method, known)
    try:
        parsed = catalog.parse(method).key
    except ConfigError as error:
        raise ConfigError(f"{where}: {key}: {error}") from error
    return parsed if variant is None else f"{parsed}@{variant}"


# The printed rows behind the declared ones: a row that has the id of a printed row must be that row.
#
# Ids of the form `T3.7` belong to the paper; rows of our own have others.


_ID = re.compile(r"T\d+\.\d+")
STEPS = {72: None, 132: "long"}
"""The paper's steps -> how a declared row names that checkpoint at any scale."""


def printed(id: str) -> Printed | None:
    """The paper's row with this id; None for a row of our own."""
    return _paper().get(id)


def value(id: str, slot: str) -> Decimal | None:
    """What the paper prints in this row and column, as a fraction with the printed digits; None where it prints
    nothing, and for the macro average."""
    from paper.printed import AVERAGE

    row = printed(id)
    percent = None if row is None else row.cells.get(AVERAGE if slot == "avg_pooled" else slot)
    return None if percent is None else percent.scaleb(-2)


def whole(id: str) -> bool:
    """Whether the printed row has a figure in every column: else its average counts the absent benchmarks as wrong."""
    row = printed(id)
    return row is not None and None not in row.cells.values()


def check(row: Row, model: str, where: str, at: str) -> None:
    """Raise when `row` has the id of a printed row but is another model, method, seed, step or combination of rows."""
    if not _ID.fullmatch(row.id):
        return
    paper = printed(row.id)
    if paper is None:
        raise unknown(where, f"{at}: row id (the form T1.2 is the paper's)", row.id, _paper())
    for what, ours, theirs in _compared(row, model, paper):
        if ours != theirs:
            raise ConfigError(f"{where}: {at}: row {row.id}: {what} {ours!r}, but the printed row is {theirs!r}")


def _compared(row: Row, model: str, paper: Printed) -> list[tuple[str, object, object]]:
    found: list[tuple[str, object, object]] = [("model", model, paper.model), ("kind", row.kind, paper.kind)]
    if row.kind != paper.kind or paper.run is None:
        return [*found, ("made of", row.of, paper.of)]
    found.append(("method", row.content[0], check_method(paper.run.method, "paper/tables/rows.csv", row.id)))
    if row.seeds is not None:  # where a row takes every seed there is, the printed one is one of them
        found.append(("seeds", row.seeds, (paper.run.seed,)))
    steps = None if paper.run.steps is None else STEPS[paper.run.steps]
    return [*found, ("step", row.step, steps)]


@cache
def _paper() -> dict[str, Printed]:
    from paper.printed import read

    return read()


TABLES = Path(__file__).resolve().parents[1] / "tables.yaml"
AVERAGES = ("avg_pooled", "avg_macro")


@dataclass(frozen=True)
class Block:
    """Rows of one model of the paper (`model` is a slot). title: heads them where a table has panels. baseline: the row
    of the table that their differences are taken to."""

    model: str
    rows: tuple[Row, ...]
    title: str | None = None
    baseline: str | None = None


@dataclass(frozen=True)
class Table:
    """variant: the settings that the table is about; a scale that trains nothing under them has no such table."""

    key: str
    title: str
    columns: Mapping[str, str]  # slot -> printed heading, in order
    blocks: tuple[Block, ...]
    models: Mapping[str, str]  # slot -> the paper's model
    source: str
    variant: str | None = None

    @property
    def rows(self) -> list[Row]:
        return [row for block in self.blocks for row in block.rows]

    @property
    def heading(self) -> str:
        """`Table 1: ...`; a table that the paper does not number has its title only."""
        return f"Table {self.key}: {self.title}" if self.key.isdigit() else self.title or self.key


def table(key: str, path: Path | str = TABLES) -> Table:
    """Table `key` of a specification file; `models` and `columns` it does not give are those of `tables.yaml`.

    Raises `ConfigError` for unknown keys, slots and columns, for a row id or content given twice, for a derived row or
    baseline that names no fitting row, and for a row with the id of a printed one that is not the same run.
    """
    where = str(path)
    content = read_yaml(path, "specification")
    only(content, where, "", ("models", "columns", "tables"))
    house = content if "models" in content and "columns" in content else read_yaml(TABLES)
    models, columns = content.get("models", house["models"]), content.get("columns", house["columns"])
    declared = need(content, "tables", where)
    tables = {str(name): value for name, value in declared.items()}
    if key not in tables:
        raise unknown(where, "tables", key, tables)
    at = f"tables.{key}"
    body = tables[key]
    only(body, where, at, ("title", "columns", "blocks", "variant"))
    wanted = need(body, "columns", where, at)
    for slot in wanted:
        if slot not in columns:
            raise unknown(where, f"{at}.columns", slot, columns)
        if wanted.count(slot) > 1:
            raise ConfigError(f"{where}: {at}.columns: {slot} is given twice")
    blocks = tuple(
        _block(block, where, f"{at}.blocks.{n}", models) for n, block in enumerate(need(body, "blocks", where, at))
    )
    _once([row.id for block in blocks for row in block.rows], where, at)
    for n, block in enumerate(blocks):
        _baseline(block, blocks, where, f"{at}.blocks.{n}.baseline")
        for row in block.rows:
            check(row, block.model, where, f"{at}.blocks.{n}")
    return Table(
        key=key,
        title=str(body.get("title", "")),
        columns={slot: str(columns[slot]) for slot in wanted},
        blocks=blocks,
        models={str(slot): str(title) for slot, title in models.items()},
        source=where,
        variant=body.get("variant"),
    )


def table_keys(path: Path | str = TABLES) -> list[str]:
    return [str(key) for key in need(read_yaml(path, "specification"), "tables", str(path))]


def keys_for(methods: Iterable[str], path: Path | str = TABLES) -> list[str]:
    """Keys of the tables that a scale with these methods (variants included) has."""
    variants = {None, *(split(method)[1] for method in methods)}
    return [key for key in table_keys(path) if table(key, path).variant in variants]


def _block(body: Mapping[str, Any], where: str, at: str, models: Mapping[str, str]) -> Block:
    only(body, where, at, ("model", "title", "baseline", "rows"))
    model = need(body, "model", where, at)
    if model not in models:
        raise unknown(where, f"{at}.model", model, models)
    rows = tuple(_row(row, where, f"{at}.rows.{n}") for n, row in enumerate(need(body, "rows", where, at)))
    _once([row.id for row in rows], where, at)
    for row in rows:
        _parts(row, rows, where, at)
        same = next((other for other in rows if other is not row and other.content == row.content), None)
        if same is not None:
            raise ConfigError(f"{where}: {at}: rows {row.id} and {same.id} are the same ({row.method or row.of})")
    return Block(model=model, rows=rows, title=body.get("title"), baseline=body.get("baseline"))


def _parts(row: Row, rows: Sequence[Row], where: str, at: str) -> None:
    """A derived row is made of rows of its block; a mean over seeds of rows that differ in nothing but the seed."""
    runs = {other.id: other for other in rows if other.delta is None and other is not row}
    for part in row.of:
        if part not in runs:
            raise unknown(where, f"{at}: row {row.id}: {row.kind}", part, runs)
        if row.mean and runs[part].kind != "run":
            raise ConfigError(f"{where}: {at}: row {row.id}: mean: {part} is no trained row")
    if row.mean is None:
        return
    first, *others = (runs[part] for part in row.mean)
    for other in others:
        if (first.content[0], first.step) != (other.content[0], other.step):
            raise ConfigError(
                f"{where}: {at}: row {row.id}: mean: {first.id} and {other.id} differ in more than the seed"
            )
    seeds = [seed for part in row.mean for seed in runs[part].seeds or (None,)]
    if None in seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(f"{where}: {at}: row {row.id}: mean: its rows must name different seeds")


def _baseline(block: Block, blocks: Sequence[Block], where: str, at: str) -> None:
    if block.baseline is None:
        return
    fitting = {
        row.id for other in blocks if other.model == block.model for row in other.rows if row.kind in ("run", "mean")
    }
    if block.baseline not in fitting:
        raise unknown(where, at, block.baseline, fitting)


def _once(ids: list[str], where: str, at: str) -> None:
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{where}: {at}: row id {twice} is given twice")


def _row(body: Mapping[str, Any], where: str, at: str) -> Row:
    only(body, where, at, ("id", "label", "method", "delta", "mean", "when", "seeds", "step"))
    name = str(need(body, "id", where, at))
    if sum(key in body for key in ("method", "delta", "mean")) != 1:
        raise ConfigError(f"{where}: {at}: row {name} needs either method, delta or mean")
    delta, mean = body.get("delta"), body.get("mean")
    if delta is not None and (not isinstance(delta, list) or len(delta) != 2):
        raise ConfigError(f"{where}: {at}: row {name}: delta must be [row, minus row], got {delta!r}")
    if mean is not None and (not isinstance(mean, list) or len(mean) < 2):
        raise ConfigError(f"{where}: {at}: row {name}: mean must be a list of two rows or more, got {mean!r}")
    if body.get("when", "run") != "run":
        raise unknown(where, f"{at}.when", body["when"], ["run"])
    if "method" in body:
        check_method(str(body["method"]), where, f"{at}: row {name}: method")
    else:
        derived = next((key for key in ("seeds", "step") if key in body), None)
        if derived is not None:
            raise ConfigError(f"{where}: {at}: row {name}: {derived} belongs to the rows it is made of")
    return Row(
        id=name,
        label=str(need(body, "label", where, at)),
        method=body.get("method"),
        delta=None if delta is None else (str(delta[0]), str(delta[1])),
        mean=None if mean is None else tuple(map(str, mean)),
        optional="when" in body,
        seeds=_seeds(body.get("seeds"), f"{where}: {at}: row {name}: seeds"),
        step=_step(body.get("step"), f"{where}: {at}: row {name}: step"),
    )


def _seeds(value: Any, where: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not value or not all(type(seed) is int for seed in value):
        raise ConfigError(f"{where}: must be a list of whole numbers, got {value!r}")
    if len(set(value)) < len(value):
        raise ConfigError(f"{where}: {value!r} names a seed twice")
    return tuple(value)


def _step(value: Any, where: str) -> Step:
    if value is None or value == "long" or (type(value) is int and value > 0):
        return value
    raise ConfigError(f"{where}: must be a number of rollouts or `long`, got {value!r}")
