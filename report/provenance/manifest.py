"""`python -m report.provenance.manifest --results results/quick`: every result file with its hash and origin.

Read from run.json, samples.json and grades.json, never guessed: what they do not say is null. Equal trees give equal
manifests apart from `written`. Not listed: `state/` (what a run would resume from) and hidden files. Checkpoints are
listed by the hash that run.json has; `python -m report.verify --weights` holds the files against it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from records import errors
from records.errors import BenchError, CorruptInputError, MissingInputError
from records.files import content, read_json, stored
from records.layout import BASE, Checkpoint, Run
from records.provenance import sha256_bytes, sha256_file

if TYPE_CHECKING:
    from records.results_tree import Tree

NAME = "manifest.json"
NATIVE = "snakemake.html"  # Snakemake's own report, which somebody may add afterwards
SCHEMA = 1
KINDS = {  # the first pattern that fits; `*` also stands for several folders
    "runs/*/run.json": "run record",
    "runs/*/curve.csv": "curve",
    "runs/*/curve.csv.gz": "curve",
    "samples/*/samples.json": "samples record",
    "samples/*.parquet": "samples",
    "grades/*/grades.json": "grades record",
    "grades/*.parquet": "grades",
    "matrix.json": "plan",
    "scores.csv": "scores",
    "tables/*": "table",
    "figures/*": "figure",
    "claims.*": "claims",
    "paper/*": "audit",
    "report.html": "report",
    "report.data/*": "report data",
    "README.md": "readme",
    "*": "other",
}
DEPTH = {"runs": 3, "samples": 4, "grades": 4}  # parts of a folder's name that say which run or checkpoint it is


def walk(root: Path) -> Iterator[Path]:
    """Every result below `root`, sorted: no checkpoints, `state/`, hidden files, manifest or Snakemake report."""
    for folder, below, files in os.walk(root):
        place = Path(folder).relative_to(root)
        in_run = len(place.parts) == 4 and place.parts[0] == "runs"
        below[:] = sorted(
            name for name in below if not name.startswith(".") and not (in_run and name in ("state", "checkpoints"))
        )
        for name in sorted(files):
            if not name.startswith(".") and (place / name).as_posix() not in (NAME, NATIVE):
                yield Path(folder, name)


def kind(name: str) -> str:
    """What the file `name` (relative to the tree) is.

    >>> kind("runs/tiny/tepo/seed1/curve.csv")
    'curve'
    """
    return next(kind for pattern, kind in KINDS.items() if fnmatchcase(name, pattern))


def of(name: str) -> str | None:
    """The run or checkpoint that a file belongs to.

    >>> of("samples/tiny/tepo/seed1/step8/syn_seq.parquet")
    'tiny/tepo/seed1/step8'
    """
    parts = name.split("/")
    depth = DEPTH.get(parts[0])
    return "/".join(parts[1 : 1 + depth]) if depth and len(parts) > 1 + depth else None


def file_entry(root: Path, path: Path) -> dict[str, Any]:
    from records.provenance import sha256_file

    name = path.relative_to(root).as_posix()
    entry = {"sha256": sha256_file(path), "bytes": path.stat().st_size, "kind": kind(name)}
    return entry if of(name) is None else {**entry, "of": of(name)}


def folder_size(folder: Path) -> dict[str, int]:
    """Files and bytes of a checkpoint: cheap to hold against, where hashing takes long."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {"files": len(files), "bytes": sum(path.stat().st_size for path in files)}


def read(root: Path) -> dict[str, Any]:
    """The manifest of the tree at `root`."""
    path = root / NAME
    value = read_json(path, "manifest (python -m report.provenance.manifest writes it)")
    for key in ("files", "weights", "left_out", "scale"):
        if not isinstance(value, dict) or key not in value:
            raise CorruptInputError(f"{path}: {key} is missing: not a manifest")
    return value


