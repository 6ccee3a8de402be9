"""`python -m report.manifest --results results/quick`: every result file of a tree with its sha256.

Not listed: `state/` (resume data of a run), `log/` (of a logger), hidden files, and BY_HAND. Checkpoints have
the hash that run.json records, inputs from outside the tree (base models, prompts, benchmarks) that of their readers.
`python -m report.verify` reads them all and follows the chain of records.
"""

import math
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core import digests, errors
from core.errors import BenchError, Parser
from core.files import write_json
from core.layout import BASE, SNAKEMAKE_REPORT, Checkpoint, Run
from core.provenance import environment, sha256_file
from evals import store
from evals.score import check_model, rows
from evals.scores import AVERAGES, CODE, KEYS, NOT_RUN, read_rows
from evals.tree import MANIFEST, Tree, open_tree

SCHEMA = 3  # 2 also had facts that are now in records
BY_HAND = ("graders",)  # folders of `evals.graders`, written at any time
PARTS = {"files": "files", "weights": "checkpoints", "inputs": "input files"}  # entries with a hash
ROUNDING = 1e-9  # of recomputed scores: other versions of numerical libraries sum in another order


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


def build(tree: Tree) -> dict[str, Any]:
    """Return the content of manifest.json for a results tree, finished or not."""
    records = {run: record for run in tree.finished if (record := tree.record(run)) is not None}
    graded = [c for c in tree.checkpoints if (tree.layout.grades(c) / "grades.json").is_file()]
    drawn = [store.read_folder(tree.layout.samples(checkpoint) / "samples.json") for checkpoint in graded]
    made = [record.get("environment") or {} for record in (*records.values(), *drawn)]
    dirty = {environment.get("dirty") for environment in made}
    inputs = {
        f"{base}/{name}": digest
        for base in bases(tree)
        for name, digest in digests.of_folder(located(tree, base)).items()
    }
    inputs |= {name: next(iter(named)) for name, named in single_files(tree).items()}
    found = digests.of(walk(tree.root))
    return {
        "schema": SCHEMA,
        "scale": tree.scale,
        "commits": sorted({environment["commit"] for environment in made if environment.get("commit")}),
        "dirty": True if True in dirty else None if None in dirty or not dirty else False,
        "missing": {
            "runs": [run.path.as_posix() for run in tree.runs if run not in records],
            "checkpoints": [c.path.as_posix() for c in tree.checkpoints if c not in graded],
        },
        "left_out": [],
        "weights": {
            f"runs/{run.path.as_posix()}/{name}": digest
            for run, record in records.items()
            for name, digest in sorted(_checkpoints(record).items())
        },
        "inputs": dict(sorted(inputs.items())),
        "files": {path.relative_to(tree.root).as_posix(): digest for path, digest in found.items()},
        "written": {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "environment": environment()},
    }


