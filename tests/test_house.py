"""The structure of the repository: who imports whom, and how much there is."""

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


def test_imports_have_no_cycles_and_lead_to_the_layers_below() -> None:
    for inside_functions in (False, True):
        found = house.imports(house.ROOT, inside_functions=inside_functions)
        TopologicalSorter(found).prepare()
    packages = {name: name.split(".")[0] for name in found}
    edges = [(a, b) for a, imported in found.items() for b in imported if packages[a] in LAYERS]
    assert [(a, b) for a, b in edges if packages[b] not in (packages[a], *LAYERS[packages[a]])] == []


# parts of the budget that are met; `python -m tests.house` prints all
HELD = {"scripts, styles and templates, lines", "user docs, kB", "user docs, pages", "notebook, kB"}


def test_the_budget_holds_where_it_is_met() -> None:
    assert house.BUDGET.keys() >= HELD
    found = house.figures(house.ROOT)
    assert {name: found[name] for name in HELD if found[name] > house.BUDGET[name]} == {}
