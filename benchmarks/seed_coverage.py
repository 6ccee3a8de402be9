"""How often the 95 % intervals over training seeds hold the truth, by simulation: by seeds and by level of the score.

    python -m benchmarks.seed_coverage        prints the tables of docs/statistics.md (two minutes)

A benchmark has 22 rows. A seed moves the logit of a row's score by a normal amount, 70 % of whose variance all rows
have in common, as runs on one base model with one order of prompts do. Its standard deviation differs between rows like
a Smyth prior with 3 degrees of freedom: the middle half spans a factor of 1.8. The score is a share of 400 binomial
answers. True is the mean score over all seeds. The intervals are the functions that the tables use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from evals.stats import intervals
from evals.stats.intervals import Array, Bounds

REPEATS = 4000
ROWS, ANSWERS, COMMON, HETEROGENEITY = 22, 400, 0.7, 3
SEEDS, LEVELS = (2, 4, 8), (0.02, 0.1, 0.3, 0.5, 0.8, 0.95, 0.98)
# Of the logit. .25 and .5 are 6 and 12 points at 50 %; the kept runs of two seeds lie between .25 and .8.
SPREADS = (0.25, 0.5, 0.8)
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
                mean = intervals.seed_difference(value_RS[:, 0], value_RS[:, 1], ANSWERS, shared)
                half = intervals.quantile(mean.df) * mean.se
                bounds = Bounds(mean.value - half, mean.value + half)
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
    common, own = rng.standard_normal((repeats, 1, seeds)), rng.standard_normal((repeats, ROWS, seeds))
    moved = np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * own
    value = rng.binomial(ANSWERS, sigmoid(logit_R[..., None] + sd_R[..., None] * moved)) / ANSWERS
    truth = sum(w * sigmoid(logit_R + x * sd_R) for x, w in zip(NODE, WEIGHT / WEIGHT.sum(), strict=True))
    return value, np.asarray(truth)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _student(value_S: Array) -> Bounds:
    mean, variance, df = intervals.seed_variance(value_S)
    half = intervals.quantile(df) * np.sqrt(variance / (df + 1))
    return Bounds(mean - half, mean + half)


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


def main() -> None:
    for title, rows in (("scores", scores()), ("differences", differences()), ("limits", limits())):
        print(f"{title}\n\n{markdown(list(rows))}\n")


if __name__ == "__main__":
    main()
