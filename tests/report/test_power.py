"""`python -m studies.power`: spreads are those of the paired seeds, and the seeds it asks for have the power."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import nct, t

from core.layout import Run
from core.results_tree import Tree
from evals import learning_curves
from studies import power
from tests.report import synthetic

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("tests", power.FAMILIES)
@pytest.mark.parametrize(("sd", "effect"), [(0.03, 0.05), (0.011, 0.01), (0.28, 0.2)])
def test_the_pairs_asked_for_have_the_power_and_one_less_has_not(sd: float, effect: float, tests: int) -> None:
    n = power.pairs_needed(sd, effect, tests)
    for pairs, enough in ((n, True), (n - 1, False)):
        critical = t.ppf(1 - 0.05 / 2 / tests, pairs - 1)
        chance = nct.sf(critical, pairs - 1, effect / sd * np.sqrt(pairs))
        assert (chance >= 0.8) == enough
    assert power.detectable(sd, n, tests) <= effect < power.detectable(sd, n - 1, tests)


def test_spreads_are_those_of_the_paired_seeds(tmp_path: Path) -> None:
    seeds = (1, 2, 3)
    tree = Tree(synthetic.write_tree(tmp_path / "quick", seeds=seeds))
    found = {(one.baseline, one.label): one for one in power.spreads(tree)}
    area = {
        method: np.array(
            [learning_curves.measure_run(tree, Run("tiny_qwen2", method, s)).values["area"] for s in seeds]
        )
        for method in ("grpo", "gspo", "tepo_nokl", "tepo")
    }
    one = found["grpo", "area under the reward curve"]
    differences = [area[method] - area["grpo"] for method in ("gspo", "tepo_nokl", "tepo")]
    assert (one.methods, one.seeds) == (3, (3, 3))
    assert one.sd == pytest.approx(np.sqrt(np.mean([d.var(ddof=1) for d in differences])))
    assert one.mean == pytest.approx(np.mean([abs(d.mean()) for d in differences]))
    family = found["tepo_nokl", "area under the reward curve"]
    assert family.sd == pytest.approx((area["tepo"] - area["tepo_nokl"]).std(ddof=1))
    covariance = np.cov(area["tepo"], area["tepo_nokl"])
    assert family.correlation == pytest.approx(covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]))
    assert {label for _, label in found} >= {
        "final reward",
        "Avg. (pooled) after 12, points",
        "syn_mix3 after 12, points",
    }


def test_it_reads_the_kept_reference(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["power", "--results", str(ROOT / "results/reference/embedded")])
    power.main()
    printed = capsys.readouterr().out
    assert "## Difficulty" in printed
    assert "| tiny_qwen2 | the scale's own | grpo | area under the reward curve |" in printed
