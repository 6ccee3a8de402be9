"""Did a number move beyond noise between two results trees? One cell for each figure that is not equal.

Which noise: training again with other arithmetic is like training with another seed, so a retrained method is tested
against the differences between seeds (`report.provenance.seed_noise`), which are far larger than the sampling of
problems explains. One checkpoint alone (equal weights graded anew, or a single seed everywhere) is tested against the
sampling of problems, paired where both trees keep their grades.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from evals import learning_curves
from evals.learning_curves import INDEX
from evals.score import paired
from evals.stats import intervals
from evals.stats.estimate import Comparison
from records.errors import ConfigError, MissingInputError
from records.files import read_csv
from records.layout import BASE, Checkpoint, Run
from records.results_tree import Score, Tree
from records.scores import AVERAGES
from report.provenance.seed_noise import EQUAL, Arm, Cell, Series, corrected, seed_cells

TIMES = "seconds_"  # columns of a curve that may differ between two runs of one seed
MADE_BY = ("commit", "dirty", "python", "cpu")
ONE_SEED = "one seed in each: the spread between seeds is unknown"

# Measures of a learning curve that every run has. True: shown as a share of the mean, since gradients and clip
# fractions of methods differ tenfold, and so does their spread.
CURVE = {
    "area": False,
    "final": False,
    "grad_norm": True,
    "clip_tokens": True,
    "ratio_spread": True,
    "entropy_end": True,
}


# What two trees have in common, and what of it is equal bit for bit.


@dataclass(frozen=True)
class Overlap:
    """Finished runs and scored checkpoints of two trees, in the first one's order.

    figures: the benchmarks that both have; and the averages, where both average over the same benchmarks.
    """

    a: Tree
    b: Tree
    runs: tuple[Run, ...]
    checkpoints: tuple[Checkpoint, ...]
    figures: tuple[str, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def trees(self) -> tuple[Tree, Tree]:
        return self.a, self.b

    def same_curve(self, run: Run) -> bool:
        """Equal in every column that both have, but the times: a later version may record more figures."""
        a, b = (_untimed_curve(tree, run) for tree in self.trees)
        common = sorted(a[0].keys() & b[0].keys()) if a and b else []
        return [[row[name] for name in common] for row in a] == [[row[name] for name in common] for row in b]

    def same_weights(self, checkpoint: Checkpoint) -> bool:
        """By the hashes in the runs' records; for a base model, by the weights that its runs started from."""
        weights = _weights(self.a, checkpoint)
        return weights is not None and weights == _weights(self.b, checkpoint)

    def same_scores(self, checkpoint: Checkpoint) -> bool:
        """By values and verdicts: their intervals may be of another version."""
        found = [[tree.scores.get((checkpoint, key)) for key in self.figures] for tree in self.trees]
        a, b = ([score and (score.value, score.counts) for score in side] for side in found)
        return a == b

    def changed_settings(self) -> list[str]:
        """Settings in which runs of the two trees differ, as `training.learning_rate: 0.0001 -> 0.0002 (12 runs)`."""
        changes: Counter[str] = Counter()
        for run in self.runs:
            a, b = (dict(_flat((tree.record(run) or {})["spec"])) for tree in self.trees)
            for key in sorted(set(a) | set(b)):
                if a.get(key) != b.get(key):
                    changes[f"{key}: {a.get(key)} -> {b.get(key)}"] += 1
        return [f"{change} ({count} runs)" for change, count in changes.items()]

    def made_by(self) -> list[dict[str, list[str]]]:
        """For each tree, commit, interpreter, CPU and packages of its runs: every value that occurs, by name."""
        facts_of_trees = []
        for tree in self.trees:
            values: dict[str, set[str]] = defaultdict(set)
            for run in tree.runs:
                environment = (tree.record(run) or {}).get("environment") or {}
                facts = {name: environment.get(name) for name in MADE_BY} | (environment.get("packages") or {})
                for name, value in facts.items():
                    values[name].add("unknown" if value is None else str(value))
            facts_of_trees.append({name: sorted(occurring) for name, occurring in values.items()})
        return facts_of_trees


