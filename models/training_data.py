"""Fetch a data set of training problems, or read a user's, reduced to its distinct problems.

    python -m models.training_data --source math_train --out FILE.jsonl [--revision R] [--sha256 H] [--from PARQUET]
    python -m models.training_data --source file --from PROBLEMS.jsonl --out FILE.jsonl

Writes the distinct problems {problem, answer}, and next to them FILE.json: their origin (commit, sha256), rows,
duplicates, contradictions. Offline (`HF_HUB_OFFLINE=1`) only `--from` works. `models.prompts` makes prompts from them.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import errors
from core.errors import ConfigError, CorruptInputError, MissingInputError, Parser, unknown
from core.files import read_own_file, write_json, write_text
from core.provenance import sha256_file
from evals.benchmark import item_id
from evals.fetch import from_hub
from evals.grading.boxes import last_box

Row = Mapping[str, Any]

# The data set's instruction around each problem; ours replaces it.
DAPO_BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
DAPO_AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'
BARE_BOX = re.compile(r"\\boxed\s+([^\s$]+?)[.,]?(?:[\s$]|$)")  # `\boxed 2`, as in some solutions of MATH
MOST_WITHOUT_ANSWER = 0.01  # share of rows: above it the file is not in the format that its reader expects


def read_dapo(row: Row) -> tuple[str, str]:
    """Read a chat of one message, and the answer next to it."""
    (message,) = row["prompt"]
    text, answer = message["content"], row["reward_model"]["ground_truth"]
    if not (text.startswith(DAPO_BEFORE) and text.endswith(DAPO_AFTER)):
        raise CorruptInputError(f"prompt: not within the data set's instructions: {text[:60]!r}")
    return text[len(DAPO_BEFORE) : -len(DAPO_AFTER)], str(answer)


def read_math(row: Row) -> tuple[str, str | None]:
    """Read a problem and a worked solution, whose last box is the answer."""
    solution = row["solution"]
    boxed = last_box(solution)
    if boxed is None and (bare := BARE_BOX.findall(solution)):
        boxed = bare[-1]
    return row["problem"].strip(), boxed or None


def read_own(row: Row) -> tuple[str, str]:
    """Read a user's problem, also as a chat of one message, and its answer."""
    problem, answer = row["problem"] if "problem" in row else row["prompt"], row["answer"]
    if isinstance(problem, list):
        (message,) = problem
        problem = message["content"]
    if not isinstance(problem, str) or isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise TypeError("text and a number or text")
    return problem, str(answer)


@dataclass(frozen=True)
class Source:
    """A parquet file of a hub data set, or a user's JSON lines, and the function that reads its rows."""

    dataset: str
    path: str
    licence: str
    megabytes: int  # size of the download, assumed
    columns: tuple[str, ...]  # required by `read`; only these are loaded
    form: str  # required content of a row, for errors
    # Row -> problem and answer; the answer is None if none can be read. Raises CorruptInputError, ValueError, KeyError
    # or TypeError for a row of another form.
    read: Callable[[Row], tuple[str, str | None]]


SOURCES = {
    "dapo_math_17k": Source(
        "BytedTsinghua-SIA/DAPO-Math-17k", "data/dapo-math-17k.parquet", "Apache-2.0", 290, ("prompt", "reward_model"),
        "one message in `prompt` and a `reward_model.ground_truth`", read_dapo,
    ),
    # The 7,500 training problems of MATH. MATH-500 is drawn from its 5,000 test problems, so there is no overlap.
    "math_train": Source(
        "DigitalLearningGmbH/MATH-lighteval", "data/train-00000-of-00001.parquet", "MIT", 3, ("problem", "solution"),
        "a `problem` and a `solution`", read_math,
    ),
    "file": Source("a user's file", "", "unknown", 0, (), "a `problem` (or `prompt`) and an `answer`", read_own),
}  # fmt: skip


def source(key: str) -> Source:
    if key not in SOURCES:
        raise unknown("prompts", "source", key, SOURCES)
    return SOURCES[key]


