"""Write companion files of the page: every response of every evaluated checkpoint, and the pictures.

    problems/<benchmark>                    {items: [[id, problem, gold]]}
    samples/<checkpoint>/<benchmark>        index: one entry per response without its text, and where the texts begin;
                                            verdicts of other graders, where `python -m evals.graders` compared them
    samples/<checkpoint>/<benchmark>.<n>    texts: [[prompt, [response, ...]], ...] of consecutive items
    figures/<name>.svg                      figures as `report.figures` wrote them

A page opened from disk cannot `fetch` a file next to it, but can add a script element. So a companion file is a script
that passes one string to the page: gzip in base64, which the browser unpacks. None of it is executed as code.

Published results have a sample of the responses in `responses.parquet`, without samples and grades: the same problems
for every checkpoint, the first responses to each. The page shows it in the same view, with a note.
"""

import base64
import gzip
import io
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from core.errors import ConfigError, CorruptInputError, MissingInputError
from core.files import read_jsonl
from core.layout import BASE, Checkpoint
from core.provenance import sha256_bytes, sha256_file
from evals import benchmark as registry
from evals import store
from evals.tree import Tree
from report import assets, figures, runs
from report.assets import FOLDER

MATH = ("math.js", "math.css", "math.LICENSE")  # its files that are not in folders
TEXT_BYTES = 400_000  # of responses in one text file: about 150 kB compressed
# Problems of each benchmark and responses to each of them that a reference keeps: the first pair that fits.
SIZES = ((20, 4), (20, 2), (10, 2), (10, 1), (5, 1))
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
# Grader -> (item, sample) -> its verdict and the answer that it extracted.
Others = Mapping[str, Mapping[tuple[str, int], tuple[str, str | None]]]


@dataclass(frozen=True)
class Item:
    """A problem with its responses in sample order: (text, stop, tokens, verdict, extracted, rule)."""

    id: str
    prompt: str
    responses: tuple[tuple[str, str, int | None, str, str | None, str], ...]


def evaluated(tree: Tree) -> dict[Checkpoint, dict[str, str]]:
    """Return the checkpoints with samples and grades, in the matrix's order, each with a stamp per benchmark.

    Companion files carry the stamp, so that the page cannot mix old files with new ones. Raises MissingInputError for a
    scored checkpoint without samples, CorruptInputError for grades of other samples.
    """
    checkpoints = {}
    scored = {at for at, _ in tree.scores} if tree.layout.scores.is_file() and not tree.is_reference else set()
    for checkpoint in tree.checkpoints:
        if is_sampled(tree, checkpoint):
            kept = _kept(tree)
            checkpoints[checkpoint] = dict.fromkeys(kept.rows[checkpoint.path.as_posix()], kept.stamp)
            continue
        grades = tree.layout.grades(checkpoint) / "grades.json"
        samples = tree.layout.samples(checkpoint) / "samples.json"
        if not grades.exists() or not samples.exists():
            if checkpoint in scored:
                lost = samples if grades.exists() else grades
                raise MissingInputError(f"{lost}: missing, though {tree.layout.scores} has its scores: evaluate again")
            continue
        graded, sampled = store.read_record(grades), store.read_record(samples)
        for benchmark, entry in graded.items():
            if benchmark not in sampled:
                raise CorruptInputError(f"{samples}: benchmarks: {benchmark} is missing, but {grades} has grades of it")
            if entry["samples_sha256"] != sampled[benchmark]["sha256"]:
                raise CorruptInputError(f"{grades}: {benchmark}: these grades are of other samples: grade again")
        checkpoints[checkpoint] = {benchmark: str(entry["sha256"])[:12] for benchmark, entry in graded.items()}
    return checkpoints


