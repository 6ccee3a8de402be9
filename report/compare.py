"""`python -m report.compare A B`: are two results trees (or references) equal, and where do they differ most?

Prints how each side was made, what is equal bit for bit, and the largest differences beside the interval in which
chance alone would leave them:

- trained again, several seeds: 2 sqrt(2/S) times the largest difference between two seeds of any method
- same weights, or one seed in each tree: sampling of problems, from the two scores' own intervals, with Holm's
  correction over all of them

Exit code 0: equal, or every difference inside its interval; 1: one lies outside; 2: the two cannot be compared.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import errors
from core.errors import ConfigError, MissingInputError, Parser, whole
from core.files import read_csv, write_text
from core.layout import BASE, Checkpoint, Run
from core.results_tree import Tree, open_or_kept
from core.scores import AVERAGES

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 118
LISTED = 12  # names of what only one side has
TIMES = "seconds_"  # columns of a curve that may differ between two runs of one seed
MADE_BY = ("commit", "dirty", "python", "cpu")
EQUAL = 1e-12  # scores are ratios of counts; a difference below this is the rounding of equal ones
BAND = 2.0  # times the largest difference between two seeds; docs/provenance.md has the rates of false alarms
# Measures of a learning curve that every run has. True: differences are shares of the mean, since gradients and clip
# fractions of methods differ tenfold, and so does their spread.
CURVE = {
    "area": False, "final": False, "grad_norm": True, "clip_tokens": True, "ratio_spread": True, "entropy_end": True,
}  # fmt: skip
HEADER = ("where", "figure", "unit", "a", "b", "difference", "low", "high", "p_holm", "moved", "how", "seeds")
SHARE = "share of the mean"
OVER_SEEDS = f"{BAND:g} x the largest of {{}} differences between seeds of one method"
OVER_PROBLEMS = "the two scores' own intervals"
ONE_SEED = "trained again with one seed: another seed may have moved as far; " + OVER_PROBLEMS
UNKNOWN = "one seed in each: the spread between seeds is unknown"


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
    only: tuple[tuple[str, ...], tuple[str, ...]]  # names that one side alone has

    @property
    def trees(self) -> tuple[Tree, Tree]:
        return self.a, self.b

    def same_curve(self, run: Run) -> bool:
        """Equal in every column that both have, but the times: a later version may record more figures."""
        a, b = (
            read_csv(tree.layout.run(run) / "curve.csv", "the learning curve", ("rollout", "update", "minibatch"))
            for tree in self.trees
        )
        common = [name for name in a[0] if name in b[0] and not name.startswith(TIMES)] if a and b else []
        return [[row[name] for name in common] for row in a] == [[row[name] for name in common] for row in b]

    def same_weights(self, checkpoint: Checkpoint) -> bool:
        """By the hashes in the runs' records; for a base model, by the weights that its runs started from."""
        a, b = (_weights(tree, checkpoint) for tree in self.trees)
        return a is not None and a == b

    def same_scores(self, checkpoint: Checkpoint) -> bool:
        """By values and verdicts: their intervals may be of another version."""
        found = [[tree.scores.get((checkpoint, key)) for key in self.figures] for tree in self.trees]
        a, b = ([score and (score.value, score.counts) for score in side] for side in found)
        return a == b


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
        only=(
            (*_names(runs_a - runs_b, scored_a - scored_b), *sorted(sizes_a.keys() - sizes_b.keys())),
            (*_names(runs_b - runs_a, scored_b - scored_a), *sorted(sizes_b.keys() - sizes_a.keys())),
        ),
    )


def _names(runs: set[Run], checkpoints: set[Checkpoint]) -> Iterator[str]:
    """Runs, and the checkpoints that are not one of theirs."""
    yield from (run.path.as_posix() for run in sorted(runs))
    yield from (c.path.as_posix() for c in sorted(checkpoints) if c.run not in runs)


