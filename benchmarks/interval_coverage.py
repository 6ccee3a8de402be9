"""How often a nominal 95 % interval holds the truth, by simulation: for ours, and for those that are not offered.

    python -m benchmarks.interval_coverage        prints the tables of docs/statistics.md

Problems differ in difficulty like a Beta distribution (`spread` = a + b: small means all-or-nothing problems). All is
drawn from fixed seeds, thousands of benchmarks at once. The methods marked "ours" are the functions of
`evals.stats.intervals` that the estimates use, not copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.random import Generator

from evals.stats import intervals
from evals.stats.intervals import Array, Bounds

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
class Row:
    """One line of the table."""

    method: str
    kind: Kind
    setting: str
    coverage: float  # percent of REPEATS simulated data sets
    width: float  # mean, in points


def table() -> list[Row]:
    """All rows, in the order of the page."""
    return [*single(), *why_not(), *differences(), *averages(), *seeds(), *levels()]


def single() -> list[Row]:
    """`estimate`: one checkpoint, one benchmark."""
    holds = [AIME, *(AIME._replace(mean=mean) for mean in (0.06, 0.24, 0.45, 0.9)), AIME._replace(spread=3.0)]
    holds += [Case(83, 32, 0.43, 0.73), Case(20, 8, 0.3), Case(272, 1, 0.35), Case(400, 1, 0.98), Case(500, 1, 0.77)]
    # Every row has its own random stream, here and below: a new row at the end changes none of the others.
    answers = [_answers(np.random.default_rng([1, seed]), case) for seed, case in enumerate(holds)]
    pairs = zip(answers, holds, strict=True)
    return [_row("Wilson-t by problem", "ours", str(case), _score(y, case), case.mean) for y, case in pairs]


# Levels of a score in percent. Those above 50 mirror these: right and wrong exchanged, the interval is the same.
LEVELS = ((0.2, 1.0), (1.0, 3.0), (3.0, 10.0), (10.0, 30.0), (30.0, 70.0))


def levels() -> list[Row]:
    """`estimate` near 0 and in the middle: 10 to 500 problems, greedy and with 32 samples.

    The true scores of the data sets fill the level evenly: at a single one the coverage of so few right answers jumps.
    """
    rows = []
    for k, spread in ((1, 1.0), (32, 0.3), (32, 0.73), (32, 3.0), (32, 10.0)):
        for problems in (10, 30, 100, 500):
            for place, (low, high) in enumerate(LEVELS):
                rng = np.random.default_rng([10, k, problems, int(100 * spread), place])
                truth = np.linspace(low, high, REPEATS) / 100
                chances = rng.beta(*(part[:, None] * spread for part in (truth, 1 - truth)), (REPEATS, problems))
                y = rng.binomial(k, chances) / k
                case = Case(problems, k, 0.0, spread)
                setting = str(case).replace(" at 0 %", "")
                rows.append(_row(f"{low:g} to {high:g} %", "levels", setting, _score(y, case), truth))
    return rows


def why_not() -> list[Row]:
    """What is often printed instead, on the same data as the first row of `single` and on seeds."""
    y = _answers(np.random.default_rng([1, 0]), AIME)
    n, k, truth, name = AIME.problems, AIME.k, AIME.mean, str(AIME)
    mean = intervals.clustered_mean(y, 1.0)
    binomial = np.sqrt(mean.value * (1 - mean.value) / (n * k))
    rows = [
        _row("binomial over 960 samples", "why not", name, _about(mean.value, 1.96 * binomial), truth),
        _row("generation noise alone", "why not", name, _about(mean.value, 1.96 * _generation(y, k)), truth),
        _row("mean +- 1.96 SE by problem", "why not", name, _about(mean.value, 1.96 * mean.se), truth),
        _row("mean +- t SE by problem", "why not", name, _about(mean.value, _t(n - 1) * mean.se), truth),
        _row("percentile bootstrap over problems", "why not", name, _percentile(y, [2, 0]), truth),
    ]
    for count in (3, 5, 10):
        draws = np.random.default_rng([3, count]).normal(size=(REPEATS, count)) * 0.01 + 0.5
        rows.append(
            _row("percentile bootstrap over seeds", "why not", f"{count} seeds", _percentile(draws, [4, count]), 0.5)
        )
    return rows


def differences() -> list[Row]:
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
        rows.append(_row("paired t by problem", "ours", f"{case}, {'a gap' if gap else 'no gap'}", bounds, truth))
    return rows


# Seven sets of the paper's sizes.
PAPER_LIKE = (
    Case(30, 32, 0.12), Case(30, 32, 0.07), Case(83, 32, 0.43), Case(500, 1, 0.77), Case(2821, 1, 0.27),
    Case(675, 1, 0.4), Case(272, 1, 0.35),
)  # fmt: skip


def averages() -> list[Row]:
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
            rows.append(_row(f"{label} average, MOVER", "ours", name, intervals.combine(w, value, low, high)[1], truth))
    return rows


def seeds() -> list[Row]:
    """`over_seeds` of a figure that is no share: mean +- t SE. A seed moves the logit of each AIME problem by .5.

    Scores over seeds: `benchmarks.seed_coverage`.
    """
    rows = []
    for count in (2, 3, 5):
        score_SP, truth = _trained([7, count], count)
        mean, variance, df = intervals.seed_variance(score_SP.mean(-1))
        bounds = _about(mean, intervals.quantile(df) * np.sqrt(variance / count))
        rows.append(_row("Student-t over seeds", "ours", f"{count} seeds", bounds, truth))
    return rows


def _row(method: str, kind: Kind, setting: str, bounds: Bounds, truth: float | Array) -> Row:
    inside = (bounds.low <= truth) & (truth <= bounds.high)
    return Row(method, kind, setting, 100 * float(inside.mean()), 100 * float((bounds.high - bounds.low).mean()))


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


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _asked(rng: Generator, logit: Array, k: int) -> Array:
    return rng.binomial(k, _sigmoid(logit)) / k


def _mean_gap(gap: float, case: Case) -> float:
    """The true difference over all problems, by a million of them."""
    if gap == 0:
        return 0.0
    rng = np.random.default_rng([9])
    logit = _difficulty(rng, case._replace(problems=1), 1_000_000) + rng.normal(0, 0.5, (1_000_000, 1))
    return float((_sigmoid(logit + gap) - _sigmoid(logit)).mean())


def _trained(seed: list[int], count: int) -> tuple[Array, Array]:
    """(repeats, S, P) scores of `count` training seeds, and the true mean of each repeat on its problems."""
    rng = np.random.default_rng(seed)
    logit = _difficulty(rng, AIME)
    score = _asked(rng, logit[:, None] + rng.normal(0, 0.5, (REPEATS, count, logit.shape[1])), AIME.k)
    # Expected score over the normal shift of the logit, by Gauss-Hermite quadrature: no simulation noise.
    node, weight = np.polynomial.hermite_e.hermegauss(20)
    expected = sum(w * _sigmoid(logit + 0.5 * x) for x, w in zip(node, weight / weight.sum(), strict=True)).mean(-1)
    return score, expected


def _score(y: Array, case: Case) -> Bounds:
    return intervals.score_interval(y, 1.0, case.problems * case.k)


def _about(value: Array, half: Array) -> Bounds:
    return Bounds(value - half, value + half)


def _t(df: int) -> Array:
    return intervals.quantile(df)


def _generation(y: Array, k: int) -> Array:
    return np.sqrt((y * (1 - y) / (k - 1)).sum(-1)) / y.shape[-1]


def _percentile(y: Array, seed: list[int]) -> Bounds:
    """Percentile bootstrap over the last axis."""
    n = y.shape[-1]
    weight = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), DRAWS) / n
    low, high = np.quantile(y @ weight.T, [0.025, 0.975], axis=-1)
    return Bounds(low, high)


def markdown(rows: list[Row], kind: Kind) -> str:
    """The rows of one kind as a Markdown table; levels: a column each, with the width in brackets."""
    if kind == "levels":
        found = [row for row in rows if row.kind == kind]
        columns = list(dict.fromkeys(row.method for row in found))
        lines = [f"| data | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        for setting in dict.fromkeys(row.setting for row in found):
            cells = [f"{row.coverage:.0f} ({row.width:.1f})" for row in found if row.setting == setting]
            lines.append(f"| {setting} | {' | '.join(cells)} |")
        return "\n".join(lines)
    lines = ["| interval | data | coverage | width |", "|---|---|---|---|"]
    lines += [f"| {r.method} | {r.setting} | {r.coverage:.0f} % | {r.width:.1f} |" for r in rows if r.kind == kind]
    return "\n".join(lines)


def main() -> None:
    rows = table()
    kinds: tuple[Kind, ...] = get_args(Kind)
    print("\n\n".join(f"{kind}\n\n{markdown(rows, kind)}" for kind in kinds))


if __name__ == "__main__":
    main()
