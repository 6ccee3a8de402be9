"""`python -m report.convergence --results results/embedded`: how fast and how steadily each run and method learnt.

figures/convergence.csv, convergence_methods.csv   what `evals.learning_curves` measures, for runs and for methods
figures/convergence.md                             the same as a table to read
figures/convergence_runs.csv                       how each run's method differs from GRPO/DAPO; reward at both ends
figures/convergence_readings.csv                   methods that take another reading of the paper: what that changed
figures/convergence_curves.csv                     the curves by rollout that the page draws for each run
figures/convergence_dynamics.csv                   the same for each method: mean and range over its seeds
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from core import digests, errors, used_code
from core.errors import Parser
from core.files import stored, to_csv, write_text
from core.layout import REFERENCE, Run, split
from core.results_tree import Tree, open_tree
from evals import learning_curves
from evals.learning_curves import Curve, MethodMeasure, RunMeasures
from methods import catalog
from methods.readings import READINGS, Reading
from report import captions
from report.figures import fill
from report.tables.render import markdown_table

if TYPE_CHECKING:
    from evals.stats.estimate import Comparison

RUN_HEADER = ("model", "method", "seed", "reward_first", "reward_last", "differs")
READING_HEADER = ("reading", "value", "model", "method", "versus", "difference", "low", "high", "how")
READING_MEASURE = "area"  # what a reading is judged by: it counts every rollout, so that no single lucky one decides
# What the page draws for each run: columns of curve.csv, and how the updates of a rollout become one value.
SERIES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "reward": (("reward",), "first"),
    "grad_norm": (("grad_norm",), "mean"),
    "clip_fraction_tokens": (("clip_fraction_tokens",), "mean"),
    "entropy": (("entropy",), "mean"),
    "response_tokens": (("response_tokens",), "first"),
    "kl_old": (("kl_old",), "mean"),
    "seconds": (("seconds_rollout", "seconds_update"), "sum"),
    "mask_fraction": (("mask_fraction",), "mean"),
}
CURVE_HEADER = ("model", "method", "seed", "rollout", *SERIES)
DYNAMICS_HEADER = ("model", "method", "quantity", "rollout", "value", "low", "high", "seeds")
# Columns of the table after the method's name, seeds and area: measure, heading, factor, decimals.
SHOWN = (
    ("to_50", "to 50 %", 1, 0),
    ("to_80", "to 80 %", 1, 0),
    ("to_grpo", "to GRPO/DAPO's end", 1, 0),
    ("final", "final reward", 1, 3),
    ("grad_norm", "gradient norm", 1, 2),
    ("clip_tokens", "clipped tokens (%)", 100, 2),
    ("clip_sequences", "clipped sequences (%)", 100, 2),
    ("ratio_spread", "ratio spread", 1, 4),
    ("entropy_end", "entropy at the end", 1, 3),
    ("seconds_per_step", "s per step", 1, 2),
    ("cpu_seconds_per_step", "CPU s per step", 1, 2),
)


def write(tree: Tree) -> list[Path]:
    """Write the seven files; returns their paths."""
    runs = learning_curves.measures(tree)
    # Means over seeds are over those that chose a sweep's values; fresh seeds are compared in sweep/fresh.csv.
    averaged = [one for one in runs if not tree.is_fresh(one.run)]
    methods = learning_curves.by_method(averaged)
    paths = {run: tree.layout.run(run) / "curve.csv" for run in tree.runs}
    curves = {run: learning_curves.read_curve(path) for run, path in paths.items() if stored(path)}
    texts = {
        "convergence.md": markdown(tree, averaged, methods),
        "convergence_runs.csv": run_csv(tree, curves),
        "convergence_readings.csv": reading_csv(tree),
        "convergence_curves.csv": curve_csv(curves),
        "convergence_dynamics.csv": dynamics_csv({run: c for run, c in curves.items() if not tree.is_fresh(run)}),
    }
    for name, text in texts.items():
        write_text(tree.layout.figures / name, text)
    written = [*learning_curves.write(tree, runs, methods), *(tree.layout.figures / name for name in texts)]
    digests.write_list(tree.layout.sums("figures/convergence"), written)
    return written


def markdown(tree: Tree, runs: Sequence[RunMeasures], methods: Sequence[MethodMeasure]) -> str:
    """A block per model and training settings, a line per method."""
    lines = ["# Convergence", ""]
    for paragraph in captions.lead(tree.matrix):
        lines += [f"> {paragraph}", ">"]
    lines[-1] = ""
    areas = {(row.model, row.method): row for row in methods if row.measure.key == "area"}
    blocks: dict[tuple[str, str | None], dict[str, list[RunMeasures]]] = {}
    for run in runs:
        block = blocks.setdefault((run.run.model, run.run.variant), {})
        block.setdefault(run.run.method, []).append(run)
    titles = {str(model["key"]): str(model["title"]) for model in tree.models}
    headings = ["Method", "Seeds", "Area", "Δ area", "p", *(heading for _, heading, _, _ in SHOWN), "Collapsed"]
    for (model, variant), seeds_of in blocks.items():
        setting = f", {tree.matrix['variants'][variant]['title']}" if variant else ""
        cells = [_line(seeds, areas[model, method], setting) for method, seeds in seeds_of.items()]
        lines += [f"## {titles[model]}{setting}", "", *markdown_table(headings, cells, "---:"), ""]
    lines += [f"{paragraph}\n" for paragraph in captions.paragraphs("convergence")]
    return "\n".join(lines).rstrip() + "\n"


def _line(seeds: Sequence[RunMeasures], area: MethodMeasure, setting: str) -> list[str]:
    finished = sorted((seed for seed in seeds if seed.finished), key=lambda seed: seed.run.seed)
    collapsed = [f"seed {seed.run.seed} at {seed.collapsed_at}" for seed in finished if seed.collapsed_at]
    return [
        area.title.removesuffix(setting),  # the block's heading names the settings
        f"{len(finished)}" if len(finished) == len(seeds) else f"{len(finished)} of {len(seeds)}",
        _figures(finished, "area", 1, 3),
        _difference(area.comparison),
        "–" if area.comparison is None or area.comparison.p is None else f"{area.comparison.p:.2g}",
        *(_figures(finished, key, factor, decimals) for key, _, factor, decimals in SHOWN),
        ", ".join(collapsed) or "–",
    ]


def _figures(finished: Sequence[RunMeasures], key: str, factor: float, decimals: int) -> str:
    """Each seed's figure: with few seeds they say more than their mean."""
    values = [seed.values[key] for seed in finished]
    return " / ".join("–" if value is None else f"{factor * value:.{decimals}f}" for value in values) or "–"


