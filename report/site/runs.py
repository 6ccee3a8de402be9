"""The runs: how each was trained, how it went, what came out; a row a method in the list of runs, and a page each."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from core.errors import CorruptInputError
from core.layout import Checkpoint, Run
from core.results_tree import Tree
from report.markdown import percent
from report.site import links, samples
from report.view import number, rows_of_curves

UNKNOWN = "unknown"
AVERAGES = {"avg_pooled": "Avg. (pooled)", "avg_macro": "Avg. (macro)"}
RUN = ("model", "method", "seed")
FILES = {  # of `report.convergence`: what each has, and the columns read
    "convergence.csv": ("the measures of the learning curves", (*RUN, "planned", "rollouts", "area")),
    "convergence_runs.csv": ("the summary of each run", (*RUN, "differs")),
}


@dataclass(frozen=True)
class Summary:
    """One planned run. Rewards are fractions; None: not finished, or not defined."""

    run: Run
    title: str
    differs: tuple[str, ...]  # from GRPO/DAPO, slot by slot
    planned: int | None  # rollouts, over which the area is
    rollouts: int | None  # trained: fewer where it collapsed
    area: float | None  # under the reward curve
    record: Mapping[str, Any] | None  # run.json

    @property
    def environment(self) -> Mapping[str, Any]:
        return (self.record or {}).get("environment") or {}

    @property
    def wall_seconds(self) -> float | None:
        return (self.record or {}).get("wall_seconds")

    @property
    def collapsed_at(self) -> int | None:
        return (self.record or {}).get("collapsed_at")


def summaries(tree: Tree) -> list[Summary]:
    """One per planned run, in the matrix's order, from the files that `report.convergence` writes."""
    by_run: dict[Run, dict[str, str]] = {}
    with rows_of_curves(tree, FILES) as files:
        for name, rows in zip(FILES, files, strict=True):
            found = {Run(row["model"], row["method"], int(row["seed"])): row for row in rows}
            if missing := [run.path.as_posix() for run in tree.runs if run not in found]:
                path = tree.layout.figures / name
                raise CorruptInputError(f"{path}: no row for {missing[0]}, which matrix.json plans")
            for run, row in found.items():
                by_run.setdefault(run, {}).update(row)
        return [
            Summary(
                run=run,
                title=str(tree.methods[run.method]["title"]),
                differs=tuple(row["differs"].split("; ")) if row["differs"] else (),
                planned=int(row["planned"] or 0) or None,
                rollouts=int(row["rollouts"] or 0) or None,
                area=number(row["area"]),
                record=tree.record(run),
            )
            for run, row in ((run, by_run[run]) for run in tree.runs)
        ]


def line(summary: Summary) -> dict[str, Any]:
    """A run in words."""
    state = "not finished"
    if summary.record is not None:
        state = "finished" if summary.collapsed_at is None else f"collapsed at rollout {summary.collapsed_at}"
        state = summary.record.get("no_update") or state
    reward = "no mean reward yet (area)"
    if summary.area is not None and summary.planned is not None:
        rest = summary.planned - (summary.rollouts or 0)  # the area is over all planned rollouts
        zeros = f", the {rest} after the collapse counted as 0" if rest else ""
        reward = f"mean reward {percent(summary.area)} % over {summary.planned} rollouts{zeros} (area)"
    return {
        "id": links.run(summary.run),
        "title": summary.title,
        "seed": summary.run.seed,
        "differs": summary.differs,
        "reward": reward,
        "area": percent(summary.area) or "–",
        "state": state,
        "bad": state != "finished",
    }


def groups(tree: Tree, runs: Sequence[Summary]) -> list[dict[str, Any]]:
    """The list of runs by model, a row per method; a sweep's fresh seeds come before those that choose its values."""
    found: dict[str, dict[str, list[Summary]]] = {}
    for summary in sorted(runs, key=lambda one: not tree.is_fresh(one.run)):
        part = ", seeds that choose the values" if tree.matrix.get("sweep") else ""
        part = ", fresh seeds" if tree.is_fresh(summary.run) else part
        title = links.model_title(summary.run.model, tree) + part
        found.setdefault(title, {}).setdefault(summary.run.method, []).append(summary)
    return [{"title": title, "rows": [_group(of) for of in methods.values()]} for title, methods in found.items()]


