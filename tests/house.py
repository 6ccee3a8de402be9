"""Measure how large this repository is and how much of it a reader must know, by parsing it.

    python -m tests.house

Prints each measure with its budget, and the packages. Nothing of the project is imported, so a file that cannot be
imported is measured as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("workflow", "methods", "evals", "models", "paper", "report", "core", "tepo_bench")
PRODUCT = (*PACKAGES, "examples")
RUN = ("methods.train", "methods.adapters.trl")  # one run with TRL: these, and all that they import
NUMBER = ("evals.grade", "evals.score", "report.tables")  # one number: what loads with these, from sample to page
# At most. 855762b had 40,056 lines of product in 214 files (39,300 in 208 without examples), 28,639 of tests in 122.
BUDGET = {
    "product, lines": 21_500,
    "product, files": 130,
    "scripts, styles and templates, lines": 800,
    "tests, lines": 14_500,
    "tests, files": 85,
    "user docs, kB": 120,
    "user docs, pages": 14,
    "notebook, kB": 130,
    "a TRL run, files": 30,
    "a number from sample to page, files": 10,
}


def python_files(root: Path, packages: Iterable[str] = PACKAGES) -> dict[str, Path]:
    """Return module name -> file, for every Python file in the packages."""
    files = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def rule_files(root: Path) -> list[Path]:
    """Return Snakemake's files: counted, but not Python that `ast` can parse."""
    return [*sorted((root / "workflow").rglob("*.smk")), root / "Snakefile"]


def imports(root: Path, *, inside_functions: bool) -> dict[str, set[str]]:
    """Return the project modules that each module of the repository at `root` imports. Imports must be absolute; those
    only for type checking are left out. inside_functions: also those that run later."""
    files, found = python_files(root), {}
    for name, path in files.items():
        named: set[str] = set()
        waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                continue
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not inside_functions:
                continue
            if isinstance(node, ast.Import):
                named.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"relative import: {ast.unparse(node)}"
                inner = [f"{node.module}.{alias.name}" for alias in node.names]  # a module, else a part of one
                named.update(name if name in files else str(node.module) for name in inner)
            waiting += ast.iter_child_nodes(node)
        found[name] = named & files.keys() - {name}
    return found


def reachable(imported: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """Return `start` and the modules that it reaches."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        if (name := waiting.pop()) not in reached:
            reached.add(name)
            waiting += imported[name]
    return reached


def figures(root: Path) -> dict[str, int]:
    """Return each measure of `BUDGET` for the repository at `root`."""
    loads, needs = (imports(root, inside_functions=later) for later in (False, True))
    tests = [_lines(path) for path in python_files(root, ["tests"]).values()]
    product = [*python_files(root, PRODUCT).values(), *rule_files(root)]
    kinds = (".js", ".css", ".j2", ".sh")
    styles = [
        p for package in PRODUCT for p in (root / package).rglob("*") if p.suffix in kinds and "vendor" not in p.parts
    ]
    docs = [root / "README.md", root / "CONTRIBUTING.md", root / "config/README.md", *(root / "docs").glob("*.md")]
    run = {name for entry in RUN for name in reachable(needs, entry)}
    number = {name for entry in NUMBER for name in reachable(loads, entry)}
    found = (
        sum(map(_lines, product)), len(product), sum(map(_lines, styles)), sum(tests), len(tests), _kilobytes(docs),
        len(docs), _kilobytes((root / "docs/notebook").glob("*.md")), len(run), len(number),
    )  # fmt: skip
    return dict(zip(BUDGET, found, strict=True))


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _kilobytes(paths: Iterable[Path]) -> int:
    return round(sum(path.stat().st_size for path in paths) / 1000)


def main() -> None:
    print("| | now | at most |\n|---|---:|---:|")
    for name, value in figures(ROOT).items():
        print(f"| {name} | {value:,} | {BUDGET[name]:,} |")
    for package in (*PRODUCT, "tests"):
        files = [*python_files(ROOT, [package]).values(), *(path for path in rule_files(ROOT) if package in path.parts)]
        print(f"| {package}: lines in {len(files)} files | {sum(map(_lines, files)):,} | |")


if __name__ == "__main__":
    main()
