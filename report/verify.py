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
from core.results_tree import Tree, open_tree, read_manifest
from report.provenance import manifest


def problems(tree: Tree, *, sizes_only: bool = False) -> list[str]:
    """One line for each file that differs, is missing or is extra, for each broken link of the chain, and for each
    stage whose results were not all made alike.

    sizes_only: of checkpoints and inputs compare number and size of the files, and do not read them.
    """
    content = read_manifest(tree.root)
    paths = {path.relative_to(tree.root).as_posix(): path for path in manifest.walk(tree.root)}
    lines = [*_files(content["files"], paths), *(f"extra: {name}" for name in paths if name not in content["files"])]
    if "weights" not in content["left_out"]:
        for name, entry in content["weights"].items():
            lines += _weights(tree, name, entry, content["checkpoints"], sizes_only=sizes_only)
        checkpoints = {path.relative_to(tree.root).as_posix() for path in tree.root.glob("runs/*/*/*/checkpoints/*")}
        lines += [f"extra: {name}" for name in sorted(checkpoints - set(content["weights"]))]
    try:
        if "inputs" not in content["left_out"]:
            lines += list(_inputs(tree, content["inputs"], sizes_only=sizes_only))
        lines += [f"chain: {line}" for line in manifest.broken_links(tree, content["left_out"])]
        return lines + [f"mixed: {line}" for line in tree.mixtures()]
    except BenchError as error:  # a record that cannot be read: the chain ends here
        return [*lines, f"chain: {error}"]


def _files(
    recorded: Mapping[str, Mapping[str, Any]], paths: Mapping[str, Path], *, kinds: bool = False, read: bool = True
) -> Iterator[str]:
    """Recorded files that are missing or differ. kinds: name what each is; read: hash them, else compare sizes."""
    there = {name: paths[name] for name in recorded if name in paths}
    found = digests.of(there.values()) if read else {}
    for name, entry in recorded.items():
        title = f"{name} ({entry['kind']})" if kinds else name
        if name not in there:
            yield f"missing: {title}"
        elif (size := there[name].stat().st_size) != entry["bytes"]:
            yield f"differs: {title}: {size} bytes, the manifest has {entry['bytes']}"
        elif (digest := found.get(there[name], entry["sha256"])) != entry["sha256"]:
            yield f"differs: {title}: sha256 {digest[:12]}, the manifest has {entry['sha256'][:12]}"


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
    paths = {name: path for name in recorded if (path := manifest.located(tree, name)).is_file()}
    yield from _files(recorded, paths, kinds=True, read=not sizes_only)
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
    if content["left_out"]:
        print(f"{args.results}: not kept here, so not checked: {', '.join(sorted(content['left_out']))}")
    counts = (f"{len(content.get(part, ()))} {what}" for part, what in manifest.PARTS.items())
    listed = ", ".join(counts)
    print(f"{args.results}: {f'{len(lines)} problems' if lines else 'everything stands'} ({listed} listed)")
    return 1 if lines else 0


if __name__ == "__main__":
    errors.run(main)
