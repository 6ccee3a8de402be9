"""Every response of every evaluated checkpoint as companion files of the page.

    problems/<benchmark>                    {items: [[id, problem, gold]]}
    samples/<checkpoint>/<benchmark>        index: one entry per response without its text, and where the texts begin
    samples/<checkpoint>/<benchmark>.<n>    texts: [[prompt, [response, ...]], ...] of consecutive items

Two methods on one problem need two index files and two text files, whatever the size of the results.

A page opened from disk may not `fetch` a file beside it, but may add a script element. So a companion file is a script
that hands one text to the page: gzip in base64, which the browser itself unpacks. Nothing in it can act as code.

A reference has no samples and grades but a sample of them, `responses/<checkpoint>/sample.json.gz`: the same problems
for every checkpoint, the first responses to each. The page shows it in the same view and says what it is.
"""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals import benchmark as registry
from evals import store
from records import digests
from records.declared import Declared, validated
from records.errors import ConfigError, CorruptInputError
from records.files import read_jsonl
from records.layout import BASE, Checkpoint, Results
from records.provenance import sha256_file
from records.results_tree import Tree
from report.site import assets, links

FOLDER = "report.data"
MATH = ("math.js", "math.css", "math.LICENSE")  # its files outside problems/ and samples/
TEXT_BYTES = 400_000  # of responses in one text file: about 150 kB once packed
SAMPLED = "sample.json.gz"
PROBLEMS, RESPONSES = 20, 4  # of each benchmark, to each of them: what a reference keeps
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


@dataclass(frozen=True)
class Item:
    """A problem with its responses in sample order: (text, stop, tokens, verdict, extracted, rule)."""

    id: str
    prompt: str
    responses: tuple[tuple[str, str, int | None, str, str | None, str], ...]


def evaluated(tree: Tree) -> dict[Checkpoint, dict[str, str]]:
    """The checkpoints whose responses can be looked at, in the matrix's order: those with samples and grades.

    Each has a stamp per benchmark, which its companion files must carry: the page then never mixes old files with new.
    Raises `CorruptInputError` for grades that are not of these very samples.
    """
    checkpoints = {}
    for checkpoint in tree.checkpoints:
        if is_sampled(tree, checkpoint):
            stamp = sha256_file(tree.layout.responses(checkpoint) / SAMPLED)[:12]
            checkpoints[checkpoint] = dict.fromkeys(_sampled(tree, checkpoint)["benchmarks"], stamp)
            continue
        grades = tree.layout.grades(checkpoint) / "grades.json"
        samples = tree.layout.samples(checkpoint) / "samples.json"
        if not grades.exists() or not samples.exists():
            continue
        graded, sampled = store.read_record(grades), store.read_record(samples)
        for benchmark, entry in graded.items():
            if benchmark not in sampled:
                raise CorruptInputError(f"{samples}: benchmarks: {benchmark} is missing, but {grades} has grades of it")
            if entry["samples_sha256"] != sampled[benchmark]["sha256"]:
                raise CorruptInputError(f"{grades}: {benchmark}: these grades are of other samples: grade again")
        checkpoints[checkpoint] = {benchmark: str(entry["sha256"])[:12] for benchmark, entry in graded.items()}
    return checkpoints


def write(tree: Tree, data: Path | None) -> None:
    """Write all companion files to FOLDER, which is replaced as a whole. data: folder of the benchmarks' problems.

    Without `data` a problem is shown as its prompt, and the gold answer as not known. Raises ConfigError when FOLDER
    holds something else.
    """
    folder = tree.root / FOLDER
    # Beside the folder, so that it can be renamed into place: an error on the way leaves the old files.
    fresh = Path(tempfile.mkdtemp(dir=tree.root, prefix=f".{FOLDER}."))
    fresh.chmod(0o755)  # mkdtemp lets its owner alone read; a web server must be able to
    try:
        checkpoints = evaluated(tree)
        for checkpoint, stamps in checkpoints.items():
            for benchmark, stamp in stamps.items():
                name = f"samples/{checkpoint.path.as_posix()}/{benchmark}"
                _write_responses(fresh, name, stamp, read(tree, checkpoint, benchmark))
        for benchmark in sorted({key for stamps in checkpoints.values() for key in stamps}):
            known = _explained(benchmark, _problems(benchmark, data) or _known(tree, checkpoints, benchmark))
            _put(fresh, f"problems/{benchmark}", {"items": known})
        # KaTeX, which the page loads when the first response is shown.
        katex = [assets.vendored("katex/katex.min.js"), assets.vendored("katex/auto-render.min.js")]
        (fresh / "math.js").write_text("\n".join(katex) + "\n", encoding="utf-8")
        (fresh / "math.css").write_text(assets.math_css(), encoding="utf-8")
        shutil.copyfile(assets.VENDOR / "katex" / "LICENSE", fresh / "math.LICENSE")
        _refuse_others_files(folder)
        if folder.exists():
            shutil.rmtree(folder)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


