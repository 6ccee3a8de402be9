"""Items of a benchmark: identity, content hash, reading and verification.

A data folder holds `<key>.jsonl`, one object per line: item_id, problem, answer, and where they apply multiple,
tolerance, unit. `python -m evals.fetch` writes it.
"""

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote

from core.errors import ConfigError, CorruptInputError, MissingInputError, unknown
from core.files import read_jsonl, read_own_file
from evals.benchmark import OWN, PAPER, Benchmark, Decoding, Item, Row, benchmark, keys, register, registered
from evals.scores import AVERAGES

# Field names used by mirrors of other evaluation code, and ours for them.
_OLD_NAMES = {"is_multiple_answer": "multiple", "tol": "tolerance"}
_GRADED = ("problem", "answer", "multiple", "tolerance", "unit")  # the fields that affect responses and verdicts


def item_id(problem: str) -> str:
    """Return the first 16 hexadecimal digits of the text's sha256; spacing and Unicode composition do not count.

    >>> item_id("What is  $1+1$?\\n") == item_id("What is $1+1$?")
    True
    """
    # 64 bits are enough for some thousand problems
    text = " ".join(unicodedata.normalize("NFC", problem).split())
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def numbered(digest: str, copies: Counter[str]) -> str:
    """Count one more copy of a problem and return its id: the second copy has the first one's id with `-2`."""
    copies[digest] += 1
    return digest if copies[digest] == 1 else f"{digest}-{copies[digest]}"


def items(rows: Iterable[Row], where: str = "items") -> list[Item]:
    """Return items in the given order, with ids by `numbered`; CorruptInputError for a row without a text."""
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
        found.append(
            Item(
                item_id=numbered(item_id(problem), copies),
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
    lines = []
    for item in items:
        graded = {name: value for name in _GRADED if (value := getattr(item, name)) not in (None, False)}
        lines.append(json.dumps({"item_id": item.item_id, **graded}, ensure_ascii=False) + "\n")
    return "".join(lines)


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
    return register(entry)


def key_of(name: str) -> str:
    """Return the key of a benchmark given by key or, as `FILE.jsonl`, by a user's file, which is then registered."""
    return own(name).key if name.endswith(OWN) else name


def select(names: Iterable[str]) -> tuple[Benchmark, ...]:
    """Return benchmarks by key, or by keys joined with commas; `all` is the paper's seven, `FILE.jsonl` a user's own.

    Raises ConfigError for none, an unknown one or a repeated one; see `own` for a file.
    """
    parts = [key_of(part.strip()) for name in names for part in name.split(",")]
    selected = [key for part in parts if part for key in (PAPER if part == "all" else (part,))]
    if wrong := [key for key in selected if not registered(key)]:
        raise unknown("command line", "--benchmarks", wrong[0], ("all", *keys()))
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
        graded = {name: getattr(item, name) for name in _GRADED}
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
