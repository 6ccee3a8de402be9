"""Adopt responses that another tool drew: write a results tree as `python -m evals.run` does, graded and scored here.

    python -m evals.adopt --from lm-eval out/my-model/samples_aime24_*.jsonl --out TREE
    python -m evals.adopt --from jsonl a.jsonl b.jsonl --fields response=text,gold=answer --benchmark mine --out TREE

Formats: lm-eval (--log_samples), inspect (.json), jsonl. One FILE is one model on one benchmark; another call adds to
TREE. Each response keeps the tool's verdict (`tool_correct`).

A benchmark keeps its name in the log. With the problems and golds of a registered one in --data, it is that one;
otherwise TREE/data defines it by the golds of the log.
"""

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
from evals import data, run, store
from evals.benchmark import Item, benchmark, defined, definition, registered
from evals.sample_logs import FORMATS, ORDER, ROLES, Log, Record, records
from evals.scores import AVERAGES


@dataclass
class Survey:
    """The responses of one model on one benchmark, and the problems that they answer."""

    log: Log
    model: Checkpoint
    key: str
    items: dict[str, Item]  # by item_id, in the order of the log
    rows: pd.DataFrame  # item_id, sample (from 0), prompt, response, tool_correct

    @property
    def verdicts(self) -> dict[str, int]:
        """Number of responses by the tool's verdict."""
        counts = self.rows["tool_correct"].map({True: "correct", False: "wrong"}).fillna("unknown").value_counts()
        return {name: int(counts.get(name, 0)) for name in ("correct", "wrong", "unknown")}


def survey(log: Log, model: str, key: str, rows: Iterable[Record], given: Mapping[str, str]) -> Survey:
    """Make a survey of a log's rows. Raises ConfigError for ambiguous rows, CorruptInputError for contradictions."""
    first: dict[str, Record] = {}  # by the log's id
    ids: dict[str, str] = {}  # item_id by the log's id
    copies: Counter[str] = Counter()
    texts: dict[str, Record] = {}
    found = []
    for row in rows:
        known = first.setdefault(row.id, row)
        if row is known:
            digest = data.item_id(row.problem)
            if log.strict and "id" not in given and digest in texts:
                raise ConfigError(
                    f"{row.where}: the problem of {texts[digest].where} under another id; set --fields id=problem,"
                    f"sample={ORDER} for samples of one problem, or --fields id=FIELD for problems that occur twice"
                )
            texts[digest], ids[row.id] = row, data.numbered(digest, copies)
        for what in ("problem", "gold", "prompt"):
            if getattr(row, what).strip() != getattr(known, what).strip():
                raise CorruptInputError(
                    f"{row.where}: {what} of id {row.id[:80]!r} is another than at {known.where}; set --fields id=FIELD"
                )
        found.append((row.id, ids[row.id], row.sample, row.prompt, row.response, row.correct))
    frame = pd.DataFrame(found, columns=["id", "item_id", "sample", "prompt", "response", "tool_correct"], dtype=object)
    start, count = int(frame["sample"].min()), int(frame["id"].value_counts().max())
    for id, numbers in frame.groupby("id", sort=False)["sample"]:
        where = f"{first[str(id)].where}: id {str(id)[:80]!r}"
        if numbers.duplicated().any():
            raise ConfigError(
                f"{where} occurs {len(numbers)} times, sample {numbers.mode()[0]} more than once; set --fields "
                f"sample=FIELD, or sample={ORDER} to number them as they follow"
            )
        if start > 1 or sorted(numbers) != list(range(start, start + count)):
            raise CorruptInputError(
                f"{where}: {len(numbers)} samples, numbered {min(numbers)} to {max(numbers)}; each id needs {count}, "
                "numbered from 0 or 1"
            )
    frame["sample"] -= start
    items = {ids[id]: Item(ids[id], row.problem.strip(), row.gold.strip()) for id, row in first.items()}
    return Survey(log, Checkpoint.base(_name(model, log, "--model")), _name(key, log, "--benchmark"), items, frame)


