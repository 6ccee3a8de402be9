"""Grade stored responses: one verdict each, again whenever the grader changes, without the model.

    python -m evals.grade --samples SAMPLES_DIR --data DIR --out GRADES_DIR
    python -m evals.grade ... --compare lineage        also list where the PRIME grader (grading/prime.py) disagrees

A benchmark that was graded already, with these samples and by this grader, is left alone; so a killed run continues
with the benchmark that it was at.
"""

from __future__ import annotations

from core import worker

if __name__ == "__main__":
    # Before the other imports, which the worker has: they take longer than handing over, once for each checkpoint.
    worker.hand_over("evals.grade", "evals.grade")

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from core import digests, errors, used_code
from core.errors import ConfigError, CorruptInputError, Parser, nearest, real, whole
from core.files import to_csv, write_json, write_text
from core.progress import Progress
from core.provenance import sha256_file
from evals import data
from evals.benchmark import Item, code, defined
from evals.grading import Grade, Verdict
from evals.grading.decide import Gold, gold
from evals.grading.grader import Grader, Question, grader_version, versions
from evals.grading.pool import CPU_SECONDS, Pool, Task
from evals.store import SampleFile, entry_of, read_record, read_samples, write_grades

SCHEMA = 1


def grade(
    samples: Path,
    folder: Path,
    out: Path,
    *,
    benchmarks: Sequence[str] | None = None,
    pool: Pool | None = None,
    compare: bool = False,
) -> dict[str, Any]:
    """Grade the benchmarks in `samples` (all, or those named) and return the content of `grades.json`.

    folder: data folder with the items. compare: also write `disagreements.csv`. Raises MissingInputError and
    CorruptInputError naming the file at fault; nothing is written for a benchmark that cannot be graded whole.
    """
    samples_json = samples / "samples.json"
    sampled = read_record(samples_json)
    keys = list(benchmarks or sampled)
    used = used_code.start(code("evals.grade", keys), inputs=(samples, folder))
    sample_entries = {key: entry_of(sampled, samples_json, key) for key in keys}
    entries = read_record(out / "grades.json") if (out / "grades.json").is_file() else {}
    rows: list[dict[str, object]] = []  # responses on which the PRIME grader differs
    with Grader(pool=pool) as grader:
        for key in keys:
            # a comparison needs every grade and question at hand, so it grades again
            if not compare and _current(out, key, entries.get(key), sample_entries[key]):
                print(f"{key}: grades are there, of these samples and by this grader")
                continue
            file = read_samples(samples, key, sample_entries[key])
            items = {item.item_id: item for item in data.load(defined(key, folder), folder)}
            _check_items(file, items, folder)
            # each gold is read once, not once per sample
            golds = {item_id: _gold(items[item_id], key) for item_id in dict.fromkeys(file.item_ids)}
            questions = [
                Question(golds[item_id], response, stop)
                for item_id, response, stop in zip(file.item_ids, file.responses, file.stops, strict=True)
            ]
            progress = Progress(f"grade {key}", len(questions))
            grades = grader.grade(questions, report=progress.update)
            entries[key] = {
                **write_grades(out / f"{key}.parquet", file, grades, grader_version()),
                "gold_kinds": dict(sorted(Counter(g.kind for g in golds.values()).items())),
                "unparsed_gold_candidates": sorted(item for item, g in golds.items() if g.kind == "unparsed"),
            }
            used.check(last=key == keys[-1])
            _write_record(out, entries, used.hash)  # after each benchmark: a killed run keeps those that are finished
            counts = Counter(grade.verdict for grade in grades)
            print(f"{key}: " + ", ".join(f"{verdict} {counts[verdict]}" for verdict in Verdict if counts[verdict]))
            if compare:
                rows += _by_both(key, file, [items[item_id].answer for item_id in file.item_ids], grades)
    if compare:
        write_text(out / "disagreements.csv", to_csv(COLUMNS, rows))  # a header alone: none
        print(f"ours and lineage differ on {len(rows)} responses: {out / 'disagreements.csv'}")
    return {"benchmarks": entries}


def _gold(item: Item, key: str) -> Gold:
    try:
        return gold(item.answer, tolerance=item.tolerance, multiple=item.multiple)
    except ConfigError as error:
        raise ConfigError(f"{key}: item {item.item_id}: {error}") from error


def _check_items(file: SampleFile, items: dict[str, Item], folder: Path) -> None:
    """CorruptInputError for a response to an item that the data do not hold."""
    if strange := sorted(set(file.item_ids) - set(items)):
        hit = nearest(strange[0], items)
        raise CorruptInputError(
            f"{file.path}: item {strange[0]!r} (and {len(strange) - 1} more) is not in {folder} ({len(items)} items)"
            + (f"; nearest: {hit}" if hit else "")
        )


