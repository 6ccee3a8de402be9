"""Tables on the page: numbers that lead to their runs, a page per row of several checkpoints, averages as dots."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import written_by
from core.files import read_text, stored
from core.layout import BASE, Checkpoint, Run
from core.results_tree import Tree
from report import captions
from report.site import assets, links, runs
from report.tables import render, spec
from report.tables.tidy import Cell, Row, Table, checked_table, percent, with_interval

AVERAGE, AREA = "avg_pooled", "area"
LEADING = (AREA, AVERAGE, "delta", "avg_macro", "final", "best")  # columns of the page's tables before the others
SECTIONS = {"sweep/sweep": "sweep", "sweep/frontier": "frontier"}  # file -> its command
CHOICE = re.compile(r"<h4>(What chose the values)</h4>(.*?)(?=<h3>|\Z)", re.DOTALL)
MARGIN = 0.04  # of the drawn range, left and right


def read(tree: Tree) -> list[Table]:
    """The tables that the plan has methods for, and last the one of all runs."""
    return [checked_table(tree, key) for key in spec.offered()]


def view(table: Table, tree: Tree, sentences: dict[str, int]) -> dict[str, Any]:
    """A table for the template. sentences: those behind the cells of all tables, with the numbers that cells have."""
    file = tree.layout.tables / f"table{table.key}.tidy.csv"
    context = render.context(table, (stored(file) or file).relative_to(tree.root).as_posix())
    context["generated"] = table.declared.generated
    context["caption"] = captions.paragraphs(f"table{table.key}")
    labels = {row.id: row.label for row in table.rows}
    slots = [column.slot for column in table.columns]
    order = sorted(range(len(slots)), key=lambda n: LEADING.index(slots[n]) if slots[n] in LEADING else len(LEADING))
    context["columns"] = [context["columns"][n] for n in order]
    for block, rows in zip(context["blocks"], table.blocks, strict=True):
        block["absent"] = [row.label for row in rows if not row.ran]
        for line, row in zip(block["rows"], rows, strict=True):
            line["href"] = _address(row, table)
            for words, column in zip(line["cells"], table.columns, strict=True):
                cell = row.cells[column.slot]
                behind = _behind(cell, labels)
                words["behind"] = " ".join(str(sentences.setdefault(one, len(sentences))) for one in behind)
            line["cells"] = [line["cells"][n] for n in order]
    return context


def is_papers(tree: Tree, tables: Sequence[Table], judged: Container[str]) -> bool:
    """Whether the tree is one of the shipped scales, and each of its runs, or that without its variant, stands in a
    declared table or, by its folder, among those that verdicts on claims are about."""
    shown = {c.run for table in tables if not table.declared.generated for row in table.rows for c in row.checkpoints}
    plain = {run: Run(run.model, run.key, run.seed) for run in tree.runs}
    own = all({run, plain[run]} & shown or f"runs/{run.path.as_posix()}" in judged for run in tree.runs)
    return own and bool(captions.paragraphs(f"scale-{tree.scale}"))


def sections(tree: Tree) -> dict[str, str]:
    """What other commands wrote to be read, as HTML: a sweep, methods at equal movement."""
    found = {}
    for path, module in SECTIONS.items():
        if stored(tree.root / f"{path}.md") or (module == "sweep" and tree.matrix.get("sweep")):
            with written_by(f"python -m report.{module} --results {tree.root}"):
                tree.check_written(path, f"{path}.md")
                text = assets.section(read_text(tree.root / f"{path}.md", "a section of the page"))
            found[Path(path).name] = CHOICE.sub(r"<details><summary>\1</summary>\2</details>", text)
    return found


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
        p = cell.versus_p_holm
        corrected = "" if p is None else f"; p {p:.2g}, corrected for {cell.versus_tests} tests"
        against = labels.get(cell.baseline or "", cell.baseline)
        how = f"({cell.versus_level} level: {cell.versus_how})"
        lines.append(f"{with_interval(cell.model_dump(), 'versus')} against {against} {how}{corrected}")
    if cell.printed is not None and not cell.comparable:
        lines.append(f"The paper prints {percent(cell.printed)}, for another model or other problems: not comparable.")
    return lines


def row_pages(tables: Sequence[Table], tree: Tree) -> list[dict[str, Any]]:
    """A page for each row that has checkpoints and is not a single run: its checkpoints, one line each."""
    return [
        {
            "id": links.row(table.key, row.id),
            "label": row.label,
            "table": table.key,
            "model": row.model_title,
            "kind": row.kind,
            "columns": [column.heading for column in table.columns],
            "cells": [render.shown(row.cells[column.slot], table) for column in table.columns],
            "lines": [_checkpoint(checkpoint, row, table, tree) for checkpoint in row.checkpoints],
        }
        for table in tables
        for row in table.rows
        if row.checkpoints and _address(row, table) == links.row(table.key, row.id)
    ]


def _checkpoint(checkpoint: Checkpoint, row: Row, table: Table, tree: Tree) -> dict[str, Any]:
    """One line of a row's page. It leads to the run; a base model has none, and leads to its responses."""
    scored = [column.benchmark for column in table.columns if column.benchmark is not None]
    scores = dict(zip(scored, runs.scores(checkpoint, tree, scored), strict=True))
    found = [
        scores[column.benchmark] if column.benchmark is not None else _no_score(row.cells[column.slot], checkpoint)
        for column in table.columns
    ]
    is_base = checkpoint.run.method == BASE
    answers = next((score["href"] for score in found if score["href"]), None)
    return {
        "title": links.title(checkpoint, tree),
        "href": (answers and links.responses(checkpoint)) if is_base else links.run(checkpoint.run),
        "scores": found,
    }


