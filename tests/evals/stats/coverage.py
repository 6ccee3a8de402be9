"""How often nominal 95 % intervals hold the truth, by simulation from fixed seeds.

The intervals are the functions of `evals.stats` that the estimates use. docs/notebook/intervals.md prints the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray

from core.provenance import ROOT
from evals.stats import intervals
from evals.stats.intervals import Array, Bounds


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    first, *others = (f"| {' | '.join(map(str, row))} |" for row in (header, *rows))
    return "\n".join([first, "|---" * len(header) + "|", *others])


# Over problems: they differ in difficulty like a Beta distribution (`spread` = a + b: small means all-or-nothing
# problems), thousands of benchmarks at once.

REPEATS = 4000
DRAWS = 1000  # bootstrap draws; all repeats share them, which changes no interval and saves time

# ours: what is printed. levels: the same, by the level of the score. why not: what is not offered.
Kind = Literal["ours", "levels", "why not"]


class Case(NamedTuple):
    """A benchmark."""

    problems: int
    k: int  # samples per problem
    mean: float  # true score
    spread: float = 1.0  # of difficulty: a + b of its Beta distribution

    def __str__(self) -> str:
        asked = "greedy" if self.k == 1 else f"x {self.k}"
        spread = "" if self.k == 1 else f", spread {self.spread:g}"  # unseen by one sample: right or wrong is all
        return f"{self.problems} problems {asked} at {100 * self.mean:g} %{spread}"


AIME = Case(30, 32, 0.12, 0.73)  # at this spread sd(y) is .25, which gives an interval of +- 9 points


@dataclass(frozen=True)
class ProblemRow:
    """One line of the table."""

    method: str
    kind: Kind
    setting: str
    coverage: float  # percent of REPEATS simulated data sets
    width: float  # mean, in points


def problem_rows() -> list[ProblemRow]:
    """All rows, in the order of the page."""
    return [*single(), *why_not(), *checkpoint_differences(), *averages(), *figures_over_seeds(), *levels()]


def single() -> list[ProblemRow]:
    """`estimate`: one checkpoint, one benchmark."""
    holds = [AIME, *(AIME._replace(mean=mean) for mean in (0.06, 0.24, 0.45, 0.9)), AIME._replace(spread=3.0)]
    holds += [Case(83, 32, 0.43, 0.73), Case(20, 8, 0.3), Case(272, 1, 0.35), Case(400, 1, 0.98), Case(500, 1, 0.77)]
    # Every row has its own random stream, here and below: a new row at the end changes none of the others.
    answers = [_answers(np.random.default_rng([1, seed]), case) for seed, case in enumerate(holds)]
    pairs = zip(answers, holds, strict=True)
    return [_problem_row("Wilson-t by problem", "ours", str(case), _score(y, case), case.mean) for y, case in pairs]


# Levels of a score in percent. Those above 50 mirror these: right and wrong exchanged, the interval is the same.
PROBLEM_LEVELS = ((0.2, 1.0), (1.0, 3.0), (3.0, 10.0), (10.0, 30.0), (30.0, 70.0))


def levels() -> list[ProblemRow]:
    """`estimate` near 0 and in the middle: 10 to 500 problems, greedy and with 32 samples.

    The true scores of the data sets fill the level evenly: at a single one the coverage of so few right answers jumps.
    """
    rows = []
    for k, spread in ((1, 1.0), (32, 0.3), (32, 0.73), (32, 3.0), (32, 10.0)):
        for problems in (10, 30, 100, 500):
            for place, (low, high) in enumerate(PROBLEM_LEVELS):
                rng = np.random.default_rng([10, k, problems, int(100 * spread), place])
                truth = np.linspace(low, high, REPEATS) / 100
                chances = rng.beta(*(part[:, None] * spread for part in (truth, 1 - truth)), (REPEATS, problems))
                y = rng.binomial(k, chances) / k
                case = Case(problems, k, 0.0, spread)
                setting = str(case).replace(" at 0 %", "")
                rows.append(_problem_row(f"{low:g} to {high:g} %", "levels", setting, _score(y, case), truth))
    return rows


def why_not() -> list[ProblemRow]:
    """What is often printed instead, on the same data as the first row of `single` and on seeds."""
    y = _answers(np.random.default_rng([1, 0]), AIME)
    n, k, truth, name = AIME.problems, AIME.k, AIME.mean, str(AIME)
    mean = intervals.clustered_mean(y, 1.0)
    binomial = np.sqrt(mean.value * (1 - mean.value) / (n * k))
    generation = np.sqrt((y * (1 - y) / (k - 1)).sum(-1)) / n
    found = {
        "binomial over 960 samples": _about(mean.value, 1.96 * binomial),
        "generation noise alone": _about(mean.value, 1.96 * generation),
        "mean +- 1.96 SE by problem": _about(mean.value, 1.96 * mean.se),
        "mean +- t SE by problem": _about(mean.value, intervals.quantile(n - 1) * mean.se),
        "percentile bootstrap over problems": _percentile(y, [2, 0]),
    }
    rows = [_problem_row(method, "why not", name, bounds, truth) for method, bounds in found.items()]
    for count in (3, 5, 10):
        draws = np.random.default_rng([3, count]).normal(size=(REPEATS, count)) * 0.01 + 0.5
        bounds = _percentile(draws, [4, count])
        rows.append(_problem_row("percentile bootstrap over seeds", "why not", f"{count} seeds", bounds, 0.5))
    return rows


def checkpoint_differences() -> list[ProblemRow]:
    """`compare`: two checkpoints on the same problems; training moved each problem's logit by an sd of .5."""
    cases = [
        (AIME, 0.0),
        (AIME, 0.5),
        (Case(83, 32, 0.43, 0.73), 0.0),
        (Case(400, 1, 0.98), 0.0),
        (Case(500, 1, 0.77), 0.0),
    ]
    rows = []
    for seed, (case, gap) in enumerate(cases):
        rng = np.random.default_rng([5, seed])
        logit, truth = _difficulty(rng, case), _mean_gap(gap, case)
        a, b = (_asked(rng, logit + shift + rng.normal(0, 0.5, logit.shape), case.k) for shift in (gap, 0.0))
        bounds = intervals.difference_interval(intervals.clustered_mean(a - b, 1.0), case.problems)
        rows.append(
            _problem_row("paired t by problem", "ours", f"{case}, {'a gap' if gap else 'no gap'}", bounds, truth)
        )
    return rows