def write(tree: Tree, root: Path, data: Path | None) -> None:
    """Replace `root`/FOLDER by all companion files. data: folder of the benchmarks' problems.

    Without `data` a problem is shown as its prompt, without the gold answer. Raises ConfigError when FOLDER contains
    files that are not companion files.
    """
    folder = root / FOLDER
    # Next to the folder, so that it can be renamed into place: an error before that leaves the old files.
    fresh = Path(tempfile.mkdtemp(dir=root, prefix=f".{FOLDER}."))
    fresh.chmod(0o755)  # mkdtemp's folder is private; a web server must be able to read it
    try:
        checkpoints = evaluated(tree)
        for checkpoint, stamps in checkpoints.items():
            for benchmark, stamp in stamps.items():
                name = f"samples/{checkpoint.path.as_posix()}/{benchmark}"
                others = graders(tree, checkpoint, benchmark)
                _write_responses(fresh, name, stamp, read(tree, checkpoint, benchmark), others)
        for benchmark in sorted({key for stamps in checkpoints.values() for key in stamps}):
            known = _explained(benchmark, _problems(tree, benchmark, data) or _known(tree, checkpoints, benchmark))
            _put(fresh, f"problems/{benchmark}", {"items": known})
        (fresh / "figures").mkdir()
        for name, path in pictures(tree).items():
            if path.is_file():
                (fresh / f"figures/{name}.svg").write_bytes(path.read_bytes())
        # KaTeX, which the page loads when the first response is shown.
        katex = (assets.vendored(f"katex/{name}.min.js") for name in ("katex", "auto-render"))
        (fresh / "math.js").write_bytes(b"".join(script + b"\n" for script in katex))
        (fresh / "math.css").write_text(assets.math_css(), encoding="utf-8")
        shutil.copyfile(assets.VENDOR / "katex" / "LICENSE", fresh / "math.LICENSE")
        _refuse_others_files(folder)
        if folder.exists():
            shutil.rmtree(folder)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _refuse_others_files(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ConfigError(f"{folder}: not a folder of companion files; move it away")
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        # By name and not by content: a damaged companion file must be replaceable.
        kind = {"problems": ".js", "samples": ".js", "figures": ".svg"}.get(name.parts[0])
        # Snakemake writes the last one into a folder that is an output.
        ours = name.as_posix() in (*MATH, ".snakemake_timestamp") or name.suffix == kind
        if path.is_symlink() or not (ours or path.is_dir()):
            raise ConfigError(f"{path}: not a companion file of the page; move it away")


def pictures(tree: Tree) -> dict[str, Path]:
    """Return the SVG files that the page shows, each under the name of its companion file."""
    shown = {figure.key: tree.layout.figures / f"{figure.key}.svg" for figure in figures.offered(tree)}
    return shown | {"frontier": tree.root / "sweep/frontier.svg"}


def shard(name: str, value: Any) -> bytes:
    """Return the script that passes `value` to the page under `name`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # mtime 0: equal values give equal bytes. "replace": UTF-8 cannot encode a lone surrogate.
    packed = base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), compresslevel=6, mtime=0)).decode("ascii")
    return f"bench.arrived({json.dumps(name)},{json.dumps(packed)});\n".encode()


def _put(folder: Path, name: str, value: Any) -> None:
    path = folder / f"{name}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(shard(name, value))


def read(tree: Tree, checkpoint: Checkpoint, benchmark: str) -> Iterator[Item]:
    """Yield the items of one benchmark with samples and grades; raises CorruptInputError where the two do not match."""
    if is_sampled(tree, checkpoint):
        rows = _kept(tree).rows[checkpoint.path.as_posix()][benchmark]
        for (id, prompt), of_item in groupby(rows, key=lambda row: (row["item"], row["prompt"])):
            yield Item(id, prompt, tuple(tuple(row[name] for name in RESPONSE) for row in of_item))
        return
    path = tree.layout.grades(checkpoint) / f"{benchmark}.parquet"
    graded = {(id, sample): grade for id, sample, *grade in _rows(path.parent, "grades.json", benchmark, GRADES)}
    sampled = _rows(tree.layout.samples(checkpoint), "samples.json", benchmark, SAMPLES)
    if len(graded) != len(sampled):
        raise CorruptInputError(f"{path}: {len(graded)} grades for {len(sampled)} responses")
    items: dict[str, tuple[str, list[tuple[int, Any]]]] = {}
    for id, sample, prompt, *response in sampled:
        if (grade := graded.get((id, sample))) is None:
            raise CorruptInputError(f"{path}: no grade for item {id}, sample {sample}")
        items.setdefault(id, (prompt, []))[1].append((sample, (*response, *grade)))
    for id, (prompt, responses) in items.items():
        yield Item(id, prompt, tuple(response for _, response in sorted(responses, key=itemgetter(0))))


def graders(tree: Tree, checkpoint: Checkpoint, benchmark: str) -> Others:
    """Return the verdicts of other graders from `evals.graders`; empty where it was not run.

    Raises CorruptInputError for verdicts on other samples.
    """
    record = tree.root / "graders" / checkpoint.path / "graders.json"
    if is_sampled(tree, checkpoint) or not record.is_file():
        return {}
    drawn = tree.layout.samples(checkpoint) / "samples.json"
    entries, sampled = store.read_record(record), store.entry_of(store.read_record(drawn), drawn, benchmark)
    if benchmark not in entries:
        return {}
    if entries[benchmark].get("samples_sha256") != sampled["sha256"]:
        raise CorruptInputError(f"{record}: {benchmark}: of other samples; run: python -m evals.graders {tree.root}")
    found: dict[str, dict[tuple[str, int], tuple[str, str | None]]] = {}
    columns = ("item_id", "sample", "grader", "verdict", "extracted")
    for id, sample, name, *judged in _rows(record.parent, record.name, benchmark, columns):
        found.setdefault(name, {})[id, sample] = judged[0], judged[1]
    return found


# The sample of responses in published results.

RESPONSE = ("response", "stop", "tokens", "verdict", "extracted", "rule")  # as in `Item`
PLACE = ("benchmark", "item", "checkpoint")
ASKED = ("prompt", "problem", "gold")  # problem and gold as the grader read them; None: unknown


@dataclass(frozen=True)
class Kept:
    """responses.parquet, one row per response."""

    rows: Mapping[str, Mapping[str, list[dict[str, Any]]]]  # checkpoint -> benchmark -> rows, by item
    size: tuple[int, int]  # at most: problems of each benchmark, responses to each
    stamp: str


def is_sampled(tree: Tree, checkpoint: Checkpoint) -> bool:
    """Return whether the tree has only a sample of the checkpoint's responses."""
    if not tree.layout.responses.is_file() or (tree.layout.samples(checkpoint) / "samples.json").exists():
        return False
    return checkpoint.path.as_posix() in _kept(tree).rows


def keep(tree: Tree, data: Path | None) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Yield samples of the responses of every evaluated checkpoint, each smaller than the previous one: the size in
    problems and responses, and the content of responses.parquet.

    data: folder of the benchmarks' problems, for problem and gold. Problems are taken in the order of their ids, which
    are hashes of their texts: a random choice that is the same for every checkpoint.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    golds: dict[str, dict[str, tuple[str, str]]] = {}
    chosen = []
    for checkpoint, benchmarks in evaluated(tree).items():
        for benchmark in benchmarks:
            if benchmark not in golds:
                golds[benchmark] = {id: (problem, gold) for id, problem, gold in _problems(tree, benchmark, data)}
            items = sorted(read(tree, checkpoint, benchmark), key=lambda item: item.id)[: SIZES[0][0]]
            for place, item in enumerate(items):
                asked = item.prompt, *golds[benchmark].get(item.id, (None, None))
                where = benchmark, item.id, checkpoint.path.as_posix(), *asked
                chosen += [(place, number, *where, *r) for number, r in enumerate(item.responses[: SIZES[0][1]])]
    # Answers of all checkpoints to one problem are adjacent: most are similar and compress well.
    chosen.sort(key=lambda row: row[2:5] + row[1:2])
    for problems, responses in SIZES:
        rows = [row[2:] for row in chosen if row[0] < problems and row[1] < responses]
        columns = {name: [_clean(row[place]) for row in rows] for place, name in enumerate((*PLACE, *ASKED, *RESPONSE))}
        table = pa.table({n: pa.array(c, pa.int64() if n == "tokens" else pa.string()) for n, c in columns.items()})
        table = table.replace_schema_metadata({"problems": str(problems), "responses": str(responses)})
        out = io.BytesIO()
        # Few large pages: similar answers of all checkpoints to one problem compress together.
        pq.write_table(
            table, out, compression="zstd", compression_level=19, use_dictionary=False, data_page_size=1 << 28,
            row_group_size=1 << 24, write_statistics=False,
        )  # fmt: skip
        yield (problems, responses), out.getvalue()


def _clean(value: Any) -> Any:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


def _kept(tree: Tree) -> Kept:
    found: Kept = tree.once(_read_kept)
    return found


def _read_kept(tree: Tree) -> Kept:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tree.layout.responses
    data = path.read_bytes()
    order = [(name, "ascending") for name in ("checkpoint", "benchmark", "item")]
    try:
        table = pq.read_table(pa.BufferReader(data)).sort_by(order)
        problems, responses = (int(table.schema.metadata[name]) for name in (b"problems", b"responses"))
        rows = table.select([*PLACE, *ASKED, *RESPONSE]).to_pylist()
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise CorruptInputError(f"{path}: not a sample of responses ({' '.join(str(error).split())})") from error
    by_place: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        by_place.setdefault(row["checkpoint"], {}).setdefault(row["benchmark"], []).append(row)
    return Kept(by_place, (problems, responses), sha256_bytes(data)[:12])


def _known(tree: Tree, checkpoints: Mapping[Checkpoint, Mapping[str, str]], benchmark: str) -> list[list[str]]:
    """Return [id, problem, gold] of the problems in the sample."""
    for checkpoint, benchmarks in checkpoints.items():
        if benchmark in benchmarks and is_sampled(tree, checkpoint):  # the same problems everywhere
            rows = _kept(tree).rows[checkpoint.path.as_posix()][benchmark]
            asked = {row["item"]: (row["problem"], row["gold"]) for row in rows}
            return [[id, problem, gold] for id, (problem, gold) in asked.items() if gold is not None]
    return []


def _explained(benchmark: str, items: list[list[str]]) -> list[list[str]]:
    """Add the meaning of a synthetic task's notation, which models learn and prompts do not explain."""
    meant = registry.benchmark(benchmark).meant if benchmark in set(registry.keys()) else ""
    return [[name, f"{problem} ({meant})" if meant else problem, gold] for name, problem, gold in items]


def _write_responses(folder: Path, name: str, stamp: str, items: Iterator[Item], others: Others) -> None:
    """Write the index of one benchmark and its text files."""
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
        for grader, judged in others.items():
            of = index.setdefault("graders", {}).setdefault(grader, {"verdicts": "", "extracted": []})
            for sample in range(len(item.responses)):
                verdict, extracted = judged.get((item.id, sample), ("", None))
                of["verdicts"] += LETTERS.get(verdict, "-")
                of["extracted"].append(extracted)
        texts.append([item.prompt, [response[0] for response in item.responses]])
        size += sum(len(response[0]) for response in item.responses)
        if size >= TEXT_BYTES:
            _put(folder, f"{name}.{len(index['begins']) - 1}", texts)
            texts, size = [], 0
    if texts:
        _put(folder, f"{name}.{len(index['begins']) - 1}", texts)
    index |= columns | {key: "".join(columns[key]) for key in ("verdicts", "stops")} | {"rule_names": list(rules)}
    _put(folder, name, index)


def _answered(tree: Tree) -> dict[str, dict[str, Path]]:
    """Return benchmark -> sha256 of its problems -> the first samples.json with it."""
    found: dict[str, dict[str, Path]] = {}
    for checkpoint in tree.checkpoints:
        record = tree.layout.samples(checkpoint) / "samples.json"
        for benchmark, entry in store.read_record(record).items() if record.is_file() else ():
            if file := entry.get("data"):
                found.setdefault(benchmark, {}).setdefault(file["sha256"], record)
    return found


def _problems(tree: Tree, benchmark: str, data: Path | None) -> list[list[str]]:
    """Return [id, problem, gold] as the grader reads them; empty without a data folder."""
    if data is None:
        return []
    from evals.data import items

    path = data / f"{benchmark}.jsonl"
    if path.is_file():  # else the reader reports what is missing
        digest = sha256_file(path)
        for drawn, record in tree.once(_answered).get(benchmark, {}).items():
            if drawn != digest:
                raise CorruptInputError(
                    f"{path}: not the problems that {record} was made from; set --data to the folder that holds them"
                )
    return [
        [item.item_id, item.problem, item.answer]
        for item in items(read_jsonl(path, f"the problems of {benchmark}"), str(path))
    ]


def _rows(folder: Path, record: str, benchmark: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the rows of one benchmark in a folder of samples or grades; bytes that are not UTF-8 become escapes."""
    import pyarrow as pa

    entry = store.entry_of(store.read_record(folder / record), folder / record, benchmark)
    table = store.read_table(folder / f"{benchmark}.parquet", columns, entry)
    values = []
    for name in columns:
        is_text = pa.types.is_string(table[name].type) or pa.types.is_large_string(table[name].type)
        values.append(store.texts(table[name], "backslashreplace") if is_text else table[name].to_pylist())
    return list(zip(*values, strict=True))


def view(tree: Tree) -> dict[str, Any]:
    """Return the browser of responses for the template; `data` is for the page's scripts."""
    checkpoints = evaluated(tree)
    groups: dict[str, list[tuple[str, str]]] = {}
    entries: dict[str, dict[str, Any]] = {}
    # Shown first: TEPO next to GRPO/DAPO, else any checkpoint next to its counterpart, and a base as the last resort.
    first: list[tuple[tuple[bool, bool, bool], str]] = []
    tepo = tree.method_for("tepo")
    for checkpoint, stamps in checkpoints.items():
        path, title = checkpoint.path.as_posix(), runs.title(checkpoint, tree)
        groups.setdefault(runs.model_title(checkpoint.run.model, tree), []).append((path, title))
        counterpart = runs.counterpart(checkpoint, tree)
        beside = counterpart.path.as_posix() if counterpart in checkpoints else None
        entries[path] = {"title": title, "beside": beside, "benchmarks": stamps}
        of_methods = counterpart is not None and beside is not None and counterpart.run.method != BASE
        first.append(((of_methods and checkpoint.run.key == tepo, of_methods, beside is not None), path))
    scored = {key for stamps in checkpoints.values() for key in stamps}
    benchmarks = [str(entry["key"]) for entry in tree.benchmarks if str(entry["key"]) in scored]
    start = max(first, key=itemgetter(0))[1] if first else None
    return {
        "checkpoints": list(groups.items()),
        "shown_benchmarks": benchmarks,
        "sample": _kept(tree).size if any(is_sampled(tree, one) for one in checkpoints) else None,
        "graders": (tree.root / "graders" / "accuracy.csv").is_file(),
        "verdicts": [(letter, verdict.replace("_", " ")) for verdict, letter in LETTERS.items()],
        "data": {"folder": FOLDER, "samples": {"checkpoints": entries, "benchmarks": benchmarks, "start": start}},
    }
