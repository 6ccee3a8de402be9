"""Read and write `scores.csv`: equal results give equal bytes, and empty cells stay empty."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import CorruptInputError, MissingInputError, hint
from core.files import read_csv, to_csv, write_text
from evals.grading import Verdict

if TYPE_CHECKING:
    import pandas as pd

# Rows over benchmarks; the second only where a benchmark was not run.
POOLED, POOLED_MISSING_WRONG, MACRO = "avg_pooled", "avg_pooled_missing_wrong", "avg_macro"
AVERAGES = (POOLED, POOLED_MISSING_WRONG, MACRO)

# `how` of a benchmark's row when the benchmark was declared as not run: every figure in it is empty.
NOT_RUN = "not run"

CODE = "code"  # hash of the code that computed the row
KEYS = ("model", "method", "seed", "step", "benchmark")
NOT_CORRECT = tuple(verdict.value for verdict in Verdict if verdict is not Verdict.CORRECT)  # they score 0
COLUMNS = (
    *KEYS, "items", "samples", "responses", "correct", "score", "se", "low", "high", "level", "how", *NOT_CORRECT,
    "pass_at_k", "maj_at_k", "response_tokens", "generation_se", "timeout_low", "timeout_high", CODE,
)  # fmt: skip
INTEGERS = ("seed", "step", "items", "samples", "responses", "correct", *NOT_CORRECT)
TEXTS = ("model", "method", "benchmark", "level", "how", CODE)
NEVER_EMPTY = (*KEYS, "level", "how")
FIGURES = ("items", "responses", "correct", *NOT_CORRECT)  # never empty in a row that was run

Row = Mapping[str, Any]


def write_scores(path: Path | str, rows: Sequence[Row]) -> None:
    """Write rows sorted by key, averages after benchmarks, floats as the shortest text that round-trips."""

    after = {name: place for place, name in enumerate(AVERAGES, 1)}
    rows = sorted(rows, key=lambda row: ([row[n] for n in KEYS[:-1]], after.get(row["benchmark"], 0), row["benchmark"]))
    write_text(path, to_csv(COLUMNS, rows))


def read_scores(path: Path | str) -> pd.DataFrame:
    """Return the rows of `scores.csv` as a table; errors as in `read_rows`."""
    import pandas as pd

    return pd.DataFrame(read_rows(path))


def read_rows(path: Path | str) -> list[dict[str, Any]]:
    """Return every row of `scores.csv`. Raises MissingInputError or CorruptInputError naming file, row and column.

    Rejected: unknown or missing columns, empty, impossible or contradicting cells, a repeated key, a checkpoint that
    lacks a benchmark or average the others have.
    """
    lines = read_csv(path, "table of scores", COLUMNS)
    if strange := [name for name in lines[0] if name not in COLUMNS]:
        raise CorruptInputError(f"{path}: unknown column {strange[0]!r}{hint(strange[0], COLUMNS)}")
    rows, benchmarks = [], defaultdict[str, set[str]](set)
    for number, cells in enumerate(lines, 2):
        rows.append(row := {name: _value(f"{path}: row {number}: {name}", name, cells[name]) for name in COLUMNS})
        needed = [*NEVER_EMPTY, *(FIGURES if row["how"] != NOT_RUN else ())]
        needed += ["score"] if row["how"] != NOT_RUN and row["benchmark"] != MACRO else []
        if empty := [name for name in needed if row[name] is None]:
            raise CorruptInputError(f"{path}: row {number}: {empty[0]} is empty")
        present = benchmarks["{model}/{method}/seed{seed}/step{step}".format_map(row)]
        if row["benchmark"] in present:
            raise CorruptInputError(f"{path}: row {number}: this checkpoint has two rows for {row['benchmark']}")
        present.add(row["benchmark"])
    expected = (set().union(*benchmarks.values()) | {POOLED, MACRO}) - {POOLED_MISSING_WRONG}
    for checkpoint, present in benchmarks.items():
        if lost := sorted(expected - present):
            raise MissingInputError(f"{path}: {checkpoint} has no row for {lost[0]}")
    return rows


def _value(at: str, name: str, cell: str) -> Any:
    if cell == "":
        return None
    if name in TEXTS:
        return cell
    try:
        value = int(cell) if name in INTEGERS else float(cell)
    except ValueError:
        raise CorruptInputError(f"{at}: {cell!r} is not a number") from None
    share = name not in (*INTEGERS, "response_tokens")
    if not 0 <= value < math.inf or (share and value > 1):
        raise CorruptInputError(f"{at}: {cell} is out of range")
    return value
