"""What a figure shows: its declaration filled from the finished runs, seeds joined, what is missing said in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from evals.learning_curves import Curve, read_curve
from records.csv_files import to_csv
from records.errors import ConfigError, MissingInputError
from records.layout import Run
from records.results_tree import Tree
from report.figures import spec as figure_spec
from report.figures.spec import ALONE, Block, Figure, LineSpec, Panel

HEADER = (
    "figure", "panel", "quantity", "model", "method", "title", "rollout", "value", "low", "high", "seeds", "band",
    "unit",
)  # fmt: skip
SEED_HEADER = ("figure", "panel", "quantity", "model", "method", "title", "seed", "rollout", "value", "unit")


@dataclass(frozen=True)
class Point:
    """Mean over all seeds of a line, from two on with the smallest and largest. None: not defined, or one has ended."""

    rollout: int
    value: float | None
    low: float | None
    high: float | None
    seeds: int  # that have a value here


@dataclass(frozen=True)
class Line:
    """A method in a panel. by_seed: what is drawn of each seed, by rollout; ended: seeds that collapsed, and where."""

    panel: Panel
    spec: LineSpec
    model: str
    method: str
    title: str
    by_seed: Mapping[int, tuple[float | None, ...]]
    ended: Mapping[int, int]

    @property
    def place(self) -> int:
        """In `report.figures.spec.STYLES`; of a line that its panel is named after: ink."""
        return ALONE if self.spec is self.panel.alone or self.spec.style is None else self.spec.style

    @property
    def points(self) -> tuple[Point, ...]:
        columns = zip_longest(*self.by_seed.values())
        return tuple(_point(rollout, values) for rollout, values in enumerate(columns, 1))


@dataclass(frozen=True)
class DrawnPanel:
    """setting: of its variant, in words; empty: the scale's own."""

    panel: Panel
    title: str
    setting: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class DrawnBlock:
    """`cells`: row by row, `across` to a row; None where this scale has nothing to draw."""

    block: Block
    cells: tuple[DrawnPanel | None, ...]
    across: int

    @property
    def panels(self) -> list[DrawnPanel]:
        return [cell for cell in self.cells if cell is not None]


@dataclass(frozen=True)
class Drawing:
    """All that a figure shows (`models`: titles of the scale's models in it), and what it could not show (`notes`)."""

    figure: Figure
    scale: str
    models: tuple[str, ...]
    blocks: tuple[DrawnBlock, ...]
    notes: tuple[str, ...]

    @property
    def panels(self) -> list[DrawnPanel]:
        return [panel for block in self.blocks for panel in block.panels]

    @property
    def lines(self) -> list[Line]:
        return [line for panel in self.panels for line in panel.lines]


def draw_data(figure: Figure, tree: Tree) -> Drawing:
    """Every line of every panel that this scale plans and has finished; the rest is left out and noted.

    Raises when nothing is left: no model, none of the methods, or no finished run.
    """
    notes = _Notes()
    curves: dict[Run, Curve] = {}
    blocks = []
    for block in figure.blocks:
        panels = [drawn for panel in block.panels if (drawn := _drawn(figure, panel, tree, curves, notes))]
        if panels:
            blocks.append(_arranged(block, panels))
    if not blocks:
        _nothing(figure, tree)
    shown = {line.model for block in blocks for drawn in block.panels for line in drawn.lines}
    models = tuple(str(model["title"]) for model in tree.models if model["key"] in shown)
    return Drawing(figure, tree.scale, models, tuple(blocks), notes.sentences())


def _arranged(block: Block, panels: Sequence[DrawnPanel]) -> DrawnBlock:
    """Several panels repeated for each model or line are a row each, with its models or lines in columns."""
    rows = dict.fromkeys(drawn.panel.row for drawn in panels)
    if not block.repeated or len(rows) == 1:
        return DrawnBlock(block, tuple(panels), min(block.across, len(panels)))
    columns = [
        name for name in dict.fromkeys(p.column for p in block.panels) if any(d.panel.column == name for d in panels)
    ]
    by_place = {(drawn.panel.row, drawn.panel.column): drawn for drawn in panels}
    return DrawnBlock(block, tuple(by_place.get((row, name)) for row in rows for name in columns), len(columns))


def runs(figure: Figure, tree: Tree) -> list[Run]:
    """The planned runs that a figure is made of, each once, in the matrix's order."""
    found: set[Run] = set()
    for panel in figure.panels:
        if panel.alone is None or _planned(figure, panel, panel.alone, tree):
            found.update(run for line in panel.lines for run in _planned(figure, panel, line, tree))
    return [run for run in tree.runs if run in found]


def offered(tree: Tree) -> list[Figure]:
    """The figures that the plan has something for: what each is about, as the specification says."""
    return [figure for figure in figure_spec.figures() if runs(figure, tree) and _about(figure, tree)]


def csv_text(drawing: Drawing) -> str:
    """Means and bands, one row per point; an empty value where not every seed has one."""
    return to_csv(
        HEADER,
        (
            _names(drawing, line)
            | {
                "rollout": point.rollout,
                "value": point.value,
                "low": point.low,
                "high": point.high,
                "seeds": point.seeds,
                "band": "smallest to largest seed" if point.low is not None else "",
            }
            for line in drawing.lines
            for point in line.points
        ),
    )


