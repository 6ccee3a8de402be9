"""Grade stored responses, one verdict each; regrade after a grader change without the model.

    python -m evals.grade --samples SAMPLES_DIR --data DIR --out GRADES_DIR

--thoughts OPEN CLOSE adds marks around a model's thoughts, which are not graded. A benchmark already graded with these
samples, right answers, marks and grader is skipped, so a killed run continues with the benchmark that it was grading.
"""

from core import worker

if __name__ == "__main__":
    # Before the other imports, which the worker already has: for every checkpoint they take longer than handing over.
    worker.hand_over("evals.grade", ("pydantic", "yaml", "pandas", "pyarrow.dataset", "pyarrow.parquet"))

import argparse
from collections.abc import Sequence
from pathlib import Path

from core import errors
from core.code import Code, warning_entry
from core.errors import CorruptInputError, Parser, hint
from core.files import write_json
from core.progress import Progress
from core.provenance import sha256_file
from evals import store
from evals.benchmark import defined, found_in, load
from evals.grading.decide import gold
from evals.grading.grader import Grader, Question, grader_version, versions

SCHEMA = 1


def grade(samples: Path, folder: Path, out: Path, thoughts: Sequence[str] = ()) -> None:
    """Grade all benchmarks in `samples`. folder: data folder with the items. thoughts: marks (`boxes.spoken`).

    Raises MissingInputError and CorruptInputError naming the file at fault; no file is written for a benchmark that
    cannot be graded completely.
    """
    sampled = store.read_record(samples / "samples.json")
    entries = store.read_record(out / "grades.json") if (out / "grades.json").is_file() else {}
    code = Code("grade")
    began = code.hash
    with Grader() as grader:
        for key, drawn in sampled.items():
            benchmark, source, target = defined(key, folder), samples / f"{key}.parquet", out / f"{key}.parquet"
            facts = {"data_sha256": sha256_file(found_in(folder, benchmark)), "thoughts": [*thoughts]}
            facts |= {"samples_sha256": drawn["sha256"], "grader_version": grader_version()}
            graded = {"thoughts": []} | entries.get(key, {})  # older records have none
            if graded | facts == graded and target.is_file() and graded["sha256"] == sha256_file(target):
                print(f"{key}: grades are there, of these samples and by this grader")
                continue
            rows = store.read_samples(source, drawn)
            items = {item.item_id: item for item in load(benchmark, folder)}
            if strange := sorted(set(rows["item_id"]) - set(items)):
                raise CorruptInputError(
                    f"{source}: item {strange[0]!r} (and {len(strange) - 1} more) is not in {folder} "
                    f"({len(items)} items){hint(strange[0], items)}"
                )
            # each gold is read once, not once per sample
            golds = {}
            for id in dict.fromkeys(rows["item_id"]):
                item, where = items[id], f"{key}: item {id}: item"
                golds[id] = gold(item.answer, tolerance=item.tolerance, multiple=item.multiple, where=where)
            places = zip(rows["item_id"], rows["response"], rows["stop"], strict=True)
            questions = [Question(golds[id], response, stop, tuple(thoughts)) for id, response, stop in places]
            grades = grader.grade(questions, report=Progress(f"grade {key}", len(questions)).update)
            entries[key] = store.write_grades(target, rows, drawn["sha256"], grades, grader_version()) | facts
            record = {"schema": SCHEMA, "grader_version": grader_version(), "versions": versions()}
            record |= {"benchmarks": entries, "code": began, **warning_entry((code, began))}
            write_json(out / "grades.json", record)  # after each benchmark: a killed run keeps the finished ones
            counts = entries[key]["verdicts"]
            print(f"{key}: " + ", ".join(f"{verdict} {count}" for verdict, count in counts.items() if count))


def add_thoughts(parser: argparse.ArgumentParser) -> None:
    """Add the option --thoughts, shared with `evals.run` and `evals.adopt`."""

    def mark(text: str) -> str:
        if not text.strip():
            raise argparse.ArgumentTypeError("an empty mark; type both, such as <rationale> </rationale>")
        return text

    more = "marks around the model's thoughts, besides those known (<think>, [THINK], ...)"
    parser.add_argument("--thoughts", nargs=2, type=mark, default=(), metavar=("OPEN", "CLOSE"), help=more)


def main() -> int:
    parser = Parser()
    parser.add_argument("--samples", required=True, type=Path, metavar="DIR", help="folder with samples.json")
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder with <benchmark>.jsonl")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where grades are written")
    add_thoughts(parser)
    args = parser.parse_args()
    grade(args.samples, args.data, args.out, args.thoughts)
    return 0


if __name__ == "__main__":
    errors.run(main)
