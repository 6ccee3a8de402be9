"""A filled table as files: CSV as printed and tidy CSV here; Markdown, LaTeX, HTML beside. None computes a number."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from records.csv_files import to_csv
from records.layout import BASE, Results, Run
from report import captions
from report.tables.fill import Cell, Column, FilledBlock, FilledRow, FilledTable, interval, is_best, percent

if TYPE_CHECKING:
    from jinja2 import Template


# How a filled table reads, for every rendering alike: number, interval, mark and notes as text, nothing computed.


INSIDE, ABOVE, BELOW, UNKNOWN = "≈", "↑", "↓", "?"
COLLAPSED = "†"


@dataclass(frozen=True)
class Shown:
    """One cell in words. number: percent, signed in rows of differences; interval: `62.1 to 80.0`; mark: against the
    baseline (`mark`); paper: the printed percent, where the two may be set side by side. Empty: there is none."""

    number: str
    measured: bool
    interval: str
    mark: str
    best: bool
    paper: str
    how: str


def shown(cell: Cell, block: FilledBlock, row: FilledRow) -> Shown:
    positive = cell.value is not None and float(percent(cell.value)) > 0
    return Shown(
        number=("+" if row.row.kind == "delta" and positive else "") + cell.shown,
        measured=cell.value is not None,
        interval=interval(cell),
        mark=mark(cell),
        best=is_best(cell, block, row),
        paper=percent(cell.printed) if cell.comparable and cell.value is not None else "",
        how=how(cell),
    )


def mark(cell: Cell) -> str:
    """What the cell's difference to its baseline is: inside noise, above or below it, or impossible to say.

    In brackets where it is over problems: it then speaks of two checkpoints and not of two methods.
    """
    if cell.versus is None:
        return ""
    if cell.inside_noise is None:
        return UNKNOWN
    above = (cell.versus.comparison.difference or 0.0) > 0
    sign = INSIDE if cell.inside_noise else ABOVE if above else BELOW
    return sign if cell.versus.comparison.level == "seed" else f"({sign})"


def how(cell: Cell) -> str:
    """How value, interval and mark were made, in one line; empty for a cell without a number."""
    if cell.value is None:
        return ""
    text = f"{cell.level} level: {cell.how}"
    if cell.versus is None:
        return text
    gain = cell.versus.comparison
    text += f"; {percent(gain.difference)} to {cell.versus.baseline} ({gain.level} level: {gain.how}"
    return text + (")" if cell.versus.p_holm is None else f"; corrected p {cell.versus.p_holm:.2g})")


def label(row: FilledRow) -> str:
    return f"{row.label} {COLLAPSED}" if row.collapsed else row.label


def seeds(row: FilledRow) -> str:
    """How many training seeds a row has; empty where it has none."""
    return "" if not row.seeds else f"{len(row.seeds)} seed{'s' * (len(row.seeds) > 1)}"


def runs(row: FilledRow) -> list[Run]:
    """The training runs behind a row, by seed; none for a base model, and for differences, whose rows name theirs."""
    found = dict.fromkeys(c.run for c in row.checkpoints if c.run.method != BASE)
    return [] if row.row.kind == "delta" else sorted(found, key=lambda run: run.seed)


def head(block: FilledBlock) -> str:
    """`Panel A: ...: tiny Qwen2, standing for Qwen2.5-7B`"""
    model = str(block.model["title"]) + (f", standing for {block.stands_for}" if block.stands_for else "")
    return f"{block.title}: {model}" if block.title else model


def baseline(block: FilledBlock, filled: FilledTable) -> str:
    """What the block's marks compare with, in words; empty where nothing is compared."""
    row = next((row for row in filled.rows if row.row.id == block.baseline), None)
    return "" if row is None else f"Marks compare with {row.label}."


def words(filled: FilledTable) -> list[str]:
    """The paragraphs below a table: its own, those of all tables, what its intervals speak about."""
    return [*captions.paragraphs(f"table{filled.table.key}"), *captions.paragraphs("tables"), *levels(filled)]


def levels(filled: FilledTable) -> list[str]:
    """What the intervals of this table speak about: one sentence per level that occurs."""
    occurring = {cell.level for cell in filled.cells if cell.value is not None}
    return [captions.LEVELS[level] for level in captions.LEVELS if level in occurring]


def empty(filled: FilledTable) -> str:
    """The one line that stands for a table without a number."""
    state = "no score yet" if any(row.ran for row in filled.rows) else "not part of this scale"
    return f"{filled.table.heading}: {state}."


# A filled table as HTML: a fragment with its own small style, to open as it is or to paste into any page.


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


# A filled table as LaTeX: a fragment for `\input`, in the manner of the paper's tables.
#
# The document that takes it in needs, in its preamble:
#
# \usepackage{booktabs}
# \usepackage{graphicx}     % \resizebox: nine columns on one page
#
# Nothing else: pdflatex reads the file as UTF-8, and every symbol outside Latin letters is written as mathematics.


