"""Get the items of benchmarks: download, copy from a mirror, or generate; verify; write `<data>/<key>.jsonl`.

    python -m evals.fetch --benchmarks all --data data                       download
    python -m evals.fetch --benchmarks math500 --data data --mirror FOLDER   offline, from a folder of files
    python -m evals.fetch --benchmarks math500 --data data --from FILE       offline, one set from one file
    python -m evals.fetch --benchmarks all --explain                         say what would be downloaded, then stop
    python -m evals.fetch --describe FILE                                    n and sha256 for a new registry entry

Nothing is trusted: whatever the way, the content's sha256 and the count must be the registry's, or nothing is
written.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from evals import benchmark as registry
from evals import data
from evals.benchmark import Benchmark, Generated, HubFile, Item, RepositoryFile, Row, Source
from records import errors
from records.errors import BenchError, ConfigError, CorruptInputError, MissingInputError
from records.files import read_jsonl, write_text


def fetch(
    benchmark: Benchmark,
    folder: Path | str,
    *,
    mirror: Path | str | None = None,
    file: Path | str | None = None,
) -> Path:
    """Write the verified items of a benchmark to `folder`; a file that is there and right is left alone.

    mirror: a folder to take the file from instead of the network; file: the very file. Raises MissingInputError when
    the items cannot be had, CorruptInputError when they are not the registry's; either way nothing is written.
    """
    target = Path(folder) / f"{benchmark.key}.jsonl"
    if target.is_file() and _is_right(benchmark, target):
        return target
    found, where = _get(benchmark, mirror, file)
    data.verify(benchmark, found, where)
    write_text(target, "".join(json.dumps(data.row(item), ensure_ascii=False) + "\n" for item in found))
    return target


def _is_right(benchmark: Benchmark, path: Path) -> bool:
    try:
        found = data.items(read_jsonl(path), str(path))
        data.verify(benchmark, found, str(path))
    except CorruptInputError:
        return False
    return all("item_id" in row for row in read_jsonl(path))


def _get(benchmark: Benchmark, mirror: Path | str | None, file: Path | str | None) -> tuple[list[Item], str]:
    """Items and where they are from."""
    if isinstance(benchmark.source, Generated):
        return data.items(benchmark.source.make(), str(benchmark.source)), str(benchmark.source)
    if file is not None:
        return _read(benchmark, Path(file)), str(file)
    if mirror is not None:
        path = _in_mirror(benchmark, Path(mirror))
        return _read(benchmark, path), str(path)
    return _download(benchmark)


def _read(benchmark: Benchmark, path: Path, source: Source | None = None) -> list[Item]:
    """Rows as upstream stores them, or already in the project's format ({problem, answer, ...})."""
    source = source or benchmark.source
    assert not isinstance(source, Generated)
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
    """`<key>.jsonl`, another known name, or the upstream repository's own tree, inside the mirror folder."""
    assert not isinstance(benchmark.source, Generated)
    tree = [folder / f"{name}.jsonl" for name in (benchmark.key, *benchmark.files)]
    if isinstance(benchmark.source, RepositoryFile):
        tree += [folder / benchmark.source.repository / benchmark.source.path]
    found = next((path for path in tree if path.is_file()), None)
    if found is None:
        raise MissingInputError(f"{folder}: no file for {benchmark.key}; looked for: {', '.join(map(str, tree))}")
    return found


def _download(benchmark: Benchmark) -> tuple[list[Item], str]:
    """From the source, else from the first alternative that answers and holds the same content."""
    pass  # DROPIMPORT

    failures: list[BenchError] = []
    for source in (benchmark.source, *benchmark.alternatives):
        assert not isinstance(source, Generated)
        try:
            with download(source, benchmark.revision) as path:
                found = _read(benchmark, path, source)
            data.verify(benchmark, found, str(source))
        except BenchError as error:
            failures.append(error)
        else:
            return found, str(source)
    kind = CorruptInputError if isinstance(failures[0], CorruptInputError) else MissingInputError
    raise kind(
        f"{benchmark.key}: not fetched: {'; '.join(map(str, failures))}. Get the file on another machine and run:"
        f" python -m evals.fetch --benchmarks {benchmark.key} --data DIR --from FILE"
    )


def explain(benchmarks: Sequence[Benchmark], folder: Path | str) -> str:
    """What a download would bring: one line per set, and where it would lie."""
    lines = [f"{'set':<14} {'items':>5} {'responses':>9}  licence; source"]
    for b in benchmarks:
        revision = "" if isinstance(b.source, Generated) else f" @ {b.revision[:8]}"
        lines.append(f"{b.key:<14} {b.n:>5} {b.responses:>9}  {b.licence}; {b.source}{revision}")
    wanted = [b for b in benchmarks if not b.synthetic]
    lines.append(f"To {folder}: {sum(b.n for b in wanted)} items downloaded, about {_megabytes(wanted):.0f} MB.")
    return "\n".join(lines)


