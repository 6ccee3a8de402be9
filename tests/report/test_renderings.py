"""Cells and their five renderings: the right score in the right place, gaps named, the same in each rendering."""

import csv
import io
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.code_hashes import closure
from core.errors import CorruptInputError
from core.provenance import ROOT
from core.results_tree import Tree
from core.scores import read_scores
from evals import score
from evals.stats import compare
from evals.stats.estimate import Comparison
from report import convergence, figure, show, table
from report import figures as figure_spec
from report.tables import fill as filling
from report.tables import render, spec
from report.tables.render import markdown
from report.tables.tidy import Row, Table, read_table, tidy_csv, view
from tests.report import synthetic
from tests.report.finished import rehash, rewrite
from tests.report.finished import replace as replace_text
from tests.report.tables import cell, changed
from tests.report.tables import filled as fill

TABLES = ("1", "2", "3", "4")
EVIL = '<script>alert(1)</script> & 50% of $x_1$ {a} \\input{b} | ~ ^ # é 学 "q"'


def named(filled: Table, name: str) -> Table:
    """The table with everything that comes from outside called `name`."""

    blocks = {id(row.block): row.block.model_copy(update={"title": name}) for row in filled.rows}
    rows = [replace(row, block=blocks[id(row.block)], model_title=name) for row in filled.rows]
    return replace(
        with_cells(filled, {row.id: {"label": name} for row in rows}, rows),
        declared=filled.declared.model_copy(update={"title": name}),
        columns=tuple(column._replace(heading=name, stands_for=name) for column in filled.columns),
        notes=(name,),
    )


def with_cells(filled: Table, changes: Mapping[str, Mapping[str, Any]], rows: Iterable[Row] | None = None) -> Table:
    """The table with some of its rows, all cells of them changed. changes: by the id of the row."""
    kept = [row for row in rows or filled.rows if row.id in changes]
    assert len(kept) == len(changes)
    return changed(replace(filled, rows=tuple(kept)), lambda one: changes[one.row])


@pytest.mark.parametrize("key", TABLES)
def test_every_rendering_has_the_same_numbers_and_marks_in_the_same_order(key: str, embedded: Tree) -> None:
    filled = replace(fill(embedded, key))
    # The highest of each row: of invented scores few are outside noise.
    vars(filled)["best"] = {
        (row.id, max(row.cells.values(), key=lambda cell: cell.value or 0.0).column)
        for row in filled.rows
        if row.measured and row.declared.delta is None
    }
    # Of the CSV without its heading and the line of the A/A arm.
    lines = list(csv.reader(io.StringIO(render.csv_table(filled))))[1:-1]
    cells = [cell for block in render.context(filled, None)["blocks"] for row in block["rows"] for cell in row["cells"]]
    numbers = [cell["text"].replace("−", "-") for cell in cells]
    assert [number.lstrip("+") for number in numbers] == [text for line in lines for text in line[2:]]
    markdown, latex = render.markdown(filled), render.latex(filled)
    for text in (markdown, latex):
        text = text.replace("$-$", "-").replace("−", "-")
        assert re.findall(r"(?:\*\*|\\textbf\{|[>|&] ?)([+-]?\d+\.\d\d)\b(?!\\text)", text) == numbers
    best, marked = (sum(bool(cell[what]) for cell in cells) for what in ("best", "mark"))
    assert best > 0
    assert marked > 0
    body = markdown.split("Percent of responses")[0]
    assert sum(len(re.findall(r"\*\*\d", line)) for line in body.splitlines() if line.startswith("|")) == best
    assert len(re.findall(r" \(?(?:≈|[↑↓]\??|\?)\)?<br>", body)) == marked
    assert latex.count(r"\textbf{") == best


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


def test_what_shows_a_table_imports_nothing_that_computes() -> None:
    files = closure("report.show")
    assert "report/tables/render.py" in files
    computing = set(files) - set(closure("paper.printed"))  # the paper's numbers are read, not computed
    assert {Path(file).parts[0] for file in computing} <= {"core", "report"}
    assert "report/tables/fill.py" not in files


@pytest.mark.parametrize(("rollouts", "ends"), [(2, False), (12, True)])
def test_what_was_learnt_names_no_end_of_runs_too_short_for_one(rollouts: int, ends: bool, tmp_path: Path) -> None:
    tree = Tree(synthetic.write_tree(tmp_path / "quick", rollouts=rollouts))
    convergence.write(tree)
    (line,) = show.learnt(tree, fill(tree, "1"))
    assert re.search(r"\(area\), percent: .* \d", line)
    assert ("at the end" in line) == ends


