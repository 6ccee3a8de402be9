"""`python -m report.convergence --results results/embedded`: how fast and how steadily each run and method learnt.

figures/convergence.csv, convergence_methods.csv   what `evals.learning_curves` measures, for runs and for methods
figures/convergence_runs.csv                       how each run's method differs from GRPO/DAPO
figures/convergence_curves.csv                     the curves by rollout that the page draws
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from core import digests, used_code
from core.errors import Parser
from core.files import stored, to_csv, write_text
from core.layout import REFERENCE, Run
from core.results_tree import Tree, open_tree
from evals import learning_curves
from evals.learning_curves import Curve
from methods import catalog
from methods.training.movement import MOVEMENT

RUN_HEADER = ("model", "method", "seed", "differs")
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
    "kl_step": (("kl_step",), "mean"),  # one value a rollout, and the next
    "kl_base": (("kl_base",), "mean"),
    "update_norm": (("update_norm",), "mean"),
    "effective_step": (("effective_step",), "mean"),
    "grad_clipped": (("grad_clipped",), "mean"),
}
CURVE_HEADER = ("model", "method", "seed", "rollout", *SERIES)


def write(tree: Tree) -> list[Path]:
    """Write the four files; returns their paths."""
    runs = learning_curves.measures(tree)
    # Means over seeds are over those that chose a sweep's values; fresh seeds are compared in the table of all runs.
    averaged = [one for one in runs if not tree.is_fresh(one.run)]
    methods = learning_curves.by_method(tree, averaged)
    paths = {run: tree.layout.run(run) / "curve.csv" for run in tree.runs}
    curves = {run: learning_curves.read_curve(path) for run, path in paths.items() if stored(path)}
    texts = {
        "convergence_runs.csv": run_csv(tree),
        "convergence_curves.csv": curve_csv(curves),
    }
    for name, text in texts.items():
        write_text(tree.layout.figures / name, text)
    written = [*learning_curves.write(tree, runs, methods), *(tree.layout.figures / name for name in texts)]
    digests.write_list(tree.layout.sums("figures/convergence"), written)
    return written


def run_csv(tree: Tree) -> str:
    """One row per planned run: the slots in which its method differs from GRPO/DAPO."""
    rows = (
        {"model": run.model, "method": run.method, "seed": run.seed, "differs": "; ".join(differences(run.key))}
        for run in tree.runs
    )
    return to_csv(RUN_HEADER, rows)


def curve_csv(curves: Mapping[Run, Curve]) -> str:
    """The curves by rollout, as far as each run goes; an empty field is a value that is not defined."""
    rows = []
    for run, curve in curves.items():
        # runs made before these columns existed have none
        later = {name: [None] * len(curve.rollouts) for name in MOVEMENT if name not in curve.rollouts[0][0]}
        series = {name: later.get(name) or curve.series(*wanted) for name, wanted in SERIES.items()}
        for n in range(len(curve.rollouts)):
            keys = {"model": run.model, "method": run.method, "seed": run.seed, "rollout": n + 1}
            rows.append(keys | {name: values[n] for name, values in series.items()})
    return to_csv(CURVE_HEADER, rows)


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


def main() -> None:
    parser = Parser(description="How fast and how steadily each run learnt, and each method over seeds.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    args = parser.parse_args()
    for path in write(open_tree(args.results)):
        print(path)


if __name__ == "__main__":
    used_code.run(main)
