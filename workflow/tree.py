"""Extend an existing results tree: a further question adds to it and never overwrites its content.

Finished entries of the tree's matrix.json stay in its tables. Other settings are refused.
"""

import os
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from core.declared import Where
from core.errors import BenchError, ConfigError, MissingInputError
from core.files import read_json
from core.layout import Checkpoint, Results, Run, split
from core.provenance import sha256_file
from evals.tree import MANIFEST, read_manifest
from methods import catalog
from models import registry
from workflow.matrix import DRAWN, PARTS, REWARD, Matrix, base_of

Recorded = Mapping[str, Any]  # the content of a matrix.json, or the part of it that stays
LONGEST = 254  # characters of a part of a name in Snakemake's metadata
HASHED = 2**24  # bytes: larger files are not read when a call begins
OPTIONAL = ("prompts.template", *(f"evaluation.{key}" for key in (*DRAWN, "thoughts")))  # settings recorded only if set
NOTHING: Recorded = {part: [] for part in PARTS} | {"variants": {}}


def recorded(results: Results) -> tuple[Recorded, str | None]:
    """Return the tree's matrix.json (`NOTHING` without one) and, where it cannot be read, the reason."""
    if not results.matrix.is_file():
        return NOTHING, None
    try:
        content = read_json(results.matrix, "the list of planned runs")
        [content[part] for part in PARTS]
        return content, None
    except (BenchError, KeyError, TypeError) as error:
        lost = f"what earlier questions left in {results.root} is in no table until it is asked for again"
        return NOTHING, f"{error}; {lost}"


def with_steps(asked: Matrix, before: Recorded) -> list[dict[str, Any]]:
    """Return blocks for further checkpoints that a planned run has in the tree beyond those requested."""
    planned, extra = {p.run: p for p in asked.planned}, []
    for run, entry in ((_run(entry), entry) for entry in before["runs"]):
        if run in planned:
            last = asked.training(planned[run])["rollouts"]
            if steps := sorted(step for step in set(entry["steps"]) - set(planned[run].steps) if step <= last):
                variant = {} if run.variant is None else {"variant": run.variant}
                block = {"models": [run.model], "methods": [run.key], "seeds": [run.seed], "steps": steps}
                extra.append(block | variant)
    return extra


def check(settings: Mapping[str, Any], before: Recorded, stays: Recorded, results: Results, where: Where) -> None:
    """Reject settings that differ from those of the tree's finished runs. stays: result of `kept`."""
    if not any(_finished(results, entry) for entry in before["runs"]):
        return
    old = before.get("settings") or {f"training.{key}": value for key, value in before.get("training", {}).items()}
    # A variant that the last call did not use is only in `variants`. A key that only one side has is a difference.
    for name, body in before.get("variants", {}).items():
        prefix = f"variants.{name}."
        then = {prefix + key: value for key, value in body.get("changes", {}).items()}
        now = [key for key in settings if key.startswith(prefix)]
        if then and now:
            old, settings = {**old, **dict.fromkeys(now), **then}, {**dict.fromkeys(then), **settings}
    default = {"reward": [REWARD], "reward_weights": [], **dict.fromkeys(OPTIONAL)}
    old, settings = {**default, **old}, {**default, **settings}
    for key, value in settings.items():
        # A setting missing from the older record came with a newer version of this project and is not a difference.
        # Neither is an additional benchmark where all runs are requested: each is evaluated on it too.
        more = key == "evaluation.benchmarks" and set(old.get(key, [])) <= set(value) and not stays["runs"]
        if key in old and old[key] != value and not more:
            shown = [", ".join(map(str, v)) if isinstance(v, list) else v for v in (value, old[key])]
            raise ConfigError(
                f"{where(key.split('.'))}: {key}: {shown[0]}, but {results.root} holds finished runs with {shown[1]}; "
                "a tree of its own: --config name=..."
            )


class State(Enum):
    """What a record and the files beside it are worth."""

    VALID = 1
    OTHER = 2  # of other code than the planned
    DAMAGED = 3  # or without a file


