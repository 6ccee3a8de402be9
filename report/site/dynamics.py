"""Training on one screen: the curves of every method of every model, for the reader to choose from.

The numbers are those of `report.convergence`: mean and range over seeds from convergence_dynamics.csv, single seeds
from convergence_curves.csv.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from records.errors import CorruptInputError, written_by
from records.files import cells_of, read_csv
from records.layout import split
from records.results_tree import Tree
from report.figures.drawing import number
from report.figures.spec import css_colours, looks, preferred
from report.site import links
from report.site.runs import PANELS, Summary

MEANS = "figures/convergence_dynamics.csv"
COLUMNS = ("model", "method", "quantity", "value", "low", "high")
DIGITS = 5  # significant digits in the page: more than a screen shows, and half the bytes
DASH = 3  # pixels on the screen per unit of the printed pattern
START = 6  # methods shown at first; more can be told apart, but not read at a glance

Series = list[float | None]


def view(tree: Tree, summaries: Sequence[Summary]) -> dict[str, Any]:
    """What the page's scripts draw: panels, looks to give away, and lines with their numbers by panel.

    A line is a method (with its variant) of a model. `seeds` of a line: seed -> {column: values by rollout}.
    """
    means = _means(tree)
    seeds: dict[tuple[str, str], list[Summary]] = {}
    for summary in summaries:
        if summary.rollouts and not tree.is_fresh(summary.run):
            seeds.setdefault((summary.run.model, summary.run.method), []).append(summary)
    lost = [key for key in seeds if key not in means]
    if lost:
        raise CorruptInputError(f"{tree.root / MEANS}: no row for {lost[0][1]} of {lost[0][0]}, which has curves")
    lines = [_line(model, method, found, means[model, method], tree) for (model, method), found in seeds.items()]
    return {
        "panels": [
            {"id": panel.column, "title": panel.title, "label": panel.unit}
            for panel in PANELS
            if any(panel.column in line["values"] for line in lines)
        ],
        "looks": [look(*one) for one in looks()],
        "lines": lines,
        "models": [[str(model["key"]), str(model["title"])] for model in tree.models],
        "variants": [["", "the scale's own settings"], *_variants(tree)],
        "start": START,
    }


def look(colour: str, dashes: Sequence[float], width: float) -> dict[str, Any]:
    """How a line looks, for the page: a variable of its style sheet, pixels on the screen."""
    return {"colour": css_colours()[colour], "dashes": [DASH * dash for dash in dashes], "width": width}


def rounded(value: float | None, scale: float = 1.0) -> float | None:
    return None if value is None else float(f"{value * scale:.{DIGITS}g}")


def _variants(tree: Tree) -> list[list[str]]:
    trained = {run.variant for run in tree.runs}
    return [[name, str(body["title"])] for name, body in tree.matrix.get("variants", {}).items() if name in trained]


def _means(tree: Tree) -> dict[tuple[str, str], dict[str, dict[str, Series]]]:
    """(model, method) -> column -> value, low, high by rollout."""
    found: dict[tuple[str, str], dict[str, dict[str, Series]]] = {}
    with written_by(f"python -m report.convergence --results {tree.root}"):
        tree.check_written("figures/convergence", MEANS)
        rows = read_csv(tree.root / MEANS, "the curves of each method", COLUMNS, allow_empty=True)
        with cells_of(tree.root / MEANS):
            for row in rows:
                columns = found.setdefault((row["model"], row["method"]), {})
                series = columns.setdefault(row["quantity"], {"value": [], "low": [], "high": []})
                for key, values in series.items():
                    values.append(number(row[key]))
    return found


def _line(
    model: str, method: str, seeds: Sequence[Summary], means: Mapping[str, Mapping[str, Series]], tree: Tree
) -> dict[str, Any]:
    key, variant = split(method)
    values: dict[str, Any] = {}
    for panel in PANELS:
        if panel.column not in means:
            continue
        mean = means[panel.column]
        numbers: dict[str, Any] = {
            "seeds": {str(s.run.seed): [rounded(v, panel.scale) for v in s.curve[panel.column]] for s in seeds}
        }
        if len(seeds) > 1:
            words = {"mean": "value", "low": "low", "high": "high"}
            numbers |= {word: [rounded(v, panel.scale) for v in mean[name]] for word, name in words.items()}
        values[panel.column] = numbers
    title = str(tree.methods[method]["title"])
    setting = str(tree.matrix["variants"][variant]["title"]) if variant else ""
    return {
        "model": model,
        "method": key,
        "variant": variant or "",
        # The chooser names model and settings, so the method's own title does not repeat them.
        "title": title.removesuffix(f", {setting}") if setting else title,
        "look": preferred(key),
        "runs": {str(s.run.seed): links.run(s.run) for s in seeds},
        "ended": {str(s.run.seed): s.collapsed_at for s in seeds if s.collapsed_at is not None},
        "values": values,
    }
