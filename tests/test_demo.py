"""What `make demo` wrote: rewards rise, evaluation agrees, every file is where the contract says.

Reads `results/quick` of this checkout; `make test` runs the demo first.
"""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from core.layout import Results, Run
from evals.tree import Tree
from tests.report.tables import cell, filled

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Results(ROOT / "results/quick")
RISE = 0.15

pytestmark = pytest.mark.demo


@pytest.fixture(scope="module")
def matrix() -> dict:
    assert RESULTS.matrix.is_file(), "results/quick is missing: run make demo"
    return json.loads(RESULTS.matrix.read_text())


def runs(matrix: dict) -> list[Run]:
    return [Run(run["model"], run["method"], run["seed"]) for run in matrix["runs"]]


def rise(curve: pd.DataFrame) -> float:
    """Mean reward of the last quarter of rollouts minus that of the first quarter."""
    reward = curve.groupby("rollout")["reward"].first()
    quarter = max(len(reward) // 4, 1)
    return float(reward.tail(quarter).mean() - reward.head(quarter).mean())


def test_rewards_rise_for_every_method(matrix: dict) -> None:
    risen = {run.method: rise(pd.read_csv(RESULTS.run(run) / "curve.csv")) for run in runs(matrix)}
    assert len(risen) == 6
    assert all(value >= RISE for value in risen.values()), risen


QUICK, DATA = ROOT / "results/quick", ROOT / "results/cache/benchmarks"
AIME24, MINERVA = "syn_mix3", "syn_seq1"  # 32 responses to a problem, and one
ALL = ("syn_mix3", "syn_inv2", "syn_add2q", "syn_as3_sampled", "syn_mix2", "syn_mul4", "syn_seq1")


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
def table() -> dict[str, Any]:
    assert (QUICK / "scores.csv").is_file(), "results/quick is missing: run make demo"
    return filled(Tree(QUICK), "1")


ROWS = {"T1.1": ("base", 0), "T1.2": ("grpo", 4), "T1.7": ("gspo", 4), "T1.8": ("tepo", 4)}


def test_cells_are_shares_of_right_responses(table: dict[str, Any]) -> None:
    """A sampled benchmark, a greedy one, both averages, and TEPO's difference from GRPO."""
    pooled = {}
    for row, at in ROWS.items():
        answers = {key: right(*at, key) for key in ALL}
        pooled[row] = share(*answers.values())
        macro = sum(map(share, answers.values()), Fraction(0)) / len(answers)
        expected = {"aime24": share(answers[AIME24]), "minerva": share(answers[MINERVA]), "avg_macro": macro}
        for column, value in (expected | {"avg_pooled": pooled[row]}).items():
            assert cell(table, row, column).value == pytest.approx(float(value), abs=1e-12), (row, column)
            assert cell(table, row, column).text == f"{float(100 * value):.2f}"
    difference = float(pooled["T1.8"] - pooled["T1.2"])
    assert cell(table, "T1.9", "avg_pooled").value == pytest.approx(difference, abs=1e-12)
    assert cell(table, "T1.8", "avg_pooled").versus == pytest.approx(difference, abs=1e-12)
