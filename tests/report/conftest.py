"""Invented results trees: one as after the quick run, one with two seeds; complete with tables and page."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from core.files import to_csv
from core.layout import Run
from core.provenance import ROOT
from evals.tree import Tree
from paper import claims
from paper.verdicts import COLUMNS
from report import convergence, page, tables
from report import figures as figure_spec
from report.rows import offered
from tests.report import synthetic
from tests.report.finished import finish

EMBEDDED, READINGS, PAPER = (ROOT / "config" / f"{name}.yaml" for name in ("embedded", "readings", "paper"))
Command = Callable[..., tuple[int, str, str]]
COLLAPSED = Run("tiny_qwen2", "tepo_kl_all+beta=1", 2)


def make(root: Path) -> Tree:
    """Everything the commands write of two seeds, by the functions that the commands call."""
    tree = Tree(synthetic.write_tree(root, seeds=(1, 2)))
    write_files(tree)
    tree.layout.report.write_text(page.build(tree), encoding="utf-8")
    return tree


def write_files(tree: Tree) -> None:
    """The files that the page reads, from scores and runs."""
    for key in offered():
        tables.write(tree, key)
    for one in figure_spec.offered(tree):
        figure_spec.write(one, tree)
    convergence.write(tree)
    rows = [*claims.of_paper(), *claims.of_tree(tree)]
    (tree.root / "claims.csv").write_text(to_csv(COLUMNS, rows), encoding="utf-8")


@pytest.fixture(scope="session")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """One seed: scores, grades and run records, with inputs, checkpoints and hashes that hold; nothing rendered."""
    return finish(Tree(synthetic.write_tree(tmp_path_factory.mktemp("scored") / "results/quick")))


@pytest.fixture(scope="session")
def scored_twice(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The same with two seeds."""
    return finish(Tree(synthetic.write_tree(tmp_path_factory.mktemp("twice") / "results/quick", seeds=(1, 2))))


@pytest.fixture
def scored_copy(scored: Tree, tmp_path: Path) -> Tree:
    """A tree of one's own to break, before anything was rendered."""
    return Tree(shutil.copytree(scored.root, tmp_path / "quick"))


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Invented scores for everything that config/embedded.yaml plans; one run is said to have collapsed."""
    root = tmp_path_factory.mktemp("planned") / "embedded"
    return synthetic.write_planned(root, EMBEDDED, collapsed={COLLAPSED: 6})


@pytest.fixture(scope="session")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The same for config/paper.yaml."""
    return synthetic.write_planned(tmp_path_factory.mktemp("planned") / "paper", EMBEDDED, PAPER)


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return make(tmp_path_factory.mktemp("reported") / "quick")


@pytest.fixture
def copy(reported: Tree, tmp_path: Path) -> Tree:
    """A tree of one's own to break."""
    return Tree(shutil.copytree(reported.root, tmp_path / "quick"))


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Call a command's `main` as the shell would: exit code, standard output, standard error."""
    from core import errors

    def call(main: Callable[[], int | None], *arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["command", *map(str, arguments)])
        monkeypatch.delenv("COLUMNS", raising=False)  # pytest may set it: nothing is wrapped outside of a terminal
        with pytest.raises(SystemExit) as ended:
            errors.run(main)
        out, err = capsys.readouterr()
        code = ended.value.code
        return (code if isinstance(code, int) else 1), out, err

    return call
