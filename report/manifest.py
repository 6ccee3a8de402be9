"""`python -m report.manifest --results results/quick`: the sha256 of every result file of a tree.

Not listed: `state/` (resume data of a run), `log/` (of a logger), hidden files, and BY_HAND. Checkpoints have
the hash in run.json; inputs from outside the tree (base models, prompts, benchmarks) have the hash in their records.
`python -m report.verify` compares all of them with the files.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core import digests, errors
from core.errors import Parser
from core.files import write_json
from core.layout import BASE, SNAKEMAKE_REPORT, Checkpoint
from evals import store
from evals.tree import MANIFEST, Tree, open_tree

BY_HAND = ("graders",)  # folders of `evals.graders`, written at any time
PARTS = {"files": "files", "weights": "checkpoints", "inputs": "input files"}  # entries with a hash
FILE, FOLDER, WEIGHTS, BESIDE = "file", "folder", "weights", "configuration and tokenizer"
# Inputs of a run: name in `spec` of run.json, name of the hash in `inputs`, kind.
INPUTS = (("base", "base", WEIGHTS), ("base", "base_files", BESIDE), ("prompts", "prompts", FILE))
# Hash of a model folder, from the hashes of its files.
OF_FOLDER: Mapping[str, Callable[[Mapping[str, str]], str]] = {
    FOLDER: digests.tree,
    WEIGHTS: partial(digests.tree, pattern="*.safetensors"),
    BESIDE: digests.beside_weights,
}


@dataclass(frozen=True)
class Entry:
    """A file or model folder with the hash that a record lists. name: of an input, as in the record."""

    path: Path
    kind: str  # FILE or a key of OF_FOLDER
    sha256: str
    record: Path
    name: str = ""


def walk(root: Path) -> Iterator[Path]:
    """Yield every result below `root` that a manifest lists, sorted."""
    for folder, subfolders, files in os.walk(root):
        place = Path(folder).relative_to(root)
        in_run = len(place.parts) == 4 and place.parts[0] == "runs"
        hidden = ("state", "checkpoints", "log") if in_run else BY_HAND if not place.parts else ()
        subfolders[:] = sorted(name for name in subfolders if not name.startswith(".") and name not in hidden)
        for name in sorted(files):
            if not name.startswith(".") and (place / name).as_posix() not in (MANIFEST, SNAKEMAKE_REPORT):
                yield Path(folder, name)


def located(tree: Tree, name: str) -> Path:
    """Return the present path of an input: in the checkout that holds results/<scale>, else in the current folder."""
    beside_results = (tree.kept or tree.root).absolute().parent.parent / name
    return beside_results if beside_results.exists() else Path(name)


def entries(tree: Tree) -> Iterator[Entry]:
    """Yield what run.json, samples.json and grades.json list. Raises BenchError for a broken record."""
    bases: dict[Checkpoint | None, Path] = {}
    for run in tree.finished:
        record, value = tree.layout.run(run) / "run.json", tree.record(run) or {}
        spec, inputs = value["spec"], value.get("inputs") or {}
        for name, key, kind in INPUTS:
            if inputs.get(key) and spec.get(name):
                yield Entry(located(tree, spec[name]), kind, inputs[key], record, spec[name])
        if spec.get("base"):
            bases.setdefault(tree.base(run.model, run.seed), located(tree, spec["base"]))
        for name, digest in (value.get("outputs") or {}).items():
            yield Entry(record.parent / name, FOLDER if name.startswith("checkpoints/") else FILE, digest, record)
    for checkpoint in tree.checkpoints:
        samples, grades = tree.layout.samples(checkpoint), tree.layout.grades(checkpoint)
        weights = bases.get(checkpoint) if checkpoint.run.method == BASE else tree.layout.weights(checkpoint)
        data: dict[str, str] = {}  # benchmark -> file of its problems
        for record in (samples / "samples.json", grades / "grades.json"):
            if not record.is_file():
                continue
            value = store.read_folder(record)
            for key, kind in (("weights_sha256", WEIGHTS), ("files_sha256", BESIDE)):
                if value.get(key) and weights:
                    yield Entry(weights, kind, value[key], record)
            for benchmark, entry in value["benchmarks"].items():
                yield Entry(record.parent / f"{benchmark}.parquet", FILE, entry["sha256"], record)
                if entry.get("samples_sha256"):
                    yield Entry(samples / f"{benchmark}.parquet", FILE, entry["samples_sha256"], record)
                of_data = entry.get("data") or {"file": data.get(benchmark), "sha256": entry.get("data_sha256")}
                if of_data["file"] and of_data["sha256"]:
                    data[benchmark] = of_data["file"]
                    yield Entry(located(tree, data[benchmark]), FILE, of_data["sha256"], record, data[benchmark])


def build(tree: Tree) -> dict[str, Any]:
    """Return the content of manifest.json for a results tree, finished or not."""
    records = {run: record for run in tree.finished if (record := tree.record(run)) is not None}
    graded = [c for c in tree.checkpoints if (tree.layout.grades(c) / "grades.json").is_file()]
    drawn = [store.read_folder(tree.layout.samples(checkpoint) / "samples.json") for checkpoint in graded]
    made = [record.get("environment") or {} for record in (*records.values(), *drawn)]
    dirty = {environment.get("dirty") for environment in made}
    listed = list(entries(tree))
    inputs = {one.name: one.sha256 for one in reversed(listed) if one.name and one.kind == FILE}
    for name, path in {one.name: one.path for one in listed if one.name and one.kind == WEIGHTS}.items():
        inputs |= {f"{name}/{file}": digest for file, digest in digests.of_folder(path).items()}
    found = digests.of(walk(tree.root))
    return {
        "scale": tree.scale,
        "commits": sorted({environment["commit"] for environment in made if environment.get("commit")}),
        "dirty": True if True in dirty else None if None in dirty or not dirty else False,
        "missing": {
            "runs": [run.path.as_posix() for run in tree.runs if run not in records],
            "checkpoints": [c.path.as_posix() for c in tree.checkpoints if c not in graded],
        },
        "left_out": [],
        "weights": {one.path.relative_to(tree.root).as_posix(): one.sha256 for one in listed if one.kind == FOLDER},
        "inputs": inputs,
        "files": {path.relative_to(tree.root).as_posix(): digest for path, digest in found.items()},
    }


def contradictions(tree: Tree, known: Mapping[Path, str]) -> Iterator[str]:
    """Yield one line for each record that does not match a listed file. known: hashes of files, computed before."""
    listed: dict[tuple[Path, str], dict[str, Path]] = {}
    for one in entries(tree):
        listed.setdefault((one.path, one.kind), {}).setdefault(one.sha256, one.record)
    found = digests.of(p for p, kind in listed if kind == FILE and p not in known and p.is_file()) | dict(known)
    for (path, kind), records in listed.items():
        if not path.exists():
            yield f"{path}: missing, though {next(iter(records.values()))} lists it"
            continue
        now = found[path] if kind == FILE else OF_FOLDER[kind](digests.of_folder(path))
        for digest, record in records.items():
            if digest != now:
                yield f"{path}: not the {kind} that {record} lists"


def main() -> None:
    parser = Parser(description="Write manifest.json: the sha256 of every file of a results tree.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    args = parser.parse_args()
    manifest = build(open_tree(args.results))
    write_json(args.results / MANIFEST, manifest)
    print(f"{args.results / MANIFEST}: " + ", ".join(f"{len(manifest[part])} {what}" for part, what in PARTS.items()))


if __name__ == "__main__":
    errors.run(main)
