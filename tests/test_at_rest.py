"""Faults at rest in an invented tree that is finished: none is silent, and the harness would see one that is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from core import digests
from core.files import read_json, write_json
from core.results_tree import Tree
from report import build, verify
from report.provenance import manifest
from tests import at_rest
from tests.report import synthetic
from tests.report.conftest import write_files
from tests.report.finished import finish

pytestmark = pytest.mark.slow


@pytest.fixture
def checkout(tmp_path: Path) -> at_rest.Checkout:
    tree = finish(Tree(synthetic.write_tree(tmp_path / "results" / "quick")))
    for pattern in ("matrix.json", "runs/*/*/*/run.json", "samples/**/samples.json", "grades/**/grades.json"):
        for path in tree.root.glob(pattern):
            write_json(path, digests.with_own(read_json(path)))
    write_files(tree)
    build.main(["--results", str(tree.root)])
    write_json(tree.root / manifest.NAME, manifest.build(Tree(tree.root)))
    found = at_rest.Checkout(tmp_path, "quick", random.Random(5))
    found.settle()
    return found


def test_no_fault_is_silent(checkout: at_rest.Checkout) -> None:
    found = list(at_rest.faults(checkout, 36))
    assert [fault for fault in found if fault.outcome in at_rest.BAD] == []
    assert sum(fault.outcome == "named" for fault in found) >= 30


def test_a_command_that_takes_what_it_gets_is_found(
    checkout: at_rest.Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "main", lambda: 0)
    monkeypatch.setattr(Tree, "check_written", lambda *_: None)
    found = {fault.outcome for fault in at_rest.faults(checkout, 12)}
    assert "silent" in found
