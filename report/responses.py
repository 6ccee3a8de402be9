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

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from core.errors import ConfigError, CorruptInputError, MissingInputError
from core.files import read_jsonl
from core.layout import BASE, REFERENCE, Checkpoint, Run
from core.provenance import ROOT, sha256_bytes, sha256_file
from evals import benchmark as registry
from evals import store
from evals.scores import NOT_CORRECT
from evals.tree import Tree

if TYPE_CHECKING:
    import pandas as pd

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


def evaluated(tree: Tree) -> dict[Checkpoint, dict[str, tuple[str, str | None]]]:
    """Return the checkpoints with samples and grades, each with its benchmarks, in the matrix's order. A benchmark has
    its problems' sha256 and a stamp. Companion files carry the stamp too, so that the page cannot mix old and new.

    Raises MissingInputError for a scored checkpoint without samples, CorruptInputError for grades of other samples.
    """
    found: dict[Checkpoint, dict[str, tuple[str, str | None]]] = {}
    if tree.layout.responses.is_file():
        kept: Sample = tree.once(kept_sample)
        for path, benchmark in kept.rows:
            found.setdefault(Checkpoint.parse(path), {})[benchmark] = kept.stamp, None
        return {checkpoint: found[checkpoint] for checkpoint in tree.checkpoints if checkpoint in found}
    scored = {at for at, _ in tree.scores} if tree.layout.scores.is_file() and not tree.is_reference else set()
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
            of_data = (drawn.get("data") or {}).get("sha256")
            found.setdefault(checkpoint, {})[benchmark] = entry["sha256"][:12], of_data
    return found


def read(tree: Tree, checkpoint: Checkpoint, benchmark: str) -> pd.DataFrame:
    """Return one row per response, by item and sample, with columns KEY, DRAWN and GRADED; None where unknown. That
    the grades are of these samples: `evaluated`."""
    if tree.layout.responses.is_file():
        kept: Sample = tree.once(kept_sample)
        return kept.rows[checkpoint.path.as_posix(), benchmark]
    graded = _table(tree.layout.grades(checkpoint), "grades.json", benchmark, (*KEY, *GRADED))
    sampled = _table(tree.layout.samples(checkpoint), "samples.json", benchmark, (*KEY, *DRAWN))
    return sampled.merge(graded, "left", on=list(KEY)).sort_values("sample", kind="stable")


def _table(folder: Path, record: str, benchmark: str, columns: Sequence[str]) -> pd.DataFrame:
    """Return columns of one benchmark in a folder of samples or grades; bytes that are not UTF-8 become escapes."""
    import pyarrow as pa

    entry = store.entry_of(store.read_record(folder / record), folder / record, benchmark)
    table = store.read_table(folder / f"{benchmark}.parquet", columns, entry)
    values = {}
    for name in columns:
        is_text = pa.types.is_string(table[name].type) or pa.types.is_large_string(table[name].type)
        values[name] = store.texts(table[name], "backslashreplace") if is_text else table[name].to_pylist()
    return _frame(values)


def _frame(columns: dict[str, list[Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(columns, dtype=object)  # Python objects: None stays None, integers stay integers


# The sample of responses in published results: one row per response.

PLACE = ("benchmark", "item", "checkpoint")
ASKED = ("prompt", "problem", "gold")  # problem and gold as the grader read them; None: unknown
COLUMNS = tuple(dict.fromkeys((*PLACE, *ASKED, *DRAWN, *GRADED)))


class Sample(NamedTuple):
    """The content of responses.parquet. size: most problems of each benchmark, and most responses to each."""

    rows: dict[tuple[str, str], pd.DataFrame]  # by checkpoint and benchmark
    size: tuple[int, int]
    stamp: str


def kept_sample(tree: Tree) -> Sample:
    """Return the sample of a kept tree; raises CorruptInputError for a damaged file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = tree.layout.responses.read_bytes()
    try:
        table = pq.read_table(pa.BufferReader(data), columns=list(COLUMNS))
        size = int(table.schema.metadata[b"problems"]), int(table.schema.metadata[b"responses"])
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CorruptInputError(f"{tree.layout.responses}: not a sample of responses ({reason})") from error
    rows = _frame(table.to_pydict()).rename(columns={"item": "item_id"})
    by_place: Any = rows.groupby(["checkpoint", "benchmark"], sort=False)
    return Sample(dict(iter(by_place)), size, sha256_bytes(data)[:12])


def keep(tree: Tree, data: Path | None) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Yield samples of the responses of every evaluated checkpoint, each smaller than the previous one: the size in
    problems and responses, and the content of responses.parquet.

    data: folder of the benchmarks' problems, for problem and gold. Problems are taken in the order of their ids, which
    are hashes of their texts: a random choice that is the same for every checkpoint.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = []
    for checkpoint, benchmarks in tree.once(evaluated).items():
        for benchmark in benchmarks:
            rows = read(tree, checkpoint, benchmark).rename(columns={"item_id": "item"})
            rows = rows.assign(benchmark=benchmark, checkpoint=checkpoint.path.as_posix())
            rows["place"] = rows["item"].rank(method="dense") - 1
            rows = rows[(rows["place"] < SIZES[0][0]) & (rows["sample"] < SIZES[0][1])]
            known = pd.DataFrame(_problems(tree, benchmark, data), columns=["item", *ASKED[1:]], dtype=object)
            found.append(rows.merge(known, "left", on="item"))
    # Answers of all checkpoints to one problem are adjacent: most are similar and compress well.
    every = pd.concat(found) if found else pd.DataFrame(columns=[*COLUMNS, "place", "sample"])
    every = every.sort_values([*PLACE, "sample"]).map(lambda v: store.clean(v) if isinstance(v, str) else v)
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
        checkpoints = tree.once(evaluated)
        for checkpoint, stamps in checkpoints.items():
            for benchmark, (stamp, _) in stamps.items():
                rows = read(tree, checkpoint, benchmark)
                _write_responses(fresh, f"samples/{checkpoint.path.as_posix()}/{benchmark}", stamp, rows)
        for benchmark in sorted({key for stamps in checkpoints.values() for key in stamps}):
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


def vendored(name: str) -> bytes:
    """Return a vendored file that runs in the page, such as `uplot/uPlot.min.css`."""
    return (VENDOR / name).read_bytes()


def _put(folder: Path, name: str, value: Any) -> None:
    """Write the script that passes `value` to the page under `name`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # mtime 0: equal values give equal bytes. "replace": UTF-8 cannot encode a lone surrogate.
    packed = base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), compresslevel=6, mtime=0)).decode("ascii")
    path = folder / f"{name}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"bench.arrived({json.dumps(name)},{json.dumps(packed)});\n", encoding="ascii")


