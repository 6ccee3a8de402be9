"""The runs: what each was told, how it went, what came out; one line each in the list of runs, and a page each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from records.errors import CorruptInputError, written_by
from records.files import cells_of, read_csv, stored
from records.layout import Checkpoint, Run
from records.results_tree import Score, Tree
from report.figures.drawing import number
from report.site import links, samples
from report.tables.tidy import percent

UNKNOWN = "unknown"
AVERAGES = {"avg_pooled": "Avg. (pooled)", "avg_macro": "Avg. (macro)"}
NOT_WRONG = ("truncated", "no_answer", "timeout", "error", "unparsed_gold")  # verdicts a run page names one by one


@dataclass(frozen=True)
class Summary:
    """One planned run. Rewards are fractions; None: not finished, or not defined."""

    run: Run
    title: str
    differs: tuple[str, ...]  # from GRPO/DAPO, slot by slot
    rollouts: int | None  # trained
    first: float | None  # mean reward of the first quarter of rollouts
    last: float | None  # of the last quarter
    area: float | None  # under the reward curve
    to_half: int | None  # first rollout whose running mean of the reward reaches one half
    record: Mapping[str, Any] | None  # run.json
    curve: Mapping[str, Sequence[float | None]]  # column of curve.csv -> value by rollout

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
    with written_by(f"python -m report.convergence --results {tree.root}"):
        needed = ("convergence", "convergence_runs", "convergence_curves", "convergence_readings")
        tree.check_written("figures/convergence", *(f"figures/{name}.csv" for name in needed))
        rows = read_csv(
            tree.layout.figures / "convergence.csv",
            "the measures of the learning curves",
            ("model", "method", "seed", "area", "to_50"),
        )
        run_rows = read_csv(
            tree.layout.figures / "convergence_runs.csv",
            "the summary of each run",
            ("model", "method", "seed", "reward_first", "reward_last", "differs"),
        )
        curve_rows = read_csv(
            tree.layout.figures / "convergence_curves.csv",
            "the curves by rollout",
            ("model", "method", "seed", *(panel.column for panel in PANELS)),
            allow_empty=True,
        )
        names = ("convergence.csv", "convergence_runs.csv", "convergence_curves.csv")
        paths = [tree.layout.figures / name for name in names]
        curves: dict[Run, list[dict[str, str]]] = {}
        with cells_of(*paths):
            for row in curve_rows:
                curves.setdefault(_run(row), []).append(row)
            measured = {_run(row): row for row in rows}
            # convergence.csv has the measures of a run, convergence_runs.csv what the page says of it besides.
            by_run = {_run(row): row | measured.get(_run(row), {}) for row in run_rows}
        for name, known in (("convergence.csv", measured), ("convergence_runs.csv", by_run)):
            missing = [run.path.as_posix() for run in tree.runs if run not in known]
            if missing:
                path = tree.layout.figures / name
                raise CorruptInputError(f"{path}: no row for {missing[0]}, which matrix.json plans")
        with cells_of(*paths):
            return [_summary(run, by_run[run], curves.get(run, []), tree) for run in tree.runs]


def _run(row: Mapping[str, str]) -> Run:
    return Run(row["model"], row["method"], int(row["seed"]))


def _summary(run: Run, row: Mapping[str, str], curve: Sequence[Mapping[str, str]], tree: Tree) -> Summary:
    return Summary(
        run=run,
        title=str(tree.methods[run.method]["title"]),
        differs=tuple(row["differs"].split("; ")) if row["differs"] else (),
        rollouts=len(curve) or None,
        first=number(row["reward_first"]),
        last=number(row["reward_last"]),
        area=number(row["area"]),
        to_half=int(row["to_50"]) if row["to_50"] else None,
        record=tree.record(run),
        curve={panel.column: [number(point[panel.column]) for point in curve] for panel in PANELS},
    )


def line(summary: Summary, tree: Tree) -> dict[str, Any]:
    """One line of the list of runs."""
    state = "not finished"
    if summary.record is not None:
        state = "finished" if summary.collapsed_at is None else f"collapsed at rollout {summary.collapsed_at}"
        state = summary.record.get("no_update") or state
    reward = UNKNOWN
    if summary.first is not None and summary.last is not None:
        reward = f"{100 * summary.first:.1f} → {100 * summary.last:.1f}"
    return {
        "title": summary.title,
        "key": summary.run.method,
        "model": summary.run.model,
        "seed": summary.run.seed,
        "folder": tree.layout.run(summary.run).relative_to(tree.root).as_posix(),
        "differs": summary.differs,
        "rollouts": "–" if summary.rollouts is None else str(summary.rollouts),
        "reward": reward,
        "area": "–" if summary.area is None else f"{summary.area:.3f}",
        "to_half": "–" if summary.to_half is None else str(summary.to_half),
        "seconds": "–" if summary.wall_seconds is None else f"{summary.wall_seconds:.0f}",
        "state": state,
        "bad": state != "finished",
    }


def views(tree: Tree, runs: Sequence[Summary]) -> list[dict[str, Any]]:
    """A page per planned run, in the matrix's order; each holds its line of the list as well."""
    by_run = {summary.run: summary for summary in runs}
    names = [str(entry["key"]) for entry in tree.benchmarks] + list(AVERAGES)
    pages = []
    for summary in runs:
        run = summary.run
        record = summary.record or {}
        method = record.get("method") or {}
        folder = tree.layout.run(run)
        files = {name: stored(folder / name) for name in ("run.json", "curve.csv")}
        reference_run = links.reference_run(run, tree)
        reference = by_run[reference_run] if reference_run else None
        pages.append(
            {
                **line(summary, tree),
                "id": links.run(run),
                # a reference has one file for all runs
                "files": [(f.name, f.relative_to(tree.root).as_posix()) for f in files.values() if f is not None],
                "model_title": links.model_title(run.model, tree),
                "behind": reference.title if reference else None,
                "sparks": _sparks(summary, reference),
                "columns": [AVERAGES.get(name, name) for name in names],
                "checkpoints": [
                    {
                        "step": checkpoint.step,
                        "sha256": (record.get("outputs") or {}).get(f"checkpoints/step{checkpoint.step}"),
                        "scores": scores(checkpoint, tree, names),
                    }
                    for checkpoint in tree.checkpoints
                    if checkpoint.run == run
                ],
                "verdicts": _verdicts(run, tree),
                "settings": _settings(record, tree),
                "params": sorted((method.get("params") or {}).items()),
                "readings": sorted((method.get("readings") or {}).items()),
                "facts": _facts(summary),
                "inputs": sorted((record.get("inputs") or {}).items()),
            }
        )
    return pages


