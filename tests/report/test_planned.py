"""The tables on everything that the configurations plan: each row finds its run; a half-done matrix is shown."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from core.layout import BASE, Checkpoint, Run
from core.results_tree import Tree
from paper.printed import read
from report.show import text
from report.tables import render, spec
from tests.report.finished import rehash
from tests.report.tables import filled as fill

SLOTS = {
    "q7": "tiny_qwen2",
    "q14": "tiny_qwen3",
    "l8": "tiny_llama",
    "m7": "tiny_mistral",
    "dq7": "tiny_qwen2_distilled",
}


def test_every_row_of_the_four_tables_is_measured(embedded: Tree, paper: Tree, subtests: pytest.Subtests) -> None:
    for key, tree in product("1234", (embedded, paper)):
        with subtests.test(f"{tree.scale} {key}"):
            filled = fill(tree, key)
            assert {c.state for c in filled.cells} == {"measured"}
            printed = {row.id for row in read().values() if row.table == key}
            assert printed <= {row.id for row in filled.rows}
            assert not [note for note in filled.notes if note.startswith(("Missing", "Rows of", "Column"))]


def test_printed_rows_of_one_run_are_one_checkpoint_here(embedded: Tree) -> None:
    """Where the paper prints one run in several rows, so do we, and other rows have other checkpoints."""
    rows = {row.id: row for key in "1234" for row in fill(embedded, key).rows}
    runs: dict[object, set[frozenset[Checkpoint]]] = {}
    for id, printed in read().items():
        if printed.run is not None:
            whole = rows[id].checkpoints if printed.table != "4" else []
            if whole:
                runs.setdefault(printed.run, set()).add(frozenset(whole))
    assert all(len(found) == 1 for found in runs.values())
    assert len({next(iter(found)) for found in runs.values()}) == len(runs)


def test_rows_lead_to_the_stand_in_of_their_model(embedded: Tree) -> None:
    for key in "1234":
        for row in fill(embedded, key).rows:
            printed = read().get(row.id)
            if printed is not None:
                assert row.model == SLOTS[printed.model]
                assert {c.run.model for c in row.checkpoints} == {row.model}


def test_table_4_looks_at_one_run_twice(embedded: Tree) -> None:
    rows = {row.id: row for row in fill(embedded, "4").rows}
    early, late = embedded.matrix["table_step"], embedded.matrix["long_step"]
    assert early < late
    assert rows["T4.1"].checkpoints == [Checkpoint(Run("tiny_qwen2", "grpo", 1), early)]
    assert rows["T4.3"].checkpoints == [Checkpoint(Run("tiny_qwen2", "grpo", 1), late)]
    assert rows["T4.7"].checkpoints == [Checkpoint(Run("tiny_qwen2", "grpo", seed), early) for seed in (1, 2)]
    assert rows["T4.8"].label == f"GRPO/DAPO ({late} steps, mean)"


def test_at_paper_scale_single_seed_rows_are_the_printed_seed(paper: Tree) -> None:
    for key in "34":
        for row in fill(paper, key).rows:
            printed = read().get(row.id)
            twice = row.method in ("grpo", "tepo") and key == "3"  # Table 4 trains a second seed of these
            if printed is not None and printed.run is not None and not twice:
                assert row.seeds == [printed.run.seed]
                assert row.step == printed.run.steps


def seeds_of(tree: Tree, method: str | None) -> list[int]:
    """Of a method on the main model, as the matrix plans them."""
    runs = tree.matrix["runs"]
    return sorted(run["seed"] for run in runs if (run["model"], run["method"]) == (SLOTS["q7"], method))


def test_rows_beyond_the_paper_are_left_out_quietly_where_they_are_not_run(
    embedded: Tree, readings: Tree, paper: Tree
) -> None:
    open_ones = "Beyond the paper: other readings of what it leaves open"
    beyond = {}
    for tree in (embedded, readings, paper):
        filled = fill(tree, "3")
        assert filled.blocks[-1][0].block.title == open_ones
        beyond[tree.scale] = {row.id for row in filled.blocks[-1]}
        assert not any("Beyond" in note or "X3" in note for note in filled.notes)
    clamped = {f"X3.clamp{n}" for n in range(1, 6)}
    assert beyond["embedded"] == {"X3.k1"}
    assert beyond["readings"] == {*clamped, "X3.k1", "X3.abs", "X3.ref", "X3.printed"}
    assert beyond["paper"] == {*clamped, "X3.original"}


def test_a_name_of_the_configuration_wins_over_another_methods_key(paper: Tree) -> None:
    """`entropy_adv` is the printed coefficient there, and also the key of the original's."""
    assert paper.method_for("entropy_adv") == "entropy_adv+alpha=0.0004"
    assert paper.method_for("entropy_adv_original") == "entropy_adv"
    (printed,) = [row for row in fill(paper, "1").rows if row.id == "T1.5"]
    assert {c.run.method for c in printed.checkpoints} == {"entropy_adv+alpha=0.0004"}


