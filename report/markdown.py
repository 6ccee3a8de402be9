"""Format numbers, intervals and marks for every table of the reports, and escape text for Markdown and LaTeX."""

from __future__ import annotations

import shlex
import shutil
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.layout import Checkpoint, Run
from core.provenance import ROOT
from evals import scores
from evals.stats import ALPHA
from evals.tree import Tree

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = ROOT / "report"
WIDE = 0.5  # a fraction; a wider interval is of little use, as with two seeds (12.7 standard errors to each side)
FEWEST = 5  # methods, for a correlation
LONG = 20  # characters of a word, which no number has


def command(module: str, tree: Tree, *more: str) -> str:
    """Return the command that writes a file of a tree, quoted for a shell."""
    return shlex.join(["python", "-m", module, "--results", str(tree.root), *more])


def yes(value: bool) -> str:
    """Return the text of a truth value in a file."""
    return "yes" if value else "no"


def percent(value: float | Decimal | None) -> str:
    """Return a fraction in percent, `12.30`; the empty string for None, 0.00 for -0.00."""
    if value is None:
        return ""
    text = f"{100 * value:.2f}"
    return "0.00" if text == "-0.00" else text


def bracketed(
    number: str, low: float | None, high: float | None, form: Callable[[float], str], seeds: Sequence[float] = ()
) -> str:
    """Return `number` followed by the ends of its interval, `12.30 [11.10, 13.50]`; only the number without one.

    seeds: the value of each seed. Two of them replace the interval, `12.30 (12.00 / 12.60)`, as in the tables.
    """
    if len(seeds) == 2:
        return f"{number} ({' / '.join(map(form, seeds))})"
    return number if low is None or high is None else f"{number} [{form(low)}, {form(high)}]"


def ends(name: str, value: float | None, found: Any, seeds: Iterable[float] = ()) -> dict[str, Any]:
    """Return the columns that `with_interval` reads. found: an estimate or comparison, for its interval."""
    return {name: value, f"{name}_low": found.low, f"{name}_high": found.high, f"{name}_seeds": tuple(seeds)}


def with_interval(row: Mapping[str, Any], name: str) -> str:
    """Return `name` of a row in percent with the interval from `name`_low and _high, or both values of `name`_seeds if
    there are two; – for None."""
    if row[name] is None:
        return "–"
    seeds = row.get(f"{name}_seeds", ())
    return bracketed(percent(row[name]), row[f"{name}_low"], row[f"{name}_high"], percent, seeds)


def arrow(difference: float | None, low: float | None, high: float | None, p_holm: float | None) -> str:
    """Return the mark of a paired difference from its 95 % interval and corrected p (captions/below.rst); it never
    contradicts the interval."""
    if difference is None or low is None or high is None or p_holm is None:
        return "?"
    if low <= 0 <= high:
        return "?" if high - low > WIDE else "≈"
    return ("↑" if difference > 0 else "↓") + ("?" if p_holm >= ALPHA else "")


def environment(folder: Path, **options: Any) -> Environment:
    """Return the environment for the templates in `folder`; a misspelt name in one is an error, not empty text.

    Titles, notes and paths are data, never markup: pass `autoescape` or, for formats other than HTML, `finalize`.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(folder)
    return Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **options)


def escape_markdown(value: object) -> str:
    """Return external text as plain Markdown: table bars, tags and emphasis are escaped."""
    escapes = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "\\|", "*": "\\*", "\n": " "}
    return "".join(escapes.get(c, c) for c in str(value))


def markdown_table(heads: Sequence[str], lines: Iterable[Iterable[str]]) -> list[str]:
    """Return a Markdown table in lines, its cells escaped."""
    escaped = (f"| {' | '.join(map(escape_markdown, line))} |" for line in lines)
    return [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *escaped]


def aligned(lines: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Return lines for the terminal: the first `left` columns are aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    form = " ".join(f"{{:{'<' if place < left else '>'}{width}}}" for place, width in enumerate(widths))
    return [form.format(*line).rstrip() for line in lines]


def width() -> int:
    """Return the columns of the terminal; into a file or another program nothing is wrapped."""
    return max(60, shutil.get_terminal_size((1000, 24)).columns)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines for the terminal, all columns aligned to the left.

    Where the table is too wide, cells of the widest columns are wrapped, and long words broken.
    """
    columns, most = list(zip(*rows, strict=True)), width()
    widths = [max(map(len, column)) for column in columns]
    least = [min(LONG, max(len(word) for word in " ".join(column).split(" "))) for column in columns]
    while sum(widths) + 2 * (len(widths) - 1) > most and widths != least:
        wider = [size if size > word else 0 for size, word in zip(widths, least, strict=True)]
        widths[wider.index(max(wider))] -= 1
    lines = []
    for row in rows:
        cells = [textwrap.wrap(cell, size or 1, break_on_hyphens=False) for cell, size in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            lines.append("  ".join(f"{part:<{size}}" for part, size in zip(parts, widths, strict=True)).rstrip())
    return lines


# Characters that pdflatex cannot typeset as they are. Symbols become mathematics, which needs no additional package.
SYMBOLS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "|": r"$|$", "−": r"$-$",
    "–": "--", "→": r"$\to$", "≈": r"$\approx$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "†": r"$\dagger$",
    "∧": r"$\wedge$", "∨": r"$\vee$", "Δ": r"$\Delta$", "β": r"$\beta$", "ε": r"$\varepsilon$", "×": r"$\times$",
    "“": "``", "”": "''", "’": "'", '"': "''", "\n": " ",
}  # fmt: skip


def escape_latex(value: object) -> str:
    """Escape text for pdflatex: no character acts as a command, and each can be typeset."""
    return "".join(SYMBOLS.get(c, c if _is_typeset(c) else f"[U+{ord(c):04X}]") for c in str(value))


def _is_typeset(character: str) -> bool:
    """Return whether it is ASCII, or a Latin-1 letter that TeX's oldest font encoding builds from letter and accent."""
    base, *accents = list(unicodedata.normalize("NFD", character))
    return base.isascii() and base.isprintable() and (not accents or (ord(character) < 0x100 and len(accents) == 1))


# Columns of scores.csv in addition to the scores: pass@k, maj@k, lengths, and responses without an answer. The
# terminal (`report.show details`) and the page show them.

DETAILS = ("checkpoint", "benchmark", "k", "avg@k", "pass@k", "maj@k", "tokens", "truncated", "no answer")
DETAILS_NOTE = (
    "Percent, k responses to each problem: mean right, any right, most frequent answer right; mean length in tokens;"
    " responses cut at the token limit before an answer, and ended without one."
)


def details(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return one line of DETAILS for each checkpoint and benchmark that was run, under their headings, and an
    explanation. rows: of `evals.scores.read_rows`."""
    lines = [
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
    return "\n".join([*aligned([DETAILS, *lines], left=2), DETAILS_NOTE])
