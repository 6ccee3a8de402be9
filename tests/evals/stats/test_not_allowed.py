"""The misleading statistics cannot be written down, or are refused."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evals.stats
from core.errors import CorruptInputError
from evals.stats.estimate import Comparison, Estimate
from evals.stats.responses import Samples

PACKAGE = Path(evals.stats.__file__).parent
GOOD: dict[str, Any] = {"value": 0.5, "se": 0.1, "low": 0.3, "high": 0.7, "level": "problem", "how": "t", "n": 30}
GOOD_PAIR = {("difference" if k == "value" else k): v for k, v in GOOD.items()} | {"p": 0.1, "detectable": 0.3}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"se": 0.0}, "never 0"),
    ({"se": -0.1}, "never 0"),
    ({"se": float("nan")}, "None"),
    ({"value": float("nan"), "low": None, "high": None}, "None"),
    ({"low": 0.5, "high": 0.5}, "point"),
    ({"low": None}, "two ends"),
    ({"high": None}, "two ends"),
    ({"low": 0.6}, "does not hold"),
    ({"value": None}, "needs a value"),
    ({"level": "sample"}, "problem, seed"),
    ({"how": ""}, "how"),
]


def test_an_estimate_refuses_what_means_nothing() -> None:
    Estimate(**GOOD)
    Comparison(**GOOD_PAIR)
    for change, message in REFUSED:
        with pytest.raises(ValueError, match=message):
            Estimate(**GOOD | change)
        renamed = {("difference" if k == "value" else k): v for k, v in change.items()}
        with pytest.raises(ValueError, match=message):
            Comparison(**GOOD_PAIR | renamed)
    with pytest.raises(ValueError, match="p = 2"):
        Comparison(**GOOD_PAIR | {"p": 2.0})


def test_samples_without_problems_or_verdicts_are_refused() -> None:
    for right in (
        np.ones(960, bool),  # 960 samples without their problems
        np.ones((3, 32), bool),  # another number of problems than items
        np.full((2, 4), 0.5),  # partial credit
        np.array([[1, None], [0, 1]], dtype=object),  # an unknown verdict
        np.zeros((2, 0), bool),
    ):
        with pytest.raises(CorruptInputError):
            Samples(("a", "b"), right)
    with pytest.raises(CorruptInputError, match="'a' occurs more than once"):
        Samples(("a", "a"), np.ones((2, 1), bool))


def test_no_function_offers_what_is_not_allowed() -> None:
    """Bootstraps and binomial intervals live in the simulation that shows why not, and nowhere else."""
    for path in sorted(PACKAGE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                assert not any(word in node.name for word in ("bootstrap", "binomial", "percentile")), (
                    f"{path}: {node.name}"
                )