def partly(tree: Tree, folder: Path, wanted: Callable[[str], bool]) -> Tree:
    """The tree with the scores of some checkpoints only."""
    shutil.copytree(tree.root, folder)
    head, *lines = tree.layout.scores.read_text().splitlines(keepends=True)
    kept = [line for line in lines if wanted(line)]
    assert 0 < len(kept) < len(lines)
    (folder / "scores.csv").write_text(head + "".join(kept))
    rehash(folder)
    return Tree(folder)


def test_a_partly_finished_matrix_gives_every_table_and_lists_what_is_missing(embedded: Tree, tmp_path: Path) -> None:
    first = f",1,{embedded.matrix['table_step']},"
    some = partly(embedded, tmp_path / "embedded", lambda line: line.startswith("tiny_qwen2,") and first in line)
    missing: set[str] = set()
    for key in spec.tables():
        filled = fill(some, key)
        for name, rendered in render.RENDERINGS.items():
            assert rendered(filled), name
        assert text(filled)
        missing |= {note for note in filled.notes if note.startswith("Missing")}
    scored = {checkpoint for checkpoint, _ in some.scores}
    lost = [c for c in some.checkpoints if c not in scored]
    assert len(lost) > 50
    late = embedded.matrix["long_step"]
    # In none of these tables: controls; what tests claims about entropy, mask and clip; what is for the curves' sake;
    # the later checkpoints of seeds that Table 4, whose rows are the paper's two seeds, does not show.
    interventions = {"tepo_held+target=0.5", "tepo_held+target=0.1", "tepo+beta=1", "tepo+beta=0.1"}
    interventions |= {"grpo+high=none+low=none"}
    unlisted = {c for c in lost if c.run.model == "tiny_qwen2" and c.run.method in interventions}
    unlisted |= {c for c in lost if c.run.variant or (c.step == late and (c.run.method == "tepo" or c.run.seed > 2))}
    assert missing == {f"Missing: {c.path.as_posix()} has no scores." for c in lost if c not in unlisted}


def test_a_benchmark_nobody_was_scored_on_is_named(embedded: Tree, tmp_path: Path) -> None:
    filled = fill(partly(embedded, tmp_path / "embedded", lambda line: ",syn_add2," not in line), "2")
    assert {row.cells["amc"].state for row in filled.rows} == {"missing"}
    step = embedded.matrix["table_step"]
    assert f"Missing: tiny_llama/tepo/seed1/step{step} has no score of syn_add2." in filled.notes


def test_a_mean_waits_for_all_of_its_rows(embedded: Tree, tmp_path: Path) -> None:
    second = f",tepo,2,{embedded.matrix['table_step']},"
    filled = fill(partly(embedded, tmp_path / "embedded", lambda line: second not in line), "4")
    state = {row.id: row.cells["amc"].state for row in filled.rows}
    assert (state["T4.5"], state["T4.6"], state["T4.9"]) == ("measured", "missing", "missing")


def test_a_second_look_that_the_scale_does_not_take_is_not_run(scored: Tree) -> None:
    rows = {row.id: row for row in fill(scored, "4").rows}
    assert {rows[id].cells["amc"].state for id in ("T4.2", "T4.3", "T4.8")} == {"not run"}
    assert rows["T4.1"].cells["amc"].state == "measured"
    assert rows["T4.3"].label == "GRPO/DAPO (more steps, seed1)"


def test_a_base_row_is_over_the_seeds_of_its_runs(embedded: Tree) -> None:
    for block in fill(embedded, "2").blocks:
        seeds = sorted({run.seed for run in embedded.runs if run.model == block[0].model})
        assert len(seeds) > 1
        (base,) = [row for row in block if row.method == BASE]
        assert [c.run.seed for c in base.checkpoints] == base.seeds == seeds
