"""The page is made of files and computes nothing. A file that is missing or cut off is named with its command."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import BenchError
from core.files import write_json
from core.results_tree import Tree
from report import build, show
from report.provenance import manifest
from tests.core.test_digests import flip
from tests.report.conftest import ROOT
from tests.report.finished import cut

pytestmark = pytest.mark.slow

# What computes tables, figures, learning curves, claims and the audit; and the packages that only computing needs.
COMPUTES = (
    "evals.grade", "evals.learning_curves", "evals.score", "evals.stats", "methods.catalog", "methods.parts",
    "pandas", "paper.arithmetic", "paper.audit", "paper.claims.claims",
    "paper.claims.contrast", "paper.claims.from_print", "paper.claims.from_runs", "paper.claims.ledger",
    "paper.claims.tests", "report.convergence", "report.figures.draw",
    "report.figures.fill", "report.tables.fill", "torch",
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


READ = {
    "tables/table1.tidy.csv": "python -m report.table --results {root} --table 1",
    "figures/figure2.csv": "python -m report.figure --results {root} --figure figure2",
    "figures/figure2.json": "python -m report.figure --results {root} --figure figure2",
    "figures/figure2.svg": "python -m report.figure --results {root} --figure figure2",
    "figures/convergence.csv": "python -m report.convergence --results {root}",
    "figures/convergence_runs.csv": "python -m report.convergence --results {root}",
    "figures/convergence_curves.csv": "python -m report.convergence --results {root}",
    "figures/convergence_bands.csv": "python -m report.convergence --results {root}",
    "claims.csv": "python -m paper.claims --results {root}",
}


OTHERS = {  # files that no view of the page shows -> the file beside them that one does
    "tables/table1.csv": "tables/table1.tidy.csv",
    "tables/table1.tex": "tables/table1.tidy.csv",
    "figures/figure2.png": "figures/figure2.csv",
    "figures/figure2.pdf": "figures/figure2.csv",
    "figures/convergence_methods.csv": "figures/convergence.csv",
}


def flip_a_bit(path: Path) -> None:
    flip(path, 0.5)


def test_a_missing_or_damaged_file_is_one_line_with_the_command_that_writes_it(copy: Tree) -> None:
    """Also of files that no view shows: without this, a cut table1.csv would be noticed by whoever publishes it."""
    damages = [(name, name, damage) for name in READ for damage in (Path.unlink, cut, flip_a_bit)]
    damages += [(name, OTHERS[name], damage) for name in OTHERS for damage in (Path.unlink, cut)]
    damages.append(("scores.csv", None, flip_a_bit))
    wrong = []
    for name, written_with, damage in damages:
        path = copy.root / name
        before = path.read_bytes()
        damage(path)
        command = READ[written_with].format(root=copy.root) if written_with else ""
        try:
            build.build(copy.root)
        except BenchError as error:
            said = str(error)
            if not said.startswith(str(path)) or command not in said or "\n" in said:
                wrong.append(f"{name}: {said}")
        else:
            wrong.append(f"{name}: {damage.__name__} was not noticed")
        path.write_bytes(before)
    assert wrong == []


@pytest.mark.parametrize("name", ["tables/table1", "figures/figure2", "figures/convergence", "claims"])
def test_a_damaged_list_of_hashes_is_named(name: str, copy: Tree) -> None:
    sums = copy.layout.sums(name)
    cut(sums)
    with pytest.raises(BenchError, match=re.escape(str(sums))):
        build.build(copy.root)
    sums.unlink()
    with pytest.raises(BenchError, match=re.escape(f"{sums}: hashes are missing")):
        build.build(copy.root)


def test_show_holds_the_table_that_it_prints(copy: Tree, command: Callable[..., tuple[int, str, str]]) -> None:
    cut(copy.layout.tables / "table1.csv")
    code, out, err = command(show.main, "table1", "--results", copy.root)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "table1.csv: damaged" in err


def test_the_companion_files_are_held_by_verify(copy: Tree, command: Callable[..., tuple[int, str, str]]) -> None:
    """Also where the manifest was written after the damage: it would list what it found."""
    assert command(build.main, "--results", copy.root)[0] == 0
    page = next(copy.root.glob("report.data/samples/**/*.js"))
    cut(page)
    assert [str(page) in line for line in manifest.broken_links(copy) if "report.data" in line] == [True]
    code, out, _ = command(manifest.main, "--results", copy.root)
    assert (code, (copy.root / manifest.NAME).exists()) == (1, False)
    assert f"{page}: damaged" in out


def test_a_tree_without_hashes_goes_by_its_manifest(copy: Tree) -> None:
    """The kept references, and trees of older versions."""
    write_json(copy.root / manifest.NAME, manifest.build(copy))
    for sums in copy.root.rglob("*.sha256"):
        sums.unlink()
    build.build(copy.root)
    cut(copy.root / "claims.csv")
    with pytest.raises(BenchError, match=r"claims\.csv: damaged: .*manifest\.json; run: python -m paper\.claims"):
        build.build(copy.root)
