"""Read claims.csv and format verdicts as text, for the terminal and the page. Nothing is judged here."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import unknown
from core.files import cells_of, read_csv

PRINT, FORMULA, RUNS = "print", "formulas", "runs"  # sources of numbers
EQUAL, UNTESTABLE = "equal within the margin", "not testable at this scale"
MEANING = {
    "supported": "the 95 % interval excludes the null on the claimed side, after Holm over the claims of a family. "
    "For a claim about learning, the contrast also exceeds that under each placebo reward",
    "contradicted": "it excludes the null on the other side, after the same correction",
    EQUAL: "it lies inside the claim's margin; runs only",
    "undecided": "none of these; the smallest difference that would have been found stands beside it",
    "not tested": "a run, a printed number or a second seed is missing",
    UNTESTABLE: "a score of models or problems that stand in for the paper's; it is shown",
}
DECIDED = tuple(MEANING)[:3]
COLUMNS = (
    "id", "source", "setting", "verdict", "reason", "statement", "claimed", "estimate", "null", "low", "high",
    "margin_low", "margin_high", "unit", "p", "p_holm", "tests", "detectable", "n", "seeds", "how", "placebo",
    "runs", "family", "where", "quote", "untested",
)  # fmt: skip
NUMBERS = (*COLUMNS[COLUMNS.index("estimate") : COLUMNS.index("unit")], "p", "p_holm", "tests", "detectable", "n")
# With fewer rollouts a run has hardly moved from its base; the shortest kept experiment scores its runs after 7.
LEAST_ROLLOUTS = 7
RULE = f"A verdict needs {LEAST_ROLLOUTS} rollouts or more, trained and scored, and two seeds or more."


def read(path: Path) -> list[dict[str, Any]]:
    """Read a claims.csv. Raises `BenchError` naming the file and a missing column, verdict or number."""
    rows = read_csv(path, "the verdicts on the claims", COLUMNS)
    if wrong := [row for row in rows if row["verdict"] not in MEANING]:
        raise unknown(f"{path}: {wrong[0]['id']}", "verdict", wrong[0]["verdict"], MEANING)
    with cells_of(path):
        return [row | {name: float(row[name]) if row[name] else None for name in NUMBERS} for row in rows]


def amount(value: float | None, unit: str) -> str:
    """Format a figure: points with two decimals, everything else with three digits. None becomes empty text."""
    if value is None:
        return ""
    return f"{100 * value:.2f}" if unit == "points" else f"{value:.3g}"


def figure(row: Mapping[str, Any]) -> str:
    """Format estimate, interval and unit; empty where there is no estimate."""
    if row["estimate"] is None:
        return ""
    value, low, high = (amount(row[name], row["unit"]) for name in ("estimate", "low", "high"))
    return f"{value} [{low}, {high}] {row['unit']}" if low else f"{value} {row['unit']}"


def beside(row: Mapping[str, Any]) -> str:
    """Return the notes on a verdict: margin, Holm's p, detectable difference, placebo rewards."""
    unit, notes = row["unit"], [row["reason"], row["placebo"]]
    if row["margin_low"] is not None:
        notes.append(f"margin {amount(row['margin_low'], unit)} to {amount(row['margin_high'], unit)}")
    if row["p_holm"] is not None:
        notes.append(f"p {row['p_holm']:.2g} after Holm over {row['tests']:.0f}")
    if row["verdict"] == "undecided" and row["detectable"] is not None:
        notes.append(f"{amount(row['detectable'], unit)} would have been found")
    if row["verdict"] in DECIDED and row["untested"]:
        notes.append("tested statement only")
    return "; ".join(note for note in notes if note)