def _write_responses(folder: Path, name: str, stamp: str, rows: pd.DataFrame) -> None:
    """Write the index of one benchmark and its text files. rows: of `read`."""
    items: list[dict[str, Any]] = []
    texts: list[list[Any]] = []
    file = size = 0
    for id, of_item in rows.groupby("item_id", sort=False):
        of = {column: of_item[column].tolist() for column in (*DRAWN, *GRADED)}
        prompts, shown, whole = of.pop("prompt"), [], {}
        for k, text in enumerate(of.pop("response")):
            if (left_out := len(text) - HEAD - TAIL) > 0:
                whole[k] = f"{name}.{len(items)}.{k}.txt"
                (folder / whole[k]).parent.mkdir(parents=True, exist_ok=True)
                # The mark at its beginning tells a browser the encoding.
                (folder / whole[k]).write_text(text, encoding="utf-8-sig", errors="replace")
                note = f"[{left_out:,} of {len(text):,} characters left out]"
                text = f"{text[:HEAD]}\n\n{note}\n\n{text[-TAIL:]}"
            shown.append(text)
        items.append({"id": id, "file": file, "place": len(texts)} | of | ({"whole": whole} if whole else {}))
        texts.append([prompts[0], shown])
        size += sum(map(len, shown))
        if size >= TEXT_BYTES:
            _put(folder, f"{name}.{file}", texts)
            file, size, texts = file + 1, 0, []
    if texts:
        _put(folder, f"{name}.{file}", texts)
    _put(folder, name, {"stamp": stamp, "items": items})


def _problems(tree: Tree, benchmark: str, data: Path | None) -> list[list[str]]:
    """Return [id, problem, gold] as the grader reads them; empty where there is neither a data folder nor a sample."""
    from evals.benchmark import items

    if tree.layout.responses.is_file():
        rows = next(rows for (_, key), rows in tree.once(kept_sample).rows.items() if key == benchmark)
        known = rows[rows["gold"].notna()].drop_duplicates("item_id")
        return list(known[["item_id", "problem", "gold"]].to_numpy().tolist())
    if data is None:
        return []
    path = data / f"{benchmark}.jsonl"
    found = items(read_jsonl(path, f"the problems of {benchmark}"), str(path))
    digest = sha256_file(path)
    for checkpoint, benchmarks in tree.once(evaluated).items():
        if benchmark in benchmarks and benchmarks[benchmark][1] not in (None, digest):
            record = tree.layout.samples(checkpoint) / "samples.json"
            raise CorruptInputError(
                f"{path}: not the problems that {record} was made from; set --data to the folder that holds them"
            )
    return [[item.item_id, item.problem, item.answer] for item in found]


# Names and counterparts of checkpoints.


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


def counterpart(checkpoint: Checkpoint, tree: Tree) -> Checkpoint | None:
    """Return GRPO/DAPO's checkpoint of the same model, settings, seed and step, else the base."""
    run = checkpoint.run
    method = tree.method_for(REFERENCE + (f"@{run.variant}" if run.variant else ""))
    if tree.is_fresh(run):  # on a sweep's fresh seeds each method is at the value chosen for it
        method = tree.chosen.get((run.model, REFERENCE), method)
    others = [Checkpoint(Run(run.model, method or BASE, run.seed), checkpoint.step), tree.base(run.model, run.seed)]
    return next((other for other in others if other in tree.evaluated and other != checkpoint), None)


def view(tree: Tree) -> dict[str, Any]:
    """Return the browser of responses for the template; `data` is for the page's scripts."""
    checkpoints = tree.once(evaluated)
    entries: dict[str, dict[str, Any]] = {}
    tepo, beside = tree.method_for("tepo"), dict[Checkpoint, bool]()
    for checkpoint, stamps in checkpoints.items():
        other = counterpart(checkpoint, tree)
        beside[checkpoint] = other in checkpoints
        entries[checkpoint.path.as_posix()] = {
            "title": title(checkpoint, tree),
            "beside": other.path.as_posix() if other and beside[checkpoint] else None,
            "benchmarks": {key: stamp for key, (stamp, _) in stamps.items()},
        }
    scored = {key for stamps in checkpoints.values() for key in stamps}
    benchmarks = [str(entry["key"]) for entry in tree.benchmarks if str(entry["key"]) in scored]
    # Shown first: TEPO next to its counterpart, else any checkpoint with one.
    start = max(beside, key=lambda at: (beside[at], at.run.key == tepo), default=None)
    return {
        "sample": tree.once(kept_sample).size if tree.layout.responses.is_file() else None,
        "verdicts": ("correct", *NOT_CORRECT),
        "data": {
            "folder": FOLDER,
            "samples": {"checkpoints": entries, "benchmarks": benchmarks, "start": start and start.path.as_posix()},
        },
    }
