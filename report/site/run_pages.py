"""A view per run: what it was told, how it went, what came out, what to be careful about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evals.learning_curves import Curve, read_curve
from records.csv_files import stored
from records.layout import Checkpoint, Run
from records.results_tree import Score, Tree
from report.runs import Summary
from report.site import facts, links
from report.tables.fill import percent

# Small curves of a run page as SVG text: the run in colour, what it is compared with in grey behind it.


WIDTH, HEIGHT = 660, 288  # fine enough that whole numbers will do: they keep the page small
LEFT, RIGHT, TOP, BOTTOM = 102, 18, 24, 48

Values = Sequence[float | None]


@dataclass(frozen=True)
class Spark:
    """One small picture. `path` and `behind` are SVG path data; low, high and last are what stands at the axes."""

    title: str
    unit: str
    path: str
    behind: str
    low: str
    high: str
    last: str
    end: int


def spark(title: str, unit: str, values: Values, behind: Values) -> Spark | None:
    """None for a run without any figure of this kind. The axis begins at 0 unless figures lie below it."""
    known = [value for value in [*values, *behind] if value is not None]
    if not any(value is not None for value in values):
        return None
    low, high = min(0.0, *known), max(known)
    if high == low:
        high = low + 1
    count = max(len(values), len(behind))

    def line(series: Values) -> str:
        return _path(series, count, low, high)

    last = next(value for value in reversed(values) if value is not None)
    return Spark(title, unit, line(values), line(behind), _short(low), _short(high), _short(last), count)


def _path(values: Values, count: int, low: float, high: float) -> str:
    """Path data; an unknown value is a gap, and a value between two gaps a dot."""
    parts, pen = [], "M"
    for number, value in enumerate(values):
        if value is None:
            pen = "M"
            continue
        x = LEFT + (WIDTH - LEFT - RIGHT) * (number / (count - 1) if count > 1 else 0.5)
        y = TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low))
        alone = pen == "M" and (number + 1 == len(values) or values[number + 1] is None)
        parts.append(f"{pen}{x:.0f} {y:.0f}" + ("h1" if alone else ""))
        pen = "L"
    return "".join(parts)


def _short(value: float) -> str:
    return f"{value:.3g}"


NOT_WRONG = ("truncated", "no_answer", "timeout", "error", "unparsed_gold")  # verdicts a run page names one by one
AVERAGES = {"avg_pooled": "Avg. (pooled)", "avg_macro": "Avg. (macro)"}


@dataclass(frozen=True)
class Panel:
    title: str
    column: str
    aggregate: str
    unit: str
    scale: float = 1.0


PANELS = (
    Panel("Reward", "reward", "first", "% right", 100),
    Panel("Gradient norm", "grad_norm", "mean", "before clipping"),
    Panel("Clipped tokens", "clip_fraction_tokens", "mean", "%", 100),
    Panel("Entropy", "entropy", "mean", "nats per token"),
    Panel("Response length", "response_tokens", "first", "tokens"),
    Panel("KL to the old policy", "kl_old", "mean", "nats per token"),
)


def views(tree: Tree, done: Sequence[Summary]) -> list[dict[str, Any]]:
    """One per planned run, in the matrix's order."""
    curves = {summary.run: _curve(summary.run, tree) for summary in done}
    return [_view(summary, tree, curves) for summary in done]


def scores(checkpoint: Checkpoint, tree: Tree, columns: Sequence[str]) -> list[dict[str, Any]]:
    """One line of a table of scores: what scores.csv has for the checkpoint, each leading to the responses."""
    return [_score(tree.scores.get((checkpoint, key)), checkpoint, key, tree) for key in columns]


def columns(tree: Tree) -> list[str]:
    """Benchmarks of the results in the matrix's order, then the averages."""
    return [str(entry["key"]) for entry in tree.benchmarks] + list(AVERAGES)


def _view(summary: Summary, tree: Tree, curves: Mapping[Run, Curve | None]) -> dict[str, Any]:
    run = summary.run
    other = links.reference_run(run, tree)
    names = columns(tree)
    record = summary.record or {}
    return {
        **facts.run(summary, tree),
        "id": links.run(run),
        "curve": curve_file.name if (curve_file := stored(tree.layout.run(run) / "curve.csv")) else None,
        "model_title": links.model_title(run.model, tree),
        "behind": tree.methods[other.method]["title"] if other else None,
        "sparks": _sparks(curves[run], curves.get(other) if other else None),
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
        "params": sorted(((record.get("method") or {}).get("params") or {}).items()),
        "readings": sorted(((record.get("method") or {}).get("readings") or {}).items()),
        "facts": _facts(record),
        "inputs": sorted((record.get("inputs") or {}).items()),
    }


def _curve(run: Run, tree: Tree) -> Curve | None:
    path = tree.layout.run(run) / "curve.csv"
    return read_curve(path) if stored(path) else None


def _sparks(curve: Curve | None, behind: Curve | None) -> list[Spark]:
    found = []
    for panel in PANELS if curve else ():
        ours, theirs = (
            [None if v is None else v * panel.scale for v in one.series([panel.column], panel.aggregate)] if one else []
            for one in (curve, behind)
        )
        drawn = spark(panel.title, panel.unit, ours, theirs)
        if drawn is not None:
            found.append(drawn)
    return found


def _score(score: Score | None, checkpoint: Checkpoint, key: str, tree: Tree) -> dict[str, Any]:
    if score is None or score.value is None:
        return {"text": "missing" if score is None else "not run", "number": False, "interval": "", "href": None}
    looked = (tree.layout.samples(checkpoint) / "samples.json").is_file()
    return {
        "text": percent(score.value),
        "number": True,
        "interval": f"{100 * score.low:.1f}–{100 * score.high:.1f}"
        if score.low is not None and score.high is not None
        else "",
        "how": score.how,
        "href": links.responses(checkpoint, None if key in AVERAGES else key) if looked else None,
    }


def _verdicts(run: Run, tree: Tree) -> list[str]:
    """Responses of the run that were not right for another reason than a wrong answer, per checkpoint."""
    found = []
    for checkpoint in tree.checkpoints:
        if checkpoint.run != run:
            continue
        counts = {
            verdict: sum(
                score.counts[verdict] or 0
                for (c, key), score in tree.scores.items()
                if c == checkpoint and key not in AVERAGES and not key.startswith("avg_")
            )
            for verdict in NOT_WRONG
        }
        named = ", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in counts.items() if count)
        if named:
            found.append(f"Step {checkpoint.step}: {named}.")
    return found


def _settings(record: Mapping[str, Any], tree: Tree) -> list[tuple[str, str, str | None]]:
    """(name, value, the scale's own value where it is another)"""
    given = (record.get("spec") or {}).get("training") or {}
    usual = tree.matrix.get("training") or {}
    return [
        (name.replace("_", " "), f"{value}", None if usual.get(name, value) in (value, None) else f"{usual[name]}")
        for name, value in sorted(given.items())
    ]


def _facts(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not record:
        return []
    environment = record.get("environment") or {}
    seconds = [
        f"{record[name]:.0f} s {word}"
        for name, word in (("wall_seconds", "wall"), ("cpu_seconds", "CPU"))
        if record.get(name) is not None
    ]
    return [
        ("Finished", str(record.get("finished_at") or facts.UNKNOWN)),
        ("Took", ", ".join(seconds) or facts.UNKNOWN),
        ("Updates", str(record.get("updates") or facts.UNKNOWN)),
        ("Trainer", str(record["spec"].get("trainer", facts.UNKNOWN))),
        ("On", facts.machine(environment)),
        ("Code", facts.commit(environment)),
    ]
