"""Reading one checkpoint's grades and samples, with every check that keeps a wrong file from becoming a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evals.grading.verdict import Verdict
from evals.stats.responses import Samples
from records.errors import CorruptInputError, MissingInputError, nearest
from records.layout import Checkpoint, Results
from records.provenance import sha256_file
from records.read import read_json

if TYPE_CHECKING:
    import pyarrow as pa

VERDICTS = tuple(verdict.value for verdict in Verdict)
GRADE_COLUMNS = ("item_id", "sample", "verdict", "extracted", "normalised", "rule", "seconds", "grader_version")
SAMPLE_COLUMNS = ("item_id", "sample", "prompt", "prompt_sha256", "response", "stop", "tokens", "seed")


@dataclass(frozen=True, eq=False)
class Graded:
    """One benchmark's responses with verdicts; rows I in the order of `samples.items`, K samples each.

    verdict: (I, K) index into VERDICTS. answer: (I, K) normalised answer or None. tokens: (I, K) length, nan where
    unknown.
    """

    samples: Samples
    verdict: NDArray[np.int64]
    answer: NDArray[np.object_]
    tokens: NDArray[np.float64]

    def only(self, samples: Samples) -> Graded:
        """The rows of a subset of the items (a column or pool of `self.samples`)."""
        if samples is self.samples:
            return self
        keep = np.isin(np.array(self.samples.items, dtype=object), np.array(samples.items, dtype=object))
        return Graded(samples, self.verdict[keep], self.answer[keep], self.tokens[keep])

    def counts(self) -> dict[str, int]:
        """Responses by verdict, every verdict named."""
        return dict(zip(VERDICTS, np.bincount(self.verdict.ravel(), minlength=len(VERDICTS)).tolist(), strict=True))


def read_graded(results: Results, checkpoint: Checkpoint, benchmarks: Sequence[str]) -> dict[str, Graded]:
    """Grades and samples of a checkpoint. Raises MissingInputError or CorruptInputError naming the file at fault.

    Checked: both JSON files name every benchmark; the parquets' sha256 are the recorded ones and the graded samples are
    the samples at hand; columns, verdicts and row counts; keys (item, sample) unique, complete, and equal in both.
    """
    grades, samples = results.grades(checkpoint), results.samples(checkpoint)
    graded_record = _record(grades / "grades.json", "record of the grades")
    sample_record = _record(samples / "samples.json", "record of the samples")
    return {
        key: _benchmark(
            grades / f"{key}.parquet",
            _entry(graded_record, grades / "grades.json", key),
            samples / f"{key}.parquet",
            _entry(sample_record, samples / "samples.json", key),
        )
        for key in benchmarks
    }


def _record(path: Path, what: str) -> dict[str, Any]:
    record = read_json(path, what)
    if not isinstance(record, dict) or not isinstance(record.get("benchmarks"), dict):
        raise CorruptInputError(f"{path}: {what} has no object 'benchmarks'")
    return record


def _entry(record: dict[str, Any], path: Path, key: str) -> dict[str, Any]:
    if key not in record["benchmarks"]:
        hit = nearest(key, record["benchmarks"])
        known = ", ".join(sorted(record["benchmarks"])) or "none"
        raise MissingInputError(f"{path}: no benchmark {key!r}; there: {known}" + (f"; nearest: {hit}" if hit else ""))
    entry = record["benchmarks"][key]
    if not isinstance(entry, dict):
        raise CorruptInputError(f"{path}: benchmarks: {key}: expected an object, got {entry!r}")
    return entry


def _benchmark(grades: Path, grade: dict[str, Any], samples: Path, sample: dict[str, Any]) -> Graded:
    given = _table(grades, grade, ("item_id", "sample", "verdict", "normalised"))
    asked = _table(samples, sample, ("item_id", "sample", "prompt_sha256", "tokens"))
    if grade.get("samples_sha256") != sample["sha256"]:
        raise CorruptInputError(
            f"{grades}: graded other samples than {samples} (samples_sha256 {_short(grade.get('samples_sha256'))}, "
            f"now {_short(sample['sha256'])}); grade again"
        )
    items, order = _grid(given, grades)
    asked_items, asked_order = _grid(asked, samples)
    shape = len(items), given.num_rows // len(items)
    if items != asked_items or asked.num_rows != given.num_rows:
        odd = sorted(set(items) ^ set(asked_items))
        raise CorruptInputError(
            f"{grades}: {given.num_rows} rows of {len(items)} items, but {samples} has {asked.num_rows} of "
            f"{len(asked_items)}" + (f"; first item on one side only: {odd[0]!r}" if odd else "")
        )
    code = {name: index for index, name in enumerate(VERDICTS)}
    verdicts = given["verdict"].to_pylist()
    for row, word in enumerate(verdicts):
        if word not in code:
            raise CorruptInputError(f"{grades}: row {row}: verdict {word!r}; allowed: {', '.join(VERDICTS)}")
    verdict = np.array([code[v] for v in verdicts])[order].reshape(shape)
    answer = np.array(given["normalised"].to_pylist(), dtype=object)[order].reshape(shape)
    lengths = [np.nan if t is None else float(t) for t in asked["tokens"].to_pylist()]
    tokens = np.array(lengths)[asked_order].reshape(shape)
    prompts = np.array(asked["prompt_sha256"].to_pylist(), dtype=object)[asked_order].reshape(shape)
    if (prompts != prompts[:, :1]).any():
        row = int(np.flatnonzero((prompts != prompts[:, :1]).any(1))[0])
        raise CorruptInputError(f"{samples}: item {items[row]!r} was asked with several prompts")
    if any(not isinstance(p, str) or not p for p in prompts[:, 0]):
        raise CorruptInputError(f"{samples}: prompt_sha256 is empty in some rows")
    right = verdict == code[Verdict.CORRECT.value]
    return Graded(Samples(items, right, tuple(prompts[:, 0])), verdict, answer, tokens)


def _table(path: Path, entry: dict[str, Any], columns: Sequence[str]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise MissingInputError(f"{path}: file is missing")
    if entry.get("sha256") != (found := sha256_file(path)):
        raise CorruptInputError(f"{path}: sha256 is {_short(found)}, recorded is {_short(entry.get('sha256'))}")
    try:
        schema = pq.read_schema(path)
        missing = [name for name in columns if name not in schema.names]
        if missing:
            raise CorruptInputError(f"{path}: no column {missing[0]!r}; there: {', '.join(schema.names)}")
        table = pq.read_table(path, columns=list(columns))
    except (pa.ArrowException, OSError) as error:
        raise CorruptInputError(f"{path}: not a readable parquet file ({str(error).splitlines()[0]})") from error
    if table.num_rows == 0 or entry.get("rows") != table.num_rows:
        raise CorruptInputError(f"{path}: {table.num_rows} rows, recorded are {entry.get('rows')!r}")
    return table


def _grid(table: pa.Table, path: Path) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """Sorted items, and the order that sorts the rows by (item, sample); error unless items x samples is complete."""
    if table["item_id"].null_count or table["sample"].null_count:
        raise CorruptInputError(f"{path}: empty item_id or sample")
    names = np.array(table["item_id"].to_pylist(), dtype=object)
    sample = np.array(table["sample"].to_pylist())
    items, row_item, count = np.unique(names, return_inverse=True, return_counts=True)
    order = np.lexsort((sample, row_item))
    pair = np.stack([row_item[order], sample[order]])
    twice = np.flatnonzero((pair[:, 1:] == pair[:, :-1]).all(0))
    if len(twice):
        row = order[twice[0]]
        raise CorruptInputError(f"{path}: item {names[row]!r} sample {sample[row]} occurs more than once")
    k = int(count.max())
    short = np.flatnonzero(count != k)
    if len(short):
        item = items[short[0]]
        raise CorruptInputError(
            f"{path}: item {item!r} has {count[short[0]]} samples, others {k}: rows = items x samples"
        )
    wrong = np.flatnonzero((sample[order].reshape(-1, k) != np.arange(k)).any(1))
    if len(wrong):
        raise CorruptInputError(f"{path}: item {items[wrong[0]]!r}: samples must be 0 to {k - 1}")
    return tuple(items.tolist()), order


def _short(digest: object) -> str:
    return digest[:12] if isinstance(digest, str) else repr(digest)
