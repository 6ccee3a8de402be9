"""What results say to the paper: claims with their verdicts, readings with their effects, the audit of its tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from methods.readings import READINGS
from paper.claims import entries
from paper.claims.entries import (
    MEANING,
    NO_RUN,
    RULE,
    VERDICTS,
    Entry,
    Verdict,
    amount,
    figure,
    margin,
    setting,
)
from records.errors import written_by
from records.files import cells_of, read_csv, read_text
from records.provenance import ROOT
from records.results_tree import Tree
from report.figures.spec import css_colours
from report.site import assets, links
from report.site.figures import inline

DECIDED: tuple[Verdict, ...] = ("supported", "contradicted", "equal within the margin")
WORDS = {verdict: verdict.removesuffix(" at this scale") for verdict in VERDICTS}
PRINTED = "printed numbers"
ALGEBRA = "algebra"  # kind of test that random policies answer, and no run
CHECKED = "formulas, on random policies (no run)"
MEASURE = "area under the reward curve"  # what convergence_readings.csv compares
MARGIN = 0.06  # of the range that a small picture shows, left and right


def claims(tree: Tree) -> dict[str, Any]:
    """For the template: `bars`, one per source of numbers, `decided` for the overview, every claim, and `judged`, the
    folders of the runs behind verdicts.

    A check of a formula involves no run of the tree, so it counts in a bar of its own.
    """
    with written_by(f"python -m paper.claims --results {tree.root}"):
        tree.check_written("claims", "claims.csv")
        verdicts = entries.read(tree.root / "claims.csv")
    printed = [entry for entry in verdicts if entry.ledger == "paper"]
    ours = [entry for entry in verdicts if entry.ledger == "ours"]
    runs = [entry for entry in ours if entry.reading is None and entry.kind != ALGEBRA]
    bars = [
        _bar(_source(name), [entry for entry in runs if setting(entry) == name])
        for name in dict.fromkeys(setting(entry) for entry in runs)
    ]
    # What is not testable at a scale is so in print and in runs: the sources stand below each other.
    bars.append(_bar(PRINTED, [entry for entry in printed if entry.kind != ALGEBRA]))
    bars.append(_bar(CHECKED, [entry for entry in ours if entry.kind == ALGEBRA]))
    # The same claim on its main model alone is no second claim.
    from_runs = [entry for entry in runs if entry.verdict in DECIDED and entry.model is None]
    views: list[dict[str, Any]] = []
    for claim in printed:
        # A formula's check is the same whatever the numbers: it stands once.
        lines = [] if claim.kind == ALGEBRA else [_line(claim, PRINTED, tree)]
        answers = [entry for entry in ours if entry.id == claim.id]
        lines += [_line(e, CHECKED if e.kind == ALGEBRA else _source(setting(e)), tree) for e in answers]
        # Beside a verdict stands what was tested: a quote says more, or something else.
        words = {"statement": (answers or [claim])[0].statement, "quote": readable(" ".join(claim.quote.split()))}
        views.append({"id": claim.id, "where": claim.where, "lines": lines, **words})
    return {
        "bars": [bar for bar in bars if bar["parts"]],
        "headline": _headline(from_runs, tree),
        "meaning": [(WORDS[verdict], meaning) for verdict, meaning in MEANING.items()],
        "decided": [view for view in views if any(line["decided"] for line in view["lines"])],
        "claims": views,
        "judged": {folder for entry in ours for folder in entry.runs},
    }


def _source(setting: str) -> str:
    return f"runs of this tree, {setting}" if setting else "runs of this tree"


def _headline(decided: Sequence[Entry], tree: Tree) -> str:
    """What the runs of this tree, and nothing else, say to the paper's claims."""
    if not decided:
        return f"The runs of this tree give no verdict on any claim. {RULE}"
    counts = Counter(entry.verdict for entry in decided)
    *before, last = (f"{counts[verdict]} {verdict}" for verdict in DECIDED if counts[verdict])
    said = f"{', '.join(before)} and {last}" if before else last
    return f"By the runs of this tree: {said}, of the claims below. {RULE}"


