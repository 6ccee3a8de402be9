"""Runs of a results tree for the page: each run's state, settings and code of the runs, and warnings."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean
from typing import Any

from core.errors import CorruptInputError, written_by
from core.files import cells_of, read_csv
from core.layout import BASE, REFERENCE, Checkpoint, Run
from evals.tree import Tree

UNKNOWN = "unknown"
FEW = 8  # methods that the page still lists by name
# Verdicts that hide a right answer rather than show a wrong one.
HIDING = {
    "timeout": "graded as wrong because grading ran out of time",
    "error": "graded as wrong because the grader failed",
    "unparsed_gold": "could not be right: the reference answer is not readable",
}


@dataclass(frozen=True)
class Summary:
    """A planned run. Rewards are fractions; None: not finished, or not defined."""

    run: Run
    title: str
    differs: tuple[str, ...]  # from GRPO/DAPO, slot by slot
    planned: int | None  # rollouts; the area is over these
    rollouts: int | None  # trained: fewer where it collapsed
    area: float | None  # under the reward curve
    record: Mapping[str, Any] | None  # run.json

    @property
    def environment(self) -> Mapping[str, Any]:
        return (self.record or {}).get("environment") or {}

    @property
    def collapsed_at(self) -> int | None:
        return (self.record or {}).get("collapsed_at")

    @property
    def state(self) -> str:
        if self.record is None:
            return "not finished"
        collapsed = "finished" if self.collapsed_at is None else f"collapsed at rollout {self.collapsed_at}"
        return str(self.record.get("no_update") or collapsed)


def summaries(tree: Tree) -> list[Summary]:
    """Return one summary per planned run, in the matrix's order, from the files of `report.convergence`."""
    with written_by(f"python -m report.convergence --results {tree.root}"):
        curves = _by_run(tree, "convergence.csv", ("planned", "rollouts", "area"))
        losses = _by_run(tree, "convergence_runs.csv", ("differs",))
        with cells_of(tree.layout.figures / "convergence.csv"):
            return _summaries(tree, curves, losses)


def _summaries(
    tree: Tree, curves: Mapping[Run, Mapping[str, str]], losses: Mapping[Run, Mapping[str, str]]
) -> list[Summary]:
    return [
        Summary(
            run=run,
            title=str(tree.methods[run.method]["title"]),
            differs=tuple(filter(None, losses[run]["differs"].split("; "))),
            planned=int(curves[run]["planned"] or 0) or None,
            rollouts=int(curves[run]["rollouts"] or 0) or None,
            area=float(curves[run]["area"]) if curves[run]["area"] else None,
            record=tree.record(run),
        )
        for run in tree.runs
    ]


def _by_run(tree: Tree, name: str, columns: Sequence[str]) -> dict[Run, dict[str, str]]:
    path = tree.layout.figures / name
    rows = read_csv(path, "the measures of the runs", ("model", "method", "seed", *columns))
    with cells_of(path):
        found = {Run(row["model"], row["method"], int(row["seed"])): row for row in rows}
    if missing := [run.path.as_posix() for run in tree.runs if run not in found]:
        raise CorruptInputError(f"{path}: no row for {missing[0]}, which matrix.json plans")
    return found


# Names and counterparts of checkpoints.


def model_title(key: str, tree: Tree) -> str:
    return next(str(model["title"]) for model in tree.models if model["key"] == key)


def title(checkpoint: Checkpoint, tree: Tree) -> str:
    """Return `TEPO, seed 1, step 12`, with the model where the results have several."""
    run = checkpoint.run
    model = f"{model_title(run.model, tree)}: " if len(tree.models) > 1 else ""
    if run.method == BASE:
        return f"{model}base model" + (f", seed {run.seed}" if len(tree.bases[run.model]) > 1 else "")
    return f"{model}{tree.methods[run.method]['title']}, seed {run.seed}, step {checkpoint.step}"


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


