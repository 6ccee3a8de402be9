"""How often the 95 % intervals over training seeds hold the truth, by simulation: by seeds and by level of the score.

    python -m benchmarks.seed_coverage        prints the tables of docs/statistics.md (three minutes)

A benchmark has 22 rows. A seed moves the logit of a row's score by a normal amount, 70 % of whose variance all rows
have in common, as runs on one base model with one order of prompts do. Its standard deviation differs between rows like
a Smyth prior with 3 degrees of freedom: the middle half spans a factor of 1.8. The score is a share of 400 binomial
answers. True is the mean score over all seeds. The intervals are the functions that the tables use.

`kept` does the same for the cells of a kept tree: its rows, with the levels, the spread and the seeds that they have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray

from evals.stats import intervals
from evals.stats.intervals import Array, Bounds
from records.provenance import ROOT

REPEATS = 4000
ROWS, ANSWERS, COMMON, HETEROGENEITY = 22, 400, 0.7, 3
SEEDS, LEVELS = (2, 4, 8), (0.02, 0.1, 0.3, 0.5, 0.8, 0.95, 0.98)
# Of the logit. .25 and .5 are 6 and 12 points at 50 %; the kept runs of two seeds lie between .25 and .8.
SPREADS = (0.25, 0.5, 0.8)
KEPT = ROOT / "results" / "reference" / "embedded"
BANDS = (0.0, 0.05, 0.2, 0.8, 0.95, 1.0)  # levels of a kept row's score, by which its cells are shown
NODE, WEIGHT = np.polynomial.hermite_e.hermegauss(40)  # expectations over a normal seed, without simulation noise


class Row(NamedTuple):
    """One line of a table: coverage and half the width, in percent and points, at each of `LEVELS`."""

    what: str
    seeds: int
    spread: str
    coverage: tuple[float, ...]
    half: tuple[float, ...]


def scores(repeats: int = REPEATS) -> Iterator[Row]:
    """Of one row's score: alone by Student's t (what many print), alone as here, and among the other rows."""
    for place, spread in enumerate(SPREADS):
        for seeds in SEEDS:
            columns: dict[str, list[tuple[float, float]]] = {}
            for number, level in enumerate(LEVELS):
                rng = np.random.default_rng([1, place, seeds, number])
                value_RS, truth_R = drawn(rng, repeats, seeds, spread, level)
                shared = intervals.spread(value_RS, ANSWERS)
                own_S, truth = value_RS[:, 0], truth_R[:, 0]
                columns.setdefault("mean +- t SE", []).append(_coverage(_student(own_S), truth))
                for name, pool in (("Wilson-t, a row alone", None), ("Wilson-t, spread shared", shared)):
                    columns.setdefault(name, []).append(_coverage(intervals.seed_score(own_S, ANSWERS, pool)[1], truth))
            for name, cells in columns.items():
                yield _row(name, seeds, f"{spread:g}", cells)


def differences(repeats: int = REPEATS) -> Iterator[Row]:
    """Of the paired difference of two rows at one level."""
    for place, spread in enumerate(SPREADS):
        for seeds in SEEDS:
            columns: dict[str, list[tuple[float, float]]] = {}
            for number, level in enumerate(LEVELS):
                rng = np.random.default_rng([2, place, seeds, number])
                value_RS, truth_R = drawn(rng, repeats, seeds, spread, level, same=True)
                shared = intervals.spread(value_RS, ANSWERS)
                truth = truth_R[:, 0] - truth_R[:, 1]
                student = _student(value_RS[:, 0] - value_RS[:, 1])
                columns.setdefault("paired t", []).append(_coverage(student, truth))
                bounds = _difference(value_RS[:, 0], value_RS[:, 1], ANSWERS, shared)
                columns.setdefault("paired t, spread shared", []).append(_coverage(bounds, truth))
            for name, cells in columns.items():
                yield _row(name, seeds, f"{spread:g}", cells)


def limits(repeats: int = REPEATS) -> Iterator[Row]:
    """A row unlike the others, among rows of spread .25: with three times their spread, or whose seeds collapse."""
    for place, (name, times, collapse) in enumerate(
        (("0.75 among 0.25", 3.0, 0.0), ("0.25, 1 in 10 collapses", 1.0, 0.1))
    ):
        for seeds in SEEDS:
            cells = []
            for number, level in enumerate(LEVELS):
                rng = np.random.default_rng([3, place, seeds, number])
                value_RS, truth_R = drawn(rng, repeats, seeds, 0.25, level, times=times)
                lost = rng.random((repeats, seeds)) < collapse
                value_RS[:, 0] = np.where(lost, 0.0, value_RS[:, 0])
                truth = truth_R[:, 0] * (1 - collapse)
                shared = intervals.spread(value_RS, ANSWERS)
                cells.append(_coverage(intervals.seed_score(value_RS[:, 0], ANSWERS, shared)[1], truth))
            yield _row("Wilson-t, spread shared", seeds, name, cells)


def columns(folder: Path) -> Iterator[tuple[tuple[str, int, str, str], pd.DataFrame]]:
    """Of a tree, kept or not: its trained scores by benchmark, rollout, what follows @ in a method's key, and model:
    rows that share a spread."""
    scores = pd.read_csv(next(folder.glob("scores.csv*")))
    scores = scores[scores["step"] > 0]
    scores[["method", "variant"]] = scores["method"].str.partition("@")[[0, 2]]
    yield from scores.groupby(["benchmark", "step", "variant", "model"])


class Cells(NamedTuple):
    """One line of the table of kept cells; coverage in percent."""

    what: str  # score, or difference to the baseline
    seeds: int
    level: str
    cells: int
    coverage: float  # mean over the cells
    lowest: float
    highest: float
    half: float  # points


def kept(repeats: int = REPEATS, folder: Path = KEPT, baseline: str = "grpo") -> list[Cells]:
    """Of a kept tree's cells: a model's rows of a benchmark, rollout and variant, drawn as `_population` finds them.

    The interval of each row's score, and that of its paired difference to the baseline's row, with the spread shared
    among those rows as the tables share it. Rows of one seed have no interval.
    """
    found: dict[tuple[str, int, int], list[tuple[float, float]]] = {}
    for number, (_, column) in enumerate(columns(folder)):
        answers = int(column["responses"].min())
        rows, logit_R, sd_R, there_RS = _population(column, answers)
        rng = np.random.default_rng([4, number])
        value_RS, truth_R = _moved(rng, repeats, logit_R, sd_R, there_RS.shape[1], answers)
        value_RS[:, ~there_RS] = np.nan
        shared = intervals.spread(value_RS, answers)
        for row, (level, method) in enumerate(zip(sigmoid(logit_R[0]), rows, strict=True)):
            key = int(there_RS[row].sum()), int(np.searchsorted(BANDS, level, side="right")) - 1
            if key[0] < 2:
                continue
            bounds = intervals.seed_score(value_RS[:, row], answers, shared)[1]
            found.setdefault(("score", *key), []).append(_coverage(bounds, truth_R[:, row]))
            if method != baseline and baseline in rows:
                first = rows.index(baseline)
                bounds = _difference(value_RS[:, row], value_RS[:, first], answers, shared)
                found.setdefault(("difference", *key), []).append(
                    _coverage(bounds, truth_R[:, row] - truth_R[:, first])
                )
    lines = []
    for what, seeds, band in sorted(found, key=lambda key: (key[0] != "score", *key[1:])):
        coverage, half = zip(*found[what, seeds, band], strict=True)
        level = f"{100 * BANDS[band]:g} to {100 * BANDS[band + 1]:g} %"
        mean = sum(coverage) / len(coverage)
        lines.append(Cells(what, seeds, level, len(half), mean, min(coverage), max(coverage), sum(half) / len(half)))
    return lines


def _population(column: pd.DataFrame, answers: int) -> tuple[list[str], Array, Array, NDArray[np.bool_]]:
    """Method of each row of a column, their mean logits (1, R), the standard deviation of a seed's effect on them, and
    which seeds each has (R, S).

    All rows have one standard deviation: the mean of their variances, without what so many answers add. Those of the
    kept tree's main model differ by no more than estimates from eight seeds do.
    """
    share = (column["correct"] + 0.5) / (column["responses"] + 1)
    share_RS = column.assign(share=share).pivot(index="method", columns="seed", values="share")
    logit_RS = np.log(share_RS / (1 - share_RS))
    noise_R = (1 / (answers * share_RS * (1 - share_RS))).mean(axis=1)
    variance = float((logit_RS.var(axis=1) - noise_R).mean())  # nan where every row has one seed
    # as above at most 3
    sd_R = np.full((1, len(share_RS)), np.sqrt(np.clip(np.nan_to_num(variance), 0, 9)))
    return list(share_RS.index), logit_RS.mean(axis=1).to_numpy()[None], sd_R, share_RS.notna().to_numpy()


def drawn(
    rng: Generator, repeats: int, seeds: int, spread: float, level: float, *, same: bool = False, times: float = 1.0
) -> tuple[Array, Array]:
    """(repeats, R, S) scores and (repeats, R) true means. Row 0 is at `level`, the others anywhere between 10 and 95 %
    or, with `same`, there too. times: the spread of row 0 over that of the others."""
    level_R = rng.uniform(0.1, 0.95, (repeats, ROWS))
    level_R[:, slice(None) if same else 0] = level
    logit_R = np.log(level_R / (1 - level_R))
    # at most 3: beyond it every seed is all right or all wrong
    sd_R = np.minimum(spread * np.sqrt(HETEROGENEITY / rng.chisquare(HETEROGENEITY, (repeats, ROWS))), 3.0)
    sd_R[:, 0] *= times
    return _moved(rng, repeats, logit_R, sd_R, seeds, ANSWERS)


def _moved(rng: Generator, repeats: int, logit_R: Array, sd_R: Array, seeds: int, answers: int) -> tuple[Array, Array]:
    """(repeats, R, S) scores of rows whose logits, (1 or repeats, R), seeds move, and their means over all seeds."""
    rows = logit_R.shape[-1]
    common, own = rng.standard_normal((repeats, 1, seeds)), rng.standard_normal((repeats, rows, seeds))
    moved = np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * own
    value = rng.binomial(answers, sigmoid(logit_R[..., None] + sd_R[..., None] * moved)) / answers
    truth = sum(w * sigmoid(logit_R + x * sd_R) for x, w in zip(NODE, WEIGHT / WEIGHT.sum(), strict=True))
    return value, np.asarray(truth)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _student(value_S: Array) -> Bounds:
    mean, variance, df = intervals.seed_variance(value_S)
    half = intervals.quantile(df) * np.sqrt(variance / (df + 1))
    return Bounds(mean - half, mean + half)


def _difference(a_S: Array, b_S: Array, answers: int, shared: intervals.Spread) -> Bounds:
    mean = intervals.seed_difference(a_S, b_S, answers, shared)
    half = intervals.quantile(mean.df) * mean.se
    return Bounds(mean.value - half, mean.value + half)


def _coverage(bounds: Bounds, truth: Array) -> tuple[float, float]:
    inside = (bounds.low <= truth) & (truth <= bounds.high)
    return 100 * float(inside.mean()), 50 * float((bounds.high - bounds.low).mean())


def _row(what: str, seeds: int, spread: str, cells: list[tuple[float, float]]) -> Row:
    coverage, half = zip(*cells, strict=True)
    return Row(what, seeds, spread, coverage, half)


def markdown(rows: list[Row]) -> str:
    """Coverage in percent, and half the width in points, at each level."""
    header = ["interval", "seeds", "spread", *(f"{100 * level:g} %" for level in LEVELS)]
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    for row in rows:
        cells = (f"{c:.0f} ({h:.1f})" for c, h in zip(row.coverage, row.half, strict=True))
        lines.append(f"| {row.what} | {row.seeds} | {row.spread} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cells_markdown(lines: list[Cells]) -> str:
    """Coverage of the kept tree's cells."""
    header = ["interval of", "seeds", "level", "cells", "coverage, mean", "lowest to highest cell", "half the width"]
    table = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    for x in lines:
        span = f"{x.lowest:.0f} to {x.highest:.0f} %"
        table.append(f"| {x.what} | {x.seeds} | {x.level} | {x.cells} | {x.coverage:.1f} % | {span} | {x.half:.1f} |")
    return "\n".join(table)


def main() -> None:
    print(f"kept\n\n{cells_markdown(kept())}\n")
    for title, rows in (("scores", scores()), ("differences", differences()), ("limits", limits())):
        print(f"{title}\n\n{markdown(list(rows))}\n")


if __name__ == "__main__":
    main()
