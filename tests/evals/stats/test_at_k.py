"""avg@k, pass@k and maj@k against enumeration and by hand."""

from __future__ import annotations

import doctest
from itertools import combinations, product
from math import comb

import numpy as np
import pytest

from core.errors import ConfigError
from evals.stats import compare, estimate
from evals.stats.estimate import maj_at_k, pass_at_k


def test_pass_at_k_is_the_share_of_subsets_with_a_right_one() -> None:
    for c, k in product(range(7), range(1, 7)):
        right = [i < c for i in range(6)]
        subsets = list(combinations(right, k))
        assert pass_at_k([right], k)[0] == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-15), (c, k)


def test_pass_at_k_stays_exact_for_many_samples() -> None:
    right = np.arange(960) < 100
    assert pass_at_k([right], 32)[0] == pytest.approx(1 - comb(860, 32) / comb(960, 32), rel=1e-12)


def test_pass_at_one_is_avg_at_k() -> None:
    right = np.random.default_rng(0).random((20, 16)) < 0.3
    assert pass_at_k(right, 1) == pytest.approx(right.mean(1), abs=1e-15)


def test_pass_at_k_refuses_more_samples_than_there_are() -> None:
    for k in (0, 3):
        with pytest.raises(ConfigError, match=f"k = {k}"):
            pass_at_k([[True, False]], k)


def test_maj_at_k() -> None:
    cases: list[tuple[list[str | None], list[int], float]] = [
        (["4", "4", "5"], [1, 1, 0], 1.0),
        (["4", "5", "5"], [1, 0, 0], 0.0),
        (["4", "5"], [1, 0], 1 / 2),  # a tie: the share of tied answers that is right
        (["4", "5", "6"], [1, 0, 0], 1 / 3),
        (["4", "4", "5", "5", "6"], [0, 0, 1, 1, 0], 1 / 2),
        ([None, None, None, "4"], [0, 0, 0, 1], 1.0),  # no answer is no vote
        ([None, None], [0, 0], 0.0),
        (["4", "4", "5"], [1, 0, 0], 1 / 2),  # one answer judged in two ways: its share
    ]
    for answers, right, score in cases:
        assert maj_at_k([answers], [right]).tolist() == [score], answers


def test_examples_in_docstrings() -> None:
    tried = sum(doctest.testmod(module, raise_on_error=True).attempted for module in (compare, estimate))
    assert tried >= 2
