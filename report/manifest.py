"""`python -m report.manifest --results results/quick`: every result file with its hash and origin.

What run.json, samples.json and grades.json do not say is null. Equal trees give equal manifests apart from `written`.
Not listed: `state/` (what a run would resume from), `log/` (of a logger), hidden files, and BY_HAND. Checkpoints have
the hash of run.json, inputs from outside the tree (base models, prompts, benchmarks) that of their maker;
`python -m report.verify` reads them all.
"""

import json
import math
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from core import digests, errors, packed
from core.errors import BenchError, Parser
from core.files import content, stored, write_json
from core.layout import BASE, SNAKEMAKE_REPORT, Checkpoint, Run
from core.provenance import environment, sha256_bytes, sha256_file
from core.results_tree import MANIFEST, ORIGINS, Tree, open_tree
from core.scores import AVERAGES, CODE, KEYS, NOT_RUN, read_rows
from evals import store
from evals.score import check_model, rows
from methods.training.spec import Training

NAME = MANIFEST
SCHEMA = 2  # 1 had no `inputs`
KINDS = {  # the first pattern that fits; `*` also stands for several folders
    f"*{digests.SUFFIX}": "hashes",
    "runs/*/run.json": "run record",
    "runs/*/curve.csv": "curve",
    "runs/*/curve.csv.gz": "curve",
    f"runs/{packed.RECORDS}": "run record",
    f"runs/{packed.ROLLOUTS}": "curve",
    "samples/*/samples.json": "samples record",
    "samples/*.parquet": "samples",
    "grades/*/grades.json": "grades record",
    "grades/*.parquet": "grades",
    "matrix.json": "plan",
    "scores.csv*": "scores",
    "tables/*": "table",
    "figures/*": "figure",
    "sweep/*": "sweep",
    "claims.*": "claims",
    "paper/*": "audit",
    "report.html": "report",
    "responses.parquet": "responses",
    f"{ORIGINS}.gz": "origins",
    "report.data/*": "report data",
    "README.md": "readme",
    "*": "other",
}
BY_HAND = ("graders",)  # folders of `evals.graders`, written at any time, with own hashes
PARTS = {"files": "files", "weights": "checkpoints", "inputs": "input files"}  # entries with a hash
# Parts of a folder's name that say which run or checkpoint it is.
DEPTH = {"runs": 3, "samples": 4, "grades": 4}
ROUNDING = 1e-9  # of scores computed again: other versions of numerical libraries sum in another order


def walk(root: Path) -> Iterator[Path]:
    """Every result below `root`, sorted. No checkpoints, `state/`, `log/`, hidden files, manifest, Snakemake report."""
    for folder, subfolders, files in os.walk(root):
        place = Path(folder).relative_to(root)
        in_run = len(place.parts) == 4 and place.parts[0] == "runs"
        hidden = ("state", "checkpoints", "log") if in_run else ()
        subfolders[:] = sorted(name for name in subfolders if not name.startswith(".") and name not in hidden)
        for name in sorted(files):
            if not name.startswith(".") and (place / name).as_posix() not in (NAME, SNAKEMAKE_REPORT):
                yield Path(folder, name)


def listed(names: Iterable[str]) -> list[str]:
    """The files, relative to the tree, that a manifest lists."""
    return [name for name in names if name.split("/")[0] not in BY_HAND]


def kind(name: str) -> str:
    """What the file `name` (relative to the tree) is, as `curve` for `runs/tiny/tepo/seed1/curve.csv`."""
    return next(kind for pattern, kind in KINDS.items() if fnmatchcase(name, pattern))


def of(name: str) -> str | None:
    """The run or checkpoint that a file belongs to, as `tiny/tepo/seed1/step8`."""
    parts = name.split("/")
    depth = DEPTH.get(parts[0])
    return "/".join(parts[1 : 1 + depth]) if depth and len(parts) > 1 + depth else None


def file_entry(root: Path, path: Path) -> dict[str, Any]:
    name = path.relative_to(root).as_posix()
    entry = {"sha256": sha256_file(path), "bytes": path.stat().st_size, "kind": kind(name)}
    return entry if of(name) is None else {**entry, "of": of(name)}