def _difference(comparison: Comparison | None) -> str:
    if comparison is None or comparison.difference is None:
        return "–"
    text = f"{comparison.difference:+.3f}"
    return text if comparison.low is None else f"{text} ({comparison.low:+.3f} to {comparison.high:+.3f})"


# What the page shows of runs and readings.


def run_csv(tree: Tree, curves: Mapping[Run, Curve]) -> str:
    """One row per planned run: its reward at both ends, and the slots in which its method differs from GRPO/DAPO."""
    rows = []
    for run in tree.runs:
        curve = curves.get(run)
        reward = [value for value in curve.series(["reward"], "first") if value is not None] if curve else []
        row: dict[str, object] = {"model": run.model, "method": run.method, "seed": run.seed}
        row |= {"reward_first": None, "reward_last": None, "differs": "; ".join(differences(run.key))}
        if reward:
            # The mean of a quarter: a single rollout's reward is mostly chance.
            quarter = max(len(reward) // 4, 1)
            row["reward_first"] = math.fsum(reward[:quarter]) / quarter
            row["reward_last"] = math.fsum(reward[-quarter:]) / quarter
        rows.append(row)
    return to_csv(RUN_HEADER, rows)


def reading_csv(tree: Tree) -> str:
    """One row per reading, model and method that does not take the reading's default, paired with the one that does."""
    rows = []
    for reading in READINGS:
        for method in tree.methods:
            other = twin(method, reading)
            if other is None:
                continue
            value = catalog.parse(split(method)[0]).readings[reading.name]
            for model in dict.fromkeys(run.model for run in tree.runs if run.method == method):
                row: dict[str, object] = dict.fromkeys(READING_HEADER)
                row |= {"reading": reading.name, "value": value, "model": model, "method": method}
                # The rest stays empty where the plan does not train the other method.
                if any((run.model, run.method) == (model, other) for run in tree.runs):
                    gain = learning_curves.compare(tree, model, method, other, READING_MEASURE)
                    row |= {"versus": other, "difference": gain.difference}
                    row |= {"low": gain.low, "high": gain.high, "how": gain.how}
                rows.append(row)
    return to_csv(READING_HEADER, rows)


def curve_csv(curves: Mapping[Run, Curve]) -> str:
    """The curves by rollout, as far as each run goes; an empty field is a value that is not defined."""
    rows = []
    for run, curve in curves.items():
        series = {name: curve.series(columns, aggregate) for name, (columns, aggregate) in SERIES.items()}
        for n in range(len(curve.rollouts)):
            keys = {"model": run.model, "method": run.method, "seed": run.seed, "rollout": n + 1}
            rows.append(keys | {name: values[n] for name, values in series.items()})
    return to_csv(CURVE_HEADER, rows)


def dynamics_csv(curves: Mapping[Run, Curve]) -> str:
    """Mean over seeds by rollout, from the smallest to the largest seed, of every method of every model.

    A quantity that a method never has gets no row; a rollout that one seed lacks has no mean, as in the figures.
    """
    by_method: dict[tuple[str, str], list[Curve]] = {}
    for run, curve in curves.items():
        by_method.setdefault((run.model, run.method), []).append(curve)
    rows = []
    for (model, method), seeds in by_method.items():
        for name, (columns, aggregate) in SERIES.items():
            by_rollout = list(zip_longest(*(curve.series(columns, aggregate) for curve in seeds)))
            if any(value is not None for values in by_rollout for value in values):
                keys = {"model": model, "method": method, "quantity": name}
                rows += [keys | asdict(fill.point(n, values)) for n, values in enumerate(by_rollout, 1)]
    return to_csv(DYNAMICS_HEADER, rows)


def differences(key: str) -> tuple[str, ...]:
    """The slots in which a method differs from GRPO/DAPO, as `reduce: token_mean → sequence_mean`."""
    ours, theirs = (
        {slot: str(part).lstrip("_") for slot, part in catalog.parse(name).parts.filled().items()}
        for name in (key, REFERENCE)
    )
    changes = []
    for slot in dict.fromkeys([*theirs, *ours]):
        old, new = theirs.get(slot), ours.get(slot)
        if old is None:
            changes.append(f"{slot}: {new}")
        elif new is None:
            changes.append(f"no {slot} (there: {old})")
        elif old != new:
            changes.append(f"{slot}: {old} → {new}")
    return tuple(changes)


def twin(method: str, reading: Reading) -> str | None:
    """The method (with its variant) whose only difference is that it takes the reading's default: `tepo_kl_all+beta=1`
    for `tepo_kl_all+beta=1+kl-estimator=k1`. None for a method that takes the default."""
    key, variant = split(method)
    ours = catalog.parse(key).readings.get(reading.name)
    name, *options = key.split("+")
    for option in options:
        try:
            other = catalog.parse("+".join([name, *(o for o in options if o != option)]))
        except errors.ConfigError:  # another option has no meaning without this one, such as the bounds of a correction
            continue
        if ours != other.readings.get(reading.name):
            return other.key if variant is None else f"{other.key}@{variant}"
    return None


def main() -> None:
    parser = Parser(description="How fast and how steadily each run learnt, and each method over seeds.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    args = parser.parse_args()
    for path in write(open_tree(args.results)):
        print(path)


if __name__ == "__main__":
    used_code.run(main)
