"""Read `tables.yaml`: what a table consists of, checked before anything is computed.

Nothing here knows results: `report.cells` fills the declarations with numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from records.errors import ConfigError, unknown
from records.layout import BASE
from records.yaml_files import read_yaml
from report.declared import need, only

HERE = Path(__file__).resolve().parent
TABLES = HERE / "tables.yaml"
AVERAGES = ("avg_pooled", "avg_macro")


@dataclass(frozen=True)
class Row:
    """One printed row: a method's checkpoint, or (`delta`) the difference of two other rows."""

    id: str
    label: str
    method: str | None = None
    delta: tuple[str, str] | None = None
    optional: bool = False
    seeds: tuple[int, ...] | None = None  # None: all seeds of the matrix
    step: int | None = None  # None: the scale's table step

    @property
    def what(self) -> tuple[Any, ...]:
        """Two rows of one block with the same value here would print the same numbers."""
        return (self.method, self.delta, self.seeds, self.step)


@dataclass(frozen=True)
class Block:
    """Rows of one model of the paper (`model` is a slot); `title` heads them where a table has panels."""

    model: str
    rows: tuple[Row, ...]
    title: str | None = None


@dataclass(frozen=True)
class Table:
    key: str
    title: str
    columns: Mapping[str, str]  # slot -> printed heading, in order
    blocks: tuple[Block, ...]
    models: Mapping[str, str]  # slot -> the paper's model
    source: str

    @property
    def rows(self) -> list[Row]:
        return [row for block in self.blocks for row in block.rows]


def table(key: str, path: Path | str = TABLES) -> Table:
    """Table `key` of a specification file; `models` and `columns` it does not give are those of `tables.yaml`.

    Raises `ConfigError` for unknown keys, slots and columns, for a row id or content given twice, and for a delta of
    rows that its block does not have.
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
    only(body, where, at, ("title", "columns", "blocks"))
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
    return Table(
        key=key,
        title=str(body.get("title", f"Table {key}")),
        columns={slot: str(columns[slot]) for slot in wanted},
        blocks=blocks,
        models={str(slot): str(title) for slot, title in models.items()},
        source=where,
    )


def table_keys(path: Path | str = TABLES) -> list[str]:
    return [str(key) for key in need(read_yaml(path, "specification"), "tables", str(path))]


def check_method(name: str, where: str, key: str) -> None:
    """Raise for a method that the catalog does not have; options after `+` are the matrix's business."""
    from methods import catalog

    known = (BASE, *catalog.keys())
    if name.split("+")[0] not in known:
        raise unknown(where, key, name, known)


def _block(body: Mapping[str, Any], where: str, at: str, models: Mapping[str, str]) -> Block:
    only(body, where, at, ("model", "title", "rows"))
    model = need(body, "model", where, at)
    if model not in models:
        raise unknown(where, f"{at}.model", model, models)
    rows = tuple(_row(row, where, f"{at}.rows.{n}") for n, row in enumerate(need(body, "rows", where, at)))
    _once([row.id for row in rows], where, at)
    runs = {row.id: row for row in rows if row.delta is None}
    for row in rows:
        for part in row.delta or ():
            if part not in runs:
                raise unknown(where, f"{at}: row {row.id}: delta", part, runs)
        same = next((other for other in rows if other is not row and other.what == row.what), None)
        if same is not None:
            raise ConfigError(f"{where}: {at}: rows {row.id} and {same.id} are the same ({row.method or row.delta})")
    return Block(model=model, rows=rows, title=body.get("title"))


def _once(ids: list[str], where: str, at: str) -> None:
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{where}: {at}: row id {twice} is given twice")


def _row(body: Mapping[str, Any], where: str, at: str) -> Row:
    only(body, where, at, ("id", "label", "method", "delta", "when", "seeds", "step"))
    name = str(need(body, "id", where, at))
    if ("method" in body) == ("delta" in body):
        raise ConfigError(f"{where}: {at}: row {name} needs either method or delta")
    delta = body.get("delta")
    if delta is not None and (not isinstance(delta, list) or len(delta) != 2):
        raise ConfigError(f"{where}: {at}: row {name}: delta must be [row, minus row], got {delta!r}")
    if body.get("when", "run") != "run":
        raise unknown(where, f"{at}.when", body["when"], ["run"])
    if "method" in body:
        check_method(str(body["method"]), where, f"{at}: row {name}: method")
    return Row(
        id=name,
        label=str(need(body, "label", where, at)),
        method=body.get("method"),
        delta=None if delta is None else (str(delta[0]), str(delta[1])),
        optional="when" in body,
        seeds=tuple(body["seeds"]) if "seeds" in body else None,
        step=body.get("step"),
    )
