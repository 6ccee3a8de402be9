"""Samples and grades on disk: `<folder>/<benchmark>.parquet`, and one JSON record of the whole folder.

`samples.json` and `grades.json` hold an object `benchmarks` with one entry per parquet file. The entry has the file's
sha256 and row count, which every reader verifies before computing from the rows. Columns: docs/results.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.declared import check
from core.errors import CorruptInputError, MissingInputError, hint
from core.files import read_json, write_text
from core.layout import Checkpoint, Results
from core.provenance import sha256_bytes
from evals.grading import Grade, Verdict

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

STOPS = ("stop", "length", "unknown")  # ended by an end token, at the token limit, or not reported by the engine
VERDICTS = tuple(verdict.value for verdict in Verdict)
SAMPLES = {  # columns of a samples file: one row per response
    "item_id": "string",
    "sample": "int64",  # from 0
    "prompt": "string",
    "prompt_sha256": "string",
    "response": "string",
    "stop": "string",  # one of STOPS
    "tokens": "int64",  # without the end token; null when unknown
    "seed": "int64",  # the one under which this response was drawn
}
RECORD = {  # the keys that are read from samples.json and grades.json (`core.declared.check`)
    "benchmarks": {
        "*": {
            "sha256": str, "rows": int, "data?": {"file": str, "sha256": str}, "data_sha256?": str,
            "samples_sha256?": str, "grader_version?": str, "task_hash?": str, "seconds?": float, "served?": dict,
        },
    },
    "engine?": {"backend?": str, "device?": str}, "environment?": dict, "model?": str, "weights_sha256?": str,
    "seed?": int, "grader_version?": str,
}  # fmt: skip
MAKES = {"samples": "python -m evals.generate", "grades": "python -m evals.grade"}  # kind of file -> its command


def clean(text: str) -> str:
    """Make text encodable as UTF-8: half of a surrogate pair, possible in JSON from a server, becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def write_samples(path: Path, rows: Sequence[Mapping[Any, Any]], **more: str) -> str:
    """Write a samples file atomically and return its sha256. Equal rows give an equal file.

    more: kinds of further columns.
    """
    import pyarrow as pa

    # explicit types, because `tokens` may be all null
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in (SAMPLES | more).items()])
    return write_table(path, pa.Table.from_pylist(list(rows), schema=schema), compression="zstd")


def write_grades(
    path: Path, samples: pd.DataFrame, samples_sha256: str, grades: Sequence[Grade], version: str
) -> dict[str, Any]:
    """Write a grades file atomically and return its entry for `grades.json`."""
    import pyarrow as pa

    verdicts = [str(grade.verdict) for grade in grades]
    columns = {
        "item_id": samples["item_id"],
        "sample": samples["sample"],
        "verdict": verdicts,
        "extracted": [grade.extracted for grade in grades],
        "normalised": [grade.normalised for grade in grades],
        "rule": [str(grade.rule) for grade in grades],
        "grader_version": [version] * len(grades),
    }
    schema = pa.schema([(name, pa.int64() if name == "sample" else pa.string()) for name in columns])
    counts = Counter(verdicts)
    return {
        "sha256": write_table(path, pa.table(columns, schema)),
        "rows": len(grades),
        "samples_sha256": samples_sha256,
        "grader_version": version,
        "verdicts": {verdict: counts[verdict] for verdict in VERDICTS},
    }


def write_table(path: Path, table: pa.Table, **options: Any) -> str:
    """Write a parquet file atomically and return its sha256. options: of `pyarrow.parquet.write_table`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(table, content := pa.BufferOutputStream(), **options)
    data = content.getvalue().to_pybytes()
    try:
        write_text(path, data)
    except OSError as error:  # a full disk: the system's error does not name the file
        raise OSError(error.errno, error.strerror, str(path)) from error
    return sha256_bytes(data)


# Reading. Every reader of samples or grades uses `read_table`, which verifies the checksum.


def read_folder(path: Path) -> dict[str, Any]:
    """Read `samples.json` or `grades.json`, with the keys of `RECORD`; MissingInputError or CorruptInputError."""
    value: dict[str, Any] = read_json(path, f"record of the {path.stem}")
    check(value, RECORD, str(path))
    return value


def read_record(path: Path) -> dict[str, Any]:
    """Read the entries of `samples.json` or `grades.json`, by benchmark. Raises as `read_folder`."""
    return dict(read_folder(path)["benchmarks"])


def entry_of(entries: Mapping[str, Any], path: Path, benchmark: str) -> dict[str, Any]:
    """Return one benchmark's entry in the record at `path`; raise MissingInputError with the nearest name."""
    if benchmark not in entries:
        there = ", ".join(sorted(entries)) or "none"
        raise MissingInputError(f"{path}: no benchmark {benchmark!r}; there: {there}{hint(benchmark, entries)}")
    return dict(entries[benchmark])


