"""The hash of the code behind each stage, as a param of its rule; docs/provenance.md says what an edit makes again.

Snakemake does not see an edit of a Python file that `shell:` calls. The files are derived (`records.code_hashes`) from
the module that the rule runs. A rule names it to `command`; only the stages that also find modules by name when they
run have a function of their own here. Rules ask lazily, since every job of a cluster reads the Snakefile again and most
need one of these.
"""

from __future__ import annotations

from functools import cache

from evals.benchmark import module_of
from methods.training import run_folder
from records.code_hashes import closure, code_hash, submodules

TASKS = submodules("evals.tasks")
CATALOG = submodules("methods.catalog")

# Some tasks and training data read an upstream answer with a function of the grader. Every task pins the sha256 of its
# items, so a change there cannot pass unseen, and a correction of the grader need not draw all responses again.
NO_GRADER = ("evals.grading",)


@cache
def train(method: str, trainer: str, *rewards: str) -> str:
    """A run: its method's catalog file, its trainer's adapter, all that they import, and its rewards' own files."""
    identity = run_folder.code_identity(method, trainer, *rewards)
    return f"{identity['code']}-{identity['method_code']}"


@cache
def prompts(source: str) -> str:
    """Training prompts; those that are generated do not depend on how a data set is read."""
    without = ("models.training_data",) if source == "arithmetic" else NO_GRADER
    return code_hash(closure("models.prompts", without=without))


@cache
def command(module: str) -> str:
    """A stage whose imports say all: `python -m MODULE`. The stages below also find modules by name, or print prose."""
    return code_hash(closure(module))


@cache
def benchmarks(*keys: str) -> str:
    """Only the files of these benchmarks: one that is added beside them makes none of them again."""
    return code_hash(closure("evals.fetch", *map(module_of, keys), without=NO_GRADER))


@cache
def generate(*keys: str) -> str:
    return code_hash(closure("evals.generate", *map(module_of, keys), without=NO_GRADER))


@cache
def matrix() -> str:
    """What is planned, with the titles that the files of the catalog and the benchmarks give it, but no other prose."""
    files = closure("workflow.matrix", *CATALOG, *TASKS)
    titled = [file for file in files if file.startswith(("methods/catalog/", "evals/tasks/"))]
    return f"{code_hash(files)}-{code_hash(titled, prose=True)}"


@cache
def report() -> str:
    """The page: templates, styles, captions, the texts of methods, readings and benchmarks, and its view of losses."""
    # A hash and no input: the same for every tree, and Snakemake compares the paths of inputs, which a copy changes.
    losses = [f"docs/{name}" for name in ("atlas.md", "sampler.md", "sampler.svg")]
    return code_hash([*closure("report.build", *CATALOG, *TASKS), *losses], prose=True)
