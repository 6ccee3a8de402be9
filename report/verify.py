"""`python -m report.verify --results results/quick [--weights]`: is every file still what the manifest says it was?

Then the chain of files (`report.provenance.manifest`). Exit code 0: all stands; 1: the lines printed name what does
not; 2: no manifest.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from records import errors
from records.errors import BenchError

if TYPE_CHECKING:
    from records.results_tree import Tree


def problems(tree: Tree, *, weights: bool = False) -> list[str]:
    """One line for each file that differs, is missing or is extra, then for each broken link of the chain.

    weights: read the checkpoints and hold them against their hashes too; without, only their size is looked at.
    """
    from report.provenance import manifest

    content = manifest.read(tree.root)
    found = _files(tree.root, content["files"])
    if "weights" not in content["left_out"]:
        for name, entry in content["weights"].items():
            found += _weights(tree, name, entry, content, deep=weights)
        there = {path.relative_to(tree.root).as_posix() for path in tree.root.glob("runs/*/*/*/checkpoints/*")}
        found += [f"extra: {name}" for name in sorted(there - set(content["weights"]))]
    try:
        return found + [f"chain: {line}" for line in manifest.problems(tree, content["left_out"])]
    except BenchError as error:  # a record that cannot be read: the chain ends here
        return [*found, f"chain: {error}"]


def _files(root: Path, recorded: Mapping[str, Mapping[str, Any]]) -> list[str]:
    from records.provenance import sha256_file
    from report.provenance import manifest

    there = {path.relative_to(root).as_posix(): path for path in manifest.walk(root)}
    found = []
    for name, entry in recorded.items():
        if name not in there:
            found.append(f"missing: {name}")
        elif (size := there[name].stat().st_size) != entry["bytes"]:
            found.append(f"differs: {name}: {size} bytes, the manifest has {entry['bytes']}")
        elif (digest := sha256_file(there[name])) != entry["sha256"]:
            found.append(f"differs: {name}: sha256 {digest[:12]}, the manifest has {entry['sha256'][:12]}")
    return found + [f"extra: {name}" for name in there if name not in recorded]


def _weights(tree: Tree, name: str, entry: Mapping[str, Any], content: Mapping[str, Any], *, deep: bool) -> list[str]:
    from records import provenance
    from records.provenance import sha256_tree
    from report.provenance.manifest import folder_size

    folder = tree.root / name
    if not folder.is_dir():
        return [f"missing: {name}"]
    size = folder_size(folder)
    if size != {key: entry[key] for key in size}:
        return [f"differs: {name}: {size['files']} files, {size['bytes']} bytes; the manifest has {entry['files']}, "
                f"{entry['bytes']}"]  # fmt: skip
    if not deep:
        return []
    try:
        provenance.weights(folder, folder.parents[1] / "run.json")
    except BenchError as error:
        return [f"differs: {error}"]
    evaluated = content["checkpoints"].get(entry["of"], {}).get("weights")
    if evaluated not in (None, sha256_tree(folder, "*.safetensors")):
        return [f"chain: {name}: not the weights that the samples of {entry['of']} were drawn from"]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description="Hold a results tree against its manifest.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>, or a reference")
    parser.add_argument("--weights", action="store_true", help="read every checkpoint too")
    given = parser.parse_args()

    from records.results_tree import open_tree
    from report.provenance import manifest

    tree = open_tree(given.results)
    found = problems(tree, weights=given.weights)
    content = manifest.read(given.results)
    for line in found:
        print(line)
    listed = f"{len(content['files'])} files, {len(content['weights'])} checkpoints"
    print(f"{given.results}: {f'{len(found)} problems' if found else 'everything stands'} ({listed} listed)")
    return 1 if found else 0


if __name__ == "__main__":
    errors.run(main)