# The names that the paper's quotes use in formulas. A quote is a headline here: it is read, and not set.
TEX = {
    r"\mathcal{H}": "H", r"\Delta": "Δ", r"\pi": "π", r"\theta": "θ", r"\phi": "φ", r"\nabla": "∇", r"\langle": "⟨",
    r"\rangle": "⟩", r"\log": "log", r"\text": "", r"\rightarrow": "→", r"\wedge": "∧", r"\beta": "β", r"\mid": "|",
    r"\cdot": "·", r"\quad": " ", r"\%": "%", r"\mathbb{E}": "E", r"\sum": "Σ", r"\sim": "~", r"\tau": "τ",
    r"\triangleright": "", "&=": "=", "**": "", "$": "", "{": "", "}": "",
}  # fmt: skip


def readable(text: str) -> str:
    """A quote with its formulas in plain letters.

    >>> readable(r"trading larger $\\Delta\\mathcal{H}$")
    'trading larger ΔH'
    """
    for tex, plain in TEX.items():
        text = text.replace(tex, plain)
    return " ".join(text.split())


def _bar(name: str, verdicts: Sequence[Entry]) -> dict[str, Any]:
    """How many claims got which verdict, and their share of the bar in percent."""
    counts = Counter(entry.verdict for entry in verdicts)
    parts = [(WORDS[v], counts[v], round(100 * counts[v] / len(verdicts), 2)) for v in VERDICTS if counts[v]]
    return {"name": name, "parts": parts}


def _line(entry: Entry, name: str, tree: Tree) -> dict[str, Any]:
    """What one source of numbers says to a claim."""
    planned = {f"runs/{run.path.as_posix()}": run for run in tree.runs}
    runs = [planned[path] for path in entry.runs if path in planned]
    notes = [margin(entry)] if margin(entry) else []
    if entry.p_holm is not None:
        notes.append(f"p {entry.p_holm:.2g} after Holm over {entry.tests}")
    if entry.verdict == "undecided" and entry.detectable is not None:
        notes.append(f"{amount(entry.detectable, entry.unit)} {entry.unit} would have been seen")
    if entry.placebo and entry.placebo != NO_RUN:
        notes.append(f"placebo rewards: {entry.placebo}")
    return {
        "name": name,
        "verdict": WORDS[entry.verdict],
        "beside": f"({NO_RUN})" if entry.placebo == NO_RUN else "",
        "decided": entry.verdict in DECIDED,
        "statement": entry.statement,
        "tested": entry.tested,
        "figure": figure(entry),
        "null": "" if entry.null is None else f"claimed {entry.claimed} {amount(entry.null, entry.unit)}",
        "notes": notes,
        "how": entry.how,
        "reason": entry.reason if entry.reason not in entry.how else "",
        "picture": _picture(entry),
        "runs": [
            {"href": links.run(run), "title": f"{tree.methods[run.method]['title']}, {run.model}, seed {run.seed}"}
            for run in runs
        ],
        "rows": [] if runs else list(entry.runs),
    }


def _picture(entry: Entry) -> dict[str, float] | None:
    """Places (percent of the width) of interval, estimate, null and, where there is one, margin."""
    if entry.estimate is None or entry.low is None or entry.high is None or entry.null is None:
        return None
    shown = [entry.low, entry.high, entry.estimate, entry.null]
    if entry.margin_low is not None and entry.margin_high is not None:
        shown += [entry.margin_low, entry.margin_high]
    low, high = min(shown), max(shown)
    room = MARGIN * (high - low) or 1.0
    low, high = low - room, high + room

    def place(value: float) -> float:
        return round(100 * (value - low) / (high - low), 2)

    picture = {
        "low": place(entry.low),
        "width": round(place(entry.high) - place(entry.low), 2),
        "dot": place(entry.estimate),
        "null": place(entry.null),
    }
    if entry.margin_low is not None and entry.margin_high is not None:
        picture |= {
            "margin": place(entry.margin_low),
            "margin_width": round(place(entry.margin_high) - place(entry.margin_low), 2),
        }
    return picture


