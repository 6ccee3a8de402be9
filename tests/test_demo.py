"""What `make demo` wrote: rewards rise, evaluation agrees, every file is where the contract says.

Reads `results/quick` of this checkout; `make test` runs the demo first.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from core.layout import Checkpoint, Results, Run

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Results(ROOT / "results/quick")
RISE = 0.15

pytestmark = pytest.mark.demo


@pytest.fixture(scope="module")
def matrix() -> dict:
    assert RESULTS.matrix.is_file(), "results/quick is missing: run make demo"
    return json.loads(RESULTS.matrix.read_text())


@pytest.fixture(scope="module")
def scores() -> pd.DataFrame:
    return pd.read_csv(RESULTS.scores)


def runs(matrix: dict) -> list[Run]:
    return [Run(run["model"], run["method"], run["seed"]) for run in matrix["runs"]]


def rise(curve: pd.DataFrame) -> float:
    """Mean reward of the last quarter of rollouts minus that of the first quarter."""
    reward = curve.groupby("rollout")["reward"].first()
    quarter = max(len(reward) // 4, 1)
    return float(reward.tail(quarter).mean() - reward.head(quarter).mean())


def test_every_contracted_file_is_there(matrix: dict) -> None:
    for run in runs(matrix):
        assert {path.name for path in RESULTS.run(run).iterdir()} >= {"run.json", "curve.csv", "checkpoints"}
    for entry in matrix["checkpoints"]:
        checkpoint = Checkpoint(Run(entry["model"], entry["method"], entry["seed"]), entry["step"])
        for benchmark in matrix["benchmarks"]:
            samples = pd.read_parquet(RESULTS.samples(checkpoint) / f"{benchmark['key']}.parquet")
            grades = pd.read_parquet(RESULTS.grades(checkpoint) / f"{benchmark['key']}.parquet")
            assert len(samples) == len(grades) == benchmark["items"] * benchmark["samples"]
    for path in ("tables/table1.csv", "tables/table1.md", "tables/table1.tidy.csv", "report.html"):
        assert (RESULTS.root / path).stat().st_size > 0
    for figure in ("figure2", "figure3", "entropy"):
        assert all((RESULTS.figures / f"{figure}.{kind}").stat().st_size > 0 for kind in ("svg", "png", "csv"))


def test_rewards_rise_for_every_method(matrix: dict) -> None:
    risen = {run.method: rise(pd.read_csv(RESULTS.run(run) / "curve.csv")) for run in runs(matrix)}
    assert len(risen) == 4
    assert all(value >= RISE for value in risen.values()), risen


def test_the_evaluated_average_exceeds_the_bases_interval(matrix: dict, scores: pd.DataFrame) -> None:
    average = scores[scores.benchmark == "avg_pooled"].set_index("method")
    for run in runs(matrix):
        assert average.loc[run.method, "score"] > average.loc["base", "high"], run.method
        assert average.loc[run.method, "low"] > average.loc["base", "high"], run.method


def test_methods_share_everything_that_is_not_the_method(matrix: dict) -> None:
    records = [json.loads((RESULTS.run(run) / "run.json").read_text()) for run in runs(matrix)]
    shared = {(record["inputs"]["base"], record["inputs"]["prompts"]) for record in records}
    assert len(shared) == 1, "one base, one prompt file"
    first = [pd.read_csv(RESULTS.run(run) / "curve.csv").iloc[0] for run in runs(matrix)]
    assert len({row["reward"] for row in first}) == 1, (
        "same weights, prompts and sampling: the first rollout is one and the same"
    )
    assert len({row["entropy"] for row in first}) == 1
    last = [pd.read_csv(RESULTS.run(run) / "curve.csv").iloc[-1] for run in runs(matrix)]
    assert len({row["entropy"] for row in last}) == len(last), "and then the methods differ"


def test_a_cell_can_be_followed_down_to_responses(scores: pd.DataFrame) -> None:
    """The printed Table 1 cell, recomputed from the grades by another path than the code that made it."""
    tidy = pd.read_csv(RESULTS.tables / "table1.tidy.csv")
    row = tidy[(tidy.method == "tepo") & (tidy.benchmark == "syn_mix3")].iloc[0]
    checkpoint = Checkpoint(Run("tiny_qwen2", "tepo", 1), int(row.step))
    grades = pd.read_parquet(RESULTS.grades(checkpoint) / "syn_mix3.parquet")
    share = sum(verdict == "correct" for verdict in grades.verdict) / len(grades)
    assert row.value == pytest.approx(share, abs=1e-12)
    assert f"{100 * share:.2f}" in (RESULTS.tables / "table1.csv").read_text()
