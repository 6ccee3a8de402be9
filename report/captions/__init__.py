"""Captions of tables and figures: plain paragraphs in `*.rst`, used by our pages and by Snakemake's report."""

from collections.abc import Mapping
from typing import Any

from core.provenance import ROOT

DATA = ("report/captions",)
HERE = ROOT / DATA[0]

LEVELS = {
    "problem": (
        "Intervals at problem level (95 %): what the same checkpoint would score on other problems of the same kind. "
        "They hold one training run fixed: one seed, no method-level interval."
    ),
    "seed": "Intervals at seed level (95 %): what the mean of other training seeds of the same method would be.",
}

# A line under a table for each mark, word or column that occurs in it; "": under every table.
FOOTNOTES = {
    "": "Percent of responses that are right, with 95 % intervals in brackets. How they are made: docs/statistics.md.",
    "Avg. (pooled)": "Avg. (pooled): over all responses of all benchmarks, as in the paper's Avg.",
    "Avg. (macro)": "Avg. (macro): mean of the benchmark columns.",
    "bold": "Bold: highest of its column among the rows of one model, with a difference to the baseline outside noise.",
    "↑": "↑ ↓: the interval of the paired difference to the baseline excludes 0, also after Holm's correction.",
    "↑?": "↑? ↓?: it excludes 0, but not after the correction over this column of the table.",
    "≈": "≈: it includes 0, which is no evidence of equality.",
    "?": "?: unknown, since there is no interval or one that includes 0 and is wider than 50 points.",
    "()": "A mark in brackets: paired by problem, so that it compares two checkpoints and not two methods.",
    "/": "a / b: the numbers of two seeds, in place of an interval wider than 50 points.",
    "not run": "not run: not part of this scale.",
    "missing": "missing: planned, no score yet.",
    "†": "†: a run behind the row collapsed.",
}


def paragraphs(name: str) -> list[str]:
    """Return the paragraphs of `<name>.rst`, each on one line; empty when there is no such caption."""
    path = HERE / f"{name}.rst"
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]


def lead(matrix: Mapping[str, Any]) -> list[str]:
    """Return paragraphs on what results of a scale can and cannot show. The first one begins every page.

    matrix: the content of matrix.json. A user's own scale has no caption here. The `note` of its configuration is
    used instead, after the warning that applies where other models replace the paper's.
    """
    scale = str(matrix["scale"])
    stand_ins = any(model.get("stands_for") for model in matrix["models"])
    warning = ": models that stand in for the paper's; no number here is comparable with one printed in the paper"
    own = f"Results of the scale {scale}{warning if stand_ins else ''}."
    note = str(matrix.get("note", ""))
    return paragraphs(f"scale-{scale}") or [f"{own} {note}".rstrip()]
