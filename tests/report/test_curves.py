"""Curves: what is drawn is what was logged, by rollout; what is missing is said; a broken curve stops the figure."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from core.errors import BenchError
from core.layout import Results, Run
from core.results_tree import Tree
from report import captions
from report.figures import draw, drawing, fill, spec
from tests.merged_config import load
from tests.report import synthetic
from workflow import matrix as plan

CONFIG = Path(__file__).resolve().parents[2] / "config"
ROLLOUTS, UPDATES = 4, 2
KEYS = [declared.key for declared in spec.figures()]
COLUMNS = (
    "rollout", "update", "minibatch", "reward", "grad_norm", "clip_fraction_tokens", "ratio_spread", "entropy",
    "kl_old", "response_tokens", "seconds_update", "seconds_rollout",
)  # fmt: skip


def write_curve(layout: Results, run: Run, rollouts: int = ROLLOUTS, collapsed_at: int | None = None) -> None:
    """An invented run: no two figures are equal, the ratio spread is unknown in each rollout's first update."""
    invented, folder = random.Random(run.path.as_posix()), layout.run(run)
    rows = []
    for rollout in range(1, rollouts + 1):
        shared = {"rollout": rollout, "reward": invented.random(), "response_tokens": 20 * invented.random()}
        for minibatch in range(UPDATES):
            row: dict[str, Any] = {name: invented.random() for name in COLUMNS} | shared
            row |= {"update": UPDATES * (rollout - 1) + minibatch, "minibatch": minibatch}
            rows.append(row | ({"seconds_rollout": ""} if minibatch else {"ratio_spread": ""}))
    synthetic.write_csv(folder / "curve.csv", rows)
    record = {"spec": {"training": {"rollouts": ROLLOUTS}}, "collapsed_at": collapsed_at}
    (folder / "run.json").write_text(json.dumps(record))


def write_tree(root: Path, *configs: str, curves_too: bool = True, **changes: Any) -> Tree:
    """Everything that configurations plan, finished."""
    content = load([CONFIG / name for name in configs])
    layout = Results(root)
    root.mkdir(parents=True)
    layout.matrix.write_text(json.dumps(plan.matrix({**content, **changes})))
    tree = Tree(root)
    for run in tree.runs if curves_too else ():
        write_curve(layout, run)
    return tree


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The embedded matrix with that of readings.yaml: every figure has something to draw."""
    names = ("embedded.yaml", "readings.yaml")
    matrix = [block for used in (names[:1], names) for block in load([CONFIG / name for name in used])["matrix"]]
    return write_tree(tmp_path_factory.mktemp("curves") / "embedded", "embedded.yaml", matrix=matrix)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return write_tree(tmp_path_factory.mktemp("curves") / "quick", "embedded.yaml", "quick.yaml")


@pytest.fixture
def mine(quick: Tree, tmp_path: Path) -> Tree:
    """A quick tree of one's own to break."""
    shutil.copytree(quick.root, tmp_path / "quick")
    return Tree(tmp_path / "quick")


def filled(key: str, tree: Tree) -> drawing.Drawing:
    return fill.fill(spec.figure(key), tree)


def logged(tree: Tree, run: Run) -> dict[int, list[dict[str, str]]]:
    rollouts: dict[int, list[dict[str, str]]] = {}
    for row in csv.DictReader((tree.layout.run(run) / "curve.csv").open(newline="")):
        rollouts.setdefault(int(row["rollout"]), []).append(row)
    return rollouts


def seeds_of(tree: Tree, line: drawing.Line) -> list[int]:
    """As the matrix plans them."""
    runs = tree.matrix["runs"]
    return sorted(run["seed"] for run in runs if (run["model"], run["method"]) == (line.model, line.method))


def by_hand(rows: list[dict[str, str]], quantity: str) -> float:
    """The drawn value of a quantity, written out again without the code under test."""
    numbers = {c: [float(r[c]) for r in rows if r[c]] for c in rows[0]}
    return {
        "clip": 100 * sum(numbers["clip_fraction_tokens"]) / 2,
        "time": sum(numbers["seconds_update"]) + numbers["seconds_rollout"][0],
        "reward": 100 * numbers["reward"][0],
        "norm": sum(numbers["grad_norm"]) / 2,
        "log_norm": sum(numbers["grad_norm"]) / 2,
        "entropy": sum(numbers["entropy"]) / 2,
        "length": numbers["response_tokens"][0],
        "spread": numbers["ratio_spread"][0],
        "kl": sum(numbers["kl_old"]) / 2,
    }[quantity]


