"""Format numbers, intervals and marks for every table of the reports; render tables as Markdown, LaTeX and CSV.

Nothing is computed here. `shown` returns the texts of a cell; the templates in this folder lay them out.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.files import csv_text
from core.layout import Checkpoint, Run
from core.provenance import ROOT
from evals import scores
from report.rows import AGAIN, BEST, DELTA

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = ROOT / "report"
DATA = ("report/table.md.j2", "report/table.tex.j2")
COLLAPSED = "†"
ALPHA = 0.05  # level of every comparison, after Holm's correction
WIDE = 0.5  # a fraction; a wider interval hardly informs, such as one of two seeds (12.7 standard errors to each side)
FEWEST = 5  # methods of a correlation


def percent(value: float | Decimal | None) -> str:
    """Return a fraction in percent, `12.30`; the empty string for None, 0.00 for -0.00."""
    if value is None:
        return ""
    text = f"{100 * value:.2f}"
    return "0.00" if text == "-0.00" else text


def bracketed(number: str, low: float | None, high: float | None, form: Callable[[float], str]) -> str:
    """Return `number` followed by the ends of its interval, `12.30 [11.10, 13.50]`; only the number without one."""
    return number if low is None or high is None else f"{number} [{form(low)}, {form(high)}]"


def with_interval(row: Mapping[str, Any], name: str) -> str:
    """Return `name` of a row in percent with the interval from `name`_low and _high; – for None."""
    if row[name] is None:
        return "–"
    return bracketed(percent(row[name]), row[f"{name}_low"], row[f"{name}_high"], percent)


def arrow(difference: float | None, low: float | None, high: float | None, p_holm: float | None) -> str:
    """Return the mark of a paired difference from its 95 % interval and corrected p (`captions.FOOTNOTES`); it never
    contradicts the interval."""
    if difference is None or low is None or high is None or p_holm is None:
        return "?"
    if low <= 0 <= high:
        return "?" if high - low > WIDE else "≈"
    return ("↑" if difference > 0 else "↓") + ("?" if p_holm >= ALPHA else "")


def _minus(text: str) -> str:
    """Use the typographic minus, which is as wide as a plus: signs in a column align."""
    return text.replace("-", "−")


# A cell of a table (`report.view`).


def shown(cell: Mapping[str, Any], *, best: bool) -> dict[str, Any]:
    """Return the texts of a cell, empty where there is nothing to show."""
    measured = cell["value"] is not None
    return {
        "measured": measured,
        "text": signed(cell, cell["value"]) if measured else "–" if cell["state"] == "not compared" else cell["state"],
        "interval": interval(cell) or ("no interval" if measured and cell["column"] != BEST else ""),
        "mark": mark(cell),
        "best": best,
        "paper": _minus(percent(cell["printed"])) if cell["comparable"] and measured else "",
    }


def is_difference(cell: Mapping[str, Any]) -> bool:
    return cell["kind"] == "delta" or cell["column"] == DELTA


def signed(cell: Mapping[str, Any], value: float) -> str:
    """Return a value of the cell in percent, a difference with its sign: `+1.74`."""
    text = percent(value)
    return _minus(f"+{text}" if is_difference(cell) and float(text) > 0 else text)


def interval(cell: Mapping[str, Any]) -> str:
    """Return the interval in percent, `62.1–80.0`; for a difference `−4.6 to 6.4`; for few seeds, `62.1 / 80.0`."""
    if few_seeds(cell):
        return _minus(" / ".join(f"{100 * value:.1f}" for value in cell["by_seed"].values()))
    if cell["low"] is None or cell["high"] is None:
        return ""
    dash = " to " if is_difference(cell) else "–"
    return _minus(f"{100 * cell['low']:.1f}{dash}{100 * cell['high']:.1f}")


def few_seeds(cell: Mapping[str, Any]) -> bool:
    """Return whether the cell shows its two seeds in place of a wide interval."""
    wide = cell["low"] is None or cell["high"] is None or cell["high"] - cell["low"] > WIDE
    return cell["level"] == "seed" and len(cell["by_seed"]) == 2 and wide


def mark(cell: Mapping[str, Any]) -> str:
    """Return `arrow` of the cell's difference to its baseline, in brackets where it is over problems: it then compares
    two checkpoints and not two methods."""
    if cell["versus"] is None:
        return ""
    sign = arrow(*(cell[name] for name in ("versus", "versus_low", "versus_high", "versus_p_holm")))
    return sign if cell["versus_level"] == "seed" or sign == "?" else f"({sign})"


# A table (`report.view.view`) as a file.


def csv_table(table: Mapping[str, Any]) -> str:
    """Return CSV in the paper's form: one row per method, percent with two decimals; `not run` or `missing` if none."""

    def number(cell: Mapping[str, Any]) -> str:
        return percent(cell["value"]) if cell["measured"] else cell["text"]

    lines = [["row", "method", *(column["heading"] for column in table["columns"])]]
    for row in (row for block in table["blocks"] for row in block["rows"]):
        lines.append([row["id"], row["name"], *map(number, row["cells"].values())])
    for line, cells in table["again"]:
        lines.append([AGAIN, line, *(list(map(number, cells)) or ["not run"] * len(table["columns"]))])
    return csv_text(lines)


