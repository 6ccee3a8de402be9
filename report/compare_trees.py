"""Compare two results trees: what is equal bit for bit, and which values differ, each with a 95 % interval.

Two seeds or more: the mean difference, paired by seed. One seed: the difference of two scores, from their
intervals over problems; a measure of the curve has no interval.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from core.errors import ConfigError, MissingInputError
from core.files import to_csv
from core.layout import Checkpoint, Run
from evals import learning_curves
from evals.scores import AVERAGES
from evals.stats import compare, intervals
from evals.stats.sizes import contrast
from evals.tree import Tree
from report.markdown import markdown_table

LISTED = 12  # of the names that only one side has
TIMES = "seconds_"  # columns of a curve that may differ between two runs of one seed
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

    @cached_property
    def other_curves(self) -> set[Run]:
        """Return runs whose curves differ in a shared column other than times: a later version may record more."""
        found = set()
        for run in self.runs:
            curves = [learning_curves.read_curve(tree.layout.run(run) / "curve.csv") for tree in self.trees]
            a, b = map(learning_curves.rollout_rows, curves)  # a reference does not keep rows by update
            common = [name for name in a[0] if name in b[0] and not name.startswith(TIMES)]
            if [[row[name] for name in common] for row in a] != [[row[name] for name in common] for row in b]:
                found.add(run)
        return found

    def same_weights(self, checkpoint: Checkpoint) -> bool:
        name = f"checkpoints/step{checkpoint.step}"
        a, b = ((tree.record(checkpoint.run) or {}).get("outputs", {}).get(name) for tree in self.trees)
        return a is not None and a == b

    def same_scores(self, checkpoint: Checkpoint) -> bool:
        """Compare values and verdicts only: the intervals may come from another version."""
        found = [[tree.scores.get((checkpoint, key)) for key in self.figures] for tree in self.trees]
        a, b = ([score and (score.value, score.counts) for score in side] for side in found)
        return a == b


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
    return Overlap((a, b), runs, checkpoints, figures)


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
        top = learning_curves.MEASURES[key].top if key in learning_curves.MEASURES else 1.0
        row = contrast(by_seed, common.trees[0].clean_models(where.partition("/")[0]), top)
        row |= {"where": where, "figure": key, "a": row["mean_b"], "b": row["mean_a"], "seeds": len(by_seed)}
        if len(by_seed) == 1:
            row |= {"where": f"{where}, seed {next(iter(by_seed))}"} | _over_problems(
                *ends.get((where, key), (None, None))
            )
        rows.append(row)
    for row, p in zip(rows, compare.holm([row.pop("p") for row in rows]), strict=True):
        # No interval although there are several seeds: all of them differ by the same amount.
        row |= {"p_holm": p, "moved": row["seeds"] > 1 if p is None else p < compare.ALPHA}
        row["share"] = 0.0 if row["low"] is None else abs(row["difference"]) / (row["high"] - row["low"])
    return sorted(rows, key=lambda row: (not row["moved"], -row["share"], row["where"], row["figure"]))


def _over_problems(b: Any, a: Any) -> dict[str, Any]:
    """Return b - a with the MOVER interval of both: wider than one paired by problem, never narrower. p follows the
    normal distribution from the nearer end."""
    if a is None or any(end is None for end in (a.low, a.high, b.low, b.high)):
        return {"how": "one seed, and no interval over problems"}
    difference, (low, high) = intervals.combine([1, 1], [b.value, -a.value], [b.low, -a.high], [b.high, -a.low])
    se = float(difference - low if difference > 0 else high - difference) / float(intervals.quantile(math.inf))
    p = float(intervals.p_value(difference, se, math.inf)) if se > 0 else None
    return {"low": float(low), "high": float(high), "p": p, "how": "the two scores' own intervals"}


def text(common: Overlap, found: Sequence[Mapping[str, Any]], largest: int) -> str:
    """Return what only one side has, what is equal, the largest differences, and the verdict."""
    names_a, names_b = (_names(tree) for tree in common.trees)
    lines = []
    for name, tree, only in zip("AB", common.trees, (names_a.keys() - names_b, names_b.keys() - names_a), strict=True):
        lines.append(f"{name}  {tree.given}: {len(tree.checkpoints)} checkpoints planned")
        names = [one for one in (names_a | names_b) if one in only]
        if names:
            more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
            lines.append(f"   only in {name} ({len(names)}): {', '.join(names[:LISTED])}{more}")
    trained = [c for c in common.checkpoints if c.run in common.runs]
    counts = {
        "curves (apart from times)": (len(common.runs) - len(common.other_curves), len(common.runs)),
        "checkpoints' weights": (sum(map(common.same_weights, trained)), len(trained)),
        "checkpoints' scores": (sum(map(common.same_scores, common.checkpoints)), len(common.checkpoints)),
    }
    lines += ["equal bit for bit: " + ", ".join(f"{name} {n} of {of}" for name, (n, of) in counts.items()), ""]
    if not found:
        return "\n".join([*lines, "verdict: no figure differs"])
    rows = [
        (row["where"], row["figure"], f"{row['a']:.4g}", f"{row['b']:.4g}", f"{row['difference']:+.3g}",
         "-" if row["low"] is None else f"{row['low']:+.3g} to {row['high']:+.3g}", "moved" * row["moved"])
        for row in found[:largest]
    ]  # fmt: skip
    lines += [f"{len(found)} figures differ; the largest, by their intervals:", ""]
    lines += [*markdown_table(("where", "figure", "A", "B", "B - A", "95 % interval", ""), rows, "---:"), ""]
    moved, unknown = sum(row["moved"] for row in found), sum(row["low"] is None for row in found)
    beyond = f"MOVED: {moved} of {len(found)} figures that differ do so" if moved else "no figure differs"
    return "\n".join([*lines, f"verdict: {beyond} beyond noise; {unknown} have no interval"])


def csv_text(found: Sequence[Mapping[str, Any]]) -> str:
    return to_csv(HEADER, ({**row, "moved": "yes" if row["moved"] else "no"} for row in found))


def _names(tree: Tree) -> dict[str, None]:
    """Return what produced a tree (commits, versions, processors, settings) and its content (benchmarks, runs)."""
    finished = [run for run in tree.runs if tree.record(run) is not None]
    names: dict[str, None] = {}
    for run in finished:
        environment = (tree.record(run) or {}).get("environment") or {}
        facts = {name: environment.get(name) for name in MADE_BY} | (environment.get("packages") or {})
        names |= dict.fromkeys(f"{name} {value}" for name, value in facts.items())
    names |= dict.fromkeys(f"{key}={value}" for key, value in (tree.matrix.get("settings") or {}).items())
    names |= dict.fromkeys(str(entry["key"]) for entry in tree.benchmarks)
    return names | dict.fromkeys(run.path.as_posix() for run in finished)
