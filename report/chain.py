"""Does each file follow from the one before it? run.json -> samples.json -> grades.json -> scores.csv.

Needs no manifest: every link is a hash that the later file holds of the earlier one; scores are computed again.
A link whose earlier end was left out of the tree (a reference has no samples) is not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from records.errors import BenchError
from records.layout import BASE, Checkpoint, Run
from records.provenance import sha256_bytes, sha256_file
from records.read import read_json
from report.columns import content, stored

if TYPE_CHECKING:
    from report.results import Tree

ROUNDING = 1e-9  # of scores computed again: other versions of numerical libraries sum in another order


def problems(tree: Tree, left_out: Collection[str] = ()) -> list[str]:
    """One line for each link that does not hold, in the order of the chain. left_out: kinds of files not kept here."""
    found = [line for run in tree.finished for line in _run(tree, run)]
    graded = {c: [*_samples(tree, c), *_grades(tree, c)] for c in tree.checkpoints}
    found += [line for lines in graded.values() for line in lines]
    if tree.layout.scores.is_file():
        found += _scores(tree, [checkpoint for checkpoint, lines in graded.items() if not lines], left_out)
    return found


def _run(tree: Tree, run: Run) -> Iterator[str]:
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
    from evals.stats.scorefile import AVERAGES, KEYS, NOT_RUN

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
