"""Which files decide a run's numbers: the catalog files of its method, shared parts, its trainer's adapter."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from methods.training.spec import TRAINERS
from records.provenance import ROOT, code_hash

# They write pages, serve tests or say what other files are: no number of a run depends on them.
NOT_NUMBERS = (
    "report/docs/methods.py", "methods/training/code_hashes.py", "models/fetch.py", "methods/training/lock.py",
    "tests/adapters/trl_conformance.py", "tests/adapters/verl_conformance.py",
)  # fmt: skip


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
def shared_files(trainer: str) -> tuple[str, ...]:
    """What all methods trained by `trainer` share: the parts of `methods/` and the adapter, not other adapters."""
    adapters = (ROOT / "methods" / "adapters").rglob("*.py")
    ours = [path for path in adapters if _trainer_of(path) in (None, trainer)]
    files = {path.relative_to(ROOT).as_posix() for path in [*(ROOT / "methods").glob("*.py"), *ours]}
    return tuple(sorted(files - set(NOT_NUMBERS)))


def method_hash(method: str) -> str:
    return code_hash(catalog_files(method))


def shared_hash(trainer: str, reward: Path | None = None) -> str:
    """reward: the file that defines the reward, if it is ours."""
    return code_hash([*shared_files(trainer), *([reward] if reward is not None else [])])


def _trainer_of(path: Path) -> str | None:
    """The trainer whose adapter a file of `methods/adapters` belongs to (`trl_config.py`, `verl/loss.py`), or None."""
    first = path.relative_to(ROOT / "methods" / "adapters").parts[0].removesuffix(".py")
    return next((trainer for trainer in TRAINERS if first == trainer or first.startswith(f"{trainer}_")), None)
