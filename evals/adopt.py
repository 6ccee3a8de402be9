"""Adopt responses that another tool drew: write a results tree as `python -m evals.run` does, graded and scored here.

    python -m evals.adopt --from lm-eval out/my-model/samples_aime24_*.jsonl --out TREE
    python -m evals.adopt --from jsonl a.jsonl b.jsonl --fields response=text,gold=answer --benchmark mine --out TREE

Formats: lm-eval (--log_samples), inspect (.json), jsonl. One FILE is one model on one benchmark; another call adds to
TREE. Each response keeps the tool's verdict (`tool_correct`).

A benchmark keeps its name in the log. If --data holds a registered benchmark of this name with these problems and
golds, that one is used; otherwise TREE/data defines it by the golds of the log.
"""

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from core import digests, errors
from core.code import Code
from core.errors import ConfigError, CorruptInputError, Parser, unknown
from core.files import write_json, write_text
from core.layout import Checkpoint, Results
from core.provenance import environment, sha256_bytes, sha256_file
from evals import data, grade, run, store
from evals.benchmark import Item, benchmark, defined, definition, registered
from evals.sample_logs import FORMATS, ORDER, ROLES, Log
from evals.scores import AVERAGES


@dataclass
class Survey:
    """The responses of one model on one benchmark, and the problems that they answer."""

    log: Log
    model: Checkpoint
    key: str
    items: dict[str, Item]  # by item_id, in the order of the log
    rows: pd.DataFrame  # item_id, sample (from 0), prompt, response, tool_correct: the tool's verdict, None if unknown


def survey(log: Log, model: str, key: str, rows: pd.DataFrame, given: Mapping[str, str]) -> Survey:
    """Make a survey of a log's frame. Raises ConfigError for ambiguous rows, CorruptInputError for contradictions."""
    first = rows.drop_duplicates("id").set_index("id")
    for what in ("problem", "gold", "prompt"):
        differing = rows[rows[what].str.strip() != rows["id"].map(first[what].str.strip())]
        for where, id in differing[["where", "id"]].to_numpy():
            raise CorruptInputError(
                f"{where}: {what} of id {id[:80]!r} is another than at {first['where'][id]}; set --fields id=FIELD"
            )
    copies: Counter[str] = Counter()
    digests_of = first["problem"].map(data.item_id)
    if log.strict and "id" not in given and (twice := digests_of.duplicated()).any():
        raise ConfigError(
            f"{first['where'][twice].iloc[0]}: an earlier problem under another id; set --fields id=problem,"
            f"sample={ORDER} for samples of one problem, or --fields id=FIELD for problems that occur twice"
        )
    first["item_id"] = [data.numbered(digest, copies) for digest in digests_of]
    start, count = int(rows["sample"].min()), int(rows["id"].value_counts().max())
    for id, numbers in rows.groupby("id", sort=False)["sample"]:
        if start > 1 or sorted(numbers) != list(range(start, start + count)):
            shown = ", ".join(map(str, sorted(numbers)[:20]))
            raise CorruptInputError(
                f"{first['where'][id]}: id {str(id)[:80]!r} has samples {shown}; each id needs {count}, numbered from "
                f"0 or 1; set --fields sample=FIELD, or sample={ORDER} to number them as they follow"
            )
    texts = first[["item_id", "problem", "gold"]].to_numpy()
    items = {id: Item(id, problem.strip(), gold.strip()) for id, problem, gold in texts}
    frame = rows.assign(item_id=rows["id"].map(first["item_id"]), sample=rows["sample"] - start)
    frame = frame.rename(columns={"correct": "tool_correct"})
    return Survey(log, Checkpoint.base(_name(model, log, "--model")), _name(key, log, "--benchmark"), items, frame)


def _name(text: str, log: Log, option: str) -> str:
    name = data.folder_name(text.rstrip("/").rpartition("/")[2] or text).lstrip(".-")[:150]
    if not name or name in AVERAGES:
        raise ConfigError(f"{log.path}: {text[:80]!r} cannot be a name; set {option}")
    return name