SNAKEMAKE_MARK = ".snakemake_timestamp"  # which it puts into a folder that is an output


def _refuse_others_files(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ConfigError(f"{folder}: is no folder of companion files; move it away")
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        # Names decide, not what is in the files: a damaged one of ours is to be replaced.
        ours = name.as_posix() in (*MATH, SNAKEMAKE_MARK) or (
            name.parts[0] in ("problems", "samples") and name.suffix == ".js"
        )
        if path.is_symlink() or not (ours or path.is_dir()):
            raise ConfigError(f"{path}: is no companion file of the page; move it away")


def shard(name: str, value: Any) -> bytes:
    """The script for `value`; `name` is what the page asked for, so that answers cannot be mixed up."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # mtime 0: equal values give equal bytes. "replace": half a surrogate pair has no UTF-8.
    packed = base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), compresslevel=6, mtime=0)).decode("ascii")
    return f"bench.arrived({json.dumps(name)},{json.dumps(packed)});\n".encode()


def _put(folder: Path, name: str, value: Any) -> None:
    path = folder / f"{name}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(shard(name, value))


def read(tree: Tree, checkpoint: Checkpoint, benchmark: str) -> Iterator[Item]:
    """Samples and grades of one benchmark side by side; rows that do not belong together are an error."""
    if is_sampled(tree, checkpoint):
        for kept in _sampled(tree, checkpoint)["benchmarks"][benchmark]:
            yield Item(kept["id"], kept["prompt"], tuple(tuple(response) for response in kept["responses"]))
        return
    sampled = _rows(tree.layout.samples(checkpoint), "samples.json", benchmark, SAMPLES)
    path = tree.layout.grades(checkpoint) / f"{benchmark}.parquet"
    graded = {(row["item_id"], row["sample"]): row for row in _rows(path.parent, "grades.json", benchmark, GRADES)}
    if len(graded) != len(sampled):
        raise CorruptInputError(f"{path}: {len(graded)} grades for {len(sampled)} responses")
    items: dict[str, list[dict[str, Any]]] = {}
    for row in sampled:
        items.setdefault(row["item_id"], []).append(row)
    for key, rows in items.items():
        responses = []
        for row in sorted(rows, key=lambda row: row["sample"]):
            grade = graded.get((key, row["sample"]))
            if grade is None:
                raise CorruptInputError(f"{path}: no grade for item {key}, sample {row['sample']}")
            responses.append(
                (row["response"], row["stop"], row["tokens"], grade["verdict"], grade["extracted"], grade["rule"])
            )
        yield Item(key, rows[0]["prompt"], tuple(responses))


# The sample that a reference keeps.


class SampledItem(Declared):
    id: str
    prompt: str
    problem: str | None  # both as the grader read them; None: not known where the sample was taken
    gold: str | None
    responses: list[list[Any]]  # as in `Item`


class Sampled(Declared):
    """sample.json.gz"""

    problems: int  # of each benchmark, at most
    responses: int  # to each problem, at most
    benchmarks: dict[str, list[SampledItem]]


def is_sampled(tree: Tree, checkpoint: Checkpoint) -> bool:
    """Whether a sample of the checkpoint's responses is all there is of them."""
    whole = (tree.layout.samples(checkpoint) / "samples.json").exists()
    return not whole and (tree.layout.responses(checkpoint) / SAMPLED).is_file()


def keep(tree: Tree, folder: Path, data: Path | None) -> int:
    """Write a sample of every evaluated checkpoint into `folder`, a reference; returns its bytes.

    data: folder of the benchmarks' problems, for problem and gold. Problems are taken in the order of their ids, which
    are hashes of their texts: a random choice, and the same one for every checkpoint.
    """
    golds = {}
    layout, size = Results(folder), 0
    for checkpoint, benchmarks in evaluated(tree).items():
        chosen: dict[str, list[Any]] = {}
        for benchmark in benchmarks:
            if benchmark not in golds:
                golds[benchmark] = {id: (problem, gold) for id, problem, gold in _problems(benchmark, data)}
            items = sorted(read(tree, checkpoint, benchmark), key=lambda item: item.id)[:PROBLEMS]
            chosen[benchmark] = [
                {"id": item.id, "prompt": item.prompt, "responses": item.responses[:RESPONSES]}
                | dict(zip(("problem", "gold"), golds[benchmark].get(item.id, (None, None)), strict=True))
                for item in items
            ]
        value = {"problems": PROBLEMS, "responses": RESPONSES, "benchmarks": chosen}
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        path = layout.responses(checkpoint) / SAMPLED
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode("utf-8", "replace"), mtime=0))  # equal texts give equal bytes
        size += path.stat().st_size
    return size


