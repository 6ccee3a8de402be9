"""Fill a figure's declaration from the finished runs: seeds joined, what is missing said in words."""

from __future__ import annotations

from core.errors import BenchError, ConfigError, MissingInputError
from core.results_tree import Tree
from evals.learning_curves import read_curve
from report.figures.drawing import Drawing, Line, Panel, points
from report.figures.spec import Figure, planned, runs


def fill(figure: Figure, tree: Tree) -> Drawing:
    """Every line that this scale plans and has finished, in every panel; the rest is left out and noted.

    Raises when nothing is left: no model, none of the methods, or no finished run.
    """
    notes: dict[str, list[str]] = {}  # reason -> what it holds for: a scale that plans little says so in few sentences
    finished = {}
    for line in figure.lines:
        wanted = planned(figure, line, tree)
        finished[line] = [run for run in wanted if tree.record(run) is not None]
        for run in wanted:
            if run not in finished[line]:
                notes.setdefault("Not drawn, not finished", []).append(run.path.as_posix())
        if not wanted:
            notes.setdefault("Not trained here", []).append(line)
    drawn = [run for found in finished.values() for run in found]
    if not drawn:
        raise _nothing(figure, tree)
    curves = {run: read_curve(tree.layout.run(run) / "curve.csv") for run in drawn}
    ended = {run: at for run in drawn if (at := (tree.record(run) or {}).get("collapsed_at")) is not None}
    for run, rollout in ended.items():
        where = f"{run.path.as_posix()} at rollout {rollout}"
        notes.setdefault("Collapsed, training stopped there", []).append(where)
    panels = []
    for id, key in figure.panels.items():
        quantity, lines = figure.quantities[key], []
        for name, of_line in finished.items():
            by_seed = {}
            for run in of_line:
                series = curves[run].series(quantity.columns, quantity.aggregate)
                by_seed[run.seed] = tuple(None if value is None else value * quantity.scale for value in series)
            if of_line:
                method = of_line[0].method
                title, ends = str(tree.methods[method]["title"]), {r.seed: ended[r] for r in of_line if r in ended}
                means = points(by_seed.values())
                lines.append(Line(name, figure.lines[name], of_line[0].model, method, title, means, by_seed, ends))
        panels.append(Panel(id, key, quantity, tuple(lines)))
    model = tree.model_for(figure.model, figure.paper) or {}  # there is one, since a line is drawn
    sentences = tuple(f"{reason}: {', '.join(what)}." for reason, what in notes.items())
    return Drawing(figure, tree.scale, str(model["title"]), tuple(panels), sentences)


def _nothing(figure: Figure, tree: Tree) -> BenchError:
    """Why a figure is empty: the plan has nothing for it, or nothing is finished."""
    if runs(figure, tree):
        return MissingInputError(f"{tree.root / 'runs'}: no finished run of {figure.key}")
    have = ", ".join(f"{model['key']} for {model.get('stands_for') or model['key']}" for model in tree.models)
    return ConfigError(
        f"{figure.source}: figures.{figure.key}: {tree.layout.matrix} plans nothing of it. It shows "
        f"{', '.join(figure.lines)} with {figure.paper}; planned are {', '.join(tree.methods) or 'no method'} with "
        f"{have or 'no model'}"
    )
