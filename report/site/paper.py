"""What results say to the paper: claims with their verdicts, the audit of its tables, its readings."""

import re
from collections import Counter
from typing import Any

from core.errors import written_by
from core.files import read_text
from core.provenance import ROOT
from core.results_tree import Tree
from paper import verdicts
from paper.verdicts import DECIDED, FORMULA, MEANING, PRINT, RUNS
from report.site import assets, links
from report.site.tables import axis, place

WORDS = {verdict: verdict.removesuffix(" at this scale") for verdict in MEANING}
SOURCES = {PRINT: "printed numbers", FORMULA: "formulas, on random policies (no run)", RUNS: "runs of this tree"}


def claims(tree: Tree) -> dict[str, Any]:
    """For the template: `counts` of verdicts by source of numbers, `decided` for the overview, every claim, and
    `judged`, the folders of the runs behind verdicts.

    decided: verdict -> claims that runs of this tree decide, each with the first line that does.
    """
    with written_by(f"python -m paper.claims --results {tree.root}"):
        rows = verdicts.read(tree.root / "claims.csv")
    views: dict[str, dict[str, Any]] = {}
    decided: dict[str, dict[str, Any]] = {WORDS[verdict]: {} for verdict in DECIDED}
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        line = _line(row, tree)
        counts.setdefault(line["name"], Counter())[line["verdict"]] += 1
        # Beside a verdict stands what was tested: a quote says more, or something else.
        about = {name: row[name] for name in ("id", "statement", "where", "quote", "untested")}
        views.setdefault(row["id"], about | {"lines": []})["lines"].append(line)
        shown = any(row["id"] in found for found in decided.values())
        if row["source"] == RUNS and row["verdict"] in DECIDED and not shown:
            decided[line["verdict"]][row["id"]] = {"id": row["id"], **line}
    return {
        "counts": [(name, [(v, n[v]) for v in WORDS.values() if n[v]]) for name, n in counts.items()],
        "rule": verdicts.RULE,
        "meaning": [(WORDS[verdict], text) for verdict, text in MEANING.items()],
        "decided": {verdict: list(found.values()) for verdict, found in decided.items() if found},
        "claims": list(views.values()),
        "judged": {folder for row in rows for folder in row["runs"].split()},
    }


def _line(row: dict[str, Any], tree: Tree) -> dict[str, Any]:
    """One source of numbers, and its verdict on a claim."""
    planned = {f"runs/{run.path.as_posix()}": run for run in tree.runs}
    runs: dict[str, list[tuple[str, int]]] = {}
    for run in (planned[path] for path in row["runs"].split() if path in planned):
        method = f"{tree.methods[run.method]['title']}, {run.model}"
        runs.setdefault(method, []).append((links.run(run), run.seed))
    null = verdicts.amount(row["null"], row["unit"])
    return {
        "name": SOURCES[row["source"]] + (f", {row['setting']}" if row["setting"] else ""),
        "verdict": WORDS[row["verdict"]],
        "statement": row["statement"],
        "figure": verdicts.figure(row),
        "null": f"claimed {row['claimed']} {null}" if null else "",
        "beside": verdicts.beside(row),
        "how": row["how"],
        "picture": _picture(row),
        "runs": list(runs.items()),
    }


def _picture(row: dict[str, Any]) -> dict[str, float] | None:
    """Places (percent of the width) of interval, estimate, null and, where there is one, margin."""
    names = ("low", "high", "estimate", "null", "margin_low", "margin_high")
    if None in (row["low"], row["high"]):
        return None
    ends = axis([row[name] for name in names])
    at = {name: place(row[name], *ends) for name in names if row[name] is not None}
    drawn = {"low": at["low"], "width": round(at["high"] - at["low"], 2), "dot": at["estimate"], "null": at["null"]}
    if "margin_low" in at:
        drawn |= {"margin": at["margin_low"], "margin_width": round(at["margin_high"] - at["margin_low"], 2)}
    return drawn


DATA = ("docs/notebook/audit.md", "docs/notebook/readings.md")
_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\([^)]+\)")  # to other pages of docs/, which the page does not hold


def documents() -> dict[str, str]:
    """The pages behind the claims as HTML, by name."""
    pages = {path.stem: read_text(path, "page of docs/") for path in (ROOT / name for name in DATA)}
    return {name: assets.section(_LINK.sub(r"\1", _COMMENT.sub("", text))) for name, text in pages.items()}
