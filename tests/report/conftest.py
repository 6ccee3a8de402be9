"""Invented results trees: one as after the quick run, one with two seeds; complete with tables and page."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from report import build, cells, curves, figure, figure_spec, render, spec
from report.results import Tree
from tests.report import synthetic


def make(root: Path, seeds: tuple[int, ...]) -> Tree:
    """Everything the commands write, by the functions that the commands call."""
    tree = Tree(synthetic.write_tree(root, seeds=seeds))
    render.write(cells.fill(spec.table("1"), tree), tree.layout)
    for key in figure_spec.figure_keys():
        figure.write(curves.draw_data(figure_spec.figure(key), tree), tree.layout)
    tree.layout.report.write_text(build.build(root), encoding="utf-8")
    return tree


@pytest.fixture(scope="session")
def one_seed(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return make(tmp_path_factory.mktemp("one") / "quick", (1,))


@pytest.fixture(scope="session")
def two_seeds(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return make(tmp_path_factory.mktemp("two") / "quick", (1, 2))


@pytest.fixture
def copy(one_seed: Tree, tmp_path: Path) -> Tree:
    """A tree of one's own to break."""
    shutil.copytree(one_seed.root, tmp_path / "quick")
    return Tree(tmp_path / "quick")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Call a command's `main` as the shell would: exit code, standard output, standard error."""
    from records import cli

    def call(main: Callable[[], int | None], *arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["command", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.run(main)
        out, err = capsys.readouterr()
        code = ended.value.code
        return (code if isinstance(code, int) else 1), out, err

    return call


@pytest.fixture
def spec_file(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "tables.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write
