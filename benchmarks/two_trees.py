"""Do two trees of one matrix agree as their intervals say? Made with other bases, they are a test of those intervals.

    python -m benchmarks.two_trees results/reference/embedded_xeon results/reference/embedded_amd

For each cell of at least four seeds on both sides: does the second tree's mean lie in the first one's 95 % interval,
and how many standard errors of their difference are the two apart? Of two means drawn alike the second lies in the
first one's interval about 83 times of 100: P(|N(0, 1)| < 1.96 / sqrt(2)). Cells of one benchmark share seeds, so that
their number overstates what they say together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks import seed_coverage
from evals.stats import compare
from evals.stats.estimate import Comparison, Estimate
from records import errors
from records.errors import MissingInputError, Parser

LEAST = 4  # seeds of a cell
Cell = tuple[str, str, str]  # model, method, what: score or difference
Column = tuple[str, int, str]  # benchmark, rollout, variant


class Agreement(NamedTuple):
    """One line: cells of a model."""

    what: str
    model: str
    cells: int
    inside: float  # share of the second tree's means in the first one's interval
    apart: float  # root mean square of the difference in standard errors: 1 where the intervals are right
    beyond: float  # share of cells more than two standard errors apart


def cells(folder: Path, baseline: str) -> dict[tuple[Column, Cell], Estimate | Comparison]:
    """Scores and paired differences to the baseline, with the intervals of the tables."""
    found: dict[tuple[Column, Cell], Estimate | Comparison] = {}
    for (*place, model), rows in seed_coverage.columns(folder):
        column = tuple(place)
        by_seed: dict[str, Mapping[int, float]] = {
            method: dict(zip(row["seed"], row["score"], strict=True)) for method, row in rows.groupby("method")
        }
        answers = float(rows["responses"].min())
        shared = compare.shared_spread(by_seed, answers=answers)
        for method, values in by_seed.items():
            if len(values) < LEAST:
                continue
            found[column, (model, method, "score")] = compare.over_seeds(values, answers=answers, shared=shared)
            first = by_seed.get(baseline)
            if first is not None and method != baseline:
                difference = compare.compare_seeds(values, first, answers=answers, shared=shared)
                found[column, (model, method, "difference")] = difference
    return found


def agreement(one: Path, other: Path, baseline: str = "grpo") -> list[Agreement]:
    """By what and model; MissingInputError where the two trees have no cell in common."""
    first, second = cells(one, baseline), cells(other, baseline)
    lines = [
        _line(model, what, first[key], second[key]) for key in first if key in second for model, _, what in [key[1]]
    ]
    if not lines:
        raise MissingInputError(f"{one} and {other}: no cell of {LEAST} seeds or more in common")
    table = pd.DataFrame(lines, columns=["model", "what", "inside", "apart"])
    out = []
    for (what, model), group in table.groupby(["what", "model"]):
        apart = np.sqrt((group["apart"] ** 2).mean())
        beyond = (group["apart"].abs() > 2).mean()
        out.append(Agreement(what, model, len(group), float(group["inside"].mean()), float(apart), float(beyond)))
    return out


def _line(model: str, what: str, a: Estimate | Comparison, b: Estimate | Comparison) -> tuple[str, str, bool, float]:
    x, y = (side.value if isinstance(side, Estimate) else side.difference for side in (a, b))
    assert None not in (x, y, a.se, b.se, a.low, a.high)  # two seeds or more have all of them
    return model, what, a.low <= y <= a.high, (x - y) / np.hypot(a.se, b.se)


def markdown(lines: list[Agreement]) -> list[str]:
    """The table of docs/statistics.md."""
    header = ["interval of", "model", "cells", "the other tree inside", "standard errors apart, rms", "beyond 2"]
    table = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    for x in lines:
        shares = [f"{100 * x.inside:.0f} %", f"{x.apart:.2f}", f"{100 * x.beyond:.0f} %"]
        table.append(f"| {x.what} | {x.model} | {x.cells} | {' | '.join(shares)} |")
    return table


def main() -> None:
    parser = Parser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("trees", nargs=2, type=Path, metavar="TREE", help="a results tree or a kept reference")
    args = parser.parse_args()
    print("\n".join(markdown(agreement(*args.trees))))


if __name__ == "__main__":
    errors.run(main)
