"""Every cell against its baseline: the right two compared, corrected once per column; the A/A arm below the table."""

import csv
import json
import random
import shutil
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from core.errors import CorruptInputError
from core.layout import Checkpoint, Run
from core.provenance import ROOT
from core.results_tree import Tree
from core.scores import read_scores
from evals import score
from evals.stats import compare
from evals.stats.compare import holm
from evals.stats.estimate import Comparison
from report.table import write
from report.tables import fill as filling
from report.tables import render, spec, tidy
from report.tables.tidy import Cell
from tests.paper.claim_trees import tree as claim_tree
from tests.report.finished import rehash
from tests.report.synthetic import replanned
from tests.report.tables import cell, changed, filled
from tests.report.tables import filled as fill

TABLES = "1234"


@cache
def by_seed(tree: Tree, method: str, step: int | None, benchmark: str | None) -> dict[int, float]:
    """The scores of tiny Qwen2, from scores.csv."""
    table = read_scores(tree.layout.scores).query("model == 'tiny_qwen2' and method == @method and step == @step")
    chosen = table[table.benchmark == benchmark]
    return dict(zip(chosen.seed, chosen.score, strict=True))


def compared(found: Cell) -> dict[str, object]:
    return {
        name: getattr(found, name)
        for name in ("versus", "versus_low", "versus_high", "versus_p", "versus_level", "versus_how", "versus_n")
    }


def as_compared(comparison: Comparison) -> dict[str, object]:
    """A comparison under the names of the tidy file's columns."""
    names = {name: f"versus_{name}" for name in ("low", "high", "p", "level", "how", "n")}
    return {"versus": comparison.difference} | {column: getattr(comparison, name) for name, column in names.items()}


COMPARED = {  # row, table -> method and step of the row and of its baseline; None: the table's step, long: the later
    ("T1.3", "1"): (("clip_cov+fraction=0.01", None), ("grpo", None)),
    ("T1.8", "1"): (("tepo", None), ("grpo", None)),
    ("T1.9", "1"): (("tepo", None), ("grpo", None)),
    ("T3.5", "3"): (("tepo_kl_all", None), ("tepo_nokl", None)),
    ("T3.10", "3"): (("clip_cov+fraction=0.01", None), ("tepo_nokl", None)),
    ("T3.16", "3"): (("prefix_is", None), ("grpo", None)),
    ("T4.8", "4"): (("grpo", "long"), ("grpo", None)),
    ("T4.9", "4"): (("tepo", None), ("grpo", None)),
}


def test_seeds_are_compared_one_by_one_with_the_baseline_of_the_block(
    embedded: Tree, subtests: pytest.Subtests
) -> None:
    for ((row, key), sides), column in product(COMPARED.items(), ("amc", "avg_macro")):
        with subtests.test(f"{row} {column}"):
            found = cell(fill(embedded, key), row, column)
            a, b = (by_seed(embedded, method, embedded.step(which), found.benchmark) for method, which in sides)
            a = {seed: a[seed] for seed in found.seeds}  # some rows of Table 4 are about two of the seeds
            assert len(a) >= 2
            expected = compare.compare_seeds(a, b, clusters=embedded.clean_models("tiny_qwen2"))
            assert compared(found) == as_compared(expected)
            assert found.versus_level == "seed"
            assert row != "T1.9" or found.value == found.versus, "a difference is its own comparison"


def test_one_common_seed_is_compared_by_problem_from_the_grades(scored: Tree) -> None:
    gspo, grpo = (Checkpoint(Run("tiny_qwen2", method, 1), 12) for method in ("gspo", "grpo"))
    expected = score.paired(scored.layout, gspo, grpo, [b["key"] for b in scored.benchmarks])
    for column, benchmark in {"aime24": "syn_mix3", "avg_pooled": "avg_pooled"}.items():
        found = cell(fill(scored, "1"), "T1.7", column)
        assert compared(found) == as_compared(expected[benchmark])
        assert found.versus_level == "problem"
    assert render.mark(cell(fill(scored, "1"), "T1.7", "aime24")) == "(↑?)", "two checkpoints, not two methods"
    gain, tepo = (cell(fill(scored, "1"), row, "aime24") for row in ("T1.9", "T1.8"))
    assert (gain.value, gain.low, gain.high) == (tepo.versus, tepo.versus_low, tepo.versus_high)


