"""All benchmarks. A file in `evals/tasks/` is registered by being there; nothing is imported but those files."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache

from evals.benchmark import Benchmark
from records.errors import ConfigError, unknown

PAPER = ("aime24", "aime25", "amc", "math500", "omni_math", "olympiadbench", "minerva")
"""The paper's seven, in the order of its tables: what `all` means."""


@cache
def _benchmarks() -> dict[str, Benchmark]:
    import evals.tasks

    found: dict[str, Benchmark] = {}
    for module in sorted(pkgutil.iter_modules(evals.tasks.__path__), key=lambda module: module.name):
        where = f"evals/tasks/{module.name}.py"
        loaded = importlib.import_module(f"evals.tasks.{module.name}")
        entries = [*getattr(loaded, "BENCHMARKS", ()), *([loaded.BENCHMARK] if hasattr(loaded, "BENCHMARK") else [])]
        if not entries:
            raise ConfigError(f"{where}: defines neither BENCHMARK nor BENCHMARKS")
        for entry in entries:
            if entry.key in found:
                raise ConfigError(f"{where}: key {entry.key!r} is taken")
            found[entry.key] = entry
    return {key: found[key] for key in (*PAPER, *(key for key in found if key not in PAPER))}


def keys() -> tuple[str, ...]:
    """Keys of all benchmarks: the paper's seven in its order, then the others."""
    return tuple(_benchmarks())


def benchmark(key: str) -> Benchmark:
    """The benchmark `key`; ConfigError with the nearest match for one that is not there."""
    if key not in _benchmarks():
        raise unknown("evals/tasks", "benchmark", key, keys())
    return _benchmarks()[key]


def select(names: Iterable[str]) -> tuple[Benchmark, ...]:
    """Benchmarks by key; `all` is the paper's seven. ConfigError for none, an unknown one or one given twice."""
    asked = [key for name in names for key in (PAPER if name == "all" else (name,))]
    if not asked:
        raise ConfigError("benchmarks: none given")
    if twice := sorted({key for key in asked if asked.count(key) > 1}):
        raise ConfigError(f"benchmarks: {twice[0]} is given twice")
    return tuple(benchmark(key) for key in asked)
