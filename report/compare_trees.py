"""Compare two results trees: what is equal bit for bit, and which values differ, each with a 95 % interval.

Two seeds or more: the mean difference, paired by seed. One seed: the difference of two scores, from their
intervals over problems; a measure of the curve has no interval.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import ConfigError, MissingInputError
from core.layout import Checkpoint, Run
from evals import learning_curves
from evals.scores import AVERAGES
from evals.stats import compare, intervals
from evals.tree import Tree
from report.compare import contrast
from report.markdown import markdown_table

LISTED = 12  # names that only one side has, and differences; --csv has all
MADE_BY = ("commit", "dirty", "python", "cpu")
EQUAL = 1e-12  # scores are ratios of counts; a smaller difference is rounding of equal values
CURVE = ("area", "final", "grad_norm", "clip_tokens", "ratio_spread", "entropy_end")  # measures that every run has
HEADER = ("where", "figure", "a", "b", "difference", "low", "high", "p_holm", "moved", "how", "seeds")


@dataclass(frozen=True)
class Overlap:
    """Finished runs and scored checkpoints that two trees share, in the order of the first."""

    trees: tuple[Tree, Tree]
    runs: tuple[Run, ...]
    checkpoints: tuple[Checkpoint, ...]
    figures: tuple[str, ...]  # benchmarks of both; and the averages, where both average over the same benchmarks
    other_curves: frozenset[Run]  # runs whose curves differ in a shared column other than times


def overlap(a: Tree, b: Tree) -> Overlap:
    """Return what can be compared: curves and benchmark scores that both trees have.

    Raises ConfigError where scale or problems differ, MissingInputError where nothing is shared.
    """
    if a.scale != b.scale:
        raise ConfigError(f"cannot be compared: {a.given} is of scale {a.scale}, {b.given} of scale {b.scale}")
    sizes_a, sizes_b = ({e["key"]: f"{e['items']} problems x {e['samples']}" for e in t.benchmarks} for t in (a, b))
    shared = [key for key in sizes_a if key in sizes_b]
    for key in shared:
        if sizes_a[key] != sizes_b[key]:
            raise ConfigError(
                f"cannot be compared: benchmark {key}: {a.given} has {sizes_a[key]}, {b.given} has {sizes_b[key]}"
            )
    figures = tuple(shared) + AVERAGES * (sizes_a.keys() == sizes_b.keys())
    runs = tuple(run for run in a.runs if a.record(run) is not None and b.record(run) is not None)
    scored_a, scored_b = ({checkpoint for checkpoint, key in tree.scores if key in figures} for tree in (a, b))
    checkpoints = tuple(checkpoint for checkpoint in a.checkpoints if checkpoint in scored_a & scored_b)
    if not (runs or checkpoints):
        raise MissingInputError(f"cannot be compared: {a.given} and {b.given} have neither a run nor a score in common")
    return Overlap((a, b), runs, checkpoints, figures, frozenset(run for run in runs if _curves_differ(a, b, run)))


def _curves_differ(a: Tree, b: Tree, run: Run) -> bool:
    # By rollout: a kept tree has no rows by update. Shared columns: a later version may record more.
    x, y = (learning_curves.read_curve(tree.layout.run(run) / "curve.csv").by_rollout() for tree in (a, b))
    common = [name for name in x[0] if name in y[0] and not name.startswith("seconds_")]
    return [[row[name] for name in common] for row in x] != [[row[name] for name in common] for row in y]


def differences(common: Overlap) -> list[dict[str, Any]]:
    """Return a row by HEADER for each differing value; moved ones first, then by the share of their interval."""
    values: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}  # (method or its checkpoint, figure) -> by seed
    ends: dict[tuple[str, str], tuple[Any, Any]] = {}  # of the last seed: its scores with their intervals
    for checkpoint in common.checkpoints:
        run = checkpoint.run
        for key in common.figures:
            x, y = (tree.scores.get((checkpoint, key)) for tree in common.trees)
            if x and y and x.value is not None and y.value is not None:
                place = f"{run.model}/{run.method}/step{checkpoint.step}", key
                values.setdefault(place, {})[run.seed], ends[place] = (y.value, x.value), (y, x)
    changed = {(run.model, run.method) for run in common.other_curves}
    for run in (run for run in common.runs if (run.model, run.method) in changed):
        of_a, of_b = (learning_curves.measure_run(tree, run).values for tree in common.trees)
        for key in CURVE:
            if (a := of_a[key]) is not None and (b := of_b[key]) is not None:
                values.setdefault((f"{run.model}/{run.method}", key), {})[run.seed] = b, a
    rows: list[dict[str, Any]] = []
    for (where, key), by_seed in values.items():
        if all(abs(b - a) <= EQUAL for b, a in by_seed.values()):
            continue
        top = learning_curves.top(key) if key in learning_curves.MEASURES else 1.0
        row = contrast(by_seed, common.trees[0].clean_models(where.partition("/")[0]), top)
        row |= {"where": where, "figure": key, "a": row["mean_b"], "b": row["mean_a"], "seeds": len(by_seed)}
        if len(by_seed) == 1:
            row |= {"where": f"{where}, seed {next(iter(by_seed))}"} | _over_problems(*ends.get((where, key), ()))
        rows.append(row)
    for row, p in zip(rows, compare.holm([row.pop("p") for row in rows]), strict=True):
        # No interval although there are several seeds: all of them differ by the same amount.
        moved = row["seeds"] > 1 if p is None else p < compare.ALPHA
        row |= {"p_holm": p, "moved": "yes" if moved else "no"}
        row["share"] = 0.0 if row["low"] is None else abs(row["difference"]) / (row["high"] - row["low"])
    return sorted(rows, key=lambda row: (row["moved"] == "no", -row["share"], row["where"], row["figure"]))


def _over_problems(b: Any = None, a: Any = None) -> dict[str, Any]:
    """Return b - a with the MOVER interval of both: wider than one paired by problem, never narrower. p follows the
    normal distribution from the nearer end."""
    if a is None or None in (a.low, a.high, b.low, b.high):
        return {"how": "one seed, and no interval over problems"}
    difference, (low, high) = intervals.combine([1, 1], [b.value, -a.value], [b.low, -a.high], [b.high, -a.low])
    se = float(difference - low if difference > 0 else high - difference) / float(intervals.quantile(math.inf))
    p = float(intervals.p_value(difference, se, math.inf)) if se > 0 else None
    return {"low": float(low), "high": float(high), "p": p, "how": "the two scores' own intervals"}


def text(common: Overlap, found: Sequence[Mapping[str, Any]]) -> str:
    """Return what only one side has, what is equal, the largest differences, and the verdict."""
    names, lines = [_names(tree) for tree in common.trees], []
    for name, tree, ours, theirs in zip("AB", common.trees, names, names[::-1], strict=True):
        lines.append(f"{name}  {tree.given}: {len(tree.checkpoints)} checkpoints planned")
        if only := [one for one in ours if one not in theirs]:
            more = f" and {len(only) - LISTED} more" if len(only) > LISTED else ""
            lines.append(f"   only in {name} ({len(only)}): {', '.join(only[:LISTED])}{more}")
    trained = [checkpoint for checkpoint in common.checkpoints if checkpoint.run in common.runs]
    counts = {
        "curves (apart from times)": (len(common.runs) - len(common.other_curves), len(common.runs)),
        "checkpoints' weights": (sum(_same_weights(common, one) for one in trained), len(trained)),
        "checkpoints' scores": (sum(_same_scores(common, c) for c in common.checkpoints), len(common.checkpoints)),
    }
    lines += ["equal bit for bit: " + ", ".join(f"{name} {n} of {of}" for name, (n, of) in counts.items()), ""]
    if not found:
        return "\n".join([*lines, "verdict: no figure differs"])
    rows = [
        (row["where"], row["figure"], f"{row['a']:.4g}", f"{row['b']:.4g}", f"{row['difference']:+.3g}",
         "-" if row["low"] is None else f"{row['low']:+.3g} to {row['high']:+.3g}", "moved" * (row["moved"] == "yes"))
        for row in found[:LISTED]
    ]  # fmt: skip
    lines += [f"{len(found)} figures differ; the largest, by their intervals:", ""]
    lines += [*markdown_table(("where", "figure", "A", "B", "B - A", "95 % interval", ""), rows, "---:"), ""]
    moved, unknown = sum(row["moved"] == "yes" for row in found), sum(row["low"] is None for row in found)
    beyond = f"MOVED: {moved} of {len(found)} figures that differ do so" if moved else "no figure differs"
    return "\n".join([*lines, f"verdict: {beyond} beyond noise; {unknown} have no interval"])


def _same_weights(common: Overlap, checkpoint: Checkpoint) -> bool:
    records = [tree.record(checkpoint.run) or {} for tree in common.trees]
    a, b = (record.get("outputs", {}).get(f"checkpoints/step{checkpoint.step}") for record in records)
    return a is not None and a == b


def _same_scores(common: Overlap, checkpoint: Checkpoint) -> bool:
    """Compare values and verdicts only: the intervals may come from another version."""
    found = [[tree.scores.get((checkpoint, key)) for key in common.figures] for tree in common.trees]
    a, b = ([score and (score.value, score.counts) for score in side] for side in found)
    return a == b


def _names(tree: Tree) -> dict[str, None]:
    """Return what produced a tree (commits, versions, processors, settings) and its content (benchmarks, runs)."""
    names: list[str] = []
    records = {run: record for run in tree.runs if (record := tree.record(run)) is not None}
    for record in records.values():
        environment = record.get("environment") or {}
        facts = {name: environment.get(name) for name in MADE_BY} | (environment.get("packages") or {})
        names += [f"{name} {value}" for name, value in facts.items()]
    names += [f"{key}={value}" for key, value in (tree.matrix.get("settings") or {}).items()]
    names += [str(entry["key"]) for entry in tree.benchmarks]
    return dict.fromkeys([*names, *(run.path.as_posix() for run in records)])
