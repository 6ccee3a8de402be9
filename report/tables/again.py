"""The A/A arm: a method under two names, whose runs differ by the samples they drew and by nothing else.

Whatever mark such a pair gets is a false one. Their share says how many marks of a table chance alone would make. So
every table is filled with the arm too, compared as its rows are (`report.tables.fill`), and has one line about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from core.layout import split
from core.results_tree import Tree
from report.tables import spec

ID = "A/A"  # begins the row id of an arm's cells
NOT_RUN = f"{ID} arm: not run."


class Arm(NamedTuple):
    model: str
    again: spec.Row  # the second stream
    once: spec.Row  # that it is compared with


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
            again = spec.Row(id=f"{ID} {model} {method}", label=label, method=method)
            # With its seeds, since a sweep would put the row at the value that it chose.
            seeds = {
                run.seed for run in tree.runs if (run.model, run.method) == (model, key) and not tree.is_fresh(run)
            }
            id = f"{ID} {model} {key}"
            found.append(Arm(model, again, spec.Row(id=id, label=label, method=key, numbers=tuple(sorted(seeds)))))
    return found


def line(label: str, seeds: Sequence[int], marks: Sequence[str]) -> str:
    """marks: of the cells that can be marked, as a table shows them.

    >>> line("GRPO/DAPO under two names, tiny Qwen2", [1, 2, 3], ["≈", "↑?", "↓"])
    'A/A arm (GRPO/DAPO under two names, tiny Qwen2, 3 seeds): 1 of 3 cells marked; 2 before Holm\'s correction.'
    """
    of = f"{ID} arm ({label}, {len(seeds)} seed{'s' * (len(seeds) != 1)})"
    if not marks:
        return f"{of}: no cell can be marked."
    arrows = [mark for mark in marks if mark[0] in "↑↓"]
    certain = sum(not mark.endswith("?") for mark in arrows)
    return f"{of}: {certain} of {len(marks)} cells marked; {len(arrows)} before Holm's correction."
