"""What matrix.json declares where tables.yaml declares the paper's tables: the table of all runs, and the A/A arms.

Every evaluated checkpoint stands in the table of all runs. A block holds what was trained under the same settings and
evaluated at the same step, so that its rows differ in nothing but the method.

An A/A arm is a method under two names, whose runs differ by the samples they drew and by nothing else. Whatever mark
such a pair gets is a false one; their share says how many marks of a table chance alone would make. So every table is
filled with the arm too, compared as its rows are (`report.tables.fill`), and has one line about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from core.layout import BASE, REFERENCE, Checkpoint, Run, split
from core.results_tree import Tree
from core.scores import POOLED
from report.tables.spec import BEST, DELTA, MEASURES, Block, Row, Table

KEY = "runs"
FRESH = {
    "chosen": "fresh seeds, each method with the value chosen on other seeds, ",
    "own": "fresh seeds, every method with the scale's own value, ",
}


def declare(tree: Tree) -> Table:
    """Declare the table of all runs. Slots of models and benchmarks are the tree's own keys."""
    benchmarks = {str(entry["key"]): str(entry["key"]) for entry in tree.benchmarks}
    name = str(tree.matrix.get("baseline") or REFERENCE)
    baseline = tree.methods.get(_baseline(tree, None) or "", {"title": name})
    columns = {POOLED: "Avg. (pooled)", DELTA: f"Δ {baseline['title']}", BEST: "P(best)"}
    return Table(
        key=KEY,
        title="All runs",
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
        of_fresh = f"/fresh-{fresh}" if fresh else ""
        at = f"{of_fresh}/step{step}" if variant is None else f"@{variant}/step{step}"
        setting = "" if variant is None else str(tree.matrix["variants"][variant]["title"])  # names the block
        titles = {method: str(tree.methods[method]["title"]) for method in runs}
        if setting:
            titles = {method: title.removesuffix(f", {setting}") for method, title in titles.items()}
        repeated = Counter(titles.values())
        every = tuple(sorted({run.seed for of_method in runs.values() for run in of_method})) if sweep else None
        rows = [Row(id=f"{model}/{BASE}{at}", label="{model} (base)", method=BASE, numbers=every)]
        for method in runs:
            title = titles[method] if repeated[titles[method]] == 1 else f"{titles[method]} ({method})"
            id = f"{model}/{method}{of_fresh}/step{step}"
            seeds = tuple(sorted(run.seed for run in runs[method])) if sweep else None
            rows.append(Row(id=id, label=title, method=method, step=step, numbers=seeds))
        wanted = _baseline(tree, variant)
        if fresh:
            wanted = next((m for m in runs if base_of[model, m] == wanted), None)
        baseline = next((row for row in rows if row.method == wanted and wanted is not None), None)
        if baseline is not None:  # next to the untrained model, above everything that is compared with it
            rows.remove(baseline)
            rows.insert(1, baseline)
        before = FRESH[fresh] if fresh else f"{setting}, " if setting else ""
        title = f"{before}after {step} rollout{'s' if step > 1 else ''}"
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


def _baseline(tree: Tree, variant: str | None) -> str | None:
    """Canonical key of the method that a block's rows are compared with; None where the tree does not train it."""
    name = str(tree.matrix.get("baseline") or REFERENCE)
    if variant is not None and f"{name}@{variant}" in tree.methods:
        return f"{name}@{variant}"
    return tree.method_for(name if variant is None else f"{name}@{variant}")


AGAIN = "A/A"  # begins the row id of an arm's cells


class Arm(NamedTuple):
    model: str
    again: Row  # the second stream
    once: Row  # that it is compared with


def arms(tree: Tree) -> list[Arm]:
    """Every method and model that was planned twice, under variants that change `stream` alone."""
    variants = tree.matrix.get("variants", {}).items()
    streams = {name for name, body in variants if body.get("changes", {}).keys() == {"stream"}}
    trained = dict.fromkeys((run.model, run.method) for run in tree.runs)
    found = []
    for model, method in trained:
        key, variant = split(method)
        if variant in streams and (model, key) in trained:
            label = f"{tree.methods[key]['title']} under two names, {{model}}"
            again = Row(id=f"{AGAIN} {model} {method}", label=label, method=method)
            # With its seeds, since a sweep would put the row at the value that it chose.
            seeds = {run.seed for run in tree.averaged if (run.model, run.method) == (model, key)}
            once = Row(id=f"{AGAIN} {model} {key}", label=label, method=key, numbers=tuple(sorted(seeds)))
            found.append(Arm(model, again, once))
    return found
