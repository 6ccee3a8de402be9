"""Looking after every seed: the error stays below alpha, verdicts and intervals agree, and a verdict stays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from core.errors import ConfigError
from evals.stats.sequential import decide, half_width, log_e


def test_looking_after_every_seed_errs_in_at_most_5_percent() -> None:
    value_RS = np.random.default_rng(0).standard_normal((4000, 20))
    crossed = np.zeros(4000, bool)
    student = np.zeros(4000, bool)
    for n in range(2, 21):
        seen = value_RS[:, :n]
        crossed |= np.abs(seen.mean(1)) > half_width(seen, 0.05)
        student |= np.abs(seen.mean(1)) > 2.09 * seen.std(1, ddof=1) / np.sqrt(n)
    assert crossed.mean() < 0.05
    assert student.mean() > 0.15, "a t interval at 20 seeds, looked at on the way"


def test_the_interval_holds_the_means_that_the_e_value_does_not_reject() -> None:
    value_S = np.random.default_rng(1).standard_normal(8) + 0.3
    half = float(half_width(value_S, 0.05))
    for end in (value_S.mean() - half, value_S.mean() + half):
        assert float(log_e(value_S, end)) == pytest.approx(math.log(20), rel=1e-9)
    assert float(log_e(value_S, float(value_S.mean()))) < 0


def test_two_seeds_decide_nothing() -> None:
    assert math.isinf(float(half_width([0.1, 0.1001], 0.05)))
    assert decide([0.1, 0.1001], alpha=0.05).verdict == "undecided"


@pytest.mark.parametrize(("shift", "verdict"), [(0.5, "higher"), (-0.5, "lower"), (0.0, "equal")])
def test_the_first_verdict_stays(shift: float, verdict: str) -> None:
    value = list(shift + 0.01 * np.random.default_rng(2).standard_normal(20))
    found = decide(value, alpha=0.05, margin=0.05)
    assert found.verdict == verdict
    assert found.seeds < 20
    assert decide([*value[: found.seeds], *(-9.0 for _ in range(5))], alpha=0.05, margin=0.05) == found
    assert found.low is not None
    assert found.high is not None
    assert (found.low > 0, found.high < 0) == (verdict == "higher", verdict == "lower")


def test_a_level_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="alpha = 1"):
        decide([0.1, 0.2, 0.3], alpha=1.0)
