"""What each stage's code is planned with, as a param of its rule; docs/provenance.md says what an edit makes again.

Snakemake does not see an edit of a Python file that `shell:` calls. The same hash is handed to the job, which refuses
to run other code (`core.used_code`).
"""

from functools import cache

from core import code_hashes
from core.used_code import planned
from evals import benchmark
from methods.training import run_folder
from models import prompts as training_prompts
from models import recipe


@cache
def train(method: str, trainer: str, *rewards: str) -> str:
    """A run: its method's catalog file, its trainer's adapter, all that they import, and its rewards."""
    return planned(run_folder.code_of(method, trainer, *rewards).hash)


@cache
def prompts(source: str) -> str:
    """Training prompts, as they are named."""
    return training_prompts.code(source).hash


@cache
def bases() -> str:
    """Base models made here."""
    return planned(recipe.code().hash)


@cache
def command(module: str) -> str:
    """A stage that may use every method and every benchmark."""
    return planned(code_hashes.command(module).hash)


@cache
def of_benchmarks(module: str, *keys: str) -> str:
    """A stage that uses these benchmarks: one that is added beside them makes nothing again."""
    return planned(benchmark.code(module, keys).hash)
