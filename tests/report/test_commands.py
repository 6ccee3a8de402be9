"""The four commands as typed: what they write, what they print, one line when something is wrong, light to start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from report import build, figure, show, table
from report.results import Tree

ROOT = Path(__file__).resolve().parents[2]
Command = Callable[..., tuple[int, str, str]]


def test_table_writes_three_files_and_prints_their_paths(copy: Tree, command: Command) -> None:
    shown = {path.name: path.read_bytes() for path in copy.layout.tables.iterdir()}
    for path in copy.layout.tables.iterdir():
        path.unlink()
    code, out, err = command(table.main, "--results", copy.root, "--table", 1)
    assert (code, err) == (0, "")
    assert {path.name: path.read_bytes() for path in copy.layout.tables.iterdir()} == shown
    assert set(shown) == {"table1.csv", "table1.md", "table1.tidy.csv"}
    assert all(str(copy.layout.tables / name) in out for name in shown)


def test_figure_writes_three_files(copy: Tree, command: Command) -> None:
    for path in copy.layout.figures.iterdir():
        path.unlink()
    code, _, err = command(figure.main, "--results", copy.root, "--figure", "figure2")
    assert (code, err) == (0, "")
    assert {path.name for path in copy.layout.figures.iterdir()} == {"figure2.csv", "figure2.png", "figure2.svg"}


def test_build_writes_the_page(copy: Tree, command: Command) -> None:
    copy.layout.report.unlink()
    code, out, _ = command(build.main, "--results", copy.root)
    assert code == 0
    assert copy.layout.report.read_text().startswith("<!doctype html>")
    assert str(copy.layout.report) in out


def test_show_prints_values_intervals_and_where_the_report_lies(copy: Tree, command: Command) -> None:
    code, out, _ = command(show.main, "table1", "--results", copy.root)
    assert code == 0
    assert out.startswith("Quick scale: this shows that the thing runs, not who wins.")
    value = next(
        line for line in (copy.layout.tables / "table1.csv").read_text().splitlines() if line.startswith("T1.2,")
    )
    printed = next(line for line in out.splitlines() if line.startswith("w. GRPO/DAPO"))
    assert [cell.rstrip("*") for cell in printed.split()[2:]] == value.split(",")[2:]
    assert "not run at this scale: w. CLIP-Cov, w. KL-Cov" in out
    assert str(copy.layout.report) in out
    assert max(len(line) for line in out.splitlines() if not line.startswith("report:")) <= 110


WRONG = {
    "unknown table": (table.main, ("--table", "9"), "tables: unknown value '9'; allowed: 1"),
    "unknown figure": (figure.main, ("--figure", "figur2"), "nearest: figure2"),
    "unknown thing to show": (show.main, ("tabel1",), "allowed: table1; nearest: table1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistyped_name_is_one_line_and_exit_code_2(case: str, copy: Tree, command: Command) -> None:
    main, arguments, words = WRONG[case]
    code, _, err = command(main, *arguments, "--results", copy.root)
    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize("name", ["table", "figure", "build", "show"])
def test_help_is_quick_because_nothing_heavy_is_imported(name: str) -> None:
    heavy = ("numpy", "pandas", "matplotlib", "torch", "jinja2", "pyarrow", "scipy")
    code = f"import sys, report.{name}; print(*(m for m in {heavy} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
