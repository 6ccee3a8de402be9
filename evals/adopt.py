"""Adopt responses that another tool drew: write a results tree as `python -m evals.run` does, graded and scored here.

    python -m evals.adopt --from lm-eval out/my-model/samples_aime24_*.jsonl --out TREE
    python -m evals.adopt --from jsonl a.jsonl b.jsonl --fields response=text,gold=answer --benchmark mine --out TREE

Formats: lm-eval (--log_samples), inspect (.json), jsonl. One FILE is one model on one benchmark; another call adds to
TREE. Each response keeps the tool's verdict (`tool_correct`).

A benchmark keeps its name in the log. If --data holds a registered benchmark of this name with these problems and
golds, that one is used; otherwise TREE/data defines it by the golds of the log.
"""

import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import pandas as pd

from core import digests, errors
from core.code import Code
from core.errors import ConfigError, CorruptInputError, Parser, check_known, unknown
from core.files import parse_json, read_text, write_json, write_text
from core.layout import Checkpoint, Results
from core.provenance import environment, sha256_bytes, sha256_file
from evals import benchmark as data
from evals import grade, run, store
from evals.benchmark import Item, benchmark, defined, definition, registered
from evals.scores import AVERAGES

# A format maps each role to its tool's field names; --fields replaces a name, also with a path such as `doc.answer`.
ROLES = ("response", "gold", "id", "sample", "problem", "prompt", "correct")
NOT_A_NUMBER = "not a number"  # key of the object in place of NaN and Infinity
ORDER = "@order"  # --fields sample=@order: the samples of an item are numbered in file order
# Verdicts as tools write them, as text in lower case. inspect: correct, incorrect, no answer; its partial credit is not
# a verdict.
RIGHT, WRONG = ("1", "1.0", "true", "c"), ("0", "0.0", "-1", "-1.0", "false", "i", "n")
VERDICTS = dict.fromkeys(RIGHT, True) | dict.fromkeys(WRONG, False)
Row = Mapping[str, Any]


class Log(NamedTuple):
    """One file of a tool: the responses of one model on one benchmark."""

    path: Path
    model: str  # from the tool or the file's name
    benchmark: str
    rows: Sequence[tuple[str, Row]]  # (file and row, content)
    names: Mapping[str, Sequence[str]]  # usual field names by role, the likeliest first
    verdicts: Callable[[Row], Sequence[str]] = lambda row: ()  # fields of a row that hold a verdict, not in `names`
    strict: bool = False  # several usual names in one row are ambiguous
    partial: str = ""  # what the tool left out, by its own account


