"""`python -m report.show table1 --scale quick`: a table in the terminal; `report.show runs`: how far the runs are."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from records import errors
from records.errors import unknown
from report.tables import spec

if TYPE_CHECKING:
    from report.tables.fill import Cell, FilledBlock, FilledRow, FilledTable

RUNS = "runs"
GAP = " "
LEGEND = (
    "Percent, 95 % intervals below; * best of its column. Against the block's baseline: ≈ inside noise, ↑ ↓ outside, "
    "? cannot be said, no mark: not compared; in brackets: of two checkpoints, not of two methods. "
    "† a run behind the row collapsed."
)


def text(filled: FilledTable, width: int = 100) -> str:
    """The table in plain text: value above, interval below, best of a column marked `*`; rows not run named below."""
    from report.tables import render

    lines = [filled.lead[0], "", filled.table.heading if filled.measured else render.empty(filled)]
    for block in filled.blocks:
        lines += ["", *_block(block, filled)] if any(row.measured for row in block.rows) else []
    words = [LEGEND, *_stands_for(filled), *render.levels(filled)] if filled.measured else []
    words += [f"Note: {note}" for note in filled.notes]
    return "\n".join([*lines, "", *(line for word in words for line in textwrap.wrap(word, width))])


def _block(block: FilledBlock, filled: FilledTable) -> list[str]:
    from report.tables import render

    ran = [row for row in block.rows if row.ran]
    heads = [_short(column.heading) for column in filled.columns]
    grid = [(render.label(row), [_two(row.cells[c.slot], block, row) for c in filled.columns]) for row in ran]
    label = max(len(name) for name, _ in grid)
    widths = [max(len(head), *(len(part) for _, cells in grid for part in cells[n])) for n, head in enumerate(heads)]
    against = render.baseline(block, filled)
    out = [f"{render.head(block)}. {against}".rstrip()]
    out += [_line("", heads, label, widths), "-" * (label + sum(widths) + len(GAP) * len(widths))]
    for name, cells in grid:
        out.append(_line(name, [value for value, _ in cells], label, widths))
        if any(bounds for _, bounds in cells):
            out.append(_line("", [bounds for _, bounds in cells], label, widths))
    absent = [row.label for row in block.rows if not row.ran]
    if absent:
        out.append(f"not run at this scale: {', '.join(absent)}")
    return out


def _stands_for(filled: FilledTable) -> list[str]:
    pairs = [f"{_short(c.heading)} for {c.stands_for}" for c in filled.columns if c.stands_for]
    return [f"Stand-ins, not the paper's benchmarks: {', '.join(pairs)}."] if pairs else []


def _two(cell: Cell, block: FilledBlock, row: FilledRow) -> tuple[str, str]:
    from report.tables.fill import interval
    from report.tables.render import shown

    words = shown(cell, block, row)
    bounds = interval(cell, digits=0).replace(" to ", ":" if row.row.kind == "delta" else "-")
    return words.number + ("*" if words.best else "") + words.mark, bounds


def _short(heading: str) -> str:
    """Headings that fit nine columns into a terminal."""
    return heading.removeprefix("syn_").replace("Avg. (pooled)", "pooled").replace("Avg. (macro)", "macro")


def _line(name: str, cells: list[str], label: int, widths: list[int]) -> str:
    return (name.ljust(label) + GAP + GAP.join(c.rjust(w) for c, w in zip(cells, widths, strict=True))).rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a table of finished results, or how far the runs are.")
    parser.add_argument("what", help="table1, or another key of report/tables.yaml; runs")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--results", type=Path, help="results/<scale>")
    where.add_argument("--scale", help="the same as --results results/SCALE")
    arguments = parser.parse_args()

    from records.results_tree import open_tree

    known = [f"table{key}" for key in spec.table_keys()]
    if arguments.what not in (*known, RUNS):
        raise unknown("command line", "what", arguments.what, [*known, RUNS])
    tree = open_tree(arguments.results or Path("results") / arguments.scale)
    if arguments.what == RUNS:
        from report import status

        print(status.text(tree.root.name, status.progress(tree)))
        return
    from report.tables import fill as cells

    width = max(60, min(110, shutil.get_terminal_size().columns))
    print(text(cells.fill(spec.table(arguments.what.removeprefix("table")), tree), width))
    if tree.layout.report.is_file():
        print(f"\nreport: {tree.layout.report} (open it in a browser, no network needed)")


if __name__ == "__main__":
    errors.run(main)