def build(tree: Tree) -> dict[str, Any]:
    """The content of manifest.json for a results tree, finished or not."""
    environments: dict[str, dict[str, Any]] = {}  # few and long: each is written once, under its own hash

    def name_of(environment: dict[str, Any] | None) -> str | None:
        if environment is None:
            return None
        name = sha256_bytes(json.dumps(environment, sort_keys=True).encode())[:12]
        environments[name] = environment
        return name

    records = {run: record for run in tree.finished if (record := tree.record(run)) is not None}
    runs = {run: {**_run(record), "environment": name_of(record.get("environment"))} for run, record in records.items()}
    checkpoints: dict[Checkpoint, dict[str, Any]] = {}
    for checkpoint in tree.checkpoints:
        samples = tree.layout.samples(checkpoint) / "samples.json"
        grades = tree.layout.grades(checkpoint) / "grades.json"
        if samples.is_file() and grades.is_file():
            drawn = store.read_folder(samples)
            entry = _checkpoint(drawn, store.read_folder(grades))
            checkpoints[checkpoint] = {**entry, "environment": name_of(drawn.get("environment"))}
    inputs: dict[str, dict[str, Any]] = {
        f"{base}/{name}": {"sha256": digest, "kind": "base model"}
        for base in bases(tree)
        for name, digest in _listed(located(tree, base)).items()
    }
    inputs |= {name: {"sha256": next(iter(named)), "kind": kind} for name, (kind, named) in single_files(tree).items()}
    commits = {environment.get("commit") for environment in environments.values()}
    dirty = [environment.get("dirty") for environment in environments.values()]
    return {
        "schema": SCHEMA,
        "scale": tree.scale,
        "config": sha256_file(tree.layout.matrix),
        "commits": sorted(commit for commit in commits if commit is not None),
        "dirty": True if True in dirty else None if None in dirty or not dirty else False,
        "missing": {
            "runs": [run.path.as_posix() for run in tree.runs if run not in runs],
            "checkpoints": [c.path.as_posix() for c in tree.checkpoints if c not in checkpoints],
        },
        "left_out": [],
        "environments": environments,
        "runs": {run.path.as_posix(): entry for run, entry in runs.items()},
        "checkpoints": {c.path.as_posix(): entry for c, entry in checkpoints.items()},
        "weights": {
            f"runs/{run.path.as_posix()}/{name}": {"sha256": digest, "of": (run.path / Path(name).name).as_posix()}
            for run, record in records.items()
            for name, digest in sorted(_checkpoints(record).items())
        },
        "inputs": dict(sorted(inputs.items())),
        "files": {
            name: file_entry(tree.root, tree.root / name)
            for name in listed(path.relative_to(tree.root).as_posix() for path in walk(tree.root))
        },
        "written": {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "environment": environment()},
    }


def _run(record: Mapping[str, Any]) -> dict[str, Any]:
    inputs, spec = record.get("inputs") or {}, record["spec"]
    return {
        **{name: inputs.get(name) for name in ("spec", "code", "method_code", "base", "prompts")},
        "trainer": spec.get("trainer"),
        "device": (spec.get("training") or {}).get("device", Training.model_fields["device"].default),
        **{name: record.get(name) for name in ("finished_at", "wall_seconds", "cpu_seconds", "collapsed_at")},
    }


def _checkpoint(samples: Mapping[str, Any], grades: Mapping[str, Any]) -> dict[str, Any]:
    """How samples were drawn and graded."""
    engine = samples.get("engine") or {}
    return {
        "weights": samples.get("weights_sha256"),
        "backend": engine.get("backend"),
        "device": engine.get("device"),
        "seed": samples.get("seed"),
        "grader": grades.get("grader_version"),
        "benchmarks": {
            key: {
                "rows": entry["rows"],
                "task": entry.get("task_hash"),
                "samples": entry["sha256"],
                "verdicts": grades["benchmarks"].get(key, {}).get("verdicts_sha256"),
            }
            for key, entry in sorted(samples["benchmarks"].items())
        },
    }


