"""Tables on the page: numbers that lead to their runs, a page per row of several checkpoints, averages as dots."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import written_by
from core.files import read_text
from core.layout import BASE, Checkpoint, Run
from core.results_tree import Tree
from report import captions, markdown
from report import view as filled
from report.markdown import percent, with_interval
from report.rows import offered
from report.site import assets, links, runs

Table = Mapping[str, Any]  # of `report.view.view`, as its rows and cells are

AVERAGE, AREA = "avg_pooled", "area"
LEADING = (AREA, AVERAGE, "delta", "avg_macro", "final", "best")  # columns of the page's tables before the others
SECTIONS = ("sweep/sweep", "sweep/frontier")  # of `report.sweep`
CHOICE = re.compile(r"<h4>(What chose the values)</h4>(.*?)(?=<h3>|\Z)", re.DOTALL)
MARGIN = 0.04  # of the drawn range, left and right


def read(tree: Tree) -> list[Table]:
    """The tables that the plan has methods for, and last the one of all runs."""
    return [filled.table(tree, key) for key in offered()]


def view(table: Table, tree: Tree, sentences: dict[str, int]) -> Table:
    """A table for the template. sentences: those behind the cells of all tables, with the numbers that cells have."""
    file = tree.layout.tables / f"table{table['key']}.tidy.csv"
    names = {row["id"]: row["name"] for row in rows_of(table)}
    slots = [column["slot"] for column in table["columns"]]
    order = sorted(range(len(slots)), key=lambda n: LEADING.index(slots[n]) if slots[n] in LEADING else len(LEADING))

    def line(row: Table) -> Table:
        behind = {slot: _behind(cell, names) for slot, cell in row["cells"].items()}
        numbers = {
            slot: " ".join(str(sentences.setdefault(one, len(sentences))) for one in lines)
            for slot, lines in behind.items()
        }
        cells = {slots[n]: {**row["cells"][slots[n]], "behind": numbers[slots[n]]} for n in order}
        kinds = {kind: row["kind"] == kind for kind in ("delta", "mean")}
        return {**row, **kinds, "href": _address(row, table), "cells": cells}

    return {
        **table,
        "file": file.relative_to(tree.root).as_posix(),
        "caption": captions.paragraphs(f"table{table['key']}"),
        "columns": [table["columns"][n] for n in order],
        "blocks": [
            {
                **block,
                "absent": [row["name"] for row in block["rows"] if not row["ran"]],
                "rows": [line(row) for row in block["rows"]],
            }
            for block in table["blocks"]
        ],
    }


def rows_of(table: Table) -> list[Any]:
    return [row for block in table["blocks"] for row in block["rows"]]


def is_papers(tree: Tree, tables: Sequence[Table], judged: Container[str]) -> bool:
    """Whether the tree is one of the shipped scales, and each of its runs, or that without its variant, stands in a
    declared table or, by its folder, among those that verdicts on claims are about."""
    declared = [table for table in tables if not table["generated"]]
    shown = {c.run for table in declared for row in rows_of(table) for c in row["checkpoints"]}
    plain = {run: Run(run.model, run.key, run.seed) for run in tree.runs}
    own = all({run, plain[run]} & shown or f"runs/{run.path.as_posix()}" in judged for run in tree.runs)
    return own and bool(captions.paragraphs(f"scale-{tree.scale}"))


def sections(tree: Tree) -> dict[str, str]:
    """What other commands wrote to be read, as HTML: a sweep, methods at equal movement."""
    found = {}
    for path in SECTIONS:
        if (tree.root / f"{path}.md").is_file() or tree.matrix.get("sweep"):
            with written_by(f"python -m report.sweep --results {tree.root}"):
                tree.check_written(SECTIONS[0], f"{path}.md")
                text = assets.section(read_text(tree.root / f"{path}.md", "a section of the page"))
            found[Path(path).name] = CHOICE.sub(r"<details><summary>\1</summary>\2</details>", text)
    return found


def _address(row: Table, table: Table) -> str:
    """Where a click on the row's numbers leads: the run if there is exactly one, else the row's page."""
    if len(row["checkpoints"]) == 1 and row["checkpoints"][0].run.method != BASE:
        return links.run(row["checkpoints"][0].run)
    return links.row(table["key"], row["id"])


def _behind(cell: Table, names: Mapping[str, str]) -> list[str]:
    """What one reads while pointing at a number. names: of the table's rows."""
    if not cell["measured"]:
        return []
    seeds = f"Seed{'s' * (len(cell['seeds']) > 1)} {', '.join(map(str, cell['seeds']))}" if cell["seeds"] else ""
    if cell["kind"] == "base":
        seeds = f"Untrained{seeds and ': '}{seeds.lower()}"
    problems = f", {cell['n']} problems" if cell["level"] == "problem" and cell["n"] is not None else ""
    lines = [seeds + problems, f"{cell['level'].capitalize()} level: {cell['how']}"]
    if cell["versus"] is not None:
        p = cell["versus_p_holm"]
        corrected = "" if p is None else f"; p {p:.2g}, corrected for {cell['versus_tests']} tests"
        against = names.get(cell["baseline"] or "", cell["baseline"])
        how = f"({cell['versus_level']} level: {cell['versus_how']})"
        lines.append(f"{with_interval(cell, 'versus')} against {against} {how}{corrected}")
    if cell["printed"] is not None and not cell["comparable"]:
        paper = f"The paper prints {percent(cell['printed'])}"
        lines.append(f"{paper}, for another model or other problems: not comparable.")
    return lines