def test_no_mark_contradicts_the_interval_of_its_difference(embedded: Tree, scored: Tree) -> None:
    seen = set()
    for tree, key in ((embedded, "1"), (embedded, "3"), (scored, "1"), (scored, "runs")):
        for found in fill(tree, key).cells:
            mark = render.mark(found).strip("()")
            seen.add(mark)
            if mark in ("↑", "↓", "↑?", "↓?"):
                assert not (found.versus_low or 0) <= 0 <= (found.versus_high or 0)
                assert ("?" in mark) == found.inside_noise
            if mark == "≈":
                assert (found.versus_low or 0) <= 0 <= (found.versus_high or 0)
            if found.kind == "delta" and mark.startswith(("↑", "↓")):
                assert not (found.low or 0) <= 0 <= (found.high or 0), "of a row of differences the printed interval"
    assert seen >= {"", "≈", "↑", "↑?"}


def test_two_seeds_are_shown_one_by_one_instead_of_a_wide_interval(embedded: Tree) -> None:
    found = cell(fill(embedded, "1"), "T1.8", "amc").model_copy(update={"by_seed": ("1:0.5", "2:0.61")})
    for low, high, shown in ((0.0, 0.51, "50.0 / 61.0"), (None, None, "50.0 / 61.0"), (0.2, 0.7, "20.0–70.0")):
        assert render.interval(found.model_copy(update={"low": low, "high": high})) == shown
    gain = cell(fill(embedded, "1"), "T1.9", "amc").model_copy(
        update={"low": -0.3, "high": 0.3, "by_seed": ("1:-0.02", "2:0.1")}
    )
    assert render.interval(gain) == "−2.0 / 10.0"


def test_base_models_baselines_and_their_own_runs_are_not_compared(embedded: Tree) -> None:
    for row in ("T1.1", "T1.2", "T3.1", "T3.13", "T3.19", "T4.1", "T4.7"):
        found = cell(fill(embedded, row[1]), row, "amc")
        assert found.value is not None
        assert (found.versus, found.inside_noise, render.mark(found)) == (None, None, ""), row


def test_p_is_corrected_once_per_column_over_distinct_comparisons(embedded: Tree) -> None:
    for table in (fill(embedded, key) for key in TABLES):
        for column in table.columns:
            family: dict[object, list[Cell]] = {}
            for row in table.rows:
                found = row.cells[column.slot]
                if found.baseline is not None:
                    own = cell(table, row.declared.delta[0], column.slot) if row.declared.delta else found
                    test = own.runs, cell(table, found.baseline, column.slot).runs
                    family.setdefault(test, []).append(found)
            expected = holm([cells[0].versus_p for cells in family.values()])
            number = sum(p is not None for p in expected)
            for cells, p in zip(family.values(), expected, strict=True):
                assert {(found.versus_p_holm, found.versus_tests) for found in cells} == {(p, number)}


def test_p_is_corrected_over_all_columns_too_and_a_line_counts_what_holds() -> None:
    filled = fill(Tree(ROOT / "results/reference/embedded"), "1")
    rows = [row for row in filled.rows if row.kind == "run" and row.cells["amc"].baseline is not None]
    tested = [row.cells[column.slot] for row in rows for column in filled.columns]
    assert len(tested) == 13 * 9
    assert [found.versus_p_table for found in tested] == holm([found.versus_p for found in tested])
    gain, tepo = (cell(filled, row, "avg_macro").versus_p_table for row in ("T1.9", "T1.8"))
    assert gain == tepo
    certain = [found for found in filled.cells if found.inside_noise is False]
    marked = [found for found in certain if (found.versus_low or 0) > 0 or (found.versus_high or 0) < 0]
    held = [found for found in marked if found.versus_p_table is not None and found.versus_p_table < 0.05]
    (line,) = render.table_lines(filled)
    assert f"{len(held)} of {len(marked)} marks ↑ ↓ also hold corrected over all 117 comparisons" in line
    assert "at most 45 % of such tables" in line
    assert line in render.markdown(filled)
    (other,) = render.table_lines(changed(filled, lambda one: {"versus_p_table": 0.04} if one == marked[0] else {}))
    assert other.startswith(f"{len(held) + (marked[0] not in held)} of {len(marked)} marks")
    earlier = changed(filled, lambda one: {"versus_p_table": None})  # as a version wrote it that had no such column
    assert render.table_lines(earlier) == []


