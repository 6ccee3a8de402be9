"""Write companion files of the page: every response of every evaluated checkpoint.

    problems/<benchmark>                    [[id, problem, gold], ...]
    samples/<checkpoint>/<benchmark>        {stamp, items: [{id, file, place, verdict, ...}]}: all but the texts
    samples/<checkpoint>/<benchmark>.<n>    texts: [[prompt, [response, ...]], ...] of consecutive items
    samples/<checkpoint>/<benchmark>.<i>.<k>.txt   a long response as plain text: the page has its two ends and a link

A page opened from disk cannot `fetch` a file next to it, but can add a script element. So a companion file is a script
that passes one string to the page: gzip in base64, which the browser unpacks. None of it is executed as code.

Published results have no samples and grades but a sample of the responses, `responses.parquet`: the same problems for
every checkpoint, and the first responses to each. The page shows it in the same view, with a note.
"""

import base64
import gzip
import io
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from core.errors import ConfigError, CorruptInputError, MissingInputError
from core.files import read_jsonl
from core.layout import BASE, REFERENCE, Checkpoint, Run
from core.provenance import ROOT, sha256_bytes, sha256_file
from evals import benchmark as registry
from evals import store
from evals.benchmark import items
from evals.tree import Tree

FOLDER = "report.data"  # of the companion files, next to the page
VENDOR = ROOT / "report/vendor"
TEXT_BYTES = 400_000  # of responses in one text file: about 150 kB compressed
HEAD, TAIL = 40_000, 20_000  # characters of a long response in the page: a browser needs a minute to lay out 4 MB
# Problems of each benchmark and responses to each of them that a reference keeps: the first pair that fits.
SIZES = ((20, 4), (20, 2), (10, 2), (10, 1), (5, 1))
# By name, so that a damaged file can be replaced; older pages had pictures and a library.
OURS = re.compile(r"(samples|problems|figures)(/.+)?|math\.(js|css|LICENSE)|\.snakemake_timestamp")
KEY = ("item_id", "sample")
DRAWN, GRADED = ("prompt", "response", "stop", "tokens"), ("verdict", "extracted", "rule")
NUMBERS = ("sample", "tokens")  # of these; the others are text
# Columns of responses.parquet; problem and gold as the grader read them, None: unknown.
COLUMNS = ("benchmark", "item", "checkpoint", "prompt", "problem", "gold", *DRAWN[1:], *GRADED)


class Answers(NamedTuple):
    """The responses of a checkpoint to a benchmark, and what they were made from."""

    stamp: str  # companion files carry it too, so that the page cannot mix old and new
    data: str | None  # sha256 of the problems
    rows: Callable[[], pd.DataFrame]  # one per response, by item and sample: KEY, DRAWN and GRADED; None where unknown


def evaluated(tree: Tree) -> dict[Checkpoint, dict[str, Answers]]:
    """Return the checkpoints with samples and grades, each with its benchmarks, in the matrix's order.

    Raises MissingInputError for a scored checkpoint without samples, CorruptInputError for grades of other samples.
    """
    found: dict[Checkpoint, dict[str, Answers]] = {}
    if tree.layout.responses.is_file():
        sample, _, stamp = tree.once(kept_sample)
        for (path, benchmark), rows in sample.groupby(["checkpoint", "benchmark"], sort=False):
            found.setdefault(Checkpoint.parse(path), {})[benchmark] = Answers(stamp, None, rows.copy)
        return {checkpoint: found[checkpoint] for checkpoint in tree.checkpoints if checkpoint in found}
    scored = {at for at, _ in tree.scores} if tree.layout.scores.is_file() and not tree.is_reference else ()
    for checkpoint in tree.checkpoints:
        grades = tree.layout.grades(checkpoint) / "grades.json"
        samples = tree.layout.samples(checkpoint) / "samples.json"
        lost = [path for path in (grades, samples) if not path.exists()]
        if lost and checkpoint in scored:
            raise MissingInputError(f"{lost[0]}: missing, though {tree.layout.scores} has its scores: evaluate again")
        graded, sampled = ({}, {}) if lost else (store.read_record(grades), store.read_record(samples))
        for benchmark, entry in graded.items():
            drawn = store.entry_of(sampled, samples, benchmark)
            if entry["samples_sha256"] != drawn["sha256"]:
                raise CorruptInputError(f"{grades}: {benchmark}: these grades are of other samples: grade again")
            rows = partial(_read, benchmark, (grades.parent, entry), (samples.parent, drawn))
            answers = Answers(entry["sha256"][:12], (drawn.get("data") or {}).get("sha256"), rows)
            found.setdefault(checkpoint, {})[benchmark] = answers
    return found


