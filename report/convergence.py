"""`python -m report.convergence --results results/embedded`: steps to thresholds, area and more, as files."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evals import learning_curves
from evals.learning_curves import MEASURES, MethodMeasure, RunMeasures
from records import errors
from records.csv_files import to_csv
from records.files import write_text
from records.results_tree import Tree, open_tree
from report import captions

if TYPE_CHECKING:
    from evals.stats.estimate import Comparison, Estimate

RUN_HEADER = (
    "model", "method", "seed", "title", "finished", "planned", "rollouts", "collapsed_at", *MEASURES, "why",
)  # fmt: skip
METHOD_HEADER = (
    "model", "method", "title", "measure", "unit", "seeds", "planned_seeds", "collapsed", "value", "se", "low", "high",
    "how", "versus", "difference", "difference_se", "difference_low", "difference_high", "p", "p_holm", "detectable",
    "difference_how",
)  # fmt: skip
# Columns of the Markdown table after the method's name and seeds: measure, heading, factor, decimals.
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


def run_csv(done: Sequence[RunMeasures]) -> str:
    """One row per planned run; an empty field is a figure that does not exist, and `why` says why."""
    return to_csv(
        RUN_HEADER,
        (
            {
                "model": one.run.model,
                "method": one.run.method,
                "seed": one.run.seed,
                "title": one.title,
                "finished": "yes" if one.finished else "no",
                "planned": one.planned,
                "rollouts": one.rollouts,
                "collapsed_at": one.collapsed_at,
                **one.values,
                "why": "; ".join(f"{key}: {reason}" for key, reason in one.why.items()) if one.finished else "",
            }
            for one in done
        ),
    )


def method_csv(rows: Iterable[MethodMeasure]) -> str:
    """One row per model, method and measure: mean over seeds, and the paired difference to GRPO/DAPO."""
    return to_csv(
        METHOD_HEADER,
        (
            {
                "model": row.model,
                "method": row.method,
                "title": row.title,
                "measure": row.measure.key,
                "unit": row.measure.unit,
                "seeds": row.estimate.n,
                "planned_seeds": row.planned_seeds,
                "collapsed": row.collapsed,
                **_estimate(row.estimate),
                "versus": learning_curves.reference(row.method) if row.comparison else None,
                **_comparison(row.comparison),
                "p_holm": row.p_holm,
            }
            for row in rows
        ),
    )


def markdown(tree: Tree, done: Sequence[RunMeasures], rows: Sequence[MethodMeasure]) -> str:
    """The table for reading: a block per model and training settings, a line per method."""
    lines = ["# Convergence", ""]
    for paragraph in tree.lead:
        lines += [f"> {paragraph}", ">"]
    lines[-1] = ""
    by_arm = {(row.model, row.method, row.measure.key): row for row in rows}
    arms: dict[tuple[str, str, str | None], list[RunMeasures]] = {}
    for one in done:
        arms.setdefault((one.run.model, one.run.method, one.run.variant), []).append(one)
    titles = {str(model["key"]): str(model["title"]) for model in tree.models}
    headings = ["Method", "Seeds", "Area", "Δ area", "p", *(heading for _, heading, _, _ in SHOWN), "Collapsed"]
    for model, variant in dict.fromkeys((model, variant) for model, _, variant in arms):
        setting = f", {tree.matrix['variants'][variant]['title']}" if variant else ""
        lines += [f"## {titles[model]}{setting}", ""]
        lines += [f"| {' | '.join(headings)} |", "|---|" + "---:|" * (len(headings) - 1)]
        lines += [
            _line(runs, by_arm[model, method, "area"], setting)
            for (arm_model, method, arm_variant), runs in arms.items()
            if (arm_model, arm_variant) == (model, variant)
        ]
        lines.append("")
    lines += [f"{paragraph}\n" for paragraph in captions.paragraphs("convergence")]
    return "\n".join(lines).rstrip() + "\n"


def write(tree: Tree) -> list[Path]:
    """Write `figures/convergence.csv`, `convergence_methods.csv` and `convergence.md`; returns the paths."""
    done = learning_curves.measures(tree)
    rows = learning_curves.by_method(done)
    texts = {
        "convergence.csv": run_csv(done),
        "convergence_methods.csv": method_csv(rows),
        "convergence.md": markdown(tree, done, rows),
    }
    for name, text in texts.items():
        write_text(tree.layout.figures / name, text)
    return [tree.layout.figures / name for name in texts]


def main() -> None:
    parser = argparse.ArgumentParser(
        description="How fast and how steadily each run learnt, and each method over seeds."
    )
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    arguments = parser.parse_args()

    for path in write(open_tree(arguments.results)):
        print(path)


def _estimate(e: Estimate) -> dict[str, object]:
    return {"value": e.value, "se": e.se, "low": e.low, "high": e.high, "how": e.how}


def _comparison(c: Comparison | None) -> dict[str, object]:
    names = ("difference", "difference_se", "difference_low", "difference_high", "p", "detectable", "difference_how")
    if c is None:
        return dict.fromkeys(names)
    return dict(zip(names, (c.difference, c.se, c.low, c.high, c.p, c.detectable, c.how), strict=True))


def _line(runs: Sequence[RunMeasures], area: MethodMeasure, setting: str) -> str:
    finished = [one for one in runs if one.finished]
    cells = [
        area.title.removesuffix(setting),
        f"{len(finished)}" if len(finished) == len(runs) else f"{len(finished)} of {len(runs)}",
        _seeds(finished, "area", 1, 3),
        _difference(area.comparison),
        "–" if area.comparison is None or area.comparison.p is None else f"{area.comparison.p:.2g}",
        *(_seeds(finished, key, factor, decimals) for key, _, factor, decimals in SHOWN),
        ", ".join(f"seed {one.run.seed} at {one.collapsed_at}" for one in finished if one.collapsed_at) or "–",
    ]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _seeds(finished: Sequence[RunMeasures], key: str, factor: float, decimals: int) -> str:
    """Each seed's figure, in the order of seeds: with few seeds they say more than their mean."""
    values = [one.values[key] for one in sorted(finished, key=lambda one: one.run.seed)]
    return " / ".join("–" if value is None else f"{factor * value:.{decimals}f}" for value in values) or "–"


def _difference(comparison: Comparison | None) -> str:
    if comparison is None or comparison.difference is None:
        return "–"
    text = f"{comparison.difference:+.3f}"
    return text if comparison.low is None else f"{text} ({comparison.low:+.3f} to {comparison.high:+.3f})"


if __name__ == "__main__":
    errors.run(main)
