"""Runs of a results tree for the page: each run's state, settings and code of the runs, and warnings."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.layout import BASE, REFERENCE, Checkpoint, Run
from evals.tree import Tree

UNKNOWN = "unknown"
# Verdicts that may hide a right answer.
HIDING = {
    "timeout": "graded as wrong because grading ran out of time",
    "error": "graded as wrong because the grader failed",
    "unparsed_gold": "could not be right: the reference answer is not readable",
}


def states(tree: Tree) -> dict[Run, str]:
    """Return the state of each planned run that is not simply finished, in the matrix's order."""
    records = {run: tree.record(run) or {} for run in tree.runs}
    found = {
        run: str(record.get("no_update") or _collapse(record) or ("" if record else "not finished"))
        for run, record in records.items()
    }
    return {run: state for run, state in found.items() if state}


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
    run = checkpoint.run
    method = tree.method_for(REFERENCE + (f"@{run.variant}" if run.variant else ""))
    if tree.is_fresh(run):  # on a sweep's fresh seeds each method is at the value chosen for it
        method = tree.chosen.get((run.model, REFERENCE), method)
    others = [Checkpoint(Run(run.model, method or BASE, run.seed), checkpoint.step), tree.base(run.model, run.seed)]
    return next((other for other in others if other in tree.evaluated and other != checkpoint), None)


# Settings, machines and code of the runs.


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


def warnings(tree: Tree, missing: Sequence[str]) -> list[str]:
    """Return one sentence per warning. missing: sentences on gaps in the tables."""
    sentences = [f"{run.path.as_posix()}: {state}." for run, state in states(tree).items()]
    sentences += [*missing, *_hidden_answers(tree), *(f"{line}." for line in (*tree.mixtures(), *tree.code_warnings()))]
    if any(((tree.record(run) or {}).get("environment") or {}).get("dirty") for run in tree.runs):
        sentences.append("Trained from a working tree with uncommitted changes: the commit alone is not the code.")
    return list(dict.fromkeys(sentences))


def _hidden_answers(tree: Tree) -> Iterator[str]:
    """Yield one sentence per verdict of HIDING that occurs, over all scored responses."""
    benchmarks = {str(benchmark["key"]) for benchmark in tree.benchmarks}
    counts = [score.counts for (_, key), score in tree.scores.items() if key in benchmarks]
    for verdict, meaning in HIDING.items():
        if total := sum(count[verdict] or 0 for count in counts):
            yield f"{total} responses {meaning}."
