"""Learning curves by rollout: read curve.csv strictly, make one point of a rollout's updates, join seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from records.errors import ConfigError, CorruptInputError, MissingInputError, unknown
from records.layout import Run
from report.columns import read_csv, to_csv
from report.figure_spec import Figure, Panel
from report.results import Tree

INDEX = ("rollout", "update", "minibatch")
HEADER = ("figure", "panel", "model", "method", "title", "rollout", "value", "low", "high", "seeds", "band", "unit")


@dataclass(frozen=True)
class Point:
    """One drawn point: mean over `seeds` seeds; from two on, also smallest and largest. None: not defined."""

    rollout: int
    value: float | None
    low: float | None
    high: float | None
    seeds: int


@dataclass(frozen=True)
class Line:
    """A method in one panel. `place` is its place in the specification: colour and line style follow it."""

    panel: Panel
    model: str
    method: str
    title: str
    place: int
    seeds: tuple[int, ...]
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Drawing:
    """All that a figure shows, and what it could not show (`notes`)."""

    figure: Figure
    scale: str
    model: Mapping[str, object]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]


def read_curve(path: Path | str) -> list[list[dict[str, str]]]:
    """Rows of curve.csv grouped by rollout; rollouts must run 1, 2, 3, ... and updates 0, 1, 2, ... without a gap."""
    rows = read_csv(path, "the learning curve", INDEX)
    rollouts: list[list[dict[str, str]]] = []
    try:
        numbered = [(int(row["rollout"]), int(row["update"]), row) for row in rows]
    except ValueError as error:
        raise CorruptInputError(f"{path}: rollout and update must be whole numbers ({error})") from error
    for number, (_, update, _row) in enumerate(numbered):
        if update != number:
            raise CorruptInputError(f"{path}: update {number} is missing: line {number + 2} has update {update}")
    for number, (rollout, group) in enumerate(groupby(numbered, key=lambda item: item[0]), 1):
        if rollout != number:
            raise CorruptInputError(f"{path}: rollout {number} is missing: after rollout {number - 1} comes {rollout}")
        rollouts.append([row for _, _, row in group])
    return rollouts


def series(path: Path | str, columns: Sequence[str], aggregate: str) -> list[float | None]:
    """One value per rollout from the curve at `path`; None where the curve has no figure for it."""
    rollouts = read_curve(path)
    for column in columns:
        if column not in rollouts[0][0]:
            raise unknown(str(path), "column wanted", column, rollouts[0][0])
    return [_aggregate(path, rows, columns, aggregate) for rows in rollouts]


def draw_data(figure: Figure, tree: Tree) -> Drawing:
    """Every line of every panel. Raises when the scale has no model or none of the methods of the figure."""
    model = tree.model_for(figure.model, figure.models[figure.model])
    if model is None:
        have = ", ".join(str(m["key"]) for m in tree.models)
        raise ConfigError(
            f"{figure.source}: figures.{figure.key}.model: no model of {tree.layout.matrix} stands for "
            f"{figure.models[figure.model]}; models there: {have}"
        )
    chosen = _chosen(figure, tree, str(model["key"]))
    lines, notes = [], []
    for place, method, runs in chosen:
        ready = []
        for run in runs:
            if (tree.layout.run(run) / "curve.csv").is_file():
                ready.append(run)
            else:
                notes.append(f"Not drawn, not run yet: {run.path.as_posix()}.")
        if ready:
            title = str(tree.methods[method]["title"])
            lines += [_line(panel, title, place, ready, tree) for panel in figure.panels]
    if not lines:
        raise MissingInputError(f"{tree.root / 'runs'}: no learning curve of {model['key']} for {figure.key}")
    return Drawing(figure, tree.scale, model, tuple(lines), tuple(notes))


def csv_text(drawing: Drawing) -> str:
    """Exactly what is drawn, one row per point."""
    return to_csv(
        HEADER,
        (
            {
                "figure": drawing.figure.key,
                "panel": line.panel.id,
                "model": line.model,
                "method": line.method,
                "title": line.title,
                "rollout": point.rollout,
                "value": point.value,
                "low": point.low,
                "high": point.high,
                "seeds": point.seeds,
                "band": "smallest to largest seed" if point.seeds > 1 else "",
                "unit": line.panel.label,
            }
            for line in drawing.lines
            for point in line.points
        ),
    )


def _chosen(figure: Figure, tree: Tree, model: str) -> list[tuple[int, str, list[Run]]]:
    chosen = []
    for place, name in enumerate(figure.lines):
        method = tree.method_for(name)
        runs = [run for run in tree.runs if (run.model, run.method) == (model, method)]
        if method is not None and runs:
            chosen.append((place, method, runs))
    if not chosen:
        raise ConfigError(
            f"{figure.source}: lines: none of {', '.join(figure.lines)} is trained here; {tree.layout.matrix} has: "
            f"{', '.join(tree.methods) or 'no method'}"
        )
    return chosen


def _line(panel: Panel, title: str, place: int, runs: Sequence[Run], tree: Tree) -> Line:
    by_seed = [series(tree.layout.run(run) / "curve.csv", panel.columns, panel.aggregate) for run in runs]
    points = []
    for number in range(max(map(len, by_seed))):
        values = [v * panel.scale for values in by_seed if number < len(values) and (v := values[number]) is not None]
        several = len(values) > 1
        points.append(
            Point(
                rollout=number + 1,
                value=math.fsum(values) / len(values) if values else None,
                low=min(values) if several else None,
                high=max(values) if several else None,
                seeds=len(values),
            )
        )
    return Line(panel, runs[0].model, runs[0].method, title, place, tuple(run.seed for run in runs), tuple(points))


def _aggregate(path: Path | str, rows: Sequence[Mapping[str, str]], columns: Sequence[str], how: str) -> float | None:
    values = []
    for row in rows[:1] if how == "first" else rows:
        for column in columns:
            if row[column]:
                values.append(_number(path, row, column))
    if not values:
        return None
    return math.fsum(values) / (len(values) if how == "mean" else 1)


def _number(path: Path | str, row: Mapping[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise CorruptInputError(f"{path}: update {row['update']}: {column} is {row[column]!r}, not a finite number")
    return value
