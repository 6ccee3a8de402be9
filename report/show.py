"""`python -m report.show table1 --scale quick`: a table in the terminal; `report.show runs`: how far the runs are."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from records import errors
from records.errors import unknown
from report.tables import render, spec

if TYPE_CHECKING:
    from report.tables.tidy import Cell, Row, Table

RUNS = "runs"
LEGEND = (
    "Percent, 95 % intervals below; * best of its column. Against the block's baseline: ≈ inside noise, ↑ ↓ outside, "
    "? cannot be said, no mark: not compared; in brackets: of two checkpoints, not of two methods. "
    "† a run behind the row collapsed."
)


def text(table: Table, width: int = 100) -> str:
    """The table in plain text: number above, interval below, best of a column marked `*`; rows not run named below."""
    lines = [table.lead[0], "", render.empty(table) or table.declared.heading]
    for rows in table.blocks:
        if any(row.measured for row in rows):
            lines += ["", *_block(rows, table)]
    notes = [f"Note: {note}" for note in table.notes]
    if table.measured:
        stand_ins = [f"{_short(c.heading)} for {c.stands_for}" for c in table.columns if c.stands_for]
        benchmarks = [f"Stand-ins, not the paper's benchmarks: {', '.join(stand_ins)}."] if stand_ins else []
        notes = [LEGEND, *benchmarks, *render.levels(table), *notes]
    return "\n".join([*lines, "", *(line for note in notes for line in textwrap.wrap(note, width))])


def _block(rows: list[Row], table: Table) -> list[str]:
    headings = [_short(column.heading) for column in table.columns]
    lines = []  # label, then one text per column
    for row in rows:
        if row.ran:
            cells = [row.cells[column.slot] for column in table.columns]
            intervals = [_interval(cell) for cell in cells]
            lines.append([render.label(row), *(_number(cell, table) for cell in cells)])
            if any(intervals):  # a row that is missing needs no second line
                lines.append(["", *intervals])
    widths = [max(len(line[place]) for line in [["", *headings], *lines]) for place in range(len(headings) + 1)]
    out = [f"{render.head(rows)}. {render.baseline(rows, table)}".rstrip()]
    out += [_line(["", *headings], widths), "-" * (sum(widths) + len(headings))]
    out += [_line(line, widths) for line in lines]
    absent = [row.label for row in rows if not row.ran]
    return [*out, f"not run at this scale: {', '.join(absent)}"] if absent else out


def _number(cell: Cell, table: Table) -> str:
    words = render.shown(cell, table)
    return words["text"].replace("−", "-") + ("*" if words["best"] else "") + words["mark"]


def _interval(cell: Cell) -> str:
    """Whole percents, so that nine columns fit into a terminal."""
    if cell.low is None or cell.high is None:
        return ""
    return f"{100 * cell.low:.0f}{':' if cell.kind == 'delta' else '-'}{100 * cell.high:.0f}"


def _short(heading: str) -> str:
    return heading.removeprefix("syn_").replace("Avg. (pooled)", "pooled").replace("Avg. (macro)", "macro")


def _line(texts: list[str], widths: list[int]) -> str:
    label, *cells = texts
    aligned = [label.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))]
    return " ".join(aligned).rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a table of finished results, or how far the runs are.")
    parser.add_argument("what", help="table1, or another key of report/tables.yaml; runs")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--results", type=Path, help="results/<scale>")
    where.add_argument("--scale", help="the same as --results results/SCALE")
    args = parser.parse_args()

    from records.results_tree import open_tree

    known = [*(f"table{key}" for key in spec.tables()), RUNS]
    if args.what not in known:
        raise unknown("command line", "what", args.what, known)
    tree = open_tree(args.results or Path("results") / args.scale)
    if args.what == RUNS:
        from report import status

        print(status.text(tree.root.name, status.progress(tree)))
        return
    from report.tables.tidy import read_table

    width = max(60, min(110, shutil.get_terminal_size().columns))
    print(text(read_table(tree, args.what.removeprefix("table")), width))
    if tree.layout.report.is_file():
        print(f"\nreport: {tree.layout.report} (open it in a browser, no network needed)")


if __name__ == "__main__":
    errors.run(main)