def test_one_seed_prints_the_score_and_its_interval_over_problems(scored: Tree) -> None:
    table = read_scores(scored.layout.scores).set_index(["method", "benchmark"])
    for row, method in {"T1.1": "base", "T1.2": "grpo", "T1.7": "gspo", "T1.8": "tepo", "T3.1": "tepo_nokl"}.items():
        for slot, benchmark in {"aime24": "syn_mix3", "minerva": "syn_seq1", "avg_pooled": "avg_pooled"}.items():
            found = cell(fill(scored, "1"), row, slot)
            assert found.value == table.loc[(method, benchmark), "score"]
            assert (found.low, found.high) == tuple(table.loc[(method, benchmark), ["low", "high"]])
            assert found.level == "problem"


def test_several_seeds_print_their_mean_and_the_interval_over_seeds(scored_twice: Tree) -> None:
    table = read_scores(scored_twice.layout.scores)
    chosen = table[(table.method == "tepo") & (table.benchmark == "avg_macro")]
    expected = compare.over_seeds(dict(zip(chosen.seed, chosen.score, strict=True)))
    found = cell(fill(scored_twice, "1"), "T1.8", "avg_macro")
    assert found.value == pytest.approx(chosen.score.mean(), abs=1e-15)
    assert (found.low, found.high) == (expected.low, expected.high)
    assert (found.level, found.n, found.seeds) == ("seed", 2, (1, 2))
    base = cell(fill(scored_twice, "1"), "T1.1", "avg_macro")
    assert (base.level, base.seeds) == ("problem", ()), "the base model has no training seed"
    assert base.runs == ("tiny_qwen2/base/seed0/step0",)


