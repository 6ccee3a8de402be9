"""`python -m report.verify --results results/quick`: does every file still match the manifest?

Compares the tree with its manifest, and its records with the files and inputs that they list. Of a kept tree, only its
files are compared. Exit code 0: all of that holds; 1: the printed lines list what does not; 2: there is no manifest. A
warning, where code or package versions are mixed or changed during a run, is printed alone.
"""

from contextlib import suppress
from pathlib import Path

from core import digests, errors
from core.errors import BenchError, Parser
from evals.tree import ARCHIVE, Tree, open_tree, read_manifest
from report import manifest

README = "README.md"  # of a kept tree: text that may be edited


def problems(tree: Tree) -> list[str]:
    """Return one line for each file that differs, is missing or is extra, for each record or score that contradicts
    the files."""
    content = read_manifest(tree.root)
    files = {name: digest for name, digest in content["files"].items() if name != README}
    paths = {path.relative_to(tree.root).as_posix(): path for path in manifest.walk(tree.root)}
    if tree.kept is not None:  # files next to its archive are shown on the web
        beside = {path.relative_to(tree.kept).as_posix(): path for path in manifest.walk(tree.kept)}
        paths |= {name: path for name, path in beside.items() if name not in (ARCHIVE, README)}
    found = digests.of(paths.values())
    lines = [f"missing: {name}" for name in files if name not in paths]
    for name, path in paths.items():
        if name not in files:
            lines.append(f"extra: {name}")
        elif found[path] != files[name]:
            lines.append(f"differs: {name}: sha256 {found[path][:12]}, the manifest has {files[name][:12]}")
    try:
        if not content["left_out"]:
            lines += [f"missing: {name}" for name in content["inputs"] if not manifest.located(tree, name).is_file()]
            listed: dict[tuple[Path, str], dict[str, Path]] = {}
            for one in manifest.entries(tree):
                listed.setdefault((one.path, one.kind), {}).setdefault(one.sha256, one.record)
            for (path, kind), records in listed.items():
                if path.exists():
                    now = found.get(path) or manifest.HASH[kind](path)
                    differ = [record for sha256, record in records.items() if sha256 != now]
                    lines += [f"chain: {path}: not the {kind} that {record} lists" for record in differ]
                else:
                    lines.append(f"chain: {path}: missing, though {next(iter(records.values()))} lists it")
        list(tree.records())
    except BenchError as error:  # an unreadable record: the chain ends here
        lines.append(f"chain: {error}")
    return lines


def warnings(tree: Tree) -> list[str]:
    """Return one line for each run whose code changed while it ran, and each stage whose results have mixed origins."""
    with suppress(BenchError):  # an unreadable record, which is one of the `problems`
        return [*(f"code: {line}" for line in tree.code_warnings()), *(f"mixed: {line}" for line in tree.mixtures())]
    return []


def main() -> int:
    parser = Parser(description="Compare a results tree with its manifest.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>, or a kept tree")
    args = parser.parse_args()
    tree = open_tree(args.results)
    lines, content = problems(tree), read_manifest(tree.root)
    print("".join(f"{line}\n" for line in [*lines, *warnings(tree)]), end="")
    if content["left_out"]:
        print(f"{args.results}: not kept here, so not checked: {', '.join(sorted(content['left_out']))}")
    listed = ", ".join(f"{len(content[part])} {what}" for part, what in manifest.PARTS.items())
    print(f"{args.results}: {f'{len(lines)} problems' if lines else 'everything stands'} ({listed} listed)")
    return 1 if lines else 0


if __name__ == "__main__":
    errors.run(main)
