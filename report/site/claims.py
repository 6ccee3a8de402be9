"""The claims of the paper with their verdicts: all of them on a view, the decided ones at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from paper.claims.entries import MEANING, VERDICTS, Entry, amount, figure, setting
from records.results_tree import Tree
from report.site import links

DECIDED = ("supported", "contradicted")
WORDS = {verdict: verdict.removesuffix(" at this scale") for verdict in VERDICTS}
PRINTED = "printed numbers"
MARGIN = 0.06  # of the range that a small picture shows, left and right


def view(entries: Sequence[Entry], tree: Tree) -> dict[str, Any]:
    """For the template: `bars`, one per source of numbers, `decided` for the overview, and every claim."""
    printed = [entry for entry in entries if entry.ledger == "paper"]
    ours = [entry for entry in entries if entry.ledger == "ours"]
    sources = [(PRINTED, printed)]
    for name in dict.fromkeys(setting(entry) for entry in ours if entry.reading is None):
        sources.append((f"runs, {name}", [e for e in ours if e.reading is None and setting(e) == name]))
    claims = [_claim(entry, [other for other in ours if other.id == entry.id], tree) for entry in printed]
    return {
        "bars": [_bar(name, entries) for name, entries in sources],
        "meaning": [(WORDS[verdict], meaning) for verdict, meaning in MEANING.items()],
        "decided": [c for c in claims if any(line["verdict"] in DECIDED for line in c["lines"])],
        "claims": claims,
    }


def _bar(name: str, entries: Sequence[Entry]) -> dict[str, Any]:
    counts = Counter(entry.verdict for entry in entries)
    return {
        "name": name,
        "parts": [(WORDS[v], counts[v], round(100 * counts[v] / len(entries), 2)) for v in VERDICTS if counts[v]],
    }


def _claim(claim: Entry, mine: Sequence[Entry], tree: Tree) -> dict[str, Any]:
    return {
        "id": claim.id,
        "quote": " ".join(claim.quote.split()),
        "where": claim.where,
        "lines": [_line(claim, PRINTED, tree), *(_line(entry, _named(entry), tree) for entry in mine)],
    }


def _named(entry: Entry) -> str:
    return f"runs, {setting(entry)}"


def _line(entry: Entry, name: str, tree: Tree) -> dict[str, Any]:
    null = "" if entry.null is None else f"claimed {entry.claimed} {amount(entry.null, entry.unit)}"
    known = {f"runs/{run.path.as_posix()}": run for run in tree.runs}
    runs = [known[one] for one in entry.runs if one in known]
    notes = []
    if entry.p_holm is not None:
        notes.append(f"p {entry.p_holm:.2g} after Holm over {entry.tests}")
    if entry.verdict == "undecided" and entry.detectable is not None:
        notes.append(f"{amount(entry.detectable, entry.unit)} {entry.unit} would have been seen")
    return {
        "name": name,
        "verdict": WORDS[entry.verdict],
        "statement": entry.statement,
        "tested": entry.tested,
        "figure": figure(entry),
        "null": null,
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
    """Places (percent of the width) of interval, estimate and null."""
    if entry.estimate is None or entry.low is None or entry.high is None or entry.null is None:
        return None
    shown = (entry.low, entry.high, entry.estimate, entry.null)
    low, high = min(shown), max(shown)
    room = MARGIN * (high - low) or 1.0
    low, high = low - room, high + room

    def place(value: float) -> float:
        return round(100 * (value - low) / (high - low), 2)

    return {
        "low": place(entry.low),
        "width": round(place(entry.high) - place(entry.low), 2),
        "dot": place(entry.estimate),
        "null": place(entry.null),
    }