# Seven sets of the paper's sizes.
PAPER_LIKE = (
    Case(30, 32, 0.12), Case(30, 32, 0.07), Case(83, 32, 0.43), Case(500, 1, 0.77), Case(2821, 1, 0.27),
    Case(675, 1, 0.4), Case(272, 1, 0.35),
)  # fmt: skip


def averages() -> list[ProblemRow]:
    """`pooled` and `macro` over seven benchmarks of the paper's sizes, and seven with three at zero."""
    rows = []
    for name, zero in (("seven sets of the paper's sizes", False), ("the same, both AIME near 0", True)):
        cases = [case._replace(mean=0.004) if zero and place < 2 else case for place, case in enumerate(PAPER_LIKE)]
        answers = [_answers(np.random.default_rng([6, place]), case, 1000) for place, case in enumerate(cases)]
        bounds = [_score(y, case) for y, case in zip(answers, cases, strict=True)]
        value, low, high = (np.stack(x, -1) for x in ([y.mean(-1) for y in answers], *zip(*bounds, strict=True)))
        for label, weight in (("pooled", [case.problems * case.k for case in cases]), ("macro", [1] * len(cases))):
            w = np.array(weight) / sum(weight)
            truth = float(w @ [case.mean for case in cases])
            rows.append(
                _problem_row(f"{label} average, MOVER", "ours", name, intervals.combine(w, value, low, high)[1], truth)
            )
    return rows