def _megabytes(benchmarks: Sequence[Benchmark]) -> float:
    """A rough size: upstream files carry solutions, about 2 kB per item (measured: 6.2 MB for all 4411)."""
    return sum(b.n for b in benchmarks) * 0.0014


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evals.fetch", description=__doc__.split("\n")[0])
    parser.add_argument("--data", metavar="DIR", help="where <key>.jsonl is written")
    parser.add_argument("--benchmarks", nargs="+", metavar="KEY", help="keys, or: all (the paper's seven)")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--mirror", metavar="DIR", help="take the files from this folder, use no network")
    source.add_argument("--from", dest="file", metavar="FILE", help="take one benchmark from this JSONL file")
    source.add_argument("--describe", metavar="FILE", help="print n and sha256 of {problem, answer} rows, and stop")
    source.add_argument("--explain", action="store_true", help="say what would be downloaded, and stop")
    given = parser.parse_args()
    if given.describe:
        found = data.items(read_jsonl(given.describe, "items"), given.describe)
        print(f"n={len(found)}\nsha256={data.content_sha256(found)}")
        return 0
    benchmarks = registry.select(given.benchmarks or ())
    if given.explain:
        print(explain(benchmarks, given.data or "--data DIR"))
        return 0
    if given.data is None:
        raise ConfigError("fetch: --data: say where the files are to lie")
    if given.file and len(benchmarks) > 1:
        raise ConfigError(
            f"fetch: --from: one file is one benchmark, got {len(benchmarks)}; for several: --mirror FOLDER"
        )
    for benchmark in benchmarks:
        path = fetch(benchmark, given.data, mirror=given.mirror, file=given.file)
        print(f"{benchmark.key}: {benchmark.n} items in {path}, sha256 as registered")
    return 0


# Bring one upstream file onto this machine, with a progress bar; what is in it, `evals.fetch` decides.
#
# The hub's address is huggingface_hub's own affair (`HF_ENDPOINT`, `HF_HUB_OFFLINE`). For files of public git
# repositories `REPOSITORY_FILE` is the one place that names a host; the environment variable `TEPO_REPOSITORY_FILE`
# replaces it.


REPOSITORY_FILE = "https://raw.githubusercontent.com/{repository}/{revision}/{path}"
TIMEOUT_SECONDS = 60  # without a byte
_CHUNK = 1 << 16


@contextmanager
def download(source: RepositoryFile | HubFile, revision: str) -> Iterator[Path]:
    """A temporary copy of the file. Raises MissingInputError, naming address and reason, when it cannot be had."""
    with tempfile.TemporaryDirectory(prefix="tepo-fetch-") as folder:
        if isinstance(source, HubFile):
            yield _from_hub(source, Path(folder))
        else:
            yield _from_repository(source, revision, Path(folder) / "file.jsonl")


def repository_url(source: RepositoryFile, revision: str) -> str:
    template = os.environ.get("TEPO_REPOSITORY_FILE", REPOSITORY_FILE)
    parts = {"repository": source.repository, "revision": revision, "path": source.path}
    try:
        url = template.format(**{name: urllib.parse.quote(part) for name, part in parts.items()})
    except (KeyError, IndexError) as error:
        raise ConfigError(
            f"TEPO_REPOSITORY_FILE: {template!r} may hold {{repository}}, {{revision}} and {{path}} only"
        ) from error
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(f"TEPO_REPOSITORY_FILE: {url!r} is no http(s) address")
    return url


def _from_repository(source: RepositoryFile, revision: str, target: Path) -> Path:
    url = repository_url(source, revision)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer, open(target, "wb") as stream:
            length = answer.headers.get("Content-Length")
            got = _copy(answer, stream, source.path, int(length) if length else None)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise MissingInputError(f"{url}: cannot be downloaded ({error})") from error
    if length and got != int(length):
        raise MissingInputError(f"{url}: the connection broke after {got} of {length} bytes; run the command again")
    return target


def _copy(answer: BinaryIO, stream: BinaryIO, name: str, total: int | None) -> int:
    from tqdm import tqdm

    got = 0
    with tqdm(total=total, unit="B", unit_scale=True, desc=name, disable=None) as bar:
        while chunk := answer.read(_CHUNK):
            got += stream.write(chunk)
            bar.update(len(chunk))
    return got


def _from_hub(source: HubFile, folder: Path) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(
            huggingface_hub.hf_hub_download(
                source.dataset, source.path, repo_type="dataset", revision=source.revision, local_dir=folder
            )
        )
    except (HfHubHTTPError, EntryNotFoundError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise MissingInputError(f"{source}: cannot be downloaded ({reason})") from error


if __name__ == "__main__":
    errors.run(main)