def _group(runs: Sequence[Summary]) -> dict[str, Any]:
    """A method: each seed, and the mean area over them, none where a seed has no area."""
    lines = [line(summary) for summary in runs]
    areas = [summary.area for summary in runs if summary.area is not None]
    seconds = [summary.wall_seconds for summary in runs if summary.wall_seconds is not None]
    return {
        "title": runs[0].title,
        "key": runs[0].run.method,
        "differs": runs[0].differs,
        "slots": ", ".join(part.partition(":")[0].partition(" (")[0] for part in runs[0].differs),
        "area": percent(fmean(areas)) if len(areas) == len(runs) else "–",
        "runs": lines,
        "bad": [one for one in lines if one["bad"]],
        "seconds": f"{math.fsum(seconds):.0f}" if seconds else "–",
    }


def views(tree: Tree, runs: Sequence[Summary]) -> list[dict[str, Any]]:
    """A page per planned run, in the matrix's order."""
    names = [str(entry["key"]) for entry in tree.benchmarks] + list(AVERAGES)
    checkpoints: dict[Run, list[Checkpoint]] = {}
    for checkpoint in tree.checkpoints:
        checkpoints.setdefault(checkpoint.run, []).append(checkpoint)
    return [
        {
            **line(summary),
            "facts": _facts(summary),
            "params": sorted((((summary.record or {}).get("method") or {}).get("params") or {}).items()),
            # a reference has one file for all runs
            "files": [
                (found.name, found.relative_to(tree.root).as_posix())
                for name in ("run.json", "curve.csv")
                if (found := tree.layout.run(summary.run) / name).is_file()
            ],
            "curves": _curves(summary, tree),
            "setting": str(tree.matrix["variants"][variant]["title"]) if (variant := summary.run.variant) else "",
            "model_title": links.model_title(summary.run.model, tree),
            "columns": [AVERAGES.get(name, name) for name in names],
            "checkpoints": [
                {"step": checkpoint.step, "scores": scores(checkpoint, tree, names)}
                for checkpoint in checkpoints.get(summary.run, ())
            ],
        }
        for summary in runs
    ]


def _curves(summary: Summary, tree: Tree) -> str | None:
    """Where the run's curves are: beside those of GRPO/DAPO with the same seed."""
    if summary.rollouts is None or tree.is_fresh(summary.run):
        return None
    shown = [run for run in (summary.run, links.reference_run(summary.run, tree)) if run is not None]
    return links.curves([(run.model, run.method) for run in shown], summary.run.seed)


def scores(checkpoint: Checkpoint, tree: Tree, keys: Sequence[str]) -> list[dict[str, Any]]:
    """One line of a table of scores: what scores.csv has for the checkpoint, each leading to the responses."""
    found = []
    for key in keys:
        score, interval, href = tree.scores.get((checkpoint, key)), "", None
        if score is None or score.value is None:
            text = "missing" if score is None else "not run"
            found.append({"text": text, "number": False, "interval": "", "href": None})
            continue
        if score.low is not None and score.high is not None:
            interval = f"{100 * score.low:.1f}–{100 * score.high:.1f}"
        if (tree.layout.samples(checkpoint) / "samples.json").is_file() or samples.is_sampled(tree, checkpoint):
            href = links.responses(checkpoint, None if key in AVERAGES else key)
        found.append({"text": percent(score.value), "number": True, "interval": interval, "href": href})
    return found


def _facts(summary: Summary) -> list[tuple[str, str]]:
    record = summary.record
    if record is None:
        return []
    seconds = [
        f"{record[name]:.0f} s {word}"
        for name, word in (("wall_seconds", "wall"), ("cpu_seconds", "CPU"))
        if record.get(name) is not None
    ]
    return [
        ("Finished", str(record.get("finished_at") or UNKNOWN)),
        ("Took", ", ".join(seconds) or UNKNOWN),
        ("Updates", str(record.get("updates") or UNKNOWN)),
        ("Trainer", str(record["spec"].get("trainer", UNKNOWN))),
        ("On", machine(summary.environment)),
        ("Code", commit(summary.environment)),
    ]


def machine(environment: Mapping[str, Any]) -> str:
    """Processor, cores and threads of a run."""
    text = f"{environment.get('cpu') or 'unknown processor'}, {environment.get('cores') or UNKNOWN} cores"
    threads = environment.get("threads")
    return f"{text}, {threads} thread{'s' * (str(threads) != '1')} per job" if threads else text


def commit(environment: Mapping[str, Any]) -> str:
    """The code of a run, and whether it was committed."""
    if not environment.get("commit"):
        return "commit unknown (not a git checkout)"
    text = f"commit {str(environment['commit'])[:12]}"
    if environment.get("dirty"):
        return f"{text} with uncommitted changes"
    return text if environment.get("dirty") is False else f"{text} (clean or not: unknown)"
