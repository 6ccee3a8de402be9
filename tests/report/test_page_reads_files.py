"""The page is made of files: it computes nothing, and a file that is missing or cut off is named with its command."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from records.errors import BenchError
from records.results_tree import Tree
from report import build
from tests.report.conftest import ROOT

# What computes tables, figures, learning curves, claims and the audit; and the packages that only computing needs.
COMPUTES = (
    "evals.grade", "evals.learning_curves", "evals.score", "evals.stats", "methods.catalog", "methods.parts",
    "pandas", "paper.arithmetic", "paper.audit", "paper.chance", "paper.claims.claims",
    "paper.claims.contrast", "paper.claims.from_print", "paper.claims.from_runs", "paper.claims.ledger",
    "paper.claims.lemmas", "paper.claims.tests", "paper.sentences", "report.convergence", "report.figures.draw",
    "report.figures.fill", "report.tables.fill", "scipy", "torch",
)  # fmt: skip
BUILD = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in {refused}):
            raise ImportError(name + " must not be imported to build the page")

sys.meta_path.insert(0, Refuse())
from report import build
build.main(["--results", sys.argv[1]])
"""


def test_nothing_that_computes_is_imported_to_build_the_page(copy: Tree) -> None:
    expected = copy.layout.report.read_text(encoding="utf-8")
    copy.layout.report.unlink()
    command = [sys.executable, "-c", BUILD.format(refused=COMPUTES), str(copy.root)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert copy.layout.report.read_text(encoding="utf-8") == expected


def cut(path: Path) -> None:
    """As a writer leaves it that was stopped: the second half is not there."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2].rstrip(b"\n"))


READ = {
    "tables/table1.tidy.csv": "python -m report.table --results {root} --table 1",
    "figures/figure2.csv": "python -m report.figure --results {root} --figure figure2",
    "figures/figure2.seeds.csv": "python -m report.figure --results {root} --figure figure2",
    "figures/figure2.json": "python -m report.figure --results {root} --figure figure2",
    "figures/figure2.svg": "python -m report.figure --results {root} --figure figure2",
    "figures/convergence.csv": "python -m report.convergence --results {root}",
    "figures/convergence_runs.csv": "python -m report.convergence --results {root}",
    "figures/convergence_curves.csv": "python -m report.convergence --results {root}",
    "figures/convergence_readings.csv": "python -m report.convergence --results {root}",
    "claims.csv": "python -m paper.claims --results {root}",
    "paper/audit.md": "python -m paper.audit --out {root}/paper/audit.csv --page {root}/paper/audit.md",
}


@pytest.mark.parametrize("damage", [Path.unlink, cut])
@pytest.mark.parametrize("name", READ)
def test_a_missing_or_cut_file_is_one_line_with_the_command_that_writes_it(
    name: str, damage: Callable[[Path], None], copy: Tree
) -> None:
    damage(copy.root / name)
    with pytest.raises(BenchError) as error:
        build.build(copy.root)
    assert str(error.value).startswith(str(copy.root / name))
    assert READ[name].format(root=copy.root) in str(error.value)
    assert "\n" not in str(error.value)


def test_other_renderings_are_not_read(copy: Tree) -> None:
    expected = build.build(copy.root)
    for path in [*copy.layout.tables.iterdir(), *copy.layout.figures.iterdir()]:
        if not re.search(r"\.tidy\.csv$|figures/.*\.(csv|json|svg)$", path.as_posix()):
            path.unlink()
    assert build.build(copy.root) == expected