SYMBOLS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "|": r"$|$", "−": r"$-$",
    "–": "--", "→": r"$\to$", "≈": r"$\approx$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "†": r"$\dagger$",
    "∧": r"$\wedge$", "∨": r"$\vee$", "Δ": r"$\Delta$", "β": r"$\beta$", "ε": r"$\varepsilon$", "×": r"$\times$",
    "“": "``", "”": "''", "’": "'", '"': "''", "\n": " ",
}  # fmt: skip


def latex(filled: FilledTable) -> str:
    """The fragment: one `table` float and the notes to it, or one line where the table has no number."""
    lead = f"% {_plain(filled.lead[0])}\n% Needs booktabs and graphicx.\n"
    if not filled.measured:
        return f"{lead}\\noindent {_escape(empty(filled))}\n"
    name = f"tab:{filled.table.key}"
    notes = [f"Notes to Table~\\ref{{{name}}}.", *map(_escape, [*words(filled), *filled.notes])]
    return "\n".join(
        [
            lead + r"\begin{table}[p]",
            rf"\caption{{{_escape(filled.table.title)} ({_escape(filled.scale)} scale)}}",
            rf"\label{{{name}}}",
            r"\centering",
            r"\resizebox{\textwidth}{!}{%",
            rf"\begin{{tabular}}{{l{'r' * len(filled.columns)}}}",
            r"\toprule",
            "Method & " + " & ".join(_heading(column) for column in filled.columns) + r" \\",
            " & " + " & ".join(_place(column) for column in filled.columns) + r" \\",
            *(line for block in filled.blocks for line in _block(block, filled)),
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
            r"{\footnotesize",
            *(rf"\noindent {note}\par" for note in notes),
            "}",
            "",
        ]
    )


def wrapper(name: str) -> str:
    """The smallest document that holds the fragment `name`: what the test compiles, and a preamble to copy."""
    return "\n".join(
        [
            r"\documentclass{article}",
            r"\usepackage[a4paper,margin=15mm]{geometry}",
            r"\usepackage{booktabs}",
            r"\usepackage{graphicx}",
            r"\begin{document}",
            rf"\input{{{name}}}",
            r"\end{document}",
            "",
        ]
    )


def _block(block: FilledBlock, filled: FilledTable) -> list[str]:
    title = " ".join(filter(None, (f"{head(block)}.", baseline(block, filled))))
    lines = [r"\midrule", rf"\multicolumn{{{len(filled.columns) + 1}}}{{l}}{{\textit{{{_escape(title)}}}}} \\"]
    for row in block.rows:
        cells = [shown(row.cells[c.slot], block, row) for c in filled.columns]
        lines.append(f"{_escape(label(row))} & " + " & ".join(map(_number, cells)) + r" \\")
        if row.measured:
            lines.append(rf"\scriptsize {seeds(row)} & " + " & ".join(map(_below, cells)) + r" \\")
    return lines


def _number(cell: Shown) -> str:
    text = _escape(cell.number).replace("-", "$-$") if cell.measured else rf"\textit{{{cell.number}}}"
    text = rf"\textbf{{{text}}}" if cell.best else text
    return f"{text}\\,{_escape(cell.mark)}" if cell.mark else text


def _below(cell: Shown) -> str:
    """Interval, and the paper's figure where the two may be set side by side."""
    if not cell.measured:
        return ""
    bounds = cell.interval.replace(" to ", ", ").replace("-", "$-$")
    paper = f"; paper {cell.paper}".replace("-", "$-$") if cell.paper else ""
    return rf"\scriptsize [{bounds or 'no interval'}]{paper}"


def _heading(column: Column) -> str:
    return _escape(column.heading)


def _place(column: Column) -> str:
    return rf"\scriptsize for {_escape(column.stands_for)}" if column.stands_for else ""


def _plain(text: str) -> str:
    """For a comment: no line end that would let the rest of the text out."""
    return " ".join(text.split())


def _escape(text: str) -> str:
    """Text as data: no character of it is a command, and none is one that pdflatex cannot set."""
    return "".join(SYMBOLS.get(c, c if _settable(c) else f"[U+{ord(c):04X}]") for c in text)


def _settable(character: str) -> bool:
    """ASCII, or a letter of Latin-1 that TeX's oldest font encoding builds from letter and accent."""
    base, *accents = list(unicodedata.normalize("NFD", character))
    plain = base.isascii() and base.isprintable()
    return plain and (not accents or (ord(character) < 0x100 and len(accents) == 1))


# A filled table as Markdown: best of a column in bold, interval and mark in each cell, seeds that link to runs.


def markdown(filled: FilledTable) -> str:
    """The file lies in `tables/`, so runs are linked as `../runs/...`."""
    lines = [f"# {_escape_markdown(filled.table.heading)}", ""]
    for paragraph in filled.lead:
        lines += [f"> {_escape_markdown(paragraph)}", ">"]
    lines[-1] = ""
    if not filled.measured:
        lines += [_escape_markdown(empty(filled)), ""]
    for block in filled.blocks:
        lines += _block_markdown(block, filled)
    lines += [f"{_escape_markdown(paragraph)}\n" for paragraph in words(filled)]
    lines += [f"- {_escape_markdown(note)}" for note in filled.notes]
    return "\n".join(lines).rstrip() + "\n"


