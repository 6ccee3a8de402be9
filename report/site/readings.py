"""Where the paper can be read in more than one way: what was chosen, and what another choice changed here."""

from __future__ import annotations

from typing import Any

from evals import learning_curves
from methods import catalog
from methods.readings import READINGS, Reading
from records.layout import split
from records.results_tree import Tree
from report.site import links

MEASURE = "area"


def view(tree: Tree) -> dict[str, Any]:
    """For the template: `tried`, the readings that some run takes otherwise; the rest by who holds them."""
    entries = [_reading(reading, tree) for reading in READINGS]
    return {
        "measure": learning_curves.MEASURES[MEASURE].title,
        "tried": [entry for entry in entries if entry["effects"]],
        "rest": [entry for entry in entries if not entry["effects"] and entry["room"] == "methods"],
        "elsewhere": [entry for entry in entries if entry["room"] != "methods"],
    }


def twin(method: str, reading: Reading) -> str | None:
    """The method (with its variant) whose only difference is that it takes the reading's default: `tepo_kl_all+beta=1`
    of `tepo_kl_all+beta=1+kl-estimator=k1`. None for a method that takes the default."""
    key, variant = split(method)
    ours = catalog.parse(key).readings.get(reading.name)
    name, *options = key.split("+")
    for option in options:
        other = catalog.parse("+".join([name, *(o for o in options if o != option)]))
        if ours != other.readings.get(reading.name):
            return other.key if variant is None else f"{other.key}@{variant}"
    return None


def _reading(reading: Reading, tree: Tree) -> dict[str, Any]:
    return {
        "id": reading.id,
        "name": reading.name,
        "room": reading.room,
        "why": reading.why,
        "default": reading.default,
        "values": list(reading.values.items()),
        "effects": [
            effect
            for method in tree.methods
            if (other := twin(method, reading)) is not None
            for model in dict.fromkeys(run.model for run in tree.runs if run.method == method)
            if (effect := _effect(model, method, other, reading, tree))
        ],
    }


def _effect(model: str, method: str, other: str, reading: Reading, tree: Tree) -> dict[str, Any]:
    """One line: this method against its twin on a model, or that the twin was not run."""
    runs = [run for run in tree.runs if (run.model, run.method) == (model, method)]
    ended = [(tree.record(run) or {}).get("collapsed_at") for run in runs]
    line = {
        "value": catalog.parse(split(method)[0]).readings[reading.name],
        "title": tree.methods[method]["title"],
        "model": links.model_title(model, tree),
        "runs": [{"href": links.run(run), "seed": run.seed} for run in runs],
        "collapsed": [rollout for rollout in ended if rollout is not None],
        "against": None,
        "change": "",
        "how": "",
    }
    if not any((run.model, run.method) == (model, other) for run in tree.runs):
        return line
    gain = learning_curves.compare(tree, model, method, other, MEASURE)
    if gain.difference is not None:
        line["change"] = f"{gain.difference:+.3f}"
        if gain.low is not None and gain.high is not None:
            line["change"] += f" [{gain.low:+.3f}, {gain.high:+.3f}]"
    return line | {"against": tree.methods[other]["title"], "how": gain.how}