def overlap(a: Tree, b: Tree) -> Overlap:
    """What can be compared: curves of the runs and scores on the benchmarks that both trees have.

    Raises ConfigError when a name does not mean the same in both (the scale, the problems of a benchmark), and
    MissingInputError when the trees have neither a finished run nor a score in common.
    """
    if a.scale != b.scale:
        raise ConfigError(f"cannot be compared: {a.root} is of scale {a.scale}, {b.root} of scale {b.scale}")
    sizes_a, sizes_b = ({e["key"]: f"{e['items']} problems x {e['samples']}" for e in t.benchmarks} for t in (a, b))
    shared = [key for key in sizes_a if key in sizes_b]
    for key in shared:
        if sizes_a[key] != sizes_b[key]:
            raise ConfigError(
                f"cannot be compared: benchmark {key}: {a.root} has {sizes_a[key]}, {b.root} has {sizes_b[key]}"
            )
    figures = tuple(shared) + AVERAGES * (sizes_a.keys() == sizes_b.keys())
    runs_a, runs_b = ({run for run in tree.runs if tree.record(run) is not None} for tree in (a, b))
    scored_a, scored_b = ({checkpoint for checkpoint, key in tree.scores if key in figures} for tree in (a, b))
    if not (runs_a & runs_b or scored_a & scored_b):
        raise MissingInputError(f"cannot be compared: {a.root} and {b.root} have neither a run nor a score in common")
    return Overlap(
        a,
        b,
        runs=tuple(run for run in a.runs if run in runs_a & runs_b),
        checkpoints=tuple(checkpoint for checkpoint in a.checkpoints if checkpoint in scored_a & scored_b),
        figures=figures,
        only_a=(*_names(runs_a - runs_b, scored_a - scored_b), *sorted(sizes_a.keys() - sizes_b.keys())),
        only_b=(*_names(runs_b - runs_a, scored_b - scored_a), *sorted(sizes_b.keys() - sizes_a.keys())),
    )


def _names(runs: set[Run], checkpoints: set[Checkpoint]) -> Iterator[str]:
    """Runs, and the checkpoints that are not one of theirs."""
    yield from (run.path.as_posix() for run in sorted(runs))
    yield from (c.path.as_posix() for c in sorted(checkpoints) if c.run not in runs)


def _untimed_curve(tree: Tree, run: Run) -> list[dict[str, str]]:
    rows = read_csv(tree.layout.run(run) / "curve.csv", "the learning curve", INDEX)
    return [{name: cell for name, cell in row.items() if not name.startswith(TIMES)} for row in rows]


def _weights(tree: Tree, checkpoint: Checkpoint) -> object:
    if checkpoint.run.method == BASE:
        records = [tree.record(run) or {} for run in tree.runs if tree.base(run.model, run.seed) == checkpoint]
        start = {record["inputs"].get("base") for record in records if "inputs" in record}
        return start.pop() if len(start) == 1 else None
    return (tree.record(checkpoint.run) or {}).get("outputs", {}).get(f"checkpoints/step{checkpoint.step}")


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner


# The figures that differ.


def cells(common: Overlap) -> list[Cell]:
    """Every figure of both trees that differs, with Holm's correction over all that have a p."""
    return corrected([*_scores(common), *_curves(common)])