def row_pages(tables: Sequence[Table], tree: Tree) -> list[dict[str, Any]]:
    """A page for each row that has checkpoints and is not a single run: its checkpoints, one line each."""
    return [
        {
            "id": links.row(table["key"], row["id"]),
            "label": row["name"],
            "table": table["key"],
            "model": block["model"],
            "kind": row["kind"],
            "columns": [column["heading"] for column in table["columns"]],
            "cells": list(row["cells"].values()),
            "lines": [_checkpoint(checkpoint, row, table, tree) for checkpoint in row["checkpoints"]],
        }
        for table in tables
        for block in table["blocks"]
        for row in block["rows"]
        if row["checkpoints"] and _address(row, table) == links.row(table["key"], row["id"])
    ]


def _checkpoint(checkpoint: Checkpoint, row: Table, table: Table, tree: Tree) -> dict[str, Any]:
    """One line of a row's page. It leads to the run; a base model has none, and leads to its responses."""
    scored = [column["benchmark"] for column in table["columns"] if column["benchmark"] is not None]
    scores = dict(zip(scored, runs.scores(checkpoint, tree, scored), strict=True))
    found = [
        scores[column["benchmark"]]
        if column["benchmark"] is not None
        else _no_score(row["cells"][column["slot"]], checkpoint)
        for column in table["columns"]
    ]
    is_base = checkpoint.run.method == BASE
    answers = next((score["href"] for score in found if score["href"]), None)
    return {
        "title": links.title(checkpoint, tree),
        "href": (answers and links.responses(checkpoint)) if is_base else links.run(checkpoint.run),
        "scores": found,
    }


def _no_score(cell: Table, checkpoint: Checkpoint) -> dict[str, Any]:
    """A column that is not in scores.csv: the value of the checkpoint's seed; without one the cell's word, or a dash
    where only the cell has a number."""
    # A row of a difference has the difference's value of a seed, which is neither checkpoint's.
    value = cell["by_seed"].get(checkpoint.run.seed) if cell["kind"] != "delta" else None
    if value is not None:
        return {"text": markdown.signed(cell, value), "number": True, "href": None}
    return {"text": "–" if cell["measured"] else cell["text"], "number": False, "href": None}


# Averages as dots with their intervals, one picture per model.

SHOWN = 2  # blocks


def glance(table: Table) -> list[dict[str, Any]]:
    """The first blocks of the table that have a measured average; of all runs the area, which does not saturate."""
    slot = AREA if table["generated"] else AVERAGE
    found = []
    for block in table["blocks"]:
        own = [row for row in block["rows"] if row["kind"] != "delta" and row["cells"][slot]["measured"]]
        found += [_picture(own, block, slot, table)] if own else []
    return found[:SHOWN]


def axis(ends: Iterable[float | None]) -> tuple[float, float]:
    """Lowest and highest value of a small picture that shows `ends`, with room at both sides."""
    known = [end for end in ends if end is not None]
    low, high = min(known), max(known)
    room = MARGIN * (high - low) or MARGIN  # all numbers equal: any room will do
    return low - room, high + room


def place(value: float, low: float, high: float) -> float:
    """Where a value is in a small picture, in percent of its width."""
    return round(100 * (value - low) / (high - low), 2)


def _dots(cell: Table) -> list[float]:
    """Two seeds with a wide interval are two dots: a line would reach from end to end."""
    return list(cell["by_seed"].values()) if markdown.few_seeds(cell) else []


def _picture(rows: Sequence[Table], block: Table, slot: str, table: Table) -> dict[str, Any]:
    cells = [row["cells"][slot] for row in rows]
    low, high = axis(end for cell in cells for end in (cell["value"], *(_dots(cell) or (cell["low"], cell["high"]))))
    ends = max(0.0, low), min(1.0, high)
    lines = []
    for row, cell in zip(rows, cells, strict=True):
        whisker = None
        if not _dots(cell) and cell["low"] is not None and cell["high"] is not None:
            left = place(cell["low"], *ends)
            whisker = left, round(place(cell["high"], *ends) - left, 2)
        lines.append(
            {
                **{name: cell[name] for name in ("text", "interval", "mark")},
                "label": row["name"],
                "href": _address(row, table),
                "seeds": [place(value, *ends) for value in _dots(cell)],
                "printed": "" if table["generated"] else percent(cell["printed"]) or "–",
                "reference": row["id"] == block["reference"],
                "dot": place(cell["value"] or 0.0, *ends),
                "whisker": whisker,
            }
        )
    return {
        "id": rows[0]["id"],
        "title": block["head"] if table["generated"] else block["of"],
        "heading": "Area under reward" if slot == AREA else "Avg. (pooled)",
        "printed": "" if table["generated"] else block["stands_for"] or "the paper",
        "low": f"{100 * ends[0]:.0f} %",
        "high": f"{100 * ends[1]:.0f} %",
        "rows": lines,
    }
