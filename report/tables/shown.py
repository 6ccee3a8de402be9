"""How a filled table reads, for every rendering alike: number, interval, mark and notes as text, nothing computed."""

from __future__ import annotations

from dataclasses import dataclass

from records.layout import BASE, Run
from report import captions
from report.tables.filled import Cell, FilledBlock, FilledRow, FilledTable, interval, is_best, percent

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