def _weights(tree: Tree, checkpoint: Checkpoint) -> object:
    if checkpoint.run.method == BASE:
        records = [tree.record(run) or {} for run in tree.runs if tree.base(run.model, run.seed) == checkpoint]
        start = {record["inputs"].get("base") for record in records if "inputs" in record}
        return start.pop() if len(start) == 1 else None
    return (tree.record(checkpoint.run) or {}).get("outputs", {}).get(f"checkpoints/step{checkpoint.step}")


# The figures that differ.


def values(common: Overlap, tree: Tree) -> pd.DataFrame:
    """One row per figure and seed: scores with their intervals over problems, and measures of the curves.

    retrained: whether the weights behind a score, or the curve, differ between the two trees.
    """
    import pandas as pd

    from evals import learning_curves

    rows: list[dict[str, Any]] = []
    for checkpoint in common.checkpoints:
        run = checkpoint.run
        names = {"arm": f"{run.model}/{run.method}/step{checkpoint.step}", "seed": run.seed, "unit": "as is"}
        names |= {"retrained": run.method != BASE and not common.same_weights(checkpoint)}
        for key in common.figures:
            score = tree.scores.get((checkpoint, key))
            if score is not None:
                rows.append({"figure": key, **names, "value": score.value, "low": score.low, "high": score.high})
    other_curves = {run for run in common.runs if not common.same_curve(run)}
    for run in common.runs if other_curves else ():
        measures = learning_curves.measure_run(tree, run).values
        names = {"arm": f"{run.model}/{run.method}", "seed": run.seed, "retrained": run in other_curves}
        for key, relative in CURVE.items():
            title = learning_curves.MEASURES[key].title
            rows.append({"figure": title, **names, "unit": SHARE if relative else "as is", "value": measures[key]})
    frame = pd.DataFrame(rows, columns=["figure", "arm", "seed", "unit", "retrained", "value", "low", "high"])
    return frame.astype({"value": float, "low": float, "high": float}).dropna(subset="value")


