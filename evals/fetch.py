"""Get the items of benchmarks: download, copy from a mirror, or generate; verify; write `<data>/<key>.jsonl`.

    python -m evals.fetch --benchmarks all --data data                       download
    python -m evals.fetch --benchmarks math500 --data data --mirror FOLDER   offline, from FOLDER/math500.jsonl
    python -m evals.fetch --describe FILE                                    n and sha256 for a new benchmark's file

No source is trusted: nothing is written unless the content's sha256 and the row count are the registered ones.
"""

import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from core import errors
from core.errors import BenchError, ConfigError, CorruptInputError, MissingInputError, Parser
from core.files import read_jsonl, write_json, write_text
from evals import benchmark as data
from evals.benchmark import Benchmark, Item, Row, definition
from evals.grading.boxes import last_box

# At the end of every problem in the upstream files of AIME; removed, because the prompt is our choice (reading E3).
INSTRUCTION = "\nPlease reason step by step, and put your final answer within \\boxed{}."


def fetch(benchmark: Benchmark, folder: Path | str, *, mirror: Path | str | None = None) -> Path:
    """Write the verified items of a benchmark to `folder`; keep a file that is already there and correct.

    mirror: a folder to take the file from instead of the network. Raises MissingInputError when the items cannot be
    obtained, CorruptInputError when they are not the registered ones; nothing is then written.
    """
    target = Path(folder) / f"{benchmark.key}.jsonl"
    if benchmark.file is not None:
        # Read by commands that have only the key, such as `evals.grade`.
        about = {"title": benchmark.title, "sha256": benchmark.sha256, "n": benchmark.n}
        write_json(definition(Path(folder), benchmark.key), about)
    with suppress(CorruptInputError):
        if target.is_file() and all("item_id" in row for row in read_jsonl(target)):  # a mirror's file has none
            data.load(benchmark, folder)
            return target
    if not benchmark.local and mirror is None:
        items = _download(benchmark)
    elif benchmark.synthetic:
        items = _verified(benchmark, benchmark.make(), benchmark.origin)
    else:
        if (path := Path(benchmark.file) if benchmark.file else data.path_in(str(mirror), benchmark)) is None:
            raise MissingInputError(f"{mirror}: no file for {benchmark.key}; looked for: {benchmark.key}.jsonl")
        items = _verified(benchmark, read_jsonl(path, f"data of {benchmark.key}"), str(path))
    write_text(target, data.text(items))
    return target


def _verified(benchmark: Benchmark, rows: Sequence[Row], where: str) -> list[Item]:
    """Return the verified items of rows that are as the source stores them, or {problem, answer}."""
    names, found = benchmark.fields or {}, list[Row]()
    for number, row in enumerate(rows, 1):
        if "problem" in row and "answer" in row:
            found.append(row)
            continue
        if absent := [name for name in names.values() or ("problem", "answer") if name not in row]:
            raise CorruptInputError(
                f"{where}: row {number} is neither as {benchmark.origin} has them nor {{problem, answer}}: "
                f"no {absent[0]!r}; fields: {', '.join(row)}"
            )
        ours = {name: row[theirs] for name, theirs in names.items()}
        answer = last_box(str(ours["answer"])) if benchmark.boxed else ours["answer"]
        ours["answer"] = ", ".join(answer) if isinstance(answer, list) else None if answer is None else str(answer)
        ours["problem"] = str(ours["problem"]).removesuffix(INSTRUCTION)
        found.append(ours)
    items = data.items(found, where)
    data.verify(benchmark, items, where)
    return items


TIMEOUT_SECONDS = 60  # without a byte, not of the whole download
HUB = "https://huggingface.co/"
COMMIT = re.compile(r"[0-9a-f]{40}")
Kind = Literal["model", "dataset"]


