"""Did a number move beyond noise between two results trees? One cell for each figure that is not equal.

Which noise: training again with other arithmetic is like training with another seed, so a retrained method is held
against the differences between seeds (`report.comparison.seed_noise`), which are far larger than the sampling of
problems explains. One checkpoint alone (equal weights graded anew, or a single seed everywhere) is held against the
sampling of problems, paired where both trees keep their grades.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from records.layout import BASE, Checkpoint
from report import convergence
from report.comparison.overlap import Overlap
from report.comparison.seed_noise import EQUAL, Arm, Cell, Series, corrected, seed_cells
from report.results import Score, Tree

if TYPE_CHECKING:
    from evals.stats.estimate import Comparison

ONE_SEED = "one seed in each: the spread between seeds is unknown"

# Of the measures of a learning curve, those that every run has; True: told as a share of the mean, since
# gradients and clip fractions of methods differ tenfold, and so does their spread.
CURVE = {
    "area": False,
    "final": False,
    "grad_norm": True,
    "clip_tokens": True,
    "ratio_spread": True,
    "entropy_end": True,
}


def cells(common: Overlap) -> list[Cell]:
    """Every figure of both trees that differs, with Holm's correction over all that have a p."""
    return corrected([*_scores(common), *_curves(common)])


def _scores(common: Overlap) -> Iterable[Cell]:
    changed = {_arm(c) for c in common.checkpoints if c.run.method != BASE and not common.same_weights(c)}
    paired = {}
    for key in dict.fromkeys(key for _, key in common.a.scores):
        a, b = (_by_arm(tree, common.checkpoints, key) for tree in common.trees)
        at_seeds = seed_cells(key, a, b, changed.__contains__, relative=False)
        yield from at_seeds.values()
        for checkpoint in common.checkpoints:
            arm, seed = _arm(checkpoint), checkpoint.run.seed
            if arm not in at_seeds and seed in a.get(arm, {}) and seed in b.get(arm, {}):
                x, y = a[arm][seed], b[arm][seed]
                if abs(x - y) > EQUAL:
                    if checkpoint not in paired:
                        paired[checkpoint] = _paired(common, checkpoint)
                    gain = paired[checkpoint]
                    by_problem = gain[key] if gain else _unpaired(*(t.scores[checkpoint, key] for t in common.trees))
                    yield Cell(checkpoint.path.as_posix(), key, False, x, y, by_problem, arm in changed)


def _curves(common: Overlap) -> Iterable[Cell]:
    changed = {Arm(run.model, run.method, None) for run in common.runs if not common.same_curve(run)}
    done = [convergence.measures(tree) if changed else [] for tree in common.trees]
    for key, relative in CURVE.items():
        title = convergence.MEASURES[key].title
        a, b = (_by_run([one for one in side if one.run in common.runs], key) for side in done)
        found = seed_cells(title, a, b, changed.__contains__, relative=relative)
        yield from found.values()
        for arm in a:
            x, y = a[arm], b.get(arm, {})
            if arm not in found and any(abs(x[seed] - y[seed]) > EQUAL for seed in set(x) & set(y)):
                one, two = (math.fsum(side.values()) / len(side) for side in (x, y))
                yield Cell(str(arm), title, relative, one, two, _untested(one, two, relative), True)


def _paired(common: Overlap, checkpoint: Checkpoint) -> Mapping[str, Comparison] | None:
    """b - a for one checkpoint on the same problems; None unless both trees keep grades and samples."""
    from evals.score import paired

    keys = [str(benchmark["key"]) for benchmark in common.a.benchmarks]
    folders = [folder(checkpoint) for tree in common.trees for folder in (tree.layout.grades, tree.layout.samples)]
    if not all((folder / f"{key}.parquet").is_file() for folder in folders for key in keys):
        return None
    return paired(common.b.layout, checkpoint, checkpoint, keys, versus=common.a.layout)


def _unpaired(a: Score, b: Score) -> Comparison:
    """Two scores on the same problems taken as independent: wider than paired by problem, never narrower.

    MOVER of the two intervals (as in `evals.stats.intervals.combine`); p by the normal law from the nearer end.
    """
    from evals.stats import intervals
    from evals.stats.estimate import CONFIDENCE, Comparison

    assert a.value is not None
    assert b.value is not None
    difference = b.value - a.value
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Comparison(difference, None, None, None, None, None, "problem", "a score without interval", 0)
    below = math.hypot(b.value - b.low, a.high - a.value)
    above = math.hypot(b.high - b.value, a.value - a.low)
    factor = float(intervals.quantile(math.inf, CONFIDENCE))
    se = (below if difference > 0 else above) / factor
    p = float(intervals.p_value(difference, se, math.inf))
    how = "not paired (no grades): from the two scores' intervals"
    return Comparison(difference, se, difference - below, difference + above, p, None, "problem", how, a.items or 0)


def _untested(a: float, b: float, relative: bool) -> Comparison:
    from evals.stats.estimate import Comparison

    scale = (abs(a) + abs(b)) / 2 if relative else 1.0
    return Comparison((b - a) / scale, None, None, None, None, None, "seed", ONE_SEED, 1)


def _arm(checkpoint: Checkpoint) -> Arm:
    return Arm(checkpoint.run.model, checkpoint.run.method, checkpoint.step)


def _by_arm(tree: Tree, checkpoints: Iterable[Checkpoint], key: str) -> Series:
    found: Series = defaultdict(dict)
    for checkpoint in checkpoints:
        score = tree.scores.get((checkpoint, key))
        if score is not None and score.value is not None:
            found[_arm(checkpoint)][checkpoint.run.seed] = score.value
    return dict(found)


def _by_run(done: Iterable[convergence.RunMeasures], key: str) -> Series:
    found: Series = defaultdict(dict)
    for one in done:
        if (value := one.values[key]) is not None:
            found[Arm(one.run.model, one.run.method, None)][one.run.seed] = value
    return dict(found)