def test_the_table_of_all_runs_counts_the_columns_difference_once(scored_twice: Tree) -> None:
    filled = fill(scored_twice, "runs")
    (line,) = render.table_lines(filled)
    tests = {c.column: c.versus_tests or 0 for c in filled.cells if c.versus_p is not None and c.column != "delta"}
    assert f"over all {sum(tests.values())} comparisons" in line
    p = {c.column: c.versus_p_table for c in filled.cells if c.row == "tiny_qwen2/tepo/step12"}
    assert p["delta"] == p["avg_pooled"] is not None


def test_rows_without_a_common_seed_have_no_difference_and_are_not_called_missing(scored_twice: Tree) -> None:
    sides = []
    for row, kept in (("T1.8", "seed1"), ("T1.2", "seed2")):
        whole = cell(fill(scored_twice, "1"), row, "amc")
        runs = tuple(run for run in whole.runs if kept in run)
        sides.append(whole.model_copy(update={"runs": runs}))
    assert filling._difference(*sides, "T1.2", scored_twice) == {"state": tidy.NOT_COMPARED}


def test_the_mark_and_the_interval_of_the_difference_say_the_same() -> None:
    for p, difference, half, mark in (
        (0.2, 0.1, 0.11, "≈"),
        (0.2, 0.1, 0.26, "?"),  # an interval of more than 50 points holds nearly everything
        (0.05, 0.1, 0.09, "↑?"),  # it excludes 0 before the correction, and not after
        (0.05, -0.1, 0.09, "↓?"),
        (0.049, 0.1, 0.09, "↑"),
        (0.0, -0.1, 0.09, "↓"),
        (0.0, -0.1, 0.11, "≈"),  # p and interval are of different tests: the mark is the interval's
        (None, 0.1, 0.09, "?"),
    ):
        assert render.arrow(difference, difference - half, difference + half, p) == mark, (p, difference, half)
    assert render.arrow(0.1, None, None, 0.01) == "?"


def test_a_baseline_without_scores_compares_nothing(embedded: Tree, tmp_path: Path) -> None:
    shutil.copytree(embedded.root, tmp_path / "embedded")
    lines = embedded.layout.scores.read_text().splitlines(keepends=True)
    (tmp_path / "embedded/scores.csv").write_text("".join(x for x in lines if ",grpo," not in x))
    rehash(tmp_path)
    filled = fill(Tree(tmp_path / "embedded"), "1")
    assert cell(filled, "T1.8", "amc").versus is None
    assert {cell(filled, row, "amc").state for row in ("T1.2", "T1.9", "T1.18")} == {"missing"}


# What the paper prints.


def test_the_printed_value_stands_in_the_papers_rows_only(embedded: Tree) -> None:
    filled = fill(embedded, "3")
    assert str(cell(filled, "T3.2", "amc").printed) == "0.0000"
    assert str(cell(filled, "T3.22", "math500").printed) == "0.7740", "digits are kept"
    assert str(cell(filled, "T3.22", "avg_pooled").printed) == "0.3259"
    assert cell(filled, "T3.22", "avg_macro").printed is None, "the paper does not print it"
    assert cell(filled, "X3.k1", "amc").printed is None, "not the paper's row"
    assert cell(fill(embedded, "2"), "T2.6", "aime24").printed is None, "printed as -"
    assert str(cell(fill(embedded, "1"), "T1.9", "amc").printed) == "0.0568", "as printed, whatever it should be"


def test_only_the_papers_models_and_benchmarks_are_comparable_with_it(embedded: Tree, paper: Tree) -> None:
    for key in TABLES:
        assert not any(c.comparable for c in fill(embedded, key).cells), key
        for found in fill(paper, key).cells:
            if found.printed is not None and found.state == "measured":
                mistral = found.row in ("T2.4", "T2.5", "T2.6")
                assert found.comparable == (not mistral or found.column != "avg_pooled"), found.row
    fewer = fill(replanned(paper, benchmarks=paper.matrix["benchmarks"][:-1]), "1")
    assert cell(fewer, "T1.8", "amc").comparable
    assert not cell(fewer, "T1.8", "avg_pooled").comparable, "an average over other benchmarks"


