"""The table of all runs: nothing that is planned is missing, whatever its method, model or settings are called."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import CorruptInputError
from core.layout import BASE, Run
from core.provenance import ROOT
from core.results_tree import Tree
from evals.stats import compare
from report import build, show
from report.site import paper
from report.site import tables as site
from report.tables import render, spec, tidy
from tests.report import synthetic
from tests.report.conftest import write_files
from tests.report.tables import cell, filled

MINE = "gspo_token"  # stands for a method of a user's own: of the catalog, and in no table of the paper
METHODS = {
    "grpo": ("GRPO/DAPO", 0.62),
    MINE: ("My method", 0.70),
    "tepo+beta=1": ("TEPO, beta 1", 0.72),
    "tepo_nokl@cool": ("TEPO without KL, learning rate 5e-5", 0.74),
}


def own(matrix: dict[str, Any]) -> None:
    """A method in other settings, and another baseline."""
    matrix["variants"] = {"cool": {"title": "learning rate 5e-5", "changes": {"training.learning_rate": 5e-5}}}
    matrix["baseline"] = MINE


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A user's tree: a model that stands for nothing, a method of no paper, one in other settings, another baseline."""
    root = tmp_path_factory.mktemp("mine") / "mine"
    model = {"key": "my_model", "title": "My model", "stands_for": None}
    return Tree(synthetic.write_tree(root, seeds=(1, 2), scale="mine", methods=METHODS, model=model, change=own))


def test_every_checkpoint_of_the_plan_stands_in_it(mine: Tree, embedded: Tree) -> None:
    for tree in (mine, embedded):
        table = tidy.view(declared := spec.of_runs(tree), tree, [])
        assert table.rows == ()
        planned = [
            (checkpoint.run, checkpoint.step)
            for row in declared.rows
            if row.method != BASE
            for checkpoint in tidy.planned(row, next(b.model for b in declared.blocks if row in b.rows), tree)
        ]
        assert len(planned) == len(set(planned))
        assert set(planned) == {(c.run, c.step) for c in tree.evaluated if c.run.method != BASE}
        assert len({row.id for row in declared.rows}) == len(declared.rows)


def test_an_own_method_and_model_have_numbers_and_a_paired_difference(mine: Tree) -> None:
    table = filled(mine, "runs")
    assert [row.label for row in table.blocks[0]] == ["My model (base)", "My method", "GRPO/DAPO", "TEPO, beta 1"]
    own, other = (cell(table, f"my_model/{method}/step12", "avg_pooled") for method in (MINE, "grpo"))
    assert (own.state, own.seeds, own.versus) == ("measured", (1, 2), None)
    assert other.baseline == own.row
    expected = compare.compare_seeds(other.seed_values, own.seed_values)
    assert (other.versus, other.versus_low, other.versus_p) == (expected.difference, expected.low, expected.p)
    delta = cell(table, other.row, "delta")
    assert (delta.value, delta.low, delta.high) == (expected.difference, expected.low, expected.high)
    assert render.mark(delta) == render.mark(other)
    area = cell(table, own.row, "area")
    assert area.value == pytest.approx(sum(area.seed_values.values()) / 2)
    assert {"avg_pooled", "final", "area", "delta", "best", "syn_mix3"} <= {column.slot for column in table.columns}
    assert render.head(table.blocks[1]) == "Learning rate 5e-5, after 12 rollouts: My model"
    assert any("no run of the baseline" in note for note in table.notes)
    assert "standing for" not in render.markdown(table)


