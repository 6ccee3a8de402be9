"""Training problems from the hub: one file of a data set, reduced to its distinct problems.

    python -m models.training_data --source dapo_math_17k --out FILE.jsonl [--revision R] [--sha256 H] [--from PARQUET]

Writes the distinct problems {problem, answer}, and beside them FILE.json: where they came from (commit, sha256), rows,
duplicates, contradictions. Offline (`HF_HUB_OFFLINE=1`) only `--from` works. `models.prompts` makes prompts of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.benchmark import HubFile
from evals.data import item_id
from evals.fetch import download
from models.fetch import commit_of
from records import digests, errors
from records.errors import CorruptInputError, MissingInputError, Parser, unknown
from records.files import write_json
from records.provenance import sha256_file


@dataclass(frozen=True)
class Source:
    """A parquet file of a hub data set whose rows hold a chat `prompt` and `reward_model.ground_truth`."""

    dataset: str
    path: str
    licence: str
    megabytes: int  # to download, assumed
    before: str  # the data set's own instruction before each problem; ours replaces it
    after: str  # the same after each problem


SOURCES = {
    "dapo_math_17k": Source(
        dataset="BytedTsinghua-SIA/DAPO-Math-17k",
        path="data/dapo-math-17k.parquet",
        licence="Apache-2.0",
        megabytes=290,
        before="Solve the following math problem step by step. The last line of your response should be of the form "
        "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n",
        after='\n\nRemember to put your answer on its own line after "Answer:".',
    )
}


@dataclass(frozen=True)
class Problems:
    """The distinct problems of a file."""

    answers: dict[str, str]  # problem -> answer, in order of first appearance
    rows: int
    contradictory: int  # problems left out because two of their copies have different answers


def source(key: str) -> Source:
    if key not in SOURCES:
        raise unknown("prompts", "source", key, SOURCES)
    return SOURCES[key]


def distinct(source: Source, path: Path) -> Problems:
    """The distinct problems of the parquet file; a row that is not of the source's form is an error."""
    first_copy: dict[str, tuple[str, str]] = {}
    contradictory: set[str] = set()
    number = 0
    for number, row in enumerate(_rows(path), 1):
        problem, answer = _read(source, row, f"{path}: row {number}")
        key = item_id(problem)  # blind to spacing, which differs between copies
        _, first_answer = first_copy.setdefault(key, (problem, answer))
        if first_answer != answer:
            contradictory.add(key)
    if not first_copy:
        raise CorruptInputError(f"{path}: holds no rows")
    answers = {problem: answer for key, (problem, answer) in first_copy.items() if key not in contradictory}
    return Problems(answers, rows=number, contradictory=len(contradictory))


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """The file has a hundred copies of each problem, so it is read in batches, never whole."""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=4096, columns=["prompt", "reward_model"]):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise CorruptInputError(f"{path}: not a readable parquet file ({' '.join(str(error).split())})") from error


def _read(source: Source, row: Mapping[str, Any], where: str) -> tuple[str, str]:
    try:
        (message,) = row["prompt"]
        text, answer = message["content"], row["reward_model"]["ground_truth"]
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptInputError(
            f"{where}: must have one message in `prompt` and a `reward_model.ground_truth` ({error!r})"
        ) from error
    if not (text.startswith(source.before) and text.endswith(source.after)):
        raise CorruptInputError(f"{where}: prompt: not within the instructions of {source.dataset}: {text[:60]!r}")
    problem, answer = text[len(source.before) : -len(source.after)].strip(), str(answer).strip()
    if not problem or not answer:
        raise CorruptInputError(f"{where}: {'problem' if not problem else 'ground_truth'}: is empty")
    return problem, answer


def write(
    key: str, out: Path, *, revision: str | None = None, sha256: str | None = None, file: Path | None = None
) -> dict[str, Any]:
    """Fetch (or take `file`), check, write `out` and its record; returns the record."""
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
        "contradictory": problems.contradictory,
    }  # fmt: skip
    lines = [json.dumps({"problem": p, "answer": a}, ensure_ascii=False) + "\n" for p, a in problems.answers.items()]
    write_json(out.with_suffix(".json"), record)  # first: the problems are what Snakemake waits for
    digests.write(out, "".join(lines))
    return record


def _checked(origin: Source, path: Path, sha256: str | None) -> tuple[str, Problems]:
    """The file's sha256, equal to the expected one if there is one, and its problems."""
    digest = sha256_file(path)
    if sha256 is not None and digest != sha256:
        raise CorruptInputError(f"{origin.dataset}/{origin.path}: sha256 is {digest}, prompts.sha256 says {sha256}")
    return digest, distinct(origin, path)


def main() -> None:
    parser = Parser(prog="python -m models.training_data", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", required=True, help=", ".join(SOURCES))
    parser.add_argument("--revision", help="commit, tag or branch; without it the head, whose commit is recorded")
    parser.add_argument("--sha256", help="of the file; checked when given")
    parser.add_argument("--from", dest="file", type=Path, help="take this parquet file, use no network")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    record = write(args.source, args.out, revision=args.revision, sha256=args.sha256, file=args.file)
    print(
        f"{args.out}: {record['distinct']} distinct problems in {record['rows']} rows, {record['contradictory']} left "
        f"out for contradictory answers; commit {record['commit'] or 'unknown'}, sha256 {record['sha256']}"
    )


if __name__ == "__main__":
    errors.run(main)
