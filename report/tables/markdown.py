"""A filled table as Markdown: best of a column in bold, interval and mark in each cell, seeds that link to runs."""

from __future__ import annotations

from report.tables.filled import Column, FilledBlock, FilledRow, FilledTable
from report.tables.shown import Shown, baseline, empty, head, label, runs, seeds, shown, words


def markdown(filled: FilledTable) -> str:
    """The file lies in `tables/`, so runs are linked as `../runs/...`."""
    lines = [f"# {_escape(filled.table.heading)}", ""]
    for paragraph in filled.lead:
        lines += [f"> {_escape(paragraph)}", ">"]
    lines[-1] = ""
    if not filled.measured:
        lines += [_escape(empty(filled)), ""]
    for block in filled.blocks:
        lines += _block(block, filled)
    lines += [f"{_escape(paragraph)}\n" for paragraph in words(filled)]
    lines += [f"- {_escape(note)}" for note in filled.notes]
    return "\n".join(lines).rstrip() + "\n"


def _block(block: FilledBlock, filled: FilledTable) -> list[str]:
    lines = [f"**{_escape(head(block))}**", ""]
    lines.append("| Method | " + " | ".join(_heading(column) for column in filled.columns) + " |")
    lines.append("|---|" + "---:|" * len(filled.columns))
    for row in block.rows:
        cells = " | ".join(_cell(shown(row.cells[c.slot], block, row)) for c in filled.columns)
        lines.append(f"| {_escape(label(row))}{_seeds(row)} | {cells} |")
    against = baseline(block, filled)
    return [*lines, "", *([_escape(against), ""] if against else [])]


def _heading(column: Column) -> str:
    heading = _escape(column.heading)
    return f"{heading}<br>(for {_escape(column.stands_for)})" if column.stands_for else heading


def _seeds(row: FilledRow) -> str:
    """How many seeds, each a link to its run."""
    if not row.seeds:
        return ""
    links = ", ".join(f"[seed {run.seed}](../runs/{run.path.as_posix()})" for run in runs(row))
    return f"<br>{seeds(row)}" + (f": {links}" if links else "")


def _cell(cell: Shown) -> str:
    if not cell.measured:
        return cell.number
    number = f"**{cell.number}**" if cell.best else cell.number
    lines = [f"{number} {cell.mark}".rstrip(), f"[{cell.interval or 'no interval'}]"]
    return "<br>".join([*lines, f"paper {cell.paper}"] if cell.paper else lines)


def _escape(text: str) -> str:
    """Text that comes from outside, as plain Markdown: no table bars, no tags, no emphasis."""
    for raw, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("*", "\\*"), ("\n", " ")):
        text = text.replace(raw, safe)
    return text