def differences(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """A row for each figure that differs; outside its interval first, then by its share of the interval.

    A retrained method with its mean over seeds, beside the band of the differences between seeds; no distribution is
    assumed, and every method may spread as it likes, as long as one of them shows it. Else each checkpoint for itself.
    """
    import pandas as pd

    from evals.stats import compare

    both = a.merge(b, on=["figure", "arm", "seed", "unit", "retrained"], suffixes=("_a", "_b"))
    rows: list[dict[str, Any]] = []
    for _, of_figure in both.groupby("figure", sort=False):
        arms = {str(arm): group for arm, group in of_figure.groupby("arm", sort=False)}
        scale = {arm: _size(group) for arm, group in arms.items()}
        # What was not trained again is in both trees and counts once.
        spreads = [
            (group[side].max() - group[side].min()) / scale[arm]
            for arm, group in arms.items()
            for side in ("value_a", "value_b")[: 1 + group["retrained"].any()]
            if len(group) > 1
        ]
        largest = max(spreads, default=0.0)
        for arm, group in arms.items():
            if ((group["value_b"] - group["value_a"]).abs() <= EQUAL).all():
                continue
            if group["retrained"].any() and largest > EQUAL:
                row = _row(f"{arm}, {len(group)} seeds", group, scale[arm])
                half = BAND * math.sqrt(2 / len(group)) * largest
                row |= {"low": row["difference"] - half, "high": row["difference"] + half}
                rows.append(row | {"how": OVER_SEEDS.format(len(spreads))})
            else:
                rows += [_of_one_seed(arm, group.iloc[[n]], scale[arm]) for n in range(len(group))]
    frame = pd.DataFrame(rows, columns=[*HEADER, "p"])
    frame = frame[(frame["b"] - frame["a"]).abs() > EQUAL].copy()
    # Bands over seeds have no p and are not corrected.
    p = [None if math.isnan(value) else value for value in frame["p"].astype(float)]
    frame["p_holm"] = pd.Series(compare.holm(p), index=frame.index, dtype=float)
    outside = (frame["low"] > 0) | (frame["high"] < 0)
    frame["moved"] = outside & ~(frame["p_holm"] >= compare.ALPHA)
    frame["reach"] = -(frame["difference"] / (frame["high"] - frame["low"])).abs().fillna(0.0)
    return frame.sort_values(["moved", "reach", "where", "figure"], ascending=[False, True, True, True])


def _size(group: pd.DataFrame) -> float:
    """What a difference is a share of: the mean size, or 1."""
    if group["unit"].iloc[0] != SHARE:
        return 1.0
    return float(group[["value_a", "value_b"]].abs().to_numpy().mean()) or 1.0


def _row(where: str, group: pd.DataFrame, scale: float) -> dict[str, Any]:
    x, y = (float(group[side].mean()) for side in ("value_a", "value_b"))
    first = group.iloc[0]
    names = {"where": where, "figure": first["figure"], "unit": first["unit"], "seeds": len(group)}
    return names | {"a": x, "b": y, "difference": (y - x) / scale}


def _of_one_seed(arm: str, group: pd.DataFrame, scale: float) -> dict[str, Any]:
    """A score beside MOVER of its two intervals (as in `evals.stats.intervals.combine`): wider than paired by problem,
    never narrower; p by the normal law from the nearer end. A curve has no problems to be paired by."""
    from evals.stats import intervals

    one = group.iloc[0]
    model, method, *step = arm.split("/")
    row = _row("/".join([model, method, f"seed{one['seed']}", *step]), group, scale)
    if not step:
        return row | {"how": UNKNOWN}
    below = math.hypot(one["value_b"] - one["low_b"], one["high_a"] - one["value_a"])
    above = math.hypot(one["high_b"] - one["value_b"], one["value_a"] - one["low_a"])
    se = (below if row["difference"] > 0 else above) / float(intervals.quantile(math.inf))
    row |= {"low": row["difference"] - below, "high": row["difference"] + above}
    row |= {"p": float(intervals.p_value(row["difference"], se, math.inf)) if se > 0 else None}
    return row | {"how": ONE_SEED if one["retrained"] else OVER_PROBLEMS}


# What is printed.


def text(common: Overlap, found: pd.DataFrame, largest: int) -> str:
    """The two sides, what is equal, the largest differences, the verdict."""
    return "\n\n".join("\n".join(lines) for lines in (_sides(common), _table(found, largest), verdict(found)))


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent="   ")


def verdict(found: pd.DataFrame) -> list[str]:
    """The last lines: what the comparison means for somebody who changed the code."""
    if found.empty:
        return ["verdict: no figure differs"]
    moved, known = int(found["moved"].sum()), int(found["low"].notna().sum())
    text = f"MOVED: {moved} of {known} figures that differ do so beyond noise"
    if not moved:
        text = f"nothing beyond noise: {known} figures differ, none by more than chance would"
    if known < len(found):
        text += f"; {len(found) - known} more differ, for which no noise is known"
    return _wrapped(f"verdict: {text}")


def _table(found: pd.DataFrame, largest: int) -> list[str]:
    if found.empty:
        return ["no figure differs"]
    shown = found.head(largest)
    lines = [f"{len(found)} figures differ; the largest, by their intervals:"]
    grid = [("where", "figure", "A", "B", "B - A", "95 % interval", ""), *map(_cells, shown.to_dict("records"))]
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    for row in grid:
        names = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        numbers = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join([*names, *numbers]).rstrip())
    for how in dict.fromkeys(shown["how"]):
        lines += _wrapped(f"interval: {how}")
    return lines


