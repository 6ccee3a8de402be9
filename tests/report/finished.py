"""An invented results tree whose hashes hold from run.json to scores.csv, as after a real run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from records import digests
from records.layout import BASE, Checkpoint
from records.provenance import sha256_file, sha256_tree
from records.results_tree import Tree

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def finish(tree: Tree) -> Tree:
    """Give the runs of a synthetic tree checkpoints, and their records and those of the samples true hashes."""
    for run in tree.runs:
        folder = tree.layout.run(run)
        outputs = {"curve.csv": sha256_file(folder / "curve.csv")}
        for checkpoint in (c for c in tree.checkpoints if c.run == run):
            weights = tree.layout.weights(checkpoint)
            weights.mkdir(parents=True)
            (weights / "model.safetensors").write_text(f"invented weights of {checkpoint.path}")
            (weights / "config.json").write_text("{}")
            outputs[f"checkpoints/{weights.name}"] = sha256_tree(weights)
        edit(folder / "run.json", outputs=outputs, finished_at="2026-01-02T03:04:05Z")
        (folder / "state").mkdir()
        (folder / "state/events.jsonl").write_text("{}\n")
    environment = json.loads((folder / "run.json").read_text())["environment"]
    for checkpoint in tree.checkpoints:
        edit(
            tree.layout.samples(checkpoint) / "samples.json",
            model=_model(tree, checkpoint),
            weights_sha256=_weights(tree, checkpoint),
            environment=environment,
            engine={"backend": "hf", "device": "cpu"},
            seed=1234,
        )
    return Tree(tree.root)


def edit(path: Path, **changes: Any) -> None:
    """Overwrite top-level keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def replace(path: Path, pattern: str, by: str | Callable[[re.Match[str]], str]) -> None:
    """Replace the first match in a text file; there must be one."""
    text, count = re.subn(pattern, by, path.read_text(encoding="utf-8"), count=1)
    assert count == 1, f"{path}: no {pattern}"
    path.write_text(text, encoding="utf-8")


def rehash(root: Path) -> None:
    """Write the hashes beside results anew, as after a change that a command made."""
    for sums in root.rglob("*.sha256"):
        digests.write_list(sums, [sums.parent / name for name in digests.read(sums) if (sums.parent / name).is_file()])


def _model(tree: Tree, checkpoint: Checkpoint) -> str:
    if checkpoint.run.method == BASE:
        return "results/cache/models/invented"
    return f"results/{tree.root.name}/{tree.layout.weights(checkpoint).relative_to(tree.root)}"


def _weights(tree: Tree, checkpoint: Checkpoint) -> str:
    if checkpoint.run.method == BASE:
        return "a" * 64  # what the synthetic runs name as their base
    return sha256_tree(tree.layout.weights(checkpoint), "*.safetensors")
