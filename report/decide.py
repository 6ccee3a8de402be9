"""`python -m report.decide --results results/mine`: which methods differ from the baseline, and the seeds left.

Seeds may be added until something is decided: the intervals hold at any number of seeds (`evals.stats.sequential`),
each at level 5 % over the number of methods compared on all models. Seeds that continue one clean model count as one:
once all clean models are used, more of these are needed (`made_here.starts`). Writes decide/decide.csv with its hash
and prints one line, with the seeds to add by `snakemake --config seeds=...` where something is undecided; finished runs
stay.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from core import digests, used_code
from core.errors import MissingInputError, Parser, real, whole
from core.files import to_csv
from core.layout import Checkpoint
from core.results_tree import Tree, open_tree
from report.sweep import KEYS

MEASURES = ("area", "score")
HEADER = (
    "model", "method", "baseline", "by", "alpha", "margin", "verdict", "seeds", "clean_models", "difference", "low",
    "high", "e", "seeds_left", "more_starts",
)  # fmt: skip


def decisions(tree: Tree, by: str, budget: int, margin: float | None) -> list[dict[str, Any]]:
    """One row per model and method without a variant, in the order of the seeds that it shares with the baseline.

    The level is divided among those that are compared.
    Raises MissingInputError where no model has the baseline and another method.
    """
    from evals import learning_curves
    from evals.stats.compare import ALPHA
    from evals.stats.sequential import decide

    baseline = str(tree.matrix["baseline"])
    values: dict[tuple[str, str], dict[int, float]] = {}
    for run, entry in tree.runs.items():
        if run.variant is not None or tree.is_fresh(run):  # a sweep's selection and fresh seeds are never averaged
            continue
        if (value := learning_curves.figure(tree, Checkpoint(run, max(entry["steps"])), KEYS[by])) is not None:
            values.setdefault((run.model, run.method), {})[run.seed] = value
    pairs = [place for place in values if place[1] != baseline and (place[0], baseline) in values]
    if not pairs:
        raise MissingInputError(f"{tree.root}: no finished run of {baseline} and of another method on one model")
    rows = []
    for model, method in pairs:
        a, b = values[model, method], values[model, baseline]
        gains = {seed: a[seed] - b[seed] for seed in set(a) & set(b)}
        found = decide(gains, alpha=ALPHA / len(pairs), margin=margin, clusters=tree.clean_models(model))
        left = max(0, budget - len(gains)) if found.verdict == "undecided" else 0
        starts = next(entry for entry in tree.models if entry["key"] == model).get("starts")
        if starts == 1:  # seeds of one clean model, as of a hub's: the interval is about that one
            starts, found = None, replace(found, clean_models=1)
        # Further seeds continue the same clean models: they narrow the interval only down to what these differ by.
        more = left > 0 and starts is not None and starts <= found.clean_models
        row = {"model": model, "method": method, "baseline": baseline, "by": by, "alpha": ALPHA / len(pairs)}
        left = 0 if more else left if starts is None else min(left, starts - found.clean_models)
        rows.append(row | {"margin": margin} | asdict(found) | {"seeds_left": left, "more_starts": more})
    return rows


def line(rows: list[dict[str, Any]], seeds: list[int], batch: int) -> str:
    """What is decided, what is not, how many seeds are left, and the next ones. seeds: those of the tree."""
    several = len({row["model"] for row in rows}) > 1
    names = [f"{row['model']}/{row['method']}" if several else str(row["method"]) for row in rows]
    pairs = [(name, row["verdict"]) for name, row in zip(names, rows, strict=True)]
    decided = [f"{name} {verdict}" for name, verdict in pairs if verdict != "undecided"]
    open_ = [name for name, verdict in pairs if verdict == "undecided"]
    text = f"{len(decided)} of {len(rows)} decided ({', '.join(decided) or 'none'})"
    if not open_:
        return f"{text}; nothing is left to decide"
    text += f"; undecided: {', '.join(open_)}"
    left = max(row["seeds_left"] for row in rows)
    text += f"; {left} seeds left of the budget"
    after = list(range(max(seeds) + 1, max(seeds) + 1 + min(batch, left)))
    text += f"; next: --config seeds={','.join(map(str, after))}" if after else ""
    for model, n in {row["model"]: row["clean_models"] for row in rows if row["more_starts"]}.items():
        text += f"; {model}: further seeds continue the same {n} clean models: set made_here.starts above {n} in "
        text += f"config/models/{model}.yaml"
    return text


def main() -> None:
    parser = Parser(description="Decide between methods and the baseline, with seeds added while nothing is decided.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--by", choices=MEASURES, default="area", help="area under the reward curve, or pooled score")
    parser.add_argument("--budget", type=whole(2, 1000), default=20, help="seeds of a method at most")
    parser.add_argument("--batch", type=whole(1, 1000), default=4, help="seeds to add at once")
    parser.add_argument(
        "--margin", type=real(above=0, most=1), help="equal: the interval lies within +-margin (a fraction)"
    )
    args = parser.parse_args()
    tree = open_tree(args.results)
    rows = decisions(tree, args.by, args.budget, args.margin)
    path = tree.root / "decide" / "decide.csv"
    digests.write(path, to_csv(HEADER, rows))
    print(f"{path}: {line(rows, sorted({run.seed for run in tree.runs}), args.batch)}")


if __name__ == "__main__":
    used_code.run(main)