def distinct(source: Source, path: Path) -> tuple[dict[str, str], dict[str, int]]:
    """Return answers by problem, in order of first appearance, and counts: rows, problems left out because two of their
    copies have different answers, rows without an answer. CorruptInputError for a row that is not of the source's form.
    """
    first: dict[str, tuple[str, str]] = {}
    contradictory: set[str] = set()
    number = without = 0
    for number, row in enumerate(_rows(source, path), 1):
        where = f"{path}: row {number}"
        try:
            problem, answer = source.read(row)
        except CorruptInputError as error:
            raise CorruptInputError(f"{where}: {error}") from error
        except (KeyError, TypeError, ValueError) as error:
            found = ", ".join(map(str, row)) or "no field"
            raise CorruptInputError(f"{where}: must have {source.form} as text; found: {found}; rename them") from error
        problem, answer = problem.strip(), None if answer is None else answer.strip()
        if not problem or answer == "":
            raise CorruptInputError(f"{where}: {'problem' if not problem else 'answer'}: is empty")
        if answer is None:
            without += 1
            continue
        key = item_id(problem)  # ignores spacing, which differs between copies
        if first.setdefault(key, (problem, answer))[1] != answer:
            contradictory.add(key)
    if not number:
        raise CorruptInputError(f"{path}: holds no rows")
    if without > MOST_WITHOUT_ANSWER * number:
        raise CorruptInputError(
            f"{path}: no answer can be read from {without} of {number} rows: not the file of {source.dataset}"
        )
    answers = dict(pair for key, pair in first.items() if key not in contradictory)
    counts = {"rows": number, "distinct": len(answers), "contradictory": len(contradictory), "without_answer": without}
    return answers, counts


def _rows(source: Source, path: Path) -> Iterator[Row]:
    """Yield rows in batches: DAPO's file has a hundred copies of each problem, so files are never read whole."""
    if not source.columns:
        yield from read_own_file(path, "training problems")
        return
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=4096, columns=list(source.columns)):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise CorruptInputError(f"{path}: not a readable parquet file ({' '.join(str(error).split())})") from error


def write(
    key: str, out: Path, *, revision: str | None = None, sha256: str | None = None, file: Path | None = None
) -> dict[str, Any]:
    """Fetch (or take `file`), check, write `out` and its record; return the record."""
    origin, commit = source(key), None
    with tempfile.TemporaryDirectory(prefix="tepo-fetch-") as folder:
        if file is None and not origin.path:
            raise ConfigError(f"--source {key} needs --from")
        if file is None:
            commit = from_hub(origin.dataset, revision or "main", Path(folder), [origin.path], kind="dataset")
            file = Path(folder, origin.path)
        elif not file.is_file():
            raise MissingInputError(f"{file}: data of {key} is missing")
        digest = sha256_file(file)
        if sha256 is not None and digest != sha256:
            raise CorruptInputError(f"{file}: sha256 is {digest}; prompts.sha256 is {sha256}")
        answers, counts = distinct(origin, file)
    record = {
        "source": key, "dataset": origin.dataset, "path": origin.path, "licence": origin.licence, "revision": revision,
        "commit": commit, "sha256": digest, **counts,
    }  # fmt: skip
    write_json(out.with_suffix(".json"), record)  # first, because Snakemake waits for the problems
    lines = [json.dumps({"problem": p, "answer": a}, ensure_ascii=False) + "\n" for p, a in answers.items()]
    write_text(out, "".join(lines))
    return record


def main() -> None:
    parser = Parser()
    parser.add_argument("--source", required=True, help=", ".join(SOURCES))
    parser.add_argument("--revision", help="commit, tag or branch; without it the head, whose commit is recorded")
    parser.add_argument("--sha256", help="of the file; checked when given")
    parser.add_argument(
        "--from", dest="file", type=Path, help="take this file (parquet; a user's: JSON lines), use no network"
    )
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    record = write(args.source, args.out, revision=args.revision, sha256=args.sha256, file=args.file)
    print(
        f"{args.out}: {record['distinct']} distinct problems in {record['rows']} rows, {record['contradictory']} left "
        f"out for contradictory answers, {record['without_answer']} rows without a readable one; commit "
        f"{record['commit'] or 'unknown'}, sha256 {record['sha256']}"
    )


if __name__ == "__main__":
    errors.run(main)