def build(tree: Tree) -> dict[str, Any]:
    """The content of manifest.json for a results tree, finished or not."""
    from records.provenance import environment, sha256_file

    environments: dict[str, dict[str, Any]] = {}

    def known(described: dict[str, Any] | None) -> str | None:
        """Environments are few and long: each is written once, under its own hash."""
        if described is None:
            return None
        name = _digest(described)
        environments[name] = described
        return name

    root, there = tree.root, {run: record for run in tree.finished if (record := tree.record(run)) is not None}
    records = {run: _run(record, known(record.get("environment"))) for run, record in there.items()}
    evaluated = {c: entry for c in tree.checkpoints if (entry := _checkpoint(tree, c, known)) is not None}
    commits = [environments[name].get("commit") for name in sorted(environments)]
    dirty = [environments[name].get("dirty") for name in sorted(environments)]
    return {
        "schema": SCHEMA,
        "scale": tree.scale,
        "config": sha256_file(tree.layout.matrix),
        "commits": sorted({c for c in commits if c is not None}),
        "dirty": True if True in dirty else None if None in dirty or not dirty else False,
        "missing": {
            "runs": [run.path.as_posix() for run in tree.runs if run not in records],
            "checkpoints": [c.path.as_posix() for c in tree.checkpoints if c not in evaluated],
        },
        "left_out": [],
        "environments": environments,
        "runs": {run.path.as_posix(): entry for run, entry in records.items()},
        "checkpoints": {c.path.as_posix(): entry for c, entry in evaluated.items()},
        "weights": {name: entry for run, record in there.items() for name, entry in _weights(tree, run, record)},
        "files": {path.relative_to(root).as_posix(): file_entry(root, path) for path in walk(root)},
        "written": {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "environment": environment()},
    }


def _digest(value: Mapping[str, Any]) -> str:
    from records.provenance import sha256_bytes

    return sha256_bytes(json.dumps(value, sort_keys=True).encode())[:12]


def _run(record: Mapping[str, Any], environment: str | None) -> dict[str, Any]:
    from methods.training.spec import Training

    inputs, spec = record.get("inputs") or {}, record["spec"]
    return {
        **{name: inputs.get(name) for name in ("spec", "code", "method_code", "base", "prompts")},
        "trainer": spec.get("trainer"),
        "device": (spec.get("training") or {}).get("device", Training.model_fields["device"].default),
        "environment": environment,
        **{name: record.get(name) for name in ("finished_at", "wall_seconds", "cpu_seconds", "collapsed_at")},
    }


