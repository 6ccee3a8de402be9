"""A handful of table cells recomputed from raw responses by another path: own box extraction, own grading, own sums.

Reads the samples that `make demo` left and the golds, and nothing of evals' or report's arithmetic; the tables are then
asked what they print.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from core.results_tree import Tree
from report.tables import fill, render, spec
from report.tables.tidy import Table, view
from tests.report.tables import cell

ROOT = Path(__file__).resolve().parents[2]
QUICK, DATA = ROOT / "results/quick", ROOT / "results/cache/benchmarks"

pytestmark = pytest.mark.demo

AIME24, MINERVA = "syn_mix3", "syn_seq1"  # a sampled one and a greedy one
ALL = ("syn_mix3", "syn_inv2", "syn_add2q", "syn_as3", "syn_mix2", "syn_mul4", "syn_seq1")


def box(response: str) -> str | None:
    """What stands in the last `\\boxed{...}`; answers of these benchmarks hold no braces."""
    start = response.rfind("\\boxed{")
    end = response.find("}", start)
    return response[start + len("\\boxed{") : end] if start >= 0 and end >= 0 else None


def right(method: str, step: int, benchmark: str) -> dict[tuple[str, int], bool]:
    """(item, sample) -> whether the response's box holds the gold's number."""
    gold = {}
    for line in (DATA / f"{benchmark}.jsonl").read_text(encoding="utf-8").splitlines():
        item: dict[str, Any] = json.loads(line)
        gold[item["item_id"]] = str(item["answer"])
    path = QUICK / "samples/tiny_qwen2" / method / "seed1" / f"step{step}"
    found = {}
    for row in pq.read_table(path / f"{benchmark}.parquet").to_pylist():
        answer = box(row["response"])
        found[row["item_id"], row["sample"]] = (
            answer is not None and answer.strip().isdecimal() and int(answer) == int(gold[row["item_id"]])
        )
    return found


def share(*answers: dict[tuple[str, int], bool]) -> Fraction:
    return Fraction(sum(sum(a.values()) for a in answers), sum(len(a) for a in answers))


@pytest.fixture(scope="module")
def table() -> Table:
    assert (QUICK / "scores.csv").is_file(), "results/quick is missing: run make demo"
    return view(spec.table("1"), Tree(QUICK), fill.fill(spec.table("1"), Tree(QUICK)))


ROWS = {"T1.1": ("base", 0), "T1.2": ("grpo", 12), "T1.7": ("gspo", 12), "T1.8": ("tepo", 12)}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(("column", "benchmark"), [("aime24", AIME24), ("minerva", MINERVA)])
def test_a_sampled_and_a_greedy_cell(row: str, column: str, benchmark: str, table: Table) -> None:
    expected = share(right(*ROWS[row], benchmark))
    found = cell(table, row, column)
    assert found.value == pytest.approx(float(expected), abs=1e-12)
    assert render.number(found) == f"{float(100 * expected):.2f}"


@pytest.mark.parametrize("row", ROWS)
def test_both_averages(row: str, table: Table) -> None:
    answers = [right(*ROWS[row], benchmark) for benchmark in ALL]
    pooled, macro = share(*answers), sum(map(share, answers), Fraction(0)) / len(answers)
    assert pooled != macro
    assert cell(table, row, "avg_pooled").value == pytest.approx(float(pooled), abs=1e-12)
    assert cell(table, row, "avg_macro").value == pytest.approx(float(macro), abs=1e-12)


@pytest.mark.parametrize(("column", "benchmarks"), [("amc", ("syn_add2q",)), ("avg_pooled", ALL)])
def test_the_difference_and_what_it_is_made_of(column: str, benchmarks: tuple[str, ...], table: Table) -> None:
    tepo, grpo = ([right(method, 12, key) for key in benchmarks] for method in ("tepo", "grpo"))
    expected = share(*tepo) - share(*grpo)
    assert cell(table, "T1.9", column).value == pytest.approx(float(expected), abs=1e-12)
    assert cell(table, "T1.8", column).versus == pytest.approx(float(expected), abs=1e-12)