# Collapse.


def test_a_collapsed_run_is_marked_and_said_with_seed_and_rollout(embedded: Tree) -> None:
    filled = fill(embedded, "3")
    collapsed = [row for row in filled.rows if row.collapsed]
    rollouts = embedded.matrix["training"]["rollouts"]
    assert {row.id: row.collapsed for row in collapsed} == {"T3.2": (f"seed2:6/{rollouts}",)}
    assert render.label(collapsed[0]) == "w. β = 1 †"
    collapse = f"seed 2 collapsed at rollout 6 of {rollouts}"
    assert f"† w. β = 1 (tiny Qwen2): {collapse}; scored is what was left of the policy." in filled.notes


def test_a_collapse_after_the_checkpoint_is_said_to_be_later(embedded: Tree, tmp_path: Path) -> None:
    shutil.copytree(embedded.root, tmp_path / "embedded")
    path = tmp_path / "embedded/runs/tiny_qwen2/grpo/seed1/run.json"
    early, late = embedded.matrix["table_step"], embedded.matrix["long_step"]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"collapsed_at": late}))
    notes = fill(Tree(tmp_path / "embedded"), "4").notes
    collapse = f"(tiny Qwen2): seed 1 collapsed at rollout {late} of {embedded.matrix['training']['rollouts']}"
    assert [note for note in notes if "collapsed" in note] == [
        f"† GRPO/DAPO ({early} steps, seed1) {collapse}; scored is rollout {early}.",
        f"† GRPO/DAPO ({late} steps, seed1) {collapse}; scored is what was left of the policy.",
        f"† GRPO/DAPO ({early} steps, mean) {collapse}; scored is rollout {early}.",
        f"† GRPO/DAPO ({late} steps, mean) {collapse}; scored is what was left of the policy.",
    ]


SEEDS = 5
VARIANTS = {
    "again": {"title": "again", "changes": {"stream": 1}},
    "coin": {"title": "placebo, coin", "changes": {"reward": "coin"}},
}
METHODS = ("grpo", "tepo", "clip_cov", "gspo")


def invented(folder: Path, again: float | None, variants: Any = VARIANTS) -> Tree:
    """again: how far the second stream's scores lie above the first's; None: it is not planned."""
    draw = random.Random(1)
    runs: dict[tuple[str, str], Any] = {
        ("q7", method): [{"score": 0.5 + draw.gauss(0, 0.01)} for _ in range(SEEDS)] for method in METHODS
    }
    if again is not None:
        runs["q7", "grpo@again"] = [{"score": r["score"] + again + draw.gauss(0, 0.01)} for r in runs["q7", "grpo"]]
    runs["q7", "grpo@coin"] = [{"score": 0.2} for _ in range(SEEDS)]
    return claim_tree(folder, runs, variants=variants)


@pytest.mark.parametrize(
    ("again", "marked"), [(0.0, "0 of 9 cells marked; 0 before"), (0.3, "9 of 9 cells marked; 9 before")]
)
def test_the_line_counts_the_marks_of_the_arm(tmp_path: Path, again: float, marked: str) -> None:
    table = filled(invented(tmp_path / "t", again), "1")
    line = f"A/A arm (GRPO under two names, q7, {SEEDS} seeds): {marked} Holm's correction."
    assert render.again_lines(table) == [line]
    shown = {suffix: make(table) for suffix, make in render.RENDERINGS.items()}
    for suffix, text in shown.items():
        plain = text.replace("&#39;", "'").replace("$'$", "'")
        assert line in plain, suffix
    last = list(csv.reader(shown[".csv"].splitlines()))[-1]
    assert (last[0], last[1], len(last)) == ("A/A", line, 2 + len(table.columns))
    assert all(float(number) > 0 for number in last[2:])
    # it is no row of the table
    assert not [row for row in table.rows if row.id.startswith("A/A")]


