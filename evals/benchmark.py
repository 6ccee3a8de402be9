"""What a benchmark is: where its items come from, how their content is known to be right, how answers are drawn."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from records.errors import ConfigError, unknown

Row = Mapping[str, Any]

KINDS = ("mixed", "string", "integer", "decimal", "scientific", "exact", "list", "symbolic")
"""Kinds of gold answers: one of `evals.grading.decide.KINDS` when every gold of the set is of it, else `mixed`."""
PROMPTS = ("system", "user", "none", "arithmetic")
"""How a problem becomes a prompt (reading E3; `evals.generation.prompts`)."""
COPIES = ("paper", "unique", "keep")
"""What to do with a problem that occurs twice (reading E2; `evals.stats.responses`)."""


@dataclass(frozen=True)
class Decoding:
    """How responses are drawn: `samples` per item; temperature 0 is greedy; `max_tokens` bounds one response."""

    samples: int
    temperature: float
    top_p: float
    max_tokens: int

    def __post_init__(self) -> None:
        if self.samples < 1 or self.max_tokens < 1:
            raise ConfigError(
                f"decoding: samples and max_tokens must be positive, got {self.samples}, {self.max_tokens}"
            )
        if self.temperature < 0 or not 0 < self.top_p <= 1:
            raise ConfigError(f"decoding: temperature {self.temperature} or top_p {self.top_p} out of range")
        if self.greedy and self.samples != 1:
            raise ConfigError(f"decoding: {self.samples} greedy samples would be {self.samples} copies of one response")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True)
class Item:
    """One problem with its gold answer, as stored upstream (quirks kept; the grader normalises).

    item_id: hash of the problem's text (`evals.data.item_id`), so that order and numbering upstream do not matter.
    multiple: `answer` is a comma-separated list of values that are all wanted. tolerance: absolute, stated by the
    item.
    """

    item_id: str
    problem: str
    answer: str
    multiple: bool = False
    tolerance: str | None = None
    unit: str | None = None
    facts: Row = field(default_factory=dict)


@dataclass(frozen=True)
class RepositoryFile:
    """A JSONL file of a public git repository, read at `Benchmark.revision` (a commit)."""

    repository: str
    path: str
    read: Callable[[Row], Row]

    def __str__(self) -> str:
        return f"{self.repository}: {self.path}"


@dataclass(frozen=True)
class HubFile:
    """A JSONL file of a data set on the Hugging Face hub. revision None: the newest; the content's sha256 decides."""

    dataset: str
    path: str
    read: Callable[[Row], Row]
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.dataset} (hub): {self.path}"


@dataclass(frozen=True)
class Generated:
    """Items the repository makes itself: nothing is downloaded."""

    by: str
    make: Callable[[], list[Row]]

    def __str__(self) -> str:
        return self.by


Source = RepositoryFile | HubFile | Generated


@dataclass(frozen=True)
class KnownBad:
    """An item whose gold or text is broken upstream. Listed, graded as it is, never repaired silently."""

    item_id: str
    why: str


@dataclass(frozen=True)
class Benchmark:
    """One entry of the registry.

    source, revision: where the items come from; alternatives: tried in order when the source cannot be reached.
    sha256: of the normalised content (`evals.data.content_sha256`), the same from every source. n: rows, with copies.
    files: other names under which a mirror may hold the file. stands_for: the paper's set in whose place this stands.
    prompt: default reading of E3. duplicates: of E2. checked_against: what the content was compared with.
    """

    key: str
    title: str
    source: Source
    revision: str
    sha256: str
    n: int
    licence: str
    prompt: str
    answer_kind: str
    decoding: Decoding
    stands_for: str | None = None
    duplicates: str = "paper"
    known_bad: tuple[KnownBad, ...] = ()
    alternatives: tuple[Source, ...] = ()
    files: tuple[str, ...] = ()
    checked_against: str = ""
    notes: str = ""

    def __post_init__(self) -> None:
        where = f"evals/tasks: {self.key}"
        for name, value, allowed in (
            ("prompt", self.prompt, PROMPTS),
            ("answer_kind", self.answer_kind, KINDS),
            ("duplicates", self.duplicates, COPIES),
        ):
            if value not in allowed:
                raise unknown(where, name, value, allowed)
        if self.n < 1:
            raise ConfigError(f"{where}: n: a benchmark has items, got {self.n}")

    @property
    def synthetic(self) -> bool:
        """Made by the repository itself: its numbers say nothing about the set it stands for."""
        return isinstance(self.source, Generated)

    @property
    def responses(self) -> int:
        return self.n * self.decoding.samples


# All benchmarks. A file in `evals/tasks/` is registered by being there; nothing is imported but those files.


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
