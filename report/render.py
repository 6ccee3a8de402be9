"""A filled table as CSV, Markdown and tidy CSV. Each function is one rendering; none computes a number."""

from __future__ import annotations

import csv
import io

from records.layout import Results
from report import captions
from report.cells import Cell, Column, FilledBlock, FilledRow, FilledTable, interval, is_best, percent
from report.columns import to_csv

TIDY = (
    "row", "label", "state", "model", "method", "step", "seeds", "column", "benchmark", "value", "low", "high", "level",
    "how", "n", "runs",
)  # fmt: skip


def csv_table(filled: FilledTable) -> str:
    """As the paper prints it: one row per method, percent with two decimals; `not run` or `missing` for no number."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["row", "method", *(column.heading for column in filled.columns)])
    for block in filled.blocks:
        for row in block.rows:
            writer.writerow([row.row.id, row.label, *(row.cells[c.slot].shown for c in filled.columns)])
    return out.getvalue()


def tidy_table(filled: FilledTable) -> str:
    """One line per cell. Values are fractions with every digit; `runs` are paths below the results folder."""
    return to_csv(
        TIDY,
        (
            _tidy(row, column, row.cells[column.slot])
            for block in filled.blocks
            for row in block.rows
            for column in filled.columns
        ),
    )


def markdown(filled: FilledTable) -> str:
    """The table for reading: best of each column in bold, 95 % interval in each cell, notes below."""
    lines = [f"# Table {filled.table.key}: {filled.table.title}", ""]
    for paragraph in captions.scale(filled.scale):
        lines += [f"> {_escape(paragraph)}", ">"]
    lines[-1] = ""
    for block in filled.blocks:
        lines += [*_head(block), ""]
        lines.append("| Method | " + " | ".join(_heading(column) for column in filled.columns) + " |")
        lines.append("|---|" + "---:|" * len(filled.columns))
        for row in block.rows:
            cells = " | ".join(_markdown_cell(row.cells[c.slot], block, row) for c in filled.columns)
            seeds = f"<br>({len(row.seeds)} seeds)" if len(row.seeds) > 1 else ""
            lines.append(f"| {_escape(row.label)}{seeds} | {cells} |")
        lines.append("")
    lines += [
        f"{_escape(paragraph)}\n" for paragraph in [*captions.paragraphs(f"table{filled.table.key}"), *levels(filled)]
    ]
    lines += [f"- {_escape(note)}" for note in filled.notes]
    return "\n".join(lines).rstrip() + "\n"


def write(filled: FilledTable, layout: Results) -> list[str]:
    """Write `tables/table<key>.{csv,md,tidy.csv}`; returns the paths."""
    from records.write import write_text

    name = layout.tables / f"table{filled.table.key}"
    written = []
    for suffix, text in ((".csv", csv_table(filled)), (".md", markdown(filled)), (".tidy.csv", tidy_table(filled))):
        path = name.with_name(name.name + suffix)
        write_text(path, text)
        written.append(str(path))
    return written


def levels(filled: FilledTable) -> list[str]:
    """What the intervals of this table speak about: one sentence per level that occurs."""
    occurring = {cell.level for cell in filled.cells if cell.value is not None}
    return [captions.LEVELS[level] for level in captions.LEVELS if level in occurring]


def _tidy(row: FilledRow, column: Column, cell: Cell) -> dict[str, object]:
    runs = dict.fromkeys(checkpoint.path.as_posix() for checkpoint in cell.checkpoints)
    return {
        "row": row.row.id,
        "label": row.label,
        "state": cell.state,
        "model": row.model,
        "method": row.method if row.row.delta is None else f"{row.row.delta[0]} - {row.row.delta[1]}",
        "step": row.step,
        "seeds": " ".join(map(str, cell.seeds)),
        "column": column.slot,
        "benchmark": column.benchmark,
        "value": cell.value,
        "low": cell.low,
        "high": cell.high,
        "level": cell.level,
        "how": cell.how,
        "n": cell.n,
        "runs": " ".join(runs),
    }


def _head(block: FilledBlock) -> list[str]:
    who = f"**{_escape(str(block.model['title']))}**"
    who += f", standing for {block.stands_for}" if block.stands_for else ""
    return [f"{block.title}: {who}" if block.title else who]


def _heading(column: Column) -> str:
    return f"{column.heading}<br>(for {column.stands_for})" if column.stands_for else column.heading


def _markdown_cell(cell: Cell, block: FilledBlock, row: FilledRow) -> str:
    if cell.value is None:
        return cell.state
    sign = "+" if row.row.delta and cell.value > 0 and percent(cell.value) != "0.00" else ""
    number = f"**{cell.shown}**" if is_best(cell, block, row) else f"{sign}{cell.shown}"
    bounds = interval(cell)
    return f"{number}<br>[{bounds}]" if bounds else f"{number}<br>[no interval]"


def _escape(text: str) -> str:
    """Text that comes from outside, as plain Markdown: no table bars, no tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|").replace("\n", " ")
