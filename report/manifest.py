"""`python -m report.manifest --results results/quick`: the sha256 of every result file of a tree.

Not listed: `state/` (resume data of a run), `log/` (of a logger), hidden files, and BY_HAND. Checkpoints have
the hash in run.json; inputs from outside the tree (base models, prompts, benchmarks) have the hash in their records.
`python -m report.verify` compares all of them with the files.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from core import digests, errors
from core.errors import Parser
from core.files import write_json
from core.layout import BASE, SNAKEMAKE_REPORT, Checkpoint
from core.provenance import sha256_file
from evals import store
from evals.tree import MANIFEST, Tree, open_tree

BY_HAND = ("graders",)  # folders of `evals.graders`, written at any time
PARTS = {"files": "files", "weights": "checkpoints", "inputs": "input files"}  # entries with a hash
FILE, FOLDER, WEIGHTS, BESIDE = "file", "folder", "weights", "configuration and tokenizer"
# Hash of a file, and those of a model folder.
HASH: Mapping[str, Callable[[Path], str]] = {
    FILE: sha256_file,
    FOLDER: lambda folder: digests.tree(digests.of_folder(folder)),
    WEIGHTS: lambda folder: digests.tree(digests.of_folder(folder), "*.safetensors"),
    BESIDE: lambda folder: digests.beside_weights(digests.of_folder(folder)),
}


class Entry(NamedTuple):
    """A file or model folder with the hash that a record lists. name: of an input, as in the record."""

    path: Path
    kind: str  # a key of HASH
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
        inputs, base, prompts = value.get("inputs") or {}, *map(value["spec"].get, ("base", "prompts"))
        for name, key, kind in ((base, "base", WEIGHTS), (base, "base_files", BESIDE), (prompts, "prompts", FILE)):
            if name and inputs.get(key):
                yield Entry(located(tree, name), kind, inputs[key], record, name)
        if base:
            bases.setdefault(tree.base(run.model, run.seed), located(tree, base))
        for name, digest in (value.get("outputs") or {}).items():
            yield Entry(record.parent / name, FOLDER if name.startswith("checkpoints/") else FILE, digest, record)
    for checkpoint in tree.checkpoints:
        samples = tree.layout.samples(checkpoint)
        weights = bases.get(checkpoint) if checkpoint.run.method == BASE else tree.layout.weights(checkpoint)
        data: dict[str, str] = {}  # benchmark -> file of its problems
        for record in (samples / "samples.json", tree.layout.grades(checkpoint) / "grades.json"):
            value = store.read_folder(record) if record.is_file() else {"benchmarks": {}}
            for key, kind in (("weights_sha256", WEIGHTS), ("files_sha256", BESIDE)):
                if weights and value.get(key):
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
    runs, graded = tree.finished, [c for c in tree.checkpoints if (tree.layout.grades(c) / "grades.json").is_file()]
    records = [tree.record(run) or {} for run in runs]
    records += [store.read_folder(tree.layout.samples(checkpoint) / "samples.json") for checkpoint in graded]
    made = [record.get("environment") or {} for record in records]
    dirty = {environment.get("dirty") for environment in made} or {None}
    listed = list(entries(tree))
    inputs = {one.name: one.sha256 for one in reversed(listed) if one.name and one.kind == FILE}
    for name, path in {one.name: one.path for one in listed if one.name and one.kind == WEIGHTS}.items():
        inputs |= {f"{name}/{file}": digest for file, digest in digests.of_folder(path).items()}
    found = digests.of(walk(tree.root))
    return {
        "scale": tree.scale,
        "commits": sorted({environment["commit"] for environment in made if environment.get("commit")}),
        "dirty": True if True in dirty else None if None in dirty else False,
        "missing": {
            "runs": [run.path.as_posix() for run in tree.runs if run not in runs],
            "checkpoints": [c.path.as_posix() for c in tree.checkpoints if c not in graded],
        },
        "left_out": [],
        "weights": {one.path.relative_to(tree.root).as_posix(): one.sha256 for one in listed if one.kind == FOLDER},
        "inputs": inputs,
        "files": {path.relative_to(tree.root).as_posix(): digest for path, digest in found.items()},
    }


def main() -> None:
    parser = Parser(description="Write manifest.json: the sha256 of every file of a results tree.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    args = parser.parse_args()
    manifest = build(open_tree(args.results))
    write_json(args.results / MANIFEST, manifest)
    print(f"{args.results / MANIFEST}: " + ", ".join(f"{len(manifest[part])} {what}" for part, what in PARTS.items()))


if __name__ == "__main__":
    errors.run(main)
