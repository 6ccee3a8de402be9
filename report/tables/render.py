"""A table as files: CSV as printed here; Markdown and LaTeX by the templates beside this file.

Everything is read through `report.tables.tidy`; no number is computed. All renderings and the page show the same texts:
`context` makes them, a template only sets them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import scores
from core.files import csv_text
from core.layout import Checkpoint, Run
from core.provenance import ROOT
from report import captions
from report.tables.spec import AGAIN, ALPHA, BEST, DELTA
from report.tables.tidy import NOT_COMPARED, NOT_RUN, WIDE, Cell, Row, Table, percent

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = ROOT / "report" / "tables"
DATA = ("report/tables",)  # the templates
COLLAPSED = "†"


def shown(cell: Cell, table: Table) -> dict[str, Any]:
    """One cell in words, empty where there is nothing to say."""
    beside = cell.comparable and cell.value is not None
    return {
        "column": cell.column,
        "measured": cell.value is not None,
        "text": number(cell) if cell.value is None else signed(cell, cell.value),
        "interval": interval(cell) or ("no interval" if cell.value is not None and cell.column != BEST else ""),
        "mark": mark(cell),
        "best": (cell.row, cell.column) in table.best,
        "paper": _minus(percent(cell.printed)) if beside else "",
    }


def number(cell: Cell) -> str:
    """The number in percent, or why there is none."""
    if cell.value is not None:
        return percent(cell.value)
    return "–" if cell.state == NOT_COMPARED else cell.state


def signed(cell: Cell, value: float) -> str:
    """A value of the cell in percent, of a difference with its sign: `+1.74`."""
    text = percent(value)
    return _minus(f"+{text}" if cell.is_difference and float(text) > 0 else text)


def interval(cell: Cell) -> str:
    """In percent, `62.1–80.0`; of a difference `−4.6 to 6.4`; of few seeds their values, `62.1 / 80.0`."""
    if few_seeds(cell):
        return _minus(" / ".join(f"{100 * value:.1f}" for value in cell.seed_values.values()))
    if cell.low is None or cell.high is None:
        return ""
    dash = " to " if cell.is_difference else "–"
    return _minus(f"{100 * cell.low:.1f}{dash}{100 * cell.high:.1f}")


def few_seeds(cell: Cell) -> bool:
    """Whether the cell shows its seeds in place of an interval."""
    return cell.level == "seed" and len(cell.by_seed) == 2 and _wide(cell.low, cell.high)


def _wide(low: float | None, high: float | None) -> bool:
    return low is None or high is None or high - low > WIDE


def mark(cell: Cell) -> str:
    """The mark of the cell's paired difference to its baseline (`captions.FOOTNOTES`); it never contradicts the
    difference's interval. In brackets where it is over problems: of two checkpoints and not of two methods."""
    if cell.versus is None:
        return ""
    sign = arrow(cell.versus, cell.versus_low, cell.versus_high, cell.versus_p_holm)
    return sign if cell.versus_level == "seed" or sign == "?" else f"({sign})"


def arrow(difference: float | None, low: float | None, high: float | None, p_holm: float | None) -> str:
    """The mark of a paired difference with its 95 % interval and its corrected p, as in `mark`."""
    if difference is None or low is None or high is None or p_holm is None:
        return "?"
    if low <= 0 <= high:
        return "?" if _wide(low, high) else "≈"
    return ("↑" if difference > 0 else "↓") + ("?" if p_holm >= ALPHA else "")


def label(row: Row) -> str:
    return f"{row.label} {COLLAPSED}" if row.collapsed else row.label


def baseline(rows: list[Row], table: Table) -> str:
    """What the marks of a block compare with, in words; empty where nothing is compared."""
    row = next((row for row in table.rows if row.id == rows[0].block.baseline), None)
    return "" if row is None else f"Marks compare with {row.label}."


def model(row: Row) -> str:
    """`tiny Qwen2, standing for Qwen2.5-7B`; without the paper's model where the row's model is that one."""
    return f"{row.model_title}, standing for {row.stands_for}" if row.stands_for else row.model_title


def head(rows: list[Row]) -> str:
    """The line above a block: `Panel A: ...: tiny Qwen2, standing for Qwen2.5-7B`."""
    title = rows[0].block.title
    return f"{title}: {model(rows[0])}" if title else model(rows[0])