def state(stage: str, record: Path, code: str, benchmarks: Iterable[str]) -> State:
    """Return the state of an existing record of training, generation or grading. code: hash of the planned code.

    Files beside the record are checked as far as that is cheap: a curve by its sha256, parquet files by their end.
    """
    try:
        content = read_json(record, "record")
        if stage == "training":
            made = f"{content['inputs']['code']}-{content['inputs']['method_code']}"
            curve = record.with_name("curve.csv")
            whole = isinstance(content["spec"], dict) and sha256_file(curve) == content["outputs"]["curve.csv"]
        else:
            made = content["code"]
            whole = all(_is_parquet(record.with_name(f"{key}.parquet")) for key in benchmarks)
    except (BenchError, OSError, KeyError, TypeError):
        return State.DAMAGED
    return State.DAMAGED if not whole else State.VALID if made == code else State.OTHER


def _is_parquet(path: Path) -> bool:
    with open(path, "rb") as stream:
        stream.seek(-min(4, path.stat().st_size), os.SEEK_END)
        return stream.read() == b"PAR1"  # the end of every parquet file


def changed(results: Results) -> list[Path]:
    """Return scores, tables, figures and pages of a finished tree that are not as its manifest lists them, except those
    that Snakemake made later; of a page's companions the page."""
    written = results.root / MANIFEST
    try:
        listed = read_manifest(results.root)["files"]
    except MissingInputError:
        return []
    except BenchError:
        return [written]
    found = set()
    for name, digest in listed.items():
        path, stage = results.root / name, name.partition("/")[0]
        of_the_page = stage == results.companions.name
        if stage in ("runs", "samples", "grades"):
            continue
        if not path.is_file():
            found.add(results.report if of_the_page else path)
        elif not of_the_page and path.stat().st_size < HASHED and sha256_file(path) != digest:
            is_later = written.stat().st_mtime < path.stat().st_mtime == made_at(path)
            found |= set() if is_later else {path}
    return sorted(found)


def made_at(path: Path) -> float | None:
    """Return the file's time at the end of the job that made it, from `snakemake.persistence.file`; None: unknown."""
    try:
        name = urlsafe_b64encode(path.as_posix().encode()).decode()
        *folders, last = (name[start : start + LONGEST] for start in range(0, len(name), LONGEST))
        note = Path(".snakemake/metadata", *(f"@{part}" for part in folders), last)
        return float(read_json(note, "Snakemake's metadata")["endtime"])
    except (BenchError, KeyError, TypeError, ValueError):
        return None


def gone(before: Recorded) -> list[str]:
    """Return models and methods of the tree that this project no longer has: its tables cannot contain their runs."""
    known = set(registry.keys())
    names = [entry["key"] for entry in before["models"] if entry["key"] not in known]
    for entry in before["methods"]:
        try:
            catalog.parse(split(entry["key"])[0])
        except ConfigError:
            names.append(entry["key"])
    return names


def kept(asked: Matrix, before: Recorded, results: Results) -> Recorded:
    """Return the finished part of the tree's matrix.json that is not requested now; `Matrix.content` adds it."""
    lost, planned = set(gone(before)), {p.run for p in asked.planned} | {base.run for base in asked.bases}
    runs = {
        run: entry
        for run, entry in ((_run(entry), entry) for entry in before["runs"])
        if run not in planned and not {run.model, run.method} & lost and _finished(results, entry)
    }
    shown = (runs.keys() | {base_of(run).run for run in runs}) - planned
    graded = [
        entry
        for entry in before["checkpoints"]
        if _run(entry) in shown and (results.grades(Checkpoint(_run(entry), entry["step"])) / "grades.json").is_file()
    ]
    return {
        "runs": list(runs.values()),
        "checkpoints": graded,
        "models": [entry for entry in before["models"] if entry["key"] in {run.model for run in runs}],
        "methods": [entry for entry in before["methods"] if entry["key"] in {run.method for run in runs}],
        "variants": {n: body for n, body in before.get("variants", {}).items() if n in {run.variant for run in runs}},
    }


def _run(entry: Mapping[str, Any]) -> Run:
    return Run(entry["model"], entry["method"], entry["seed"])


def _finished(results: Results, entry: Mapping[str, Any]) -> bool:
    return (results.run(_run(entry)) / "run.json").is_file()
