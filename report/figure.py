"""`python -m report.figure --results results/quick --figure 2`: a figure's numbers as CSV, and its picture."""

from pathlib import Path

from core import digests, errors
from core.errors import ConfigError, MissingInputError, Parser
from core.results_tree import Tree, open_tree
from evals.learning_curves import read_curve
from report import draw, figures
from report.draw import Drawing, Line, Panel
from report.figures import FIGURES, Figure


def fill(figure: Figure, tree: Tree) -> Drawing:
    """Return every line that is finished, in every panel, with notes on what is left out.

    Raises ConfigError where nothing of the figure is planned, MissingInputError where nothing is finished.
    """
    notes: dict[str, list[str]] = {}  # reason -> what it holds for: a scale that plans little says so in few sentences
    finished = {}
    for line in figure.lines:
        wanted = figures.planned(figure, line, tree)
        finished[line] = [run for run in wanted if tree.record(run) is not None]
        for run in wanted:
            if run not in finished[line]:
                notes.setdefault("Not drawn, not finished", []).append(run.path.as_posix())
        if not wanted:
            notes.setdefault("Not trained here", []).append(line)
    drawn = [run for found in finished.values() for run in found]
    if not drawn and figures.runs(figure, tree):
        raise MissingInputError(f"{tree.root / 'runs'}: no finished run of {figure.key}")
    if not drawn:
        have = ", ".join(f"{model['key']} for {model.get('stands_for') or model['key']}" for model in tree.models)
        raise ConfigError(
            f"{figure.source}: figures.{figure.key}: {tree.layout.matrix} plans nothing of it. It shows "
            f"{', '.join(figure.lines)} with {figure.paper}; planned are {', '.join(tree.methods) or 'no method'} with "
            f"{have or 'no model'}"
        )
    curves = {run: read_curve(tree.layout.run(run) / "curve.csv") for run in drawn}
    ended = {run: at for run in drawn if (at := (tree.record(run) or {}).get("collapsed_at")) is not None}
    for run, rollout in ended.items():
        where = f"{run.path.as_posix()} at rollout {rollout}"
        notes.setdefault("Collapsed, training stopped there", []).append(where)
    panels = []
    for id, key in figure.panels.items():
        quantity, lines = figure.quantities[key], []
        for name, runs in ((name, runs) for name, runs in finished.items() if runs):
            by_seed = {}
            for run in runs:
                series = curves[run].series(quantity.columns, quantity.aggregate)
                by_seed[run.seed] = tuple(None if value is None else value * quantity.scale for value in series)
            model, method = runs[0].model, runs[0].method
            title, ends = str(tree.methods[method]["title"]), {run.seed: ended[run] for run in runs if run in ended}
            means = draw.points(by_seed.values())
            lines.append(Line(name, figure.lines[name], model, method, title, means, by_seed, ends))
        panels.append(Panel(id, key, quantity, tuple(lines)))
    model_of_figure = tree.model_for(figure.model, figure.paper) or {}  # there is one, since a line is drawn
    sentences = tuple(f"{reason}: {', '.join(what)}." for reason, what in notes.items())
    return Drawing(figure, tree.scale, str(model_of_figure["title"]), tuple(panels), sentences)


def write(figure: Figure, tree: Tree) -> tuple[list[Path], tuple[str, ...]]:
    """Write `figures/<key>.{csv,json,svg,png,pdf}`; returns the paths, and what could not be drawn."""
    drawn = fill(figure, tree)
    files = draw.texts(drawn) | draw.render(drawn)
    contents = {tree.layout.figures / f"{figure.key}.{kind}": data for kind, data in files.items()}
    return digests.write_together(tree.layout.sums(f"figures/{figure.key}"), contents), drawn.notes


def main() -> None:
    parser = Parser(description="Draw a figure of report/figures.yaml from finished runs.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--figure", required=True, help="key in the specification: figure2 (or 2), models")
    parser.add_argument("--spec", type=Path, default=FIGURES, help="another specification file of the same form")
    args = parser.parse_args()
    paths, notes = write(figures.figure(args.figure, args.spec), open_tree(args.results))
    print("\n".join([*map(str, paths), *(f"note: {note}" for note in notes)]))


if __name__ == "__main__":
    errors.run(main)
