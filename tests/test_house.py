"""The structure of the repository: who imports whom, how much, and which calls leave a choice to the machine."""

import ast
from functools import cache
from graphlib import TopologicalSorter

from tests import house

LAYERS = {  # package -> the packages that it may import (docs/architecture.md)
    "core": (),
    "methods": ("core",),
    "tepo_bench": ("core", "methods"),
    "evals": ("core", "methods"),  # methods.sampling: training and evaluation draw by one loop
    "models": ("core", "methods", "evals"),  # likewise
    "paper": ("core", "evals"),
    "report": ("core", "methods", "evals", "paper"),
    "workflow": ("core", "methods", "evals", "models", "paper", "report"),
}


@cache
def modules() -> dict[str, house.Module]:
    return house.measure(house.ROOT)


def test_imports_have_no_cycles():
    for scope in ("loads", "needs"):
        TopologicalSorter({name: getattr(module, scope) for name, module in modules().items()}).prepare()


def test_a_package_imports_only_from_the_layers_below():
    packages = {name: name.split(".")[0] for name in modules()}
    edges = [(name, other) for name, module in modules().items() for other in module.needs if packages[name] in LAYERS]
    assert [(a, b) for a, b in edges if b.split(".")[0] not in (packages[a], *LAYERS[packages[a]])] == []


# parts of the budget that are met; `python -m tests.house` prints all
HELD = {"scripts, styles and templates, lines", "user docs, kB", "user docs, pages", "notebook, kB"}


def test_the_budget_holds_where_it_is_met():
    assert house.BUDGET.keys() >= HELD
    found = house.figures(house.ROOT)
    assert {name: found[name] for name in HELD if found[name] > house.BUDGET[name]} == {}


def _without_encoding(tree: ast.AST) -> list[int]:
    """Lines that open or start something as text and leave its encoding to the locale."""
    lines = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        mode = next((a.value for a in [*node.args[1:2], given.get("mode")] if isinstance(a, ast.Constant)), "r")
        text = isinstance(node.func, ast.Name) and called == "open" and "b" not in str(mode)
        text |= isinstance(node.func, ast.Attribute) and called == "read_text" and not node.args
        text |= isinstance(node.func, ast.Attribute) and called == "write_text" and len(node.args) < 2
        text |= "text" in given and called in ("run", "Popen", "check_output", "call", "check_call")
        if text and "encoding" not in given:
            lines.append(node.lineno)
    return lines


def found_in_packages(look):
    """File -> lines, for every file of the packages in which `look` finds some."""
    paths = [path for package in LAYERS for path in sorted((house.ROOT / package).rglob("*.py"))]
    lines = {str(path.relative_to(house.ROOT)): look(ast.parse(path.read_bytes())) for path in paths}
    return {path: numbers for path, numbers in lines.items() if numbers}


def test_every_text_file_names_its_encoding():
    """Ruff (PLW1514) sees only what it can infer to be a path, and no subprocess."""
    assert found_in_packages(_without_encoding) == {}


def _bare_numbers(tree: ast.AST) -> list[int]:
    """Lines with an option of argparse whose type is `int` or `float`."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "type" and isinstance(keyword.value, ast.Name) and keyword.value.id in ("int", "float")
    ]


def test_every_number_of_a_command_line_has_bounds():
    """`float` takes nan and infinity, and both take what means nothing: `core.errors` refuses these."""
    assert found_in_packages(_bare_numbers) == {}
