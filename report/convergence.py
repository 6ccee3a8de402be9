"""`python -m report.convergence --results results/embedded`: how fast and how steadily each run and method learnt.

`evals.learning_curves` defines and computes the figures and writes them as CSV; here they become a table to read.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evals import learning_curves
from evals.learning_curves import MethodMeasure, RunMeasures
from records import errors
from records.files import write_text
from records.results_tree import Tree, open_tree
from report import captions

if TYPE_CHECKING:
    from evals.stats.estimate import Comparison

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
    """Write `figures/convergence.csv`, `convergence_methods.csv` and `convergence.md`; returns the paths."""
    runs = learning_curves.measures(tree)
    methods = learning_curves.by_method(runs)
    page = tree.layout.figures / "convergence.md"
    write_text(page, markdown(tree, runs, methods))
    return [*learning_curves.write(tree, runs, methods), page]


def markdown(tree: Tree, runs: Sequence[RunMeasures], methods: Sequence[MethodMeasure]) -> str:
    """A block per model and training settings, a line per method."""
    lines = ["# Convergence", ""]
    for paragraph in tree.lead:
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
        lines += [f"## {titles[model]}{setting}", ""]
        lines += [f"| {' | '.join(headings)} |", "|---|" + "---:|" * (len(headings) - 1)]
        lines += [_line(seeds, areas[model, method], setting) for method, seeds in seeds_of.items()]
        lines.append("")
    lines += [f"{paragraph}\n" for paragraph in captions.paragraphs("convergence")]
    return "\n".join(lines).rstrip() + "\n"


def _line(seeds: Sequence[RunMeasures], area: MethodMeasure, setting: str) -> str:
    finished = sorted((seed for seed in seeds if seed.finished), key=lambda seed: seed.run.seed)
    collapsed = [f"seed {seed.run.seed} at {seed.collapsed_at}" for seed in finished if seed.collapsed_at]
    cells = [
        area.title.removesuffix(setting),  # the block's heading names the settings
        f"{len(finished)}" if len(finished) == len(seeds) else f"{len(finished)} of {len(seeds)}",
        _figures(finished, "area", 1, 3),
        _difference(area.comparison),
        "–" if area.comparison is None or area.comparison.p is None else f"{area.comparison.p:.2g}",
        *(_figures(finished, key, factor, decimals) for key, _, factor, decimals in SHOWN),
        ", ".join(collapsed) or "–",
    ]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _figures(finished: Sequence[RunMeasures], key: str, factor: float, decimals: int) -> str:
    """Each seed's figure: with few seeds they say more than their mean."""
    values = [seed.values[key] for seed in finished]
    return " / ".join("–" if value is None else f"{factor * value:.{decimals}f}" for value in values) or "–"


def _difference(comparison: Comparison | None) -> str:
    if comparison is None or comparison.difference is None:
        return "–"
    text = f"{comparison.difference:+.3f}"
    return text if comparison.low is None else f"{text} ({comparison.low:+.3f} to {comparison.high:+.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description="How fast and how steadily each run learnt, and each method over seeds."
    )
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    args = parser.parse_args()
    for path in write(open_tree(args.results)):
        print(path)


if __name__ == "__main__":
    errors.run(main)