def test_every_point_is_the_logged_value_with_mean_and_range_over_seeds(full: Tree, subtests: pytest.Subtests) -> None:
    for key in KEYS:
        with subtests.test(key):
            for line in filled(key, full).lines:
                seeds = seeds_of(full, line)
                assert len(seeds) > 1
                by_seed = {seed: logged(full, Run(line.model, line.method, seed)) for seed in seeds}
                assert list(line.by_seed) == seeds
                assert [point.rollout for point in line.points] == [1, 2, 3, 4]
                for point in line.points:
                    values = [by_hand(by_seed[seed][point.rollout], line.panel.quantity.key) for seed in seeds]
                    assert [line.by_seed[seed][point.rollout - 1] for seed in seeds] == pytest.approx(values, rel=1e-12)
                    assert point.value == pytest.approx(sum(values) / len(seeds), rel=1e-12)
                    assert (point.low, point.high) == pytest.approx((min(values), max(values)), rel=1e-12)
                    assert point.seeds == len(seeds)


def test_the_embedded_matrix_leaves_no_part_of_a_figure_empty(full: Tree, subtests: pytest.Subtests) -> None:
    for key in KEYS:
        with subtests.test(key):
            made, declared = filled(key, full), spec.figure(key)
            assert made.notes == ()
            assert [drawn.panel for drawn in made.panels] == declared.panels
            assert all(len(drawn.lines) == len(drawn.panel.lines) for drawn in made.panels)
            assert captions.paragraphs(key)


IN_THE_PAPER = {"figure2": {"grpo", "tepo"}, "figure3": {"grpo", "tepo"}}  # figure -> the lines that the paper draws
CALLED = {"GSPO": "gspo", "TEPO without KL": "tepo_nokl"}  # in captions


def test_a_caption_says_which_lines_the_paper_does_not_have(subtests: pytest.Subtests) -> None:
    for key in KEYS:
        with subtests.test(key):
            said = " ".join(captions.paragraphs(key))
            if key in IN_THE_PAPER:
                drawn = {line.name for panel in spec.figure(key).panels for line in panel.lines}
                (ours,) = re.findall(r"the lines of (.*) are ours", said)
                assert {CALLED[name] for name in ours.split(" and of ")} == drawn - IN_THE_PAPER[key]
            else:
                assert said.endswith("The paper has no such figure: all lines are ours.")


def test_the_paper_matrix_has_the_papers_figures(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "paper", "embedded.yaml", "paper.yaml", curves_too=False)
    assert {"figure2", "figure3", "models", "methods", "panel_a"} <= {one.key for one in spec.offered(tree)}
    for key in ("figure2", "figure3"):
        assert {run.method for run in spec.runs(spec.figure(key), tree)} >= {"grpo", "tepo"}


def test_the_quick_run_is_offered_what_it_has_something_for(quick: Tree) -> None:
    keys = [one.key for one in spec.offered(quick)]
    assert keys == ["figure2", "figure3", "entropy", "methods", "methods_clip", "methods_norm"]


def test_nothing_is_offered_that_would_be_empty(tmp_path: Path) -> None:
    offered_of = {
        "grpo": ["figure2", "figure3", "entropy"],
        "clip_cov": ["methods", "methods_clip", "methods_norm"],
    }
    for method, keys in offered_of.items():
        tree = write_tree(tmp_path / method, "embedded.yaml", "quick.yaml", methods=[method])
        offered = spec.offered(tree)
        assert [one.key for one in offered] == keys, method
        assert all(fill.fill(one, tree).lines for one in offered), method


def test_a_figure_needs_only_the_runs_that_it_draws(full: Tree) -> None:
    needed = spec.runs(spec.figure("figure3"), full)
    assert {run.model for run in needed} == {"tiny_qwen2"}
    assert {run.method for run in needed} == {"grpo", "tepo", "gspo", "tepo_nokl"}
    assert {run.variant for run in spec.runs(spec.figure("hot"), full)} == {None, "hot"}
    assert Run("tiny_qwen3", "tepo+beta=1", 1) in spec.runs(spec.figure("models"), full)


def floats(rows: list[dict[str, str]], *columns: str) -> list[tuple[float | None, ...]]:
    return [tuple(float(row[name]) if row[name] else None for name in columns) for row in rows]


