"""`python -m report.manifest --results results/quick`: every result file with its hash, and how it came to be.

Read from run.json, samples.json and grades.json, never guessed: what they do not say is null. Equal trees give equal
manifests apart from `written`. Not listed: `state/` (what a run would resume from) and hidden files. Checkpoints are
listed by the hash that run.json has; `python -m report.verify --weights` holds the files against it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from records import cli
from records.errors import CorruptInputError, MissingInputError
from records.layout import Checkpoint, Run
from records.read import read_json

if TYPE_CHECKING:
    from report.results import Tree

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
    value = read_json(path, "manifest (python -m report.manifest writes it)")
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
    from methods.spec import Training

    inputs, spec = record.get("inputs") or {}, record["spec"]
    return {
        **{name: inputs.get(name) for name in ("spec", "code", "method_code", "base", "prompts")},
        "trainer": spec.get("trainer"),
        "device": (spec.get("training") or {}).get("device", Training.device),
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

    from records.write import write_json
    from report import chain
    from report.results import open_tree

    tree = open_tree(given.results)
    if broken := chain.problems(tree):
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


if __name__ == "__main__":
    cli.run(main)
