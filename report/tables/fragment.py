"""A filled table as HTML: a fragment with its own small style, to open as it is or to paste into any page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from report.tables.filled import FilledBlock, FilledRow, FilledTable
from report.tables.shown import Shown, baseline, empty, label, runs, seeds, shown, words

if TYPE_CHECKING:
    from jinja2 import Template

FOLDER = Path(__file__).resolve().parents[1] / "html"


def html(filled: FilledTable) -> str:
    """The file lies in `tables/`, so runs are linked as `../runs/...`."""
    from markupsafe import Markup

    style = Markup((FOLDER / "table.css").read_text(encoding="utf-8"))
    file = f"table{filled.table.key}.tidy.csv"
    return template("fragment.html.j2").render(style=style, scale=filled.scale, table=context(filled, file, "../"))


def template(name: str) -> Template:
    """A template of `report/html`. Every value is escaped: titles, notes and paths are data, never markup."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(FOLDER)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(name)


def context(filled: FilledTable, file: str | None, root: str) -> dict[str, Any]:
    """What `table.html.j2` shows. file: where the tidy CSV lies, if it is there; root: the way from the page to the
    results folder; empty where the page shows runs itself and links none here."""
    return {
        "key": filled.table.key,
        "name": filled.table.heading.split(":")[0],
        "heading": filled.table.heading,
        "file": file,
        "columns": [{"heading": c.heading, "stands_for": c.stands_for, "title": c.title} for c in filled.columns],
        "blocks": [
            {
                "title": block.title,
                "model": block.model["title"],
                "stands_for": block.stands_for,
                "baseline": baseline(block, filled),
                "rows": [_row(row, block, filled, root) for row in block.rows],
            }
            for block in filled.blocks
        ],
        "caption": words(filled),
        "notes": filled.notes,
        "empty": "" if filled.measured else empty(filled),
    }


def _row(row: FilledRow, block: FilledBlock, filled: FilledTable, root: str) -> dict[str, Any]:
    return {
        "id": row.row.id,
        "label": label(row),
        "seeds": seeds(row),
        "runs": [{"seed": r.seed, "href": f"{root}runs/{r.path.as_posix()}/run.json"} for r in runs(row) if root],
        "delta": row.row.kind == "delta",
        "mean": row.row.kind == "mean",
        "ran": row.ran,
        "cells": [_cell(c.slot, shown(row.cells[c.slot], block, row), row) for c in filled.columns],
    }


def _cell(slot: str, cell: Shown, row: FilledRow) -> Mapping[str, Any]:
    dash = " to " if row.row.kind == "delta" else "–"
    return {
        "column": slot,
        "text": cell.number.replace("-", "−"),
        "number": cell.measured,
        "interval": cell.interval.replace("-", "−").replace(" to ", dash),
        "mark": cell.mark,
        "best": cell.best,
        "paper": cell.paper.replace("-", "−"),
        "how": cell.how,
    }