def test_the_files_hold_every_digit_of_what_is_drawn(full: Tree, collapsed: Tree, tmp_path: Path) -> None:
    for key, tree in product(KEYS, (full, collapsed)):
        drawn = filled(key, tree)
        points = list(csv.DictReader(drawing.write(drawn, tmp_path)[0].open(newline="")))
        shown = [(p.rollout, p.value, p.low, p.high, p.seeds) for line in drawn.lines for p in line.points]
        assert floats(points, "rollout", "value", "low", "high", "seeds") == shown, key
        named = [(line.panel.id, line.model, line.method, line.title, line.spec.name) for line in drawn.lines]
        columns = ("panel", "model", "method", "title", "line")
        assert list(dict.fromkeys(tuple(row[name] for name in columns) for row in points)) == named, key
        words = json.loads((tmp_path / f"{key}.json").read_text(encoding="utf-8"))
        assert (words["scale"], words["models"], words["notes"]) == ("embedded", [*drawn.models], [*drawn.notes])
        assert [panel["title"] for panel in words["panels"]] == [panel.title for panel in drawn.panels]


def test_one_seed_has_no_band(quick: Tree) -> None:
    points = [point for line in filled("2", quick).lines for point in line.points]
    assert {(point.low, point.high, point.seeds) for point in points} == {(None, None, 1)}


def change_curve(tree: Tree, change: Callable[[list[list[str]]], list[list[str]]]) -> None:
    path = tree.root / "runs/tiny_qwen2/tepo/seed1/curve.csv"
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(change(list(csv.reader(path.open(newline="")))))
    path.write_text(out.getvalue())


def without_column(name: str) -> Callable[[list[list[str]]], list[list[str]]]:
    return lambda lines: [[v for v, head in zip(line, lines[0], strict=True) if head != name] for line in lines]


def with_value(line: int, name: str, value: str) -> Callable[[list[list[str]]], list[list[str]]]:
    def change(lines: list[list[str]]) -> list[list[str]]:
        lines[line - 1][lines[0].index(name)] = value
        return lines

    return change


def without_rollout(number: str) -> Callable[[list[list[str]]], list[list[str]]]:
    def change(lines: list[list[str]]) -> list[list[str]]:
        kept = [line for line in lines[1:] if line[0] != number]
        return [lines[0], *([line[0], str(n), *line[2:]] for n, line in enumerate(kept))]

    return change


BROKEN: Mapping[str, tuple[Callable[[list[list[str]]], list[list[str]]], str]] = {
    "a rollout is missing": (without_rollout("3"), "rollout 3 is missing: after rollout 2 comes 4"),
    "the first rollout is missing": (without_rollout("1"), "rollout 1 is missing: after rollout 0 comes 2"),
    "an update is missing": (lambda lines: lines[:5] + lines[6:], "update 4 is missing: line 6 has update 5"),
    "an update stands twice": (lambda lines: lines[:5] + lines[4:], "update 4 is missing: line 6 has update 3"),
    "a column is missing": (without_column("grad_norm"), "column wanted: unknown value 'grad_norm'"),
    "no rollouts": (without_column("rollout"), "column wanted: unknown value 'rollout'"),
    "a value is not a number": (with_value(5, "grad_norm", "oops"), "line 5: grad_norm is 'oops', not a finite number"),
    "a value is nan": (with_value(6, "grad_norm", "nan"), "line 6: grad_norm is 'nan', not a finite number"),
    "a value is infinite": (with_value(2, "reward", "inf"), "line 2: reward is 'inf', not a finite number"),
    "a rollout is no number": (with_value(3, "rollout", "x"), "line 3: rollout is 'x', not a whole number"),
    "an update is negative": (with_value(2, "update", "-1"), "line 2: update is '-1', not a whole number"),
    "a line is cut off": (lambda lines: [*lines[:-1], lines[-1][:5]], "line 9: 5 fields, the header has 12"),
    "there are no rows": (lambda lines: lines[:1], "holds no rows"),
    "there is nothing": (lambda lines: [], "is empty"),
}