def read(log: Log, given: Mapping[str, str], chosen: str | None) -> pd.DataFrame:
    """Return the responses in file order. given: field by role, from `--fields`. chosen: the filter, of lm-eval.

    Columns: where (file and row), id, sample (as numbered in the log), problem, prompt, gold, response, tool_correct
    (the tool's verdict; None: unknown). Raises ConfigError, naming the option to set, for ambiguous fields;
    CorruptInputError for a bad row.
    """
    # lm-eval writes each document once per filter
    filters = [row.get("filter") if "filtered_resps" in row else None for _, row in log.rows]
    if filters and chosen not in (None, *filters):
        raise unknown(str(log.path), "--filter", chosen, {str(name) for name in filters})
    for (where, _), name in zip(log.rows, filters, strict=True):
        if chosen is None and name != filters[0]:
            raise ConfigError(f"{where}: filter {name!r}, before {filters[0]!r}; set --filter {name} or {filters[0]}")
    rows = [row for row, name in zip(log.rows, filters, strict=True) if chosen in (None, name)]
    if not rows:
        raise CorruptInputError(f"{log.path}: holds no responses")
    names = _fields(log, *rows[0], given)
    counts: Counter[str] = Counter()
    found = []
    for where, row in rows:
        value = {role: _value(row, name) for role, name in names.items() if name != ORDER}
        problem = _text(value["problem"], where, "problem")
        id = _text(value["id"], where, "id") if "id" in value else problem
        prompt = _text(value["prompt"], where, "prompt") if value.get("prompt") else problem
        gold = _text(value["gold"], where, "gold")
        if re.match(r"\[\s*['\"]", gold):  # lm-eval writes a list of targets as a Python literal
            raise CorruptInputError(f"{where}: gold: {_short(gold)} has several answers; set --fields gold=FIELD")
        gold = _text(gold.rpartition("####")[2].strip(), where, "gold")  # GSM8K writes solutions before it
        responses, listed = value["response"], value.get("correct")
        responses = responses if isinstance(responses, list) else [responses]
        verdicts = [listed] if len(responses) == 1 else [None] * len(responses)
        # a list in a named field is a verdict per response; a tool's metric may be a list of something else
        if isinstance(listed, list) and (log.strict or "correct" in given):
            verdicts = listed
            if len(listed) != len(responses):
                raise CorruptInputError(
                    f"{where}: correct: {names['correct']} has {len(listed)} verdicts on {len(responses)} responses; "
                    "set --fields correct=FIELD, or correct= for none"
                )
        for place, (response, verdict) in enumerate(zip(responses, verdicts, strict=True)):
            if not isinstance(response, str):
                # the last of a response's messages may have its text
                part = next(
                    (part for part in ("content", "text") if isinstance(response, dict) and part in response), ""
                )
                field = f"{names['response']}.{len(responses) - 1}.{part}" if part else "FIELD"
                raise CorruptInputError(
                    f"{where}: response: {names['response']} must be text, got {_short(response)}; set --fields "
                    f"response={field}"
                )
            known = VERDICTS.get(str(verdict).lower())
            if known is None and verdict is not None and ("correct" in given or NOT_A_NUMBER in str(verdict)):
                raise CorruptInputError(
                    f"{where}: correct: {names['correct']} is {_short(verdict)}; allowed: true, false, 1, 0, -1, "
                    "C, I, N; --fields correct= leaves it out"
                )
            number = counts[id] if names.get("sample") == ORDER else value.get("sample", place)
            if not re.fullmatch(r"\d{1,9}", str(number)):
                raise CorruptInputError(f"{where}: sample: expected a whole number, got {_short(number)}")
            counts[id] += 1
            found.append((where, id, int(number), problem, prompt, gold, response, known))
    columns = ["where", "id", "sample", "problem", "prompt", "gold", "response", "tool_correct"]
    return pd.DataFrame(found, columns=columns, dtype=object)


def _fields(log: Log, where: str, row: Row, given: Mapping[str, str]) -> dict[str, str]:
    """Return the field of each role, decided by the first row."""
    chosen: dict[str, str] = {}
    for role in ROLES:
        listed = list(log.verdicts(row)) if role == "correct" else []
        present = listed or [name for name in log.names.get(role, ()) if _value(row, name, absent=...) is not ...]
        if role in given:
            present = [name] if (name := given[role]) else []
            if name and name != ORDER and _value(row, name, absent=...) is ...:
                raise unknown(where, f"--fields {role}", name, row)
        elif len(present) > 1 and (log.strict or listed):
            none = ", or correct= for none" if role == "correct" else ""
            raise ConfigError(
                f"{where}: {role}: {' and '.join(present)} are there; set --fields {role}={present[0]} or "
                f"{role}={present[1]}{none}"
            )
        if present:
            chosen[role] = present[0]
    if "problem" not in chosen and "prompt" in chosen:
        chosen["problem"] = chosen["prompt"]
    for role in ("response", "gold", "problem"):
        if role not in chosen:
            usual = ", ".join(log.names[role])
            raise ConfigError(
                f"{where}: {role}: none of {usual} is there; set --fields {role}=FIELD; fields: {', '.join(row)[:300]}"
            )
    return chosen


def _value(row: Row, path: str, absent: Any = None) -> Any:
    if path in row:
        return row[path]
    value: Any = row
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part[:9]) < len(value):
            value = value[int(part[:9])]
        else:
            return absent
    return value


def _text(value: Any, where: str, role: str) -> str:
    """Convert to text: a text, a number, a one-item list, or the messages of a chat joined in order."""
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], Mapping):
        value = value[0]
    if isinstance(value, list) and value and all(isinstance(message, Mapping) for message in value):
        parts = [message.get("content", message.get("text")) for message in value]
        return "\n\n".join(_text(part, where, role) for part in parts)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise CorruptInputError(f"{where}: {role}: expected one text, got {_short(value)}; set --fields {role}=FIELD")
    if not (text := str(value)).strip():
        raise CorruptInputError(f"{where}: {role}: is empty")
    return text


