"""`python -m report.verify --results results/quick`: is every file still what the manifest says it was?

Files of the tree, checkpoints and the inputs from outside it: base models, prompts, benchmarks. Then the chain of files
(`report.provenance.manifest`), and whether one code and one set of packages made them. Exit code 0: all of that holds;
1: the lines printed name what does not; 2: no manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from core import digests, errors
from core.errors import BenchError, Parser
from core.provenance import sha256_file
from core.results_tree import Tree, open_tree, read_manifest
from report.provenance import manifest


def problems(tree: Tree, *, sizes_only: bool = False) -> list[str]:
    """One line for each file that differs, is missing or is extra, for each broken link of the chain, and for each
    stage whose results were not all made alike.

    sizes_only: of checkpoints and inputs compare number and size of the files, and do not read them.
    """
    content = read_manifest(tree.root)
    lines = list(_files(tree.root, content["files"]))
    if "weights" not in content["left_out"]:
        for name, entry in content["weights"].items():
            lines += _weights(tree, name, entry, content["checkpoints"], sizes_only=sizes_only)
        checkpoints = {path.relative_to(tree.root).as_posix() for path in tree.root.glob("runs/*/*/*/checkpoints/*")}
        lines += [f"extra: {name}" for name in sorted(checkpoints - set(content["weights"]))]
    not_kept = unchecked(content)
    try:
        if "inputs" not in not_kept:
            lines += list(_inputs(tree, content["inputs"], sizes_only=sizes_only))
        lines += [f"chain: {line}" for line in manifest.broken_links(tree, not_kept)]
        return lines + [f"mixed: {line}" for line in tree.mixtures()]
    except BenchError as error:  # a record that cannot be read: the chain ends here
        return [*lines, f"chain: {error}"]


def unchecked(content: Mapping[str, Any]) -> list[str]:
    """Kinds of files that cannot be checked: left out of a reference, or not in an earlier version's manifest."""
    return sorted({*content["left_out"], *(() if "inputs" in content else ("inputs",))})


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
    tree: Tree, name: str, entry: Mapping[str, Any], checkpoints: Mapping[str, Any], *, sizes_only: bool
) -> list[str]:
    folder = tree.root / name
    if not folder.is_dir():
        return [f"missing: {name}"]
    size = manifest.folder_size(folder)
    if size != {key: entry[key] for key in size}:
        now = f"{size['files']} files, {size['bytes']} bytes"
        return [f"differs: {name}: {now}; the manifest has {entry['files']}, {entry['bytes']}"]
    if sizes_only:
        return []
    try:
        found = digests.check_model(folder, folder.parents[1] / "run.json")
    except BenchError as error:
        return [f"differs: {error}"]
    evaluated = checkpoints.get(entry["of"], {}).get("weights")
    if evaluated not in (None, digests.tree(found, "*.safetensors")):
        return [f"chain: {name}: not the weights that the samples of {entry['of']} were drawn from"]
    return []


def _inputs(tree: Tree, recorded: Mapping[str, Mapping[str, Any]], *, sizes_only: bool) -> Iterator[str]:
    paths = {name: manifest.located(tree, name) for name in recorded}
    there = {name: path for name, path in paths.items() if path.is_file()}
    found = {} if sizes_only else digests.of(there.values())
    for name, entry in recorded.items():
        if name not in there:
            yield f"missing: {name} ({entry['kind']})"
        elif (size := paths[name].stat().st_size) != entry["bytes"]:
            yield f"differs: {name} ({entry['kind']}): {size} bytes, the manifest has {entry['bytes']}"
        elif (digest := found.get(paths[name], entry["sha256"])) != entry["sha256"]:
            yield (f"differs: {name} ({entry['kind']}): sha256 {digest[:12]}, the manifest has {entry['sha256'][:12]}")
    for base in manifest.bases(tree):
        folder = manifest.located(tree, base)
        for path in (*digests.files(folder), *(p for p in [folder / digests.SUMS] if p.is_file())):
            if (name := f"{base}/{path.relative_to(folder).as_posix()}") not in recorded:
                yield f"extra: {name}"


def main() -> int:
    parser = Parser(description="Compare a results tree with its manifest.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>, or a reference")
    parser.add_argument("--sizes-only", action="store_true", help="do not read checkpoints and inputs, compare sizes")
    args = parser.parse_args()
    lines = problems(open_tree(args.results), sizes_only=args.sizes_only)
    for line in lines:
        print(line)
    content = read_manifest(args.results)
    if missing := unchecked(content):
        print(f"{args.results}: not kept here or not listed in the manifest, so not checked: {', '.join(missing)}")
    counts = (f"{len(content.get(part, ()))} {what}" for part, what in manifest.PARTS.items())
    listed = ", ".join(counts)
    print(f"{args.results}: {f'{len(lines)} problems' if lines else 'everything stands'} ({listed} listed)")
    return 1 if lines else 0


if __name__ == "__main__":
    errors.run(main)
