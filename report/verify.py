"""`python -m report.verify --results results/quick`: does every file still match the manifest?

Checks files of the tree against the manifest; the chain of records (`report.manifest`), reading every checkpoint and
the inputs from outside the tree; and whether one code version and one set of packages were used. Exit code 0: all of
that holds; 1: the printed lines list what does not; 2: there is no manifest.
"""

from pathlib import Path

from core import digests, errors
from core.errors import BenchError, Parser
from core.kept import ARCHIVE
from evals.tree import Tree, open_tree, read_manifest
from report import manifest, responses

README = "README.md"  # of a kept tree: text that may be edited


def problems(tree: Tree) -> list[str]:
    """Return one line for each file that differs, is missing or is extra, for each broken link of the chain, for each
    stage whose results have mixed origins, and for each run whose code changed while it ran."""
    content = read_manifest(tree.root)
    files = {name: digest for name, digest in content["files"].items() if name != README}
    paths = {path.relative_to(tree.root).as_posix(): path for path in manifest.walk(tree.root)}
    if tree.kept is not None:  # files next to its archive are shown on the web
        beside = {path.relative_to(tree.kept).as_posix(): path for path in manifest.walk(tree.kept)}
        paths |= {name: path for name, path in beside.items() if name not in (ARCHIVE, README)}
    found = digests.of(paths[name] for name in files if name in paths)
    lines = []
    for name, recorded in files.items():
        if name not in paths:
            lines.append(f"missing: {name}")
        elif (digest := found[paths[name]]) != recorded:
            lines.append(f"differs: {name}: sha256 {digest[:12]}, the manifest has {recorded[:12]}")
    lines += [f"extra: {name}" for name in paths if name not in files]
    if "inputs" not in content["left_out"]:
        lines += [f"missing: {name}" for name in content["inputs"] if not manifest.located(tree, name).is_file()]
    try:
        for checkpoint in tree.checkpoints:
            responses.is_sampled(tree, checkpoint)  # reads a kept tree's responses, which no link covers
        lines += [f"chain: {line}" for line in manifest.broken_links(tree, content["left_out"], read=True)]
        lines += [f"code: {line}" for line in tree.code_warnings()]
        return lines + [f"mixed: {line}" for line in tree.mixtures()]
    except BenchError as error:  # an unreadable record: the chain ends here
        return [*lines, f"chain: {error}"]


def main() -> int:
    parser = Parser(description="Compare a results tree with its manifest.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>, or a kept tree")
    args = parser.parse_args()
    tree = open_tree(args.results)
    lines = problems(tree)
    for line in lines:
        print(line)
    content = read_manifest(tree.root)
    if content["left_out"]:
        print(f"{args.results}: not kept here, so not checked: {', '.join(sorted(content['left_out']))}")
    listed = ", ".join(f"{len(content.get(part, ()))} {what}" for part, what in manifest.PARTS.items())
    print(f"{args.results}: {f'{len(lines)} problems' if lines else 'everything stands'} ({listed} listed)")
    return 1 if lines else 0


if __name__ == "__main__":
    errors.run(main)