def _short(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=True, default=str)[:80]
    except (ValueError, RecursionError):
        return type(value).__name__


# Formats


def jsonl(path: Path) -> Log:
    """Read JSON lines from any tool; model and benchmark are named after the file."""
    names = {
        "response": ("response", "output", "completion", "generation"),
        "gold": ("gold", "answer", "target", "ground_truth"),
        "id": ("id", "item_id", "doc_id", "problem_id"),
        "sample": ("sample", "epoch"),
        "problem": ("problem", "question", "input"),
        "prompt": ("prompt",),
        "correct": ("correct", "is_correct", "tool_correct", "label"),
    }
    return Log(path, path.stem, path.stem, _lines(path), names, strict=True)


def _parsed(text: str, where: str) -> Any:
    """Parse JSON in which a tool in Python wrote NaN or Infinity; these become an object, which no field accepts."""
    if "NaN" in text or "Infinity" in text:
        text = re.sub(
            r'("(?:[^"\\]|\\.)*")|-?(NaN|Infinity)', lambda m: m[1] or f'{{"{NOT_A_NUMBER}": "{m[2]}"}}', text
        )
    return parse_json(text, where)


def _content(path: Path) -> str:
    if tool := {".gz": "gunzip", ".bz2": "bunzip2", ".xz": "unxz", ".zst": "unzstd"}.get(path.suffix):
        raise ConfigError(f"{path}: is compressed; type: {tool} --keep {quote(str(path))}, and adopt the new file")
    return read_text(path, "the log")


def _lines(path: Path) -> list[tuple[str, Row]]:
    numbered = [(number, line) for number, line in enumerate(_content(path).split("\n"), 1) if line.strip()]
    rows = [(number, _parsed(line, f"{path}: line {number} of the log")) for number, line in numbered]
    if wrong := [number for number, row in rows if not isinstance(row, dict)]:
        raise CorruptInputError(f"{path}: line {wrong[0]} of the log must be an object")
    return [(f"{path}: row {number}", row) for number, (_, row) in enumerate(rows, 1)]


def lm_eval(path: Path) -> Log:
    """Read `<model>/samples_<task>_<date>.jsonl`, which `--log_samples` writes (lm_eval/loggers/evaluation_tracker.py);
    the responses are those before lm-eval's filters."""
    name = re.fullmatch(r"samples_(.+?)(?:_(\d{4}-\d\d-\d\dT[\d.-]+))?", path.stem)
    results = path.with_name(f"results_{name[2]}.json") if name else path
    recorded = _parsed(_content(results), f"{results}: results of lm-eval") if name and results.is_file() else {}
    recorded = recorded if isinstance(recorded, dict) else {}
    model = recorded.get("model_name")
    prompt = "arguments.gen_args_0.arg_0"
    names = {
        "response": ("resps.0",),
        "gold": ("target",),
        "id": ("doc_id",),
        "problem": ("doc.problem", "doc.question", "doc.Problem", "doc.Question", prompt),
        "prompt": (prompt,),
    }

    def metrics(row: Row) -> Sequence[str]:
        listed = row.get("metrics")
        return [each for each in listed if isinstance(each, str) and each in row] if isinstance(listed, list) else ()

    model = model if isinstance(model, str) and model else path.absolute().parent.name
    task = name[1] if name else path.stem
    asked, there = (_value(recorded, f"n-samples.{task}.{part}") for part in ("effective", "original"))
    partial = f"{asked} of {there} problems" if isinstance(asked, int) and asked != there else ""
    return Log(path, model, task, _lines(path), names, metrics, partial=partial)


