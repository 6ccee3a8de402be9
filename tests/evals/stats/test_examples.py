"""The examples in the docstrings of evals.stats run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import evals.stats

MODULES = [module.name for module in pkgutil.iter_modules(evals.stats.__path__, "evals.stats.")]
WITH_EXAMPLES = {"compare", "estimate"}


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert failed == 0
    assert tried > 0 or name.rsplit(".", 1)[1] not in WITH_EXAMPLES
