"""The paper's Tables 1-4 as printed: `tables/table<k>.csv` holds the cells, `tables/rows.csv` what each row is.

A printed number is a `Decimal` and keeps its digits ("77.40" is not "77.4"); "-" is None. Nothing is corrected here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import NamedTuple

from core.errors import ConfigError, CorruptInputError, unknown
from core.files import read_csv
from core.provenance import ROOT

# From a printed percentage back to the count behind it: which k of n prints as 19.16?
#
# The denominators are those of the evaluation that the paper describes (samples x problems; AMC has 83 problems; 2811
# of OMNI-MATH's 2821 rows are problems that occur once, the ten others count in the pool only). Printed cells are
# truncated or rounded; both occur in one table.

COLUMN = {  # responses behind each column
    "aime24": 960,
    "aime25": 960,
    "amc": 2656,
    "math500": 500,
    "omni_math": 2811,
    "olympiadbench": 675,
    "minerva": 272,
}
COPIES = 10  # rows of OMNI-MATH that hold a problem twice: in the pool, in no column
POOL = {**COLUMN, "omni_math": COLUMN["omni_math"] + COPIES}  # responses of each benchmark in "Avg."; together 8,844


def printed(k: int, n: int) -> tuple[str, str]:
    """k of n in percent with two decimals: truncated and rounded (a half goes up).

    >>> printed(184, 960)
    ('19.16', '19.17')
    """
    down, up = 10000 * k // n, (20000 * k + n) // (2 * n)
    return f"{down // 100}.{down % 100:02d}", f"{up // 100}.{up % 100:02d}"


@cache
def candidates(percent: str, n: int) -> tuple[int, ...]:
    """All counts k with k/n printed as `percent`, truncated or rounded (either way at an exact half); () if none.

    Exact integer arithmetic: floor(10^4 k/n) = c or |10^4 k/n - c| <= 1/2. Floats would lose counts at exact halves.

    >>> candidates("12.60", 960), candidates("19.17", 675)
    ((121,), ())
    """
    c = int(100 * Decimal(percent))
    around = range(max(0, (c - 1) * n // 10000), min(n, (c + 1) * n // 10000 + 1) + 1)
    return tuple(k for k in around if 10000 * k // n == c or abs(2 * (10000 * k - c * n)) <= n)


DATA = ("paper/tables",)
TABLES = ROOT / DATA[0]
AVERAGE = "avg"
HEADINGS = dict(  # column key -> printed heading, in printed order
    zip(
        (*COLUMN, AVERAGE),
        ("AIME24", "AIME25", "AMC", "MATH-500", "OMNI-MATH", "OlympiadBench", "Minerva", "Avg."),
        strict=True,
    )
)

# Key of a model in rows.csv -> the paper's name of it.
MODELS = {
    "q7": "Qwen2.5-7B",
    "q14": "Qwen3-14B",
    "l8": "DeepSeek-R1-Distill-Llama-8B",
    "m7": "Mistral-7B-Instruct-v0.2",
    "dq7": "DeepSeek-R1-Distill-Qwen-7B",
}
LONG_STEPS = 132  # Table 4 evaluates some runs a second time after so many steps; all other rows after 72

NOT_RUN = "-"
KINDS = {
    "base": "an untrained model, evaluated",
    "run": "a trained checkpoint",
    "delta": "`of`: row minus row",
    "mean": "`of`: mean of rows",
}
_ROWS = ("row", "panel", "kind", "model", "method", "seed", "steps", "of")
_CELL = re.compile(r"-?\d{1,3}\.\d\d")


class Run(NamedTuple):
    """What was evaluated. Rows with the same run print the same measurement."""

    model: str
    method: str
    seed: int | None  # None for a base model, as steps
    steps: int | None


@dataclass(frozen=True)
class Row:
    """One printed row."""

    id: str  # T1.1 is the first row of Table 1
    label: str
    kind: str  # a key of KINDS
    model: str  # a key of MODELS
    panel: str
    run: Run | None  # None for a row made of others
    of: tuple[str, ...]  # the rows a derived row is made of
    cells: Mapping[str, Decimal | None]  # column key (`avg` too) -> value, None for "-"

    @property
    def table(self) -> str:
        return self.id[1:].split(".")[0]

    @property
    def avg(self) -> Decimal:
        value = self.cells[AVERAGE]
        if value is None:
            raise ConfigError(f"row {self.id}: no printed average")
        return value

    def text(self, column: str) -> str:
        """The cell as printed."""
        value = self.cells[column]
        return NOT_RUN if value is None else str(value)


Paper = Mapping[str, Row]  # row id -> row, in printed order


def read(folder: Path | str = TABLES) -> dict[str, Row]:
    """All rows of the tables in `folder`.

    Raises (file, row and column named): a column or row that is unknown, missing or given twice, a cell that is no
    decimal with two places, a percentage outside 0-100, a derived row of rows that are not there.
    """
    folder = Path(folder)
    listed = folder / "rows.csv"
    about = _by_id(listed, "what the printed rows are", _ROWS)
    paper: dict[str, Row] = {}
    for table in dict.fromkeys(_table(id, listed) for id in about):
        path = folder / f"table{table}.csv"
        cells = _by_id(path, f"printed Table {table}", ("row", "label", *HEADINGS.values()))
        wanted = [id for id in about if _table(id, listed) == table]
        for id in cells:
            if id not in wanted:
                raise unknown(f"{path}: row {id}", "row", id, wanted)
        for id in wanted:
            if id not in cells:
                raise CorruptInputError(f"{path}: row {id} is missing; {listed.name} lists it")
            paper[id] = _row(id, about[id], cells[id], listed, path)
    for row in paper.values():
        for part in row.of:
            if part not in paper or paper[part].run is None or paper[part].model != row.model:
                runs = [r.id for r in paper.values() if r.run and r.model == row.model]
                raise unknown(f"{listed}: row {row.id}", "of", part, runs)
    return paper


def with_cell(paper: Paper, id: str, column: str, value: Decimal) -> dict[str, Row]:
    """The paper with another value in one cell (in every row of the same run): a hypothesis, never written."""
    run = paper[id].run
    return {
        key: replace(row, cells={**row.cells, column: value}) if key == id or (run and row.run == run) else row
        for key, row in paper.items()
    }


def measured(paper: Paper, *, distinct: bool = False) -> list[Row]:
    """Rows that print an evaluation (no Delta, no mean). distinct: the first row of each run only."""
    rows = [row for row in paper.values() if row.run is not None]
    return list({row.run: row for row in reversed(rows)}.values())[::-1] if distinct else rows


def block(paper: Paper, row: Row) -> list[Row]:
    """The measured rows of the same table and model."""
    return [other for other in measured(paper) if (other.table, other.model) == (row.table, row.model)]


def _table(id: str, path: Path) -> str:
    if not re.fullmatch(r"T\d+\.\d+", id):
        raise ConfigError(f"{path}: row {id!r}: an id has the form T1.1")
    return id[1:].split(".")[0]


def _by_id(path: Path, what: str, header: Sequence[str]) -> dict[str, dict[str, str]]:
    lines = read_csv(path, what, header)
    for column in lines[0]:
        if column not in header:
            raise unknown(str(path), "column", column, header)
    by_id: dict[str, dict[str, str]] = {}
    for line in lines:
        if line["row"] in by_id:
            raise CorruptInputError(f"{path}: row {line['row']} is given twice")
        by_id[line["row"]] = line
    return by_id


def _row(id: str, about: Mapping[str, str], cells: Mapping[str, str], listed: Path, path: Path) -> Row:
    kind, of = about["kind"], tuple(about["of"].split())
    if kind not in KINDS:
        raise unknown(f"{listed}: row {id}", "kind", kind, KINDS)
    complete = {"delta": len(of) == 2, "mean": len(of) >= 2}.get(kind, not of and bool(about["method"]))
    if not complete or not about["model"]:
        raise ConfigError(
            f"{listed}: row {id}: a {kind} row needs {'method' if kind in ('base', 'run') else 'rows in of'}"
        )
    run = None
    if kind in ("base", "run"):
        seed, steps = (_number(about[key], key, id, listed, kind) for key in ("seed", "steps"))
        run = Run(about["model"], about["method"], seed, steps)
    values = {key: _cell(cells[heading], kind, f"{path}: row {id}: {heading}") for key, heading in HEADINGS.items()}
    return Row(id, cells["label"], kind, about["model"], about["panel"], run, of, values)


def _number(text: str, key: str, id: str, path: Path, kind: str) -> int | None:
    if text.isdigit() and kind == "run":
        return int(text)
    if not text and kind == "base":
        return None
    raise ConfigError(f"{path}: row {id}: {key} of a {kind} row: got {text!r}")


def _cell(text: str, kind: str, where: str) -> Decimal | None:
    if text == NOT_RUN:
        return None
    if not _CELL.fullmatch(text):
        raise CorruptInputError(f"{where}: {text!r} is not of the form 12.34 (or {NOT_RUN})")
    value = Decimal(text)
    if not (-100 if kind == "delta" else 0) <= value <= 100:
        raise CorruptInputError(f"{where}: {text} is no percentage")
    return value
