"""Samples and grades on disk: `<folder>/<benchmark>.parquet`, and beside it one JSON record of the whole folder.

`samples.json` and `grades.json` hold an object `benchmarks` with one entry per parquet file. The entry has the file's
sha256 and row count, which every reader checks before it makes a number of the rows. Columns: docs/results.md.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.grading.verdict import Grade, Verdict
from records import digests
from records.declared import Recorded, validated
from records.errors import CorruptInputError, MissingInputError, nearest
from records.files import atomic
from records.provenance import sha256_bytes, sha256_file

if TYPE_CHECKING:
    import pyarrow as pa

STOPS = ("stop", "length", "unknown")
"""Why a response ended: by an end token, at the token limit, or the engine did not say."""


@dataclass(frozen=True)
class Response:
    """One row of a samples file; the fields are its columns."""

    item_id: str
    sample: int  # 0-based
    prompt: str
    prompt_sha256: str
    response: str
    stop: str  # one of STOPS
    tokens: int | None  # without the end token; None when unknown
    seed: int  # the one under which this response was drawn


@dataclass(frozen=True)
class SampleFile:
    """The responses of one benchmark, in file order; all tuples have one entry per row."""

    path: Path
    sha256: str  # of the parquet file they were read from
    item_ids: tuple[str, ...]
    samples: tuple[int, ...]
    responses: tuple[str, ...]
    stops: tuple[str, ...]


# Writing


def prompt_sha256(prompt: str) -> str:
    return hashlib.sha256(prompt.encode()).hexdigest()


def clean(text: str) -> str:
    """Text as UTF-8 can hold it: half of a surrogate pair, which JSON from a server may carry, becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def write_samples(path: Path, responses: Sequence[Response]) -> str:
    """Write a samples file atomically and return its sha256. Equal rows give an equal file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Named types: a column of nothing but None (tokens of an endpoint) would otherwise have no type.
    types = {"str": pa.string(), "int": pa.int64(), "int | None": pa.int64()}
    schema = pa.schema([(field.name, types[str(field.type)]) for field in fields(Response)])
    columns = {name: [getattr(response, name) for response in responses] for name in schema.names}
    with atomic(path) as temporary:
        pq.write_table(pa.table(columns, schema=schema), temporary, compression="zstd")
    return sha256_file(path)


def write_grades(path: Path, samples: SampleFile, grades: Sequence[Grade], version: str) -> dict[str, Any]:
    """Write a grades file atomically and return its entry for `grades.json`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.string()
    columns = {
        "item_id": pa.array(samples.item_ids, text),
        "sample": pa.array(samples.samples, pa.int64()),
        "verdict": pa.array([str(grade.verdict) for grade in grades], text),
        "extracted": pa.array([grade.extracted for grade in grades], text),
        "normalised": pa.array([grade.normalised for grade in grades], text),
        "rule": pa.array([str(grade.rule) for grade in grades], text),
        "grader_version": pa.array([version] * len(grades), text),
    }
    with atomic(path) as temporary:
        pq.write_table(pa.table(columns), temporary)
    counts = Counter(grade.verdict for grade in grades)
    return {
        "sha256": sha256_file(path),
        "rows": len(grades),
        "samples_sha256": samples.sha256,
        "grader_version": version,
        "verdicts": {str(verdict): counts[verdict] for verdict in Verdict},
        # of the verdicts alone: equal where another grader version came to the same verdicts
        "verdicts_sha256": sha256_bytes("\n".join(str(grade.verdict) for grade in grades).encode()),
    }


# Reading. Every reader of samples or grades goes through these three functions.


class Entry(Recorded):
    """What `samples.json` or `grades.json` says of one benchmark, as far as others read it."""

    sha256: str
    rows: int
    samples_sha256: str | None = None
    grader_version: str | None = None
    verdicts_sha256: str | None = None
    task_hash: str | None = None
    seconds: float | None = None


class Engine(Recorded):
    backend: str | None = None
    device: str | None = None


class Folder(Recorded):
    """samples.json or grades.json."""

    benchmarks: dict[str, Entry]
    engine: Engine | None = None
    environment: dict[str, Any] | None = None
    model: str | None = None
    weights_sha256: str | None = None
    seed: int | None = None
    grader_version: str | None = None


def read_folder(path: Path) -> dict[str, Any]:
    """`samples.json` or `grades.json`; its keys are those of `Folder`. MissingInputError or CorruptInputError."""
    value = digests.read_record(path, f"record of the {path.stem}")
    validated(Folder, value, str(path), error=CorruptInputError)
    return dict(value)


