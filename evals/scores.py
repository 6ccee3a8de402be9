"""`scores.csv`: its columns, a writer with equal bytes for equal results, a reader that keeps gaps as gaps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import CorruptInputError, MissingInputError, hint
from core.files import csv_lines, read_text, to_csv, write_text

if TYPE_CHECKING:
    import pandas as pd

# Rows over benchmarks; the second only where a benchmark was not run.
POOLED, POOLED_MISSING_WRONG, MACRO = "avg_pooled", "avg_pooled_missing_wrong", "avg_macro"
AVERAGES = (POOLED, POOLED_MISSING_WRONG, MACRO)

# `how` of a benchmark's row when the benchmark was declared as not run: every figure in it is empty.
NOT_RUN = "not run"

CODE = "code"  # hash of the code that computed the row; older tables lack it
KEYS = ("model", "method", "seed", "step", "benchmark")
# The verdicts of `evals.grading` that score 0, in its order; repeated here because core imports no room.
NOT_CORRECT = ("wrong", "no_answer", "truncated", "unparsed_gold", "timeout", "error")
COLUMNS = (
    *KEYS, "items", "samples", "responses", "correct", "score", "se", "low", "high", "level", "how", *NOT_CORRECT,
    "pass_at_k", "maj_at_k", "response_tokens", "generation_se", "timeout_low", "timeout_high", CODE,
)  # fmt: skip
INTEGERS = ("seed", "step", "items", "samples", "responses", "correct", *NOT_CORRECT)
TEXTS = ("model", "method", "benchmark", "level", "how", CODE)
FRACTIONS = ("score", "se", "low", "high", "pass_at_k", "maj_at_k", "generation_se", "timeout_low", "timeout_high")
NEVER_EMPTY = (*KEYS, "level", "how")

Row = Mapping[str, Any]


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return rows as a sorted table in COLUMNS order: nullable integers, floats with nan for None, text."""
    import pandas as pd

    table = pd.DataFrame([[row[name] for name in COLUMNS] for row in sorted(rows, key=_place)], columns=list(COLUMNS))
    kinds = {n: "Int64" if n in INTEGERS else "str" if n in TEXTS else "float64" for n in COLUMNS}
    return table.astype(kinds)


def write_scores(path: Path | str, rows: Sequence[Row]) -> None:
    """Write rows sorted by key, averages after benchmarks, floats as the shortest text that round-trips."""
    write_text(Path(path), to_csv(COLUMNS, sorted(rows, key=_place)))


def read_scores(path: Path | str) -> pd.DataFrame:
    """Return the rows of `scores.csv` as a table; errors as in `read_rows`."""
    return frame(read_rows(path))


def read_rows(path: Path | str) -> list[dict[str, Any]]:
    """Return every row of `scores.csv`. Raises MissingInputError or CorruptInputError naming file, row and column.

    Rejected: unknown or missing columns, values out of range, inconsistent counts, a repeated key, a checkpoint that
    lacks a benchmark or average the others have.
    """
    path = Path(path)
    header, *lines = csv_lines(path, "table of scores", read_text(path, "table of scores")) or [[]]
    expected = COLUMNS if CODE in header else COLUMNS[:-1]
    for name in header:
        if name not in COLUMNS:
            raise CorruptInputError(f"{path}: unknown column {name!r}{hint(name, COLUMNS)}")
    for name in expected:
        if name not in header:
            raise CorruptInputError(f"{path}: column {name!r} is missing")
    if tuple(header) != expected:
        raise CorruptInputError(f"{path}: columns are in another order or repeated; expected {', '.join(COLUMNS)}")
    if not lines:
        raise CorruptInputError(f"{path}: holds no rows")
    rows = [_parse(f"{path}: row {number}", header, cells) for number, cells in enumerate(lines, 2)]
    _check_complete(path, rows)
    return rows


def _place(row: Row) -> tuple[Any, ...]:
    benchmark = row["benchmark"]
    average = AVERAGES.index(benchmark) + 1 if benchmark in AVERAGES else 0
    return row["model"], row["method"], row["seed"], row["step"], average, benchmark


def _parse(at: str, columns: Sequence[str], cells: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {CODE: None}
    for name, cell in zip(columns, cells, strict=True):
        value = row[name] = _value(at, name, cell)
        if value is None and name in NEVER_EMPTY:
            raise CorruptInputError(f"{at}: {name} is empty")
        if isinstance(value, int | float) and (not math.isfinite(value) or value < 0):
            raise CorruptInputError(f"{at}: {name}: {cell} is out of range")
        if name in FRACTIONS and value is not None and not 0 <= value <= 1:
            raise CorruptInputError(f"{at}: {name}: {cell} is no fraction of 1")
    _check_row(at, row)
    return row


def _value(at: str, name: str, cell: str) -> Any:
    if cell == "":
        return None
    if name in TEXTS:
        return cell
    try:
        return int(cell) if name in INTEGERS else float(cell)
    except ValueError:
        raise CorruptInputError(f"{at}: {name}: {cell!r} is no number") from None


def _check_row(at: str, row: Row) -> None:
    figures = [name for name in COLUMNS if name not in (*NEVER_EMPTY, CODE)]
    if row["how"] == NOT_RUN:
        full = [name for name in figures if row[name] is not None]
        if full:
            raise CorruptInputError(f"{at}: {full[0]} = {row[full[0]]} in a row that was not run")
        return
    needed = ["items", "responses", "correct", *NOT_CORRECT, "timeout_low", "timeout_high"]
    needed += [] if row["benchmark"] == MACRO else ["score"]
    needed += [] if row["benchmark"] in AVERAGES else ["samples"]
    for name in needed:
        if row[name] is None and not (row["benchmark"] == MACRO and name.startswith("timeout_")):
            raise CorruptInputError(f"{at}: {name} is empty")
    if row["correct"] + sum(row[name] for name in NOT_CORRECT) != row["responses"]:
        raise CorruptInputError(f"{at}: verdicts do not add up to {row['responses']} responses")
    if row["benchmark"] not in AVERAGES and row["score"] != row["correct"] / row["responses"]:
        raise CorruptInputError(f"{at}: score {row['score']} is not {row['correct']} / {row['responses']}")
    low, high = row["low"], row["high"]
    if (low is None) != (high is None) or (low is not None and not low <= row["score"] <= high):
        raise CorruptInputError(f"{at}: interval [{row['low']}, {row['high']}] does not hold the score {row['score']}")


def _check_complete(path: Path, rows: Sequence[Row]) -> None:
    benchmarks: dict[str, set[str]] = {}  # by checkpoint
    for row in rows:
        checkpoint = "{model}/{method}/seed{seed}/step{step}".format_map(row)
        present = benchmarks.setdefault(checkpoint, set())
        if row["benchmark"] in present:
            raise CorruptInputError(f"{path}: {checkpoint} has two rows for {row['benchmark']}")
        present.add(row["benchmark"])
    expected = (set().union(*benchmarks.values()) | {POOLED, MACRO}) - {POOLED_MISSING_WRONG}
    for checkpoint, present in benchmarks.items():
        if lost := sorted(expected - present):
            raise MissingInputError(f"{path}: {checkpoint} has no row for {lost[0]}")
