"""Fill a figure's declaration from the finished runs: seeds joined, what is missing said in words."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import BenchError, ConfigError, MissingInputError
from core.layout import Run
from core.results_tree import Tree
from evals.learning_curves import Curve, read_curve
from report.figures.drawing import Drawing, DrawnPanel, Line, arranged, points
from report.figures.spec import Figure, LineSpec, Panel, planned, runs, under
from report.tables.tidy import with_options


def fill(figure: Figure, tree: Tree) -> Drawing:
    """Every line of every panel that this scale plans and has finished; the rest is left out and noted.

    Raises when nothing is left: no model, none of the methods, or no finished run.
    """
    filling = _Filling(figure, tree)
    panels = [drawn for panel in figure.panels if (drawn := filling.panel(panel))]
    if not panels:
        raise _nothing(figure, tree)
    shown = {line.model for drawn in panels for line in drawn.lines}
    models = tuple(str(model["title"]) for model in tree.models if model["key"] in shown)
    notes = tuple(f"{reason}: {', '.join(what)}." for reason, what in filling.notes.items())
    return Drawing(figure, tree.scale, models, arranged(figure, panels), notes)


class _Filling:
    """One figure while it is filled. Each curve is read once, although several panels draw it."""

    def __init__(self, figure: Figure, tree: Tree) -> None:
        self.figure = figure
        self.tree = tree
        self.curves: dict[Run, Curve] = {}
        # Reason -> what it holds for: a scale that plans little says so in one sentence per reason. The inner
        # dictionary is an ordered set.
        self.notes: dict[str, dict[str, None]] = {}

    def note(self, reason: str, what: str) -> None:
        self.notes.setdefault(reason, {})[what] = None

    def panel(self, panel: Panel) -> DrawnPanel | None:
        """None when nothing of the panel is there, or not the line that it is named after."""
        tree = self.tree
        model = tree.model_for(panel.model, self.figure.models[panel.model])
        if model is None:
            self.note("Left out, no model of this scale stands for", self.figure.models[panel.model])
            return None
        variant = tree.matrix.get("variants", {}).get(panel.variant)  # None also where the scale does not plan it
        setting = str(variant["title"]) if variant else ""
        lines = []
        for spec in panel.lines:
            wanted = planned(self.figure, panel, spec, tree)
            if not wanted:
                self.note(
                    f"Not trained here with {model['title']}", under(spec.with_model(panel.model)[0], panel.variant)
                )
            finished = [run for run in wanted if tree.record(run) is not None]
            for run in wanted:
                if run not in finished:
                    self.note("Not drawn, not finished", run.path.as_posix())
            if finished:
                lines.append(self.line(panel, spec, finished, setting))
        if not lines or (panel.alone and not lines[-1].alone):
            return None
        title = panel.title or (lines[-1].title if panel.alone else str(model["title"]))
        return DrawnPanel(panel, title, setting, tuple(lines))

    def line(self, panel: Panel, spec: LineSpec, finished: Sequence[Run], setting: str) -> Line:
        by_seed, ended = {}, {}
        for run in finished:
            if run not in self.curves:
                self.curves[run] = read_curve(self.tree.layout.run(run) / "curve.csv")
            values = self.curves[run].series(panel.quantity.columns, panel.quantity.aggregate)
            by_seed[run.seed] = tuple(None if value is None else value * panel.quantity.scale for value in values)
            collapsed_at = (self.tree.record(run) or {}).get("collapsed_at")
            if collapsed_at is not None:
                ended[run.seed] = collapsed_at
                self.note("Collapsed, training stopped there", f"{run.path.as_posix()} at rollout {collapsed_at}")
        # The panel names the setting already, so the line's title does not repeat it.
        method_title = str(self.tree.methods[finished[0].method]["title"]).removesuffix(f", {setting}")
        first = finished[0]
        label = _label(spec, panel, first.method) or method_title
        return Line(panel, spec, first.model, first.method, label, points(by_seed.values()), by_seed, ended)


def _label(spec: LineSpec, panel: Panel, method: str) -> str | None:
    """The line's label with what this scale changes in its method: the plain label is the paper's row."""
    if spec.label is None:
        return None
    return min((with_options(spec.label, one, method) for one in spec.with_model(panel.model)), key=len)


def _nothing(figure: Figure, tree: Tree) -> BenchError:
    """Why a figure is empty: the plan has nothing for it, or nothing is finished."""
    if runs(figure, tree):
        return MissingInputError(f"{tree.root / 'runs'}: no finished run of {figure.key}")
    models = ", ".join(dict.fromkeys(figure.models[panel.model] for panel in figure.panels))
    have = ", ".join(f"{model['key']} for {model.get('stands_for') or model['key']}" for model in tree.models)
    names = dict.fromkeys(
        under(line.with_model(panel.model)[0], panel.variant) for panel in figure.panels for line in panel.lines
    )
    return ConfigError(
        f"{figure.source}: figures.{figure.key}: {tree.layout.matrix} plans nothing of it. It shows {', '.join(names)} "
        f"with {models}; planned are {', '.join(tree.methods) or 'no method'} with {have or 'no model'}"
    )
