r"""A filled table as LaTeX: a fragment for `\input`, in the manner of the paper's tables.

The document that takes it in needs, in its preamble:

    \usepackage{booktabs}
    \usepackage{graphicx}     % \resizebox: nine columns on one page

Nothing else: pdflatex reads the file as UTF-8, and every symbol outside Latin letters is written as mathematics.
"""

from __future__ import annotations

import unicodedata

from report.tables.filled import Column, FilledBlock, FilledTable
from report.tables.shown import Shown, baseline, empty, head, label, seeds, shown, words

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
