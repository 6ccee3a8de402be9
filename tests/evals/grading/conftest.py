"""One grader for all tests here: its two workers start once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.provenance import ROOT
from evals.grading.grader import Grader

SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="session")
def grader() -> Iterator[Grader]:
    with Grader() as made:
        yield made


@pytest.fixture(scope="session")
def shared() -> Path:
    """Private test data; the tests that need them skip without."""
    if not SHARED.is_dir():
        pytest.skip(f"no private test data at {SHARED}")
    return SHARED


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