# Where the paper can be read in more than one way: what was chosen, and what another choice changed here.


def readings(tree: Tree) -> dict[str, Any]:
    """For the template: `tried`, the readings that some run takes otherwise; the rest by who holds them."""
    with written_by(f"python -m report.convergence --results {tree.root}"):
        rows = read_csv(
            tree.layout.figures / "convergence_readings.csv",
            "what other readings changed",
            ("reading", "value", "model", "method", "versus", "difference", "low", "high", "how"),
            allow_empty=True,
        )
    with cells_of(tree.layout.figures / "convergence_readings.csv"):
        effects: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            effects.setdefault(row["reading"], []).append(_effect(row, tree))
    entries = [
        {
            "id": reading.id,
            "name": reading.name,
            "room": reading.room,
            "why": reading.why,
            "default": reading.default,
            "values": list(reading.values.items()),
            "effects": effects.get(reading.name, []),
        }
        for reading in READINGS
    ]
    return {
        "measure": MEASURE,
        "tried": [entry for entry in entries if entry["effects"]],
        "rest": [entry for entry in entries if not entry["effects"] and entry["room"] == "methods"],
        "elsewhere": [entry for entry in entries if entry["room"] != "methods"],
    }


def _effect(row: Mapping[str, str], tree: Tree) -> dict[str, Any]:
    """One line: a method that takes another reading, against the method that takes the default."""
    runs = [run for run in tree.runs if (run.model, run.method) == (row["model"], row["method"])]
    collapsed = [(tree.record(run) or {}).get("collapsed_at") for run in runs]
    change = ""
    if row["difference"]:
        change = f"{float(row['difference']):+.3f}"
        if row["low"] and row["high"]:
            change += f" [{float(row['low']):+.3f}, {float(row['high']):+.3f}]"
    return {
        "value": row["value"],
        "title": tree.methods[row["method"]]["title"],
        "model": links.model_title(row["model"], tree),
        "runs": [{"href": links.run(run), "seed": run.seed} for run in runs],
        "collapsed": [rollout for rollout in collapsed if rollout is not None],
        "against": tree.methods[row["versus"]]["title"] if row["versus"] else None,
        "change": change,
        "how": row["how"],
    }


def audit() -> str:
    """The audit of the printed tables as HTML: the same for all results."""
    return assets.html(read_text(_DOCS / "audit.md", "audit of the printed tables"))


# What holds whatever the results: how losses differ between frameworks, and what a sampler does to their gradients.

DATA = ("docs/notebook/atlas.md", "docs/notebook/audit.md", "docs/notebook/sampler.md", "docs/notebook/sampler.svg")
_DOCS = ROOT / "docs" / "notebook"
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\([^)]+\)")  # to other pages of docs/, which the page does not hold
_HEADING = re.compile(r"^#(?=#* )", re.MULTILINE)
_PICTURE = re.compile(r"<p><img src=\"([\w-]+)\.svg\" alt=\"([^\"]*)\"\s*/?></p>")


def losses() -> list[str]:
    """The notebook's pages on losses and samplers as HTML, pictures inside."""

    def inside(match: re.Match[str]) -> str:
        return inline(_DOCS / f"{match[1]}.svg", match[1], match[2], css_colours())

    texts = (read_text(_DOCS / f"{name}.md", "page about losses") for name in ("atlas", "sampler"))
    # one level down: the view has a heading of its own
    return [_PICTURE.sub(inside, assets.html(_HEADING.sub("##", _LINK.sub(r"\1", text)))) for text in texts]
