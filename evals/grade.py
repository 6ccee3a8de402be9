"""Grade stored responses: one verdict each, again whenever the grader changes, without the model.

    python -m evals.grade --samples SAMPLES_DIR --data DIR --out GRADES_DIR
    python -m evals.grade ... --compare lineage        also where the grader of the paper's lineage disagrees

A benchmark whose grades are there, of these samples and by this grader, is left alone; a killed run goes on from its
cache of comparisons.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evals import data, registry
from evals.benchmark import Item
from evals.grading import files, lineage
from evals.grading.compare import Disagreement, disagreements
from evals.grading.decide import Gold, gold
from evals.grading.grader import Grader, Question
from evals.grading.pool import CPU_SECONDS, Pool
from evals.grading.verdict import Grade, Verdict
from evals.grading.version import grader_version, versions
from records import cli
from records.errors import ConfigError, MissingInputError, nearest
from records.progress import Progress
from records.provenance import ROOT, sha256_file
from records.read import read_json
from records.write import write_json

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
    recorded = files.record(samples, "samples.json")["benchmarks"]
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
            sampled = files.read_samples(samples, key, recorded[key])
            items = {item.item_id: item for item in data.load(registry.benchmark(key), folder)}
            files.check_items(sampled, list(items), str(folder))
            golds = {item_id: _gold(items[item_id], key) for item_id in dict.fromkeys(sampled.item_ids)}
            questions = [
                Question(golds[item], response, stop)
                for item, response, stop in zip(sampled.item_ids, sampled.responses, sampled.stops, strict=True)
            ]
            progress = Progress(f"grade {key}", len(questions))
            grades = grader.grade(questions, report=progress.update)
            entries[key] = {
                **files.write_grades(out / f"{key}.parquet", sampled, grades, grader_version()),
                "gold_kinds": dict(sorted(Counter(g.kind for g in golds.values()).items())),
                "unparsed_gold_candidates": sorted(item for item, g in golds.items() if g.kind == "unparsed"),
            }
            _write(out, entries)
            print(f"{key}: {_line(grades)}")
            if compare:
                differing += _compare(key, sampled, questions, [items[i].answer for i in sampled.item_ids], grades)
    if compare:
        files.write_disagreements(out / "disagreements.csv", differing)
        print(f"ours and lineage differ on {len(differing)} responses: {out / 'disagreements.csv'}")
    return {"benchmarks": entries}


def _gold(item: Item, key: str) -> Gold:
    try:
        return gold(item.answer, tolerance=item.tolerance, multiple=item.multiple)
    except ConfigError as error:
        raise ConfigError(f"{key}: item {item.item_id}: {error}") from error


def _compare(
    key: str, sampled: files.Sampled, questions: Sequence[Question], golds: Sequence[str], grades: Sequence[Grade]
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
            "schema": files.SCHEMA,
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
    cli.run(main)