def figures_over_seeds() -> list[ProblemRow]:
    """`over_seeds` of a figure that is no share: mean +- t SE. A seed moves the logit of each AIME problem by .5."""
    rows = []
    for count in (2, 3, 5):
        score_SP, truth = _trained([7, count], count)
        mean, variance, df = intervals.seed_variance(score_SP.mean(-1))
        bounds = _about(mean, intervals.quantile(df) * np.sqrt(variance / count))
        rows.append(_problem_row("Student-t over seeds", "ours", f"{count} seeds", bounds, truth))
    return rows


def _problem_row(method: str, kind: Kind, setting: str, bounds: Bounds, truth: float | Array) -> ProblemRow:
    inside = (bounds.low <= truth) & (truth <= bounds.high)
    return ProblemRow(method, kind, setting, 100 * float(inside.mean()), 100 * float((bounds.high - bounds.low).mean()))


def _chances(rng: Generator, case: Case, repeats: int) -> Array:
    """(repeats, problems) chances of a right answer."""
    a, b = case.mean * case.spread, (1 - case.mean) * case.spread
    return rng.beta(a, b, (repeats, case.problems))


def _answers(rng: Generator, case: Case, repeats: int = REPEATS) -> Array:
    """(repeats, problems) share of right samples."""
    return rng.binomial(case.k, _chances(rng, case, repeats)) / case.k


def _difficulty(rng: Generator, case: Case, repeats: int = REPEATS) -> Array:
    """(repeats, problems) logits of the chances."""
    chance = _chances(rng, case, repeats).clip(1e-12, 1 - 1e-12)
    return np.log(chance / (1 - chance))


def _asked(rng: Generator, logit: Array, k: int) -> Array:
    return rng.binomial(k, sigmoid(logit)) / k


def _mean_gap(gap: float, case: Case) -> float:
    """The true difference over all problems, by a million of them."""
    if gap == 0:
        return 0.0
    rng = np.random.default_rng([9])
    logit = _difficulty(rng, case._replace(problems=1), 1_000_000) + rng.normal(0, 0.5, (1_000_000, 1))
    return float((sigmoid(logit + gap) - sigmoid(logit)).mean())


def _trained(seed: list[int], count: int) -> tuple[Array, Array]:
    """(repeats, S, P) scores of `count` training seeds, and the true mean of each repeat on its problems."""
    rng = np.random.default_rng(seed)
    logit = _difficulty(rng, AIME)
    score = _asked(rng, logit[:, None] + rng.normal(0, 0.5, (REPEATS, count, logit.shape[1])), AIME.k)
    # Expected score over the normal shift of the logit, by Gauss-Hermite quadrature: no simulation noise.
    node, weight = np.polynomial.hermite_e.hermegauss(20)
    expected = sum(w * sigmoid(logit + 0.5 * x) for x, w in zip(node, weight / weight.sum(), strict=True)).mean(-1)
    return score, expected


def _score(y: Array, case: Case) -> Bounds:
    return intervals.score_interval(y, 1.0, case.problems * case.k)


def _about(value: Array, half: Array) -> Bounds:
    return Bounds(value - half, value + half)


def _percentile(y: Array, seed: list[int]) -> Bounds:
    """Percentile bootstrap over the last axis."""
    n = y.shape[-1]
    weight = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), DRAWS) / n
    low, high = np.quantile(y @ weight.T, [0.025, 0.975], axis=-1)
    return Bounds(low, high)


def problem_markdown(rows: list[ProblemRow], kind: Kind) -> str:
    """The rows of one kind as a Markdown table; levels: a column each, with the width in brackets."""
    found = [row for row in rows if row.kind == kind]
    if kind != "levels":
        cells = ((r.method, r.setting, f"{r.coverage:.0f} %", f"{r.width:.1f}") for r in found)
        return markdown(("interval", "data", "coverage", "width"), cells)
    by_setting: dict[str, list[str]] = {}
    for row in found:
        by_setting.setdefault(row.setting, []).append(f"{row.coverage:.0f} ({row.width:.1f})")
    columns = dict.fromkeys(row.method for row in found)
    return markdown(("data", *columns), ((setting, *cells) for setting, cells in by_setting.items()))