def seeds_csv_text(drawing: Drawing) -> str:
    """The same for each seed alone, as far as its run goes."""
    return to_csv(
        SEED_HEADER,
        (
            _names(drawing, line) | {"seed": seed, "rollout": rollout, "value": value}
            for line in drawing.lines
            for seed, values in line.by_seed.items()
            for rollout, value in enumerate(values, 1)
        ),
    )


def _names(drawing: Drawing, line: Line) -> dict[str, object]:
    return {
        "figure": drawing.figure.key,
        "panel": line.panel.id,
        "quantity": line.panel.quantity.key,
        "model": line.model,
        "method": line.method,
        "title": line.title,
        "unit": line.panel.quantity.label,
    }


class _Notes:
    """What is left out, gathered so that a scale that plans little says so in one sentence per reason."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, None]] = {}

    def add(self, reason: str, what: str) -> None:
        self._found.setdefault(reason, {})[what] = None

    def sentences(self) -> tuple[str, ...]:
        return tuple(f"{reason}: {', '.join(what)}." for reason, what in self._found.items())


def _drawn(figure: Figure, panel: Panel, tree: Tree, curves: dict[Run, Curve], notes: _Notes) -> DrawnPanel | None:
    model = tree.model_for(panel.model, figure.models[panel.model])
    if model is None:
        notes.add("Left out, no model of this scale stands for", figure.models[panel.model])
        return None
    lines = []
    for spec in panel.lines:
        planned = _planned(figure, panel, spec, tree)
        if not planned:
            notes.add(f"Not trained here with {model['title']}", _with(spec.methods[0], panel.variant))
        finished = [run for run in planned if tree.record(run) is not None]
        for run in planned:
            if run not in finished:
                notes.add("Not drawn, not finished", run.path.as_posix())
        if finished:
            lines.append(_line(panel, spec, finished, tree, curves, notes))
    if not lines or (panel.alone and lines[-1].spec is not panel.alone):
        return None
    title = panel.title or (lines[-1].title if panel.alone else str(model["title"]))
    return DrawnPanel(panel, title, _setting(panel, tree), tuple(lines))


def _setting(panel: Panel, tree: Tree) -> str:
    return str(tree.matrix["variants"][panel.variant]["title"]) if panel.variant else ""


def _planned(figure: Figure, panel: Panel, spec: LineSpec, tree: Tree) -> list[Run]:
    """Runs of the first of the line's methods that the panel's model is trained with under the panel's settings."""
    model = tree.model_for(panel.model, figure.models[panel.model])
    for name in spec.methods if model else ():
        method = tree.method_for(_with(name, panel.variant))
        found = [run for run in tree.runs if model and (run.model, run.method) == (model["key"], method)]
        if found:
            return found
    return []


def _with(method: str, variant: str | None) -> str:
    return f"{method}@{variant}" if variant else method


def _line(
    panel: Panel, spec: LineSpec, finished: Sequence[Run], tree: Tree, curves: dict[Run, Curve], notes: _Notes
) -> Line:
    by_seed, ended = {}, {}
    for run in finished:
        if run not in curves:
            curves[run] = read_curve(tree.layout.run(run) / "curve.csv")
        values = curves[run].series(panel.quantity.columns, panel.quantity.aggregate)
        by_seed[run.seed] = tuple(None if value is None else value * panel.quantity.scale for value in values)
        collapsed_at = (tree.record(run) or {}).get("collapsed_at")
        if collapsed_at is not None:
            ended[run.seed] = collapsed_at
            notes.add("Collapsed, training stopped there", f"{run.path.as_posix()} at rollout {collapsed_at}")
    of_method = str(tree.methods[finished[0].method]["title"])
    title = spec.label or of_method.removesuffix(f", {_setting(panel, tree)}")
    return Line(panel, spec, finished[0].model, finished[0].method, title, by_seed, ended)


def _point(rollout: int, values: Sequence[float | None]) -> Point:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return Point(rollout, None, None, None, len(known))
    several = len(known) > 1
    return Point(
        rollout=rollout,
        value=math.fsum(known) / len(known),
        low=min(known) if several else None,
        high=max(known) if several else None,
        seeds=len(known),
    )


def _about(figure: Figure, tree: Tree) -> bool:
    about = figure.about
    planned = {line.name for panel in figure.panels for line in panel.lines if _planned(figure, panel, line, tree)}
    models = {slot for slot in about.get("models", ()) if tree.model_for(slot, figure.models[slot])}
    variants = {run.variant for run in tree.runs} & set(about.get("variants", ()))
    return not about or bool(models or variants or planned & set(about.get("lines", ())))


def _nothing(figure: Figure, tree: Tree) -> None:
    """Say why a figure is empty: the plan has nothing for it, or nothing is finished."""
    if runs(figure, tree):
        raise MissingInputError(f"{tree.root / 'runs'}: no finished run of {figure.key}")
    models = ", ".join(dict.fromkeys(figure.models[panel.model] for panel in figure.panels))
    have = ", ".join(f"{model['key']} for {model.get('stands_for') or model['key']}" for model in tree.models)
    names = dict.fromkeys(_with(line.methods[0], panel.variant) for panel in figure.panels for line in panel.lines)
    raise ConfigError(
        f"{figure.source}: figures.{figure.key}: {tree.layout.matrix} plans nothing of it. It shows {', '.join(names)} "
        f"with {models}; planned are {', '.join(tree.methods) or 'no method'} with {have or 'no model'}"
    )
