"""Runs of a results tree for the page: each run's state, settings and code of the runs, and warnings."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from core.errors import CorruptInputError, written_by
from core.files import cells_of, read_csv
from core.layout import BASE, REFERENCE, Checkpoint, Run
from evals.tree import Tree
from report.markdown import command

UNKNOWN = "unknown"
# Verdicts that may hide a right answer.
HIDING = {
    "timeout": "graded as wrong because grading ran out of time",
    "error": "graded as wrong because the grader failed",
    "unparsed_gold": "could not be right: the reference answer is not readable",
}


def summaries(tree: Tree) -> list[dict[str, Any]]:
    """Return the planned runs, in the matrix's order: run, title, area (under the reward curve, a fraction), record
    (run.json, empty while it is not finished) and state."""
    path = tree.layout.figures / "convergence.csv"
    with written_by(command("report.convergence", tree)), cells_of(path):
        rows = read_csv(path, "the measures of the runs", ("model", "method", "seed", "area"))
        areas = {
            Run(row["model"], row["method"], int(row["seed"])): float(row["area"]) if row["area"] else None
            for row in rows
        }
        if missing := [run.path.as_posix() for run in tree.runs if run not in areas]:
            raise CorruptInputError(f"{path}: no row for {missing[0]}, which matrix.json plans")
    found = []
    for run in tree.runs:
        record, title = tree.record(run) or {}, str(tree.methods[run.method]["title"])
        state = str(record.get("no_update") or _collapse(record) or ("finished" if record else "not finished"))
        found.append({"run": run, "title": title, "record": record, "area": areas[run], "state": state})
    return found


def _collapse(record: Mapping[str, Any]) -> str:
    """Return `collapsed at rollout 6 of 16`; empty for another end."""
    if (at := record.get("collapsed_at")) is None:
        return ""
    planned = (record.get("spec", {}).get("training") or {}).get("rollouts")
    return f"collapsed at rollout {at}" + (f" of {planned}" if planned else "")


# Names and counterparts of checkpoints.


def model_title(key: str, tree: Tree) -> str:
    return next(str(model["title"]) for model in tree.models if model["key"] == key)


def title(checkpoint: Checkpoint, tree: Tree) -> str:
    """Return `TEPO, seed 1, step 12`, with the model where the results have several.

    A run that collapsed before that step has its last policy there: the rollouts that it made are added.
    """
    run = checkpoint.run
    model = f"{model_title(run.model, tree)}: " if len(tree.models) > 1 else ""
    if run.method == BASE:
        return f"{model}base model" + (f", seed {run.seed}" if len(tree.bases[run.model]) > 1 else "")
    made = (tree.record(run) or {}).get("collapsed_at")
    early = f" (collapsed, {made} rollouts made)" if made is not None and made < checkpoint.step else ""
    return f"{model}{tree.methods[run.method]['title']}, seed {run.seed}, step {checkpoint.step}{early}"


def counterpart(checkpoint: Checkpoint, tree: Tree) -> Checkpoint | None:
    """Return GRPO/DAPO's checkpoint of the same model, settings, seed and step, else the base."""
    run, method = checkpoint.run, tree.method_for(REFERENCE)
    others = [tree.base(run.model, run.seed)]
    if method is not None and run.key not in (method, BASE):
        same = method if run.variant is None else f"{method}@{run.variant}"
        # On a sweep's fresh seeds each method is at the value chosen for it.
        same = tree.chosen.get((run.model, REFERENCE), same) if tree.is_fresh(run) else same
        others = [Checkpoint(Run(run.model, same, run.seed), checkpoint.step), *others]
    return next((other for other in others if other in tree.evaluated and other != checkpoint), None)


# The list of runs.


