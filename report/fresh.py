"""The second round of a sweep: methods compared on seeds that chose nothing, each at its own value, and all at one.

`rows` gives the lines of sweep/fresh.csv. `compared` says which comparison a line belongs to: `chosen`, every method
at the value that was best for it on the selection seeds; `own`, every method at the scale's own value, which stands for
the paper's single one. Regret is what the latter costs a method: its chosen value minus the scale's, paired by seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from records.layout import REFERENCE, Run
from records.results_tree import Tree
from report import sweep_points
from report.sweep_points import Point

if TYPE_CHECKING:
    from evals.stats.estimate import Comparison

HEADER = (
    "compared", "model", "row", "title", "method", "values", "seeds", "area", "area_low", "area_high", "versus",
    "difference", "difference_low", "difference_high", "p", "p_holm", "tests", "mark", "rank", "rank_low", "rank_high",
    "methods", "best", "best_how", "final", "final_low", "final_high", "score", "score_low", "score_high", "failed",
    "regret", "regret_low", "regret_high", "regret_p", "regret_p_holm", "regret_mark", "areas_by_seed",
)  # fmt: skip
COMPARED = {"chosen": "Each method at its own value", "own": "Every method at the scale's own value"}
ALPHA = 0.05


def rows(tree: Tree, found: Sequence[Point]) -> list[dict[str, Any]]:
    """Lines of fresh.csv; none before the second round is planned. found: the points on the selection seeds.

    Raises MissingInputError where a planned run is not finished.
    """
    sweep = tree.matrix["sweep"]
    best = sweep_points.chosen(found, sweep["by"])
    entries = {(entry["model"], entry["row"], entry["method"]): entry for entry in sweep["points"]}
    own = {(e["model"], e["row"]): e["method"] for e in sweep["points"] if e["method"] == e["base"]}
    lines = []
    for model in dict.fromkeys(point.model for point in found):
        sides: dict[str, dict[str, Point]] = {name: {} for name in COMPARED}
        for row in dict.fromkeys(point.row for point in found if point.model == model):
            wanted = {"chosen": best[model, row].method, "own": own.get((model, row))}
            for name, method in wanted.items():
                seeds = [seed for seed in sweep["test_seeds"] if method and Run(model, method, seed) in tree.runs]
                if method and seeds:
                    sides[name][row] = sweep_points.measured(tree, entries[model, row, method], seeds)
        if len(sides["own"]) < len(sides["chosen"]):
            sides["own"] = {}  # only methods whose chosen value is the scale's: no comparison of all at one value
        regrets = _regrets(sides)
        for name, points in sides.items():
            lines += _comparison(name, points, str(tree.matrix.get("baseline") or REFERENCE), regrets, tree)
    return lines


def _regrets(sides: Mapping[str, Mapping[str, Point]]) -> dict[str, dict[str, Any]]:
    """By row; 0, and no test, where the chosen value is the scale's own."""
    from evals.stats import compare

    differences = {
        row: compare.compare_seeds(sides["chosen"][row].area, own.area)
        for row, own in sides["own"].items()
        if sides["chosen"][row].method != own.method
    }
    p_holm = compare.holm([difference.p for difference in differences.values()])
    regrets: dict[str, dict[str, Any]] = {row: {"regret": 0.0} for row in sides["own"]}
    for (row, difference), corrected in zip(differences.items(), p_holm, strict=True):
        regrets[row] = {
            "regret": difference.difference,
            "regret_low": difference.low,
            "regret_high": difference.high,
            "regret_p": difference.p,
            "regret_p_holm": corrected,
            "regret_mark": mark(difference, corrected),
        }
    return regrets


def _comparison(
    name: str, points: Mapping[str, Point], baseline: str, regrets: Mapping[str, Mapping[str, Any]], tree: Tree
) -> list[dict[str, Any]]:
    from evals.stats import compare

    areas = {row: point.area for row, point in points.items()}
    chances, how = compare.chances_of_being_best(areas)
    places = compare.ranks(areas)
    means = {row: point.mean("area") or 0.0 for row, point in points.items()}
    base = next((point for point in points.values() if baseline in (point.base, point.row)), None)
    differences = {
        row: compare.compare_seeds(point.area, base.area) for row, point in points.items() if base and point is not base
    }
    p_holm = dict(zip(differences, compare.holm([d.p for d in differences.values()]), strict=True))
    lines = []
    for row, point in points.items():
        line: dict[str, Any] = dict.fromkeys(HEADER)
        line |= {"compared": name, "model": point.model, "row": row, "title": point.title, "method": point.method}
        line |= {"values": point.words, "seeds": " ".join(map(str, sorted(point.area)))}
        for key, by_seed in (("area", point.area), ("final", point.final), ("score", point.score)):
            if by_seed:
                estimate = compare.over_seeds(by_seed)
                line |= {key: estimate.value, f"{key}_low": estimate.low, f"{key}_high": estimate.high}
        difference = differences.get(row)
        if difference is not None and base is not None:
            line |= {"versus": base.method, "difference": difference.difference, "p": difference.p}
            line |= {"difference_low": difference.low, "difference_high": difference.high}
            line |= {"p_holm": p_holm[row], "tests": sum(p is not None for p in p_holm.values())}
            line |= {"mark": mark(difference, p_holm[row])}
        line |= {"rank": 1 + sum(other > means[row] for other in means.values()), "methods": len(points)}
        line |= dict(zip(("rank_low", "rank_high"), places.get(row, (None, None)), strict=True))
        line |= {"best": chances.get(row), "best_how": how, "failed": len(point.failed)}
        line |= {"areas_by_seed": " ".join(f"{seed}:{point.area[seed]!r}" for seed in sorted(point.area))}
        lines.append(line | (dict(regrets.get(row, {})) if name == "own" else {}))
    return lines


def mark(difference: Comparison, p_holm: float | None) -> str:
    """As in the tables (`report.tables.render.mark`): it never contradicts the interval that it stands beside."""
    if difference.low is None or difference.high is None or p_holm is None or difference.difference is None:
        return "?"
    if difference.low <= 0 <= difference.high:
        return "≈"
    return ("↑" if difference.difference > 0 else "↓") + ("" if p_holm < ALPHA else "?")