def test_a_broken_curve_is_an_error_naming_file_and_place(mine: Tree, subtests: pytest.Subtests) -> None:
    path = mine.root / "runs/tiny_qwen2/tepo/seed1/curve.csv"
    whole = path.read_bytes()
    for case, (change, words) in BROKEN.items():
        with subtests.test(case):
            path.write_bytes(whole)
            change_curve(mine, change)
            with pytest.raises(BenchError) as error:
                filled("3", mine)
            assert str(error.value).startswith(str(path))
            assert words in str(error.value)
    path.unlink()
    with pytest.raises(BenchError, match=re.escape(f"{path}: the learning curve is missing")):
        filled("2", mine)


def test_a_value_that_is_not_defined_is_a_gap_and_not_a_zero(mine: Tree) -> None:
    column = COLUMNS.index("ratio_spread")
    change_curve(mine, lambda lines: [lines[0], *([*x[:column], "", *x[column + 1 :]] for x in lines[1:])])
    line = next(x for x in filled("entropy", mine).lines if (x.method, x.panel.id) == ("tepo", "spread"))
    assert {point.value for point in line.points} == {None}
    assert {point.seeds for point in line.points} == {0}


def test_a_run_that_is_not_finished_is_noted_and_the_others_are_drawn(mine: Tree) -> None:
    (mine.root / "runs/tiny_qwen2/tepo/seed1/run.json").unlink()
    made = filled("2", mine)
    assert made.notes == ("Not drawn, not finished: tiny_qwen2/tepo/seed1.",)
    assert {line.method for line in made.lines} == {"grpo", "gspo", "tepo_nokl"}


def test_a_missing_model_method_or_variant_leaves_its_part_out_with_a_note(quick: Tree) -> None:
    made = filled("models", quick)
    assert {line.model for line in made.lines} == {"tiny_qwen2"}
    assert any(note.startswith("Left out, no model of this scale stands for: Qwen3-14B, ") for note in made.notes)
    made = filled("hot", quick)
    assert {line.panel.variant for line in made.lines} == {None}
    assert any("grpo@hot" in note for note in made.notes)
    made = filled("methods", quick)
    assert [drawn.title for drawn in made.panels] == ["TEPO", "TEPO without KL", "GSPO"]
    assert made.notes[0].startswith("Not trained here with tiny Qwen2: gpg, cispo, ")


def test_a_panel_named_after_a_line_is_not_drawn_without_it(mine: Tree) -> None:
    (mine.root / "runs/tiny_qwen2/gspo/seed1/run.json").unlink()
    assert [drawn.title for drawn in filled("methods", mine).panels] == ["TEPO", "TEPO without KL"]


def test_rows_of_repeated_panels_keep_their_columns_when_one_is_missing(full: Tree, tmp_path: Path) -> None:
    shutil.copytree(full.root, tmp_path / "mine")
    for record in tmp_path.glob("mine/runs/tiny_qwen2/tepo_nokl/seed*/run.json"):
        record.unlink()
    (block,) = filled("hot", Tree(tmp_path / "mine")).blocks
    columns = [[cell and cell.title for cell in block.cells[n : n + block.across]] for n in (0, block.across)]
    assert columns == [["TEPO", None, "GSPO"], ["TEPO", "TEPO without KL", "GSPO"]]


def test_nothing_left_is_an_error_saying_what_was_wanted_and_what_there_is(quick: Tree, mine: Tree) -> None:
    for path in mine.root.glob("runs/*/*/*/run.json"):
        path.unlink()
    with pytest.raises(BenchError, match="no finished run of figure2"):
        filled("2", mine)
    declared = spec.figure("models")
    others = replace(declared, blocks=tuple(replace(b, panels=b.panels[1:5]) for b in declared.blocks))
    with pytest.raises(BenchError, match=r"plans nothing.*grpo, tepo\+beta=1, tepo with Qwen3-14B, .*tiny_qwen2 for"):
        fill.fill(others, quick)


