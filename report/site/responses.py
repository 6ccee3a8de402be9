"""The sample browser's part of the page: which checkpoints and benchmarks can be looked at."""

from __future__ import annotations

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
                        "benchmarks": dict(entry.stamps),
                    }
                    for entry in found
                },
                "benchmarks": benchmarks,
                "start": [c.path.as_posix() for c in _start([entry.checkpoint for entry in found], tree)],
            },
        },
    }


def _start(found: list[Checkpoint], tree: Tree) -> list[Checkpoint]:
    """What is shown first: the last trained checkpoint that has one to be compared with, and that one."""
    for checkpoint in reversed(found):
        other = places.counterpart(checkpoint, tree)
        if checkpoint.run.method != BASE and other in found and other is not None:
            return [checkpoint, other]
    return found[:2]