def _read(benchmark: str, *sides: tuple[Path, Mapping[str, Any]]) -> pd.DataFrame:
    """Return the rows of `Answers`; bytes that are not UTF-8 become escapes. sides: of grades and of samples, the
    folder and its entry of the benchmark."""
    frames = []
    for (folder, entry), columns in zip(sides, (GRADED, DRAWN), strict=True):
        table = store.read_table(folder / f"{benchmark}.parquet", (*KEY, *columns), entry)
        values = {
            name: table[name].to_pylist() if name in NUMBERS else store.texts(table[name], "backslashreplace")
            for name in (*KEY, *columns)
        }
        frames.append(pd.DataFrame(values, dtype=object))  # None stays None, integers stay integers
    return frames[1].merge(frames[0], "left", on=list(KEY)).sort_values("sample", kind="stable")


def kept_sample(tree: Tree) -> tuple[pd.DataFrame, tuple[int, int], str]:
    """Return the content of responses.parquet: its rows; most problems of each benchmark, and most responses to each;
    its stamp. Raises CorruptInputError for a damaged file."""
    data = tree.layout.responses.read_bytes()
    try:
        table = pq.read_table(pa.BufferReader(data), columns=list(COLUMNS))
        size = int(table.schema.metadata[b"problems"]), int(table.schema.metadata[b"responses"])
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        what = f"not a sample of responses ({' '.join(str(error).split())})"
        raise CorruptInputError(f"{tree.layout.responses}: {what}") from error
    rows = pd.DataFrame(table.to_pydict(), dtype=object).rename(columns={"item": "item_id"})
    return rows, size, sha256_bytes(data)[:12]


