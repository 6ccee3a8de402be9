"""What two results trees have in common, what only one has, and what of it is equal bit for bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from records.errors import ConfigError, MissingInputError
from records.layout import BASE, Checkpoint, Run
from report.columns import read_csv
from report.curve import INDEX
from report.results import Tree

TIMES = "seconds_"  # columns of a curve that may differ between two runs of one seed
MADE_BY = ("commit", "dirty", "python", "cpu")


@dataclass(frozen=True)
class Overlap:
    """Finished runs and scored checkpoints of two trees, in the first one's order."""

    a: Tree
    b: Tree
    runs: tuple[Run, ...]
    checkpoints: tuple[Checkpoint, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def trees(self) -> tuple[Tree, Tree]:
        return self.a, self.b

    def same_curve(self, run: Run) -> bool:
        """Equal in every column but the times."""
        one, two = (_untimed(tree, run) for tree in self.trees)
        return one == two

    def same_weights(self, checkpoint: Checkpoint) -> bool:
        """By the hashes in the runs' records; for a base model, by the weights that its runs started from."""
        one, two = (_weights(tree, checkpoint) for tree in self.trees)
        return one is not None and one == two

    def same_scores(self, checkpoint: Checkpoint) -> bool:
        one, two = ({key: score for (c, key), score in t.scores.items() if c == checkpoint} for t in self.trees)
        return one == two


def overlap(a: Tree, b: Tree) -> Overlap:
    """Raises ConfigError, naming what is in the way, when the figures of the two trees do not mean the same."""
    if a.scale != b.scale:
        raise ConfigError(f"cannot be compared: {a.root} is of scale {a.scale}, {b.root} of scale {b.scale}")
    ours, theirs = ({e["key"]: (e["items"], e["samples"]) for e in tree.benchmarks} for tree in (a, b))
    for key in sorted(set(ours) | set(theirs)):
        if ours.get(key) != theirs.get(key):
            one, two = (f"{e[key][0]} problems x {e[key][1]}" if key in e else "none" for e in (ours, theirs))
            raise ConfigError(f"cannot be compared: benchmark {key}: {a.root} has {one}, {b.root} has {two}")
    sides = [set(tree.runs) & {run for run in tree.runs if tree.record(run) is not None} for tree in (a, b)]
    scored = [{checkpoint for checkpoint, _ in tree.scores} for tree in (a, b)]
    if not scored[0] & scored[1]:
        raise MissingInputError(f"cannot be compared: {a.root} and {b.root} have no scored checkpoint in common")
    return Overlap(
        a,
        b,
        tuple(run for run in a.runs if run in sides[0] & sides[1]),
        tuple(c for c in a.checkpoints if c in scored[0] & scored[1]),
        tuple(_names(sides[0] - sides[1], scored[0] - scored[1])),
        tuple(_names(sides[1] - sides[0], scored[1] - scored[0])),
    )


def configuration(common: Overlap) -> list[str]:
    """Settings in which runs of the two trees differ, as `training.learning_rate: 0.0001 -> 0.0002 (12 runs)`."""
    found: Counter[str] = Counter()
    for run in common.runs:
        one, two = (dict(_flat((tree.record(run) or {})["spec"])) for tree in common.trees)
        for key in sorted(set(one) | set(two)):
            if one.get(key) != two.get(key):
                found[f"{key}: {one.get(key)} -> {two.get(key)}"] += 1
    return [f"{change} ({count} runs)" for change, count in found.items()]


def made_by(tree: Tree) -> dict[str, list[str]]:
    """With what the runs of a tree were made: every value that occurs, by name; packages as `torch 2.13.0`."""
    found: dict[str, set[str]] = {}
    for run in tree.runs:
        environment = (tree.record(run) or {}).get("environment") or {}
        facts = {name: environment.get(name) for name in MADE_BY} | (environment.get("packages") or {})
        for name, value in facts.items():
            found.setdefault(name, set()).add("unknown" if value is None else str(value))
    return {name: sorted(values) for name, values in found.items()}


def _names(runs: set[Run], checkpoints: set[Checkpoint]) -> Iterator[str]:
    """Runs, and the checkpoints that are not one of theirs."""
    yield from (run.path.as_posix() for run in sorted(runs))
    yield from (c.path.as_posix() for c in sorted(checkpoints) if c.run not in runs)


def _untimed(tree: Tree, run: Run) -> list[dict[str, str]]:
    rows = read_csv(tree.layout.run(run) / "curve.csv", "the learning curve", INDEX)
    return [{name: cell for name, cell in row.items() if not name.startswith(TIMES)} for row in rows]


def _weights(tree: Tree, checkpoint: Checkpoint) -> object:
    if checkpoint.run.method == BASE:
        records = [tree.record(run) or {} for run in tree.runs if run.model == checkpoint.run.model]
        start = {record["inputs"].get("base") for record in records if "inputs" in record}
        return start.pop() if len(start) == 1 else None
    return (tree.record(checkpoint.run) or {}).get("outputs", {}).get(f"checkpoints/step{checkpoint.step}")


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner
