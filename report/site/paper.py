"""What results say to the paper: claims with their verdicts, the audit of its tables, its readings."""

import re
from collections import Counter
from typing import Any

from core.errors import written_by
from core.files import read_text
from core.provenance import ROOT
from core.results_tree import Tree
from paper.claims import entries
from paper.claims.entries import DECIDED, VERDICTS, Entry, amount, margin, setting
from report.site import assets, links
from report.site.tables import axis, place

WORDS = {verdict: verdict.removesuffix(" at this scale") for verdict in VERDICTS}
PRINTED = "printed numbers"
ALGEBRA = "algebra"  # kind of test that random policies answer, and no run
CHECKED = "formulas, on random policies (no run)"


def claims(tree: Tree) -> dict[str, Any]:
    """For the template: `counts` of verdicts by source of numbers, `decided` for the overview, every claim, and
    `judged`, the folders of the runs behind verdicts.

    decided: verdict -> claims that runs of this tree decide, each with the line that does: over all models before one
    model alone. A check of a formula involves no run of the tree, so it is counted by itself.
    """
    with written_by(f"python -m paper.claims --results {tree.root}"):
        tree.check_written("claims", "claims.csv")
        verdicts = entries.read(tree.root / "claims.csv")
    printed = [entry for entry in verdicts if entry.ledger == "paper"]
    ours = [entry for entry in verdicts if entry.ledger == "ours"]
    runs = [entry for entry in ours if entry.reading is None and entry.method is None and entry.kind != ALGEBRA]
    sources = {_source(entry): [other for other in runs if _source(other) == _source(entry)] for entry in runs}
    # What is not testable at a scale is so in print and in runs: the sources stand below each other.
    sources[PRINTED] = [entry for entry in printed if entry.kind != ALGEBRA]
    sources[CHECKED] = [entry for entry in ours if entry.kind == ALGEBRA]
    views: list[dict[str, Any]] = []
    decided: dict[str, list[dict[str, Any]]] = {WORDS[verdict]: [] for verdict in DECIDED}
    for claim in printed:
        answers = [entry for entry in ours if entry.id == claim.id]
        # A formula's check is the same whatever the numbers: it stands once.
        told = answers if claim.kind == ALGEBRA else [claim, *answers]
        # Beside a verdict stands what was tested: a quote says more, or something else.
        words = {"statement": claim.statement, "quote": entries.readable(claim.quote), "untested": claim.untested}
        lines = [_line(entry, tree) for entry in told]
        views.append({"id": claim.id, "where": claim.where, "lines": lines, **words})
        by_runs = (line for entry, line in zip(told, lines, strict=True) if entry in runs and entry.verdict in DECIDED)
        if first := next(by_runs, None):
            decided[first["verdict"]].append({"id": claim.id, **first})
    counted = {name: Counter(entry.verdict for entry in found) for name, found in sources.items() if found}
    return {
        "counts": [(name, [(WORDS[v], n[v]) for v in VERDICTS if n[v]]) for name, n in counted.items()],
        "rule": entries.RULE,
        "meaning": [(WORDS[verdict], text.replace("`", "")) for verdict, text in entries.MEANING.items()],
        "decided": {verdict: found for verdict, found in decided.items() if found},
        "claims": views,
        "judged": {folder for entry in ours for folder in entry.runs},
    }


def _source(entry: Entry) -> str:
    """Where the numbers behind a verdict are from."""
    if entry.ledger == "paper":
        return PRINTED
    if entry.kind == ALGEBRA:
        return CHECKED
    return f"runs of this tree, {setting(entry)}" if setting(entry) else "runs of this tree"


def _line(entry: Entry, tree: Tree) -> dict[str, Any]:
    """One source of numbers, and its verdict on a claim."""
    planned = {f"runs/{run.path.as_posix()}": run for run in tree.runs}
    runs: dict[str, list[tuple[str, int]]] = {}
    for run in (planned[path] for path in entry.runs if path in planned):
        method = f"{tree.methods[run.method]['title']}, {run.model}"
        runs.setdefault(method, []).append((links.run(run), run.seed))
    notes = [margin(entry)] if margin(entry) else []
    if entry.p_holm is not None:
        notes.append(f"p {entry.p_holm:.2g} after Holm over {entry.tests}")
    if entry.verdict == "undecided" and entry.detectable is not None:
        notes.append(f"{amount(entry.detectable, entry.unit)} {entry.unit} would have been seen")
    if entry.placebo and entry.placebo != entries.NO_RUN:
        notes.append(f"placebo rewards: {entry.placebo}")
    return {
        "name": _source(entry),
        "verdict": WORDS[entry.verdict],
        "beside": f"({beside})" if (beside := entries.beside_verdict(entry)) else "",
        "bases": entry.bases,
        "method": entry.method,
        "decided": entry.verdict in DECIDED,
        "alone": entry.model or "",
        "statement": entry.statement,
        "tested": entry.tested,
        "figure": entries.figure(entry),
        "null": "" if entry.null is None else f"claimed {entry.claimed} {amount(entry.null, entry.unit)}",
        "notes": notes,
        "how": entry.how,
        "reason": entry.reason if entry.reason not in entry.how else "",
        "picture": _picture(entry),
        "runs": list(runs.items()),
        "rows": [] if runs else list(entry.runs),
    }


def _picture(entry: Entry) -> dict[str, float] | None:
    """Places (percent of the width) of interval, estimate, null and, where there is one, margin."""
    if entry.estimate is None or entry.low is None or entry.high is None or entry.null is None:
        return None
    ends = axis([entry.low, entry.high, entry.estimate, entry.null, entry.margin_low, entry.margin_high])
    low, high = place(entry.low, *ends), place(entry.high, *ends)
    drawn = {"low": low, "width": round(high - low, 2), "dot": place(entry.estimate, *ends)}
    drawn["null"] = place(entry.null, *ends)
    if entry.margin_low is not None and entry.margin_high is not None:
        left = place(entry.margin_low, *ends)
        drawn |= {"margin": left, "margin_width": round(place(entry.margin_high, *ends) - left, 2)}
    return drawn


DATA = ("docs/notebook/audit.md", "docs/notebook/readings.md")
_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\([^)]+\)")  # to other pages of docs/, which the page does not hold


def documents() -> dict[str, str]:
    """The pages behind the claims as HTML, by name."""
    pages = {path.stem: read_text(path, "page of docs/") for path in (ROOT / name for name in DATA)}
    return {name: assets.section(_LINK.sub(r"\1", _COMMENT.sub("", text))) for name, text in pages.items()}
