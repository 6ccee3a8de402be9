"""The sample browser's part of the page: which checkpoints and benchmarks can be looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from records.layout import BASE, Checkpoint
from report.results import Tree
from report.site import places, samples, shards

VERDICT_WORDS = {letter: verdict.replace("_", " ") for verdict, letter in samples.LETTERS.items()}


def view(tree: Tree) -> dict[str, Any]:
    """For the template; `data` is what the scripts of the page get."""
    found = samples.evaluated(tree)
    groups: dict[str, list[tuple[str, str]]] = {}
    for entry in found:
        run = entry.checkpoint.run
        groups.setdefault(places.model_title(run.model, tree), []).append(
            (entry.checkpoint.path.as_posix(), places.title(entry.checkpoint, tree))
        )
    there = {entry.checkpoint for entry in found}
    beside = {c: other if (other := places.counterpart(c, tree)) in there else None for c in there}
    benchmarks = [str(b["key"]) for b in tree.benchmarks if any(str(b["key"]) in entry.stamps for entry in found)]
    return {
        "checkpoints": list(groups.items()),
        "shown_benchmarks": benchmarks,
        "verdicts": list(VERDICT_WORDS.items()),
        "data": {
            "folder": shards.FOLDER,
            "samples": {
                "checkpoints": {
                    entry.checkpoint.path.as_posix(): {
                        "title": places.title(entry.checkpoint, tree),
                        "beside": other.path.as_posix() if (other := beside[entry.checkpoint]) else None,
                        "benchmarks": dict(entry.stamps),
                    }
                    for entry in found
                },
                "benchmarks": benchmarks,
                "start": _start([entry.checkpoint for entry in found], beside),
            },
        },
    }


def _start(found: Sequence[Checkpoint], beside: Mapping[Checkpoint, Checkpoint | None]) -> str | None:
    """What is shown first: the last trained checkpoint that has one to be compared with, or else the last."""
    trained = [c for c in found if c.run.method != BASE and beside[c] is not None]
    return (trained or list(found))[-1].path.as_posix() if found else None
