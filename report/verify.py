"""`python -m report.verify --results results/quick [--weights]`: is every file still what the manifest says it was?

Then the chain of files (`report.provenance.manifest`). Exit code 0: every file and link holds; 1: the lines printed
name those that do not; 2: no manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from records import digests, errors
from records.errors import BenchError, Parser
from records.provenance import sha256_file, sha256_tree
from records.results_tree import Tree, open_tree
from report.provenance import manifest


def problems(tree: Tree, *, weights: bool = False) -> list[str]:
    """One line for each file that differs, is missing or is extra, then for each broken link of the chain.

    weights: read the checkpoints and compare their hashes too; without, only number and size of their files.
    """
    content = manifest.read(tree.root)
    lines = list(_files(tree.root, content["files"]))
    if "weights" not in content["left_out"]:
        for name, entry in content["weights"].items():
            lines += _weights(tree, name, entry, content["checkpoints"], read_all=weights)
        checkpoints = {path.relative_to(tree.root).as_posix() for path in tree.root.glob("runs/*/*/*/checkpoints/*")}
        lines += [f"extra: {name}" for name in sorted(checkpoints - set(content["weights"]))]
    try:
        return lines + [f"chain: {line}" for line in manifest.broken_links(tree, content["left_out"])]
    except BenchError as error:  # a record that cannot be read: the chain ends here
        return [*lines, f"chain: {error}"]


def _files(root: Path, recorded: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    paths = {path.relative_to(root).as_posix(): path for path in manifest.walk(root)}
    for name, entry in recorded.items():
        if name not in paths:
            yield f"missing: {name}"
        elif (size := paths[name].stat().st_size) != entry["bytes"]:
            yield f"differs: {name}: {size} bytes, the manifest has {entry['bytes']}"
        elif (digest := sha256_file(paths[name])) != entry["sha256"]:
            yield f"differs: {name}: sha256 {digest[:12]}, the manifest has {entry['sha256'][:12]}"
    for name in paths:
        if name not in recorded:
            yield f"extra: {name}"


def _weights(
    tree: Tree, name: str, entry: Mapping[str, Any], checkpoints: Mapping[str, Any], *, read_all: bool
) -> list[str]:
    folder = tree.root / name
    if not folder.is_dir():
        return [f"missing: {name}"]
    size = manifest.folder_size(folder)
    if size != {key: entry[key] for key in size}:
        now = f"{size['files']} files, {size['bytes']} bytes"
        return [f"differs: {name}: {now}; the manifest has {entry['files']}, {entry['bytes']}"]
    if not read_all:
        return []
    try:
        digests.check_model(folder, folder.parents[1] / "run.json")
    except BenchError as error:
        return [f"differs: {error}"]
    evaluated = checkpoints.get(entry["of"], {}).get("weights")
    if evaluated not in (None, sha256_tree(folder, "*.safetensors")):
        return [f"chain: {name}: not the weights that the samples of {entry['of']} were drawn from"]
    return []


def main() -> int:
    parser = Parser(description="Compare a results tree with its manifest.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>, or a reference")
    parser.add_argument("--weights", action="store_true", help="read every checkpoint too")
    args = parser.parse_args()
    lines = problems(open_tree(args.results), weights=args.weights)
    for line in lines:
        print(line)
    content = manifest.read(args.results)
    listed = f"{len(content['files'])} files, {len(content['weights'])} checkpoints"
    print(f"{args.results}: {f'{len(lines)} problems' if lines else 'everything stands'} ({listed} listed)")
    return 1 if lines else 0


if __name__ == "__main__":
    errors.run(main)
