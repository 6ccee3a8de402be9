"""Tables on the page: numbers that lead to their runs, a page per row of several checkpoints, Table 1 at a glance."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

from records.errors import written_by
from records.files import read_text, stored
from records.layout import BASE
from records.results_tree import Tree
from report import captions
from report.figures.spec import css_colours
from report.site import assets, links, runs
from report.site.figures import inline
from report.tables import render
from report.tables.tidy import Cell, Row, Table, checked_table, offered, percent

AVERAGE = "avg_pooled"  # the column that the first view draws
MARGIN = 0.04  # of the drawn range, left and right


def read(tree: Tree) -> list[Table]:
    """The tables that the plan has methods for, and last the one of all runs, which an older reference lacks."""
    keys = offered(tree)
    name = f"tables/table{keys[-1]}.tidy.csv"
    if stored(tree.root / name) is None and tree.is_listed and name not in tree.listed:
        keys.pop()
    return [checked_table(tree, key) for key in keys]


def view(table: Table, tree: Tree) -> dict[str, Any]:
    """A table for the template: where each row leads, and for each cell its value and the words behind it."""
    file = tree.layout.tables / f"table{table.key}.tidy.csv"
    context = render.context(table, (stored(file) or file).relative_to(tree.root).as_posix(), "")
    context["caption"] = captions.paragraphs(f"table{table.key}")
    labels = {row.id: row.label for row in table.rows}
    for block, rows in zip(context["blocks"], table.blocks, strict=True):
        block["absent"] = [row.label for row in rows if not row.ran]
        for line, row in zip(block["rows"], rows, strict=True):
            line["href"] = _address(row, table)
            for words, column in zip(line["cells"], table.columns, strict=True):
                cell = row.cells[column.slot]
                words["value"] = "" if cell.value is None else f"{cell.value:.6f}"  # what sorting goes by
                words["behind"] = _behind(cell, labels)
    return context


def is_papers(tree: Tree, tables: Sequence[Table], judged: Container[str]) -> bool:
    """Whether the tree is one of the shipped scales, and each of its runs stands in a declared table or, by its folder,
    among those that verdicts on claims are about."""
    shown = {c.run for table in tables if not table.declared.generated for row in table.rows for c in row.checkpoints}
    own = all(run in shown or f"runs/{run.path.as_posix()}" in judged for run in tree.runs)
    return own and bool(captions.paragraphs(f"scale-{tree.scale}"))


def sweep(tree: Tree) -> str:
    """The table and the plot of the tree's sweep as HTML; empty for a tree without one."""
    if not tree.matrix.get("sweep"):
        return ""
    with written_by(f"python -m report.sweep --results {tree.root}"):
        tree.check_written("sweep/sweep", "sweep/sweep.md", "sweep/sweep.svg")
        text = read_text(tree.root / "sweep/sweep.md", "the sweep's table")
        picture = inline(tree.root / "sweep/sweep.svg", "sweep", "The methods against the swept value", css_colours())
    # one level down: the view has a heading of its own
    return assets.html(re.sub(r"^#", "##", text, flags=re.MULTILINE)) + picture


def how_to_read(tables: Sequence[Table]) -> list[str]:
    """What holds for all tables: marks, intervals, words for missing numbers."""
    levels = dict.fromkeys(sentence for table in tables for sentence in render.levels(table))
    return [*captions.paragraphs("tables"), *levels]


def _address(row: Row, table: Table) -> str:
    """Where a click on the row's numbers leads: the run if there is exactly one, else the row's own page."""
    if len(row.checkpoints) == 1 and row.checkpoints[0].run.method != BASE:
        return links.run(row.checkpoints[0].run)
    return links.row(table.key, row.id)


def _behind(cell: Cell, labels: Mapping[str, str]) -> list[str]:
    """What one reads while pointing at a number. labels: of the table's rows."""
    if cell.value is None:
        return []
    seeds = f"Seed{'s' if len(cell.seeds) > 1 else ''} {', '.join(map(str, cell.seeds))}" if cell.seeds else ""
    if cell.kind == "base":
        seeds = f"Untrained{seeds and ': '}{seeds.lower()}"
    problems = f", {cell.n} problems" if cell.level == "problem" and cell.n is not None else ""
    lines = [seeds + problems, f"{cell.level.capitalize()} level: {cell.how}"]
    if cell.versus is not None:
        bounds = "" if cell.versus_low is None else f" [{percent(cell.versus_low)}, {percent(cell.versus_high)}]"
        p = cell.versus_p_holm
        corrected = "" if p is None else f"; p {p:.2g}, corrected for {cell.versus_tests} tests"
        against = labels.get(cell.baseline or "", cell.baseline)
        how = f"({cell.versus_level} level: {cell.versus_how})"
        lines.append(f"{percent(cell.versus)}{bounds} against {against} {how}{corrected}")
    if cell.printed is not None and not cell.comparable:
        lines.append(f"The paper prints {percent(cell.printed)}, for another model or other problems: not comparable.")
    return lines


