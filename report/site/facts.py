"""What stands on the page, as plain values for the template: no numbers are computed here, only worded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from records.results_tree import Tree
from report.runs import Summary
from report.tables import render
from report.tables.fill import FilledTable

UNKNOWN = "unknown"
FEW = 8  # methods that the front page still names one by one
SHARED = ("base", "prompts", "code")  # inputs of a run that all runs of a model have in common


def facts(tree: Tree, done: Sequence[Summary]) -> list[tuple[str, str]]:
    """What was run, when, on what, with which code: the first thing a reader asks."""
    finished = [s for s in done if s.record is not None]
    machines = _different(machine(_environment(s)) for s in finished)
    commits = _different(commit(_environment(s)) for s in finished)
    seconds = [s.wall_seconds for s in finished if s.wall_seconds is not None]
    models = ", ".join(_model(model) for model in tree.models)
    training = tree.matrix.get("training") or {}
    return [
        ("Models", models),
        ("Methods", _methods(tree)),
        ("Seeds", ", ".join(map(str, tree.matrix.get("seeds", []))) or UNKNOWN),
        ("Training", _training(training)),
        ("Runs", f"{len(finished)} of {len(done)} finished, {sum(seconds):.0f} s of wall time in all"),
        ("When", _when(tree, finished)),
        ("On", "; ".join(machines) or UNKNOWN),
        ("Code", "; ".join(commits) or UNKNOWN),
    ]


def table(filled: FilledTable, tree: Tree) -> dict[str, Any]:
    """A filled table for the template."""
    tidy = tree.layout.tables / f"table{filled.table.key}.tidy.csv"
    return render.context(filled, tidy.relative_to(tree.root).as_posix() if tidy.is_file() else None, "")


def benchmarks(tree: Tree, tables: Sequence[FilledTable]) -> list[dict[str, Any]]:
    """The benchmarks of the scale, and the paper's in whose place each stands."""
    place = {column.benchmark: column.stands_for for filled in tables for column in filled.columns}
    return [
        {
            "key": entry["key"],
            "title": entry["title"],
            "place": place.get(str(entry["key"])) or entry.get("stands_for") or "itself",
            "problems": _text(entry.get("items")),
            "samples": _text(entry.get("samples")),
        }
        for entry in tree.benchmarks
    ]


def run(summary: Summary, tree: Tree) -> dict[str, Any]:
    """One line of the table of runs, and the record it was read from."""
    folder = tree.layout.run(summary.run).relative_to(tree.root).as_posix()
    state = "not finished"
    if summary.finished:
        state = "finished" if summary.collapsed_at is None else f"collapsed at rollout {summary.collapsed_at}"
    return {
        "title": summary.title,
        "key": summary.run.method,
        "model": summary.run.model,
        "seed": summary.run.seed,
        "folder": folder,
        "differs": summary.differs,
        "rollouts": _text(summary.rollouts),
        "reward": UNKNOWN if summary.first is None else f"{_share(summary.first)} → {_share(summary.last)}",
        "area": "–" if summary.area is None else f"{summary.area:.3f}",
        "to_half": _text(summary.to_half),
        "seconds": "–" if summary.wall_seconds is None else f"{summary.wall_seconds:.0f}",
        "state": state,
        "bad": state != "finished",
    }


def provenance(tree: Tree, done: Sequence[Summary]) -> dict[str, Any]:
    """Versions and hashes; where runs differ, all of them."""
    records = [s.record for s in done if s.record is not None]
    packages: dict[str, set[str]] = {}
    for summary in done:
        for name, version in (_environment(summary).get("packages") or {}).items():
            if version is not None:
                packages.setdefault(str(name), set()).add(str(version))
    return {
        "packages": [(name, ", ".join(sorted(versions))) for name, versions in sorted(packages.items())],
        "python": "; ".join(_different(str(_environment(s).get("python") or UNKNOWN) for s in done if s.record))
        or UNKNOWN,
        "inputs": sorted({(k, str(r["inputs"][k])) for r in records for k in SHARED if k in (r.get("inputs") or {})}),
        "outputs": [
            (s.run.path.as_posix(), str(name), str(digest))
            for s in done
            if s.record is not None
            for name, digest in sorted((s.record.get("outputs") or {}).items())
        ],
    }


def _environment(summary: Summary) -> Mapping[str, Any]:
    return (summary.record or {}).get("environment") or {}


def machine(environment: Mapping[str, Any]) -> str:
    cores = environment.get("cores")
    named = str(environment.get("cpu") or "unknown processor")
    threads = environment.get("threads")
    return f"{named}, {cores or UNKNOWN} cores" + (f", {threads} thread per job" if threads else "")


def commit(environment: Mapping[str, Any]) -> str:
    commit = environment.get("commit")
    if not commit:
        return "commit unknown (not a git checkout)"
    dirty = environment.get("dirty")
    return f"commit {str(commit)[:12]}" + (
        " with uncommitted changes" if dirty else "" if dirty is False else " (clean or not: unknown)"
    )


def _when(tree: Tree, finished: Sequence[Summary]) -> str:
    """From the run records' file times: the latest moment each can have been written."""
    moments = [(tree.layout.run(s.run) / "run.json").stat().st_mtime for s in finished]
    if not moments:
        return "no run is finished"
    first, last = (datetime.fromtimestamp(m, tz=UTC).strftime("%Y-%m-%d %H:%M") for m in (min(moments), max(moments)))
    return f"runs finished {first} UTC" if first == last else f"runs finished {first} to {last} UTC"


def _methods(tree: Tree) -> str:
    titles = [str(method["title"]) for method in tree.methods.values()]
    return ", ".join(titles) if len(titles) <= FEW else f"{len(titles)} methods and variants, listed under Runs"


def _model(model: Mapping[str, Any]) -> str:
    return f"{model['title']}, standing for {model['stands_for']}" if model.get("stands_for") else str(model["title"])


def _training(training: Mapping[str, Any]) -> str:
    if not training:
        return UNKNOWN
    updates = int(training.get("minibatches", 0)) * int(training.get("passes", 1))
    text = f"{training.get('rollouts')} rollouts of {training.get('prompts_per_rollout')} prompts × "
    text += f"{training.get('samples_per_prompt')} responses, {updates} updates per rollout"
    rate = training.get("learning_rate")
    return text + (f", learning rate {rate:g}" if rate is not None else "")


def _different(values: Any) -> list[str]:
    return list(dict.fromkeys(values))


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _text(value: object) -> str:
    return "–" if value is None else str(value)