def test_grades_that_contradict_the_scores_are_an_error(scored_copy: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Comparison(
        difference=0.9, se=0.01, low=0.8, high=0.95, p=0.5, detectable=0.1, level="problem", how="paired", n=20
    )
    keys = [b["key"] for b in scored_copy.benchmarks]
    averages = ["avg_pooled", "avg_macro"]
    monkeypatch.setattr(score, "paired_of_tree", lambda *_: dict.fromkeys([*keys, *averages], wrong))
    with pytest.raises(CorruptInputError, match=r"scores\.csv: syn_mix3: .*score again"):
        fill(scored_copy, "1")


def test_without_grades_the_difference_has_no_interval_and_says_so(scored_copy: Tree) -> None:
    shutil.rmtree(scored_copy.root / "grades")
    found = cell(fill(scored_copy, "1"), "T1.9", "aime24")
    assert (found.low, found.high) == (None, None)
    assert "no grades" in found.how
    assert "[no interval]" in markdown(fill(scored_copy, "1"))


def test_rows_outside_the_matrix_say_not_run_and_nothing_says_zero(scored: Tree) -> None:
    lines = list(csv.DictReader(io.StringIO(render.csv_table(fill(scored, "1")))))
    absent = next(line for line in lines if line["row"] == "T1.3")
    assert set(list(absent.values())[2:]) == {"not run"}
    tidy = list(csv.DictReader(io.StringIO(tidy_csv(fill(scored, "1").cells))))
    assert {line["value"] for line in tidy if line["state"] == "not run"} == {""}


def test_a_model_without_stand_in_leaves_its_block_out_with_a_note(scored: Tree) -> None:
    filled = fill(scored, "1")
    assert [rows[0].stands_for for rows in filled.blocks] == ["Qwen2.5-7B"]
    assert any("Qwen3-14B" in note for note in filled.notes)


def test_a_seed_without_scores_is_listed_and_the_mean_says_how_many(scored_twice: Tree, tmp_path: Path) -> None:
    tree = Tree(shutil.copytree(scored_twice.root, tmp_path / "quick"))
    rewrite(tree.layout.scores, lambda row: None if (row["method"], row["seed"]) == ("tepo", "2") else row)
    rehash(tree.root)
    filled = fill(tree, "1")
    assert cell(filled, "T1.8", "amc").seeds == (1,)
    assert cell(filled, "T1.8", "amc").level == "problem"
    assert any("tepo/seed2" in note for note in filled.notes)


def test_bold_is_the_best_printed_number_outside_noise_and_none_of_equal_ones(scored: Tree) -> None:
    filled = fill(scored, "1")
    for tepo, inside_noise, grpo, bold in (
        (0.99, False, 0.5, {"T1.8"}),
        (0.99, True, 0.5, set()),
        (0.99, None, 0.5, set()),
        (0.99, False, 0.99, set()),
        (0.99, False, 0.990001, set()),
        (0.5, False, 0.99, {"T1.2"}),
        (0.5, True, 0.99, set()),
    ):
        ours = {"value": tepo, "versus": tepo - grpo, "inside_noise": inside_noise}
        other = with_cells(filled, {"T1.8": ours, "T1.2": {"value": grpo}, "T1.9": {}})  # a difference is never bold
        assert {row for row, slot in other.best if slot == "amc"} == bold, (tepo, grpo)


def test_what_is_compared_with_no_baseline_is_not_bold() -> None:
    kept = read_table(Tree(ROOT / "results/reference/smollm"), "runs")
    assert {row.cells["best"].value for row in kept.rows} != {None}
    assert not [row for row, column in kept.best if column == "best"], "nothing tests a P(best)"
    filled = read_table(Tree(ROOT / "results/reference/embedded"), "1")
    for changes in (
        # a base model above all, although GRPO/DAPO differs from the other method
        {"T1.1": {"value": 0.99}, "T1.2": {"value": 0.5}, "T1.8": {"value": 0.6, "versus": 0.1, "inside_noise": False}},
        # no baseline was run
        {"T1.8": {"value": 0.99, "versus": None}, "T1.7": {"value": 0.5, "versus": None}},
    ):
        assert with_cells(filled, changes).best == frozenset()


def test_the_tidy_table_leads_to_the_runs(scored_twice: Tree) -> None:
    tidy = list(csv.DictReader(io.StringIO(tidy_csv(fill(scored_twice, "1").cells))))
    line = next(x for x in tidy if (x["row"], x["column"]) == ("T1.8", "amc"))
    assert line["runs"] == "tiny_qwen2/tepo/seed1/step12 tiny_qwen2/tepo/seed2/step12"
    assert (line["method"], line["step"], line["seeds"], line["benchmark"]) == ("tepo", "12", "1 2", "syn_add2q")
    assert len(tidy) == 10 * 9
    assert len({(x["row"], x["column"]) for x in tidy}) == len(tidy)


def test_two_benchmarks_for_one_column_are_an_error(scored_copy: Tree) -> None:
    replace_text(scored_copy.layout.matrix, '"stands_for": "aime25"', '"stands_for": "aime24"')
    with pytest.raises(ValueError, match=r"matrix\.json: benchmarks: syn_mix3 and syn_inv2 both stand for AIME24"):
        fill(scored_copy, "1")


def test_a_changed_method_never_has_the_papers_label(embedded: Tree) -> None:
    labels = {row.id: row.label for row in fill(embedded, "1").rows}
    assert (labels["T1.3"], labels["T1.8"]) == ("w. CLIP-Cov (fraction 0.01)", "TEPO")


def test_a_matrix_key_with_scale_settings_is_found_by_the_name_in_the_configuration(tmp_path: Path) -> None:
    """The configuration says `tepo`; with settings of the scale its results lie under another, canonical key."""

    def by_settings(matrix: dict[str, Any]) -> None:
        matrix["methods"][-1]["row"] = "tepo"

    methods = {"grpo": ("GRPO/DAPO", 0.6), "tepo+beta=1": ("TEPO, beta 1", 0.7)}
    tree = Tree(synthetic.write_tree(tmp_path / "quick", methods=methods, change=by_settings))
    drawn = figure.fill(figure_spec.figure("3"), tree)
    titles = {line.method: line.title for panel in drawn.panels for line in panel.lines}
    assert titles == {key: title for key, (title, _) in methods.items()}
    filled = fill(tree, "1")
    assert cell(filled, "T1.8", "amc").checkpoints[0].run.method == "tepo+beta=1"
    assert "TEPO (beta 1) is run as tepo+beta=1 at this scale." in filled.notes


def test_what_is_written_is_what_is_read(embedded: Tree, tmp_path: Path) -> None:
    """Every number with all its digits, every gap as a gap."""
    tree = Tree(shutil.copytree(embedded.root, tmp_path / "embedded"))
    for key in spec.tables():
        table.write(tree, key)
        assert read_table(tree, key) == view(spec.table(key), tree, filling.fill(spec.table(key), tree)), key


def test_a_tidy_file_of_other_rows_is_refused(scored_copy: Tree) -> None:
    table.write(scored_copy, "1")
    path = scored_copy.layout.tables / "table1.tidy.csv"
    path.write_text(path.read_text().replace("T1.7,", "T1.77,"))
    with pytest.raises(CorruptInputError, match=r"not filled from .*tables\.yaml .*; run: python -m"):
        read_table(scored_copy, "1")
    path.write_text(path.read_text().replace("T1.77,", "T1.7,").replace("measured", "mesured", 1))
    with pytest.raises(
        CorruptInputError, match=r"table1\.tidy\.csv: line 2: state: unknown value 'mesured'; .*measured"
    ):
        read_table(scored_copy, "1")
