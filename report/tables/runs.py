"""The table of all runs: declared from matrix.json where the paper's are declared in tables.yaml.

Every checkpoint that is evaluated stands in it: any method, model, variant and step. Runs that are
trained for their curves alone stand in figures/convergence_methods.csv. A block holds what was trained under the same
settings and evaluated at the same step, so that its rows differ in nothing but the method.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from core.layout import BASE, REFERENCE, Checkpoint, Run, split
from core.results_tree import Tree
from core.scores import POOLED
from report.tables.spec import BEST, DELTA, MEASURES, Block, Row, Table

KEY = "runs"
FRESH = {
    "chosen": "fresh seeds, each method with the value chosen on other seeds, ",
    "own": "fresh seeds, every method with the scale's own value, ",
}
TITLE = "All runs"


def declare(tree: Tree) -> Table:
    """The declaration for `tree`. Slots of models and benchmarks are the tree's own keys."""
    benchmarks = {str(entry["key"]): str(entry["key"]) for entry in tree.benchmarks}
    columns = {POOLED: "Avg. (pooled)", DELTA: f"Δ {_baseline_title(tree)}", BEST: "P(best)"}
    return Table(
        key=KEY,
        title=TITLE,
        columns={**columns, **benchmarks, **MEASURES},
        blocks=tuple(_blocks(tree)),
        models={str(model["key"]): str(model["title"]) for model in tree.models},
        source=str(tree.layout.matrix),
        generated=True,
    )


def _blocks(tree: Tree) -> Iterator[Block]:
    # (model, variant, step, which comparison on a sweep's fresh seeds) -> method -> its runs
    groups: dict[tuple[str, str | None, int, str], dict[str, list[Run]]] = {}
    sweep = tree.matrix.get("sweep") or {}
    base_of = {(point["model"], point["method"]): point["base"] for point in sweep.get("points", ())}
    compared = _compared(tree, base_of)
    for run, entry in tree.runs.items():
        for step in entry["steps"]:
            if Checkpoint(run, step) not in tree.evaluated:  # trained for its curve alone
                continue
            for fresh in compared[run.model, run.method] if tree.is_fresh(run) else ("",):
                place = run.model, None if fresh else run.variant, step, fresh
                groups.setdefault(place, {}).setdefault(run.method, []).append(run)
    order = ["chosen", "own", ""]
    for (model, variant, step, fresh), runs in sorted(groups.items(), key=lambda group: order.index(group[0][3])):
        at = f"/step{step}" if variant is None else f"@{variant}/step{step}"
        at = f"/fresh-{fresh}{at}" if fresh else at
        titles = {method: str(tree.methods[method]["title"]) if fresh else _title(method, tree) for method in runs}
        repeated = Counter(titles.values())
        every = tuple(sorted({run.seed for of_method in runs.values() for run in of_method})) if sweep else None
        rows = [Row(id=f"{model}/{BASE}{at}", label="{model} (base)", method=BASE, numbers=every)]
        for method in runs:
            title = titles[method] if repeated[titles[method]] == 1 else f"{titles[method]} ({method})"
            id = f"{model}/{method}/fresh-{fresh}/step{step}" if fresh else f"{model}/{method}/step{step}"
            seeds = tuple(sorted(run.seed for run in runs[method])) if sweep else None
            rows.append(Row(id=id, label=title, method=method, step=step, numbers=seeds))
        if fresh:
            wanted = next((m for m in runs if base_of[model, m] == _baseline(tree, None)), None)
        else:
            wanted = _baseline(tree, variant)
        baseline = next((row for row in rows if row.method == wanted and wanted is not None), None)
        if baseline is not None:  # next to the untrained model, above everything that is compared with it
            rows.remove(baseline)
            rows.insert(1, baseline)
        settings = "" if variant is None else f"{tree.matrix['variants'][variant]['title']}, "
        if fresh:
            settings = FRESH[fresh]
        title = f"{settings}after {step} rollout{'s' if step > 1 else ''}"
        title = title[:1].upper() + title[1:]
        yield Block(model=model, rows=tuple(rows), title=title, baseline=None if baseline is None else baseline.id)


def _compared(tree: Tree, base_of: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], list[str]]:
    """(model, method) on fresh seeds -> the comparisons that it is in: with the value chosen for it, with the scale's
    own, or with both where they are one."""
    fresh = {(run.model, run.method) for run in tree.runs if tree.is_fresh(run)}
    own = {pair for pair in fresh if pair[1] == base_of[pair]}
    elsewhere = {(model, base_of[model, method]) for model, method in fresh - own}  # another value was chosen
    both = ["chosen", "own"] if elsewhere and elsewhere <= own else ["chosen"]
    return {pair: ["chosen"] if pair not in own else ["own"] if pair in elsewhere else both for pair in fresh}


def _title(method: str, tree: Tree) -> str:
    """The method's title; the block's title names the variant."""
    title, (_, variant) = str(tree.methods[method]["title"]), split(method)
    return title if variant is None else title.removesuffix(f", {tree.matrix['variants'][variant]['title']}")


def _baseline(tree: Tree, variant: str | None) -> str | None:
    """Canonical key of the method that a block's rows are compared with; None where the tree does not train it."""
    name = str(tree.matrix.get("baseline") or REFERENCE)
    if variant is not None and f"{name}@{variant}" in tree.methods:
        return f"{name}@{variant}"
    return tree.method_for(name if variant is None else f"{name}@{variant}")


def _baseline_title(tree: Tree) -> str:
    name = str(tree.matrix.get("baseline") or REFERENCE)
    method: Mapping[str, Any] = tree.methods.get(tree.method_for(name) or "", {})
    return str(method.get("title", name))