def again_lines(table: Table) -> list[str]:
    """How often a method under two names was marked: one line for each A/A arm, or that there is none."""
    lines = []
    for cells in table.again:
        judged = [mark(cell) for cell in cells if cell.versus_level == "seed" and cell.inside_noise is not None]
        arrows = [sign for sign in judged if sign[0] in "↑↓"]
        certain = sum(not sign.endswith("?") for sign in arrows)
        n = len({seed for cell in cells for seed in cell.seeds})
        said = f"{certain} of {len(judged)} cells marked; {len(arrows)} before Holm's correction"
        said = said if judged else "no cell can be marked"
        lines.append(f"{AGAIN} arm ({cells[0].label}, {n} seed{'s' * (n != 1)}): {said}.")
    return lines or [f"{AGAIN} arm: not run."]


def table_lines(table: Table) -> list[str]:
    """How many marks also hold corrected over the whole table, and how likely chance alone makes one: C columns, each
    with a false mark in at most 5 % of tables (Holm), have one in at most C times 5 %.

    No line where nothing is compared.
    """
    tests = {c.column: c.versus_tests for c in table.cells if c.versus_p_table is not None and c.column != DELTA}
    if not tests:
        return []
    marked = [cell for cell in table.cells if mark(cell).strip("()") in ("↑", "↓")]
    held = sum(cell.versus_p_table is not None and cell.versus_p_table < ALPHA for cell in marked)
    bound = min(100, round(100 * ALPHA * len(tests)))
    return [
        f"{held} of {len(marked)} marks ↑ ↓ also hold corrected over all {sum(n or 0 for n in tests.values())} "
        "comparisons of the table. If no method differed, chance would put one somewhere in at most "
        f"{bound} % of such tables ({len(tests)} columns, {100 * ALPHA:.0f} % each)."
    ]


def levels(table: Table) -> list[str]:
    """What the intervals of this table speak about: one sentence per level that occurs."""
    occurring = {cell.level for cell in table.cells if cell.value is not None}
    return [captions.LEVELS[level] for level in captions.LEVELS if level in occurring]


def empty(table: Table) -> str:
    """The one line that stands for a table without a number; empty for a table that has one."""
    if table.measured:
        return ""
    state = "no score yet" if any(row.ran for row in table.rows) else "not part of this scale"
    return f"{table.declared.heading}: {state}."


def footnotes(table: Table) -> list[str]:
    """One line for each mark and word that the table's cells have, in the order of `captions.FOOTNOTES`."""
    signs = [mark(cell) for cell in table.cells]
    occurring = {sign.strip("()").replace("↓", "↑") for sign in signs} | {number(cell) for cell in table.cells}
    occurring |= {"bold"} if table.best else set()
    occurring |= {"()"} if any(sign.startswith("(") for sign in signs) else set()
    occurring |= {"/"} if any(few_seeds(cell) for cell in table.cells) else set()
    occurring |= {COLLAPSED} if any(row.collapsed for row in table.rows) else set()
    occurring |= {column.heading for column in table.columns}
    return [line for key, line in captions.FOOTNOTES.items() if key in occurring or not key]


def context(table: Table, file: str | None) -> dict[str, Any]:
    """What a template shows of a table. file: where the tidy CSV lies, if it is there."""
    return {
        "key": table.key,
        "title": table.declared.title,
        "heading": table.declared.heading,
        "scale": table.scale,
        "lead": table.lead,
        "file": file,
        "columns": [column._asdict() for column in table.columns],
        "blocks": [
            {
                "title": rows[0].block.title,
                "model": rows[0].model_title,
                "stands_for": rows[0].stands_for,
                "head": head(rows),
                "baseline": baseline(rows, table),
                "rows": [
                    {
                        "id": row.id,
                        "label": label(row),
                        "seeds": f"{len(row.seeds)} seed{'s' * (len(row.seeds) > 1)}" if row.seeds else "",
                        "delta": row.kind == "delta",
                        "mean": row.kind == "mean",
                        "ran": row.ran,
                        "measured": row.measured,
                        "cells": [shown(row.cells[column.slot], table) for column in table.columns],
                    }
                    for row in rows
                ],
            }
            for rows in table.blocks
        ],
        "errors": [] if empty(table) else [*table_lines(table), *again_lines(table)],
        "caption": [*captions.paragraphs(f"table{table.key}"), *footnotes(table), *levels(table)],
        "notes": table.notes,
        "empty": empty(table),
    }


def _minus(text: str) -> str:
    """With the typographic minus, which is as wide as a plus: signs in a column stand below each other."""
    return text.replace("-", "−")


def csv_table(table: Table) -> str:
    """As the paper prints it: one row per method, percent with two decimals; `not run` or `missing` for no number."""
    lines = [["row", "method", *(column.heading for column in table.columns)]]
    for row in table.rows:
        lines.append([row.id, row.label, *(number(row.cells[column.slot]) for column in table.columns)])
    for line, cells in zip(again_lines(table), table.again or ((),), strict=True):
        lines.append([AGAIN, line, *([number(cell) for cell in cells] or [NOT_RUN] * len(table.columns))])
    return csv_text(lines)


