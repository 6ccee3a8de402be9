"""Grade stored responses, one verdict each; regrade after a grader change without the model.

    python -m evals.grade --samples SAMPLES_DIR --data DIR --out GRADES_DIR

A benchmark already graded with these samples, right answers and grader is skipped, so a killed run continues with the
benchmark that it was grading.
"""

from core import worker

if __name__ == "__main__":
    # Before the other imports, which the worker already has: they take longer than handing over, for every checkpoint.
    worker.hand_over("evals.grade", ("pydantic", "yaml", "pandas", "pyarrow.dataset", "pyarrow.parquet"))

from collections import Counter
from pathlib import Path
from typing import Any

from core import errors
from core.code import Code, warning_entry
from core.errors import ConfigError, CorruptInputError, Parser, nearest
from core.files import write_json
from core.progress import Progress
from core.provenance import sha256_file
from evals import data
from evals.benchmark import Item, defined
from evals.grading import Verdict
from evals.grading.decide import Gold, gold
from evals.grading.grader import Grader, Question, grader_version, versions
from evals.store import SampleFile, read_record, read_samples, write_grades

SCHEMA = 1


def grade(samples: Path, folder: Path, out: Path) -> None:
    """Grade all benchmarks in `samples`. folder: data folder with the items.

    Raises MissingInputError and CorruptInputError naming the file at fault; no file is written for a benchmark that
    cannot be graded completely.
    """
    samples_json = samples / "samples.json"
    sampled = read_record(samples_json)
    keys = list(sampled)
    code = Code("grade")
    began = code.hash
    entries = read_record(out / "grades.json") if (out / "grades.json").is_file() else {}
    with Grader() as grader:
        for key in keys:
            benchmark = defined(key, folder)
            answers = sha256_file(data.found_in(folder, benchmark))
            if _current(out, key, entries.get(key), sampled[key], answers):
                print(f"{key}: grades are there, of these samples and by this grader")
                continue
            file = read_samples(samples, key, sampled[key])
            items = {item.item_id: item for item in data.load(benchmark, folder)}
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
                "data_sha256": answers,
                "gold_kinds": dict(sorted(Counter(g.kind for g in golds.values()).items())),
                "unparsed_gold_candidates": sorted(item for item, g in golds.items() if g.kind == "unparsed"),
            }
            # after each benchmark: a killed run keeps the finished ones
            facts = {"schema": SCHEMA, "grader_version": grader_version(), "versions": versions()}
            record = {**facts, "benchmarks": entries, "code": began, **warning_entry((code, began))}
            write_json(out / "grades.json", record)
            counts = Counter(grade.verdict for grade in grades)
            print(f"{key}: " + ", ".join(f"{verdict} {counts[verdict]}" for verdict in Verdict if counts[verdict]))


def _gold(item: Item, key: str) -> Gold:
    try:
        return gold(item.answer, tolerance=item.tolerance, multiple=item.multiple)
    except ConfigError as error:
        raise ConfigError(f"{key}: item {item.item_id}: {error}") from error


def _check_items(file: SampleFile, items: dict[str, Item], folder: Path) -> None:
    """Raise CorruptInputError for a response to an item missing from the data."""
    if strange := sorted(set(file.item_ids) - set(items)):
        hit = nearest(strange[0], items)
        raise CorruptInputError(
            f"{file.path}: item {strange[0]!r} (and {len(strange) - 1} more) is not in {folder} ({len(items)} items)"
            + (f"; nearest: {hit}" if hit else "")
        )


def _current(out: Path, key: str, entry: dict[str, Any] | None, sample_entry: dict[str, Any], answers: str) -> bool:
    """Return whether there are undamaged grades of exactly these samples by this grader, with these answers.

    answers: sha256 of the items file.
    """
    path = out / f"{key}.parquet"
    return (
        entry is not None
        and entry.get("data_sha256") == answers
        and entry.get("samples_sha256") == sample_entry.get("sha256")
        and entry.get("grader_version") == grader_version()
        and path.is_file()
        and entry.get("sha256") == sha256_file(path)
    )


def main() -> int:
    parser = Parser()
    parser.add_argument("--samples", required=True, type=Path, metavar="DIR", help="folder with samples.json")
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder with <benchmark>.jsonl")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where grades are written")
    args = parser.parse_args()
    grade(args.samples, args.data, args.out)
    return 0


if __name__ == "__main__":
    errors.run(main)