def test_not_run_is_said_and_a_placebo_is_no_such_arm(tmp_path: Path) -> None:
    table = filled(invented(tmp_path / "t", None), "1")
    assert render.again_lines(table) == ["A/A arm: not run."]
    assert "A/A arm: not run." in render.markdown(table)
    assert list(csv.reader(render.csv_table(table).splitlines()))[-1] == ["A/A", "A/A arm: not run.", *["not run"] * 9]


def test_the_arm_is_compared_as_two_methods_and_corrected_as_one_more_row_that_changes_no_other(tmp_path: Path) -> None:
    found = invented(tmp_path / "a", 0.01)
    with_arm = filling.fill(spec.declaration(found, "1"), found)
    without = filling.fill(spec.declaration(found, "1"), invented(tmp_path / "b", None))
    rows = [c for c in with_arm if c.kind != "again"]
    assert rows == without
    arm = [c for c in with_arm if c.kind == "again"]
    assert len(arm) == 9
    again, once = (
        {c.run.seed: found.scores[c, "amc"].value for c in found.checkpoints if (c.run.method, c.step) == (method, 8)}
        for method in ("grpo@again", "grpo")
    )
    (amc,) = (c for c in arm if c.column == "amc")
    assert compared(amc) == as_compared(compare.compare_seeds(again, once, clusters=found.clean_models("q7")))
    for shown in arm:
        # The rows of TEPO, CLIP-Cov and GSPO, and the arm; the difference row is its minuend's test.
        family = {c.row: c.versus_p for c in rows if c.column == shown.column and c.kind == "run" and c.baseline}
        assert len(family) == 3
        expected = compare.holm([*family.values(), shown.versus_p])[-1]
        assert (shown.versus_p_holm, shown.versus_tests) == (expected, 4)
        assert shown.inside_noise is (expected is not None and expected >= filling.ALPHA)


def test_an_arm_that_is_a_row_of_the_table_is_no_second_test(tmp_path: Path) -> None:
    """What stands below such a table is what stands in it."""
    path, found = tmp_path / "tables.yaml", invented(tmp_path / "t", 0.01)
    rows = [{"id": f"C.{method}", "label": method, "method": method} for method in ("grpo", "grpo@again", "tepo")]
    block = {"model": "q7", "baseline": "C.grpo", "rows": rows}
    path.write_text(json.dumps({"tables": {"c": {"columns": ["amc", "avg_pooled", "area"], "blocks": [block]}}}))
    declared = spec.declaration(found, "c", path)
    table = tidy.view(declared, found, filling.fill(declared, found))
    row = next(row for row in table.rows if row.id == "C.grpo@again")
    (arm,) = table.again
    for shown in arm:
        assert shown.versus_p is not None or shown.column == "area"
        assert (shown.versus_p_holm, shown.versus_tests) == (
            row.cells[shown.column].versus_p_holm,
            row.cells[shown.column].versus_tests,
        )


def test_the_lines_of_the_arm_are_read_back_and_missed_when_they_are_cut(tmp_path: Path) -> None:
    found = invented(tmp_path / "t", 0.0)
    path = write(found, "1")[0][0]
    assert tidy.read_table(found, "1").again == filled(found, "1").again
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith("A/A")) + "\n", encoding="utf-8")
    with pytest.raises(CorruptInputError, match="not filled from"):
        tidy.read_table(found, "1")


def test_a_learning_curve_beside_two_checkpoints_of_its_run_is_one_test(tmp_path: Path) -> None:
    draw = random.Random(1)
    runs = {
        ("q7", method): [{"score": mean + draw.gauss(0, 0.01), "reward": mean + draw.gauss(0, 0.01)} for _ in range(5)]
        for method, mean in (("grpo", 0.3), ("tepo", 0.7))
    }
    table = filled(claim_tree(tmp_path / "t", runs), "runs")
    early, late = (f"q7/tepo/step{step}" for step in (8, 15))
    for column, tests in (("avg_pooled", 2), ("area", 1), ("final", 1)):
        found = [cell(table, row, column) for row in (early, late)]
        assert [c.versus_tests for c in found] == [tests, tests], column
        assert tests == 2 or found[0].versus_p_holm == found[0].versus_p
    # and the best run is not its own competitor
    assert {(early, "area"), (late, "area")} <= table.best