def groups(tree: Tree, runs: Sequence[Summary]) -> list[dict[str, Any]]:
    """Return the runs by model, a row per method; a sweep's fresh seeds come before those that choose its values."""
    found: dict[str, dict[str, list[Summary]]] = {}
    for summary in sorted(runs, key=lambda one: not tree.is_fresh(one.run)):
        part = ", seeds that choose the values" if tree.matrix.get("sweep") else ""
        part = ", fresh seeds" if tree.is_fresh(summary.run) else part
        group = found.setdefault(model_title(summary.run.model, tree) + part, {})
        group.setdefault(summary.run.method, []).append(summary)
    return [{"title": title, "rows": [_row(of, tree) for of in methods.values()]} for title, methods in found.items()]


def _row(runs: Sequence[Summary], tree: Tree) -> dict[str, Any]:
    """Return a method's line: each seed, and the mean area over them unless a seed has none."""
    areas = [summary.area for summary in runs if summary.area is not None]
    seconds = [summary.record.get("wall_seconds") for summary in runs if summary.record]
    last = {checkpoint.run: checkpoint for checkpoint in tree.checkpoints}
    return {
        "title": runs[0].title,
        "key": runs[0].run.method,
        "slots": ", ".join(part.partition(":")[0].partition(" (")[0] for part in runs[0].differs),
        "differs": runs[0].differs,
        "area": f"{100 * fmean(areas):.2f}" if len(areas) == len(runs) else "–",
        "seconds": f"{math.fsum(filter(None, seconds)):.0f}" if any(seconds) else "–",
        "bad": [f"seed {s.run.seed}: {s.state}" for s in runs if s.state != "finished"],
        "seeds": [
            {
                "seed": s.run.seed,
                "area": "–" if s.area is None else f"{100 * s.area:.2f}",
                "bad": s.state != "finished",
                "checkpoint": last[s.run].path.as_posix() if s.run in last else None,
            }
            for s in runs
        ],
    }


# Facts about the runs.


def facts(tree: Tree, runs: Sequence[Summary]) -> list[tuple[str, str]]:
    """Return models, methods, settings, time, machines and code of the runs as pairs of name and text."""
    finished = [s for s in runs if s.record is not None]
    titles = [str(method["title"]) for method in tree.methods.values()]
    models = [
        f"{model['title']}, standing for {model['stands_for']}" if model.get("stands_for") else str(model["title"])
        for model in tree.models
    ]
    seconds = math.fsum((s.record or {}).get("wall_seconds") or 0.0 for s in finished)
    times = sorted(datetime.fromisoformat(at) for s in finished if (at := (s.record or {}).get("finished_at")))
    when = list(dict.fromkeys(time.strftime("%Y-%m-%d %H:%M") for time in (times[:1] + times[-1:])))
    return [
        ("Models", ", ".join(models)),
        ("Methods", ", ".join(titles) if len(titles) <= FEW else f"{len(titles)} methods and variants, listed below"),
        ("Seeds", ", ".join(map(str, tree.matrix.get("seeds", []))) or UNKNOWN),
        ("Training", _training(tree.matrix.get("training") or {})),
        ("Runs", f"{len(finished)} of {len(runs)} finished, {seconds:.0f} s of wall time in all"),
        ("When", f"finished {' to '.join(when)} UTC" if when else UNKNOWN),
        ("On", "; ".join(dict.fromkeys(_machine(s.environment) for s in finished)) or UNKNOWN),
        ("Code", "; ".join(dict.fromkeys(_commit(s.environment) for s in finished)) or UNKNOWN),
        ("Packages", _packages([s.environment for s in finished]) or UNKNOWN),
    ]


def _training(training: Mapping[str, Any]) -> str:
    if not training:
        return UNKNOWN
    updates = int(training.get("minibatches", 0)) * int(training.get("passes", 1))
    text = f"{training.get('rollouts')} rollouts of {training.get('prompts_per_rollout')} prompts × "
    text += f"{training.get('samples_per_prompt')} responses, {updates} updates per rollout"
    rate = training.get("learning_rate")
    return text if rate is None else f"{text}, learning rate {rate:g}"


