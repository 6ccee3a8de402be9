"""Extend an existing results tree: a further question adds to it and never overwrites its content.

Finished entries of the tree's matrix.json stay in its tables. Other settings are refused.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.declared import Where
from core.errors import BenchError, ConfigError
from core.files import json_text, parse_json, read_json
from core.layout import Checkpoint, Results, Run, split
from methods import catalog
from models import registry
from workflow import matrix
from workflow.matrix import Planned, base_of

Recorded = dict[str, Any]  # the content of a matrix.json, or the part of it that stays
OLD = "record_sha256"  # in matrix.json until 2026-11
PARTS = ("models", "methods", "runs", "checkpoints")


def recorded(results: Results) -> tuple[Recorded | None, str | None]:
    """Return the tree's matrix.json, or None and, where it cannot be read, the reason."""
    if not results.matrix.is_file():
        return None, None
    try:
        content = read_json(results.matrix, "the list of planned runs")
        [content[part] for part in PARTS]
        return content, None
    except (BenchError, KeyError, TypeError) as error:
        lost = f"what earlier questions left in {results.root} is in no table until it is asked for again"
        return None, f"{error}; {lost}"


def with_steps(config: Mapping[str, Any], planned: Sequence[Planned], before: Recorded | None) -> list[dict[str, Any]]:
    """Return blocks for further checkpoints that a planned run has in the tree beyond those requested."""
    asked = {p.run: p for p in planned}
    extra = []
    for entry in before["runs"] if before else []:
        run = _run(entry)
        if run not in asked:
            continue
        limit = matrix.training(config, asked[run])["rollouts"]
        if steps := sorted(step for step in set(entry["steps"]) - set(asked[run].steps) if step <= limit):
            block = {"models": [run.model], "methods": [run.key], "seeds": [run.seed], "steps": steps}
            extra.append(block | ({} if run.variant is None else {"variant": run.variant}))
    return extra


def check(
    settings: Mapping[str, Any], before: Recorded | None, stays: Recorded, results: Results, where: Where
) -> None:
    """Refuse settings that differ from those of the tree's finished runs. stays: result of `kept`."""
    if before is None or not any(_finished(results, entry) for entry in before["runs"]):
        return
    old = before.get("settings") or {f"training.{key}": value for key, value in before.get("training", {}).items()}
    # A variant that the last call did not use has only its entry. Compared whole: a key that one lacks is a difference.
    for name, body in before.get("variants", {}).items():
        prefix = f"variants.{name}."
        then = {prefix + key: value for key, value in body.get("changes", {}).items()}
        now = [key for key in settings if key.startswith(prefix)]
        if then and now:
            old, settings = {**old, **dict.fromkeys(now), **then}, {**dict.fromkeys(then), **settings}
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


def outdated(
    codes: Iterable[tuple[str, Path, str]], results: Results, plan: Mapping[str, Any], *, accept: bool
) -> tuple[list[str], list[str]]:
    """Return files of a tree that are rebuilt whatever Snakemake has recorded, and one reason per stage.

    codes: stage, record and the hash of the planned code. Rebuilt are records with another hash, unless
    they are accepted; matrix.json if it is not `plan`; and all existing ones if Snakemake has no metadata of the tree,
    because `.snakemake` was removed or the tree was moved here: each command then keeps what is valid.
    """
    if not results.matrix.is_file():
        return [], []
    there: dict[str, list[tuple[str, bool]]] = {}  # stage -> record, whether its code differs
    for stage, path, code in codes:
        if path.is_file():
            there.setdefault(stage, []).append((path.as_posix(), _code(path) != code))
    others = {stage: [path for path, other in found if other] for stage, found in there.items()}
    what = "stay: accept_code" if accept else "are made again; to keep them: --config accept_code=true"
    lines = [
        f"{stage}: {len(paths)} of {len(there[stage])} in {results.root} are of other code than today's, and {what}"
        for stage, paths in others.items()
        if paths
    ]
    again = [] if accept else [path for paths in others.values() for path in paths]
    if not _noted(results.matrix):
        kept = {path for paths in others.values() for path in paths} if accept else set()
        names = (results.matrix, results.scores, results.root / "manifest.json")
        every = [path for found in there.values() for path, _ in found if path not in kept]
        return [*every, *(path.as_posix() for path in names if path.is_file())], lines
    before, _ = recorded(results)
    is_plan = before is not None and {**before, OLD: None} == {**parse_json(json_text(plan), "plan"), OLD: None}
    return again if is_plan else [*again, results.matrix.as_posix()], lines


def _noted(path: Path) -> bool:
    """Return whether Snakemake has metadata on how a file was made (`snakemake.persistence.file`)."""
    return Path(".snakemake", "metadata", urlsafe_b64encode(path.as_posix().encode()).decode()).is_file()


def _code(path: Path) -> str | None:
    """Return the code hash in a record; None where it has none, or cannot be read."""
    try:
        record = read_json(path, "record")
        inputs = record.get("inputs", {})
        return str(record["code"] if "code" in record else f"{inputs['code']}-{inputs['method_code']}")
    except (BenchError, KeyError, TypeError, AttributeError):
        return None


def gone(before: Recorded | None) -> list[str]:
    """Return models and methods of the tree that this project no longer has: its tables cannot contain their runs."""
    if before is None:
        return []
    names = [entry["key"] for entry in before["models"] if entry["key"] not in set(registry.keys())]
    for entry in before["methods"]:
        try:
            catalog.parse(split(entry["key"])[0])
        except ConfigError:
            names.append(entry["key"])
    return names


def kept(planned: Sequence[Planned], before: Recorded | None, results: Results) -> Recorded:
    """Return the finished part of the tree's matrix.json that is not requested now; `matrix.matrix` adds it."""
    stays: Recorded = {part: [] for part in PARTS} | {"variants": {}}
    if before is None:
        return stays
    lost = set(gone(before))
    asked = {p.run for p in planned} | {base_of(p.run).run for p in planned}
    checkpoints = {Checkpoint(_run(entry), entry["step"]): entry for entry in before["checkpoints"]}
    graded = {
        checkpoint: entry
        for checkpoint, entry in checkpoints.items()
        if checkpoint.run not in asked and (results.grades(checkpoint) / "grades.json").is_file()
    }
    # A run that was planned without an evaluation stays for its curve.
    curves = {_run(entry) for entry in before["runs"]} - {checkpoint.run for checkpoint in checkpoints} - asked
    runs = {run for run in curves | {c.run for c in graded} if not {run.model, run.method} & lost}
    stays["runs"] = [entry for entry in before["runs"] if _run(entry) in runs and _finished(results, entry)]
    finished = {_run(entry) for entry in stays["runs"]}
    alive = finished | {base_of(run).run for run in finished}
    stays["checkpoints"] = [entry for checkpoint, entry in graded.items() if checkpoint.run in alive]
    stays["models"] = [entry for entry in before["models"] if entry["key"] in {run.model for run in finished}]
    stays["methods"] = [entry for entry in before["methods"] if entry["key"] in {run.method for run in finished}]
    variants = {run.variant for run in finished}
    stays["variants"] = {name: body for name, body in before.get("variants", {}).items() if name in variants}
    return stays


def _run(entry: Mapping[str, Any]) -> Run:
    return Run(entry["model"], entry["method"], entry["seed"])


def _finished(results: Results, entry: Mapping[str, Any]) -> bool:
    return (Path(results.run(_run(entry))) / "run.json").is_file()
