"""Cells: the right score in the right place, gaps said and never zero, differences recomputed."""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.errors import CorruptInputError, MissingInputError
from core.layout import Checkpoint, Run
from core.results_tree import Tree
from core.scores import read_scores
from evals import score
from evals.stats import compare
from evals.stats.estimate import Comparison
from report.tables import fill as filling
from report.tables import render, spec
from report.tables.render import markdown
from report.tables.tidy import Table, read_table, tidy_csv, view
from tests.report import synthetic, tables
from tests.report.finished import rehash, rewrite
from tests.report.tables import cell


def fill(tree: Tree) -> Table:
    """Table 1, filled anew each time: some trees here are changed between two fillings."""
    return view(spec.table("1"), tree, filling.fill(spec.table("1"), tree))


def test_one_seed_prints_the_score_and_its_interval_over_problems(scored: Tree) -> None:
    table = read_scores(scored.layout.scores).set_index(["method", "benchmark"])
    for row, method in {"T1.1": "base", "T1.2": "grpo", "T1.7": "gspo", "T1.8": "tepo", "T3.1": "tepo_nokl"}.items():
        for slot, benchmark in {"aime24": "syn_mix3", "minerva": "syn_seq1", "avg_pooled": "avg_pooled"}.items():
            found = cell(fill(scored), row, slot)
            assert found.value == table.loc[(method, benchmark), "score"]
            assert (found.low, found.high) == tuple(table.loc[(method, benchmark), ["low", "high"]])
            assert found.level == "problem"


def test_several_seeds_print_their_mean_and_the_interval_over_seeds(scored_twice: Tree) -> None:
    table = read_scores(scored_twice.layout.scores)
    chosen = table[(table.method == "tepo") & (table.benchmark == "avg_macro")]
    expected = compare.over_seeds(dict(zip(chosen.seed, chosen.score, strict=True)))
    found = cell(fill(scored_twice), "T1.8", "avg_macro")
    assert found.value == pytest.approx(chosen.score.mean(), abs=1e-15)
    assert (found.low, found.high) == (expected.low, expected.high)
    assert (found.level, found.n, found.seeds) == ("seed", 2, (1, 2))
    assert cell(fill(scored_twice), "T1.1", "avg_macro").level == "problem", "the base model has no training seed"


def test_changed_grades_are_an_error_naming_the_file(scored_copy: Tree) -> None:
    path = scored_copy.layout.grades(Checkpoint(Run("tiny_qwen2", "tepo", 1), 12)) / "syn_mix3.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(CorruptInputError, match=r"syn_mix3\.parquet: sha256 is"):
        fill(scored_copy)


