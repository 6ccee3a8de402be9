"""Training on one screen: the curves of every method of every model, for the reader to choose from, and the figures.

The numbers of each seed, their means and 95 % intervals are those of `report.convergence`. Figures are the files of
`report.figure`, as images: nothing in an image runs or loads.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import written_by
from core.files import read_csv, read_json
from core.layout import REFERENCE, Run, split
from core.results_tree import Tree
from report import captions
from report.figures import css_colours, given, looks, offered
from report.site import assets, links
from report.view import number, rows_of_curves

DIGITS = 4  # significant digits in the page: more than a screen shows, and half the bytes
DASH = 3  # pixels on the screen per unit of the printed pattern
START = 6  # methods shown at first; more can be told apart, but not read at a glance
FRONT = 4  # lines of the overview's chart

Series = list[float | None]
ENDS = ("mean", "low", "high")
Bands = dict[tuple[str, str, bool, str], dict[str, Series]]  # model, method, fresh seeds?, column -> ENDS by rollout
PERCENT = 100.0


class Panel(NamedTuple):
    title: str
    column: str  # of convergence_curves.csv
    unit: str
    scale: float = 1.0  # PERCENT: of a fraction


PANELS = (
    Panel("Reward", "reward", "% right", PERCENT),
    Panel("Entropy", "entropy", "nats per token"),
    Panel("Clipped tokens", "clip_fraction_tokens", "%", PERCENT),
    Panel("KL to the old policy", "kl_old", "nats per token"),
    Panel("Gradient norm", "grad_norm", "before clipping"),
    Panel("Response length", "response_tokens", "tokens"),
    Panel("Time", "seconds", "seconds per rollout"),
    Panel("Tokens under the mask", "mask_fraction", "%", PERCENT),
    Panel("KL of a rollout", "kl_step", "nats per token"),
    Panel("KL to the base model", "kl_base", "nats per token"),
    Panel("Update norm", "update_norm", "L2"),
    Panel("Effective step", "effective_step", "learning rates"),
    Panel("Clipped updates", "grad_clipped", "%", PERCENT),
)


def view(tree: Tree, first: Sequence[Run] = ()) -> dict[str, Any]:
    """What the page's scripts draw: panels, looks to give away, lines with their numbers by panel, and the overview's
    lines: of the methods of the runs `first`, on fresh seeds where the tree has them.

    A line is a method (with its variant) of a model.
    """
    styles = {split(tree.method_for(name) or name)[0]: place for name, place in given().items()}
    seeds: dict[bool, dict[tuple[str, str], dict[Run, dict[str, Series]]]] = {True: {}, False: {}}
    curves = _curves(tree)
    bands = _bands(tree)
    for run in tree.runs:
        if run in curves:
            seeds[tree.is_fresh(run)].setdefault((run.model, run.method), {})[run] = curves[run]
    lines = [_line(*key, runs, tree, styles, bands) for key, runs in seeds[False].items()]
    keys = {(run.model, run.method) for run in first}
    shown = {key: runs for key, runs in (seeds[True] or seeds[False]).items() if key in keys}
    trained, planned = {run.variant for run in tree.runs}, tree.matrix.get("variants", {})
    variants = [[name, str(body["title"])] for name, body in planned.items() if name in trained]
    return {
        "front": _front([_line(*key, runs, tree, styles, bands) for key, runs in shown.items()], tree),
        "panels": [
            {"id": panel.column, "title": panel.title, "label": panel.unit}
            for panel in PANELS
            if any(panel.column in line["values"] for line in lines)
        ],
        "looks": [
            {"colour": css_colours()[colour], "dashes": [DASH * dash for dash in dashes], "width": width}
            for colour, dashes, width in looks()
        ],
        "given": sorted(styles.values()),
        "lines": lines,
        "models": [[str(model["key"]), str(model["title"])] for model in tree.models],
        "variants": [["", "the scale's own settings"], *variants],
        "start": START,
    }


def _front(lines: Sequence[dict[str, Any]], tree: Tree) -> list[dict[str, Any]]:
    """The reward of GRPO/DAPO, of TEPO, and of the methods with the largest area under the curve beside them."""

    def place(line: Mapping[str, Any]) -> tuple[int, float]:
        names = (tree.chosen.get((line["model"], n)) or tree.method_for(n) or n for n in (REFERENCE, links.TEPO))
        keys = [split(name)[0] for name in names]
        area = sum(value or 0.0 for seed in line["values"]["reward"]["seeds"].values() for value in seed)
        return keys.index(line["method"]) if line["method"] in keys else len(keys), -area / len(line["runs"])

    found = [line | {"values": {"reward": line["values"]["reward"]}} for line in lines if "reward" in line["values"]]
    return sorted(found, key=place)[:FRONT]


def _rounded(value: float | None, scale: float) -> float | None:
    return None if value is None else float(f"{value * scale:.{DIGITS}g}")


def _curves(tree: Tree) -> dict[Run, dict[str, Series]]:
    """Of each run that has a curve: column -> value by rollout."""
    needed = ("model", "method", "seed", *(panel.column for panel in PANELS))
    found: dict[Run, dict[str, Series]] = {}
    with rows_of_curves(tree, {"convergence_curves.csv": ("the curves by rollout", needed)}) as (rows,):
        for row in rows:
            run = Run(row["model"], row["method"], int(row["seed"]))
            curve = found.setdefault(run, {panel.column: [] for panel in PANELS})
            for column, values in curve.items():
                values.append(number(row[column]))
    return found


def _bands(tree: Tree) -> Bands:
    """The means and intervals over seeds."""
    found: Bands = {}
    needed = ("model", "method", "fresh", "series", *ENDS)
    with rows_of_curves(tree, {"convergence_bands.csv": ("the curves over seeds", needed)}) as (rows,):
        for row in rows:
            band = found.setdefault((row["model"], row["method"], row["fresh"] == "yes", row["series"]), {})
            for end in ENDS:
                band.setdefault(end, []).append(number(row[end]))
    return found


def _line(
    model: str,
    method: str,
    seeds: Mapping[Run, Mapping[str, Series]],
    tree: Tree,
    styles: Mapping[str, int],
    bands: Bands,
) -> dict[str, Any]:
    key, variant = split(method)
    fresh = tree.is_fresh(next(iter(seeds)))
    values: dict[str, Any] = {}
    for panel in PANELS:
        by_seed = {str(run.seed): curve[panel.column] for run, curve in seeds.items()}
        if all(value is None for series in by_seed.values() for value in series):
            continue  # the method never has it
        lines = {seed: [_rounded(v, panel.scale) for v in series] for seed, series in by_seed.items()}
        numbers: dict[str, Any] = {"seeds": lines}
        for name, series in bands.get((model, method, fresh, panel.column), {}).items():
            if name == "mean" or any(value is not None for value in series):
                numbers[name] = [_rounded(value, panel.scale) for value in series]
        values[panel.column] = numbers
    title = str(tree.methods[method]["title"])
    setting = str(tree.matrix["variants"][variant]["title"]) if variant else ""
    collapsed = {str(run.seed): (tree.record(run) or {}).get("collapsed_at") for run in seeds}
    return {
        "model": model,
        "method": key,
        "variant": variant or "",
        # The chooser names model and settings, so the method's own title does not repeat them.
        "title": title.removesuffix(f", {setting}") if setting else title,
        "look": styles.get(key),  # as figures draw it; None: any
        "runs": {str(run.seed): links.run(run) for run in seeds},
        "ended": {seed: rollout for seed, rollout in collapsed.items() if rollout is not None},
        "values": values,
    }


def figures(tree: Tree) -> list[dict[str, Any]]:
    """Every figure that the plan offers, for the template."""
    views = []
    for figure in offered(tree):
        key = figure.key
        with written_by(f"python -m report.figure --results {tree.root} --figure {key}"):
            needed = (f"figures/{key}{suffix}" for suffix in (".csv", ".json", ".svg"))
            tree.check_written(f"figures/{key}", *needed)
            path = tree.layout.figures / f"{key}.csv"
            rows = read_csv(path, "the numbers of the figure", ("model", "method"), allow_empty=True)
            notes = read_json(path.with_suffix(".json"), "the notes of the figure")["notes"]
        name = key.removeprefix("figure")
        views.append(
            {
                "key": key,
                "title": f"Figure {name}: {figure.title}" if name != key else figure.title,
                "picture": f"{assets.FOLDER}/figures/{key}.svg",
                "pdf": (tree.layout.figures / f"{key}.pdf").is_file(),
                "alt": figure.title,
                "caption": captions.paragraphs(key),
                "notes": notes,
                "curves": links.curves([(row["model"], row["method"]) for row in rows]),
            }
        )
    return views


def pictures(tree: Tree) -> dict[str, Path]:
    """The SVG files that the page shows, by the name of the companion file that each becomes."""
    frontier = tree.root / "sweep/frontier.svg"
    shown = {figure.key: tree.layout.figures / f"{figure.key}.svg" for figure in offered(tree)}
    return shown | ({"frontier": frontier} if frontier.is_file() else {})
