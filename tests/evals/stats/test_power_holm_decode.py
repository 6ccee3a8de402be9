"""Power by simulation and hand, Holm by hand, and printed percentages decoded into counts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from core.errors import ConfigError
from evals.stats.compare import detectable, holm
from paper.printed import COLUMN, POOL, candidates, printed


def test_detectable_difference_is_found_in_80_percent() -> None:
    for n in (2, 3, 5, 30):
        difference = detectable(1 / np.sqrt(n), n - 1)
        draws = np.random.default_rng(n).normal(difference, 1, (20000, n))
        p = stats.ttest_1samp(draws, 0, axis=1).pvalue
        assert np.mean((p < 0.05) & (draws.mean(1) > 0)) == pytest.approx(0.8, abs=0.009)  # three standard errors
        power = stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, difference * np.sqrt(n))
        assert power == pytest.approx(0.8, abs=1e-6)  # the root finder stops there


def test_holm() -> None:
    cases: list[tuple[list[float | None], list[float | None]]] = [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.01, None, 0.04], [0.02, None, 0.04]),  # the untested one does not count
        ([0.5, 0.9], [1.0, 1.0]),
        ([0.02, 0.02, 0.02], [0.06, 0.06, 0.06]),
        ([None], [None]),
        ([], []),
    ]
    for raw, adjusted in cases:
        assert [None if p is None else round(p, 12) for p in holm(raw)] == adjusted
    for p in (-0.1, 1.5, float("nan")):
        with pytest.raises(ConfigError, match=r"p\[1\]"):
            holm([0.5, p])


def test_holm_keeps_the_error_rate_of_the_family() -> None:
    """Nine true null hypotheses, correlated: some significance in at most 5 % of families (raw: 24 %)."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(4000, 9)) * np.sqrt(0.5) + rng.normal(size=(4000, 1)) * np.sqrt(0.5)
    p = 2 * stats.norm.sf(np.abs(z))
    assert np.mean(p.min(1) < 0.05) > 0.15
    assert np.mean([min(x for x in holm(row.tolist()) if x is not None) < 0.05 for row in p]) < 0.05 + 0.01


TEPO_7B = {
    "aime24": ("12.60", 121), "aime25": ("8.75", 84), "amc": ("43.48", 1155), "math500": ("77.40", 387),
    "omni_math": ("27.17", 764), "olympiadbench": ("40.44", 273), "minerva": ("34.92", 95),
}  # fmt: skip
"""Printed cells of one row of Table 1 and the counts they stand for."""


def test_a_printed_row_decodes_into_its_counts() -> None:
    for key, (percent, count) in TEPO_7B.items():
        assert candidates(percent, COLUMN[key]) == (count,)
        assert percent in printed(count, COLUMN[key])


def test_the_row_average_follows_from_its_counts() -> None:
    """2879 of 8844 plus 3 or 4 of the ten copied rows print as 32.59."""
    right = sum(count for _, count in TEPO_7B.values())
    total = sum(POOL.values())
    assert (right, total) == (2879, 8844)
    assert round(100 * right / total, 3) == 32.553
    assert [d for d in range(11) if "32.59" in printed(right + d, total)] == [3, 4]
    assert candidates("32.59", total) == (2882, 2883)


def test_weights_to_four_decimals() -> None:
    weights = {key: count / sum(POOL.values()) for key, count in POOL.items()}
    rounded = {key: round(share, 4) for key, share in weights.items()}
    assert rounded == {
        "aime24": 0.1085, "aime25": 0.1085, "amc": 0.3003, "math500": 0.0565, "omni_math": 0.319,
        "olympiadbench": 0.0763, "minerva": 0.0308,
    }  # fmt: skip
    assert sum(weights.values()) == pytest.approx(1, abs=1e-15)


def test_candidates() -> None:
    for percent, n, counts in (
        ("19.16", 960, (184,)),  # truncated
        ("19.17", 960, (184,)),  # rounded
        ("1.19", 675, (8,)),  # rounded up from 1.185
        ("0.94", 960, (9,)),
        ("0.00", 960, (0,)),
        ("100.00", 272, (272,)),
        ("21.69", 272, (59,)),
        ("37.10", 272, ()),  # between 100/272 = 36.76 and 101/272 = 37.13
        ("2.77", 8844, (245,)),
    ):
        assert candidates(percent, n) == counts
    for n in (272, 500, 675, 960, 2656):
        assert all(k in candidates(text, n) for k in range(n + 1) for text in printed(k, n))
    assert candidates("27.17", 28110) == tuple(k for k in range(28111) if "27.17" in printed(k, 28110))
