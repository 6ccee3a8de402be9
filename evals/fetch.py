"""Get the items of benchmarks: download, copy from a mirror, or generate; verify; write `<data>/<key>.jsonl`.

    python -m evals.fetch --benchmarks all --data data                       download
    python -m evals.fetch --benchmarks math500 --data data --mirror FOLDER   offline, from a folder of files
    python -m evals.fetch --benchmarks math500 --data data --from FILE       offline, one set from one file
    python -m evals.fetch --benchmarks all --explain                         print what would be downloaded, then stop
    python -m evals.fetch --describe FILE                                    n and sha256 for a new benchmark's file

No source is trusted: nothing is written unless the content's sha256 and the row count are the registered ones.
"""

import os
import re
import shutil
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from core import errors
from core.errors import BenchError, ConfigError, CorruptInputError, MissingInputError, Parser
from core.files import read_jsonl, write_text
from evals import data
from evals.benchmark import Benchmark, Generated, HubFile, Item, RepositoryFile, Row, Source, select


def fetch(
    benchmark: Benchmark, folder: Path | str, *, mirror: Path | str | None = None, file: Path | str | None = None
) -> Path:
    """Write the verified items of a benchmark to `folder`; keep a file that is already there and correct.

    mirror: a folder to take the file from instead of the network; file: the file itself. Raises MissingInputError when
    the items cannot be obtained, CorruptInputError when they are not the registered ones. Then nothing is written.
    """
    target = Path(folder) / f"{benchmark.key}.jsonl"
    source = benchmark.source
    if target.is_file() and _is_right(benchmark, target):
        return target
    if isinstance(source, Generated):
        items, where = data.items(source.make(), str(source)), str(source)
    elif file is not None or mirror is not None:
        path = Path(file) if file is not None else _in_mirror(benchmark, Path(str(mirror)))
        items, where = _read(benchmark, path, source), str(path)
    else:
        items, where = _download(benchmark)
    data.verify(benchmark, items, where)
    write_text(target, data.text(items))
    return target


def _is_right(benchmark: Benchmark, path: Path) -> bool:
    """Return whether `path` holds the registered items in the project's format (a mirror's file has no item_id)."""
    try:
        rows = read_jsonl(path)
        data.verify(benchmark, data.items(rows, str(path)), str(path))
    except CorruptInputError:
        return False
    return all("item_id" in row for row in rows)


def _read(benchmark: Benchmark, path: Path, source: Source) -> list[Item]:
    """Return items of a file whose rows are as `source` stores them, or in the project's format ({problem, answer})."""
    assert isinstance(source, RepositoryFile | HubFile)
    rows: list[Row] = []
    for number, row in enumerate(read_jsonl(path, f"data of {benchmark.key}"), 1):
        if "problem" in row and "answer" in row:
            rows.append(row)
            continue
        try:
            rows.append(source.read(row))
        except (KeyError, TypeError) as error:
            raise CorruptInputError(
                f"{path}: row {number} is neither as {source} has them nor {{problem, answer}}: {error!r};"
                f" fields: {', '.join(row)}"
            ) from error
    return data.items(rows, str(path))


def _in_mirror(benchmark: Benchmark, folder: Path) -> Path:
    """Return `<key>.jsonl`, another known name, or the path in the upstream repository, inside the mirror."""
    candidates = [folder / f"{name}.jsonl" for name in (benchmark.key, *benchmark.files)]
    if isinstance(benchmark.source, RepositoryFile):
        candidates.append(folder / benchmark.source.repository / benchmark.source.path)
    if found := next(filter(Path.is_file, candidates), None):
        return found
    raise MissingInputError(f"{folder}: no file for {benchmark.key}; looked for: {', '.join(map(str, candidates))}")


def _download(benchmark: Benchmark) -> tuple[list[Item], str]:
    """Return items, and their source's name, from the source or the first alternative with the same content."""
    failures: list[BenchError] = []
    for source in (benchmark.source, *benchmark.alternatives):
        assert isinstance(source, RepositoryFile | HubFile)
        try:
            with download(source, benchmark.revision) as path:
                items = _read(benchmark, path, source)
            data.verify(benchmark, items, str(source))
            return items, str(source)
        except BenchError as error:
            failures.append(error)
    # The main source decides the kind of error: a failing alternative adds nothing to the cause.
    kind = CorruptInputError if isinstance(failures[0], CorruptInputError) else MissingInputError
    raise kind(
        f"{benchmark.key}: not fetched: {'; '.join(map(str, failures))}. Get the file on another machine and run:"
        f" python -m evals.fetch --benchmarks {benchmark.key} --data DIR --from FILE"
    )


# Downloading one file, whatever its content.
#
# huggingface_hub resolves the hub's address (`HF_ENDPOINT`, `HF_HUB_OFFLINE`). For files of public git repositories,
# REPOSITORY_FILE is the only place that names a host; the environment variable `TEPO_REPOSITORY_FILE` replaces it.

REPOSITORY_FILE = "https://raw.githubusercontent.com/{repository}/{revision}/{path}"
TIMEOUT_SECONDS = 60  # without a byte, not of the whole download


@contextmanager
def download(source: RepositoryFile | HubFile, revision: str) -> Iterator[Path]:
    """Yield a temporary copy of the file. Raises MissingInputError with address and reason when the download fails."""
    with tempfile.TemporaryDirectory(prefix="tepo-fetch-") as folder:
        if isinstance(source, HubFile):
            yield _from_hub(source, Path(folder))
        else:
            yield _from_repository(source, revision, Path(folder) / "file.jsonl")


