"""What a benchmark is: where its items come from, how their content is known to be right, how answers are drawn."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from core import code_hashes, digests, registries
from core.declared import Recorded, validated
from core.errors import ConfigError, CorruptInputError, unknown

Row = Mapping[str, Any]

# Kinds of gold answers: one of `evals.grading.decide.Gold.kind` when every gold of the set is of it, else `mixed`.
KINDS = ("mixed", "string", "integer", "decimal", "scientific", "exact", "list", "symbolic")
GENERATED = ("arithmetic", "questions")  # modules of evals that generate problems, and how these become prompts
PROMPTS = ("system", "user", "none", *GENERATED)  # how a problem becomes a prompt (reading E3; generation/prompts.py)
COPIES = ("paper", "unique", "keep")  # what to do with a problem that occurs twice (reading E2; stats/responses.py)


@dataclass(frozen=True)
class Decoding:
    """How responses are drawn."""

    samples: int  # per item
    temperature: float  # 0 is greedy
    top_p: float
    max_tokens: int  # of one response

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
        """Whether the likeliest token is taken instead of a draw."""
        return self.temperature == 0


@dataclass(frozen=True)
class Item:
    """One problem with its gold answer, as stored upstream (quirks kept; the grader normalises)."""

    item_id: str  # hash of the problem's text (`evals.data.item_id`): order and numbering upstream do not matter
    problem: str
    answer: str
    multiple: bool = False  # `answer` is a comma-separated list of values that are all wanted
    tolerance: str | None = None  # absolute, stated by the item
    unit: str | None = None
    facts: Row = field(default_factory=dict)  # further fields of the source (level, difficulty), never checked


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
    """Items that the repository generates itself: nothing is downloaded."""

    by: str
    make: Callable[[], list[Row]]

    def __str__(self) -> str:
        return self.by


@dataclass(frozen=True)
class Adopted:
    """Items as the sample logs of another tool hold them (`python -m evals.adopt`)."""

    tool: str

    def __str__(self) -> str:
        return f"logs of {self.tool}"


Source = RepositoryFile | HubFile | Generated | Adopted


@dataclass(frozen=True)
class KnownBad:
    """An item whose gold or text is broken upstream. Listed, graded as it is, never silently repaired."""

    item_id: str
    why: str


@dataclass(frozen=True)
class Benchmark:
    """One benchmark. Raises ConfigError, on construction, for a value that is not allowed."""

    key: str
    title: str
    source: Source
    revision: str  # commit of the source
    sha256: str  # of the normalised content (`evals.data.content_sha256`), the same from every source
    n: int  # rows, with copies
    licence: str
    prompt: str  # one of PROMPTS
    answer_kind: str  # one of KINDS
    decoding: Decoding
    stands_for: str | None = None  # the paper's set in whose place this one stands in tables
    duplicates: str = "paper"  # one of COPIES
    known_bad: tuple[KnownBad, ...] = ()
    alternatives: tuple[Source, ...] = ()  # tried in order when the source cannot be reached
    files: tuple[str, ...] = ()  # other names under which a mirror may hold the file
    checked_against: str = ""  # what the content was compared with
    notes: str = ""
    meant: str = ""  # what a person must know to check an answer and the problem does not say: "modulo 10"

    def __post_init__(self) -> None:
        file = f"evals/tasks: {self.key}"
        for name, value, allowed in (
            ("prompt", self.prompt, PROMPTS),
            ("answer_kind", self.answer_kind, KINDS),
            ("duplicates", self.duplicates, COPIES),
        ):
            if value not in allowed:
                raise unknown(file, name, value, allowed)
        if self.n < 1:
            raise ConfigError(f"{file}: n: must be positive, got {self.n}")

    @property
    def synthetic(self) -> bool:
        """Generated by the repository itself: its numbers say nothing about the set it stands for."""
        return isinstance(self.source, Generated)

    @property
    def responses(self) -> int:
        """Responses of one evaluation: items times samples."""
        return self.n * self.decoding.samples


# The registry. A file in `evals/tasks/` is registered by being there.

# The paper's seven, in the order of its tables: what `all` means.
COMMAND_LINE = "command line"
# Some benchmarks read an upstream answer with a function of the grader. Each pins the sha256 of its items, so a change
# there cannot pass unseen, and a correction of the grader need not draw all responses again.
NO_GRADER = {"evals.fetch": ("evals.grading",), "evals.generate": ("evals.grading",)}
PAPER = ("aime24", "aime25", "amc", "math500", "omni_math", "olympiadbench", "minerva")


@cache
def _entries(module: str) -> dict[str, Benchmark]:
    """What one file defines, by key."""
    file = f"{module.replace('.', '/')}.py"
    task = importlib.import_module(module)
    own = [*getattr(task, "BENCHMARKS", ()), *([task.BENCHMARK] if hasattr(task, "BENCHMARK") else [])]
    if not own:
        raise ConfigError(f"{file}: defines neither BENCHMARK nor BENCHMARKS")
    return {entry.key: entry for entry in own}


@cache
def keys() -> tuple[str, ...]:
    """Keys of all benchmarks: the paper's seven in its order, then the others. It imports every file."""
    import evals.tasks

    found: list[str] = []
    for module in registries.modules("evals.tasks", evals.tasks.__path__):
        if taken := set(found) & set(_entries(module)):
            raise ConfigError(f"{module.replace('.', '/')}.py: key {min(taken)!r} is taken")
        found += _entries(module)
    return (*PAPER, *(key for key in found if key not in PAPER))