def _download(benchmark: Benchmark) -> list[Item]:
    """Return the items from the first source that has the registered content.

    The hub's addresses follow HF_ENDPOINT and HF_HUB_OFFLINE, as everything else that is downloaded from there.
    """
    import httpx
    from huggingface_hub import constants

    failures: list[BenchError] = []
    for source in benchmark.sources:
        address = source.replace(HUB, f"{constants.ENDPOINT}/")
        try:
            if source.startswith(HUB) and constants.HF_HUB_OFFLINE:
                raise MissingInputError(f"{source}: cannot be downloaded (HF_HUB_OFFLINE is set)")
            with tempfile.NamedTemporaryFile(prefix="tepo-fetch-") as file:
                with httpx.stream("GET", address, timeout=TIMEOUT_SECONDS, follow_redirects=True) as answer:
                    for part in answer.raise_for_status().iter_bytes():
                        file.write(part)
                file.flush()
                return _verified(benchmark, read_jsonl(file.name, f"data of {benchmark.key}"), address)
        except BenchError as error:
            failures.append(error)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error).partition("\n")[0]
            failures.append(MissingInputError(f"{address}: cannot be downloaded ({reason})"))
    # The main source decides the kind of error: a failing alternative adds nothing to the cause.
    kind = CorruptInputError if isinstance(failures[0], CorruptInputError) else MissingInputError
    raise kind(
        f"{benchmark.key}: not fetched: {'; '.join(map(str, failures))}. Get the file elsewhere, as "
        f"FOLDER/{benchmark.key}.jsonl, and run: python -m evals.fetch --benchmarks {benchmark.key} --data DIR "
        "--mirror FOLDER"
    )


def from_hub(
    repository: str,
    revision: str,
    folder: Path | None,
    files: Sequence[str] = (),
    *,
    kind: Kind = "model",
    without: Sequence[str] = (),
) -> str:
    """Download the files that match into `folder` (None: nothing) and return the commit of a branch, tag or commit.

    files, without: patterns. An interrupted download is resumed. Raises MissingInputError in one line for any failure.
    """
    import httpx
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError

    try:
        commit: str | None = revision
        if not COMMIT.fullmatch(revision):
            commit = huggingface_hub.HfApi().repo_info(repository, revision=revision, repo_type=kind).sha
        if commit is None:
            raise OSError("the hub names no commit")
        if folder is not None:
            huggingface_hub.snapshot_download(
                repository, revision=commit, repo_type=kind, local_dir=folder, allow_patterns=list(files),
                ignore_patterns=list(without),
            )  # fmt: skip
            if not any(any(folder.glob(pattern)) for pattern in files):
                raise OSError(f"no {files[0]} in it")
    except (EntryNotFoundError, HfHubHTTPError, HFValidationError, httpx.HTTPError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise MissingInputError(
            f"{repository}@{revision}: cannot be fetched ({reason}); set --from to a copy made where there is a network"
        ) from error
    return commit


def main() -> int:
    parser = Parser()
    parser.add_argument("--data", metavar="DIR", help="where <key>.jsonl is written")
    parser.add_argument("--benchmarks", nargs="+", metavar="KEY", help="keys, or: all (the paper's seven)")
    parser.add_argument("--mirror", metavar="DIR", help="take the files from this folder, use no network")
    parser.add_argument("--describe", metavar="FILE", help="print n and sha256 of {problem, answer} rows, and stop")
    args = parser.parse_args()
    if args.describe:
        items = data.items(read_jsonl(args.describe, "the file to describe"), args.describe)
        print(f"n={len(items)}\nsha256={data.content_sha256(items)}")
        return 0
    benchmarks = data.select(args.benchmarks or ())
    if args.data is None:
        raise ConfigError("fetch: --data: missing; set it to the folder where the files are written")
    for benchmark in benchmarks:
        path = fetch(benchmark, args.data, mirror=args.mirror)
        print(f"{benchmark.key}: {benchmark.n} items in {path}, sha256 as registered")
    return 0


if __name__ == "__main__":
    errors.run(main)
