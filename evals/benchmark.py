"""Benchmarks: where their items come from, how their content is verified, how responses are drawn.

Each file `evals/tasks/*.yaml` registers benchmarks by key, with the fields of `Benchmark`. Its entry `common` applies
to all others; an entry with `of` begins with the fields of that one.

A data folder holds `<key>.jsonl`, one object per line: item_id, problem, answer, and where they apply multiple,
tolerance, unit. `python -m evals.fetch` writes it.
"""

import hashlib
import importlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, NonNegativeFloat, PositiveInt

from core.code import Code
from core.declared import Declared, Tuple, check, validated
from core.errors import ConfigError, CorruptInputError, MissingInputError, check_known, unknown
from core.files import read_json, read_jsonl, read_own_file, read_yaml
from core.provenance import ROOT
from evals.scores import AVERAGES

Row = Mapping[str, Any]

TASKS = "evals/tasks"
GENERATED = ("arithmetic", "questions")  # modules of evals that generate problems and their prompts
Template = Literal["system", "user", "none", "arithmetic", "questions"]  # generation/prompts.py
PROMPTS: tuple[str, ...] = get_args(Template)
OWN = ".jsonl"  # a benchmark whose name ends like this is a user's file
PAPER = ("aime24", "aime25", "amc", "math500", "omni_math", "olympiadbench", "minerva")  # `all`: in its tables' order
SEED = 0  # of generated problems

# Field names used by mirrors of other evaluation code, and ours for them.
_OLD_NAMES = {"is_multiple_answer": "multiple", "tol": "tolerance"}


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

    item_id: str  # hash of the problem's text (`item_id`): independent of upstream order and numbering
    problem: str
    answer: str
    multiple: bool = False  # `answer` is a comma-separated list of values, all required
    tolerance: str | None = None  # absolute, stated by the item
    unit: str | None = None


class Benchmark(Declared):
    """One benchmark, with the keys of an entry."""

    key: str
    title: str
    sha256: str  # of the normalised content (`content_sha256`), the same from every source
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


def code(keys: Iterable[str], backend: str) -> Code:
    """Return the code that draws responses on these benchmarks with that engine; their items are checked elsewhere."""
    chosen = [benchmark(key) for key in sorted(keys) if registered(key)]
    generators = {f"evals.{entry.prompt}:prompt_string" for entry in chosen if entry.prompt in GENERATED}
    decided = tuple(f"{entry.key} {entry.prompt} {entry.decoding} {entry.sha256}" for entry in chosen)
    return Code("generate", backend, tuple(sorted(generators)), decided)


# Items


def item_id(problem: str) -> str:
    """Return the first 16 hexadecimal digits of the text's sha256; spacing and Unicode composition do not count.

    >>> item_id("What is  $1+1$?\\n") == item_id("What is $1+1$?")
    True
    """
    # 64 bits are enough for some thousand problems
    text = " ".join(unicodedata.normalize("NFC", problem).split())
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def items(rows: Iterable[Row], where: str = "items") -> list[Item]:
    """Return items in the given order; CorruptInputError for a row without a text.

    The second copy of a problem has the first one's id with `-2`.
    """
    found = []
    copies = Counter[str]()
    for number, upstream_row in enumerate(rows, 1):
        # in our names, and without the stored item_id, which is computed from the text
        row = {_OLD_NAMES.get(key, key): value for key, value in upstream_row.items() if key != "item_id"}
        if type(row.get("answer")) in (int, float):
            row["answer"] = str(row["answer"])
        for name in ("problem", "answer"):
            if not isinstance(value := row.get(name), str) or not value.strip():
                raise CorruptInputError(
                    f"{where}: row {number}: {name}: expected text, got {value!r}; set it, or rename the field"
                )
        problem, tolerance = row["problem"].strip(), row.get("tolerance")
        copies[digest := item_id(problem)] += 1
        found.append(
            Item(
                item_id=digest if copies[digest] == 1 else f"{digest}-{copies[digest]}",
                problem=problem,
                answer=row["answer"].strip(),
                multiple=bool(row.get("multiple")),
                tolerance=None if tolerance is None else str(tolerance),
                unit=row.get("unit"),
            )
        )
    return found


def text(items: Iterable[Item]) -> str:
    """Return the content of a data file: fields at their default are left out."""
    rows = ({name: value for name, value in asdict(item).items() if value not in (None, False)} for item in items)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


# A user's file, the command line, a data folder


