"""Measure how large this repository is and how much of it a reader must know, by parsing it.

    python -m tests.house

Prints Markdown tables: each measure with its budget, and the packages. Nothing of the project is imported, so a file
that cannot be imported is measured as well.
"""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

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


class Module(NamedTuple):
    """Imports of one Python file; a package has the name of its folder."""

    loads: frozenset[str]  # project modules imported when this module is loaded
    needs: frozenset[str]  # project modules imported in any scope, those only for type checking left out


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


def measure(root: Path) -> dict[str, Module]:
    """Return the imports of every module of the repository at `root`, by its name ("report.page")."""
    files = python_files(root)
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in files.items()}
    return {
        name: Module(
            *(imported(running_statements(tree, into_functions=deep), {*files} - {name}) for deep in (False, True))
        )
        for name, tree in trees.items()
    }


def running_statements(node: ast.AST, *, into_functions: bool) -> list[ast.AST]:
    """All nodes below `node` except those under `if TYPE_CHECKING:`, and on wish those inside functions."""
    nodes: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not into_functions:
            continue
        nodes += [child, *running_statements(child, into_functions=into_functions)]
    return nodes


def imported(nodes: list[ast.AST], known: set[str]) -> frozenset[str]:
    """The modules in `known` that the import statements among `nodes` name. Imports must be absolute.

    `from a import b` names the module a.b if there is one, else the module a, of which b is a part.
    """
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"relative import: {ast.unparse(node)}"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names.update(name if name in known else str(node.module) for name in inner)
    return frozenset(names & known)


def reachable(imports: Mapping[str, frozenset[str]], start: str) -> set[str]:
    """The modules that `start` reaches."""
    reached: set[str] = set()
    waiting = list(imports[start])
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += imports[name]
    return reached


def closure(modules: Mapping[str, Module], entry: str) -> set[str]:
    """The project files to know before `entry` is known whole: it and all that it reaches by imports in any scope."""
    return {entry} | reachable({name: module.needs for name, module in modules.items()}, entry)


def figures(root: Path) -> dict[str, int]:
    """Return each measure of `BUDGET` for the repository at `root`."""
    modules = measure(root)
    tests = [_lines(path) for path in python_files(root, ["tests"]).values()]
    product = [*python_files(root, PRODUCT).values(), *rule_files(root)]
    kinds = (".js", ".css", ".j2", ".sh")
    styles = [
        p for package in PRODUCT for p in (root / package).rglob("*") if p.suffix in kinds and "vendor" not in p.parts
    ]
    docs = [root / "README.md", root / "CONTRIBUTING.md", root / "config/README.md", *(root / "docs").glob("*.md")]
    run = {name for entry in RUN for name in closure(modules, entry)}
    loads = {name: module.loads for name, module in modules.items()}
    number = {name for entry in NUMBER for name in (entry, *reachable(loads, entry))}
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
    print("\n| package | lines | files | median file |\n|---|---:|---:|---:|")
    for package in (*PRODUCT, "tests"):
        paths = [*python_files(ROOT, [package]).values(), *(path for path in rule_files(ROOT) if package in path.parts)]
        lines = [_lines(path) for path in paths] or [0]
        print(f"| {package} | {sum(lines):,} | {len(paths)} | {statistics.median(lines):.0f} |")
    longest = sorted(((_lines(path), name) for name, path in python_files(ROOT, PRODUCT).items()), reverse=True)
    print("\nover 500 lines:", ", ".join(f"{name} {lines}" for lines, name in longest if lines > 500) or "none")


if __name__ == "__main__":
    main()