def keep(tree: Tree, data: Path | None) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Yield samples of the responses of every evaluated checkpoint, each smaller than the previous one: the size in
    problems and responses, and the content of responses.parquet.

    data: folder of the benchmarks' problems, for problem and gold. Problems are taken in the order of their ids, which
    are hashes of their texts: a random choice that is the same for every checkpoint.
    """
    found = []
    for checkpoint, benchmarks in tree.once(evaluated).items():
        for benchmark, answers in benchmarks.items():
            rows = answers.rows().rename(columns={"item_id": "item"})
            place = rows["item"].rank(method="dense") - 1
            rows = rows.assign(benchmark=benchmark, checkpoint=checkpoint.path.as_posix(), place=place)
            rows = rows[(rows["place"] < SIZES[0][0]) & (rows["sample"] < SIZES[0][1])]
            known = pd.DataFrame(_problems(tree, benchmark, data), columns=["item", "problem", "gold"], dtype=object)
            found.append(rows.merge(known, "left", on="item"))
    # Answers of all checkpoints to one problem are adjacent: most are similar and compress well.
    every = pd.concat(found) if found else pd.DataFrame(columns=[*COLUMNS, "place", "sample"])
    every = every.sort_values([*COLUMNS[:3], "sample"]).map(lambda v: store.clean(v) if isinstance(v, str) else v)
    schema = pa.schema([(name, pa.int64() if name == "tokens" else pa.string()) for name in COLUMNS])
    for problems, responses in SIZES:
        rows = every[(every["place"] < problems) & (every["sample"] < responses)]
        table = pa.Table.from_pandas(rows, schema, preserve_index=False)
        out = io.BytesIO()
        # Few large pages: similar answers of all checkpoints to one problem compress together.
        pq.write_table(
            table.replace_schema_metadata({"problems": str(problems), "responses": str(responses)}), out,
            compression="zstd", compression_level=19, use_dictionary=False, data_page_size=1 << 28,
            row_group_size=1 << 24, write_statistics=False,
        )  # fmt: skip
        yield (problems, responses), out.getvalue()


# Companion files.


def write(tree: Tree, root: Path, data: Path | None) -> None:
    """Replace `root`/FOLDER by all companion files. data: folder of the benchmarks' problems.

    Without `data` a problem is shown as its prompt, without the gold answer. Raises ConfigError where FOLDER has files
    that are not the page's.
    """
    folder = root / FOLDER
    # Next to the folder, so that it can be renamed into place: an error before that leaves the old files.
    fresh = Path(tempfile.mkdtemp(dir=root, prefix=f".{FOLDER}."))
    fresh.chmod(0o755)  # mkdtemp's folder is private; a web server must be able to read it
    try:
        for checkpoint, benchmarks in tree.once(evaluated).items():
            for benchmark, answers in benchmarks.items():
                _write_answers(fresh, f"samples/{checkpoint.path.as_posix()}/{benchmark}", answers)
        for benchmark in sorted({key for benchmarks in tree.once(evaluated).values() for key in benchmarks}):
            meant = registry.benchmark(benchmark).meant if registry.registered(benchmark) else ""
            known = _problems(tree, benchmark, data)  # with the notation that models learn and prompts do not explain
            shown = [[id, f"{problem} ({meant})" if meant else problem, gold] for id, problem, gold in known]
            _put(fresh, f"problems/{benchmark}", shown)
        for path in [folder, *sorted(folder.rglob("*"))]:
            if path.is_symlink() or not (path == folder or OURS.fullmatch(path.relative_to(folder).as_posix())):
                raise ConfigError(f"{path}: not a companion file of the page; move it away")
        if folder.exists():
            shutil.rmtree(folder)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _put(folder: Path, name: str, value: Any) -> None:
    """Write the script that passes `value` to the page under `name`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # mtime 0: equal values give equal bytes. "replace": UTF-8 cannot encode a lone surrogate.
    packed = base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), compresslevel=6, mtime=0)).decode("ascii")
    path = folder / f"{name}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"bench.arrived({json.dumps(name)},{json.dumps(packed)});\n", encoding="ascii")


def _write_answers(folder: Path, name: str, answers: Answers) -> None:
    """Write the index of one benchmark and its text files."""
    index, files, size = list[dict[str, Any]](), [list[list[Any]]()], 0
    for id, of_item in answers.rows().groupby("item_id", sort=False):
        of = {column: of_item[column].tolist() for column in (*DRAWN, *GRADED)}
        prompts, shown, whole = of.pop("prompt"), [], {}
        for k, text in enumerate(of.pop("response")):
            if (left_out := len(text) - HEAD - TAIL) > 0:
                whole[k] = f"{name}.{len(index)}.{k}.txt"
                (folder / whole[k]).parent.mkdir(parents=True, exist_ok=True)
                # The mark at its beginning tells a browser the encoding.
                (folder / whole[k]).write_text(text, encoding="utf-8-sig", errors="replace")
                note = f"[{left_out:,} of {len(text):,} characters left out]"
                text = f"{text[:HEAD]}\n\n{note}\n\n{text[-TAIL:]}"
            shown.append(text)
        if size >= TEXT_BYTES:
            files, size = [*files, []], 0
        place = {"id": id, "file": len(files) - 1, "place": len(files[-1])}
        index.append(place | of | ({"whole": whole} if whole else {}))
        files[-1].append([prompts[0], shown])
        size += sum(map(len, shown))
    for n, texts in enumerate(files):
        _put(folder, f"{name}.{n}", texts)
    _put(folder, name, {"stamp": answers.stamp, "items": index})