def own(file: Path | str) -> Benchmark:
    """Register a user's file of {problem, answer} as a benchmark in this process, and return it.

    Its key is the file's name. Prompt and decoding are those of the small sets for one GPU. Raises MissingInputError or
    CorruptInputError for a file that cannot be read, ConfigError for a name that cannot be a key, or is taken.
    """
    path = Path(file).resolve()
    key = folder_name(path.stem).replace(".", "-")
    if not key.strip("-") or key.startswith("-") or key in ("all", *AVERAGES):
        raise ConfigError(f"{file}: {key!r} cannot be the key of a benchmark; rename the file")
    found = items(read_own_file(path, "own benchmark"), str(path))
    entry = Benchmark(
        key=key, title=path.stem, sha256=content_sha256(found), n=len(found), licence="unknown",
        prompt="system", duplicates="keep", decoding=Decoding(8, 0.6, 1.0, 2048), file=str(path),
    )  # fmt: skip
    if (known := _registry().setdefault(key, entry)) != entry:
        raise ConfigError(f"{path}: {key}: is the key of another benchmark ({known.title}); rename the file")
    return entry


def key_of(name: str) -> str:
    """Return the key of a benchmark given by key or, as `FILE.jsonl`, by a user's file, which is then registered."""
    return own(name).key if name.endswith(OWN) else name


def select(names: Iterable[str]) -> tuple[Benchmark, ...]:
    """Return benchmarks by key, or by keys joined with commas; `all` is the paper's seven, `FILE.jsonl` a user's own.

    Raises ConfigError for none, an unknown one or a repeated one; see `own` for a file.
    """
    parts = [key_of(part.strip()) for name in names for part in name.split(",")]
    selected = [key for part in parts if part for key in (PAPER if part == "all" else (part,))]
    check_known("command line", "--benchmarks", selected, ("all", *keys()))
    if not selected:
        raise ConfigError("benchmarks: none given")
    if twice := sorted({key for key in selected if selected.count(key) > 1}):
        raise ConfigError(f"benchmarks: {twice[0]} is given twice")
    return tuple(benchmark(key) for key in selected)


def folder_name(text: str) -> str:
    """Return a model's or benchmark's name as a valid folder name.

    >>> folder_name("minerva_math:algebra v2")
    'minerva_math-algebra-v2'
    """
    return re.sub(r"[^A-Za-z0-9_.+=-]", "-", text)


def content_sha256(items: Iterable[Item]) -> str:
    """Return the digest of everything that generation and grading read, in order, without facts and file format."""
    digest = hashlib.sha256()
    for item in items:
        graded = {name: value for name, value in asdict(item).items() if name != "item_id"}
        digest.update((json.dumps(graded, sort_keys=True, ensure_ascii=False) + "\n").encode())
    return digest.hexdigest()


def verify(benchmark: Benchmark, items: Sequence[Item], where: str) -> None:
    """Raise CorruptInputError unless the items are the registry's."""
    again = f"delete it and run: python -m evals.fetch --benchmarks {quote(benchmark.file or benchmark.key)}"
    if not benchmark.sources and not benchmark.local:
        again = "adopt the logs again, with another --out"
    if len(items) != benchmark.n:  # first, because a count is more informative than a digest
        raise CorruptInputError(f"{where}: {len(items)} items, {benchmark.key} has {benchmark.n}; {again}")
    digest = content_sha256(items)
    if digest != benchmark.sha256:
        raise CorruptInputError(f"{where}: content sha256 {digest}, registered is {benchmark.sha256}; {again}")


def path_in(folder: Path | str, benchmark: Benchmark) -> Path | None:
    """Return the benchmark's file in a folder, under its key or one of its other names."""
    names = [f"{name}.jsonl" for name in (benchmark.key, *benchmark.files)]
    return next((path for name in names if (path := Path(folder, name)).is_file()), None)


def found_in(folder: Path | str, benchmark: Benchmark) -> Path:
    """Return `path_in`; raise MissingInputError, with the command that fetches, when there is none."""
    if path := path_in(folder, benchmark):
        return path
    raise MissingInputError(
        f"{Path(folder) / benchmark.key}.jsonl: data of benchmark {benchmark.key} is missing;"
        f" run: python -m evals.fetch --benchmarks {benchmark.key} --data {quote(str(folder))}"
    )


def load(benchmark: Benchmark, folder: Path | str, limit: int | None = None) -> list[Item]:
    """Return the verified items of a benchmark, the first `limit` of them.

    Raises MissingInputError (with the command that fetches) and CorruptInputError.
    """
    path = found_in(folder, benchmark)
    loaded = items(read_jsonl(path, f"data of {benchmark.key}"), str(path))
    verify(benchmark, loaded, str(path))
    return loaded[:limit]


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
