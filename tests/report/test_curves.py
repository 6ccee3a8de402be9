"""Learning curves: their measures, held against each other."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.layout import Results, Run
from evals import learning_curves
from evals.learning_curves import MEASURES
from evals.tree import Tree
from report import convergence
from tests.report import synthetic
from tests.report.finished import rewrite

PLANNED = 6
RISING = (0.1, 0.3, 0.5, 0.7, 0.9, 0.9)


def write_run(root: Path, method: str, seed: int, reward: Sequence[float], collapsed_at: int | None = None) -> None:
    """A run with two updates per rollout and figures that are easy to average by hand."""
    folder = root / Run("tiny_qwen2", method, seed).path
    rows = [
        {
            "rollout": n + 1, "update": 2 * n + minibatch, "minibatch": minibatch, "reward": value,
            "grad_norm": 1.0 + n + seed, "clip_fraction_tokens": 0.01 * minibatch, "clip_fraction_sequences": 0.5,
            "ratio_spread": 0.2 if minibatch else "", "entropy": 0.4 - 0.05 * n, "seconds_update": 0.25,
            "seconds_rollout": "" if minibatch else 1.0, "response_tokens": 9.0 + n, "kl_old": 0.001,
            "mask_fraction": 0.25 if method == "tepo" and minibatch else "",
        }
        for n, value in enumerate(reward)
        for minibatch in (0, 1)
    ]  # fmt: skip
    synthetic.write_csv(folder / "curve.csv", rows)
    record = {"spec": {"training": {"rollouts": PLANNED}}, "collapsed_at": collapsed_at}
    (folder / "run.json").write_text(json.dumps(record | {"cpu_seconds": 2.0 * len(reward)}))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Two seeds of GRPO/DAPO and of TEPO, nothing else finished."""
    made = tmp_path / "mine"
    runs = [Run("tiny_qwen2", method, seed) for method in synthetic.METHODS for seed in (1, 2)]
    synthetic.write_matrix(Results(made), runs, [], "mine", PLANNED)
    for seed in (1, 2):
        write_run(made / "runs", "grpo", seed, RISING)
        write_run(made / "runs", "tepo", seed, [min(value + 0.1 * seed, 1.0) for value in RISING])
    return Tree(made)


def of(tree: Tree, method: str, seed: int = 1) -> learning_curves.RunMeasures:
    return learning_curves.measure_run(tree, Run("tiny_qwen2", method, seed))


def value(tree: Tree, method: str, seed: int, measure: str) -> float:
    found = of(tree, method, seed).values[measure]
    assert found is not None
    return found


BY_HAND: dict[str, tuple[str, float]] = {
    "area": ("grpo", sum(RISING) / 6),
    "to_50": ("grpo", 4),  # means of three: .3 at 3, .5 at 4, .7 at 5, .833 at 6
    "to_80": ("grpo", 6),
    "to_grpo": ("tepo", 6),  # .933 at 6, .8 at 5; GRPO/DAPO ends at .833
    "final": ("grpo", 2.5 / 3),
    "grad_norm": ("grpo", 2.0 + 2.5),
    "clip_tokens": ("grpo", 0.005),
    "movement": ("grpo", (0.09 + 0.16) / 2),  # the median of six rollouts: 0.01, 0.04, .. 0.36
    "movement_first": ("grpo", 0.01),
    "entropy_end": ("grpo", 0.15),
}


def test_each_measure_is_its_definition_worked_by_hand(tree: Tree) -> None:
    assert BY_HAND.keys() == MEASURES.keys()
    assert of(tree, "grpo").why["movement"] == "not recorded by its trainer"

    def moved(row: dict[str, str]) -> dict[str, str]:
        return row | {"kl_step": str(0.01 * int(row["rollout"]) ** 2) if row["minibatch"] == "1" else ""}

    first = tree.layout.run(Run("tiny_qwen2", "grpo", 1)) / "curve.csv"
    rewrite(first, lambda row: moved(row) | ({"kl_step": ""} if row["rollout"] == "1" else {}))
    assert of(tree, "grpo").why["movement_first"] == "no rollout was trained on", "not the second rollout's"
    rewrite(first, moved)
    for key, (method, expected) in BY_HAND.items():
        assert value(tree, method, 1, key) == pytest.approx(expected, rel=1e-12), key


def test_rollouts_after_a_collapse_count_as_reward_0(tree: Tree) -> None:
    write_run(tree.root / "runs", "tepo", 1, [0.6, 0.6, 0.6], collapsed_at=3)
    found = of(tree, "tepo")
    assert (found.planned, found.rollouts, found.collapsed_at) == (6, 3, 3)
    assert found.values["area"] == pytest.approx(1.8 / 6)
    assert found.values["final"] == 0.0
    assert found.values["to_50"] == 3
    assert found.values["to_80"] is None
    assert found.why["to_80"] == "never reached"
    assert found.values["grad_norm"] == pytest.approx(2.0 + 1.0)  # of the rollouts trained
    assert found.values["entropy_end"] == pytest.approx(0.3)


def test_a_band_is_around_the_mean_over_clean_models_and_needs_three(tmp_path: Path) -> None:
    def band(seeds: int, starts: int) -> tuple[float, float | None]:
        runs = [Run("tiny_qwen2", "grpo", seed) for seed in range(1, seeds + 1)]
        root = tmp_path / f"{seeds}-{starts}"
        synthetic.write_matrix(Results(root), runs, [], "mine", 1, model={**synthetic.MODEL, "starts": starts})
        curves = {run: {name: [0.05 * run.seed**2] for name in convergence.SERIES} for run in runs}
        rows = {row["series"]: row for row in convergence.bands(Tree(root), curves)}
        return rows["reward"]["mean"], rows["reward"]["low"]

    assert band(3, 2) == (pytest.approx(0.225), None), "seeds 1 and 3 continue one clean model"
    mean, low = band(4, 3)  # 1 and 4 are one
    assert (mean, low is None) == (pytest.approx((0.425 + 0.2 + 0.45) / 3), False)
