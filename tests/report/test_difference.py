"""One method minus another, over the pairs of one tree or several."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from core.errors import ConfigError, MissingInputError
from core.layout import Run
from core.provenance import ROOT
from core.results_tree import Tree, open_tree
from report import difference
from tests.report import synthetic

KEPT = ROOT / "results" / "reference"


def areas(tree: str, method: str) -> pd.Series:
    """By seed, from the kept curves: what the area is by its definition."""
    (kept,) = (KEPT / tree / "runs").glob("*.parquet")
    curve = pd.read_parquet(kept, columns=["run", "rollout", "reward"]).astype({"reward": float})
    curve = curve[curve["run"].str.startswith(f"tiny_qwen2/{method}/")].drop_duplicates(["run", "rollout"])
    return curve.groupby("run")["reward"].mean()


@pytest.mark.parametrize("trees", [["embedded"], ["embedded", "embedded_amd"]])
def test_it_is_the_paired_t_test_over_the_clean_models_of_all_their_seeds(trees: list[str]) -> None:
    found, again = difference.pairs([open_tree(KEPT / tree) for tree in trees], "tepo_kl_all", "cispo")
    line = difference.lines(found)[0]
    a, b = (pd.concat([areas(tree, method) for tree in trees]) for method in ("tepo_kl_all", "cispo"))
    clean_model = a.index.str.rpartition("/seed").get_level_values(2).astype(int) % 4
    a, b = (side.groupby(clean_model).mean().to_numpy() for side in (a, b.set_axis(a.index)))
    test = stats.ttest_rel(a, b)
    interval = test.confidence_interval()
    assert (line["model"], line["measure"], line["pairs"], again) == ("tiny_qwen2", "area", 8 * len(trees), 0)
    assert list(line["by_tree"].values()) == [8] * len(trees)
    got = [line["difference"], line["low"], line["high"], line["p"]]
    assert got == pytest.approx([(a - b).mean(), interval.low, interval.high, test.pvalue], rel=1e-9)


def test_a_base_counts_once_however_many_trees_have_it() -> None:
    """The tuned tree has the embedded one's bases 1 to 8, and 9 to 12 beside them."""
    embedded, tuned = open_tree(KEPT / "embedded_xeon"), open_tree(KEPT / "tuned")
    found, again = difference.pairs([embedded, embedded, tuned], "tepo", "grpo")
    assert again == len([run for run in embedded.runs if run.method == "tepo"])
    qwen = [pair.a.seed for pair in found if pair.a.model == "tiny_qwen2"]
    assert qwen == list(range(1, 13)), "those of a sweep that choose, and not its fresh ones"
    printed = difference.text("tepo", "grpo", difference.lines(found), again)
    assert "| 12 (8 + 4) of 4 clean models |" in printed
    assert f"{again} pairs are no further seeds" in printed


@pytest.mark.parametrize("compared", ["chosen", "own"])
def test_of_a_sweep_each_method_is_taken_at_its_value(compared: str) -> None:
    tree = open_tree(KEPT / "tuned_beta")
    rows = list(csv.DictReader((KEPT / "tuned_beta" / "sweep" / "fresh.csv").read_text(encoding="utf-8").splitlines()))
    a, b = (next(r for r in rows if r["compared"] == compared and r["row"] == row) for row in ("tepo", "grpo"))
    line = difference.lines(difference.pairs([tree], "tepo", "grpo", compared)[0])[0]
    assert line["difference"] == pytest.approx(float(a["difference"]), rel=1e-9)
    sides = [dict(pair.split(":") for pair in row["areas_by_seed"].split()) for row in (a, b)]
    gain = pd.Series({int(seed): float(sides[0][seed]) - float(sides[1][seed]) for seed in sides[0]})
    test = stats.ttest_1samp(gain.groupby(gain.index % 4).mean(), 0.0)
    assert (line["pairs"], line["units"], line["p"]) == (8, 4, pytest.approx(test.pvalue, rel=1e-9))


def test_what_cannot_be_compared_is_said() -> None:
    embedded, tuned = open_tree(KEPT / "embedded_xeon"), open_tree(KEPT / "tuned")
    with pytest.raises(ConfigError, match=r"kl_cof.*kl_cov"):
        difference.pairs([embedded], "tepo", "kl_cof")
    with pytest.raises(ConfigError, match="one method there"):
        difference.pairs([embedded], "clip_cov", "clip_cov+fraction=0.01")
    other = open_tree(KEPT / "tuned")
    other.matrix["settings"]["training.learning_rate"] = 2e-4
    with pytest.raises(ConfigError, match=r"training.learning_rate: 0.0002, but .* has 0.0001"):
        difference.pairs([tuned, other], "tepo", "grpo")
    with pytest.raises(MissingInputError, match="sweep: this tree has none"):
        difference.pairs([embedded], "tepo", "grpo", "chosen")


def test_without_a_finished_pair_there_is_no_table(tmp_path: Path) -> None:
    tree = Tree(synthetic.write_tree(tmp_path / "mine", seeds=(1,)))
    (tree.layout.run(Run("tiny_qwen2", "grpo", 1)) / "run.json").unlink()
    with pytest.raises(MissingInputError, match="no finished seed of both tepo and grpo"):
        difference.pairs([tree], "tepo", "grpo")


def test_curves_say_enough_where_nothing_is_scored_yet(tmp_path: Path) -> None:
    tree = Tree(synthetic.write_tree(tmp_path / "mine", seeds=(1, 2)))
    tree.layout.scores.unlink()
    found = difference.lines(difference.pairs([tree], "tepo", "grpo")[0])
    assert [line["measure"] for line in found] == list(difference.CURVE)
