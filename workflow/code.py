"""Hashes of the source files that a job's numbers depend on, as params of its rule.

Snakemake does not see an edit of a Python file that `shell:` calls. With these, editing TEPO's file reruns TEPO's runs
and what follows, editing a reducer reruns every run, and editing the grader grades again without generating again.
"""

from __future__ import annotations

import ast
from functools import cache

from records.provenance import ROOT, code_hash


def _top_level(room: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / room).glob("*.py"))


# These write pages for people; no number of a run depends on them.
_NOT_NUMBERS = {"methods/docs.py"}


@cache
def catalog_files(method: str) -> tuple[str, ...]:
    """The catalog file that defines `method` and those it is composed from (GSPO shares TEPO's ratio, for one)."""
    from methods import catalog

    name = catalog.parse(method).key.split("+")[0]
    files, todo = set(), [catalog.recipes()[name].parts.__module__]
    while todo:
        file = todo.pop().replace(".", "/") + ".py"
        if file not in files:
            files.add(file)
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            imported = (node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module)
            todo += [module for module in imported if module.startswith("methods.catalog.")]
    return tuple(sorted(files))


@cache
def train(method: str) -> str:
    """A run: the method's own catalog files, the shared parts of `methods/`, the adapter, the reward's own file.

    Not the grader behind the reward: mending how one odd answer is read must grade again, not train again. What
    a run was rewarded by is in its record (commit, versions).
    """
    shared = [path for path in _top_level("methods") if path not in _NOT_NUMBERS]
    return code_hash([*shared, *catalog_files(method), "methods/adapters", "evals/reward.py"])


@cache
def recipe(model: str, ladder: str) -> str:
    """A base model: its recipe and the code that decides its weights."""
    from models import cache as models

    return models.recipe_hash(model, ladder)


@cache
def prompts() -> str:
    return code_hash(["evals/arithmetic.py", "models/prompts.py"])


# What the problems are, and how they are asked: read by every step that touches an item.
_ITEMS = ("evals/tasks", "evals/arithmetic.py", "evals/benchmark.py", "evals/data.py")


@cache
def benchmarks() -> str:
    return code_hash([*_ITEMS, "evals/fetch.py", "evals/download.py"])


@cache
def generate() -> str:
    return code_hash([*_ITEMS, "evals/generate.py", "evals/generation"])


@cache
def grade() -> str:
    return code_hash(["evals/data.py", "evals/grade.py", "evals/grading"])


@cache
def score() -> str:
    return code_hash(["evals/score.py", "evals/stats"])


@cache
def matrix() -> str:
    """What is planned, and the titles and sizes that the registries give it."""
    return code_hash([*_ITEMS, "workflow/matrix.py", "methods/catalog", "config/models"])


@cache
def report() -> str:
    return code_hash(["report", "evals/stats"])


@cache
def audit() -> str:
    return code_hash(["report/paper", "evals/stats/decode.py"])
