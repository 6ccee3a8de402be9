"""Read the paper's Tables 1-4 as printed: `tables/table<k>.csv` holds the cells, `tables/rows.csv` defines the rows.

A printed number is a `Decimal` and keeps its digits ("77.40" is not "77.4"); "-" is None. Values are not corrected.
`candidates` maps a percentage back to the counts behind it. The denominators follow the evaluation that the paper
describes: samples x problems; AMC has 83 problems. Printed cells are truncated or rounded; both occur in one table.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import NamedTuple

from core.errors import ConfigError
from core.files import cells_of, read_csv
from core.provenance import ROOT

COLUMN = {  # responses behind each column
    "aime24": 960,
    "aime25": 960,
    "amc": 2656,
    "math500": 500,
    "omni_math": 2811,  # of 2821 rows; the ten others are copies of five problems and count in the pool only
    "olympiadbench": 675,
    "minerva": 272,
}
COPIES = 10
POOL = {**COLUMN, "omni_math": COLUMN["omni_math"] + COPIES}  # responses of each benchmark in "Avg."; together 8,844
RESPONSES = sum(POOL.values())
AVERAGE, NOT_RUN = "avg", "-"
# Each problem is solved with its probability p_i, Beta-distributed over problems with a + b = SPREAD. Its standard
# deviation is then .25, as for AIME-like sets (docs/notebook/intervals.md). A smaller value means problems that are
# always or never solved, and less noise.
SPREAD = 0.73
TITLES = ("AIME24", "AIME25", "AMC", "MATH-500", "OMNI-MATH", "OlympiadBench", "Minerva", "Avg.")
HEADINGS = dict(zip((*COLUMN, AVERAGE), TITLES, strict=True))  # column key -> printed heading, in printed order
MODELS = {  # key of a model in rows.csv -> the paper's name for it
    "q7": "Qwen2.5-7B",
    "q14": "Qwen3-14B",
    "l8": "DeepSeek-R1-Distill-Llama-8B",
    "m7": "Mistral-7B-Instruct-v0.2",
    "dq7": "DeepSeek-R1-Distill-Qwen-7B",
}
LONG_STEPS = 132  # Table 4 evaluates some runs a second time after these steps; all other rows after 72
TABLES = ROOT / "paper/tables"
ROWS = ("row", "panel", "kind", "model", "method", "seed", "steps", "of")  # columns of rows.csv


@cache
def candidates(percent: str, n: int) -> tuple[int, ...]:
    """Return all counts k with k/n printed as `percent`, truncated or rounded (either way at exact halves); else ().

    Exact integer arithmetic: floor(10^4 k/n) = c or |10^4 k/n - c| <= 1/2. Floats would lose counts at exact halves.

    >>> candidates("12.60", 960), candidates("19.17", 675)
    ((121,), ())
    """
    c = int(100 * Decimal(percent))
    around = range(max(0, (c - 1) * n // 10000), min(n, (c + 1) * n // 10000 + 1) + 1)
    return tuple(k for k in around if 10000 * k // n == c or abs(2 * (10000 * k - c * n)) <= n)


def counts(value: Decimal | None, n: int) -> tuple[int, int]:
    """Return the lowest and highest count behind a cell, or next to a cell that fits no count; "-" counts as 0."""
    if found := (0,) if value is None else candidates(str(value), n):
        return min(found), max(found)
    down = int(100 * (value or 0)) * n // 10000
    return down, min(down + 1, n)


class Run(NamedTuple):
    """An evaluated run. Rows with the same run print the same measurement."""

    model: str
    method: str
    seed: int | None  # None for a base model, like steps
    steps: int | None


@dataclass(frozen=True)
class Row:
    """One printed row."""

    id: str  # T1.1 is the first row of Table 1
    label: str
    kind: str  # base: an untrained model; run: a trained checkpoint; delta: row minus row; mean: of rows
    model: str  # a key of MODELS
    panel: str
    run: Run | None  # None for a row derived from others
    of: tuple[str, ...]  # the rows that a derived row is computed from
    cells: Mapping[str, Decimal | None]  # column key (`avg` too) -> value, None for "-"

    @property
    def avg(self) -> Decimal:
        value = self.cells[AVERAGE]
        if value is None:
            raise ConfigError(f"row {self.id}: no printed average")
        return value


Paper = Mapping[str, Row]  # row id -> row, in printed order


@cache
def read(folder: Path | str = TABLES) -> Paper:
    """Return all rows of the tables in `folder`, read once. Raises `BenchError` naming the files for bad data."""
    listed = Path(folder, "rows.csv")
    rows = read_csv(listed, "list of the printed rows", ROWS)
    paths = [listed.with_name(f"table{table}.csv") for table in (1, 2, 3, 4)]
    tables = [read_csv(path, "printed table", ("row", "label", *HEADINGS.values())) for path in paths]
    cells = {line["row"]: line for lines in tables for line in lines}
    with cells_of(listed, *paths):
        return {row["row"]: _row(row, cells[row["row"]]) for row in rows}


def measured(paper: Paper) -> list[Row]:
    """Return rows that print an evaluation (no Delta, no mean)."""
    return [row for row in paper.values() if row.run is not None]


def _row(row: Mapping[str, str], cells: Mapping[str, str]) -> Row:
    run = None
    if row["kind"] in ("base", "run"):
        seed, steps = (int(row[key]) if row[key] else None for key in ("seed", "steps"))
        run = Run(row["model"], row["method"], seed, steps)
    values: dict[str, Decimal | None] = {}
    for key, heading in HEADINGS.items():
        if (text := cells[heading]) != NOT_RUN and not re.fullmatch(r"-?\d{1,3}\.\d\d", text):
            raise ValueError(f"{text!r} is not of the form 12.34 (or {NOT_RUN})")
        values[key] = None if text == NOT_RUN else Decimal(text)
    return Row(
        row["row"], cells["label"], row["kind"], row["model"], row["panel"], run, tuple(row["of"].split()), values
    )