def _checkpoints(record: Mapping[str, Any]) -> dict[str, str]:
    """The sha256 of each `checkpoints/step<n>` that run.json lists."""
    return {name: digest for name, digest in record.get("outputs", {}).items() if name.startswith("checkpoints/")}


# Inputs from outside the tree, named as run.json and samples.json name them: relative to the checkout of the commands.


def located(tree: Tree, name: str) -> Path:
    """Where an input lies now: in the checkout that holds results/<scale>, else in the present folder."""
    beside_results = tree.root.absolute().parent.parent / name
    return beside_results if beside_results.exists() else Path(name)


def _of_run(tree: Tree, run: Run, key: str) -> dict[str, Any]:
    """A part of run.json, empty where there is none."""
    return (tree.record(run) or {}).get(key) or {}


def bases(tree: Tree) -> dict[str, list[Run]]:
    """The folders of base models, each with the runs that were trained from it."""
    folders: dict[str, list[Run]] = {}
    for run in tree.finished:
        if base := _of_run(tree, run, "spec").get("base"):
            folders.setdefault(base, []).append(run)
    return folders


def single_files(tree: Tree) -> dict[str, tuple[str, dict[str, Path]]]:
    """Prompts and benchmarks by name: what it is, and by sha256 a record that names it; more than one do not agree."""
    found: dict[str, tuple[str, dict[str, Path]]] = {}
    for run in tree.finished:
        name, digest = _of_run(tree, run, "spec").get("prompts"), _of_run(tree, run, "inputs").get("prompts")
        if name and digest:
            found.setdefault(name, ("training prompts", {}))[1].setdefault(digest, tree.layout.run(run) / "run.json")
    for checkpoint in tree.checkpoints:
        path = tree.layout.samples(checkpoint) / "samples.json"
        for entry in store.read_record(path).values() if path.is_file() else ():
            if items := entry.get("data"):
                found.setdefault(items["file"], ("benchmark", {}))[1].setdefault(items["sha256"], path)
    return found


def _listed(folder: Path) -> dict[str, str]:
    """The sha256 of each file of a model's folder as its maker wrote it; of somebody's own folder, as it is now."""
    sums = folder / digests.SUMS
    return digests.read(sums) | {digests.SUMS: sha256_file(sums)} if sums.is_file() else digests.of_folder(folder)


# The chain: run.json -> samples.json -> grades.json -> scores.csv. Every link is a hash that the later file holds of
# the earlier one; scores are computed again. A link whose earlier end a reference left out is not checked.


def broken_links(tree: Tree, left_out: Collection[str] = (), *, read: bool = False) -> list[str]:
    """One line for each link that does not hold, in the order of the chain. left_out: kinds of files not kept here.

    read: hash the files of base models and checkpoints too; else take their lists of hashes, which is quick.
    """
    lists = [path for path in walk(tree.root) if path.suffix == digests.SUFFIX]
    lines = [str(error) for path in lists for error in digests.check_list(path)]
    for path in sorted(tree.root.glob("graders/*/*/*/*/graders.json")):
        lines += _named(_check_parquets(path))
    if "inputs" not in left_out:
        for base, runs in bases(tree).items():
            lines += _named(_check_base(tree, base, runs, read=read))
        for name, (kind, named) in single_files(tree).items():
            lines += _named(_check_file(located(tree, name), kind, named))
    for run in tree.finished:
        lines += _check_curve(tree, run)
    for run in tree.finished if "weights" not in left_out else ():
        listed, folder = _checkpoints(tree.record(run) or {}), tree.layout.run(run)
        for path in sorted(path for path in folder.glob("checkpoints/*") if not path.name.startswith(".")):
            if f"checkpoints/{path.name}" not in listed:
                lines.append(f"{path}: extra, {folder / 'run.json'} does not list it")
        for name, digest in listed.items():
            lines += _named(_check_weights(tree, run, name, digest, read=read))
    sound = []
    for checkpoint in tree.checkpoints:
        broken = [*_check_samples(tree, checkpoint), *_check_grades(tree, checkpoint)]
        lines += broken
        if not broken:
            sound.append(checkpoint)
    if stored(tree.layout.scores):
        lines += _named(_check_scores(tree, sound, left_out))
    return lines


