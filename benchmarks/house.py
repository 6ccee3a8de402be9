"""Measure how hard this repository is to read, by parsing it: sizes, comments, helpers, imports.

    python -m benchmarks.house [--against 831cbb3]

Prints a Markdown table; with `--against`, one column for that revision and one for the files in the working tree.
Tests are left out. Nothing of the project is imported, so a file that cannot be imported is measured all the same.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import subprocess
import tarfile
import tempfile
import tokenize
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("workflow", "methods", "evals", "models", "paper", "report", "records", "benchmarks", "tepo_bench")

# The entry modules whose import closures are shown: today's name -> its name before the move of November 2026.
ENTRIES = {
    "methods.catalog.tepo": "methods.catalog.tepo",
    "methods.train": "methods.train",
    "methods.adapters.trl": "methods.adapters.trl",
    "methods.adapters.verl": "methods.adapters.verl",
    "evals.run": "evals.run",
    "report.table": "report.table",
    "paper.claims.__main__": "report.claims.__main__",
    "report.build": "report.build",
}

# The most project files that these may reach. tests/test_house.py checks them. Three of evals.run's are records.worker,
# to which the command that draws hands itself over, records.packed, where files of a reference are found, and
# evals.grading.expressions, which only grading workers load.
CLOSURE_LIMITS = {"report.build": 50, "report.table": 31, "evals.run": 41}


@dataclass(frozen=True)
class Module:
    """One parsed Python file."""

    name: str  # "report.build"; a package has the name of its folder
    lines: int
    comment_only: int  # lines that hold a comment and nothing else
    with_comment: int  # lines that hold a comment, code before it or not
    functions: tuple[int, ...]  # length in lines of each function and method, signature and docstring included
    private: dict[str, int]  # each function `_name` of the module -> how often the file uses it
    loads: frozenset[str]  # project modules imported when this module is loaded
    needs: frozenset[str]  # project modules imported in any scope, those only for type checking left out


def python_files(root: Path) -> dict[str, Path]:
    """Module name -> file, for every Python file in the rooms."""
    files = {}
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def rule_files(root: Path) -> list[Path]:
    """Snakemake's files: counted, but not Python that `ast` can parse."""
    return [path for room in ROOMS for path in sorted((root / room).rglob("*.smk"))] + [root / "Snakefile"]


def measure(root: Path) -> dict[str, Module]:
    """Every module of the repository at `root`."""
    files = python_files(root)
    return {name: parse(name, path, set(files)) for name, path in files.items()}


def parse(name: str, path: Path, known: set[str]) -> Module:
    """Parse one file; `known`: the names of all project modules."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    helpers = [f.name for f in functions if f in tree.body and f.name.startswith("_") and not f.name.startswith("__")]
    uses = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    uses += Counter(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    comments = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT]
    return Module(
        name=name,
        lines=len(text.splitlines()),
        comment_only=sum(token.line.lstrip().startswith("#") for token in comments),
        with_comment=len(comments),
        functions=tuple((f.end_lineno or f.lineno) - f.lineno + 1 for f in functions),
        private={helper: uses[helper] for helper in helpers},
        loads=imported(running_statements(tree, into_functions=False), package, known) - {name},
        needs=imported(running_statements(tree, into_functions=True), package, known) - {name},
    )


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


def imported(nodes: list[ast.AST], package: str, known: set[str]) -> frozenset[str]:
    """The project modules that the import statements among `nodes` name.

    `from a import b` names the module a.b if there is one, else the module a, of which b is a part.
    """
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # `from .x import y`: one dot is this package, each further dot one package up
                folders = package.split(".")
                above = folders[: len(folders) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                names.add(inner if inner in known else base)
    return frozenset(names & known)


def reachable(imports: Mapping[str, frozenset[str]], start: str) -> set[str]:
    """The modules that `start` reaches; `start` itself only if it stands in a circle."""
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


def circles(imports: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """The sets of two or more modules that all reach one another."""
    reach = {name: reachable(imports, name) for name in imports}
    groups = {frozenset(other for other in reach[name] if name in reach[other]) for name in imports}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def figures(root: Path) -> dict[str, str]:
    """Row of the table -> what it says of the repository at `root`."""
    modules = measure(root)
    rules = [len(path.read_text(encoding="utf-8").splitlines()) for path in rule_files(root)]
    code = sum(module.lines for module in modules.values())
    rows = {"Python files": f"{len(modules)}", "Python lines": f"{code:,}"}
    for room in ROOMS:
        inside = [module.lines for module in modules.values() if module.name.split(".")[0] == room]
        rows[f"{room}/: files / lines"] = f"{len(inside)} / {sum(inside):,}"
    rows["Snakemake files / lines"] = f"{len(rules)} / {sum(rules):,}"
    lengths = sorted(length for module in modules.values() for length in module.functions)
    rows["median file, lines"] = f"{statistics.median(module.lines for module in modules.values()):.0f}"
    rows["function, lines: median / 90th percentile"] = (
        f"{statistics.median(lengths):.0f} / {lengths[len(lengths) * 9 // 10]}"
    )
    rows["functions per 1,000 lines"] = f"{1000 * len(lengths) / code:.0f}"
    rows["lines that are a comment"] = f"{sum(m.comment_only for m in modules.values()) / code:.1%}"
    rows["lines with a comment"] = f"{sum(m.with_comment for m in modules.values()) / code:.1%}"
    uses = [count for module in modules.values() for count in module.private.values()]
    rows["private helpers"] = f"{len(uses)}"
    rows["private helpers used once"] = f"{uses.count(1)} ({uses.count(1) / len(uses):.0%})"
    importers = Counter(name for module in modules.values() for name in module.needs)
    rows["files imported by exactly one other"] = f"{list(importers.values()).count(1)}"
    for entry, older in ENTRIES.items():
        limit = f" (limit {CLOSURE_LIMITS[entry]})" if entry in CLOSURE_LIMITS else ""
        rows[f"import closure of {entry}{limit}"] = f"{len(closure(modules, entry if entry in modules else older))}"
    for scope in ("loads", "needs"):
        rings = circles({name: getattr(module, scope) for name, module in modules.items()})
        title = {"loads": "when loaded", "needs": "in any scope"}[scope]
        rows[f"circles of imports {title}"] = "; ".join([f"{len(rings)}", *(", ".join(ring) for ring in rings)])
    return rows


def figures_of(revision: str) -> dict[str, str]:
    """The same for another revision, read from git into a temporary folder."""
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
        return figures(Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.house", description="Measure how hard the repository is to read."
    )
    parser.add_argument("--against", metavar="REVISION", help="a git revision for a second column")
    args = parser.parse_args()
    columns = {args.against: figures_of(args.against)} if args.against else {}
    columns["now"] = figures(ROOT)
    print(f"| | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 1) + "|")
    for row in columns["now"]:
        print(f"| {row} | {' | '.join(column.get(row, '') for column in columns.values())} |")


if __name__ == "__main__":
    main()