def scores(checkpoint: Checkpoint, tree: Tree, keys: Sequence[str]) -> list[dict[str, Any]]:
    """One line of a table of scores: what scores.csv has for the checkpoint, each leading to the responses."""
    return [_score(tree.scores.get((checkpoint, key)), checkpoint, key, tree) for key in keys]


def _score(score: Score | None, checkpoint: Checkpoint, key: str, tree: Tree) -> dict[str, Any]:
    if score is None or score.value is None:
        return {"text": "missing" if score is None else "not run", "number": False, "interval": "", "href": None}
    interval = ""
    if score.low is not None and score.high is not None:
        interval = f"{100 * score.low:.1f}–{100 * score.high:.1f}"
    href = None
    if (tree.layout.samples(checkpoint) / "samples.json").is_file() or samples.is_sampled(tree, checkpoint):
        href = links.responses(checkpoint, None if key in AVERAGES else key)
    return {"text": percent(score.value), "number": True, "interval": interval, "href": href}


def _verdicts(run: Run, tree: Tree) -> list[str]:
    """Responses of the run that were not right for another reason than a wrong answer, per checkpoint."""
    sentences = []
    for checkpoint in tree.checkpoints:
        if checkpoint.run != run:
            continue
        ours = [
            score for (c, key), score in tree.scores.items() if c == checkpoint and not key.startswith("avg_")
        ]  # an average counts the same responses once more
        counts = {verdict: sum(score.counts[verdict] or 0 for score in ours) for verdict in NOT_WRONG}
        named = ", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in counts.items() if count)
        if named:
            sentences.append(f"Step {checkpoint.step}: {named}.")
    return sentences