def markdown(table: Mapping[str, Any]) -> str:
    text = environment(HERE, finalize=escape_markdown).get_template("table.md.j2").render(table=table)
    return text.rstrip() + "\n"


def latex(table: Mapping[str, Any]) -> str:
    """Return a fragment for `\\input`, in the style of the paper's tables. The preamble needs booktabs and graphicx."""
    # LaTeX uses braces, so the template marks its placeholders with angle brackets.
    marks = {"variable_start_string": "<<", "variable_end_string": ">>"}
    marks |= {"block_start_string": "<%", "block_end_string": "%>"}
    return environment(HERE, finalize=escape_latex, **marks).get_template("table.tex.j2").render(table=table)


# Suffix of `tables/table<key>` -> its renderer.
RENDERINGS: dict[str, Callable[[Mapping[str, Any]], str]] = {".csv": csv_table, ".md": markdown, ".tex": latex}


def environment(folder: Path, **options: Any) -> Environment:
    """Return the environment for the templates in `folder`; a misspelt name in one is an error and not an empty text.

    Titles, notes and paths are data, never markup: pass `autoescape` or, for other formats than HTML, `finalize`.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(folder)
    return Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **options)


def escape_markdown(value: object) -> str:
    """Return external text as plain Markdown: table bars, tags and emphasis are escaped."""
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
    """Return a Markdown table in lines; columns after the first have alignment `align`. escape: applied to cells."""
    rule = "|---|" + f"{align}|" * (len(heads) - 1)
    return [f"| {' | '.join(heads)} |", rule, *(f"| {' | '.join(map(escape, line))} |" for line in lines)]


# What pdflatex cannot set as is. Symbols are written as mathematics, which needs no additional package.
SYMBOLS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "|": r"$|$", "−": r"$-$",
    "–": "--", "→": r"$\to$", "≈": r"$\approx$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "†": r"$\dagger$",
    "∧": r"$\wedge$", "∨": r"$\vee$", "Δ": r"$\Delta$", "β": r"$\beta$", "ε": r"$\varepsilon$", "×": r"$\times$",
    "“": "``", "”": "''", "’": "'", '"': "''", "\n": " ",
}  # fmt: skip


def escape_latex(value: object) -> str:
    """Return text as data: no character acts as a command, and pdflatex can set each of them."""
    return "".join(SYMBOLS.get(c, c if _settable(c) else f"[U+{ord(c):04X}]") for c in str(value))


def _settable(character: str) -> bool:
    """Return whether it is ASCII, or a Latin-1 letter that TeX's oldest font encoding builds from letter and accent."""
    base, *accents = list(unicodedata.normalize("NFD", character))
    plain = base.isascii() and base.isprintable()
    return plain and (not accents or (ord(character) < 0x100 and len(accents) == 1))


# Columns of scores.csv in addition to the scores: pass@k, maj@k, lengths, and responses without an answer. The
# terminal (`report.show details`) and the page show them.

DETAILS = ("checkpoint", "benchmark", "k", "avg@k", "pass@k", "maj@k", "tokens", "truncated", "no answer")
DETAILS_NOTE = (
    "Percent, k responses to each problem: mean right, any right, most frequent answer right; mean length in tokens;"
    " responses cut at the token limit before an answer, and ended without one."
)


def detail_lines(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return one line of DETAILS for each checkpoint and benchmark that was run. rows: of `evals.scores.read_rows`."""
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
    """Return the lines in columns under their headings, and an explanation of the headings."""
    table = [DETAILS, *detail_lines(rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    form = " ".join(f"{{:{'<' if place < 2 else '>'}{width}}}" for place, width in enumerate(widths))
    return "\n".join([*(form.format(*line) for line in table), DETAILS_NOTE])
