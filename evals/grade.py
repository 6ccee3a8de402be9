"""Grade stored responses: one verdict each, again whenever the grader changes, without the model.

    python -m evals.grade --samples SAMPLES_DIR --data DIR --out GRADES_DIR
    python -m evals.grade ... --compare lineage        also where the grader of the paper's lineage disagrees

A benchmark whose grades are there, of these samples and by this grader, is left alone; a killed run goes on from its
cache of comparisons.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals import benchmark, data
from evals.benchmark import Item
from evals.grading import compare as lineage
from evals.grading.compare import COLUMNS, Disagreement, disagreements
from evals.grading.decide import Gold, gold
from evals.grading.grader import Grader, Question
from evals.grading.pool import CPU_SECONDS, Pool
from evals.grading.verdict import Grade, Verdict, grader_version, versions
from records import errors
from records.errors import ConfigError, CorruptInputError, MissingInputError, nearest
from records.files import atomic, read_json, write_json, write_text
from records.progress import Progress
from records.provenance import ROOT, sha256_bytes, sha256_file

# Samples in, grades out: parquet files whose hashes are checked before a number is made of them.


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


CACHE = ROOT / ".cache" / "grading"


def grade(
    samples: Path,
    folder: Path,
    out: Path,
    *,
    benchmarks: Sequence[str] | None = None,
    cache: Path | None = CACHE,
    pool: Pool | None = None,
    compare: bool = False,
) -> dict[str, Any]:
    """Grade the benchmarks in `samples` (all, or those named) and return the content of `grades.json`.

    folder: data folder with the items. Raises MissingInputError and CorruptInputError naming the file at fault; nothing
    is written for a benchmark that cannot be graded whole.
    """
    recorded = record(samples, "samples.json")["benchmarks"]
    asked = list(benchmarks or recorded)
    for key in asked:
        if key not in recorded:
            hit = nearest(key, recorded)
            there = ", ".join(sorted(recorded)) or "none"
            raise MissingInputError(
                f"{samples / 'samples.json'}: no benchmark {key!r}; there: {there}"
                + (f"; nearest: {hit}" if hit else "")
            )
    entries = _earlier(out)
    differing: list[Disagreement] = []
    with Grader(cache=cache, pool=pool) as grader:
        for key in asked:
            if not compare and _current(out, key, entries.get(key), recorded[key]):
                print(f"{key}: grades are there, of these samples and by this grader")
                continue
            sampled = read_samples(samples, key, recorded[key])
            items = {item.item_id: item for item in data.load(benchmark.benchmark(key), folder)}
            check_items(sampled, list(items), str(folder))
            golds = {item_id: _gold(items[item_id], key) for item_id in dict.fromkeys(sampled.item_ids)}
            questions = [
                Question(golds[item], response, stop)
                for item, response, stop in zip(sampled.item_ids, sampled.responses, sampled.stops, strict=True)
            ]
            progress = Progress(f"grade {key}", len(questions))
            grades = grader.grade(questions, report=progress.update)
            entries[key] = {
                **write_grades(out / f"{key}.parquet", sampled, grades, grader_version()),
                "gold_kinds": dict(sorted(Counter(g.kind for g in golds.values()).items())),
                "unparsed_gold_candidates": sorted(item for item, g in golds.items() if g.kind == "unparsed"),
            }
            _write(out, entries)
            print(f"{key}: {_line(grades)}")
            if compare:
                differing += _compare(key, sampled, questions, [items[i].answer for i in sampled.item_ids], grades)
    if compare:
        write_disagreements(out / "disagreements.csv", differing)
        print(f"ours and lineage differ on {len(differing)} responses: {out / 'disagreements.csv'}")
    return {"benchmarks": entries}


def _gold(item: Item, key: str) -> Gold:
    try:
        return gold(item.answer, tolerance=item.tolerance, multiple=item.multiple)
    except ConfigError as error:
        raise ConfigError(f"{key}: item {item.item_id}: {error}") from error


def _compare(
    key: str, sampled: Sampled, questions: Sequence[Question], golds: Sequence[str], grades: Sequence[Grade]
) -> list[Disagreement]:
    keys = list(zip(sampled.item_ids, sampled.samples, strict=True))
    with Pool(cpu_seconds=lineage.SECONDS) as pool:
        theirs = lineage.grade(questions, golds, pool)
    rows = disagreements(key, keys, golds, grades, theirs)
    only = sum(row.ours == Verdict.CORRECT for row in rows)
    print(f"{key}: right by ours alone {only}, by lineage alone {len(rows) - only}, of {len(grades)}")
    return rows


def _earlier(out: Path) -> dict[str, Any]:
    if not (out / "grades.json").is_file():
        return {}
    found = read_json(out / "grades.json", "record of the grades")
    return dict(found.get("benchmarks", {})) if isinstance(found, dict) else {}


def _current(out: Path, key: str, entry: dict[str, Any] | None, recorded: dict[str, Any]) -> bool:
    """Whether grades lie there, unharmed, of the very samples, by this grader."""
    path = out / f"{key}.parquet"
    return (
        entry is not None
        and entry.get("samples_sha256") == recorded.get("sha256")
        and entry.get("grader_version") == grader_version()
        and path.is_file()
        and entry.get("sha256") == sha256_file(path)
    )


def _write(out: Path, entries: dict[str, Any]) -> None:
    write_json(
        out / "grades.json",
        {
            "schema": SCHEMA,
            "grader_version": grader_version(),
            "versions": versions(),
            "benchmarks": entries,
        },
    )


def _line(grades: Sequence[Grade]) -> str:
    counts = Counter(grade.verdict for grade in grades)
    return ", ".join(f"{verdict} {counts[verdict]}" for verdict in Verdict if counts[verdict])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evals.grade", description=__doc__.split("\n")[0])
    parser.add_argument("--samples", required=True, type=Path, metavar="DIR", help="folder with samples.json")
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder with <benchmark>.jsonl")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where grades are written")
    parser.add_argument("--benchmarks", nargs="+", metavar="KEY", help="only these (default: all that were sampled)")
    parser.add_argument("--compare", choices=["lineage"], help="list responses on which this grader and ours differ")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="DIR", help="comparisons made before")
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: the cores this process may use)")
    parser.add_argument("--cpu-seconds", type=float, default=CPU_SECONDS, help="CPU limit of one comparison")
    given = parser.parse_args()
    for name in ("workers", "cpu_seconds"):
        value = getattr(given, name)
        if value is not None and value <= 0:
            raise ConfigError(f"grade: --{name.replace('_', '-')}: {value} is not positive")
    grade(
        given.samples,
        given.data,
        given.out,
        benchmarks=given.benchmarks,
        cache=given.cache,
        pool=Pool(workers=given.workers, cpu_seconds=given.cpu_seconds),
        compare=given.compare is not None,
    )
    return 0


if __name__ == "__main__":
    errors.run(main)