def read_table(path: Path, columns: Sequence[str], entry: Mapping[str, Any]) -> pa.Table:
    """Read some columns of a samples or grades file after verifying its sha256 against its entry.

    Raises MissingInputError with the command that recreates the file, CorruptInputError for a changed file and for a
    verdict that is none of `VERDICTS`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = "grades" if (path.parent / "grades.json").is_file() else "samples"
    again = f"run: {MAKES[kind]}, or snakemake"
    if not path.is_file():
        raise MissingInputError(f"{path}: file is missing; its record has {entry.get('rows')} rows; {again}")
    data = path.read_bytes()  # read once, so that the hashed bytes are those parsed
    if (digest := sha256_bytes(data)) != entry["sha256"]:
        recorded = f"sha256 is {digest[:12]}, recorded is {entry['sha256'][:12]}"
        raise CorruptInputError(f"{path}: {recorded}; remove it and {again}")
    # Not `pq.read_table`, which takes three times as long for files of this size. Threads would cost time here.
    table = pq.ParquetFile(pa.BufferReader(data)).read(columns=list(columns), use_threads=False)
    for verdict in table["verdict"].unique().to_pylist() if "verdict" in columns else ():
        if verdict not in VERDICTS:
            raise CorruptInputError(f"{path}: verdict {verdict!r}; allowed: {', '.join(VERDICTS)}; {again}")
    return table


def texts(column: pa.ChunkedArray, errors: str = "replace") -> list[str | None]:
    """Read a text column; broken UTF-8 is replaced, not refused, because a response is model output.

    errors: the replacement policy, as for `bytes.decode`.
    """
    import pyarrow as pa

    values = column.cast(pa.large_binary()).to_pylist()
    return [None if value is None else value.decode("utf-8", errors) for value in values]


def read_rows(path: Path, columns: Sequence[str], entry: Mapping[str, Any]) -> pd.DataFrame:
    """Read item_id, sample and other columns of a file, one row per response; tool_correct may be missing: None.

    Raises as `read_table`, and CorruptInputError for another missing column, and unless every item has the same number
    of different samples.
    """
    import pandas as pd
    import pyarrow as pa

    names = "item_id", "sample", *columns
    table, values = read_table(path, names, entry), dict[str, list[Any]]()
    if lost := [name for name in names if name not in (*table.column_names, "tool_correct")]:
        raise CorruptInputError(f"{path}: has no column {lost[0]!r}")
    for name in names:
        column = table[name] if name in table.column_names else pa.nulls(len(table))
        values[name] = texts(column) if pa.types.is_string(column.type) else column.to_pylist()
    rows = pd.DataFrame(values, dtype=object)
    count = rows[["item_id", "sample"]].drop_duplicates().groupby("item_id").size()
    if count.nunique() != 1 or count.sum() != len(rows):
        raise CorruptInputError(f"{path}: {len(rows)} rows of {len(count)} items: must be rows = items x samples")
    return rows


def read_pair(
    results: Results, checkpoint: Checkpoint, benchmark: str, of_grades: Sequence[str], of_samples: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, list[Any]]]:
    """Return sorted items, and columns by item and sample: item_id, sample, and those asked for of grades and samples.

    Raises as `read_rows`, and CorruptInputError unless the grades are those of these samples.
    """
    records = results.grades(checkpoint) / "grades.json", results.samples(checkpoint) / "samples.json"
    entries = [entry_of(read_record(path), path, benchmark) for path in records]
    files = [path.with_name(f"{benchmark}.parquet") for path in records]
    graded, drawn = (
        read_rows(path, columns, entry).sort_values(["item_id", "sample"], ignore_index=True)
        for path, columns, entry in zip(files, (of_grades, of_samples), entries, strict=True)
    )
    if (theirs := entries[0].get("samples_sha256")) != (now := entries[1]["sha256"]):
        raise CorruptInputError(
            f"{files[0]}: graded other samples than {files[1]} (samples_sha256 {str(theirs)[:12]}, now {now[:12]}); "
            "grade again"
        )
    if not graded[["item_id", "sample"]].equals(drawn[["item_id", "sample"]]):
        odd = sorted(set(graded["item_id"]) ^ set(drawn["item_id"]))
        raise CorruptInputError(f"{files[0]}: {files[1]} has other rows; items on one side only: {', '.join(odd[:3])}")
    return tuple(graded["item_id"].unique()), drawn.to_dict("list") | graded.to_dict("list")


def read_samples(path: Path, entry: Mapping[str, Any]) -> pd.DataFrame:
    """Read item_id, sample, stop and response of a samples file, in its order. Raises as `read_rows`."""
    return read_rows(path, ("stop", "response"), entry)