def _sampled(tree: Tree, checkpoint: Checkpoint) -> dict[str, Any]:
    path = tree.layout.responses(checkpoint) / SAMPLED
    name = path.relative_to(tree.root).as_posix()
    tree.check_written(name, name)
    try:
        value = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise CorruptInputError(f"{path}: not a sample of responses ({error})") from error
    validated(Sampled, value, str(path), error=CorruptInputError)
    return dict(value)


def _known(tree: Tree, checkpoints: Mapping[Checkpoint, Mapping[str, str]], benchmark: str) -> list[list[str]]:
    """[id, problem, gold] of the problems that samples hold."""
    found: dict[str, list[str]] = {}
    for checkpoint, benchmarks in checkpoints.items():
        if benchmark in benchmarks and is_sampled(tree, checkpoint):
            for item in _sampled(tree, checkpoint)["benchmarks"][benchmark]:
                if item["gold"] is not None:
                    found[item["id"]] = [item["id"], item["problem"], item["gold"]]
            break  # the same problems everywhere
    return list(found.values())


def _explained(benchmark: str, items: list[list[str]]) -> list[list[str]]:
    """With what a person must know beside the problem; the model learned it, and its prompt does not say it."""
    meant = registry.benchmark(benchmark).meant if benchmark in set(registry.keys()) else ""
    return [[name, f"{problem} ({meant})" if meant else problem, gold] for name, problem, gold in items]


def _write_responses(folder: Path, name: str, stamp: str, items: Iterator[Item]) -> None:
    """The index of one benchmark and its text files."""
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
            _put(folder, f"{name}.{len(index['begins']) - 1}", texts)
            texts, size = [], 0
    if texts:
        _put(folder, f"{name}.{len(index['begins']) - 1}", texts)
    index |= columns | {key: "".join(columns[key]) for key in ("verdicts", "stops")} | {"rule_names": list(rules)}
    _put(folder, name, index)


def _problems(benchmark: str, data: Path | None) -> list[list[str]]:
    """[id, problem, gold] as the grader read them; empty without a data folder."""
    if data is None:
        return []
    from evals.data import items

    path = data / f"{benchmark}.jsonl"
    if path.is_file():  # else the reader says what is missing
        digests.check(path)
    return [
        [item.item_id, item.problem, item.answer]
        for item in items(read_jsonl(path, f"the problems of {benchmark}"), str(path))
    ]


def _rows(folder: Path, record: str, benchmark: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of one benchmark in a folder of samples or grades. What is not UTF-8 is shown as escapes, not refused."""
    import pyarrow as pa

    entry = store.entry_of(store.read_record(folder / record), folder / record, benchmark)
    table = store.read_table(folder / f"{benchmark}.parquet", columns, entry)
    values_of = {}
    for name in columns:
        is_text = pa.types.is_string(table[name].type) or pa.types.is_large_string(table[name].type)
        values_of[name] = store.texts(table[name], "backslashreplace") if is_text else table[name].to_pylist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*values_of.values(), strict=True)]


# The browser of responses: which checkpoints and benchmarks can be looked at.


def view(tree: Tree) -> dict[str, Any]:
    """For the template; `data` is what the scripts of the page get."""
    checkpoints = evaluated(tree)
    groups: dict[str, list[tuple[str, str]]] = {}
    entries: dict[str, dict[str, Any]] = {}
    start = None
    for checkpoint, stamps in checkpoints.items():
        path, title = checkpoint.path.as_posix(), links.title(checkpoint, tree)
        groups.setdefault(links.model_title(checkpoint.run.model, tree), []).append((path, title))
        counterpart = links.counterpart(checkpoint, tree)
        beside = counterpart.path.as_posix() if counterpart in checkpoints else None
        entries[path] = {"title": title, "beside": beside, "benchmarks": stamps}
        # Shown first: the last trained checkpoint that has one to be compared with, or else the last of all.
        if checkpoint.run.method != BASE and beside:
            start = path
    scored = {key for stamps in checkpoints.values() for key in stamps}
    benchmarks = [str(entry["key"]) for entry in tree.benchmarks if str(entry["key"]) in scored]
    if start is None and entries:
        start = list(entries)[-1]
    return {
        "checkpoints": list(groups.items()),
        "shown_benchmarks": benchmarks,
        "sample": (PROBLEMS, RESPONSES) if any(is_sampled(tree, one) for one in checkpoints) else None,
        "verdicts": [(letter, verdict.replace("_", " ")) for verdict, letter in LETTERS.items()],
        "data": {"folder": FOLDER, "samples": {"checkpoints": entries, "benchmarks": benchmarks, "start": start}},
    }