def _settings(record: Mapping[str, Any], tree: Tree) -> list[tuple[str, str, str | None]]:
    """(name, value, the scale's own value where it is another)"""
    training = (record.get("spec") or {}).get("training") or {}
    usual = tree.matrix.get("training") or {}
    return [
        (name.replace("_", " "), f"{value}", None if usual.get(name, value) in (value, None) else f"{usual[name]}")
        for name, value in sorted(training.items())
    ]


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
    return f"{text}, {threads} thread per job" if threads else text


def commit(environment: Mapping[str, Any]) -> str:
    """The code of a run, and whether it was committed."""
    if not environment.get("commit"):
        return "commit unknown (not a git checkout)"
    text = f"commit {str(environment['commit'])[:12]}"
    if environment.get("dirty"):
        return f"{text} with uncommitted changes"
    return text if environment.get("dirty") is False else f"{text} (clean or not: unknown)"


# Small curves of a run page as SVG text: the run in colour, what it is compared with in grey behind it.


@dataclass(frozen=True)
class Panel:
    title: str
    column: str  # of convergence_curves.csv
    unit: str
    scale: float = 1.0  # 100 turns a fraction into percent


PANELS = (
    Panel("Reward", "reward", "% right", 100),
    Panel("Entropy", "entropy", "nats per token"),
    Panel("Clipped tokens", "clip_fraction_tokens", "%", 100),
    Panel("KL to the old policy", "kl_old", "nats per token"),
    Panel("Gradient norm", "grad_norm", "before clipping"),
    Panel("Response length", "response_tokens", "tokens"),
    Panel("Time", "seconds", "seconds per rollout"),
    Panel("Tokens under the mask", "mask_fraction", "%", 100),
)

WIDTH, HEIGHT = 660, 288  # fine enough that whole numbers will do: they keep the page small
LEFT, RIGHT, TOP, BOTTOM = 102, 18, 24, 48

Values = Sequence[float | None]


@dataclass(frozen=True)
class Spark:
    """One small picture."""

    title: str
    unit: str
    path: str  # SVG path data, as `behind`
    behind: str
    low: str  # low, high, last and end stand at the axes
    high: str
    last: str
    end: int


def _sparks(summary: Summary, reference: Summary | None) -> list[Spark]:
    sparks = []
    for panel in PANELS:
        ours, theirs = (
            [None if value is None else value * panel.scale for value in one.curve[panel.column]] if one else []
            for one in (summary, reference)
        )
        drawn = spark(panel.title, panel.unit, ours, theirs)
        if drawn is not None:
            sparks.append(drawn)
    return sparks


def spark(title: str, unit: str, values: Values, behind: Values) -> Spark | None:
    """None for a run without a value of this kind. The axis begins at 0 unless values lie below it."""
    if not any(value is not None for value in values):
        return None
    known = [value for value in [*values, *behind] if value is not None]
    low, high = min(0.0, *known), max(known)
    if high == low:
        high = low + 1  # a flat curve lies on the axis; the height would be a division by zero
    count = max(len(values), len(behind))
    last = next(value for value in reversed(values) if value is not None)
    return Spark(
        title=title,
        unit=unit,
        path=_path(values, count, low, high),
        behind=_path(behind, count, low, high),
        low=f"{low:.3g}",
        high=f"{high:.3g}",
        last=f"{last:.3g}",
        end=count,
    )


def _path(values: Values, count: int, low: float, high: float) -> str:
    """Path data; an unknown value is a gap, and a value between two gaps a dot."""
    parts, pen = [], "M"
    for index, value in enumerate(values):
        if value is None:
            pen = "M"
            continue
        x = LEFT + (WIDTH - LEFT - RIGHT) * (index / (count - 1) if count > 1 else 0.5)
        y = TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low))
        alone = pen == "M" and (index + 1 == len(values) or values[index + 1] is None)
        parts.append(f"{pen}{x:.0f} {y:.0f}" + ("h1" if alone else ""))
        pen = "L"
    return "".join(parts)
