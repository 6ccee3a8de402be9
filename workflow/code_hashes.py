"""Hashes of the source files that a job's numbers depend on, as params of its rule.

Snakemake does not see an edit of a Python file that `shell:` calls. With these, editing TEPO's file reruns TEPO's runs
and what follows, editing a reducer reruns every run, and editing the grader grades again without generating again.
"""

from __future__ import annotations

from functools import cache

from methods.training import code_hashes
from records.provenance import code_hash


@cache
def train(method: str, trainer: str) -> str:
    """A run: the method's own catalog files, the shared parts of `methods/`, the adapter, the reward's own file.

    Not the grader behind the reward: mending how one odd answer is read must grade again, not train again. What
    a run was rewarded by is in its record (commit, versions).
    """
    return code_hash([*code_hashes.shared_files(trainer), *code_hashes.catalog_files(method), "evals/reward.py"])


@cache
def recipe(model: str, ladder: str) -> str:
    """A base model: its recipe and the code that decides its weights."""
    from models import recipe as models

    return models.recipe_hash(model, ladder)


@cache
def prompts(source: str) -> str:
    """What the prompts of a source are made by: the generator, or the choice and the evaluation's own prompt."""
    if source == "arithmetic":
        return code_hash(["evals/arithmetic.py", "models/prompts.py"])
    return code_hash(["models/prompts.py", "models/training_data.py", "evals/generation/prompts.py"])


# What the problems are, and how they are asked: read by every step that touches an item.
_ITEMS = ("evals/tasks", "evals/arithmetic.py", "evals/benchmark.py", "evals/data.py")


@cache
def benchmarks() -> str:
    return code_hash([*_ITEMS, "evals/fetch.py", "evals/fetch.py"])


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
    return code_hash(["report/paper", "paper/printed.py"])