def _named(lines: Iterator[str]) -> Iterator[str]:
    """The lines of a check, which ends where something cannot be read: with the line that names it."""
    try:
        yield from lines
    except BenchError as error:
        yield str(error)


def _check_base(tree: Tree, base: str, runs: Sequence[Run], *, read: bool) -> Iterator[str]:
    """Whether runs name the content of a base model that its maker wrote."""
    folder = located(tree, base)
    if not folder.is_dir():
        yield f"{folder}: missing, though {tree.layout.run(runs[0]) / 'run.json'} names it"
        return
    found = digests.check_model(folder) if read else _listed(folder)
    now = {"base": digests.tree(found, "*.safetensors"), "base_files": digests.beside_weights(found)}
    for run in runs:
        inputs = _of_run(tree, run, "inputs")
        for name, digest in now.items():
            if inputs.get(name) not in (None, digest):  # None: of a run before there was one
                yield f"{folder}: {name}: not what {tree.layout.run(run) / 'run.json'} was trained from"


def _check_file(path: Path, kind: str, named: Mapping[str, Path]) -> Iterator[str]:
    """The same for prompts and benchmarks."""
    if not path.is_file():
        yield f"{path}: missing, though {next(iter(named.values()))} names it"
        return
    now = digests.check(path)
    for digest, record in named.items():
        if digest != now:
            yield f"{path}: not the {kind} that {record} was made from"


def _check_curve(tree: Tree, run: Run) -> Iterator[str]:
    folder = tree.layout.run(run)
    curve = stored(folder / "curve.csv")
    if curve is None:
        yield f"{folder / 'curve.csv'}: missing, though {folder / 'run.json'} lists it"
    elif curve.name != packed.ROLLOUTS and sha256_bytes(content(folder / "curve.csv")) != _of_run(
        tree, run, "outputs"
    ).get("curve.csv"):
        yield f"{curve}: not the curve that {folder / 'run.json'} was written for"


def _check_weights(tree: Tree, run: Run, name: str, digest: str, *, read: bool) -> Iterator[str]:
    """Whether a checkpoint is that of run.json, and that of its samples."""
    folder, record = tree.layout.run(run) / name, tree.layout.run(run) / "run.json"
    if not folder.is_dir():
        yield f"{folder}: missing, though {record} lists it"
        return
    found = digests.check_model(folder) if read else _listed(folder)
    if digests.tree(found) != digest:
        yield f"{folder}: not the checkpoint that {record} was written for"
    samples = tree.root / "samples" / run.path / Path(name).name / "samples.json"
    drawn_from = store.read_folder(samples).get("weights_sha256") if samples.is_file() else None
    if drawn_from not in (None, digests.tree(found, "*.safetensors")):
        yield f"{folder}: not the weights that the samples of {samples} were drawn from"


def _check_samples(tree: Tree, checkpoint: Checkpoint) -> Iterator[str]:
    path = tree.layout.samples(checkpoint) / "samples.json"
    if not path.is_file():
        return
    record, run = store.read_folder(path), checkpoint.run
    if run.method == BASE:
        drawn_from = {"base": record.get("weights_sha256"), "base_files": record.get("files_sha256")}
        for trained in (other for other in tree.runs if tree.base(other.model, other.seed) == checkpoint):
            inputs = _of_run(tree, trained, "inputs")
            files = inputs.get("base_files") if drawn_from["base_files"] is not None else None
            if inputs.get("base") not in (None, drawn_from["base"]) or files not in (None, drawn_from["base_files"]):
                yield f"{path}: drawn from another base model than {trained.path.as_posix()} was trained from"
    else:
        try:
            check_model(path, checkpoint)
        except BenchError as error:
            yield str(error)
        if f"checkpoints/step{checkpoint.step}" not in _of_run(tree, run, "outputs"):
            yield f"{path}: {tree.layout.run(run) / 'run.json'} has no checkpoint step{checkpoint.step}"
    yield from _check_parquets(path)


