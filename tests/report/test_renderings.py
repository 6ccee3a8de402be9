"""A table in its forms: the same numbers and marks in each, gaps named, outside text as text, read back as written."""

import csv
import io
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from core.errors import BenchError
from evals.tree import Tree
from report import page, show, tables, view
from report.markdown import arrow
from tests.report import synthetic
from tests.report.conftest import write_files
from tests.report.tables import cells, filled, filling

TABLES = "1234"
EVIL = '<script>alert(1)</script> & 50% of $x_1$ {a} \\input{b} | ~ ^ # é 学 "q"'


def named(table: dict[str, Any], name: str) -> dict[str, Any]:
    """The table with everything that comes from outside called `name`."""
    blocks = [
        block | {"head": name, "baseline": name, "rows": [row | {"label": name, "name": name} for row in block["rows"]]}
        for block in table["blocks"]
    ]
    columns = [column | {"heading": name, "stands_for": name} for column in table["columns"]]
    return table | {"title": name, "heading": name, "blocks": blocks, "columns": columns, "notes": [name]}


@pytest.mark.parametrize("key", TABLES)
def test_every_rendering_has_the_same_numbers_and_marks_in_the_same_order(key: str, embedded: Tree) -> None:
    table = filled(embedded, key)
    shown = [cell for block in table["blocks"] for row in block["rows"] for cell in row["cells"].values()]
    numbers = [cell["text"].replace("−", "-") for cell in shown]
    text, latex = view.markdown(table), view.latex(table)
    for one in (text, latex):
        one = one.replace("$-$", "-").replace("−", "-")
        assert re.findall(r"(?:[>|&] ?)([+-]?\d+\.\d\d)\b(?!\\text)", one) == numbers
    marked = sum(bool(cell["mark"]) for cell in shown)
    assert marked == len(re.findall(r" \(?(?:≈|[↑↓]\??|\?)\)?<br>", text.partition("\n- ")[0])) > 0


def test_a_block_names_its_baseline_its_models_stand_in_and_what_is_not_there(embedded: Tree, scored: Tree) -> None:
    text = view.markdown(filled(embedded, "3"))
    assert text.count("Marks compare with TEPO-w/o. KL.") == 5
    assert text.count("Marks compare with w. GRPO/DAPO (token-level).") == 1
    table = filled(scored, "1")
    assert [block["head"] for block in table["blocks"]] == ["tiny Qwen2, standing for Qwen2.5-7B"]
    assert any("Qwen3-14B" in note for note in table["notes"])
    assert {c.text for c in cells(table) if c.row == "T1.3"} == {"not run"}


def test_outside_text_is_text(embedded: Tree) -> None:
    text = view.markdown(named(filled(embedded, "1"), EVIL))
    assert "<script" not in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 11 for line in lines)
    assert "[U+5B66]" in view.latex(named(filled(embedded, "2"), EVIL)), "what pdflatex cannot set is named"


DOCUMENT = r"""\documentclass{article}
\usepackage[a4paper,margin=15mm]{geometry}
\usepackage{booktabs}
\usepackage{graphicx}
\begin{document}
\input{table}
\end{document}
"""  # the smallest document that holds a fragment


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("case", ["3", "not run", "evil"])
def test_latex_compiles(tmp_path: Path, embedded: Tree, scored: Tree, case: str) -> None:
    table = {"3": filled(embedded, "3"), "not run": filled(scored, "2"), "evil": named(filled(embedded, "2"), EVIL)}
    (tmp_path / "table.tex").write_text(view.latex(table[case]), encoding="utf-8")
    (tmp_path / "document.tex").write_text(DOCUMENT, encoding="utf-8")
    line = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "document.tex"]
    for _ in range(2):  # the second time the reference to the table is known
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
        assert done.returncode == 0, done.stdout[-3000:]
    wrong = ("undefined references", "Overfull", "Missing character") if case != "evil" else ()
    assert not [word for word in wrong if word in done.stdout]


@pytest.mark.parametrize(
    ("p", "difference", "half", "mark"),
    [
        (0.2, 0.1, 0.11, "≈"),
        (0.2, 0.1, 0.26, "?"),  # an interval of more than 50 points holds nearly everything
        (0.05, 0.1, 0.09, "↑?"),  # it excludes 0 before the correction, and not after
        (0.049, 0.1, 0.09, "↑"),
        (0.0, -0.1, 0.11, "≈"),  # p and interval are of different tests: the mark is the interval's
        (None, 0.1, 0.09, "?"),
    ],
)
def test_the_mark_follows_from_the_interval_and_the_corrected_p(
    p: float | None, difference: float, half: float, mark: str
) -> None:
    assert arrow(difference, difference - half, difference + half, p) == mark
    assert arrow(difference, None, None, p) == "?"


# The tidy file.


def test_what_is_written_is_what_is_read_and_leads_to_the_runs(
    embedded: Tree, scored_twice: Tree, tmp_path: Path
) -> None:
    """Every number with all its digits, every gap as a gap."""
    tree = Tree(shutil.copytree(embedded.root, tmp_path / "embedded"))
    for key in TABLES:
        tables.write(tree, key)
        assert tables.read(tree, key) == filling(embedded, key), key
    lines = csv.DictReader(io.StringIO(tables.tidy_csv(filling(scored_twice, "1"))))
    line = next(x for x in lines if (x["row"], x["column"]) == ("T1.8", "amc"))
    assert line["runs"] == "tiny_qwen2/tepo/seed1/step12 tiny_qwen2/tepo/seed2/step12"


def test_a_tidy_file_of_other_rows_columns_or_words_is_refused(scored_copy: Tree) -> None:
    tables.write(scored_copy, "1")
    path = scored_copy.layout.tables / "table1.tidy.csv"
    whole = path.read_text()
    for old, new, words in (
        ("T1.7,", "T1.77,", r"not filled from tables\.yaml .*; run: python -m report\.tables --results"),
        ("measured", "mesured", r"table1\.tidy\.csv: a cell cannot be read: 'mesured'"),
        (whole[len(whole) // 2 :], "", "table1"),  # cut in the middle of a line
    ):
        assert old in whole
        path.write_text(whole.replace(old, new))
        with pytest.raises(BenchError, match=words):
            tables.read(Tree(scored_copy.root), "1")


# The terminal and the page.


def test_a_users_tree_begins_with_all_runs_and_the_papers_with_its_tables(reported: Tree, tmp_path: Path) -> None:
    methods = {"grpo": ("GRPO/DAPO", 0.62), "gspo_token": ("My method", 0.70)}
    model = {"key": "my_model", "title": "My model", "stands_for": None}
    tree = Tree(synthetic.write_tree(tmp_path / "mine", seeds=(1, 2), scale="mine", methods=methods, model=model))
    write_files(tree)
    own, papers = page.build(tree), page.build(reported)
    first = [re.findall('<section id="(table[^"]+)"', text)[0] for text in (own, papers)]
    assert first == ["tableruns", "table1"]
    assert "My method" in show.text(tables.shown(tree, "runs"))


def test_the_papers_number_stands_next_to_ours_only_at_the_papers_scale(embedded: Tree, paper: Tree) -> None:
    for rendering in (view.markdown, view.latex):
        assert not re.search(r"paper \d", rendering(filled(embedded, "3")))
        assert "paper 77.40" in rendering(filled(paper, "3"))
        assert "paper 2.77" not in rendering(filled(paper, "2")), "an average that counts absent benchmarks as wrong"
