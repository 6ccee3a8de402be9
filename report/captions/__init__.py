"""The words under tables and figures: plain paragraphs in `*.rst`, read by our pages and by Snakemake's own report."""

from __future__ import annotations

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


def paragraphs(name: str) -> list[str]:
    """The paragraphs of `<name>.rst`, each on one line; none when there is no such caption."""
    path = HERE / f"{name}.rst"
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]


def lead(matrix: Mapping[str, Any]) -> list[str]:
    """What results of a scale can and cannot say, in paragraphs; the first is the first line of every page.

    matrix: the content of matrix.json. A scale of a user's own has no caption here: its configuration's `note` stands
    in, below the warning that it needs where models stand in for the paper's.
    """
    scale = str(matrix["scale"])
    stand_ins = any(model.get("stands_for") for model in matrix["models"])
    warning = ": models that stand in for the paper's; no number here is comparable with one printed in the paper"
    own = f"Results of the scale {scale}{warning if stand_ins else ''}."
    note = str(matrix.get("note", ""))
    return paragraphs(f"scale-{scale}") or [own, *([note] if note else [])]