def row_pages(tables: Sequence[Table], tree: Tree) -> list[dict[str, Any]]:
    """A page for each row that has checkpoints and is not a single run: its checkpoints, one line each."""
    pages = []
    for table in tables:
        for row in table.rows:
            address = links.row(table.key, row.id)
            if not row.checkpoints or _address(row, table) != address:
                continue
            pages.append(
                {
                    "id": address,
                    "label": row.label,
                    "table": table.key,
                    "model": row.model_title,
                    "kind": row.kind,
                    "columns": [column.heading for column in table.columns],
                    "cells": [render.shown(row.cells[column.slot], table) for column in table.columns],
                    "lines": [
                        {
                            "title": links.title(checkpoint, tree),
                            "href": None if checkpoint.run.method == BASE else links.run(checkpoint.run),
                            "scores": runs.scores(
                                checkpoint, tree, [column.benchmark or "" for column in table.columns]
                            ),
                        }
                        for checkpoint in row.checkpoints
                    ],
                }
            )
    return pages


# The first view: Table 1's averages as dots with their intervals, one picture per model.


def glance(table: Table) -> list[dict[str, Any]]:
    """One entry per block of the table that has a measured average."""
    pictures = []
    for block in table.blocks:
        rows = [row for row in block if row.kind != "delta" and row.cells[AVERAGE].value is not None]
        if rows:
            pictures.append(_picture(rows, table))
    return pictures


def _ends(cell: Cell) -> list[float | None]:
    """What a line of the picture reaches to."""
    if render.few_seeds(cell):
        return [cell.value, *cell.seed_values.values()]
    return [cell.low, cell.value, cell.high]


def _picture(rows: Sequence[Row], table: Table) -> dict[str, Any]:
    cells = [row.cells[AVERAGE] for row in rows]
    ends = [end for cell in cells for end in _ends(cell) if end is not None]
    room = MARGIN * (max(ends) - min(ends)) or MARGIN  # all numbers equal: any room will do
    low, high = max(0.0, min(ends) - room), min(1.0, max(ends) + room)

    def place(value: float) -> float:
        return round(100 * (value - low) / (high - low), 2)

    lines = []
    for row, cell in zip(rows, cells, strict=True):
        words = render.shown(cell, table)
        whisker = None
        if cell.low is not None and cell.high is not None and not render.few_seeds(cell):
            whisker = (place(cell.low), round(place(cell.high) - place(cell.low), 2))
        lines.append(
            {
                "label": row.label,
                "href": _address(row, table),
                "text": words["text"],
                # Of two seeds with a wide interval each is a dot of its own: a line would reach from end to end.
                "seeds": [place(value) for value in cell.seed_values.values()] if render.few_seeds(cell) else [],
                "mark": words["mark"],
                "interval": words["interval"],
                "printed": "" if table.declared.generated else percent(cell.printed) or "–",
                "reference": row.id == row.block.baseline,
                "dot": place(cell.value or 0.0),
                "whisker": whisker,
            }
        )
    paper_model = rows[0].stands_for
    baseline = next((row.label for row in rows if row.id == row.block.baseline), None)
    note = (
        "Avg. (pooled): percent of all responses that are correct; its 95 % interval, or a dot for each of two seeds"
        " where that is wider than 50 points."
    )
    if baseline is not None:
        note += f" Marks compare with {baseline} (hollow dot): ↑ ↓ the difference's interval excludes 0, also after"
        note += " Holm's correction; ↑? ↓? only before it; ≈ it includes 0; ? cannot be said; in brackets: of two"
        note += " checkpoints only."
    if paper_model:
        note += f" In grey: what the paper prints for {paper_model} on its own benchmarks, which is not comparable."
    return {
        "id": rows[0].id,
        "title": render.head(list(rows)) if table.declared.generated else render.model(rows[0]),
        "note": note,
        "printed": "" if table.declared.generated else paper_model or "the paper",
        "low": f"{100 * low:.0f} %",
        "high": f"{100 * high:.0f} %",
        "rows": lines,
    }
