"""The front page names the claims that runs of this tree decide, and no others."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from core import digests
from core.results_tree import Tree
from paper.claims import entries, ledger
from paper.claims.claims import read_claims
from paper.claims.entries import LEAST_ROLLOUTS, RULE
from report import build
from report.site import paper
from tests.paper import claim_trees

OUTSIDE = {"low": 1.0, "high": 2.0, "null": 0.0}
INSIDE = {"estimate": 0.0, "low": -0.01, "high": 0.01, "null": 0.0, "margin_low": -0.02, "margin_high": 0.02}


def with_verdicts(tree: Tree, folder: Path, verdict: str, figures: Mapping[str, float] = OUTSIDE) -> Tree:
    """The tree with every claim that runs could decide given this verdict."""
    shutil.copytree(tree.root, folder)
    path = folder / "claims.csv"
    changed = [
        entry.__class__(**{**vars(entry), "verdict": verdict, **figures})
        if entry.ledger == "ours" and entry.kind not in ("", paper.ALGEBRA) and entry.reading is None
        else entry
        for entry in entries.read(path)
    ]
    path.write_text(entries.to_text(changed), encoding="utf-8")
    digests.write_list(folder / "claims.sha256", [path])
    return Tree(folder)


def test_checks_of_formulas_are_no_verdicts_of_runs(one_seed: Tree, tmp_path: Path) -> None:
    view = paper.claims(one_seed)
    assert view["decided"] == {}
    assert f"<p>No claim of the paper. {RULE}</p>" in build.build(one_seed.root)
    counts = {name: dict(found) for name, found in view["counts"]}
    own = [found for name, found in counts.items() if name.startswith("runs of this tree")]
    assert own
    assert not any({"supported", "contradicted"} & found.keys() for found in own)
    algebra = sum(claim.test.kind == paper.ALGEBRA for claim in read_claims())
    assert sum(counts[paper.CHECKED].values()) == algebra > 0
    for claim in view["claims"]:
        names = [line["name"] for line in claim["lines"]]
        assert (names == [paper.CHECKED]) == (paper.CHECKED in names), "a formula is no printed number either"
    decided = paper.claims(with_verdicts(one_seed, tmp_path / "quick", "supported"))
    by_runs = {c["id"] for c in decided["claims"] for x in c["lines"] if "this tree" in x["name"] and not x["method"]}
    assert {claim["id"] for claim in decided["decided"]["supported"]} == by_runs


def test_what_is_equal_is_decided_and_its_margin_is_shown(one_seed: Tree, tmp_path: Path) -> None:
    view = paper.claims(with_verdicts(one_seed, tmp_path / "quick", "equal within the margin", INSIDE))
    assert list(view["decided"]) == ["equal within the margin"]
    for line in view["decided"]["equal within the margin"]:
        assert line["notes"][0].startswith("margin -")
        picture = line["picture"]
        # to scale: the interval is half as wide as the margin, and in its middle
        assert picture["margin_width"] == pytest.approx(2 * picture["width"], abs=0.05)
        assert picture["margin"] < picture["low"] < picture["null"]


def test_beside_a_verdict_stands_what_was_tested_and_the_quote_below(one_seed: Tree, tmp_path: Path) -> None:
    tree = with_verdicts(one_seed, tmp_path / "quick", "supported")
    page = build.build(tree.root)
    for view in paper.claims(tree)["claims"]:
        assert view["statement"] in {line["statement"] for line in view["lines"]}
        for line in view["lines"]:
            assert ("tested statement only" in line["beside"]) == (bool(view["untested"]) and line["decided"])
        assert view["untested"] in html.unescape(page)
    summaries = re.findall('<details class="claim".*?<summary>(.*?)</summary>', page, re.DOTALL)
    assert summaries
    assert not any("<q>" in summary for summary in summaries)
    markdown = entries.results_page(entries.read(tree.root / "claims.csv"), "Title", "")
    for section in markdown.split("\n### ")[1:]:
        assert section.index("**Printed: ") < section.index("\n> ")


def test_no_quote_on_the_page_shows_tex() -> None:
    shown = [paper.readable(" ".join(claim.declared.quote.split())) for claim in read_claims()]
    assert [quote for quote in shown if re.search(r"[\\${}]|\*\*", quote)] == []


def test_a_tree_of_two_rollouts_has_no_verdict(tmp_path: Path) -> None:
    high, low = ([{"score": value} for value in values] for values in ((0.7, 0.711, 0.705), (0.6, 0.612, 0.603)))
    tree = claim_trees.tree(tmp_path / "tree", claim_trees.both(high, low))
    judged = {e.id: e for e in ledger.run_entries(tree) if e.kind != paper.ALGEBRA and e.p is not None}
    assert judged, "with enough rollouts a difference is tested"
    short = Tree(tree.root)
    short.matrix = tree.matrix | {"runs": [run | {"steps": [2]} for run in tree.matrix["runs"]]}
    after = {e.id: e for e in ledger.run_entries(short) if e.id in judged}
    assert {e.verdict for e in after.values()} <= {"undecided", "not testable at this scale"}
    assert all(e.p is None for e in after.values())
    assert any(f"a verdict needs {LEAST_ROLLOUTS}" in e.reason for e in after.values())