def _candidates(key: str) -> tuple[str, ...]:
    """The files that may define a benchmark."""
    import evals.tasks

    return registries.declaring("evals.tasks", evals.tasks.__path__, key)


@cache
def registered(key: str) -> bool:
    """Whether a file of `evals/tasks/` defines the benchmark; no more are imported than to find one."""
    return any(key in _entries(module) for module in _candidates(key))


@cache
def modules_of(key: str, where: str = "evals/tasks", name: str = "benchmark") -> tuple[str, ...]:
    """The files that are imported to find a benchmark; the last one defines it. ConfigError for an unknown key, with
    the place and the name of what was given."""
    candidates = _candidates(key)
    for number, module in enumerate(candidates, 1):
        if key in _entries(module):
            return candidates[:number]
    raise unknown(where, name, key, (*(["all"] if where == COMMAND_LINE else []), *keys()))


def benchmark(key: str) -> Benchmark:
    """The benchmark `key`; ConfigError with the nearest match for one that is not there."""
    return _entries(modules_of(key)[-1])[key]


def code(module: str, keys: Iterable[str]) -> code_hashes.Code:
    """The code of the command `module` on these benchmarks; for those of adopted logs, the files that lack them."""
    files = sorted({file for key in keys for file in (modules_of(key) if registered(key) else _candidates(key))})
    return code_hashes.command(module, *files, unhashed=NO_GRADER.get(module, ()))


# A benchmark that no file of `evals/tasks/` defines: items of another tool's logs. Its definition lies beside them.


class Definition(Recorded):
    """<key>.benchmark.json in a data folder, as `python -m evals.adopt` writes it."""

    title: str
    tool: str
    sha256: str
    n: int


def definition(folder: Path, key: str) -> Path:
    """Where a data folder defines the benchmark `key`, if it does."""
    return folder / f"{key}.benchmark.json"


def defined(key: str, folder: Path) -> Benchmark:
    """The benchmark that the data folder defines, else the registry's; ConfigError when neither does."""
    path = definition(folder, key)
    if not path.is_file():
        return benchmark(key)
    own = validated(
        Definition, digests.read_record(path, "definition of a benchmark"), str(path), error=CorruptInputError
    )
    return Benchmark(
        key, own.title, Adopted(own.tool), "", own.sha256, own.n, "unknown", "none", "mixed",
        Decoding(1, 0.0, 1.0, 1), duplicates="keep", notes="How its responses were drawn is not known.",
    )  # fmt: skip


def select(names: Iterable[str]) -> tuple[Benchmark, ...]:
    """Benchmarks by key, also several with commas; `all` is the paper's seven. ConfigError for none, an unknown one or
    one given twice."""
    parts = [part.strip() for name in names for part in name.split(",")]
    selected = [key for part in parts if part for key in (PAPER if part == "all" else (part,))]
    for key in selected:
        modules_of(key, COMMAND_LINE, "--benchmarks")
    if not selected:
        raise ConfigError("benchmarks: none given")
    if twice := sorted({key for key in selected if selected.count(key) > 1}):
        raise ConfigError(f"benchmarks: {twice[0]} is given twice")
    return tuple(benchmark(key) for key in selected)
