"""A sweep makes the runs it says, never trains one twice, and never compares a value on the seeds that chose it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError
from core.files import to_csv, write_text
from core.layout import Results
from tests.merged_config import load
from workflow import matrix, sweep

ROOT = Path(__file__).resolve().parents[2]
RATES = {"training.learning_rate": [5e-5, 1e-4, 2e-4]}


def planned(tmp_path: Path, swept: dict[str, Any], methods: list[str], seeds: list[int]) -> dict[str, Any]:
    config = load([ROOT / "config/embedded.yaml", ROOT / "config/quick.yaml"])
    config |= {"sweep": swept, "methods": methods, "seeds": seeds}
    config["matrix"] = matrix.blocks(config)
    config |= {"methods": None, "seeds": None}
    return config | sweep.expanded(config, Results(tmp_path), lambda path: "config")


def runs(config: dict[str, Any]) -> list[str]:
    return [f"{p.run.method} {p.run.seed}" for p in matrix.plan(config)]


def choose(tmp_path: Path, config: dict[str, Any], chosen: set[str]) -> None:
    points, question = config["swept"]["points"], config["swept"]["question"]
    rows = [p | {"chosen": "yes" if p["method"] in chosen else "no", "question": question} for p in points]
    columns = ("model", "row", "method", "chosen", "question")
    write_text(tmp_path / sweep.CHOICE, to_csv(columns, [{c: row[c] for c in columns} for row in rows]))


def test_every_method_has_every_rate_and_the_scales_own_is_the_plain_run(tmp_path: Path) -> None:
    config = planned(tmp_path, RATES, ["grpo", "tepo"], [1, 2])
    names = ["@learning_rate-5e-5", "", "@learning_rate-2e-4"]
    assert runs(config) == [f"{m}{name} {s}" for m in ("grpo", "tepo") for name in names for s in (1, 2)]
    hot = next(p for p in matrix.plan(config) if p.run.method == "tepo@learning_rate-2e-4")
    assert matrix.training(config, hot)["learning_rate"] == 2e-4
    content = matrix.matrix(config)
    assert content["variants"]["learning_rate-2e-4"]["changes"] == {"training.learning_rate": 2e-4}
    assert content["sweep"]["test_seeds"] == [3, 4], "as many fresh seeds as select"


def test_an_option_is_swept_for_the_methods_that_have_it(tmp_path: Path) -> None:
    config = planned(tmp_path, {"beta": [0.1, 1]}, ["grpo", "tepo"], [1])
    assert runs(config) == ["grpo 1", "tepo+beta=0.1 1", "tepo+beta=1 1"]


def test_the_chosen_values_alone_are_trained_on_the_fresh_seeds(tmp_path: Path) -> None:
    asked = RATES | {"select_seeds": [1, 2], "test_seeds": [7, 8, 9]}
    config = planned(tmp_path, asked, ["grpo", "clip_cov"], [1, 2])
    clip = "clip_cov+fraction=0.01@learning_rate-5e-5"
    choose(tmp_path, config, {"grpo@learning_rate-2e-4", clip})
    again = planned(tmp_path, asked, ["grpo", "clip_cov"], [1, 2])
    fresh = [f"{method} {seed}" for method in ("grpo@learning_rate-2e-4", clip) for seed in (7, 8, 9)]
    assert runs(again) == runs(config) + fresh
    assert sweep.is_chosen(again["swept"], Results(tmp_path))
    other = planned(tmp_path, asked | {"by": ["area"]}, ["grpo", "clip_cov"], [1, 2])
    assert runs(other) == runs(config), "what another measure chose is no choice of this sweep"


def test_runs_that_select_by_area_are_not_evaluated(tmp_path: Path) -> None:
    asked = RATES | {"select_seeds": [1, 2], "test_seeds": [7, 8], "by": ["area"]}
    first = planned(tmp_path, asked, ["grpo", "tepo"], [1, 2])
    content = matrix.matrix(first)
    assert {c["method"] for c in content["checkpoints"]} == {"base"}
    run = next(p for p in matrix.plan(first) if p.run.method == "tepo")
    assert matrix.specification(first, run, "b", "p")["checkpoints"] == [12], "trained as it is without a sweep"
    choose(tmp_path, first, {"grpo@learning_rate-2e-4", "tepo"})
    again = matrix.matrix(planned(tmp_path, asked, ["grpo", "tepo"], [1, 2]))
    trained = {(c["method"], c["seed"]) for c in again["checkpoints"] if c["method"] != "base"}
    assert trained == {(method, seed) for method in ("grpo@learning_rate-2e-4", "tepo") for seed in (7, 8)}
    scored = matrix.matrix(planned(tmp_path, asked | {"by": ["score"]}, ["grpo", "tepo"], [1, 2]))
    assert len([c for c in scored["checkpoints"] if c["method"] != "base"]) == 2 * 3 * 2


def test_fresh_seeds_may_have_the_scales_own_value_too(tmp_path: Path) -> None:
    asked = RATES | {"beta": [0.001, 1], "select_seeds": [1], "test_seeds": [7], "fresh": ["chosen", "own"]}
    config = planned(tmp_path, asked, ["grpo", "tepo"], [1])
    assert len(sweep.fresh_runs(config["swept"])) == 4, "as many as there can be"
    choose(tmp_path, config, {"grpo", "tepo+beta=1@learning_rate-2e-4"})
    again = planned(tmp_path, asked, ["grpo", "tepo"], [1])
    assert runs(again)[len(runs(config)) :] == ["grpo 7", "tepo 7", "tepo+beta=1@learning_rate-2e-4 7"]


@pytest.mark.parametrize(("scale", "first", "second"), [("tuned", 14 * 5 * 8, 14 * 8), ("tuned_beta", 12 * 4, 4 * 8)])
def test_the_tuned_trees_have_selection_and_fresh_seeds(tmp_path: Path, scale: str, first: int, second: int) -> None:
    config = load([ROOT / "config/embedded.yaml", ROOT / f"config/{scale}.yaml"])
    config["matrix"] = matrix.blocks(config)
    swept = sweep.expanded(config, Results(tmp_path), lambda path: "config")
    assert len(matrix.plan(config | swept)) == first
    rows = {point["row"] for point in swept["swept"]["points"]}
    # every method has its value chosen from 5 x 4 runs; the paper's Table 1 is in the sweep of the rate
    assert len(rows) * len(swept["swept"]["test_seeds"]) == second
    assert not set(swept["swept"]["select_seeds"]) & set(swept["swept"]["test_seeds"])
    own = {point["row"] for point in swept["swept"]["points"] if sweep.is_own(point)}
    assert own == rows, "the paper's single value is among those tried"


def test_a_sweep_that_chooses_nothing_has_no_fresh_seeds(tmp_path: Path) -> None:
    config = load([ROOT / "config/embedded.yaml", ROOT / "config/clean.yaml"])
    config["matrix"] = matrix.blocks(config)
    config |= sweep.expanded(config, Results(tmp_path), lambda path: "config")
    assert config["swept"]["test_seeds"] == []
    assert len(config["swept"]["points"]) == 21
    assert [p.run.seed for p in matrix.plan(config)] == [*range(1, 9)] * 21
    assert sweep.fresh_runs(config["swept"]) == []


@pytest.mark.parametrize(
    ("swept", "error"),
    [
        (RATES | {"select_seeds": [1, 2], "test_seeds": [2, 3]}, "test_seeds: 2 also selects"),
        (RATES | {"by": ["reward"]}, "sweep.by: unknown value 'reward'; allowed: area, score"),
        (RATES | {"fresh": ["chosen", "all"]}, "sweep.fresh: unknown value 'all'; allowed: chosen, none, own"),
        (RATES | {"fresh": ["own"]}, "sweep.fresh: lacks chosen"),
        (RATES | {"test_seeds": ["a"]}, "'a' is not a whole number"),
        ({"bata": [1, 2]}, "unknown value 'bata'"),
        ({"select_seeds": [1]}, "no values to try"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(tmp_path: Path, swept: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        planned(tmp_path, swept, ["grpo", "tepo"], [1, 2])


@pytest.mark.parametrize(
    ("value", "name"), [(2e-4, "2e-4"), (2.5e-4, "25e-5"), (1.0, "1e0"), (0.1, "1e-1"), (64, "64"), (3e-05, "3e-5")]
)
def test_names_of_variants_are_folder_names_and_tell_values_apart(value: float, name: str) -> None:
    assert sweep.variant_name({"learning_rate": value}) == f"learning_rate-{name}"
