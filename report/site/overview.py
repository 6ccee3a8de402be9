"""The first view of the page: warnings, what was run with which code, benchmarks, versions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from core.results_tree import Tree
from report.site.runs import UNKNOWN, Summary, commit, machine

FEW = 8  # methods that the front page still names one by one
# Verdicts that hide a right answer rather than show a wrong one.
HIDING = {
    "timeout": "graded as wrong because grading ran out of time",
    "error": "graded as wrong because the grader failed",
    "unparsed_gold": "could not be right: the reference answer is not readable",
}


def warnings(tree: Tree, tables: Sequence[Mapping[str, Any]], runs: Sequence[Summary]) -> list[str]:
    """Everything a reader should know before believing a number, most serious first."""
    idle, collapsed, unfinished = [], [], []
    for s in runs:
        path = s.run.path.as_posix()
        if s.record is None:
            unfinished.append(f"{path}: not finished: its folder has no run.json.")
        elif why := s.record.get("no_update"):
            idle.append(f"{path}: {why}.")
        if s.collapsed_at is not None:
            collapsed.append(f"{path}: collapsed at rollout {s.collapsed_at} (reward near zero), and training stopped.")
    sentences = [*idle, *collapsed, *unfinished]
    sentences += [note for table in tables for note in table["notes"] if note.startswith("Missing")]
    sentences += _hidden_answers(tree)
    sentences += _unequal_runs(tree, runs)
    if any(s.environment.get("dirty") for s in runs):
        sentences.append(
            "Trained from a working tree with uncommitted changes: the commit alone does not give the code."
        )
    return list(dict.fromkeys(sentences))


def _hidden_answers(tree: Tree) -> list[str]:
    """One sentence per verdict of HIDING that occurs, over all scored responses."""
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
    """Runs that share less than they should: a difference between their rows is then not only the method's."""
    sentences = []
    finished = [s for s in runs if s.record is not None]
    # Only within a model and variant: others have other weights and settings on purpose.
    for model, variant in dict.fromkeys((s.run.model, s.run.variant) for s in finished):
        records = [s.record for s in finished if (s.run.model, s.run.variant) == (model, variant) and s.record]
        inputs = [record.get("inputs") or {} for record in records]
        for what, values in (
            ("prompts", [one.get("prompts") for one in inputs]),
            ("training settings", [record["spec"].get("training") for record in records]),
        ):
            if any(value != values[0] for value in values):
                sentences.append(f"{model}: runs differ in {what}: their rows differ in more than the method.")
    # Over all variants: runs of a seed start from one base, and where a base is for all seeds all start from it.
    weights: dict[tuple[str, object], set[str | None]] = {}
    for s in finished:
        place = s.run.model, tree.base(s.run.model, s.run.seed) or s.run.seed
        weights.setdefault(place, set()).add(((s.record or {}).get("inputs") or {}).get("base"))
    for model in dict.fromkeys(model for (model, _), found in weights.items() if len(found) > 1):
        sentences.append(f"{model}: runs differ in base weights: their rows differ in more than the method.")
    return [*sentences, *(f"{line}." for line in tree.mixtures())]


def facts(tree: Tree, runs: Sequence[Summary]) -> list[tuple[str, str]]:
    """What was run, when, on what, with which code: the first thing a reader asks."""
    finished = [s for s in runs if s.record is not None]
    seconds = [s.wall_seconds for s in finished if s.wall_seconds is not None]
    titles = [str(method["title"]) for method in tree.methods.values()]
    models = [
        f"{model['title']}, standing for {model['stands_for']}" if model.get("stands_for") else str(model["title"])
        for model in tree.models
    ]
    methods = ", ".join(titles) if len(titles) <= FEW else f"{len(titles)} methods and variants, listed below"
    return [
        ("Models", ", ".join(models)),
        ("Methods", methods),
        ("Seeds", ", ".join(map(str, tree.matrix.get("seeds", []))) or UNKNOWN),
        ("Training", _training(tree.matrix.get("training") or {})),
        ("Runs", f"{len(finished)} of {len(runs)} finished, {sum(seconds):.0f} s of wall time in all"),
        ("When", _when(finished)),
        ("On", "; ".join(dict.fromkeys(machine(s.environment) for s in finished)) or UNKNOWN),
        ("Code", "; ".join(dict.fromkeys(commit(s.environment) for s in finished)) or UNKNOWN),
    ]


def _training(training: Mapping[str, Any]) -> str:
    if not training:
        return UNKNOWN
    updates = int(training.get("minibatches", 0)) * int(training.get("passes", 1))
    text = f"{training.get('rollouts')} rollouts of {training.get('prompts_per_rollout')} prompts × "
    text += f"{training.get('samples_per_prompt')} responses, {updates} updates per rollout"
    rate = training.get("learning_rate")
    return text if rate is None else f"{text}, learning rate {rate:g}"


def _when(finished: Sequence[Summary]) -> str:
    times = sorted(datetime.fromisoformat(said) for s in finished if (said := (s.record or {}).get("finished_at")))
    if not times:
        return UNKNOWN
    first, last = (time.strftime("%Y-%m-%d %H:%M") for time in (times[0], times[-1]))
    return f"runs finished {first} UTC" if first == last else f"runs finished {first} to {last} UTC"


def benchmarks(tree: Tree, tables: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The benchmarks of the scale, and the paper's in whose place each stands."""
    stands_for = {c["benchmark"]: c["stands_for"] for table in tables for c in table["columns"]}
    return [
        {
            "key": entry["key"],
            "title": entry["title"],
            "place": stands_for.get(str(entry["key"])) or entry.get("stands_for") or "itself",
            "problems": "–" if entry.get("items") is None else str(entry["items"]),
            "samples": "–" if entry.get("samples") is None else str(entry["samples"]),
        }
        for entry in tree.benchmarks
    ]


def provenance(runs: Sequence[Summary]) -> dict[str, Any]:
    """Versions of the runs' packages; where runs differ, all of them."""
    finished = [summary.environment for summary in runs if summary.record is not None]
    packages: dict[str, set[str]] = {}
    for environment in finished:
        for name, version in (environment.get("packages") or {}).items():
            if version is not None:
                packages.setdefault(str(name), set()).add(str(version))
    return {
        "packages": [(name, ", ".join(sorted(versions))) for name, versions in sorted(packages.items())],
        "python": "; ".join(dict.fromkeys(str(one.get("python") or UNKNOWN) for one in finished)) or UNKNOWN,
    }
