"""Samples in, grades out: parquet files whose hashes are checked before a number is made of them."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.grading.compare import COLUMNS, Disagreement
from evals.grading.verdict import Grade, Verdict
from records.errors import CorruptInputError, MissingInputError, nearest
from records.provenance import sha256_bytes, sha256_file
from records.read import read_json
from records.write import atomic, write_text

SCHEMA = 1
SAMPLE_COLUMNS = ("item_id", "sample", "response", "stop")
STOPS = ("stop", "length", "unknown")


@dataclass(frozen=True)
class Sampled:
    """The responses of one benchmark, in file order. sha256: of the parquet they were read from."""

    path: Path
    sha256: str
    item_ids: tuple[str, ...]
    samples: tuple[int, ...]
    responses: tuple[str, ...]
    stops: tuple[str, ...]


def record(folder: Path, name: str) -> dict[str, Any]:
    """`samples.json` or `grades.json`: an object with an entry per benchmark."""
    path = folder / name
    found = read_json(path, f"record of the {name.removesuffix('.json')}")
    if not isinstance(found, dict) or not isinstance(found.get("benchmarks"), dict):
        raise CorruptInputError(f"{path}: has no object 'benchmarks'")
    return found


def read_samples(folder: Path, benchmark: str, entry: dict[str, Any]) -> Sampled:
    """Rows of `<folder>/<benchmark>.parquet`, checked against its entry in `samples.json`.

    Raises MissingInputError or CorruptInputError naming the file: hash, rows, columns, keys, stop reasons.
    Broken UTF-8 in a response is replaced, not refused: the response is what the model wrote.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"{benchmark}.parquet"
    if not path.is_file():
        raise MissingInputError(f"{path}: samples are missing, samples.json has {entry.get('rows')} rows of them")
    digest = sha256_file(path)
    if digest != entry.get("sha256"):
        raise CorruptInputError(f"{path}: sha256 is {digest[:12]}, samples.json says {str(entry.get('sha256'))[:12]}")
    try:
        there = pq.read_schema(path).names
        if missing := [name for name in SAMPLE_COLUMNS if name not in there]:
            raise CorruptInputError(f"{path}: no column {missing[0]!r}; there: {', '.join(there)}")
        table = pq.read_table(path, columns=list(SAMPLE_COLUMNS))
    except (pa.ArrowException, OSError) as error:
        raise CorruptInputError(f"{path}: not a readable parquet file ({str(error).splitlines()[0]})") from error
    if table.num_rows == 0 or table.num_rows != entry.get("rows"):
        raise CorruptInputError(f"{path}: {table.num_rows} rows, expected {entry.get('rows')!r} (samples.json)")
    if empty := [name for name in SAMPLE_COLUMNS if table[name].null_count]:
        raise CorruptInputError(f"{path}: column {empty[0]!r} is empty in {table[empty[0]].null_count} rows")
    items, stops = table["item_id"].to_pylist(), table["stop"].to_pylist()
    samples = [int(sample) for sample in table["sample"].to_pylist()]
    responses = [raw.decode("utf-8", "replace") for raw in table["response"].cast(pa.binary()).to_pylist()]
    if odd := sorted(set(stops) - set(STOPS)):
        raise CorruptInputError(f"{path}: stop: unknown value {odd[0]!r}; allowed: {', '.join(STOPS)}")
    keys = Counter(zip(items, samples, strict=True))
    if twice := [key for key, count in keys.items() if count > 1]:
        raise CorruptInputError(f"{path}: item {twice[0][0]!r} sample {twice[0][1]} occurs more than once")
    return Sampled(path, digest, tuple(items), tuple(samples), tuple(responses), tuple(stops))


def check_items(sampled: Sampled, known: Sequence[str], data: str) -> None:
    """CorruptInputError for a response to an item that the data do not hold."""
    if strange := sorted(set(sampled.item_ids) - set(known)):
        hit = nearest(strange[0], known)
        raise CorruptInputError(
            f"{sampled.path}: item {strange[0]!r} (and {len(strange) - 1} more) is not in {data} ({len(known)} items)"
            + (f"; nearest: {hit}" if hit else "")
        )


def write_grades(path: Path, sampled: Sampled, grades: Sequence[Grade], version: str) -> dict[str, Any]:
    """Write a grades parquet atomically; the entry for `grades.json`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.string()
    columns = {
        "item_id": pa.array(sampled.item_ids, text),
        "sample": pa.array(sampled.samples, pa.int64()),
        "verdict": pa.array([str(grade.verdict) for grade in grades], text),
        "extracted": pa.array([grade.extracted for grade in grades], text),
        "normalised": pa.array([grade.normalised for grade in grades], text),
        "rule": pa.array([str(grade.rule) for grade in grades], text),
        "seconds": pa.array([grade.seconds for grade in grades], pa.float64()),
        "grader_version": pa.array([version] * len(grades), text),
    }
    with atomic(path) as temporary:
        pq.write_table(pa.table(columns), temporary)
    counts = Counter(grade.verdict for grade in grades)
    return {
        "sha256": sha256_file(path),
        "rows": len(grades),
        "samples_sha256": sampled.sha256,
        "grader_version": version,
        "verdicts": {str(verdict): counts[verdict] for verdict in Verdict},
        "verdicts_sha256": sha256_bytes("\n".join(str(grade.verdict) for grade in grades).encode()),
    }


def write_disagreements(path: Path, rows: Sequence[Disagreement]) -> None:
    """The table behind a difference between two graders; a header alone says that there is none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([getattr(row, name) for name in COLUMNS] for row in rows)
    write_text(path, text.getvalue())
