"""Training problems from the hub: one file of a data set, reduced to its distinct problems.

    python -m models.training_data --source math_train --out FILE.jsonl [--revision R] [--sha256 H] [--from PARQUET]

Writes the distinct problems {problem, answer}, and next to them FILE.json: their origin (commit, sha256), rows,
duplicates, contradictions. Offline (`HF_HUB_OFFLINE=1`) only `--from` works. `models.prompts` makes prompts from them.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import errors
from core.errors import CorruptInputError, MissingInputError, Parser, unknown
from core.files import write_json, write_text
from core.provenance import sha256_file
from evals.benchmark import HubFile
from evals.data import item_id
from evals.fetch import commit_of, download
from evals.grading.normalise import last_box

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """A parquet file of a hub data set, and the function that reads its rows."""

    dataset: str
    path: str
    licence: str
    megabytes: int  # size of the download, assumed
    columns: tuple[str, ...]  # required by `read`; only these are loaded
    form: str  # required content of a row, for errors
    # Row -> problem and answer; the answer is None if none can be read. Raises CorruptInputError, ValueError, KeyError
    # or TypeError for a row of another form.
    read: Callable[[Row], tuple[str, str | None]]


# The data set's instruction around each problem; ours replaces it.
DAPO_BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
DAPO_AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'


def read_dapo(row: Row) -> tuple[str, str]:
    """Read a chat of one message, and the answer next to it."""
    (message,) = row["prompt"]
    text, answer = message["content"], row["reward_model"]["ground_truth"]
    if not (text.startswith(DAPO_BEFORE) and text.endswith(DAPO_AFTER)):
        raise CorruptInputError(f"prompt: not within the data set's instructions: {text[:60]!r}")
    return text[len(DAPO_BEFORE) : -len(DAPO_AFTER)], str(answer)


BARE_BOX = re.compile(r"\\boxed\s+([^\s$]+?)[.,]?(?:[\s$]|$)")  # `\boxed 2`, as in some solutions of MATH


def read_math(row: Row) -> tuple[str, str | None]:
    """Read a problem and a worked solution, whose last box is the answer."""
    solution = row["solution"]
    boxed = last_box(solution)
    if boxed is None and (bare := BARE_BOX.findall(solution)):
        boxed = bare[-1]
    return row["problem"].strip(), boxed or None


SOURCES = {
    "dapo_math_17k": Source(
        dataset="BytedTsinghua-SIA/DAPO-Math-17k",
        path="data/dapo-math-17k.parquet",
        licence="Apache-2.0",
        megabytes=290,
        columns=("prompt", "reward_model"),
        form="one message in `prompt` and a `reward_model.ground_truth`",
        read=read_dapo,
    ),
    # The 7,500 training problems of MATH. MATH-500 is drawn from its 5,000 test problems, so there is no overlap.
    "math_train": Source(
        dataset="DigitalLearningGmbH/MATH-lighteval",
        path="data/train-00000-of-00001.parquet",
        licence="MIT",
        megabytes=3,
        columns=("problem", "solution"),
        form="a `problem` and a `solution`",
        read=read_math,
    ),
}
MOST_WITHOUT_ANSWER = 0.01  # share of rows: above it the file is not in the format that its reader expects


@dataclass(frozen=True)
class Problems:
    """The distinct problems of a file."""

    answers: dict[str, str]  # problem -> answer, in order of first appearance
    rows: int
    contradictory: int  # problems left out because two of their copies have different answers
    without_answer: int  # rows left out because no answer could be read from them


def source(key: str) -> Source:
    if key not in SOURCES:
        raise unknown("prompts", "source", key, SOURCES)
    return SOURCES[key]


def distinct(source: Source, path: Path) -> Problems:
    """Return the distinct problems of the parquet file; raise an error for a row that is not of the source's form."""
    first_copy: dict[str, tuple[str, str]] = {}
    contradictory: set[str] = set()
    number = without_answer = 0
    for number, row in enumerate(_rows(source, path), 1):
        problem, answer = _read(source, row, f"{path}: row {number}")
        if answer is None:
            without_answer += 1
            continue
        key = item_id(problem)  # ignores spacing, which differs between copies
        _, first_answer = first_copy.setdefault(key, (problem, answer))
        if first_answer != answer:
            contradictory.add(key)
    if not number:
        raise CorruptInputError(f"{path}: holds no rows")
    if without_answer > MOST_WITHOUT_ANSWER * number:
        raise CorruptInputError(
            f"{path}: no answer can be read from {without_answer} of {number} rows: not the file of {source.dataset}"
        )
    answers = {problem: answer for key, (problem, answer) in first_copy.items() if key not in contradictory}
    return Problems(answers, number, len(contradictory), without_answer)


def _rows(source: Source, path: Path) -> Iterator[Row]:
    """Yield rows in batches: DAPO's file has a hundred copies of each problem, so files are never read whole."""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=4096, columns=list(source.columns)):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise CorruptInputError(f"{path}: not a readable parquet file ({' '.join(str(error).split())})") from error


def _read(source: Source, row: Row, where: str) -> tuple[str, str | None]:
    try:
        problem, answer = source.read(row)
    except CorruptInputError as error:
        raise CorruptInputError(f"{where}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptInputError(f"{where}: must have {source.form} ({error!r})") from error
    problem, answer = problem.strip(), None if answer is None else answer.strip()
    if not problem or answer == "":
        raise CorruptInputError(f"{where}: {'problem' if not problem else 'answer'}: is empty")
    return problem, answer


def write(
    key: str, out: Path, *, revision: str | None = None, sha256: str | None = None, file: Path | None = None
) -> dict[str, Any]:
    """Fetch (or take `file`), check, write `out` and its record; return the record."""
    origin = source(key)
    commit = None
    if file is None:
        commit = commit_of(origin.dataset, revision or "main", "dataset")
        with download(HubFile(origin.dataset, origin.path, dict, commit), commit) as path:
            digest, problems = _checked(origin, path, sha256)
    elif not file.is_file():
        raise MissingInputError(f"{file}: data of {key} is missing")
    else:
        digest, problems = _checked(origin, file, sha256)
    record = {
        "source": key, "dataset": origin.dataset, "path": origin.path, "licence": origin.licence, "revision": revision,
        "commit": commit, "sha256": digest, "rows": problems.rows, "distinct": len(problems.answers),
        "contradictory": problems.contradictory, "without_answer": problems.without_answer,
    }  # fmt: skip
    lines = [json.dumps({"problem": p, "answer": a}, ensure_ascii=False) + "\n" for p, a in problems.answers.items()]
    write_json(out.with_suffix(".json"), record)  # first, because Snakemake waits for the problems
    write_text(out, "".join(lines))
    return record


def _checked(origin: Source, path: Path, sha256: str | None) -> tuple[str, Problems]:
    """Return the file's sha256, which must equal the expected one if given, and its problems."""
    digest = sha256_file(path)
    if sha256 is not None and digest != sha256:
        raise CorruptInputError(f"{origin.dataset}/{origin.path}: sha256 is {digest}, prompts.sha256 says {sha256}")
    return digest, distinct(origin, path)


def main() -> None:
    parser = Parser()
    parser.add_argument("--source", required=True, help=", ".join(SOURCES))
    parser.add_argument("--revision", help="commit, tag or branch; without it the head, whose commit is recorded")
    parser.add_argument("--sha256", help="of the file; checked when given")
    parser.add_argument("--from", dest="file", type=Path, help="take this parquet file, use no network")
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