def inspect(path: Path) -> Log:
    """Read a .json log of one task and model (inspect_ai/log/_recorders). CorruptInputError for an unfinished run."""
    if path.suffix == ".eval":
        raise ConfigError(
            f"{path}: only a .json log is read here; type: inspect log convert --to json --output-dir DIR "
            f"{quote(str(path))}"
        )
    log = _parsed(_content(path), f"{path}: log of inspect")
    run, samples = (log.get("eval"), log.get("samples")) if isinstance(log, dict) else (None, None)
    if not isinstance(run, dict) or not isinstance(samples, list) or not all(isinstance(s, dict) for s in samples):
        raise CorruptInputError(f"{path}: not a finished log of inspect (eval and samples are missing)")
    if (status := log.get("status")) != "success":
        raise CorruptInputError(f"{path}: status: {_short(status)}, only a run that ended in success is complete")
    rows = [(f"{path}: sample {number}", sample) for number, sample in enumerate(samples, 1)]
    for where, sample in rows:
        if sample.get("error") is not None:  # tolerated by fail_on_error; inspect does not score such samples
            raise CorruptInputError(
                f"{where}: error: {_short(_value(sample, 'error.message'))}, the response is incomplete; "
                "type inspect eval-retry LOG and adopt the new log"
            )
    fields = {"response": "output.completion", "gold": "target", "id": "id", "sample": "epoch", "problem": "input"}
    names = {role: (name,) for role, name in fields.items()} | {"prompt": ("input",)}

    def scorers(row: Row) -> Sequence[str]:
        scores = row.get("scores")
        return [f"scores.{name}.value" for name in scores] if isinstance(scores, dict) else ()

    found = {
        "eval.dataset.samples": len({_short(one.get("id")) for one in samples}),
        "results.total_samples": len(samples),
    }
    given = [(count, there) for name, count in found.items() if isinstance(there := _value(log, name), int)]
    partial = next((f"{count} of {there} samples" for count, there in given if count < there), "")
    return Log(path, str(run.get("model")), str(run.get("task")), rows, names, scorers, partial=partial)


FORMATS: Mapping[str, Callable[[Path], Log]] = {"lm-eval": lm_eval, "inspect": inspect, "jsonl": jsonl}


# The tree


class Survey(NamedTuple):
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
    golds = zip(first["problem"], first["gold"], strict=True)
    found = data.items({"problem": problem, "answer": gold} for problem, gold in golds)
    first["item_id"] = [item.item_id for item in found]
    if log.strict and "id" not in given and (twice := first["item_id"].str.contains("-")).any():
        raise ConfigError(
            f"{first['where'][twice].iloc[0]}: an earlier problem under another id; set --fields id=problem,"
            f"sample={ORDER} for samples of one problem, or --fields id=FIELD for problems that occur twice"
        )
    start, count = int(rows["sample"].min()), int(rows["id"].value_counts().max())
    for id, numbers in rows.groupby("id", sort=False)["sample"]:
        if start > 1 or sorted(numbers) != list(range(start, start + count)):
            shown = ", ".join(map(str, sorted(numbers)[:20]))
            raise CorruptInputError(
                f"{first['where'][id]}: id {str(id)[:80]!r} has samples {shown}; each id needs {count}, numbered from "
                f"0 or 1; set --fields sample=FIELD, or sample={ORDER} to number them as they follow"
            )
    frame = rows.assign(item_id=rows["id"].map(first["item_id"]), sample=rows["sample"] - start)
    names = []
    for text, option in ((model, "--model"), (key, "--benchmark")):
        names.append(data.folder_name(text.rstrip("/").rpartition("/")[2] or text).lstrip(".-")[:150])
        if names[-1] in ("", *AVERAGES):
            raise ConfigError(f"{log.path}: {text[:80]!r} cannot be a name; set {option}")
    return Survey(log, Checkpoint.base(names[0]), names[1], {item.item_id: item for item in found}, frame)