def _scores(common: Overlap) -> Iterable[Cell]:
    changed = {_arm(c) for c in common.checkpoints if c.run.method != BASE and not common.same_weights(c)}
    by_problem: dict[Checkpoint, Mapping[str, Comparison] | None] = {}
    for key in common.figures:
        a, b = (_series_of_scores(tree, common.checkpoints, key) for tree in common.trees)
        at_seeds = seed_cells(key, a, b, changed, relative=False)
        yield from at_seeds.values()
        for checkpoint in common.checkpoints:
            arm, seed = _arm(checkpoint), checkpoint.run.seed
            if arm in at_seeds or seed not in a.get(arm, {}) or seed not in b.get(arm, {}):
                continue
            x, y = a[arm][seed], b[arm][seed]
            if abs(x - y) > EQUAL:
                if checkpoint not in by_problem:
                    by_problem[checkpoint] = _paired(common, checkpoint)
                gains = by_problem[checkpoint]
                gain = gains[key] if gains else _unpaired(*(t.scores[checkpoint, key] for t in common.trees))
                yield Cell(checkpoint.path.as_posix(), key, False, x, y, gain, arm in changed)


def _curves(common: Overlap) -> Iterable[Cell]:
    changed = {Arm(run.model, run.method, None) for run in common.runs if not common.same_curve(run)}
    if not changed:
        return
    measured = [learning_curves.measures(tree) for tree in common.trees]
    for key, relative in CURVE.items():
        title = learning_curves.MEASURES[key].title
        a, b = (_series_of_curves([run for run in side if run.run in common.runs], key) for side in measured)
        at_seeds = seed_cells(title, a, b, changed, relative=relative)
        yield from at_seeds.values()
        for arm in a:
            x, y = a[arm], b.get(arm, {})
            if arm not in at_seeds and any(abs(x[seed] - y[seed]) > EQUAL for seed in set(x) & set(y)):
                one, two = fmean(x.values()), fmean(y.values())
                scale = (abs(one) + abs(two)) / 2 if relative else 1.0
                gain = Comparison((two - one) / scale, None, None, None, None, None, "seed", ONE_SEED, 1)
                yield Cell(str(arm), title, relative, one, two, gain, True)


def _paired(common: Overlap, checkpoint: Checkpoint) -> Mapping[str, Comparison] | None:
    """b - a for one checkpoint on the same problems; None unless both trees keep grades and samples."""
    keys = [key for key in common.figures if key not in AVERAGES]
    folders = [folder(checkpoint) for tree in common.trees for folder in (tree.layout.grades, tree.layout.samples)]
    if not all((folder / f"{key}.parquet").is_file() for folder in folders for key in keys):
        return None
    return paired(common.b.layout, checkpoint, checkpoint, keys, versus=common.a.layout)


def _unpaired(a: Score, b: Score) -> Comparison:
    """Two scores on the same problems taken as independent: wider than paired by problem, never narrower.

    MOVER of the two intervals (as in `evals.stats.intervals.combine`); p by the normal law from the nearer end.
    """
    assert a.value is not None
    assert b.value is not None
    difference = b.value - a.value
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Comparison(difference, None, None, None, None, None, "problem", "a score without interval", 0)
    below = math.hypot(b.value - b.low, a.high - a.value)
    above = math.hypot(b.high - b.value, a.value - a.low)
    factor = float(intervals.quantile(math.inf))
    se = (below if difference > 0 else above) / factor
    p = float(intervals.p_value(difference, se, math.inf))
    how = "not paired (no grades): from the two scores' intervals"
    return Comparison(difference, se, difference - below, difference + above, p, None, "problem", how, a.items or 0)


def _arm(checkpoint: Checkpoint) -> Arm:
    return Arm(checkpoint.run.model, checkpoint.run.method, checkpoint.step)


def _series_of_scores(tree: Tree, checkpoints: Iterable[Checkpoint], key: str) -> Series:
    series: Series = defaultdict(dict)
    for checkpoint in checkpoints:
        score = tree.scores.get((checkpoint, key))
        if score is not None and score.value is not None:
            series[_arm(checkpoint)][checkpoint.run.seed] = score.value
    return dict(series)


def _series_of_curves(runs: Iterable[learning_curves.RunMeasures], key: str) -> Series:
    series: Series = defaultdict(dict)
    for measured in runs:
        value = measured.values[key]
        if value is not None:
            series[Arm(measured.run.model, measured.run.method, None)][measured.run.seed] = value
    return dict(series)