def adopt(
    surveys: Sequence[Survey], results: Results, *, tool: str, source: Path | None, thoughts: Sequence[str]
) -> Path:
    """Write the tree, grade it and return the path of its scores.

    source: folder with the items of registered benchmarks. thoughts: as in `grade.grade`. Everything is written next
    to the tree and moved there last, so that an error leaves the tree as it was. Raises ConfigError unless responses
    and golds fit into one table.
    """
    run.check_out(results)
    drawn: dict[str, tuple[Counter[str], Path]] = {}  # responses to each problem of a benchmark, and where
    for path in sorted(results.root.glob("samples/*/*/seed*/step*/samples.json")):
        for key, entry in store.read_record(path).items():
            ids = store.read_table(path.with_name(f"{key}.parquet"), ("item_id",), entry)["item_id"].to_pylist()
            drawn[key] = Counter(ids), path
    results.root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=results.root.parent, prefix=f".{results.root.name}.") as folder:
        fresh, records = Results(Path(folder)), dict[Checkpoint, dict[str, Any]]()
        for one in surveys:
            record, digest = records.setdefault(one.model, _record(results, one)), sha256_file(one.log.path)
            if record["benchmarks"].get(one.key, {}).get("log_sha256", digest) != digest:
                raise ConfigError(
                    f"{one.log.path}: {one.model.run.model} has other responses on {one.key}; set --model, --benchmark "
                    "or --out"
                )
            own = Counter(one.rows["item_id"])
            there, where = drawn.setdefault(one.key, (own, one.log.path))
            if own != there:
                raise ConfigError(
                    f"{one.log.path}: {own.total()} responses on {len(own)} problems of {one.key}, {where} has "
                    f"{there.total()} on {len(there)}, not all of them the same; set --benchmark or --out"
                )
            file = _write_items(one, results, fresh, source)
            # by benchmark as well: tools write files with the same name into several folders
            record["adopted"] |= {"from": tool, "files": record["adopted"]["files"] | {one.log.path.name: digest}}
            record["benchmarks"][one.key] = _write_samples(fresh.samples(one.model) / f"{one.key}.parquet", one) | {
                "data": {"file": str(results.data / file.name), "sha256": sha256_file(file)}, "log_sha256": digest,
            }  # fmt: skip
        for at, record in records.items():
            write_json(fresh.samples(at) / "samples.json", record | {"code": Code("adopt").hash})
        # Records last: their presence marks a finished model.
        for path in sorted(digests.files(fresh.root), key=lambda path: path.name == "samples.json"):
            target = results.root / path.relative_to(fresh.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
    return run.grade_and_score(results, list(records), thoughts)


def _record(results: Results, one: Survey) -> dict[str, Any]:
    """Return samples.json of a model, or a new one. ConfigError for responses that were drawn here."""
    path = results.samples(one.model) / "samples.json"
    if not path.is_file():
        return {
            "schema": 1, "model": one.log.model, "weights_sha256": None, "files_sha256": None, "seed": None,
            "benchmarks": {}, "engine": {"backend": "adopted"}, "adopted": {"files": {}}, "environment": environment(),
        }  # fmt: skip
    record = store.read_folder(path)
    if "adopted" not in record:
        raise ConfigError(f"{path}: responses of a model of this name that were drawn here; set --model or --out")
    return record


def _write_items(one: Survey, results: Results, fresh: Results, source: Path | None) -> Path:
    """Return the file of the benchmark's items, written to `fresh` unless it is there: the registered set, or the log's
    golds. Raises ConfigError if the file there has other golds."""
    name = f"{one.key}.jsonl"
    for folder in (fresh.data, results.data):
        if (folder / name).is_file():
            if problem := _other(one, data.load(defined(one.key, folder), folder)):
                raise ConfigError(f"{one.log.path}: {one.key}: {problem} in {results.data}; set --benchmark")
            return folder / name
    if source is not None and registered(one.key):
        entry = benchmark(one.key)
        if not (problem := _other(one, data.load(entry, source))):
            write_text(fresh.data / name, data.found_in(source, entry).read_text(encoding="utf-8"))
            return fresh.data / name
        print(f"{one.key}: {problem} in the registered {entry.title}: a benchmark of the log's golds")
    items = one.items.values()
    write_text(fresh.data / name, data.text(items))
    facts = {"title": one.key, "sha256": data.content_sha256(items), "n": len(items)}
    write_json(definition(fresh.data, one.key), facts)
    return fresh.data / name


def _other(one: Survey, items: Sequence[Item]) -> str:
    """Describe the first item of the log that is missing here or has another gold; empty if there is none."""
    golds = {item.item_id: item.answer for item in items}
    for id, item in one.items.items():
        if golds.get(id) != item.answer:
            there = repr(golds[id][:40]) if id in golds else "missing"
            return f"{item.problem[:60]!r}: gold {item.answer[:40]!r}, {there}"
    return ""


def _write_samples(path: Path, one: Survey) -> dict[str, Any]:
    """Write the responses of a log and return their entry for samples.json."""
    hashes = [sha256_bytes(prompt.encode()) for prompt in one.rows["prompt"]]
    rows = one.rows.assign(prompt_sha256=hashes, stop="unknown").to_dict("records")
    digest = store.write_samples(path, rows, tool_correct="bool")
    return {"sha256": digest, "rows": len(rows), "items": len(one.items), "seed": None}


def fields_of(text: str | None) -> dict[str, str]:
    """Parse `response=text,gold=doc.answer`; ConfigError for another form or an unknown role."""
    found: dict[str, str] = {}
    for part in filter(None, (text or "").split(",")):
        role, equals, name = part.partition("=")
        if not equals:
            raise ConfigError(f"command line: --fields: {part!r} is not of the form ROLE=FIELD")
        if role not in ROLES:
            raise unknown("command line", "--fields", role, ROLES)
        found[role] = name
    return found


def main() -> int:
    parser = Parser()
    add = parser.add_argument
    add("--from", dest="tool", required=True, metavar="FORMAT", help=", ".join(FORMATS))
    add("files", nargs="+", type=Path, metavar="FILE", help="sample logs: one model on one benchmark each")
    add("--out", required=True, type=Path, metavar="TREE", help="a new tree, or one to add to")
    add("--model", metavar="NAME", help="default: as the log or its file name has it")
    add("--benchmark", metavar="KEY", help="a registered one, or any name; default: the log's task")
    add("--fields", metavar="ROLE=FIELD,...", help=f"roles: {', '.join(ROLES)}; sample={ORDER}; correct= for none")
    add("--filter", metavar="NAME", help="lm-eval: rows of this filter")
    add("--data", type=Path, metavar="DIR", help="items of registered benchmarks (python -m evals.fetch)")
    grade.add_thoughts(parser)
    args: argparse.Namespace = parser.parse_args()
    if args.tool not in FORMATS:
        raise unknown("command line", "--from", args.tool, FORMATS)
    given = fields_of(args.fields)
    surveys = [
        survey(log, args.model or log.model, args.benchmark or log.benchmark, log.frame(given, args.filter), given)
        for log in map(FORMATS[args.tool], args.files)
    ]
    path = adopt(surveys, Results(args.out), tool=args.tool, source=args.data, thoughts=args.thoughts)
    for one in surveys:
        if one.log.partial:
            print(f"note: {one.log.path}: {one.log.partial}, by its tool's own account: not a score of the whole set")
        verdicts = list(one.rows["tool_correct"])
        named = {"correct": True, "wrong": False, "unknown": None}
        counts = ", ".join(f"{name} {verdicts.count(verdict)}" for name, verdict in named.items())
        print(f"{one.model.run.model} {one.key}: verdicts of {args.tool}: {counts}")
    run.show(path, args.out)
    return 0


if __name__ == "__main__":
    errors.run(main)