def _checkpoint(tree: Tree, checkpoint: Checkpoint, known: Any) -> dict[str, Any] | None:
    """How samples were drawn and graded; None while one of the two is not there."""
    paths = tree.layout.samples(checkpoint) / "samples.json", tree.layout.grades(checkpoint) / "grades.json"
    if not all(path.is_file() for path in paths):
        return None
    samples, grades = (read_json(path, "record of an evaluation") for path in paths)
    engine = samples.get("engine") or {}
    return {
        "weights": samples.get("weights_sha256"),
        "backend": engine.get("backend"),
        "device": engine.get("device"),
        "seed": samples.get("seed"),
        "environment": known(samples.get("environment")),
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


def _weights(tree: Tree, run: Run, record: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """One entry per checkpoint that run.json lists; its folder must be there, and none that the record has not."""
    folder = tree.layout.run(run)
    listed = {name: digest for name, digest in record.get("outputs", {}).items() if name.startswith("checkpoints/")}
    for found in sorted(path for path in folder.glob("checkpoints/*") if not path.name.startswith(".")):
        if f"checkpoints/{found.name}" not in listed:
            raise CorruptInputError(f"{found}: run.json does not list it; there: {', '.join(sorted(listed)) or 'none'}")
    for name, digest in sorted(listed.items()):
        if not (folder / name).is_dir():
            raise MissingInputError(f"{folder / name}: missing, though {folder / 'run.json'} lists it")
        step = Path(name).name
        entry = {"sha256": digest, **folder_size(folder / name), "of": (run.path / step).as_posix()}
        yield (folder / name).relative_to(tree.root).as_posix(), entry


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Write manifest.json: hash and origin of every file of a results tree."
    )
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    given = parser.parse_args()

    from records.files import write_json

    pass  # DROPIMPORT
    from records.results_tree import open_tree

    tree = open_tree(given.results)
    if broken := problems(tree):
        print("\n".join(broken))
        print(f"{given.results}: no manifest written: {len(broken)} files or figures do not follow from their sources")
        return 1
    content = build(tree)
    write_json(given.results / NAME, content)
    size = sum(entry["bytes"] for part in ("files", "weights") for entry in content[part].values())
    print(
        f"{given.results / NAME}: {len(content['files'])} files, {len(content['weights'])} checkpoints, {size:,} bytes"
    )
    return 0


# Does each file follow from the one before it? run.json -> samples.json -> grades.json -> scores.csv.
#
# Needs no manifest: every link is a hash that the later file holds of the earlier one; scores are computed again.
# A link whose earlier end was left out of the tree (a reference has no samples) is not looked at.


ROUNDING = 1e-9  # of scores computed again: other versions of numerical libraries sum in another order


def problems(tree: Tree, left_out: Collection[str] = ()) -> list[str]:
    """One line for each link that does not hold, in the order of the chain. left_out: kinds of files not kept here."""
    found = [line for run in tree.finished for line in _run_chain(tree, run)]
    graded = {c: [*_samples(tree, c), *_grades(tree, c)] for c in tree.checkpoints}
    found += [line for lines in graded.values() for line in lines]
    if tree.layout.scores.is_file():
        found += _scores(tree, [checkpoint for checkpoint, lines in graded.items() if not lines], left_out)
    return found


def _run_chain(tree: Tree, run: Run) -> Iterator[str]:
    record, folder = tree.record(run), tree.layout.run(run)
    recorded = (record or {}).get("outputs", {}).get("curve.csv")
    curve = stored(folder / "curve.csv")
    if curve is None:
        yield f"{folder / 'curve.csv'}: missing, though {folder / 'run.json'} lists it"
    elif sha256_bytes(content(curve)) != recorded:
        yield f"{curve}: not the curve that {folder / 'run.json'} was written for"


def _samples(tree: Tree, checkpoint: Checkpoint) -> Iterator[str]:
    path = tree.layout.samples(checkpoint) / "samples.json"
    if not path.is_file():
        return
    record, run = read_json(path, "record of the samples"), checkpoint.run
    if run.method == BASE:
        for trained in tree.runs:
            start = ((tree.record(trained) or {}).get("inputs") or {}).get("base")
            if trained.model == run.model and start not in (None, record.get("weights_sha256")):
                yield f"{path}: drawn from another base model than {trained.path.as_posix()} was trained from"
    else:
        ours, model = tree.layout.weights(checkpoint).relative_to(tree.root), Path(str(record.get("model")))
        if model.parts[-len(ours.parts) :] != ours.parts:
            yield f"{path}: model: drawn from {model}, expected a folder that ends in {ours}"
        if f"checkpoints/step{checkpoint.step}" not in (tree.record(run) or {}).get("outputs", {}):
            yield f"{path}: {tree.layout.run(run) / 'run.json'} has no checkpoint step{checkpoint.step}"
    yield from _parquets(path, record)


def _grades(tree: Tree, checkpoint: Checkpoint) -> Iterator[str]:
    path, source = tree.layout.grades(checkpoint) / "grades.json", tree.layout.samples(checkpoint) / "samples.json"
    if not path.is_file():
        return
    record = read_json(path, "record of the grades")
    drawn = read_json(source, "record of the samples")["benchmarks"]
    for key, entry in record["benchmarks"].items():
        if entry.get("samples_sha256") != drawn.get(key, {}).get("sha256"):
            yield f"{path}: {key}: graded other samples than those of {source}"
    yield from _parquets(path, record)


def _parquets(path: Path, record: dict[str, Any]) -> Iterator[str]:
    for key, entry in record["benchmarks"].items():
        parquet = path.parent / f"{key}.parquet"
        if not parquet.is_file():
            yield f"{parquet}: missing, though {path} lists it"
        elif sha256_file(parquet) != entry["sha256"]:
            yield f"{parquet}: not the file that {path} was written for"


def _scores(tree: Tree, sound: Sequence[Checkpoint], left_out: Collection[str]) -> list[str]:
    """scores.csv against the grades of the checkpoints whose own files are sound, cell by cell."""
    from evals.score import read_scores, rows
    from records.scores import AVERAGES, KEYS, NOT_RUN

    path, found = tree.layout.scores, []
    try:
        table = read_scores(path).astype(object)
    except BenchError as error:
        return [str(error)]
    written = {tuple(row[k] for k in KEYS): row for row in table.where(table.notna(), None).to_dict("records")}
    benchmarks = list(dict.fromkeys(key[-1] for key in written if key[-1] not in AVERAGES))
    for checkpoint in sound:
        run = checkpoint.run
        mine = (run.model, run.method, run.seed, checkpoint.step)
        here = {key[-1]: row for key, row in written.items() if key[:-1] == mine}
        if not (tree.layout.grades(checkpoint) / "grades.json").is_file():
            if here and "grades" not in left_out:
                found.append(f"{path}: {checkpoint.path.as_posix()}: scored, but nothing was graded")
            continue
        missing = [(run.model, key) for key, row in here.items() if row["how"] == NOT_RUN]
        try:
            again = rows(tree.layout, [checkpoint], benchmarks, missing=missing)
        except BenchError as error:
            found.append(str(error))
            continue
        for row in again:
            at = f"{path}: {checkpoint.path.as_posix()} {row['benchmark']}"
            if row["benchmark"] not in here:
                found.append(f"{at}: no such row, though it was graded")
            elif odd := [name for name in row if not _same(row[name], here[row["benchmark"]][name])]:
                there = here[row["benchmark"]][odd[0]]
                found.append(f"{at}: {odd[0]} is {there}, the grades give {row[odd[0]]}")
    return found


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=ROUNDING, abs_tol=ROUNDING)
    return bool(a == b)


if __name__ == "__main__":
    errors.run(main)
