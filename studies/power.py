"""What an experiment can decide: measured spreads between paired seeds, and the seeds that follow.

    python -m studies.power --results results/reference/embedded

Reads a finished tree and prints Markdown, the tables of docs/notebook/experiment.md:

    difficulty  the baseline's score on each benchmark at the table step
    spreads     of each measure, for methods minus their baseline: mean, standard deviation of a paired difference, and
                correlation of paired seeds, pooled over the methods of a model and its settings
    seeds       pairs of seeds at which a paired t test finds a difference in 80 % of repetitions, at 5 % alone and in
                the first step of Holm's rule over 6 and over 22 comparisons; and the smallest difference so found at
                the seeds that the tree has
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import nctdtrinc, stdtrit

from core import errors
from core.errors import Parser
from core.layout import BASE, REFERENCE, Checkpoint, Run, split
from core.results_tree import Tree, open_tree
from evals import learning_curves
from evals.stats.compare import ALPHA, POWER

FAMILIES = (1, 6, 22)  # comparisons that Holm's rule corrects together: one, Table 1's, Tables 1's and 3's
EFFECTS: Mapping[str, tuple[float, ...]] = {  # in reward, and in points of a score
    "area": (0.02, 0.03, 0.05, 0.08),
    "final": (0.03, 0.05),
    "score": (4, 8),
}
MOST = 999  # more pairs than this are not counted further
FAMILY = "tepo_nokl"  # what Table 3 compares the TEPO family with


class Spread(NamedTuple):
    """Of methods minus their baseline on a model under one setting, over the seeds that both have."""

    model: str
    setting: str  # a variant; empty: the scale's own
    baseline: str
    measure: str  # a key of EFFECTS
    label: str
    methods: int
    seeds: tuple[int, int]  # fewest and most pairs
    mean: float  # of the absolute mean differences
    sd: float  # pooled over methods by degrees of freedom
    largest: float  # of one method
    correlation: float | None


def detectable(sd: float, pairs: int, tests: int = 1) -> float:
    """The smallest true difference that a paired t test at level ALPHA / tests finds in 80 % of repetitions.

    >>> round(detectable(0.03, 8), 3), round(detectable(0.03, 8, tests=6), 3)
    (0.035, 0.048)
    """
    df = pairs - 1
    return float(sd / math.sqrt(pairs) * nctdtrinc(df, 1 - POWER, stdtrit(df, 1 - ALPHA / 2 / tests)))


def pairs_needed(sd: float, effect: float, tests: int = 1) -> int:
    """Fewest pairs of seeds at which `effect` is detectable; MOST for that many or more.

    >>> [pairs_needed(0.03, 0.05, tests) for tests in (1, 6, 22)]
    [6, 8, 10]
    """
    return next((n for n in range(2, MOST) if detectable(sd, n, tests) <= effect), MOST)


def spreads(tree: Tree) -> Iterator[Spread]:
    """For each model and setting with paired seeds: area, final reward, pooled score at every step, each benchmark."""
    runs = tree.averaged
    curves = {run: learning_curves.measure_run(tree, run).values for run in runs}
    steps = sorted({checkpoint.step for checkpoint in tree.checkpoints if checkpoint.run.method != BASE})
    shown = [
        ("area", "area under the reward curve", {run: curves[run]["area"] for run in runs}),
        ("final", "final reward", {run: curves[run]["final"] for run in runs}),
    ]
    for step in steps:
        label = f"Avg. (pooled) after {step}, points"
        shown.append(("score", label, {run: _score(tree, run, step, "avg_pooled") for run in runs}))
    of_main = []  # shown for the main model alone
    for entry in tree.benchmarks:
        label = f"{entry['key']} after {tree.matrix['table_step']}, points"
        of_main.append(("score", label, {run: _score(tree, run, tree.step(None), entry["key"]) for run in runs}))
    groups: dict[tuple[str, str], dict[str, dict[int, Run]]] = {}
    for run in runs:
        name, variant = split(run.method)
        groups.setdefault((run.model, variant or ""), {}).setdefault(name, {})[run.seed] = run
    for (model, setting), methods in groups.items():
        is_main = model == tree.models[0]["key"] and not setting
        for baseline in (_baseline(tree), FAMILY):
            if baseline not in methods:
                continue
            # Table 3 compares the TEPO family with TEPO without KL; all else is compared with the baseline.
            compared = [n for n in methods if n != baseline and (baseline != FAMILY or n.startswith("tepo"))]
            for measure, label, figure in [*shown, *(of_main if is_main else [])]:
                pairs = [_pairs(methods[name], methods[baseline], figure) for name in compared]
                if found := [pair for pair in pairs if len(pair) > 1]:
                    yield _pooled((model, setting, baseline, measure, label), found)


def _pairs(own: Mapping[int, Run], base: Mapping[int, Run], figure: Mapping[Run, float | None]) -> Any:
    """(S, 2) figures of both sides, for the seeds that have both."""
    both = [(figure[own[seed]], figure[base[seed]]) for seed in sorted(own.keys() & base.keys())]
    return np.array([pair for pair in both if None not in pair], float)


def _pooled(names: tuple[str, str, str, str, str], pairs: Sequence[Any]) -> Spread:
    differences = [pair[:, 0] - pair[:, 1] for pair in pairs]
    sds = [float(difference.std(ddof=1)) for difference in differences]
    df = [len(pair) - 1 for pair in pairs]
    sd = math.sqrt(sum(n * value**2 for n, value in zip(df, sds, strict=True)) / sum(df))
    a, b = (sum(n * pair[:, side].var(ddof=1) for n, pair in zip(df, pairs, strict=True)) / sum(df) for side in (0, 1))
    # From the same pooled variances. Of two seeds there is none: a line through two points fits, whatever they are.
    correlation = (a + b - sd**2) / (2 * math.sqrt(a * b)) if a > 0 and b > 0 and max(df) > 1 else None
    mean = float(np.mean([abs(difference.mean()) for difference in differences]))
    seeds = min(map(len, pairs)), max(map(len, pairs))
    return Spread(*names, len(pairs), seeds, mean, sd, max(sds), correlation)


def _baseline(tree: Tree) -> str:
    return str(tree.matrix.get("baseline") or REFERENCE)  # an older tree does not name it


def _score(tree: Tree, run: Run, step: int | None, key: str) -> float | None:
    score = None if step is None else tree.scores.get((Checkpoint(run, step), key))
    return None if score is None or score.value is None else 100 * score.value


def table(heads: Sequence[str], words: int, rows: Iterable[Sequence[str]], text: Collection[int] = ()) -> list[str]:
    """A Markdown table whose columns are figures, but for the first `words` and those in `text`."""
    aligned = ("---" if place < words or place in text else "---:" for place in range(len(heads)))
    return [f"| {' | '.join(heads)} |", f"|{'|'.join(aligned)}|", *(f"| {' | '.join(row)} |" for row in rows)]


def spread_table(found: Sequence[Spread]) -> list[str]:
    rows = []
    for one in found:
        seeds = f"{one.seeds[0]}" if one.seeds[0] == one.seeds[1] else f"{one.seeds[0]} to {one.seeds[1]}"
        figures = [_number(value, one.measure) for value in (one.mean, one.sd, one.largest)]
        correlation = "–" if one.correlation is None else f"{one.correlation:.2f}"
        rows.append([*_names(one), one.label, str(one.methods), seeds, *figures, correlation])
    heads = ["model", "setting", "minus", "measure", "methods", "pairs", "mean difference", "sd of a paired difference"]
    return table([*heads, "largest", "correlation"], 4, rows)


def seed_table(found: Sequence[Spread]) -> list[str]:
    """A row for each spread: pairs of seeds for each effect, and what is found at the pairs that there are."""
    rows = []
    for one in found:
        needed = [
            f"{effect:g}: " + " / ".join(_needed(one.sd, effect, tests) for tests in FAMILIES)
            for effect in EFFECTS[one.measure]
        ]
        seeds = f"{one.seeds[1]} pairs: {' / '.join(_found(one, tests) for tests in FAMILIES)}"
        rows.append([*_names(one), one.label, _number(one.sd, one.measure), "; ".join(needed), seeds])
    heads = ["model", "setting", "minus", "measure", "sd", "pairs for an effect of"]
    return table([*heads, f"found at its pairs ({' / '.join(map(str, FAMILIES))})"], 4, rows, text={5})


def _needed(sd: float, effect: float, tests: int) -> str:
    needed = pairs_needed(sd, effect, tests)
    return f"{needed}" if needed < MOST else f"over {MOST}"


def _found(one: Spread, tests: int) -> str:
    value, top = detectable(one.sd, one.seeds[1], tests), 100 if one.measure == "score" else 1
    return _number(value, one.measure) if value < top else "none"  # no two methods can differ by so much


def difficulty_table(tree: Tree) -> list[str]:
    """The baseline's mean score on each benchmark after the table step, by model."""
    keys = [*(str(entry["key"]) for entry in tree.benchmarks), "avg_pooled"]
    rows = []
    for model in dict.fromkeys(run.model for run in tree.averaged):
        runs = [run for run in tree.averaged if (run.model, run.method) == (model, _baseline(tree))]
        cells = []
        for key in keys:
            values = [value for run in runs if (value := _score(tree, run, tree.step(None), key)) is not None]
            cells.append(f"{math.fsum(values) / len(values):.0f}" if values else "–")
        if runs:
            rows.append([model, *cells])
    return table([f"model, {_baseline(tree)}", *keys[:-1], "Avg. (pooled)"], 1, rows)


def _names(one: Spread) -> list[str]:
    return [one.model, one.setting or "the scale's own", one.baseline]


def _number(value: float, measure: str) -> str:
    return f"{value:.1f}" if measure == "score" else f"{value:.3f}".lstrip("0")


def main() -> None:
    parser = Parser(description="Measure what paired seeds can decide.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    tree = open_tree(parser.parse_args().results)
    found = list(spreads(tree))
    parts = {"difficulty": difficulty_table(tree), "spreads": spread_table(found), "seeds": seed_table(found)}
    for name, lines in parts.items():
        print("\n".join([f"## {name.capitalize()}", "", *lines, ""]))


if __name__ == "__main__":
    errors.run(main)