def test_probability_of_being_best_of_two_is_the_complement_of_half_the_paired_p() -> None:
    rng = np.random.default_rng(3)
    for seeds in (2, 3, 8):
        shared = rng.normal(0, 0.1, seeds)
        a, b = (dict(enumerate(0.5 + gain + shared + rng.normal(0, 0.01, seeds))) for gain in (0.01, 0.0))
        comparison = compare.compare_seeds(a, b)
        assert comparison.p is not None
        expected = 1 - comparison.p / 2 if comparison.difference > 0 else comparison.p / 2  # type: ignore[operator]
        chances, how = compare.chances_of_being_best({"a": a, "b": b})
        assert chances["a"] == pytest.approx(expected, abs=0.012)  # 3.4 standard errors of 20,000 draws
        assert sum(chances.values()) == pytest.approx(1)
        assert f"{seeds} seeds in common" in how


def test_probability_of_being_best_needs_two_common_seeds_and_shares_ties() -> None:
    one, two = {1: 0.5, 2: 0.6}, {1: 0.4, 3: 0.6}
    assert compare.chances_of_being_best({"a": one, "b": two})[0] == {}
    assert compare.chances_of_being_best({"a": one})[0] == {}
    assert compare.chances_of_being_best({"a": one, "b": dict(one)})[0] == {"a": 0.5, "b": 0.5}


def test_one_seed_has_no_probability_and_says_so(scored: Tree) -> None:
    found = cell(filled(scored, "runs"), "tiny_qwen2/tepo/step12", "best")
    assert (found.value, render.number(found)) == (None, "–")


def test_a_tree_of_ones_own_begins_with_all_runs_and_the_papers_with_its_claims(
    mine: Tree, one_seed: Tree, tmp_path: Path
) -> None:
    tree = Tree(shutil.copytree(mine.root, tmp_path / "mine"))
    write_files(tree)
    own, papers = build.build(tree.root), build.build(one_seed.root)
    for text in (own, papers):
        assert '"start":"overview"' in text
    assert own.index('id="tableruns"') < own.index('id="table1"')
    assert papers.index('id="table1"') < papers.index('id="tableruns"')
    section = own[own.index('id="tableruns"') :]
    section = section[: section.index("</section>")]
    for title in ("My method", "TEPO, beta 1", "TEPO without KL"):
        assert title in section
    assert "My method" in show.text(tidy.checked_table(tree, "runs"))
    altered = Tree(tree.root)
    altered.matrix = tree.matrix | {"runs": [r for r in tree.matrix["runs"] if r["method"] != MINE]}
    with pytest.raises(CorruptInputError, match="not filled from"):
        tidy.read_table(altered, "runs")


@pytest.mark.parametrize(("name", "papers"), [("embedded", True), ("beyond", False)])
def test_a_kept_tree_whose_other_runs_stand_behind_claims_is_the_papers(name: str, papers: bool) -> None:
    tree = Tree(ROOT / "results/reference" / name)
    assert site.is_papers(tree, site.read(tree), paper.claims(tree)["judged"]) == papers


def test_a_run_without_a_score_is_missing_and_not_left_out(mine: Tree, tmp_path: Path) -> None:
    shutil.copytree(mine.root, tmp_path / "mine")
    for path in (tmp_path / f"mine/runs/my_model/{MINE}").glob("seed*/run.json"):
        path.unlink()
    tree = Tree(tmp_path / "mine")
    assert Run("my_model", MINE, 1) in tree.runs
    assert {cell(filled(tree, "runs"), f"my_model/{MINE}/step12", key).state for key in ("final", "area")} == {
        "missing"
    }


def test_places_are_those_of_the_draws() -> None:
    one, two, three = ({1: x, 2: x + 0.1, 3: x + 0.2} for x in (0.1, 0.5, 0.3))
    assert compare.ranks({"a": one, "b": two, "c": three}) == {"a": (3, 3), "b": (1, 1), "c": (2, 2)}, "always apart"
    assert compare.ranks({"a": one, "b": dict(one)}) == {"a": (1, 1), "b": (1, 1)}, "a tie has the better place"
    assert compare.ranks({"a": one}) == {}
    unsure = compare.ranks({"a": {1: 0.5, 2: 0.1}, "b": {1: 0.1, 2: 0.5}})
    assert unsure == {"a": (1, 2), "b": (1, 2)}
