"""Compare two results trees: what is equal bit for bit, and which values differ, each with a 95 % interval.

Two seeds or more: the mean difference, paired by seed. One seed: the difference of two scores, from their
intervals over problems; a measure of the curve has no interval.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.errors import ConfigError, MissingInputError
from core.layout import Checkpoint, Run
from evals import learning_curves
from evals.scores import AVERAGES
from evals.stats import ALPHA, compare, intervals
from evals.stats.sizes import contrast
from evals.tree import Score, Tree
from report.markdown import columns

LISTED = 40  # most differences
EQUAL = 1e-12  # scores are ratios of counts; a smaller difference is rounding of equal values
CURVE = ("area", "final", "grad_norm", "clip_tokens", "entropy_end")  # measures that every run has

Sides = tuple[Score | None, Score | None]


def compared(a: Tree, b: Tree) -> tuple[str, list[dict[str, Any]]]:
    """Return the text to print, and a row for each differing value of the runs and scores of both trees.

    Raises ConfigError where scale or problems differ, MissingInputError where nothing is shared.
    """
    figures = _figures(a, b)
    runs = [run for run in a.runs if a.record(run) is not None and b.record(run) is not None]
    scored = [{at for at, key in tree.scores if key in figures} for tree in (a, b)]
    both = [at for at in a.checkpoints if at in scored[0] & scored[1]]
    if not (runs or both):
        raise MissingInputError(f"cannot be compared: {a.given} and {b.given} have neither a run nor a score in common")
    scores = {at: {key: (a.scores.get((at, key)), b.scores.get((at, key))) for key in figures} for at in both}
    changed = [run for run in runs if _curves_differ(a, b, run)]
    # Values and verdicts only: the intervals may come from another version.
    same = [at for at, sides in scores.items() if all(_content(x) == _content(y) for x, y in sides.values())]
    equal = f"equal bit for bit: curves (apart from times) {len(runs) - len(changed)} of {len(runs)}, "
    equal += f"checkpoints' scores {len(same)} of {len(both)}"
    found = _differences(a, b, scores, runs, changed)
    return "\n".join([f"A: {a.given}; B: {b.given}", "", equal, "", *_verdict(found)]), found


def _figures(a: Tree, b: Tree) -> tuple[str, ...]:
    """Return the benchmarks of both, and the averages where both average over the same ones."""
    if a.scale != b.scale:
        raise ConfigError(f"cannot be compared: {a.given} is of scale {a.scale}, {b.given} of scale {b.scale}")
    of_a, of_b = ({e["key"]: f"{e['items']} problems x {e['samples']}" for e in t.benchmarks} for t in (a, b))
    shared = tuple(key for key in of_a if key in of_b)
    for key in shared:
        if of_a[key] != of_b[key]:
            raise ConfigError(
                f"cannot be compared: benchmark {key}: {a.given} has {of_a[key]}, {b.given} has {of_b[key]}"
            )
    return shared + AVERAGES * (of_a.keys() == of_b.keys())


def _curves_differ(a: Tree, b: Tree, run: Run) -> bool:
    # By rollout: a kept tree has no rows by update. Shared columns: a later version may record more.
    x, y = (learning_curves.read_curve(tree.layout.run(run) / "curve.csv").by_rollout() for tree in (a, b))
    common = [name for name in x[0] if name in y[0] and not name.startswith("seconds_")]
    return [[row[name] for name in common] for row in x] != [[row[name] for name in common] for row in y]


def _content(score: Score | None) -> tuple[Any, ...]:
    return (score.value, score.counts) if score else ()


def _differences(
    a: Tree, b: Tree, scores: Mapping[Checkpoint, Mapping[str, Sides]], runs: Sequence[Run], changed: Sequence[Run]
) -> list[dict[str, Any]]:
    """Return a row for each differing value (method or checkpoint, figure, both values, their difference with interval,
    whether it `moved`): moved ones first, then by p."""
    values: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}  # (method or its checkpoint, figure) -> by seed
    ends: dict[tuple[str, str], Sides] = {}  # scores of the last seed with their intervals
    for at, figures in scores.items():
        for key, (x, y) in figures.items():
            if x and y and x.value is not None and y.value is not None:
                place = f"{at.run.model}/{at.run.method}/step{at.step}", key
                values.setdefault(place, {})[at.run.seed], ends[place] = (y.value, x.value), (x, y)
    methods = {(run.model, run.method) for run in changed}
    for run in (run for run in runs if (run.model, run.method) in methods):
        of_a, of_b = (learning_curves.measure_run(tree, run).values for tree in (a, b))
        for key in CURVE:
            if (old := of_a[key]) is not None and (new := of_b[key]) is not None:
                values.setdefault((f"{run.model}/{run.method}", key), {})[run.seed] = new, old
    rows: list[dict[str, Any]] = []
    for (where, key), by_seed in values.items():
        if all(abs(new - old) <= EQUAL for new, old in by_seed.values()):
            continue
        top = learning_curves.top(key) if key in learning_curves.MEASURES else 1.0
        row = contrast(by_seed, a.clean_models(where.partition("/")[0]), top)
        row |= {"where": where, "figure": key, "a": row["mean_b"], "b": row["mean_a"], "seeds": len(by_seed)}
        if len(by_seed) == 1:
            row |= {"where": f"{where}, seed {next(iter(by_seed))}"} | _over_problems(*ends.get((where, key), ()))
        rows.append(row)
    for row, p in zip(rows, compare.holm([row["p"] for row in rows]), strict=True):
        # Several seeds have no interval where all of them differ by the same amount.
        row["moved"] = row["seeds"] > 1 if p is None else p < ALPHA
    return sorted(rows, key=lambda row: (not row["moved"], row["p"] is None, row["p"] or 0.0))


def _over_problems(a: Any = None, b: Any = None) -> dict[str, Any]:
    """Return b - a with the MOVER interval of both, which is at least as wide as one paired by problem. p is computed
    from the nearer end with the normal distribution."""
    if a is None or None in (a.low, a.high, b.low, b.high):
        return {}
    difference, (low, high) = intervals.combine([1, 1], [b.value, -a.value], [b.low, -a.high], [b.high, -a.low])
    se = float(difference - low if difference > 0 else high - difference) / float(intervals.quantile(math.inf))
    p = float(intervals.p_value(difference, se, math.inf)) if se > 0 else None
    return {"low": float(low), "high": float(high), "p": p}


def _verdict(found: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Yield a table of the largest differences, and the verdict."""
    if not found:
        yield "verdict: no figure differs"
        return
    rows = [("where", "figure", "A", "B", "B - A", "95 % interval, or two seeds", "")]
    rows += [
        (row["where"], row["figure"], f"{row['a']:.4g}", f"{row['b']:.4g}", f"{row['difference']:+.3g}",
         " / ".join(f"{gain:+.3g}" for gain in row["gains"]) if row["seeds"] == 2 else
         "-" if row["low"] is None else f"{row['low']:+.3g} to {row['high']:+.3g}", "moved" * row["moved"])
        for row in found[:LISTED]
    ]  # fmt: skip
    yield from (f"{len(found)} figures differ; those with the smallest p:", "")
    yield from columns(rows)
    moved, unknown = sum(row["moved"] for row in found), sum(row["low"] is None for row in found)
    beyond = f"MOVED: {moved} of {len(found)} figures that differ do so" if moved else "no figure differs"
    yield from ("", f"verdict: {beyond} beyond noise; {unknown} have no interval")
