"""Extend an existing results tree: a further question adds to it and never overwrites its content.

Finished entries of the tree's matrix.json stay in its tables. Other settings are refused.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from core.declared import Where
from core.errors import BenchError, ConfigError
from core.files import json_text, parse_json, read_json
from core.layout import Checkpoint, Results, Run, split
from methods import catalog
from models import registry
from workflow.matrix import PARTS, REWARD, Matrix, base_of

Recorded = Mapping[str, Any]  # the content of a matrix.json, or the part of it that stays
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
    default = {"reward": [REWARD], "reward_weights": []}  # recorded only where they are set
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


def outdated(
    codes: Iterable[tuple[str, Path, str]], results: Results, plan: Mapping[str, Any], *, accept: bool
) -> tuple[list[str], list[str]]:
    """Return files of a tree that are rebuilt regardless of Snakemake's metadata, and one reason per stage.

    codes: stage, record and the hash of the planned code. Rebuilt are records with another hash, unless
    they are accepted; matrix.json if it is not `plan`; and all existing ones if Snakemake has no metadata of the tree,
    because `.snakemake` was removed or the tree was moved here: each command then keeps what is valid.
    """
    if not results.matrix.is_file():
        return [], []
    there = [(stage, path, _code(path) != code) for stage, path, code in codes if path.is_file()]
    # Snakemake's metadata on how a file was made: `snakemake.persistence.file`.
    note = Path(".snakemake/metadata", urlsafe_b64encode(results.matrix.as_posix().encode()).decode())
    every, again, lines = not note.is_file(), [], []
    what = "stay: accept_code" if accept else "are made again; to keep them: --config accept_code=true"
    for stage in dict.fromkeys(stage for stage, _, _ in there):
        others = [other for name, _, other in there if name == stage]
        if any(others):
            count = f"{sum(others)} of {len(others)} in {results.root}"
            lines.append(f"{stage}: {count} are of other code than today's, and {what}")
    again = [path for _, path, other in there if (not accept if other else every)]
    if every:
        again += [path for path in (results.matrix, results.scores, results.root / "manifest.json") if path.is_file()]
    elif recorded(results)[0] != parse_json(json_text(plan), "plan"):
        again.append(results.matrix)
    return [path.as_posix() for path in again], lines


def _code(path: Path) -> str | None:
    """Return the code hash in a record; None where it has none, or cannot be read."""
    try:
        record = read_json(path, "record")
        inputs = record.get("inputs", {})
        return str(record["code"] if "code" in record else f"{inputs['code']}-{inputs['method_code']}")
    except (BenchError, KeyError, TypeError, AttributeError):
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