def _check_grades(tree: Tree, checkpoint: Checkpoint) -> Iterator[str]:
    path, source = tree.layout.grades(checkpoint) / "grades.json", tree.layout.samples(checkpoint) / "samples.json"
    if not path.is_file():
        return
    graded, drawn = store.read_record(path), store.read_record(source)
    for key, entry in graded.items():
        if entry.get("samples_sha256") != drawn.get(key, {}).get("sha256"):
            yield f"{path}: {key}: graded other samples than those of {source}"
        items = drawn.get(key, {}).get("data") or {}
        if items.get("sha256") and entry.get("data_sha256") not in (None, items["sha256"]):
            yield f"{path}: {key}: graded with other answers than those of {items['file']} that {source} names"
    yield from _check_parquets(path)


def _check_parquets(path: Path) -> Iterator[str]:
    """Whether the files beside a record are those that it lists."""
    for key, entry in store.read_folder(path)["benchmarks"].items():
        parquet = path.parent / f"{key}.parquet"
        if not parquet.is_file():
            yield f"{parquet}: missing, though {path} lists it"
        elif sha256_file(parquet) != entry["sha256"]:
            yield f"{parquet}: not the file that {path} was written for"


def _check_scores(tree: Tree, sound: Sequence[Checkpoint], left_out: Collection[str]) -> Iterator[str]:
    """scores.csv against the grades of the checkpoints whose own files are sound, cell by cell."""
    path = tree.layout.scores
    written: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in read_rows(path):
        *place, benchmark = (row[name] for name in KEYS)
        written.setdefault(tuple(place), {})[benchmark] = row
    benchmarks = list(dict.fromkeys(key for of in written.values() for key in of if key not in AVERAGES))
    for checkpoint in sound:
        run = checkpoint.run
        by_benchmark = written.get((run.model, run.method, run.seed, checkpoint.step), {})
        if (tree.layout.grades(checkpoint) / "grades.json").is_file():
            yield from _named(_check_rows(tree, checkpoint, benchmarks, by_benchmark))
        elif by_benchmark and "grades" not in left_out:
            yield f"{path}: {checkpoint.path.as_posix()}: scored, but nothing was graded"


def _check_rows(
    tree: Tree, checkpoint: Checkpoint, benchmarks: Sequence[str], written: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    missing = [(checkpoint.run.model, key) for key, row in written.items() if row["how"] == NOT_RUN]
    for row in rows(tree.layout, [checkpoint], benchmarks, missing=missing):
        where = f"{tree.layout.scores}: {checkpoint.path.as_posix()} {row['benchmark']}"
        if row["benchmark"] not in written:
            yield f"{where}: no such row, though it was graded"
            continue
        cells = written[row["benchmark"]]
        for name in (name for name in row if name != CODE):
            a, b = row[name], cells[name]
            both = isinstance(a, float) and isinstance(b, float)
            if a != b and not (both and math.isclose(a, b, rel_tol=ROUNDING, abs_tol=ROUNDING)):
                yield f"{where}: {name} is {b}, the grades give {a}"
                break


def main() -> int:
    parser = Parser(description="Write manifest.json: hash and origin of every file of a results tree.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    args = parser.parse_args()
    tree = open_tree(args.results)
    broken = broken_links(tree)
    if broken:
        print("\n".join(broken))
        print(f"{args.results}: no manifest written: {len(broken)} files or figures do not follow from their sources")
        return 1
    manifest = build(tree)
    write_json(args.results / NAME, manifest)
    size = sum(entry["bytes"] for entry in manifest["files"].values())
    counts = ", ".join(f"{len(manifest[part])} {what}" for part, what in PARTS.items())
    print(f"{args.results / NAME}: {counts}, {size:,} bytes")
    return 0


if __name__ == "__main__":
    errors.run(main)