def groups(tree: Tree, runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs by model, a row per method; a sweep's fresh seeds come before those that choose its values."""
    last = {checkpoint.run: checkpoint.path.as_posix() for checkpoint in tree.checkpoints}
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in sorted(runs, key=lambda row: not tree.is_fresh(row["run"])):
        run, part = row["run"], ", seeds that choose the values" if tree.matrix.get("sweep") else ""
        part = ", fresh seeds" if tree.is_fresh(run) else part
        found.setdefault(model_title(run.model, tree) + part, {}).setdefault(run.method, []).append(row)
    return [{"title": title, "rows": [_row(of, last) for of in methods.values()]} for title, methods in found.items()]


def _row(runs: Sequence[Mapping[str, Any]], last: Mapping[Run, str]) -> dict[str, Any]:
    """Return a method's line: each seed, and the mean area over them unless a seed has none."""
    areas = [run["area"] for run in runs]
    return {
        "title": runs[0]["title"],
        "key": runs[0]["run"].method,
        "area": "–" if None in areas else f"{100 * fmean(areas):.2f}",
        "bad": [f"seed {run['run'].seed}: {run['state']}" for run in runs if run["state"] != "finished"],
        "seeds": [
            {
                "seed": run["run"].seed,
                "area": "–" if run["area"] is None else f"{100 * run['area']:.2f}",
                "bad": run["state"] != "finished",
                "checkpoint": last.get(run["run"]),
            }
            for run in runs
        ],
    }


def facts(tree: Tree) -> list[tuple[str, str]]:
    """Return models, methods, settings, time, machines and code of the runs as pairs of name and text."""
    records = [record for run in tree.runs if (record := tree.record(run)) is not None]
    made = [record.get("environment") or {} for record in records]
    models = [
        f"{model['title']}, standing for {model['stands_for']}" if model.get("stands_for") else str(model["title"])
        for model in tree.models
    ]
    wall, cpu = (math.fsum(record.get(name) or 0.0 for record in records) for name in ("wall_seconds", "cpu_seconds"))
    training = (tree.matrix.get("training") or {}).items()
    packages = {  # where runs differ, every version
        f"{name} {version}"
        for environment in made
        for name, version in {"python": environment.get("python"), **(environment.get("packages") or {})}.items()
        if version is not None
    }
    return [
        ("Models", ", ".join(models)),
        ("Training", ", ".join(f"{name} {value}" for name, value in training) or UNKNOWN),
        ("Runs", f"{len(records)} of {len(tree.runs)} finished, {wall:.0f} s of wall time, {cpu / 3600:.1f} CPU hours"),
        ("On", "; ".join(dict.fromkeys(map(_machine, made))) or UNKNOWN),
        ("Code", "; ".join(dict.fromkeys(map(_commit, made))) or UNKNOWN),
        ("Packages", ", ".join(sorted(packages)) or UNKNOWN),
    ]


def _machine(environment: Mapping[str, Any]) -> str:
    threads = f", {environment['threads']} threads per job" if environment.get("threads") else ""
    return f"{environment.get('cpu') or 'unknown processor'}, {environment.get('cores') or UNKNOWN} cores{threads}"


def _commit(environment: Mapping[str, Any]) -> str:
    if not environment.get("commit"):
        return "commit unknown (not a git checkout)"
    dirty = {True: " with uncommitted changes", False: "", None: " (clean or not: unknown)"}
    return f"commit {str(environment['commit'])[:12]}{dirty[environment.get('dirty')]}"


# Warnings to read before relying on a number.


def warnings(tree: Tree, runs: Sequence[Mapping[str, Any]], missing: Sequence[str]) -> list[str]:
    """Return one sentence per warning. missing: sentences on gaps in the tables."""
    sentences = [f"{run['run'].path.as_posix()}: {run['state']}." for run in runs if run["state"] != "finished"]
    sentences += [*missing, *_hidden_answers(tree)]
    sentences += [f"{line}." for line in (*tree.mixtures(), *tree.code_warnings())]
    if any((run["record"].get("environment") or {}).get("dirty") for run in runs):
        sentences.append("Trained from a working tree with uncommitted changes: the commit alone is not the code.")
    return list(dict.fromkeys(sentences))


def _hidden_answers(tree: Tree) -> Iterator[str]:
    """Yield one sentence per verdict of HIDING that occurs, over all scored responses."""
    benchmarks = {str(benchmark["key"]) for benchmark in tree.benchmarks}
    counts = [score.counts for (_, key), score in tree.scores.items() if key in benchmarks]
    for verdict, meaning in HIDING.items():
        if total := sum(count[verdict] or 0 for count in counts):
            yield f"{total} responses {meaning}."