def _name(text: str, log: Log, option: str) -> str:
    name = run.folder_name(text.rstrip("/").rpartition("/")[2] or text).lstrip(".-")[:150]
    if not name or name in AVERAGES:
        raise ConfigError(f"{log.path}: {text[:80]!r} cannot be a name; set {option}")
    return name


def adopt(surveys: Sequence[Survey], results: Results, *, tool: str, source: Path | None) -> Path:
    """Write the tree, grade it and return the path of its scores.

    source: folder with the items of registered benchmarks. Everything is written beside the tree and moved there last,
    so that an error leaves the tree as it was.
    """
    run.check_out(results)
    keys = sorted({one.key for one in surveys})
    before = {at: _record(results, at, surveys) for at in dict.fromkeys(one.model for one in surveys)}
    _check_together(surveys, results)
    results.root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=results.root.parent, prefix=f".{results.root.name}.") as folder:
        fresh = Results(Path(folder))
        for key in keys:
            _write_items(key, next(one for one in surveys if one.key == key), results, fresh, tool, source)
        for at, record in before.items():
            for one in (one for one in surveys if one.model == at):
                entry = _write_samples(fresh.samples(at) / f"{one.key}.parquet", one)
                name = f"{one.key}.jsonl"
                file = next(path for tree in (fresh, results) if (path := tree.data / name).is_file())
                entry["data"] = {"file": str(results.data / name), "sha256": sha256_file(file)}
                record["benchmarks"][one.key] = entry
                record["adopted"]["from"] = tool
                # by benchmark as well: tools write files with the same name into several folders
                entry["log_sha256"] = record["adopted"]["files"][one.log.path.name] = sha256_file(one.log.path)
            write_json(fresh.samples(at) / "samples.json", record | {"code": Code("adopt").hash})
        # Records last: their presence marks a finished model.
        for path in sorted(digests.files(fresh.root), key=lambda path: path.name == "samples.json"):
            target = results.root / path.relative_to(fresh.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
    return run.grade_and_score(results, list(before))


def _record(results: Results, at: Checkpoint, surveys: Sequence[Survey]) -> dict[str, Any]:
    """Return samples.json of one model, or a new one. ConfigError for responses that are already there."""
    path = results.samples(at) / "samples.json"
    if not path.is_file():
        name = next(one.log.model for one in surveys if one.model == at)
        return {
            "schema": 1, "model": name, "weights_sha256": None, "files_sha256": None, "seed": None, "benchmarks": {},
            "engine": {"backend": "adopted"}, "adopted": {"files": {}}, "environment": environment(),
        }  # fmt: skip
    record = store.read_folder(path)
    if "adopted" not in record:
        raise ConfigError(f"{path}: responses of a model of this name that were drawn here; set --model or --out")
    for one in surveys:
        entry = record["benchmarks"].get(one.key)
        if one.model != at or entry is None:
            continue
        if entry.get("log_sha256") != sha256_file(one.log.path):
            raise ConfigError(f"{path}: has other responses on {one.key}; set --model, --benchmark or --out")
    return record


def _check_together(surveys: Sequence[Survey], results: Results) -> None:
    """Raise ConfigError unless the logs of one benchmark, and the tree's items for it, fit into one table."""
    rows: dict[str, tuple[int, str]] = {}
    for path in sorted(results.root.glob("samples/*/*/seed*/step*/samples.json")):
        for key, entry in store.read_record(path).items():
            rows[key] = entry["rows"], str(path)
    seen: dict[tuple[Checkpoint, str], Survey] = {}
    items: dict[str, Survey] = {}
    for one in surveys:
        if other := seen.get((one.model, one.key)):
            raise ConfigError(
                f"{one.log.path}: {one.model.run.model} on {one.key}, as {other.log.path}; set --model or --benchmark, "
                "or adopt them in two calls"
            )
        seen[one.model, one.key] = one
        count, where = rows.setdefault(one.key, (len(one.rows), str(one.log.path)))
        if count != len(one.rows):
            raise ConfigError(
                f"{one.log.path}: {len(one.rows)} responses on {one.key}, {where} has {count}; set --benchmark or --out"
            )
        first = items.setdefault(one.key, one)
        if one.items != first.items and (other_id := _different(one.items, first.items)):
            raise ConfigError(
                f"{one.log.path}: {one.key}: problems or golds are others than in {first.log.path} ({other_id}); set "
                "--benchmark"
            )


def _different(ours: Mapping[str, Item], theirs: Mapping[str, Item]) -> str:
    """Return the first item that is not on both sides with the same gold; empty if there is none."""
    for id in [*ours, *theirs]:
        if id not in ours or id not in theirs:
            return f"{(ours.get(id) or theirs[id]).problem[:60]!r} is in one only"
        if ours[id].answer != theirs[id].answer:
            return f"{ours[id].problem[:60]!r}: {ours[id].answer[:40]!r} and {theirs[id].answer[:40]!r}"
    return ""


def _write_items(key: str, one: Survey, results: Results, fresh: Results, tool: str, source: Path | None) -> None:
    """Write the benchmark's items to `fresh`, unless the tree has them: the registered set, or the log's golds."""
    path = fresh.data / f"{key}.jsonl"
    if (results.data / path.name).is_file():
        there = {item.item_id: item for item in data.load(defined(key, results.data), results.data)}
        if problem := _unknown(one.items, there):
            raise ConfigError(f"{one.log.path}: {key}: {problem}, which {results.data} has otherwise; set --benchmark")
        return
    if source is not None and registered(key):
        entry = benchmark(key)
        there = {item.item_id: item for item in data.load(entry, source)}
        if not (problem := _unknown(one.items, there)):
            found = data.found_in(source, entry)
            write_text(path, found.read_text(encoding="utf-8"))
            return
        print(f"{key}: {problem}, which the registered {entry.title} has otherwise: a benchmark of the log's golds")
    items = one.items.values()
    write_text(path, data.text(items))
    facts = {"title": key, "tool": tool, "sha256": data.content_sha256(items), "n": len(items)}
    write_json(definition(fresh.data, key), facts)


def _unknown(ours: Mapping[str, Item], theirs: Mapping[str, Item]) -> str:
    return _different(ours, {id: theirs[id] for id in ours if id in theirs})


def _write_samples(path: Path, one: Survey) -> dict[str, Any]:
    """Write the responses of a log and return their entry for samples.json."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = store.sample_schema().append(pa.field("tool_correct", pa.bool_()))
    rows = one.rows.assign(
        prompt_sha256=[sha256_bytes(prompt.encode()) for prompt in one.rows["prompt"]], stop="unknown"
    )
    columns = {name: list(rows[name]) if name in rows else [None] * len(rows) for name in schema.names}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns, schema=schema), path, compression="zstd")
    return {
        "sha256": sha256_file(path), "rows": len(rows), "items": len(one.items), "seed": None, "cut_at_limit": None,
        "tool_verdicts": one.verdicts,
    }  # fmt: skip


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
    args: argparse.Namespace = parser.parse_args()
    if args.tool not in FORMATS:
        raise unknown("command line", "--from", args.tool, FORMATS)
    given = fields_of(args.fields)
    logs = [FORMATS[args.tool](path) for path in args.files]

    surveys = [
        survey(log, args.model or log.model, args.benchmark or log.benchmark, records(log, given, args.filter), given)
        for log in logs
    ]
    path = adopt(surveys, Results(args.out), tool=args.tool, source=args.data)
    print(run.table(path))
    for one in surveys:
        counts = ", ".join(f"{name} {count}" for name, count in one.verdicts.items())
        print(f"{one.model.run.model} {one.key}: verdicts of {args.tool}: {counts}")
    print(run.next_steps(path, args.out))
    return 0


if __name__ == "__main__":
    errors.run(main)
