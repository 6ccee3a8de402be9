"""Read `figures.yaml`: what a figure consists of, checked before anything is computed.

Nothing here knows results: `report.curves` fills the declarations with numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from records.errors import unknown
from records.yaml_files import read_yaml
from report.declared import need, only
from report.spec import TABLES

FIGURES = Path(__file__).resolve().parent / "figures.yaml"
AGGREGATES = ("first", "mean", "sum")


@dataclass(frozen=True)
class Panel:
    id: str
    title: str
    columns: tuple[str, ...]
    aggregate: str
    label: str
    scale: float = 1.0


@dataclass(frozen=True)
class Figure:
    key: str
    title: str
    model: str
    panels: tuple[Panel, ...]
    lines: tuple[str, ...]
    models: Mapping[str, str] = field(default_factory=dict)
    source: str = ""


def figure(key: str, path: Path | str = FIGURES) -> Figure:
    """Figure `key` (`figure2`, or `2` for short) of a specification file."""
    where = str(path)
    content = read_yaml(path, "specification")
    only(content, where, "", ("lines", "figures"))
    figures = need(content, "figures", where)
    key = key if key in figures else f"figure{key}" if f"figure{key}" in figures else key
    if key not in figures:
        raise unknown(where, "figures", key, figures)
    at, body = f"figures.{key}", figures[key]
    only(body, where, at, ("title", "model", "panels"))
    models = read_yaml(TABLES)["models"]
    model = need(body, "model", where, at)
    if model not in models:
        raise unknown(where, f"{at}.model", model, models)
    return Figure(
        key=key,
        title=str(need(body, "title", where, at)),
        model=model,
        panels=tuple(
            _panel(panel, where, f"{at}.panels.{n}") for n, panel in enumerate(need(body, "panels", where, at))
        ),
        lines=tuple(need(content, "lines", where)),
        models=models,
        source=where,
    )


def figure_keys(path: Path | str = FIGURES) -> list[str]:
    return list(need(read_yaml(path, "specification"), "figures", str(path)))


def _panel(body: Mapping[str, Any], where: str, at: str) -> Panel:
    only(body, where, at, ("id", "title", "columns", "aggregate", "label", "scale"))
    aggregate = need(body, "aggregate", where, at)
    if aggregate not in AGGREGATES:
        raise unknown(where, f"{at}.aggregate", aggregate, AGGREGATES)
    return Panel(
        id=str(need(body, "id", where, at)),
        title=str(need(body, "title", where, at)),
        columns=tuple(need(body, "columns", where, at)),
        aggregate=aggregate,
        label=str(need(body, "label", where, at)),
        scale=float(body.get("scale", 1.0)),
    )
