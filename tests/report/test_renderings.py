"""Five renderings of one filled table say the same; each is right for what reads it."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.code_hashes import closure
from core.results_tree import Tree
from report.tables import render
from report.tables.tidy import Cell, Table
from tests.report.tables import filled as fill

TABLES = ("1", "2", "3", "4")
EVIL = '<script>alert(1)</script> & 50% of $x_1$ {a} \\input{b} | ~ ^ # é 学 "q"'


def named(filled: Table, name: str) -> Table:
    """The table with everything that comes from outside called `name`."""

    def called(cell: Cell) -> Cell:
        return cell.model_copy(update={"label": name})

    blocks = {id(row.block): row.block.model_copy(update={"title": name}) for row in filled.rows}
    rows = [
        replace(
            row,
            block=blocks[id(row.block)],
            model_title=name,
            cells={slot: called(cell) for slot, cell in row.cells.items()},
        )
        for row in filled.rows
    ]
    return replace(
        filled,
        declared=filled.declared.model_copy(update={"title": name}),
        columns=tuple(column._replace(heading=name, stands_for=name, title=name) for column in filled.columns),
        rows=tuple(rows),
        notes=(name,),
    )


def words(filled: Table) -> list[dict[str, Any]]:
    """Every cell in words, in the order of the table."""
    return [cell for block in render.context(filled, None)["blocks"] for row in block["rows"] for cell in row["cells"]]


def numbers(filled: Table) -> list[str]:
    return [cell["text"].replace("−", "-") for cell in words(filled)]


def csv_rows(filled: Table) -> list[list[str]]:
    """Of the CSV, without its heading and the line of the A/A arm."""
    return list(csv.reader(io.StringIO(render.csv_table(filled))))[1:-1]


def test_every_rendering_has_the_same_numbers_in_the_same_order(embedded: Tree, subtests: pytest.Subtests) -> None:
    for key in TABLES:
        with subtests.test(key):
            filled = fill(embedded, key)
            plain = [text for line in csv_rows(filled) for text in line[2:]]
            assert [number.lstrip("+") for number in numbers(filled)] == plain
            for text in (render.markdown(filled), render.latex(filled)):
                text = text.replace("$-$", "-").replace("−", "-")
                found = re.findall(r"(?:\*\*|\\textbf\{|[>|&] ?)([+-]?\d+\.\d\d)\b", text)
                assert found == numbers(filled)


def test_best_and_mark_stand_in_every_rendering(embedded: Tree, subtests: pytest.Subtests) -> None:
    for key in TABLES:
        with subtests.test(key):
            filled = fill(embedded, key)
            # The highest of each row: of invented scores few are outside noise.
            vars(filled)["best"] = {
                (row.id, max(row.cells.values(), key=lambda cell: cell.value or 0.0).column)
                for row in filled.rows
                if row.measured and row.declared.delta is None
            }
            best, marked = (sum(bool(cell[what]) for cell in words(filled)) for what in ("best", "mark"))
            assert best > 0
            assert marked > 0
            body = render.markdown(filled).split("Percent of responses")[0]
            assert sum(len(re.findall(r"\*\*\d", line)) for line in body.splitlines() if line.startswith("|")) == best
            assert len(re.findall(r" \(?(?:≈|[↑↓]\??|\?)\)?<br>", body)) == marked
            assert render.latex(filled).count(r"\textbf{") == best


def test_the_papers_number_stands_beside_ours_only_at_the_papers_scale(embedded: Tree, paper: Tree) -> None:
    for rendering in (render.markdown, render.latex):
        assert not re.search(r"paper \d", rendering(fill(embedded, "3")))
        assert "paper 77.40" in rendering(fill(paper, "3"))
        assert "paper 2.77" not in rendering(fill(paper, "2")), "an average that counts absent benchmarks as wrong"


# Markdown.


def test_markdown_has_one_line_for_each_mark_that_occurs_and_links_no_run(embedded: Tree) -> None:
    for key in TABLES:
        body, _, notes = render.markdown(fill(embedded, key)).partition("\n- ")
        assert "](" not in body
        assert all(line.startswith("- ") for line in notes.splitlines()[1:])
        for sign in ("≈", "↑? ↓?", "bold"):
            cells = re.findall(
                r"(?:↑|↓)\?<br>" if "?" in sign else f" {sign}<br>" if sign != "bold" else r"\*\*\d", body
            )
            assert bool(cells) == (f"- {sign}:" in f"- {notes}".replace("Bold", "bold")), (key, sign)


def test_markdown_names_the_number_of_seeds_and_the_baseline(embedded: Tree) -> None:
    filled = fill(embedded, "3")
    text = render.markdown(filled)
    trained = [row for row in filled.rows if row.method not in (None, "base")]
    assert len(trained) > 20
    for count in {len(row.seeds) for row in trained}:
        named = sum(len(row.seeds) == count for row in trained)
        assert text.count(f"<br>{count} seeds |") >= named
    assert text.count("Marks compare with TEPO-w/o. KL.") == 5
    assert text.count("Marks compare with w. GRPO/DAPO (token-level).") == 1


def test_markdown_keeps_outside_text_as_text(embedded: Tree) -> None:
    text = render.markdown(named(fill(embedded, "1"), EVIL))
    assert "<script" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 11 for line in rows)


# LaTeX.


@pytest.fixture(scope="module")
def pdflatex() -> str:
    found = shutil.which("pdflatex")
    if found is None:
        pytest.skip("pdflatex is not installed")
    return found


DOCUMENT = r"""\documentclass{article}
\usepackage[a4paper,margin=15mm]{geometry}
\usepackage{booktabs}
\usepackage{graphicx}
\begin{document}
\input{table}
\end{document}
"""  # the smallest document that holds a fragment


def compile_latex(pdflatex: str, folder: Path, text: str) -> str:
    """The log of a document that takes `text` in; fails when it does not compile."""
    (folder / "table.tex").write_text(text, encoding="utf-8")
    (folder / "document.tex").write_text(DOCUMENT, encoding="utf-8")
    for _ in range(2):  # the second time the reference to the table is known
        done = subprocess.run(
            [pdflatex, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "document.tex"],
            cwd=folder, capture_output=True, text=True, errors="replace", timeout=1800, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:]
    assert (folder / "document.pdf").stat().st_size > 5000
    return done.stdout


def test_latex_compiles(pdflatex: str, tmp_path: Path, embedded: Tree, scored: Tree, subtests: pytest.Subtests) -> None:
    for key in TABLES:
        for tree in (embedded, scored):
            with subtests.test(f"{tree.scale} {key}"):
                log = compile_latex(pdflatex, tmp_path, render.latex(fill(tree, key)))
                assert "undefined references" not in log
                assert "Overfull" not in log
                assert "Missing character" not in log


def test_latex_takes_any_text_as_text(embedded: Tree, pdflatex: str, tmp_path: Path) -> None:
    text = render.latex(named(fill(embedded, "2"), EVIL))
    assert "[U+5B66]" in text, "a character that pdflatex cannot set is named"
    compile_latex(pdflatex, tmp_path, text)


# HTML.


@pytest.mark.parametrize("module", ["report.tables.render", "report.show"])
def test_what_shows_a_table_imports_nothing_that_computes(module: str) -> None:
    rooms = {Path(file).parts[0] for file in closure(module)}
    assert rooms == {"core", "report"}
    assert "report/tables/fill.py" not in closure(module)