def _current(out: Path, key: str, entry: dict[str, Any] | None, sample_entry: dict[str, Any]) -> bool:
    """Whether there are undamaged grades of exactly these samples by exactly this grader."""
    path = out / f"{key}.parquet"
    return (
        entry is not None
        and entry.get("samples_sha256") == sample_entry.get("sha256")
        and entry.get("grader_version") == grader_version()
        and path.is_file()
        and entry.get("sha256") == sha256_file(path)
    )


def _write_record(out: Path, entries: dict[str, Any], code: str) -> None:
    facts = {"schema": SCHEMA, "grader_version": grader_version(), "versions": versions()}
    write_json(out / "grades.json", digests.with_own({**facts, "benchmarks": entries, "code": code}))


# Where the two graders disagree: the rows behind a difference between two scores. golds: as stored. ours, lineage: a
# verdict of our grader and of the PRIME grader, with the rule behind ours.
COLUMNS = ("benchmark", "item_id", "sample", "gold", "extracted", "ours", "rule", "lineage")


def _by_both(key: str, file: SampleFile, golds: Sequence[str], grades: Sequence[Grade]) -> list[dict[str, object]]:
    verdicts = prime_verdicts(file.responses, golds)
    rows = disagreements(key, list(zip(file.item_ids, file.samples, strict=True)), golds, grades, verdicts)
    only = sum(row["ours"] == Verdict.CORRECT for row in rows)
    print(f"{key}: right by ours alone {only}, by lineage alone {len(rows) - only}, of {len(grades)}")
    return rows


def prime_verdicts(responses: Sequence[str], golds: Sequence[str]) -> list[Verdict]:
    """The PRIME grader's verdicts `correct`, `wrong` or `no_answer`, in order. golds: one per response."""
    from evals.grading import prime

    found = list(map(prime.by_text, golds, responses))
    tasks = [
        None if isinstance(one, Verdict) else Task(Gold(gold, "symbolic"), one, grader="lineage")
        for one, gold in zip(found, golds, strict=True)
    ]
    different = list(dict.fromkeys(filter(None, tasks)))
    with Pool(cpu_seconds=prime.CPU_SECONDS) as pool:
        right = {t for t, a in zip(different, pool.compare(different), strict=True) if a.outcome == Verdict.CORRECT}
    decided = [Verdict.CORRECT if task in right else Verdict.WRONG for task in tasks]
    return [one if isinstance(one, Verdict) else verdict for one, verdict in zip(found, decided, strict=True)]


def disagreements(
    benchmark: str,
    keys: Sequence[tuple[str, int]],
    golds: Sequence[str],
    ours: Sequence[Grade],
    lineage: Sequence[Verdict],
) -> list[dict[str, object]]:
    """Rows of `COLUMNS` where exactly one of the two says `correct`. keys: (item_id, sample) per response."""
    return [
        dict(zip(COLUMNS, (benchmark, *key, gold, grade.extracted, grade.verdict, grade.rule, verdict), strict=True))
        for key, gold, grade, verdict in zip(keys, golds, ours, lineage, strict=True)
        if (grade.verdict is Verdict.CORRECT) != (verdict is Verdict.CORRECT)
    ]


def load() -> None:
    """Import what reading samples takes; a worker (`core.worker`) does so once for many."""
    for name in ("pandas", "pyarrow.dataset", "pyarrow.parquet"):
        import_module(name)


def main() -> int:
    parser = Parser()
    parser.add_argument("--samples", required=True, type=Path, metavar="DIR", help="folder with samples.json")
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder with <benchmark>.jsonl")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where grades are written")
    parser.add_argument("--benchmarks", nargs="+", metavar="KEY", help="only these (default: all that were sampled)")
    parser.add_argument("--compare", choices=["lineage"], help="list responses on which the PRIME grader differs")
    parser.add_argument(
        "--workers", type=whole(1, 4096), metavar="N", help="processes (default: the cores this process may use)"
    )
    parser.add_argument(
        "--cpu-seconds", type=real(above=0, most=86400), default=CPU_SECONDS, help="CPU limit of one comparison"
    )
    args = parser.parse_args()
    grade(
        args.samples,
        args.data,
        args.out,
        benchmarks=args.benchmarks,
        pool=Pool(workers=args.workers, cpu_seconds=args.cpu_seconds),
        compare=args.compare is not None,
    )
    return 0


if __name__ == "__main__":
    errors.run(main)
