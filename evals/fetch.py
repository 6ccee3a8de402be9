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
from collections.abc import Sequence
from pathlib import Path

from evals import data, registry
from evals.benchmark import Benchmark, Generated, Item, RepositoryFile, Row, Source
from records import cli
from records.errors import BenchError, ConfigError, CorruptInputError, MissingInputError
from records.read import read_jsonl
from records.write import write_text


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
    from evals.download import download

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


if __name__ == "__main__":
    cli.run(main)
