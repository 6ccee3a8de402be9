"""Training problems from the hub: one file of a data set, its distinct problems, a fixed choice of them, as prompts.

    python -m models.training_data --source dapo_math_17k --out FILE.jsonl [--revision R] [--sha256 H] [--from PARQUET]

Writes the distinct problems {problem, answer}, and beside them FILE.json: where they came from (commit, sha256), rows,
duplicates, contradictions. Offline (`HF_HUB_OFFLINE=1`) only `--from` works.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.benchmark import HubFile
from evals.data import item_id
from evals.fetch import download
from evals.generation.prompts import build
from models.fetch import commit_of
from records import errors
from records.errors import ConfigError, CorruptInputError, MissingInputError, unknown
from records.files import read_jsonl, write_json, write_text
from records.provenance import sha256_file

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

READING = "system"  # R29: as in evaluation (E3)
TEMPLATE = "auto"


@dataclass(frozen=True)
class Source:
    """A parquet file of a hub data set whose rows hold a chat `prompt` and `reward_model.ground_truth`. `before` and
    `after` are its own instructions around each problem, which ours replace."""

    dataset: str
    path: str
    licence: str
    megabytes: int  # to download, assumed
    before: str
    after: str


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
    """problems: text -> answer, in order of first appearance. contradictory: problems left out because two of their
    copies have different answers."""

    problems: dict[str, str]
    rows: int
    contradictory: int


def source(key: str) -> Source:
    if key not in SOURCES:
        raise unknown("prompts", "source", key, SOURCES)
    return SOURCES[key]


def distinct(source: Source, path: Path) -> Problems:
    """The distinct problems of the parquet file; a row that is not of the source's form is an error."""
    found: dict[str, tuple[str, str]] = {}
    torn: set[str] = set()
    number = 0
    for number, row in enumerate(_rows(path), 1):
        problem, answer = _read(source, row, f"{path}: row {number}")
        known = found.setdefault(item_id(problem), (problem, answer))
        if known[1] != answer:
            torn.add(item_id(problem))
    if not found:
        raise CorruptInputError(f"{path}: holds no rows")
    kept = {problem: answer for key, (problem, answer) in found.items() if key not in torn}
    return Problems(kept, rows=number, contradictory=len(torn))


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """The file has a hundred copies of each problem: read in batches, never whole."""
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


def choose(problems: Mapping[str, str], count: int, seed: int, where: str) -> list[str]:
    """`count` of the problems by a hash of seed and text: the same whatever the order of the file; a larger count with
    the same seed begins with the smaller one's."""
    if count > len(problems):
        raise ConfigError(f"{where}: {len(problems)} distinct problems; prompts.count is {count}")
    return sorted(problems, key=lambda text: hashlib.sha256(f"{seed}\n{text}".encode()).digest())[:count]


def rows(
    problems: Mapping[str, str], chosen: list[str], tokenizer: PreTrainedTokenizerBase, limit: int
) -> list[dict[str, str | int]]:
    """{prompt, answer, cut} per problem: the text that the model reads, made as evaluation makes it; `cut`: tokens
    removed on the left to fit `limit`."""
    made = [(build(tokenizer, READING, TEMPLATE, text, limit), problems[text]) for text in chosen]
    return [{"prompt": prompt.text, "answer": answer, "cut": prompt.cut} for prompt, answer in made]


def read(path: Path) -> dict[str, str]:
    """problem -> answer, as `main` wrote them."""
    return {row["problem"]: row["answer"] for row in read_jsonl(path, "training problems")}


def write(
    key: str, out: Path, *, revision: str | None = None, sha256: str | None = None, file: Path | None = None
) -> dict[str, Any]:
    """Fetch (or take `file`), check, write `out` and its record; returns the record."""
    of, commit = source(key), None
    if file is None:
        commit = commit_of(of.dataset, revision or "main", "dataset")
        with download(HubFile(of.dataset, of.path, dict, commit), commit) as path:
            digest, found = _checked(of, path, sha256)
    elif not file.is_file():
        raise MissingInputError(f"{file}: data of {key} is missing")
    else:
        digest, found = _checked(of, file, sha256)
    record = {
        "source": key, "dataset": of.dataset, "path": of.path, "licence": of.licence, "revision": revision,
        "commit": commit, "sha256": digest, "rows": found.rows, "distinct": len(found.problems),
        "contradictory": found.contradictory,
    }  # fmt: skip
    lines = [json.dumps({"problem": p, "answer": a}, ensure_ascii=False) + "\n" for p, a in found.problems.items()]
    write_json(out.with_suffix(".json"), record)
    write_text(out, "".join(lines))
    return record


def _checked(of: Source, path: Path, sha256: str | None) -> tuple[str, Problems]:
    digest = sha256_file(path)
    if sha256 is not None and digest != sha256:
        raise CorruptInputError(f"{of.dataset}/{of.path}: sha256 is {digest}, prompts.sha256 says {sha256}")
    return digest, distinct(of, path)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m models.training_data", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", required=True, help=", ".join(SOURCES))
    parser.add_argument("--revision", help="commit, tag or branch; without it the head, whose commit is recorded")
    parser.add_argument("--sha256", help="of the file; checked when given")
    parser.add_argument("--from", dest="file", type=Path, help="take this parquet file, use no network")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    record = write(given.source, given.out, revision=given.revision, sha256=given.sha256, file=given.file)
    print(
        f"{given.out}: {record['distinct']} distinct problems in {record['rows']} rows, {record['contradictory']} left "
        f"out for contradictory answers; commit {record['commit'] or 'unknown'}, sha256 {record['sha256']}"
    )


if __name__ == "__main__":
    errors.run(main)