def adopt(surveys: Sequence[Survey], results: Results, tool: str, source: Path | None) -> list[Checkpoint]:
    """Write the samples of a tree and return its models. source: folder with the items of registered benchmarks.

    Everything is written next to the tree and moved there last, so that an error leaves the tree as it was. Raises
    ConfigError unless responses and golds fit into one table, and for a model that drew responses here.
    """
    run.check_out(results)
    drawn: dict[str, tuple[Counter[str], Path]] = {}  # responses to each problem of a benchmark, and where
    for path in sorted(results.root.glob("samples/*/*/seed*/step*/samples.json")):
        for key, entry in store.read_record(path).items():
            ids = store.read_table(path.with_name(f"{key}.parquet"), ("item_id",), entry)["item_id"].to_pylist()
            drawn[key] = Counter(ids), path
    results.root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=results.root.parent, prefix=f".{results.root.name}.") as folder:
        fresh, records, here = Results(Path(folder)), dict[Checkpoint, dict[str, Any]](), environment()
        for one in surveys:
            log, path, digest = one.log.path, results.samples(one.model) / "samples.json", sha256_file(one.log.path)
            record = records.setdefault(one.model, store.read_folder(path) if path.is_file() else {
                "schema": 1, "model": one.log.model, "weights_sha256": None, "files_sha256": None, "seed": None,
                "benchmarks": {}, "engine": {"backend": "adopted"}, "adopted": {"files": {}}, "environment": here,
            })  # fmt: skip
            if "adopted" not in record:
                raise ConfigError(
                    f"{path}: responses of a model of this name that were drawn here; set --model or --out"
                )
            if record["benchmarks"].get(one.key, {}).get("log_sha256", digest) != digest:
                raise ConfigError(
                    f"{log}: {one.model.run.model} has other responses on {one.key}; set --model, --benchmark or --out"
                )
            own = Counter(one.rows["item_id"])
            there, where = drawn.setdefault(one.key, (own, log))
            if own != there:
                raise ConfigError(
                    f"{log}: {own.total()} responses on {len(own)} problems of {one.key}, {where} has "
                    f"{there.total()} on {len(there)}, not all of them the same; set --benchmark or --out"
                )
            file = _write_items(one, results, fresh, source)
            hashes = [sha256_bytes(prompt.encode()) for prompt in one.rows["prompt"]]
            rows = one.rows.assign(prompt_sha256=hashes, stop="unknown").to_dict("records")
            # by benchmark as well: tools write files with the same name into several folders
            record["adopted"] |= {"from": tool, "files": record["adopted"]["files"] | {log.name: digest}}
            samples = fresh.samples(one.model) / f"{one.key}.parquet"
            record["benchmarks"][one.key] = {
                "sha256": store.write_samples(samples, rows, tool_correct="bool"), "rows": len(rows),
                "items": len(one.items), "seed": None, "log_sha256": digest,
                "data": {"file": str(results.data / file.name), "sha256": sha256_file(file)},
            }  # fmt: skip
        for at, record in records.items():
            write_json(fresh.samples(at) / "samples.json", record | {"code": Code("adopt").hash})
        # Records last: their presence marks a finished model.
        for path in sorted(digests.files(fresh.root), key=lambda path: path.name == "samples.json"):
            target = results.root / path.relative_to(fresh.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
    return list(records)


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


def main() -> int:
    parser = Parser()
    add = parser.add_argument
    add("--from", dest="tool", required=True, metavar="FORMAT", help=", ".join(FORMATS))
    add("files", nargs="+", type=Path, metavar="FILE", help="sample logs: one model on one benchmark each")
    add("--out", required=True, type=Path, metavar="TREE", help="a new tree, or one to add to")
    add("--model", metavar="NAME", help="default: as the log or its file name has it")
    add("--benchmark", metavar="KEY", help="a registered one, or any name; default: the log's task")
    add(
        "--fields",
        default="",
        metavar="ROLE=FIELD,...",
        help=f"roles: {', '.join(ROLES)}; sample={ORDER}; correct= for none",
    )
    add("--filter", metavar="NAME", help="lm-eval: rows of this filter")
    add("--data", type=Path, metavar="DIR", help="items of registered benchmarks (python -m evals.fetch)")
    grade.add_thoughts(parser)
    args = parser.parse_args()
    check_known("command line", "--from", [args.tool], FORMATS)
    given: dict[str, str] = {}
    for part in filter(None, args.fields.split(",")):
        role, equals, given[role] = part.partition("=")
        if not equals:
            raise ConfigError(f"command line: --fields: {part!r} is not of the form ROLE=FIELD")
        check_known("command line", "--fields", [role], ROLES)
    surveys = [
        survey(log, args.model or log.model, args.benchmark or log.benchmark, read(log, given, args.filter), given)
        for log in map(FORMATS[args.tool], args.files)
    ]
    results = Results(args.out)
    run.grade_and_score(results, adopt(surveys, results, args.tool, args.data), args.thoughts)
    for one in surveys:
        if one.log.partial:
            print(f"note: {one.log.path}: {one.log.partial}, by its tool's own account: not a score of the whole set")
        verdicts = list(one.rows["tool_correct"])
        right, wrong, none = map(verdicts.count, (True, False, None))
        counts = f"correct {right}, wrong {wrong}, unknown {none}"
        print(f"{one.model.run.model} {one.key}: verdicts of {args.tool}: {counts}")
    run.show(args.out)
    return 0


if __name__ == "__main__":
    errors.run(main)
