"""Hashes of the source files that a job's numbers depend on, as params of its rule.

Snakemake does not see an edit of a Python file that `shell:` calls. With these, editing TEPO's file reruns TEPO's runs
and what follows, editing a reducer reruns every run, and editing the grader grades again without generating again.
"""

from __future__ import annotations

from functools import cache

from records.provenance import ROOT, code_hash


def _top_level(room: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / room).glob("*.py"))


# These write pages for people; no number of a run depends on them.
_NOT_NUMBERS = {"methods/docs.py"}


@cache
def train(method: str) -> str:
    """A run: the method's own catalog file, the shared parts of `methods/`, the adapter, the reward."""
    from methods import catalog

    shared = [path for path in _top_level("methods") if path not in _NOT_NUMBERS]
    catalog_file = catalog.source_file(method.split("+")[0]).relative_to(ROOT)
    return code_hash(
        [
            *shared,
            catalog_file,
            "methods/catalog/__init__.py",
            "methods/adapters",
            "evals/reward.py",
            "evals/grading",
        ]
    )


@cache
def recipe(model: str, ladder: str) -> str:
    """A base model: its recipe and the code that decides its weights."""
    from models import cache as models

    return models.recipe_hash(model, ladder)


@cache
def prompts() -> str:
    return code_hash(["evals/arithmetic.py", "models/prompts.py"])


@cache
def benchmarks() -> str:
    return code_hash(["evals/tasks", "evals/arithmetic.py", "evals/benchmark.py", "evals/fetch.py"])


@cache
def generate() -> str:
    return code_hash(["evals/generate.py", "evals/generation"])


@cache
def grade() -> str:
    return code_hash(["evals/grade.py", "evals/grading"])


@cache
def score() -> str:
    return code_hash(["evals/score.py", "evals/stats"])


@cache
def matrix() -> str:
    return code_hash(["workflow/matrix.py"])


@cache
def report() -> str:
    return code_hash(["report", "evals/stats"])
