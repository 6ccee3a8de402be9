"""A seed has a base of its own: rows, links and checks go to the base that a run started from."""

from __future__ import annotations

from statistics import fmean

import pytest

from core.layout import BASE, Checkpoint, Run
from core.results_tree import Tree
from report.provenance import manifest
from report.site import links
from report.tables import fill, runs, tidy
from report.tables.spec import table
from tests.report import synthetic

MODEL = str(synthetic.MODEL["key"])
SEEDS = (4, 0, 19)  # numbers in any order, 0 among them: none means anything


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    folder = tmp_path_factory.mktemp("bases") / "quick"
    return Tree(synthetic.write_tree(folder, seeds=SEEDS, base_seeds=SEEDS))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """As a hub model, and as a tree of an older version."""
    return Tree(synthetic.write_tree(tmp_path_factory.mktemp("shared") / "quick", seeds=SEEDS))


def base_row(tree: Tree, key: str) -> dict[str, tidy.Cell]:
    declared = runs.declare(tree) if key == runs.KEY else table(key)
    cells = [cell for cell in fill.fill(declared, tree) if cell.kind == "base" and cell.model == MODEL]
    return {cell.column: cell for cell in cells}


@pytest.mark.parametrize("key", ["1", runs.KEY])
def test_a_base_row_is_a_mean_over_its_seeds_with_an_interval(own: Tree, key: str) -> None:
    for column, cell in base_row(own, key).items():
        if cell.state == tidy.MEASURED and cell.benchmark:
            scores = {seed: own.scores[Checkpoint.base(MODEL, seed), cell.benchmark].value for seed in sorted(SEEDS)}
            assert cell.seed_values == scores, column
            assert cell.value == pytest.approx(fmean(scores.values()), abs=1e-12)
            assert (cell.level, cell.n, cell.seeds) == ("seed", 3, tuple(sorted(SEEDS)))
            assert None not in (cell.low, cell.high)


def test_a_row_of_one_seed_is_the_tree_s_first_or_second_whatever_its_number(own: Tree) -> None:
    rows = {cell.row: cell for cell in fill.fill(table("4"), own) if cell.column == "avg_pooled"}
    first, second, _ = sorted(SEEDS)
    assert (rows["T4.1"].seeds, rows["T4.2"].seeds, rows["T4.5"].seeds) == ((first,), (second,), (first,))
    assert rows["T4.7"].seeds == (first, second)


def test_one_base_for_all_seeds_has_its_interval_over_problems(shared: Tree) -> None:
    cell = base_row(shared, "1")["avg_pooled"]
    assert (cell.level, cell.seeds, cell.runs) == ("problem", (), (f"{MODEL}/base/seed0/step0",))


def test_a_run_goes_to_the_base_of_its_seed(own: Tree, shared: Tree) -> None:
    for seed in SEEDS:
        of_grpo = Checkpoint(Run(MODEL, "grpo", seed), 12)
        assert links.counterpart(of_grpo, own) == own.base(MODEL, seed) == Checkpoint.base(MODEL, seed)
        assert links.title(Checkpoint.base(MODEL, seed), own) == f"base model, seed {seed}"
        assert links.counterpart(of_grpo, shared) == shared.base(MODEL, seed) == Checkpoint.base(MODEL)
    assert links.title(Checkpoint.base(MODEL), shared) == "base model"
    assert own.base(MODEL, 99) is None
    assert links.counterpart(Checkpoint(Run(MODEL, BASE, SEEDS[0]), 0), own) is None


def test_the_base_of_a_seed_is_held_against_the_runs_of_that_seed(own: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bases of different seeds have different weights, which is no contradiction; of one seed it is."""
    base = Checkpoint.base(MODEL, SEEDS[0])

    def record(run: Run) -> dict[str, object]:
        return {"inputs": {"base": str(run.seed), "base_files": None}}

    monkeypatch.setattr(own, "record", record)
    monkeypatch.setattr(manifest.store, "read_folder", lambda path: drawn)
    monkeypatch.setattr(type(own.layout.root), "is_file", lambda path: True)
    monkeypatch.setattr(manifest, "_check_parquets", lambda path, record: [])
    drawn = {"weights_sha256": str(SEEDS[0]), "files_sha256": None, "benchmarks": {}}
    assert list(manifest._check_samples(own, base)) == []
    drawn["weights_sha256"] = str(SEEDS[1])
    said = list(manifest._check_samples(own, base))
    assert len(said) == len(synthetic.METHODS)
    assert all(f"seed{SEEDS[0]} was trained from" in line for line in said)