def test_grades_that_contradict_the_scores_are_an_error(scored_copy: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Comparison(0.9, 0.01, 0.8, 0.95, 0.5, 0.1, "problem", "paired", 20)
    keys = [b["key"] for b in scored_copy.benchmarks]
    averages = ["avg_pooled", "avg_macro"]
    monkeypatch.setattr(score, "paired_of_tree", lambda *_: dict.fromkeys([*keys, *averages], wrong))
    with pytest.raises(CorruptInputError, match=r"scores\.csv: syn_mix3: .*score again"):
        fill(scored_copy)


def test_without_grades_the_difference_has_no_interval_and_says_so(scored_copy: Tree) -> None:
    shutil.rmtree(scored_copy.root / "grades")
    found = cell(fill(scored_copy), "T1.9", "aime24")
    assert (found.low, found.high) == (None, None)
    assert "no grades" in found.how
    assert "[no interval]" in markdown(fill(scored_copy))


def test_rows_outside_the_matrix_say_not_run_and_nothing_says_zero(scored: Tree) -> None:
    lines = list(csv.DictReader(io.StringIO(render.csv_table(fill(scored)))))
    absent = next(line for line in lines if line["row"] == "T1.3")
    assert set(list(absent.values())[2:]) == {"not run"}
    tidy = list(csv.DictReader(io.StringIO(tidy_csv(fill(scored).cells))))
    assert {line["value"] for line in tidy if line["state"] == "not run"} == {""}


def test_a_model_without_stand_in_leaves_its_block_out_with_a_note(scored: Tree) -> None:
    filled = fill(scored)
    assert [rows[0].stands_for for rows in filled.blocks] == ["Qwen2.5-7B"]
    assert any("Qwen3-14B" in note for note in filled.notes)


def test_a_seed_without_scores_is_listed_and_the_mean_says_how_many(scored_twice: Tree, tmp_path: Path) -> None:
    tree = Tree(shutil.copytree(scored_twice.root, tmp_path / "quick"))
    rewrite(tree.layout.scores, lambda row: None if (row["method"], row["seed"]) == ("tepo", "2") else row)
    rehash(tree.root)
    filled = fill(tree)
    assert cell(filled, "T1.8", "amc").seeds == (1,)
    assert cell(filled, "T1.8", "amc").level == "problem"
    assert any("tepo/seed2" in note for note in filled.notes)


def test_bold_is_the_best_printed_number_outside_noise_and_none_of_equal_ones(scored: Tree) -> None:
    filled = fill(scored)
    for tepo, inside_noise, grpo, bold in (
        (0.99, False, 0.5, {"T1.8"}),
        (0.99, True, 0.5, set()),
        (0.99, None, 0.5, set()),
        (0.99, False, 0.99, set()),
        (0.99, False, 0.990001, set()),
        (0.5, False, 0.99, {"T1.2"}),
        (0.5, True, 0.99, set()),
    ):
        ours = {"value": tepo, "versus": tepo - grpo, "inside_noise": inside_noise}
        changes = {"T1.8": ours, "T1.2": {"value": grpo}}
        rows = tuple(
            replace(row, cells={slot: c.model_copy(update=changes.get(row.id, {})) for slot, c in row.cells.items()})
            for row in filled.rows
            if row.id in (*changes, "T1.9")  # a difference is never bold
        )
        assert {row for row, slot in replace(filled, rows=rows).best if slot == "amc"} == bold, (tepo, grpo)


def test_the_tidy_table_leads_to_the_runs(scored_twice: Tree) -> None:
    tidy = list(csv.DictReader(io.StringIO(tidy_csv(fill(scored_twice).cells))))
    line = next(x for x in tidy if (x["row"], x["column"]) == ("T1.8", "amc"))
    assert line["runs"] == "tiny_qwen2/tepo/seed1/step12 tiny_qwen2/tepo/seed2/step12"
    assert (line["method"], line["step"], line["seeds"], line["benchmark"]) == ("tepo", "12", "1 2", "syn_add2q")
    assert len(tidy) == 10 * 9
    assert len({(x["row"], x["column"]) for x in tidy}) == len(tidy)


def test_two_benchmarks_for_one_column_are_an_error(scored_copy: Tree) -> None:
    matrix = json.loads(scored_copy.layout.matrix.read_text())
    matrix["benchmarks"][1]["stands_for"] = "aime24"
    scored_copy.layout.matrix.write_text(json.dumps(matrix))
    with pytest.raises(ValueError, match=r"matrix\.json: benchmarks: syn_mix3 and syn_inv2 both stand for AIME24"):
        fill(Tree(scored_copy.root))


def test_a_missing_file_is_named(scored_copy: Tree) -> None:
    for name, words in (("scores.csv", "table of scores is missing"), ("matrix.json", "is missing")):
        (scored_copy.root / name).unlink()
        with pytest.raises(MissingInputError, match=rf"{name}: .*{words}"):
            fill(Tree(scored_copy.root))


def test_a_broken_matrix_is_named(scored_copy: Tree) -> None:
    scored_copy.layout.matrix.write_text('{"scale": "quick"}')
    with pytest.raises(CorruptInputError, match=r"matrix\.json: title: is missing"):
        fill(Tree(scored_copy.root))


def test_a_matrix_key_with_scale_settings_is_found_by_the_name_in_the_configuration(tmp_path: Path) -> None:
    """The configuration says `tepo`; with settings of the scale its results lie under another, canonical key."""

    def by_settings(matrix: dict[str, Any]) -> None:
        matrix["methods"][-1]["row"] = "tepo"

    methods = {"grpo": ("GRPO/DAPO", 0.6), "tepo+beta=1": ("TEPO", 0.7)}
    filled = fill(Tree(synthetic.write_tree(tmp_path / "quick", methods=methods, change=by_settings)))
    assert cell(filled, "T1.8", "amc").checkpoints[0].run.method == "tepo+beta=1"
    assert "TEPO (beta 1) is run as tepo+beta=1 at this scale." in filled.notes


def test_what_is_written_is_what_is_read(embedded: Tree, tmp_path: Path) -> None:
    """Every number with all its digits, every gap as a gap."""
    tree = Tree(shutil.copytree(embedded.root, tmp_path / "embedded"))
    for key in spec.tables():
        tables.write(tree, key)
        assert read_table(tree, key) == view(spec.table(key), tree, filling.fill(spec.table(key), tree)), key


def test_a_table_that_is_not_filled_names_the_command(scored: Tree) -> None:
    with pytest.raises(MissingInputError, match=r"table1\.tidy\.csv: .*run: python -m report\.table .* --table 1$"):
        read_table(scored, "1")


def test_a_tidy_file_of_other_rows_is_refused(scored_copy: Tree) -> None:
    tables.write(scored_copy, "1")
    path = scored_copy.layout.tables / "table1.tidy.csv"
    path.write_text(path.read_text().replace("T1.7,", "T1.77,"))
    with pytest.raises(CorruptInputError, match=r"not filled from .*tables\.yaml .*; run: python -m"):
        read_table(scored_copy, "1")
    path.write_text(path.read_text().replace("T1.77,", "T1.7,").replace("measured", "mesured", 1))
    with pytest.raises(
        CorruptInputError, match=r"table1\.tidy\.csv: line 2: state: unknown value 'mesured'; .*measured"
    ):
        read_table(scored_copy, "1")