@pytest.fixture(scope="module")
def collapsed(full: Tree, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Where one seed of k1 ended after its second rollout."""
    root = tmp_path_factory.mktemp("collapsed") / "embedded"
    shutil.copytree(full.root, root)
    run = Run("tiny_qwen2", "tepo_kl_all+beta=1+kl-estimator=k1", 2)
    write_curve(Results(root), run, rollouts=2, collapsed_at=2)
    return Tree(root)


def test_a_collapsed_seed_ends_its_lines_mean_and_is_marked_and_noted(collapsed: Tree) -> None:
    made = filled("panel_a", collapsed)
    line = next(x for x in made.lines if x.spec.name == "k1")
    seeds = seeds_of(collapsed, line)
    lengths = {seed: len(values) for seed, values in line.by_seed.items()}
    assert (line.ended, lengths) == ({2: 2}, dict.fromkeys(seeds, 4) | {2: 2})
    whole, short = (False, len(seeds)), (True, len(seeds) - 1)
    assert [(point.value is None, point.seeds) for point in line.points] == [whole, whole, short, short]
    name = "tiny_qwen2/tepo_kl_all+beta=1+kl-estimator=k1/seed2"
    assert made.notes == (f"Collapsed, training stopped there: {name} at rollout 2.",)


@pytest.fixture(scope="module")
def rendered(full: Tree, collapsed: Tree) -> dict[str, dict[str, bytes]]:
    """One figure of each kind of layout."""
    trees = {"figure2": full, "models": full, "panel_a": collapsed}
    return {key: draw.render(filled(key, tree)) for key, tree in trees.items()}


@pytest.mark.slow
def test_drawing_twice_gives_the_same_bytes_without_a_date(rendered: Any, collapsed: Tree) -> None:
    assert draw.render(filled("panel_a", collapsed)) == rendered["panel_a"]
    for pictures in rendered.values():
        assert b"<dc:date>" not in pictures["svg"]
        assert pictures["png"].startswith(b"\x89PNG")
        assert pictures["pdf"].startswith(b"%PDF")
        assert b"Date" not in pictures["pdf"]


def test_a_pdf_has_a_font_for_tex_that_publishers_take(rendered: Any) -> None:
    for pictures in rendered.values():
        fonts = set(re.findall(rb"/BaseFont /(?:[A-Z]{6}\+)?([\w-]+)", pictures["pdf"]))
        assert fonts == {b"STIXGeneral-Regular"}
        assert b"/FontFile2" in pictures["pdf"]  # TrueType, embedded
        assert b"/Type3" not in pictures["pdf"]


def test_a_line_is_no_other_method_than_its_row(tmp_path: Path) -> None:
    """`tepo+beta=1` is the paper's TEPO with Qwen3-14B; with Qwen2.5-7B it is another method, and no line says TEPO."""
    tree = write_tree(tmp_path / "one", "embedded.yaml", "quick.yaml", methods=["tepo+beta=1", "grpo"])
    made = filled("figure3", tree)
    assert {line.method for line in made.lines} == {"grpo"}
    assert any("tepo" in note for note in made.notes)


def test_no_text_is_smaller_than_8_points_at_the_width_of_a_page(rendered: Any) -> None:
    for pictures in rendered.values():
        svg = pictures["svg"].decode()
        assert float(re.findall(r'<svg[^>]* width="([\d.]+)pt"', svg)[0]) <= 6.5 * 72
        sizes = [float(size) for size in re.findall(r"font(?:-size)?: ?([\d.]+)px", svg)]
        assert sizes
        assert min(sizes) >= 8


def test_the_axis_counts_steps_as_the_papers_does(rendered: Any) -> None:
    for pictures in rendered.values():
        svg = pictures["svg"].decode()
        assert f">{draw.AXIS}<" in svg
        assert ">rollout<" not in svg


def test_a_figure_says_its_seeds_scale_and_collapses(rendered: Any, full: Tree) -> None:
    ends = {"figure2": ", tiny Qwen2<", "models": "<", "panel_a": ", tiny Qwen2<"}
    for key, pictures in rendered.items():
        counts = {len(seeds_of(full, line)) for line in filled(key, full).lines}
        seeds = " to ".join(map(str, sorted({min(counts), max(counts)})))
        marks = "; ×: collapsed" if key == "panel_a" else ""
        expected = f">mean and range of {seeds} seeds{marks}; embedded scale{ends[key]}"
        assert expected in pictures["svg"].decode()


def test_lines_differ_in_colour_and_in_dash_or_width() -> None:
    assert len({colour for colour, _, _ in spec.STYLES}) == len(spec.STYLES)
    assert len({(dashes, width) for _, dashes, width in spec.STYLES}) == len(spec.STYLES)


def test_a_method_keeps_its_style_when_others_are_not_run(mine: Tree, quick: Tree) -> None:
    (mine.root / "runs/tiny_qwen2/grpo/seed1/run.json").unlink()
    places = [{line.method: line.place for line in filled("2", tree).lines} for tree in (quick, mine)]
    assert places[1] == {method: place for method, place in places[0].items() if method != "grpo"}