def _cells(row: Mapping[Any, Any]) -> tuple[str, ...]:
    share = row["unit"] == SHARE
    a, b = (f"{row[side]:.4g}" if share else f"{row[side] * 100:.1f} %" for side in "ab")
    interval = "-" if math.isnan(row["low"]) else f"{row['low'] * 100:+.1f} to {row['high'] * 100:+.1f}"
    difference = f"{row['difference'] * 100:+.1f} {'%' if share else 'pp'}"
    return row["where"], row["figure"], a, b, difference, interval, "moved" * row["moved"]


def _sides(common: Overlap) -> list[str]:
    lines = []
    made_by = [_made_by(tree) for tree in common.trees]
    for name, tree, facts in zip("AB", common.trees, made_by, strict=True):
        commits = ", ".join(commit[:7] for commit in facts.get("commit", ["unknown"]))
        dirty = " with uncommitted changes" if "True" in facts.get("dirty", []) else ""
        lines.append(f"{name}  {tree.root}: {len(tree.checkpoints)} checkpoints planned; commit {commits}{dirty}")
    for fact in made_by[0] | made_by[1]:
        a, b = (facts.get(fact, ["-"]) for facts in made_by)
        if a != b and fact not in ("commit", "dirty"):
            lines.append(f"   {fact}: A {', '.join(a)}; B {', '.join(b)}")
    settings: Counter[str] = Counter()
    for run in common.runs:
        one, other = (dict(_flat((tree.record(run) or {})["spec"])) for tree in common.trees)
        for key in sorted(one.keys() | other.keys()):
            if one.get(key) != other.get(key):
                settings[f"{key}: {one.get(key)} -> {other.get(key)}"] += 1
    lines.append("other run settings, A -> B:" if settings else "same run settings")
    lines += [f"   {change} ({count} runs)" for change, count in settings.items()]
    for name, only in zip("AB", common.only, strict=True):
        if only:
            more = f" and {len(only) - LISTED} more" if len(only) > LISTED else ""
            lines += _wrapped(f"only in {name} ({len(only)}): {', '.join(only[:LISTED])}{more}")
    trained = [c for c in common.checkpoints if c.run in common.runs]
    counts = {
        "curves (apart from times)": (sum(map(common.same_curve, common.runs)), len(common.runs)),
        "checkpoints' weights": (sum(map(common.same_weights, trained)), len(trained)),
        "checkpoints' scores": (sum(map(common.same_scores, common.checkpoints)), len(common.checkpoints)),
    }
    equal = ", ".join(f"{name} {n} of {of}" for name, (n, of) in counts.items())
    return [*lines, "", f"equal bit for bit: {equal}"]


def _made_by(tree: Tree) -> dict[str, list[str]]:
    """Commit, interpreter, CPU and packages of a tree's runs: every value that occurs, by name."""
    values: dict[str, set[str]] = defaultdict(set)
    for run in tree.runs:
        environment = (tree.record(run) or {}).get("environment") or {}
        facts = {name: environment.get(name) for name in MADE_BY} | (environment.get("packages") or {})
        for name, value in facts.items():
            values[name].add("unknown" if value is None else str(value))
    return {name: sorted(occurring) for name, occurring in values.items()}


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner


def main() -> int:
    parser = Parser(description="Compare two results trees: equal, inside noise, or moved.")
    parser.add_argument("a", type=Path, help="results/<scale> or a reference")
    parser.add_argument("b", type=Path, help="another one of the same scale")
    parser.add_argument("--largest", type=whole(0), default=12, metavar="N", help="rows of the table (12)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write every figure that differs")
    args = parser.parse_args()
    common = overlap(open_or_kept(args.a), open_or_kept(args.b))
    found = differences(*(values(common, tree) for tree in common.trees))
    moved = int(found["moved"].any())
    print(text(common, found, args.largest))
    if args.csv:
        found["moved"] = found["moved"].map({True: "yes", False: "no"})
        write_text(args.csv, found[list(HEADER)].to_csv(index=False))
    return moved


if __name__ == "__main__":
    errors.run(main)