def _checkpoints(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the sha256 of each `checkpoints/step<n>` that run.json lists."""
    return {name: digest for name, digest in record.get("outputs", {}).items() if name.startswith("checkpoints/")}


# Inputs from outside the tree, named as in run.json and samples.json: relative to the checkout of the commands.


def located(tree: Tree, name: str) -> Path:
    """Return the present path of an input: in the checkout that holds results/<scale>, else in the current folder."""
    beside_results = (tree.kept or tree.root).absolute().parent.parent / name
    return beside_results if beside_results.exists() else Path(name)


def _of_run(tree: Tree, run: Run, key: str) -> dict[str, Any]:
    """Return a part of run.json, empty where it is missing."""
    return (tree.record(run) or {}).get(key) or {}


def bases(tree: Tree) -> dict[str, list[Run]]:
    """Return the folders of base models, each with the runs that were trained from it."""
    folders: dict[str, list[Run]] = {}
    for run in tree.finished:
        if base := _of_run(tree, run, "spec").get("base"):
            folders.setdefault(base, []).append(run)
    return folders


def single_files(tree: Tree) -> dict[str, dict[str, Path]]:
    """Return prompts and benchmarks by name, each by sha256 with a record that lists it; two hashes are a conflict."""
    found: dict[str, dict[str, Path]] = {}
    for run in tree.finished:
        name, digest = _of_run(tree, run, "spec").get("prompts"), _of_run(tree, run, "inputs").get("prompts")
        if name and digest:
            found.setdefault(name, {}).setdefault(digest, tree.layout.run(run) / "run.json")
    for checkpoint in tree.checkpoints:
        path = tree.layout.samples(checkpoint) / "samples.json"
        for entry in store.read_record(path).values() if path.is_file() else ():
            if items := entry.get("data"):
                found.setdefault(items["file"], {}).setdefault(items["sha256"], path)
    return found


# The chain: run.json -> samples.json -> grades.json -> scores.csv. Every link is a hash of the earlier file in the
# later one; scores are recomputed. A link whose earlier end a kept tree omits is not checked.


def broken_links(tree: Tree, left_out: Collection[str] = (), *, read: bool = False) -> list[str]:
    """Return one line per broken link, in the order of the chain. left_out: kinds of files that this tree omits.

    read: hash base models and checkpoints too, which takes long.
    """
    lines: list[str] = []
    for path in sorted(tree.root.glob("graders/*/*/*/*/graders.json")):
        lines += _named(_check_parquets(path))
    if "inputs" not in left_out:
        for base, runs in bases(tree).items() if read else ():
            lines += _named(_check_base(tree, base, runs))
        for name, named in single_files(tree).items():
            lines += _named(_check_file(located(tree, name), named))
    for run in tree.finished:
        folder, record = tree.layout.run(run), tree.layout.run(run) / "run.json"
        curve = folder / "curve.csv"
        if not curve.is_file():
            lines.append(f"{curve}: missing, though {record} lists it")
        elif "weights" not in left_out:
            if sha256_file(curve) != _of_run(tree, run, "outputs").get("curve.csv"):
                lines.append(f"{curve}: not the curve that {record} was written for")
            for name, digest in _checkpoints(tree.record(run) or {}).items():
                lines += _named(_check_weights(tree, run, name, digest, read=read))
    sound = []
    for checkpoint in tree.checkpoints:
        broken = [*_check_samples(tree, checkpoint), *_check_grades(tree, checkpoint)]
        lines += broken
        if not broken:
            sound.append(checkpoint)
    if tree.layout.scores.is_file():
        lines += _named(_check_scores(tree, sound, left_out))
    return lines


def _named(lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines of a check. An unreadable file ends it, and the last line names that file."""
    try:
        yield from lines
    except BenchError as error:
        yield str(error)


def _check_base(tree: Tree, base: str, runs: Sequence[Run]) -> Iterator[str]:
    """Check that runs record the content of a base model that its builder wrote."""
    folder = located(tree, base)
    if not folder.is_dir():
        yield f"{folder}: missing, though {tree.layout.run(runs[0]) / 'run.json'} names it"
        return
    found = digests.check_model(folder)
    now = {"base": digests.tree(found, "*.safetensors"), "base_files": digests.beside_weights(found)}
    for run in runs:
        inputs = _of_run(tree, run, "inputs")
        for name, digest in now.items():
            if inputs.get(name) not in (None, digest):  # None: the run is older than the digest
                yield f"{folder}: {name}: not what {tree.layout.run(run) / 'run.json'} was trained from"


def _check_file(path: Path, named: Mapping[str, Path]) -> Iterator[str]:
    """Check prompts and benchmarks in the same way."""
    if not path.is_file():
        yield f"{path}: missing, though {next(iter(named.values()))} names it"
        return
    now = sha256_file(path)
    for digest, record in named.items():
        if digest != now:
            yield f"{path}: not the file that {record} was made from"


def _check_weights(tree: Tree, run: Run, name: str, digest: str, *, read: bool) -> Iterator[str]:
    """Check that a checkpoint matches run.json and its samples."""
    folder, record = tree.layout.run(run) / name, tree.layout.run(run) / "run.json"
    if not folder.is_dir():
        yield f"{folder}: missing, though {record} lists it"
        return
    if not read:
        return
    found = digests.check_model(folder)
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
    """Check that the files next to a record are those that it lists."""
    for key, entry in store.read_folder(path)["benchmarks"].items():
        parquet = path.parent / f"{key}.parquet"
        if not parquet.is_file():
            yield f"{parquet}: missing, though {path} lists it"
        elif sha256_file(parquet) != entry["sha256"]:
            yield f"{parquet}: not the file that {path} was written for"


def _check_scores(tree: Tree, sound: Sequence[Checkpoint], left_out: Collection[str]) -> Iterator[str]:
    """Compare scores.csv cell by cell with the grades of the checkpoints whose files are sound."""
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
    parser = Parser(description="Write manifest.json: the sha256 of every file of a results tree.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    args = parser.parse_args()
    tree = open_tree(args.results)
    broken = broken_links(tree)
    if broken:
        print("\n".join(broken))
        print(f"{args.results}: no manifest written: {len(broken)} files or figures do not follow from their sources")
        return 1
    manifest = build(tree)
    write_json(args.results / MANIFEST, manifest)
    print(f"{args.results / MANIFEST}: " + ", ".join(f"{len(manifest[part])} {what}" for part, what in PARTS.items()))
    return 0


if __name__ == "__main__":
    errors.run(main)