def _problems(tree: Tree, benchmark: str, data: Path | None) -> list[list[str]]:
    """Return [id, problem, gold] as the grader reads them; empty where there is neither a data folder nor a sample."""
    answered = {at: of[benchmark] for at, of in tree.once(evaluated).items() if benchmark in of}
    if tree.layout.responses.is_file():
        rows = next(iter(answered.values())).rows()
        known = rows[rows["gold"].notna()].drop_duplicates("item_id")
        return list(known[["item_id", "problem", "gold"]].to_numpy().tolist())
    if data is None:
        return []
    path = data / f"{benchmark}.jsonl"
    found, digest = items(read_jsonl(path, f"the problems of {benchmark}"), str(path)), sha256_file(path)
    if other := [at for at, answers in answered.items() if answers.data not in (None, digest)]:
        record = tree.layout.samples(other[0]) / "samples.json"
        to_set = "set --data to the folder that holds them"
        raise CorruptInputError(f"{path}: not the problems that {record} was made from; {to_set}")
    return [[item.item_id, item.problem, item.answer] for item in found]


# The browser of responses in the page.


def title(checkpoint: Checkpoint, tree: Tree) -> str:
    """Return `TEPO, seed 1, step 12`, with the model where the results have several.

    A run that collapsed before that step has its last policy there: the rollouts that it made are added.
    """
    run = checkpoint.run
    titles = {model["key"]: model["title"] for model in tree.models}
    model = f"{titles[run.model]}: " if len(titles) > 1 else ""
    if run.method == BASE:
        return f"{model}base model" + (f", seed {run.seed}" if len(tree.bases[run.model]) > 1 else "")
    made = (tree.record(run) or {}).get("collapsed_at")
    early = f" (collapsed, {made} rollouts made)" if made is not None and made < checkpoint.step else ""
    return f"{model}{tree.methods[run.method]['title']}, seed {run.seed}, step {checkpoint.step}{early}"


def view(tree: Tree) -> dict[str, Any]:
    """Return what the page's browser of responses shows, and where it finds it."""
    answered, tepo = tree.once(evaluated), tree.method_for("tepo")
    entries, beside = dict[str, dict[str, Any]](), dict[Checkpoint, bool]()
    for at, answers in answered.items():
        # Beside it: GRPO/DAPO's checkpoint of the same model, settings, seed and step, else the base.
        method = tree.method_for(REFERENCE + (f"@{at.run.variant}" if at.run.variant else ""))
        if tree.is_fresh(at.run):  # on a sweep's fresh seeds each method is at the value chosen for it
            method = tree.chosen.get((at.run.model, REFERENCE), method)
        reference = Checkpoint(Run(at.run.model, method or BASE, at.run.seed), at.step)
        both = (reference, tree.base(at.run.model, at.run.seed))
        other = next((one for one in both if one in tree.evaluated and one != at), None)
        beside[at] = other in answered
        entries[at.path.as_posix()] = {
            "title": title(at, tree),
            "beside": other.path.as_posix() if other and beside[at] else None,
            "benchmarks": {key: of.stamp for key, of in answers.items()},
        }
    keys = {key for benchmarks in answered.values() for key in benchmarks}
    benchmarks = [str(entry["key"]) for entry in tree.benchmarks if str(entry["key"]) in keys]
    # Shown first: TEPO next to its counterpart, else any checkpoint with one.
    start = max(beside, key=lambda at: (beside[at], at.run.key == tepo), default=None)
    samples = {"checkpoints": entries, "benchmarks": benchmarks, "start": start and start.path.as_posix()}
    return {"folder": FOLDER, "samples": samples}
