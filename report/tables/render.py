"""A filled table as files: CSV as printed and tidy CSV here; Markdown, LaTeX, HTML beside. None computes a number."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

from records.layout import Results
from report.columns import to_csv
from report.tables import fragment, latex, markdown
from report.tables.filled import Cell, Column, FilledBlock, FilledRow, FilledTable

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
    ".md": markdown.markdown,
    ".tex": latex.latex,
    ".html": fragment.html,
}
"""Suffix of `tables/table<key>` -> what is written there."""


def write(filled: FilledTable, layout: Results) -> list[str]:
    """Write every rendering to `tables/`; returns the paths."""
    from records.write import write_text

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