def read_record(path: Path) -> dict[str, Any]:
    """The entries of `samples.json` or `grades.json`, by benchmark. Raises MissingInputError or CorruptInputError."""
    return dict(read_folder(path)["benchmarks"])


def entry_of(entries: Mapping[str, Any], path: Path, benchmark: str) -> dict[str, Any]:
    """The entry of one benchmark among those of the record at `path`; MissingInputError with the nearest name."""
    if benchmark not in entries:
        there = ", ".join(sorted(entries)) or "none"
        hit = nearest(benchmark, entries)
        raise MissingInputError(
            f"{path}: no benchmark {benchmark!r}; there: {there}" + (f"; nearest: {hit}" if hit else "")
        )
    return dict(entries[benchmark])


_WHOLE = frozenset(("sample", "tokens", "seed"))  # columns of whole numbers; all others are text
_WRITTEN_BY_MODELS = frozenset(("prompt", "response", "extracted", "normalised"))  # may hold what is no UTF-8


def read_table(path: Path, columns: Sequence[str], entry: Mapping[str, Any]) -> pa.Table:
    """Some columns of a samples or grades file whose sha256 and row count are those of its entry.

    Raises MissingInputError or CorruptInputError naming the file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise MissingInputError(f"{path}: file is missing; its record has {entry.get('rows')} rows")
    try:
        data = path.read_bytes()  # once: what is hashed is what is read
        if (digest := sha256_bytes(data)) != entry.get("sha256"):
            raise CorruptInputError(f"{path}: sha256 is {digest[:12]}, recorded is {str(entry.get('sha256'))[:12]}")
        # Not `pq.read_table`, which takes three times as long for files of this size. Threads would cost time here.
        file = pq.ParquetFile(pa.BufferReader(data))
        names = file.schema_arrow.names
        if missing := [name for name in columns if name not in names]:
            raise CorruptInputError(f"{path}: no column {missing[0]!r}; there: {', '.join(names)}")
        table = file.read(columns=list(columns), use_threads=False)
        table.select([name for name in columns if name not in _WRITTEN_BY_MODELS]).validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise CorruptInputError(f"{path}: not a readable parquet file ({str(error).splitlines()[0]})") from error
    if table.num_rows == 0 or table.num_rows != entry.get("rows"):
        raise CorruptInputError(f"{path}: {table.num_rows} rows, recorded are {entry.get('rows')!r}")
    for name in columns:
        of, kind = table[name].type, "whole numbers" if name in _WHOLE else "text"
        if pa.types.is_dictionary(of):  # each text once and numbers for it, as pandas writes categories
            of = of.value_type
        if not (pa.types.is_integer(of) if name in _WHOLE else pa.types.is_string(of) or pa.types.is_large_string(of)):
            raise CorruptInputError(f"{path}: column {name!r} holds {of}, {kind} is meant")
    return table


def texts(column: pa.ChunkedArray, errors: str = "replace") -> list[str | None]:
    """A text column; broken UTF-8 is replaced, not refused: a response is what the model wrote.

    errors: what replaces it, as for `bytes.decode`.
    """
    import pyarrow as pa

    values = column.cast(pa.large_binary()).to_pylist()
    return [None if value is None else value.decode("utf-8", errors) for value in values]


def read_samples(folder: Path, benchmark: str, entry: Mapping[str, Any]) -> SampleFile:
    """What grading needs of `<folder>/<benchmark>.parquet`.

    Raises MissingInputError or CorruptInputError naming the file: as `read_table`, and for empty cells, unknown stop
    reasons and a sample that occurs twice.
    """
    path = folder / f"{benchmark}.parquet"
    columns = ("item_id", "sample", "response", "stop")
    table = read_table(path, columns, entry)
    if empty := [name for name in columns if table[name].null_count]:
        raise CorruptInputError(f"{path}: column {empty[0]!r} is empty in {table[empty[0]].null_count} rows")
    item_ids, stops = table["item_id"].to_pylist(), table["stop"].to_pylist()
    samples = [int(sample) for sample in table["sample"].to_pylist()]
    if unknown := sorted(set(stops) - set(STOPS)):
        raise CorruptInputError(f"{path}: stop: unknown value {unknown[0]!r}; allowed: {', '.join(STOPS)}")
    keys = Counter(zip(item_ids, samples, strict=True))
    if twice := [key for key, count in keys.items() if count > 1]:
        raise CorruptInputError(f"{path}: item {twice[0][0]!r} sample {twice[0][1]} occurs more than once")
    responses = tuple(str(text) for text in texts(table["response"]))
    return SampleFile(path, str(entry["sha256"]), tuple(item_ids), tuple(samples), responses, tuple(stops))
