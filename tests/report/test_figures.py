"""Figures: what is drawn is what was logged; declarations, gaps, collapses, and what is left out."""

import csv
import re
import shutil
from pathlib import Path

import pytest

from core.errors import BenchError
from core.layout import Run
from evals import learning_curves
from evals.tree import Tree
from methods import catalog
from report import draw, figures
from report.figures import Line
from tests.report import synthetic
from tests.report.finished import edit, rewrite

KEYS = [*figures.specification().figures]


@pytest.fixture
def collapsed(scored_twice: Tree, tmp_path: Path) -> Tree:
    """Where one seed of TEPO ended after its second rollout."""
    tree = Tree(shutil.copytree(scored_twice.root, tmp_path / "collapsed"))
    folder = tree.layout.run(Run("tiny_qwen2", "tepo", 2))
    rewrite(folder / "curve.csv", lambda row: row if int(row["rollout"]) <= 2 else None)
    edit(folder / "run.json", collapsed_at=2)
    return tree


def filled(key: str, tree: Tree) -> tuple[list[Line], list[str]]:
    return figures.lines(figures.key_of(key), tree)


def logged(tree: Tree, run: Run) -> dict[int, list[dict[str, str]]]:
    rollouts: dict[int, list[dict[str, str]]] = {}
    for row in csv.DictReader((tree.layout.run(run) / "curve.csv").open(newline="")):
        rollouts.setdefault(int(row["rollout"]), []).append(row)
    return rollouts


def by_hand(rows: list[dict[str, str]], quantity: str) -> float:
    """The drawn value of a quantity, written out again without the code under test."""
    numbers = {c: [float(r[c]) for r in rows if r[c]] for c in rows[0]}
    mean = {c: sum(values) / len(values) for c, values in numbers.items() if values}
    return {
        "clip": 100 * mean["clip_fraction_tokens"],
        "time": sum(numbers["seconds_update"]) + numbers["seconds_rollout"][0],
        "reward": 100 * numbers["reward"][0],
        "norm": mean["grad_norm"],
        "entropy": mean["entropy"],
        "length": numbers["response_tokens"][0],
        "spread": mean["ratio_spread"],
        "kl": mean["kl_old"],
    }[quantity]


def test_every_point_is_the_logged_value_with_mean_and_range_over_seeds(scored_twice: Tree) -> None:
    for key in KEYS:
        found, notes = filled(key, scored_twice)
        panels = figures.specification().figures[key].panels
        names = ["grpo", "tepo", "gspo", "tepo_nokl"]
        assert (notes, [(line.panel, line.name) for line in found]) == ([], [(p, n) for p in panels for n in names])
        for line in found:
            runs = (Run("tiny_qwen2", line.name, seed) for seed in (1, 2))
            by_seed = {run.seed: logged(scored_twice, run) for run in runs}
            assert [row["rollout"] for row in line.rows] == list(range(1, 13))
            for row in line.rows:
                values = [by_hand(by_seed[seed][row["rollout"]], panels[line.panel]) for seed in (1, 2)]
                shown = [line.by_seed[seed][row["rollout"] - 1] for seed in (1, 2)]
                assert shown == pytest.approx(values, rel=1e-12)
                wanted = (sum(values) / 2, min(values), max(values), 2)
                assert tuple(row[name] for name in ("value", "low", "high", "seeds")) == pytest.approx(
                    wanted, rel=1e-12
                )


def quick(folder: Path, *methods: str) -> Tree:
    """One seed of these methods."""
    return Tree(
        synthetic.write_tree(folder, rollouts=4, methods={key: (catalog.parse(key).title, 0.6) for key in methods})
    )


def test_methods_of_no_table_are_drawn_with_their_own_look_up_to_eight_lines(tmp_path: Path) -> None:
    more = ["dr_grpo", "rloo", "maxrl", "opo", "sapo"]
    tree = quick(tmp_path / "quick", "grpo", *more)
    found, notes = filled("2", tree)
    drawn = [line.name for line in found if line.panel == "2a"]
    assert drawn == ["grpo", *more[:4]]
    assert notes == ["Not trained here: tepo, gspo, tepo_nokl.", "Not drawn, beyond 8 lines: sapo."]
    looks = draw.looks(drawn, figures.specification().lines)
    assert len({*looks.values()}) == len(drawn)
    assert looks["grpo"] == draw.STYLES[0]
    assert {run.method for run in figures.runs(tree)} == {*drawn}
    figures.write("figure2", tree)
    assert b">Dr. GRPO<" in (tree.layout.figures / "figure2.svg").read_bytes()


def test_a_broken_curve_is_an_error_naming_file_and_line_and_an_undefined_value_a_gap(tmp_path: Path) -> None:
    tree = quick(tmp_path / "quick", "grpo", "tepo")
    path = tree.root / "runs/tiny_qwen2/grpo/seed1/curve.csv"
    whole = path.read_text().splitlines(keepends=True)
    column, line = whole[0].split(",").index("grad_norm"), whole[4].split(",")
    for lines, words in (
        (whole[:5] + whole[6:], "line 6: update is '5', expected 4"),
        (
            [*whole[:4], ",".join([*line[:column], "oops", *line[column + 1 :]]), *whole[5:]],
            "line 5: grad_norm is 'oops'",
        ),
        (whole[:-8], "has rewards of 3 rollouts, its run.json has 4"),
    ):
        path.write_text("".join(lines))
        with pytest.raises(BenchError, match=re.escape(words)) as error:
            learning_curves.measure_run(tree, Run("tiny_qwen2", "grpo", 1))
        assert str(error.value).startswith(str(path))
    path.write_text("".join(whole))
    rewrite(path, lambda row: row | {"ratio_spread": ""})
    (tree.root / "runs/tiny_qwen2/tepo/seed1/run.json").unlink()
    assert "Not drawn, not finished: tiny_qwen2/tepo/seed1." in filled("2", tree)[1]
    (spread,) = (one for one in filled("entropy", tree)[0] if (one.panel, one.name) == ("spread", "grpo"))
    assert {(row["value"], row["seeds"]) for row in spread.rows} == {(None, 0)}


def test_a_collapsed_seed_ends_its_lines_mean_and_is_noted(collapsed: Tree) -> None:
    found, notes = filled("3", collapsed)
    line = next(line for line in found if line.name == "tepo")
    lengths = {seed: len(values) for seed, values in line.by_seed.items()}
    assert (line.ended, lengths) == ({2: 2}, {1: 12, 2: 2})
    assert [(row["value"] is None, row["seeds"]) for row in line.rows] == [(False, 2)] * 2 + [(True, 1)] * 10
    assert notes == ["Collapsed, training stopped there: tiny_qwen2/tepo/seed2 at rollout 2."]
