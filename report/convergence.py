"""`python -m report.convergence --results results/embedded`: how fast and how steadily each run and method learnt.

figures/convergence.csv         the measures of `evals.learning_curves`, by run
figures/convergence_bands.csv   the curves by rollout that the page draws: mean over a method's seeds, and interval
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

from core import errors
from core.errors import Parser
from core.files import to_csv, write_all
from core.layout import Run
from evals import learning_curves
from evals.learning_curves import MEASURES, Curve
from evals.stats import compare
from evals.tree import Tree, open_tree
from methods.training.movement import MOVEMENT
from report.markdown import yes

KEYS = ("model", "method", "seed")
RUN_HEADER = (*KEYS, "title", "finished", "planned", "rollouts", "collapsed_at", *MEASURES, "why")
# Series that the page draws for each run: columns of curve.csv, and how the updates of a rollout become one value.
SERIES: Mapping[str, tuple[tuple[str, ...], str]] = {
    name: ((name,), "first" if name in ("reward", "response_tokens") else "mean")
    for name in (
        "reward", "grad_norm", "clip_fraction_tokens", "entropy", "response_tokens", "kl_old", "seconds",
        "mask_fraction", "kl_step", "kl_base", "update_norm", "effective_step", "grad_clipped",
    )
} | {"seconds": (("seconds_rollout", "seconds_update"), "sum")}  # fmt: skip
BAND_HEADER = ("model", "method", "fresh", "series", "rollout", "mean", "low", "high")
SHARES = frozenset(("reward", "clip_fraction_tokens", "mask_fraction", "grad_clipped"))  # between 0 and 1
LEAST = 3  # independent seeds of an interval; with two it would exceed the plot
DIGITS = 7  # significant, as in curve.csv

Series = Sequence[float | None]  # by rollout


def write(tree: Tree) -> list[Path]:
    """Write both files; return their paths. An empty cell: no such value."""
    rows = []
    for run in (learning_curves.measure_run(tree, run) for run in tree.runs):
        why = "; ".join(f"{key}: {reason}" for key, reason in run.why.items()) if run.finished else ""
        rows.append({**vars(run), **asdict(run.run), **run.values, "finished": yes(run.finished), "why": why})
    paths = {run: tree.layout.run(run) / "curve.csv" for run in tree.runs}
    curves = {run: series(learning_curves.read_curve(path)) for run, path in paths.items() if path.is_file()}
    texts = {"convergence": to_csv(RUN_HEADER, rows), "convergence_bands": to_csv(BAND_HEADER, bands(tree, curves))}
    return write_all({tree.layout.figures / f"{name}.csv": text for name, text in texts.items()})


def series(curve: Curve) -> dict[str, Series]:
    """Return every entry of SERIES by rollout; None: not defined, or not recorded when the run was made."""
    later = {name: [None] * len(curve.rollouts) for name in MOVEMENT if name not in curve.rollouts[0][0]}
    return {name: later.get(name) or curve.series(*wanted) for name, wanted in SERIES.items()}


def bands(tree: Tree, curves: Mapping[Run, Mapping[str, Series]]) -> Iterator[dict[str, Any]]:
    """Yield rows by BAND_HEADER: mean over seeds and 95 % interval, for every series of every method.

    A sweep's fresh seeds are separate. No mean where a seed has no value or has ended, no interval for fewer than LEAST
    clean models (or seeds, where each has its own).
    """
    groups: dict[tuple[str, str, bool], dict[int, Mapping[str, Series]]] = {}
    for run, values in curves.items():
        groups.setdefault((run.model, run.method, tree.is_fresh(run)), {})[run.seed] = values
    for ((model, method, fresh), seeds), name in product(groups.items(), SERIES):
        if all(value is None for values in seeds.values() for value in values[name]):
            continue
        keys = {"model": model, "method": method, "fresh": yes(fresh), "series": name}
        for rollout, numbers in enumerate(zip_longest(*(values[name] for values in seeds.values())), 1):
            row: dict[str, Any] = {**keys, "rollout": rollout, "mean": None, "low": None, "high": None}
            by_seed = {seed: value for seed, value in zip(seeds, numbers, strict=True) if value is not None}
            if len(by_seed) == len(seeds):
                lowest = min(by_seed.values())  # one of the shares is a weight, which may be negative
                bounds = compare.SHARE if name in SHARES and lowest >= 0 else (min(0.0, lowest), math.inf)
                found = compare.over_seeds(by_seed, bounds=bounds, clusters=tree.clean_models(model))
                # Over clean models, like the interval: they may have unequal numbers of seeds.
                row |= {"mean": found.value} | ({"low": found.low, "high": found.high} if found.n >= LEAST else {})
            yield {
                key: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value for key, value in row.items()
            }


def main() -> None:
    parser = Parser(description="How fast and how steadily each run learnt, and each method over seeds.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    args = parser.parse_args()
    for path in write(open_tree(args.results)):
        print(path)


if __name__ == "__main__":
    errors.run(main)