# Over training seeds. A benchmark has 22 rows. A seed moves the logit of a row's score by a normal amount, 70 % of
# whose variance all rows have in common, as runs on one base model with one order of prompts do. Its standard deviation
# differs between rows like a Smyth prior with 3 degrees of freedom: the middle half spans a factor of 1.8. The score is
# a share of 400 binomial answers. True is the mean score over all seeds.

ROWS, ANSWERS, COMMON, HETEROGENEITY = 22, 400, 0.7, 3
SEEDS, SEED_LEVELS = (2, 4, 8), (0.02, 0.1, 0.3, 0.5, 0.8, 0.95, 0.98)
# Of the logit. .25 and .5 are 6 and 12 points at 50 %; the kept runs of two seeds lie between .25 and .8.
SPREADS = (0.25, 0.5, 0.8)
KEPT = ROOT / "results" / "reference" / "embedded"
BANDS = (0.0, 0.05, 0.2, 0.8, 0.95, 1.0)  # levels of a kept row's score, by which its cells are shown
NODE, WEIGHT = np.polynomial.hermite_e.hermegauss(40)  # expectations over a normal seed, without simulation noise


Measured = Mapping[str, tuple[Bounds, Array]]  # interval -> its bounds, and the truth


class SeedRow(NamedTuple):
    """One line of a table: coverage and half the width, in percent and points, at each of `SEED_LEVELS`."""

    what: str
    seeds: int
    spread: str
    coverage: tuple[float, ...]
    half: tuple[float, ...]


def scores(repeats: int = REPEATS) -> Iterator[SeedRow]:
    """Of one row's score: alone by Student's t (what many print), alone as here, and among the other rows."""

    def measured(rng: Generator, place: int, seeds: int, level: float) -> Measured:
        value_RS, truth_R = drawn_rows(rng, repeats, seeds, SPREADS[place], level)
        own_S, shared = value_RS[:, 0], intervals.spread(value_RS, ANSWERS)
        return {
            "mean +- t SE": (_student(own_S), truth_R[:, 0]),
            "Wilson-t, a row alone": (intervals.seed_score(own_S, ANSWERS, None)[1], truth_R[:, 0]),
            "Wilson-t, spread shared": (intervals.seed_score(own_S, ANSWERS, shared)[1], truth_R[:, 0]),
        }

    return _seed_rows(1, [f"{spread:g}" for spread in SPREADS], measured)


def limits(repeats: int = REPEATS) -> Iterator[SeedRow]:
    """A row unlike the others, among rows of spread .25: with three times their spread, or whose seeds collapse."""
    unlike = {"0.75 among 0.25": (3.0, 0.0), "0.25, 1 in 10 collapses": (1.0, 0.1)}

    def measured(rng: Generator, place: int, seeds: int, level: float) -> Measured:
        times, collapse = list(unlike.values())[place]
        value_RS, truth_R = drawn_rows(rng, repeats, seeds, 0.25, level, times=times)
        lost = rng.random((repeats, seeds)) < collapse
        value_RS[:, 0] = np.where(lost, 0.0, value_RS[:, 0])
        bounds = intervals.seed_score(value_RS[:, 0], ANSWERS, intervals.spread(value_RS, ANSWERS))[1]
        return {"Wilson-t, spread shared": (bounds, truth_R[:, 0] * (1 - collapse))}

    return _seed_rows(3, list(unlike), measured)


def _seed_rows(
    stream: int, spreads: Sequence[str], measured: Callable[[Generator, int, int, float], Measured]
) -> Iterator[SeedRow]:
    """A row for each spread, number of seeds and interval that `measured` gives."""
    for place, spread in enumerate(spreads):
        for seeds in SEEDS:
            columns: dict[str, list[tuple[float, float]]] = {}
            for number, level in enumerate(SEED_LEVELS):
                found = measured(np.random.default_rng([stream, place, seeds, number]), place, seeds, level)
                for name, (bounds, truth) in found.items():
                    columns.setdefault(name, []).append(_coverage(bounds, truth))
            for name, cells in columns.items():
                yield SeedRow(name, seeds, spread, *zip(*cells, strict=True))


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


def drawn_rows(
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
