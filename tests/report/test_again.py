"""The A/A arm beside every table: counted from the tree, by the table's own comparison and correction."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest

from core.errors import CorruptInputError
from core.results_tree import Tree
from evals.stats import compare
from report.tables import fill, render, tidy
from tests.paper.claim_trees import tree
from tests.report.tables import filled

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
    return tree(folder, runs, variants=variants)


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


def test_the_arm_is_corrected_as_one_more_row_and_changes_no_other(tmp_path: Path) -> None:
    with_arm = fill.fill(tidy.declaration(invented(tmp_path / "a", 0.01), "1"), invented(tmp_path / "b", 0.01))
    without = fill.fill(tidy.declaration(invented(tmp_path / "c", None), "1"), invented(tmp_path / "d", None))
    rows = [cell for cell in with_arm if cell.kind != "again"]
    assert rows == without
    arm = [cell for cell in with_arm if cell.kind == "again"]
    assert len(arm) == 9
    for cell in arm:
        # The rows of TEPO, CLIP-Cov and GSPO, and the arm; the difference row is its minuend's test.
        family = {c.row: c.versus_p for c in rows if c.column == cell.column and c.kind == "run" and c.baseline}
        assert len(family) == 3
        expected = compare.holm([*family.values(), cell.versus_p])[-1]
        assert (cell.versus_p_holm, cell.versus_tests) == (expected, 4)
        assert cell.inside_noise is (expected is not None and expected >= fill.ALPHA)


def test_an_arm_that_is_a_row_of_the_table_is_no_second_test(tmp_path: Path) -> None:
    """What stands below such a table is what stands in it."""
    path, found = tmp_path / "tables.yaml", invented(tmp_path / "t", 0.01)
    rows = [{"id": f"C.{method}", "label": method, "method": method} for method in ("grpo", "grpo@again", "tepo")]
    block = {"model": "q7", "baseline": "C.grpo", "rows": rows}
    path.write_text(json.dumps({"tables": {"c": {"columns": ["amc", "avg_pooled", "area"], "blocks": [block]}}}))
    declared = tidy.declaration(found, "c", path)
    table = tidy.view(declared, found, fill.fill(declared, found))
    row = next(row for row in table.rows if row.id == "C.grpo@again")
    (arm,) = table.again
    for cell in arm:
        assert cell.versus_p is not None or cell.column == "area"
        assert (cell.versus_p_holm, cell.versus_tests) == (
            row.cells[cell.column].versus_p_holm,
            row.cells[cell.column].versus_tests,
        )


def test_the_comparison_is_the_one_of_two_methods(tmp_path: Path) -> None:
    found = invented(tmp_path / "t", 0.004)
    arm = {cell.column: cell for cell in filled(found, "1").again[0]}
    again, once = (
        {c.run.seed: found.scores[c, "amc"].value for c in found.checkpoints if (c.run.method, c.step) == (method, 8)}
        for method in ("grpo@again", "grpo")
    )
    expected = compare.compare_seeds(again, once, clusters=found.clean_models("q7"))
    assert (arm["amc"].versus, arm["amc"].versus_low, arm["amc"].versus_p) == (
        expected.difference,
        expected.low,
        expected.p,
    )


def test_the_lines_of_the_arm_are_read_back_and_missed_when_they_are_cut(tmp_path: Path) -> None:
    found = invented(tmp_path / "t", 0.0)
    path = Path(fill.write(tidy.declaration(found, "1"), found))
    assert tidy.read_table(found, "1").again == filled(found, "1").again
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith("A/A")) + "\n", encoding="utf-8")
    with pytest.raises(CorruptInputError, match="not filled from"):
        tidy.read_table(found, "1")