def _from_repository(source: RepositoryFile, revision: str, target: Path) -> Path:
    """Download from the repository; ConfigError when `TEPO_REPOSITORY_FILE` is not a template of an http(s) address."""
    from tqdm import tqdm

    template = os.environ.get("TEPO_REPOSITORY_FILE", REPOSITORY_FILE)
    parts = {"repository": source.repository, "revision": revision, "path": source.path}
    try:
        url = template.format(**{name: urllib.parse.quote(part) for name, part in parts.items()})
    except (KeyError, IndexError) as error:
        raise ConfigError(
            f"TEPO_REPOSITORY_FILE: {template!r} may hold {{repository}}, {{revision}} and {{path}} only"
        ) from error
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):  # urlopen would also read file:///
        raise ConfigError(f"TEPO_REPOSITORY_FILE: {url!r} is no http(s) address")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer, open(target, "wb") as stream:
            length = answer.headers.get("Content-Length")
            total = int(length) if length else None
            with tqdm.wrapattr(stream, "write", total=total, desc=source.path, disable=None) as counted:
                shutil.copyfileobj(answer, counted)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise MissingInputError(f"{url}: cannot be downloaded ({error})") from error
    received = target.stat().st_size
    if total is not None and received != total:
        raise MissingInputError(f"{url}: the connection broke after {received} of {total} bytes; run the command again")
    return target


def _from_hub(source: HubFile, folder: Path) -> Path:
    import huggingface_hub

    with hub_errors(f"{source}: cannot be downloaded"):
        return Path(
            huggingface_hub.hf_hub_download(
                source.dataset, source.path, repo_type="dataset", revision=source.revision, local_dir=folder
            )
        )


COMMIT = re.compile(r"[0-9a-f]{40}")
FROM_A_COPY = "; set --from to a copy made where there is a network"


def commit_of(repository: str, revision: str, kind: Literal["model", "dataset"] = "model") -> str:
    """Return the current commit of a branch, tag or commit; MissingInputError in one line if the hub is unavailable."""
    if COMMIT.fullmatch(revision):
        return revision
    import huggingface_hub

    with hub_errors(f"{repository}@{revision}: cannot be fetched", FROM_A_COPY):
        commit = huggingface_hub.HfApi().repo_info(repository, revision=revision, repo_type=kind).sha
    if commit is None:
        raise MissingInputError(f"{repository}@{revision}: the hub names no commit")
    return commit


@contextmanager
def hub_errors(failure: str, advice: str = "") -> Iterator[None]:
    """Turn any hub failure into one line: the failure, the reason, and what to do."""
    import httpx
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError

    try:
        yield
    except (EntryNotFoundError, HfHubHTTPError, HFValidationError, httpx.HTTPError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise MissingInputError(f"{failure} ({reason}){advice}") from error


# The command

MEGABYTES_PER_ITEM = 0.0014  # upstream files carry solutions; measured: 6.2 MB for all 4411 items


def explain(benchmarks: Sequence[Benchmark], folder: Path | str) -> str:
    """Describe what a download would fetch: one line per set, and where it would be stored."""
    lines = [f"{'set':<14} {'items':>5} {'responses':>9}  licence; source"]
    for b in benchmarks:
        revision = "" if isinstance(b.source, Generated) else f" @ {b.revision[:8]}"
        lines.append(f"{b.key:<14} {b.n:>5} {b.responses:>9}  {b.licence}; {b.source}{revision}")
    items = sum(b.n for b in benchmarks if not b.synthetic)
    lines.append(f"To {folder}: {items} items downloaded, about {items * MEGABYTES_PER_ITEM:.0f} MB.")
    return "\n".join(lines)


def main() -> int:
    parser = Parser()
    parser.add_argument("--data", metavar="DIR", help="where <key>.jsonl is written")
    parser.add_argument("--benchmarks", nargs="+", metavar="KEY", help="keys, or: all (the paper's seven)")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--mirror", metavar="DIR", help="take the files from this folder, use no network")
    source.add_argument("--from", dest="file", metavar="FILE", help="take one benchmark from this JSONL file")
    source.add_argument("--describe", metavar="FILE", help="print n and sha256 of {problem, answer} rows, and stop")
    source.add_argument("--explain", action="store_true", help="say what would be downloaded, and stop")
    args = parser.parse_args()
    if args.describe:
        items = data.items(read_jsonl(args.describe, "the file to describe"), args.describe)
        print(f"n={len(items)}\nsha256={data.content_sha256(items)}")
        return 0
    benchmarks = select(args.benchmarks or ())
    if args.explain:
        print(explain(benchmarks, args.data or "--data DIR"))
        return 0
    if args.data is None:
        raise ConfigError("fetch: --data: missing; say where the files are written")
    if args.file and len(benchmarks) > 1:
        raise ConfigError(
            f"fetch: --from: one file is one benchmark, got {len(benchmarks)}; for several: --mirror FOLDER"
        )
    for benchmark in benchmarks:
        path = fetch(benchmark, args.data, mirror=args.mirror, file=args.file)
        print(f"{benchmark.key}: {benchmark.n} items in {path}, sha256 as registered")
    return 0


if __name__ == "__main__":
    errors.run(main)