def _no_score(cell: Cell, checkpoint: Checkpoint) -> dict[str, Any]:
    """A column that scores.csv knows nothing of: the value of the checkpoint's seed; without one the cell's word, or a
    dash where only the cell has a number."""
    # A row of a difference has the difference's value of a seed, which is neither checkpoint's.
    value = cell.seed_values.get(checkpoint.run.seed) if cell.kind != "delta" else None
    if value is not None:
        return {"text": render.signed(cell, value), "number": True, "href": None}
    return {"text": "–" if cell.value is not None else render.number(cell), "number": False, "href": None}


# Averages as dots with their intervals, one picture per model.

SHOWN = 2  # blocks


def glance(table: Table) -> list[dict[str, Any]]:
    """The first blocks of the table that have a measured average; of all runs the area, which does not saturate."""
    slot = AREA if table.declared.generated else AVERAGE
    blocks = [[row for row in b if row.kind != "delta" and row.cells[slot].value is not None] for b in table.blocks]
    return [_picture(rows, slot, table) for rows in [rows for rows in blocks if rows][:SHOWN]]


def axis(ends: Iterable[float | None]) -> tuple[float, float]:
    """Lowest and highest value of a small picture that shows `ends`, with room at both sides."""
    known = [end for end in ends if end is not None]
    low, high = min(known), max(known)
    room = MARGIN * (high - low) or MARGIN  # all numbers equal: any room will do
    return low - room, high + room


def place(value: float, low: float, high: float) -> float:
    """Where a value is in a small picture, in percent of its width."""
    return round(100 * (value - low) / (high - low), 2)


def _dots(cell: Cell) -> list[float]:
    """Two seeds with a wide interval, each of which is a dot of its own: a line would reach from end to end."""
    return list(cell.seed_values.values()) if render.few_seeds(cell) else []


def _picture(rows: Sequence[Row], slot: str, table: Table) -> dict[str, Any]:
    cells = [row.cells[slot] for row in rows]
    low, high = axis(end for cell in cells for end in (cell.value, *(_dots(cell) or (cell.low, cell.high))))
    ends = max(0.0, low), min(1.0, high)
    lines = []
    for row, cell in zip(rows, cells, strict=True):
        whisker = None
        if not _dots(cell) and cell.low is not None and cell.high is not None:
            left = place(cell.low, *ends)
            whisker = left, round(place(cell.high, *ends) - left, 2)
        lines.append(
            {
                **render.shown(cell, table),
                "label": row.label,
                "href": _address(row, table),
                "seeds": [place(value, *ends) for value in _dots(cell)],
                "printed": "" if table.declared.generated else percent(cell.printed) or "–",
                "reference": row.id == row.block.baseline,
                "dot": place(cell.value or 0.0, *ends),
                "whisker": whisker,
            }
        )
    return {
        "id": rows[0].id,
        "title": render.head(list(rows)) if table.declared.generated else render.model(rows[0]),
        "heading": "Area under reward" if slot == AREA else "Avg. (pooled)",
        "printed": "" if table.declared.generated else rows[0].stands_for or "the paper",
        "low": f"{100 * ends[0]:.0f} %",
        "high": f"{100 * ends[1]:.0f} %",
        "rows": lines,
    }