def _machine(environment: Mapping[str, Any]) -> str:
    text = f"{environment.get('cpu') or 'unknown processor'}, {environment.get('cores') or UNKNOWN} cores"
    threads = environment.get("threads")
    return f"{text}, {threads} thread{'s' * (str(threads) != '1')} per job" if threads else text


def _commit(environment: Mapping[str, Any]) -> str:
    if not environment.get("commit"):
        return "commit unknown (not a git checkout)"
    dirty = {True: " with uncommitted changes", False: "", None: " (clean or not: unknown)"}
    return f"commit {str(environment['commit'])[:12]}{dirty[environment.get('dirty')]}"


def _packages(environments: Sequence[Mapping[str, Any]]) -> str:
    """Return the versions of the runs' packages; where runs differ, all of them."""
    found: dict[str, dict[str, None]] = {}
    for environment in environments:
        versions = {"python": environment.get("python"), **(environment.get("packages") or {})}
        for name, version in versions.items():
            if version is not None:
                found.setdefault(str(name), {})[str(version)] = None
    return ", ".join(f"{name} {' and '.join(versions)}" for name, versions in sorted(found.items()))


# Warnings to read before relying on a number.


def warnings(tree: Tree, runs: Sequence[Summary], missing: Sequence[str]) -> list[str]:
    """Return one sentence per warning, most serious first. missing: gaps in the tables, in sentences."""
    idle, collapsed, unfinished, edited = [], [], [], []
    for s in runs:
        path = s.run.path.as_posix()
        if s.record is None:
            unfinished.append(f"{path}: not finished: its folder has no run.json.")
        elif why := s.record.get("no_update"):
            idle.append(f"{path}: {why}.")
        if s.record and (line := s.record.get("code_warning")):
            edited.append(f"{path}: {line}.")
        if s.collapsed_at is not None:
            collapsed.append(f"{path}: collapsed at rollout {s.collapsed_at} (reward near zero), and training stopped.")
    sentences = [*idle, *collapsed, *unfinished, *missing, *_hidden_answers(tree), *_unequal_runs(tree, runs), *edited]
    if any(s.environment.get("dirty") for s in runs):
        sentences.append("Trained from a working tree with uncommitted changes: the commit alone is not the code.")
    return list(dict.fromkeys(sentences))


def _hidden_answers(tree: Tree) -> list[str]:
    """Return one sentence per verdict of HIDING that occurs, over all scored responses."""
    benchmarks = {str(benchmark["key"]) for benchmark in tree.benchmarks}
    sentences = []
    for verdict, meaning in HIDING.items():
        counts: Counter[tuple[str, str]] = Counter()  # over models, seeds and checkpoints
        for (checkpoint, key), score in tree.scores.items():
            if key in benchmarks and (count := score.counts[verdict]):
                counts[checkpoint.run.method, key] += count
        if counts:
            ((method, benchmark), most), *_ = counts.most_common(1)
            sentences.append(f"{counts.total()} responses {meaning} (most: {method} on {benchmark}, {most}).")
    return sentences


def _unequal_runs(tree: Tree, runs: Sequence[Summary]) -> list[str]:
    """Return a sentence for each input that runs should share and do not."""
    found: dict[tuple[str, object, str], list[object]] = {}  # by model, variant or base, and the shared input
    for s in runs:
        if s.record is None:
            continue
        inputs = s.record.get("inputs") or {}
        found.setdefault((s.run.model, s.run.variant, "prompts"), []).append(inputs.get("prompts"))
        settings = s.record["spec"].get("training")
        found.setdefault((s.run.model, s.run.variant, "training settings"), []).append(settings)
        # Over all variants: runs of a seed share a base; where one base is for all seeds, all runs start from it.
        base = tree.base(s.run.model, s.run.seed) or s.run.seed
        found.setdefault((s.run.model, base, "base weights"), []).append(inputs.get("base"))
    sentences = [
        f"{model}: runs differ in {what}: their rows differ in more than the method."
        for (model, _, what), values in found.items()
        if any(value != values[0] for value in values)
    ]
    return [*sentences, *(f"{line}." for line in (*tree.mixtures(), *tree.code_warnings()))]