def markdown(table: Table) -> str:
    text = environment(HERE, finalize=escape_markdown).get_template("table.md.j2").render(table=context(table, None))
    return text.rstrip() + "\n"


def latex(table: Table) -> str:
    """A fragment for `\\input`, in the manner of the paper's tables. The preamble needs booktabs and graphicx."""
    # Braces are LaTeX's own, so the template marks its places by angle brackets.
    marks = {"variable_start_string": "<<", "variable_end_string": ">>"}
    marks |= {"block_start_string": "<%", "block_end_string": "%>"}
    template = environment(HERE, finalize=escape_latex, **marks).get_template("table.tex.j2")
    return template.render(table=context(table, None))


def environment(folder: Path, **options: Any) -> Environment:
    """For the templates in `folder`; a misspelt name in one is an error and not an empty text.

    Titles, notes and paths are data, never markup: pass `autoescape` or, for what is not HTML, `finalize`.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(folder)
    return Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **options)


def escape_markdown(value: object) -> str:
    """Text that comes from outside, as plain Markdown: no table bars, no tags, no emphasis."""
    text = str(value)
    for raw, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("*", "\\*"), ("\n", " ")):
        text = text.replace(raw, safe)
    return text


def markdown_table(
    heads: Sequence[str],
    lines: Iterable[Iterable[str]],
    align: str = "---",
    escape: Callable[[str], str] = escape_markdown,
) -> list[str]:
    """A Markdown table in lines; columns after the first are set as `align`. escape: of a cell."""
    rule = "|---|" + f"{align}|" * (len(heads) - 1)
    return [f"| {' | '.join(heads)} |", rule, *(f"| {' | '.join(map(escape, line))} |" for line in lines)]


# What scores.csv has beside the scores: pass@k, maj@k, lengths, and responses without an answer. The terminal
# (`report.show details`) and the page show it.

DETAILS = ("checkpoint", "benchmark", "k", "avg@k", "pass@k", "maj@k", "tokens", "truncated", "no answer")
DETAILS_NOTE = (
    "Percent, k responses to each problem: mean right, any right, most frequent answer right; mean length in tokens;"
    " responses cut at the token limit before an answer, and ended without one."
)


def detail_lines(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """One line of DETAILS for each checkpoint and benchmark that was run. rows: of `core.scores.read_rows`."""
    return [
        (
            Checkpoint(Run(row["model"], row["method"], row["seed"]), row["step"]).path.as_posix(),
            row["benchmark"],
            str(row["samples"]),
            *(percent(row[name]) or "-" for name in ("score", "pass_at_k", "maj_at_k")),
            "-" if row["response_tokens"] is None else f"{row['response_tokens']:.1f}",
            *(percent(row[name] / row["responses"]) for name in ("truncated", "no_answer")),
        )
        for row in rows
        if row["benchmark"] not in scores.AVERAGES and row["how"] != scores.NOT_RUN
    ]


def details(rows: Iterable[Mapping[str, Any]]) -> str:
    """The lines in columns under their headings, and what the headings mean."""
    table = [DETAILS, *detail_lines(rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    form = " ".join(f"{{:{'<' if place < 2 else '>'}{width}}}" for place, width in enumerate(widths))
    return "\n".join([*(form.format(*line) for line in table), DETAILS_NOTE])


# What pdflatex cannot set as it is. Symbols are written as mathematics, which needs no further package.
SYMBOLS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "|": r"$|$", "−": r"$-$",
    "–": "--", "→": r"$\to$", "≈": r"$\approx$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "†": r"$\dagger$",
    "∧": r"$\wedge$", "∨": r"$\vee$", "Δ": r"$\Delta$", "β": r"$\beta$", "ε": r"$\varepsilon$", "×": r"$\times$",
    "“": "``", "”": "''", "’": "'", '"': "''", "\n": " ",
}  # fmt: skip


def escape_latex(value: object) -> str:
    """Text as data: no character of it is a command, and none is one that pdflatex cannot set."""
    return "".join(SYMBOLS.get(c, c if _settable(c) else f"[U+{ord(c):04X}]") for c in str(value))


def _settable(character: str) -> bool:
    """ASCII, or a letter of Latin-1 that TeX's oldest font encoding builds from letter and accent."""
    base, *accents = list(unicodedata.normalize("NFD", character))
    plain = base.isascii() and base.isprintable()
    return plain and (not accents or (ord(character) < 0x100 and len(accents) == 1))


# Suffix of `tables/table<key>` -> what is written there
RENDERINGS: dict[str, Callable[[Table], str]] = {".csv": csv_table, ".md": markdown, ".tex": latex}
