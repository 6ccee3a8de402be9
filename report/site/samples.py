"""Every response of every evaluated checkpoint as companion files of the page.

    problems/<benchmark>                    {items: [[id, problem, gold]]}
    samples/<checkpoint>/<benchmark>        index: one entry per response without its text, and where the texts begin
    samples/<checkpoint>/<benchmark>.<n>    texts: [[prompt, [response, ...]], ...] of consecutive items

Two methods on one problem need two index files and two text files, whatever the size of the results.
"""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from records.errors import CorruptInputError, MissingInputError
from records.files import read_json, read_jsonl
from records.layout import BASE, Checkpoint
from records.results_tree import Tree
from report.site import assets, links

# Companion files: values that the page loads when somebody asks for them, from disk as well as from a server.
#
# A page opened from disk may not `fetch` a file beside it, but may add a script element. So a shard is a script that
# hands one text to the page: gzip in base64, which the browser itself unpacks. Nothing in it can act as code.


FOLDER = "report.data"
LEVEL = 6


def shard(name: str, value: Any) -> bytes:
    """The script for `value`; `name` is what the page asked for, so that answers cannot be mixed up."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    packed = base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), LEVEL, mtime=0)).decode("ascii")
    return f"bench.arrived({json.dumps(name)},{json.dumps(packed)});\n".encode()


def unpack(script: bytes) -> tuple[str, Any]:
    """Name and value of a shard, as the page reads them."""
    name, packed = json.loads("[" + script.decode("ascii").removeprefix("bench.arrived(").removesuffix(");\n") + "]")
    return name, json.loads(gzip.decompress(base64.b64decode(packed)))


def writer(folder: Path) -> Callable[[str, Any], None]:
    """A function that writes the shard of a name and value below `folder`."""

    def write(name: str, value: Any) -> None:
        path = folder / f"{name}.js"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(shard(name, value))

    return write


TEXT_BYTES = 400_000  # of responses in one text file: about 150 kB once packed
LETTERS = {  # one letter per response in an index
    "correct": "c",
    "wrong": "w",
    "no_answer": "n",
    "truncated": "t",
    "unparsed_gold": "u",
    "timeout": "o",
    "error": "e",
}
STOPS = {"stop": "s", "length": "l", "unknown": "u"}
SAMPLES = ("item_id", "sample", "prompt", "response", "stop", "tokens")
GRADES = ("item_id", "sample", "verdict", "extracted", "rule")

Write = Callable[[str, Any], None]


@dataclass(frozen=True)
class Evaluated:
    """A checkpoint whose responses can be looked at. stamps: benchmark -> what its files must carry."""

    checkpoint: Checkpoint
    stamps: Mapping[str, str]


@dataclass(frozen=True)
class Item:
    """A problem with its responses in sample order: (text, stop, tokens, verdict, extracted, rule)."""

    id: str
    prompt: str
    responses: tuple[tuple[str, str, int | None, str, str | None, str], ...]


def evaluated(tree: Tree) -> list[Evaluated]:
    """Checkpoints of the matrix with samples and the grades of these very samples, in the matrix's order."""
    found = []
    for checkpoint in tree.checkpoints:
        grades, samples = (
            folder / name
            for folder, name in (
                (tree.layout.grades(checkpoint), "grades.json"),
                (tree.layout.samples(checkpoint), "samples.json"),
            )
        )
        if grades.is_file() and samples.is_file():
            found.append(Evaluated(checkpoint, _stamps(grades, samples)))
    return found