def _block_markdown(block: FilledBlock, filled: FilledTable) -> list[str]:
    lines = [f"**{_escape_markdown(head(block))}**", ""]
    lines.append("| Method | " + " | ".join(_heading_markdown(column) for column in filled.columns) + " |")
    lines.append("|---|" + "---:|" * len(filled.columns))
    for row in block.rows:
        cells = " | ".join(_cell_markdown(shown(row.cells[c.slot], block, row)) for c in filled.columns)
        lines.append(f"| {_escape_markdown(label(row))}{_seeds(row)} | {cells} |")
    against = baseline(block, filled)
    return [*lines, "", *([_escape_markdown(against), ""] if against else [])]


def _heading_markdown(column: Column) -> str:
    heading = _escape_markdown(column.heading)
    return f"{heading}<br>(for {_escape_markdown(column.stands_for)})" if column.stands_for else heading


def _seeds(row: FilledRow) -> str:
    """How many seeds, each a link to its run."""
    if not row.seeds:
        return ""
    links = ", ".join(f"[seed {run.seed}](../runs/{run.path.as_posix()})" for run in runs(row))
    return f"<br>{seeds(row)}" + (f": {links}" if links else "")


def _cell_markdown(cell: Shown) -> str:
    if not cell.measured:
        return cell.number
    number = f"**{cell.number}**" if cell.best else cell.number
    lines = [f"{number} {cell.mark}".rstrip(), f"[{cell.interval or 'no interval'}]"]
    return "<br>".join([*lines, f"paper {cell.paper}"] if cell.paper else lines)


def _escape_markdown(text: str) -> str:
    """Text that comes from outside, as plain Markdown: no table bars, no tags, no emphasis."""
    for raw, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("*", "\\*"), ("\n", " ")):
        text = text.replace(raw, safe)
    return text


TIDY = (
    "row", "label", "kind", "block", "state", "model", "method", "step", "seeds", "column", "benchmark", "value", "low",
    "high", "level", "how", "n", "printed", "comparable", "baseline", "versus", "versus_low", "versus_high", "versus_p",
    "versus_p_holm", "versus_tests", "versus_level", "versus_how", "versus_n", "inside_noise", "collapsed", "runs",
)  # fmt: skip


def csv_table(filled: FilledTable) -> str:
    """As the paper prints it: one row per method, percent with two decimals; `not run` or `missing` for no number."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["row", "method", *(column.heading for column in filled.columns)])
    for row in filled.rows:
        writer.writerow([row.row.id, row.label, *(row.cells[c.slot].shown for c in filled.columns)])
    return out.getvalue()


def tidy_table(filled: FilledTable) -> str:
    """One line per cell. Values are fractions with every digit; `runs` are paths below the results folder."""
    return to_csv(
        TIDY,
        (
            _tidy(row, block, column, row.cells[column.slot])
            for block in filled.blocks
            for row in block.rows
            for column in filled.columns
        ),
    )


RENDERINGS: dict[str, Callable[[FilledTable], str]] = {
    ".csv": csv_table,
    ".tidy.csv": tidy_table,
    ".md": markdown,
    ".tex": latex,
    ".html": html,
}
"""Suffix of `tables/table<key>` -> what is written there."""


def write(filled: FilledTable, layout: Results) -> list[str]:
    """Write every rendering to `tables/`; returns the paths."""
    from records.files import write_text

    written = []
    for suffix, text in RENDERINGS.items():
        path: Path = layout.tables / f"table{filled.table.key}{suffix}"
        write_text(path, text(filled))
        written.append(str(path))
    return written


def _tidy(row: FilledRow, block: FilledBlock, column: Column, cell: Cell) -> dict[str, object]:
    runs = dict.fromkeys(checkpoint.path.as_posix() for checkpoint in cell.checkpoints)
    gain = cell.versus.comparison if cell.versus else None
    return {
        "row": row.row.id,
        "label": row.label,
        "kind": row.row.kind,
        "block": block.title,
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
        "printed": cell.printed,
        "comparable": None if cell.printed is None else cell.comparable,
        "baseline": cell.versus.baseline if cell.versus else None,
        "versus": gain.difference if gain else None,
        "versus_low": gain.low if gain else None,
        "versus_high": gain.high if gain else None,
        "versus_p": gain.p if gain else None,
        "versus_p_holm": cell.versus.p_holm if cell.versus else None,
        "versus_tests": cell.versus.tests if cell.versus else None,
        "versus_level": gain.level if gain else None,
        "versus_how": gain.how if gain else None,
        "versus_n": gain.n if gain else None,
        "inside_noise": cell.inside_noise,
        "collapsed": " ".join(f"seed{c.run.seed}:{c.at}/{c.rollouts or ''}" for c in row.collapsed),
        "runs": " ".join(runs),
    }
