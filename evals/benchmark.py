"""Benchmarks: where their items come from, how their content is verified, how responses are drawn.

Each file `evals/tasks/*.yaml` registers benchmarks by key, with the fields of `Benchmark`. Its entry `common` applies
to all others; an entry with `of` begins with the fields of that one.
"""

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, NonNegativeFloat, PositiveInt

from core.code import Code
from core.declared import Declared, Tuple, check, validated
from core.errors import ConfigError, unknown
from core.files import read_json, read_yaml
from core.provenance import ROOT

Row = Mapping[str, Any]

TASKS = "evals/tasks"
GENERATED = ("arithmetic", "questions")  # modules of evals that generate problems and their prompts
Template = Literal["system", "user", "none", "arithmetic", "questions"]  # generation/prompts.py
PROMPTS: tuple[str, ...] = get_args(Template)
OWN = ".jsonl"  # a benchmark whose name ends like this is a user's file
PAPER = ("aime24", "aime25", "amc", "math500", "omni_math", "olympiadbench", "minerva")  # `all`: in its tables' order
SEED = 0  # of generated problems


@dataclass(frozen=True)
class Decoding:
    """How responses are drawn."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=False)
    samples: PositiveInt  # per item
    temperature: NonNegativeFloat  # 0 is greedy
    top_p: Annotated[float, Field(gt=0, le=1)]
    max_tokens: PositiveInt  # of one response

    def __post_init__(self) -> None:
        if self.greedy and self.samples != 1:
            raise ConfigError(f"decoding: {self.samples} greedy samples would be {self.samples} copies of one response")

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken instead of a draw."""
        return self.temperature == 0


@dataclass(frozen=True)
class Item:
    """One problem with its gold answer, as stored upstream (quirks kept; the grader normalises)."""

    item_id: str  # hash of the problem's text (`evals.data.item_id`): independent of upstream order and numbering
    problem: str
    answer: str
    multiple: bool = False  # `answer` is a comma-separated list of values, all required
    tolerance: str | None = None  # absolute, stated by the item
    unit: str | None = None


class Benchmark(Declared):
    """One benchmark, with the keys of an entry."""

    key: str
    title: str
    sha256: str  # of the normalised content (`evals.data.content_sha256`), the same from every source
    n: PositiveInt  # rows, with copies
    licence: str
    prompt: Template  # how a problem becomes a prompt (reading E3)
    decoding: Decoding
    sources: Tuple[str] = ()  # addresses of a JSONL file, tried in order; none: generated or adopted
    fields: dict[str, str] | None = None  # name in a row of the source, by ours; None: the same
    boxed: bool = False  # whether the answer is the last box in that field
    cells: dict[str, dict[int, int]] | None = None  # problems to generate, by family and difficulty
    stands_for: str | None = None  # the paper's set that this one replaces in tables
    # Copies of a problem (reading E2). paper: problems that occur twice leave the column and stay in the pool. keep:
    # every row counts everywhere.
    duplicates: Literal["paper", "keep"] = "paper"
    file: str | None = None  # a user's own problems, in place of sources
    files: Tuple[str] = ()  # other names under which a mirror may hold the file
    meant: str = ""  # needed to check an answer but not stated in the problem: "modulo 10"

    @property
    def synthetic(self) -> bool:
        """Whether the repository generates it: its numbers do not measure the set it stands for."""
        return self.cells is not None

    @property
    def local(self) -> bool:
        """Whether nothing is downloaded for it."""
        return self.synthetic or self.file is not None

    @property
    def origin(self) -> str:
        """Where the problems are from, as messages show it."""
        return self.file or "".join(self.sources[:1]) or f"evals.{self.prompt}"

    @property
    def responses(self) -> int:
        """The number of responses in one evaluation: items times samples."""
        return self.n * self.decoding.samples

    def make(self) -> list[Row]:
        """Generate the rows of `cells`, all from the held-out part."""
        module = importlib.import_module(f"evals.{self.prompt}")
        return [
            {"problem": one.prompt, "answer": one.answer}
            for family, sizes in (self.cells or {}).items()
            for k, n in sizes.items()
            for one in module.held_out(family, k, n, SEED)
        ]


@cache
def _registry() -> dict[str, Benchmark]:
    """Return benchmarks by key, the paper's seven first. ConfigError for a wrong entry, or a key already taken."""
    entries: dict[str, Any] = {}
    files: dict[str, str] = {}
    for path in sorted((ROOT / TASKS).glob("*.yaml")):
        file, own = f"{TASKS}/{path.name}", read_yaml(path, "benchmarks")
        common = own.pop("common", {})
        for key, entry in own.items():
            if key in entries:
                raise ConfigError(f"{file}: key {key!r} is taken")
            if not isinstance(entry, dict):
                raise ConfigError(f"{file}: {key}: must be keys and values, got {entry!r}")
            entries[key], files[key] = {**common, **entry, "key": key}, file
    found: dict[str, Benchmark] = {}
    for key, entry in entries.items():
        if (of := entry.pop("of", None)) is not None:
            if of not in entries:
                raise unknown(files[key], f"{key}.of", of, entries)
            entry = entries[of] | entry
        found[key] = validated(Benchmark, entry, files[key], str(key))
    return {key: found[key] for key in (*PAPER, *(key for key in found if key not in PAPER))}


def keys() -> tuple[str, ...]:
    """Return keys of all benchmarks: the paper's seven in its order, then the others."""
    return tuple(_registry())


def registered(key: str) -> bool:
    """Return whether a file of `evals/tasks/` defines the benchmark."""
    return key in _registry()


def benchmark(key: str) -> Benchmark:
    """Return the benchmark `key`; ConfigError with the nearest match for one that is not there."""
    if key not in _registry():
        raise unknown(TASKS, "benchmark", key, keys())
    return _registry()[key]


def register(entry: Benchmark) -> Benchmark:
    """Register a user's benchmark in this process; ConfigError if its key is another one's."""
    known = _registry().setdefault(entry.key, entry)
    if known != entry:
        raise ConfigError(
            f"{entry.file}: {entry.key}: is the key of another benchmark ({known.title}); rename the file"
        )
    return entry


def code(keys: Iterable[str], backend: str) -> Code:
    """Return the code that draws responses on these benchmarks with that engine; their items are checked elsewhere."""
    chosen = [benchmark(key) for key in sorted(keys) if registered(key)]
    generators = {f"evals.{entry.prompt}:prompt_string" for entry in chosen if entry.prompt in GENERATED}
    decided = tuple(f"{entry.key} {entry.prompt} {entry.decoding} {entry.sha256}" for entry in chosen)
    return Code("generate", backend, tuple(sorted(generators)), decided)


def definition(folder: Path, key: str) -> Path:
    """Return the path where a data folder would define the benchmark `key`: an own one, or one of a tool's logs."""
    return folder / f"{key}.benchmark.json"


def defined(key: str, folder: Path) -> Benchmark:
    """Return the benchmark that the data folder defines, else the registry's; ConfigError when neither does."""
    path = definition(folder, key)
    if not path.is_file():
        return benchmark(key)
    own = read_json(path, "definition of a benchmark")
    check(own, {"title": str, "sha256": str, "n": int}, str(path))
    return Benchmark(
        key=key, title=own["title"], sha256=own["sha256"], n=own["n"], licence="unknown", prompt="none",
        duplicates="keep",
        decoding=Decoding(1, 0.0, 1.0, 1),  # how its responses were drawn is unknown
    )  # fmt: skip