def write(tree: Tree, folder: Path, data: Path | None) -> None:
    """Write all companion files to `folder`, which is replaced as a whole. data: folder of the benchmarks' problems.

    Without `data` a problem is shown as its prompt, and the gold answer as not known.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    fresh.chmod(0o755)
    try:
        put = writer(fresh)
        for entry in evaluated(tree):
            for benchmark, stamp in entry.stamps.items():
                name = f"samples/{entry.checkpoint.path.as_posix()}/{benchmark}"
                _write_responses(put, name, stamp, read(tree, entry.checkpoint, benchmark))
        for benchmark in sorted({key for entry in evaluated(tree) for key in entry.stamps}):
            put(f"problems/{benchmark}", {"items": _problems(benchmark, data)})
        _write_math(fresh)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def read(tree: Tree, checkpoint: Checkpoint, benchmark: str) -> Iterator[Item]:
    """Samples and grades of one benchmark side by side; rows that do not belong together are an error."""
    texts = _rows(tree.layout.samples(checkpoint) / f"{benchmark}.parquet", SAMPLES)
    path = tree.layout.grades(checkpoint) / f"{benchmark}.parquet"
    graded = {(row["item_id"], row["sample"]): row for row in _rows(path, GRADES)}
    if len(graded) != len(texts):
        raise CorruptInputError(f"{path}: {len(graded)} grades for {len(texts)} responses")
    items: dict[str, list[dict[str, Any]]] = {}
    for row in texts:
        items.setdefault(row["item_id"], []).append(row)
    for key, rows in items.items():
        found = []
        for row in sorted(rows, key=lambda row: row["sample"]):
            grade = graded.get((key, row["sample"]))
            if grade is None:
                raise CorruptInputError(f"{path}: no grade for item {key}, sample {row['sample']}")
            found.append(
                (row["response"], row["stop"], row["tokens"], grade["verdict"], grade["extracted"], grade["rule"])
            )
        yield Item(key, rows[0]["prompt"], tuple(found))


def _write_responses(put: Write, name: str, stamp: str, items: Iterator[Item]) -> None:
    index: dict[str, Any] = {"stamp": stamp, "items": [], "per": [], "begins": []}
    columns: dict[str, list[Any]] = {"verdicts": [], "stops": [], "tokens": [], "extracted": [], "rules": []}
    rules: dict[str, int] = {}
    texts: list[list[Any]] = []
    size = 0
    for item in items:
        if not texts:
            index["begins"].append(len(index["items"]))
        index["items"].append(item.id)
        index["per"].append(len(item.responses))
        for _, stop, tokens, verdict, extracted, rule in item.responses:
            columns["verdicts"].append(LETTERS[verdict])
            columns["stops"].append(STOPS[stop])
            columns["tokens"].append(tokens)
            columns["extracted"].append(extracted)
            columns["rules"].append(rules.setdefault(rule, len(rules)))
        texts.append([item.prompt, [response[0] for response in item.responses]])
        size += sum(len(response[0]) for response in item.responses)
        if size >= TEXT_BYTES:
            put(f"{name}.{len(index['begins']) - 1}", texts)
            texts, size = [], 0
    if texts:
        put(f"{name}.{len(index['begins']) - 1}", texts)
    index |= columns | {key: "".join(columns[key]) for key in ("verdicts", "stops")} | {"rule_names": list(rules)}
    put(name, index)


def _write_math(folder: Path) -> None:
    """KaTeX, loaded when the first response is shown."""
    script = assets.vendored("katex/katex.min.js") + "\n" + assets.vendored("katex/auto-render.min.js") + "\n"
    (folder / "math.js").write_text(script, encoding="utf-8")
    (folder / "math.css").write_text(assets.math_css(), encoding="utf-8")
    shutil.copyfile(assets.VENDOR / "katex" / "LICENSE", folder / "math.LICENSE")


def _problems(benchmark: str, data: Path | None) -> list[list[str]]:
    """[id, problem, gold] as the grader read them; empty without a data folder."""
    if data is None:
        return []
    from evals.data import items

    path = data / f"{benchmark}.jsonl"
    return [
        [item.item_id, item.problem, item.answer]
        for item in items(read_jsonl(path, f"the problems of {benchmark}"), str(path))
    ]


def _stamps(grades: Path, samples: Path) -> dict[str, str]:
    graded, drawn = (
        read_json(path, what)["benchmarks"]
        for path, what in ((grades, "the record of grades"), (samples, "the record of samples"))
    )
    for benchmark, entry in graded.items():
        if benchmark not in drawn:
            raise CorruptInputError(f"{samples}: benchmarks: {benchmark} is missing, but {grades} has grades of it")
        if entry["samples_sha256"] != drawn[benchmark]["sha256"]:
            raise CorruptInputError(f"{grades}: {benchmark}: these grades are of other samples: grade again")
    return {benchmark: str(entry["sha256"])[:12] for benchmark, entry in graded.items()}


def _rows(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a parquet file. Text is read as bytes: what is not UTF-8 is shown as escapes, not refused."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise MissingInputError(f"{path}: the responses are missing")
    try:
        table = pq.read_table(path, columns=list(columns))
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptInputError(f"{path}: not a parquet file with columns {', '.join(columns)} ({error})") from error
    found = {}
    for name in columns:
        column = table.column(name)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            raw = column.cast(pa.large_binary()).to_pylist()
            found[name] = [None if value is None else value.decode("utf-8", "backslashreplace") for value in raw]
        else:
            found[name] = column.to_pylist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*found.values(), strict=True)]


# The sample browser's part of the page: which checkpoints and benchmarks can be looked at.


VERDICT_WORDS = {letter: verdict.replace("_", " ") for verdict, letter in LETTERS.items()}


def view(tree: Tree) -> dict[str, Any]:
    """For the template; `data` is what the scripts of the page get."""
    found = evaluated(tree)
    groups: dict[str, list[tuple[str, str]]] = {}
    for entry in found:
        run = entry.checkpoint.run
        groups.setdefault(links.model_title(run.model, tree), []).append(
            (entry.checkpoint.path.as_posix(), links.title(entry.checkpoint, tree))
        )
    there = {entry.checkpoint for entry in found}
    beside = {c: other if (other := links.counterpart(c, tree)) in there else None for c in there}
    benchmarks = [str(b["key"]) for b in tree.benchmarks if any(str(b["key"]) in entry.stamps for entry in found)]
    return {
        "checkpoints": list(groups.items()),
        "shown_benchmarks": benchmarks,
        "verdicts": list(VERDICT_WORDS.items()),
        "data": {
            "folder": FOLDER,
            "samples": {
                "checkpoints": {
                    entry.checkpoint.path.as_posix(): {
                        "title": links.title(entry.checkpoint, tree),
                        "beside": other.path.as_posix() if (other := beside[entry.checkpoint]) else None,
                        "benchmarks": dict(entry.stamps),
                    }
                    for entry in found
                },
                "benchmarks": benchmarks,
                "start": _start([entry.checkpoint for entry in found], beside),
            },
        },
    }


def _start(found: Sequence[Checkpoint], beside: Mapping[Checkpoint, Checkpoint | None]) -> str | None:
    """What is shown first: the last trained checkpoint that has one to be compared with, or else the last."""
    trained = [c for c in found if c.run.method != BASE and beside[c] is not None]
    return (trained or list(found))[-1].path.as_posix() if found else None
