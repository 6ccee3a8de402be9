"""Learning curves: their measures, held against each other; figures, in which what is drawn is what was logged."""

import csv
import json
import math
import random
import re
import shutil
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from core.errors import BenchError, ConfigError
from core.layout import Results, Run
from core.results_tree import Tree
from evals import learning_curves
from evals.learning_curves import MEASURES
from report import captions, convergence, draw, figure
from report import figures as spec
from report.site import assets, training
from tests.report import synthetic
from tests.report.conftest import Command
from tests.report.finished import rewrite

PLANNED = 6
RISING = (0.1, 0.3, 0.5, 0.7, 0.9, 0.9)


def write_run(root: Path, method: str, seed: int, reward: Sequence[float], collapsed_at: int | None = None) -> None:
    """A run with two updates per rollout and figures that are easy to average by hand."""
    folder = root / Run("tiny_qwen2", method, seed).path
    rows = [
        {
            "rollout": n + 1, "update": 2 * n + minibatch, "minibatch": minibatch, "reward": value,
            "grad_norm": 1.0 + n + seed, "clip_fraction_tokens": 0.01 * minibatch, "clip_fraction_sequences": 0.5,
            "ratio_spread": 0.2 if minibatch else "", "entropy": 0.4 - 0.05 * n, "seconds_update": 0.25,
            "seconds_rollout": "" if minibatch else 1.0, "response_tokens": 9.0 + n, "kl_old": 0.001,
            "mask_fraction": 0.25 if method == "tepo" and minibatch else "",
        }
        for n, value in enumerate(reward)
        for minibatch in (0, 1)
    ]  # fmt: skip
    finish(folder, rows, PLANNED, collapsed_at)


def finish(folder: Path, rows: list[dict[str, Any]], planned: int, collapsed_at: int | None) -> None:
    """A curve and its record."""
    synthetic.write_csv(folder / "curve.csv", rows)
    seconds = 2.0 * int(rows[-1]["rollout"])
    record = {"spec": {"training": {"rollouts": planned}}, "collapsed_at": collapsed_at, "cpu_seconds": seconds}
    (folder / "run.json").write_text(json.dumps(record))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Two seeds of GRPO/DAPO and of TEPO, nothing else finished."""
    made = tmp_path / "mine"
    runs = [Run("tiny_qwen2", method, seed) for method in synthetic.METHODS for seed in (1, 2)]
    synthetic.write_matrix(Results(made), runs, [], "mine", PLANNED)
    for seed in (1, 2):
        write_run(made / "runs", "grpo", seed, RISING)
        write_run(made / "runs", "tepo", seed, [min(value + 0.1 * seed, 1.0) for value in RISING])
    return Tree(made)


def of(tree: Tree, method: str, seed: int = 1) -> learning_curves.RunMeasures:
    return learning_curves.measure_run(tree, Run("tiny_qwen2", method, seed))


def value(tree: Tree, method: str, seed: int, measure: str) -> float:
    found = of(tree, method, seed).values[measure]
    assert found is not None
    return found


BY_HAND: dict[str, tuple[str, float]] = {
    "area": ("grpo", sum(RISING) / 6),
    "to_50": ("grpo", 4),  # means of three: .3 at 3, .5 at 4, .7 at 5, .833 at 6
    "to_80": ("grpo", 6),
    "to_grpo": ("tepo", 6),  # .933 at 6, .8 at 5; GRPO/DAPO ends at .833
    "final": ("grpo", 2.5 / 3),
    "grad_norm": ("grpo", 2.0 + 2.5),
    "clip_tokens": ("grpo", 0.005),
    "clip_sequences": ("grpo", 0.5),
    "ratio_spread": ("grpo", 0.2),
    "movement": ("grpo", (0.09 + 0.16) / 2),  # the median of six rollouts: 0.01, 0.04, .. 0.36
    "movement_first": ("grpo", 0.01),
    "entropy_end": ("grpo", 0.15),
    "seconds_per_step": ("grpo", 1.5),
    "cpu_seconds_per_step": ("grpo", 2.0),
}


def test_each_measure_is_its_definition_worked_by_hand(tree: Tree) -> None:
    assert BY_HAND.keys() == MEASURES.keys()
    assert of(tree, "grpo").why["movement"] == "not recorded by its trainer"

    def moved(row: dict[str, str]) -> dict[str, str]:
        return row | {"kl_step": str(0.01 * int(row["rollout"]) ** 2) if row["minibatch"] == "1" else ""}

    first = tree.layout.run(Run("tiny_qwen2", "grpo", 1)) / "curve.csv"
    rewrite(first, lambda row: moved(row) | ({"kl_step": ""} if row["rollout"] == "1" else {}))
    assert of(tree, "grpo").why["movement_first"] == "no rollout was trained on", "not the second rollout's"
    rewrite(first, moved)
    for key, (method, expected) in BY_HAND.items():
        assert value(tree, method, 1, key) == pytest.approx(expected, rel=1e-12), key


def test_equal_counts_reach_each_other_whatever_the_order_and_number_of_responses(tree: Tree) -> None:
    # 986 of 1,152 right each time; 0.8 is met by 4 of 5
    windows = [(308, 335, 343), (328, 319, 339), (339, 328, 319), (343, 308, 335)]
    for mine, others in permutations(windows, 2):
        write_run(tree.root / "runs", "grpo", 1, [0.1, 0.1, 0.1, *(count / 384 for count in others)])
        write_run(tree.root / "runs", "tepo", 1, [0.0, 0.0, 0.0, *(2 * count / 768 for count in mine)])
        assert of(tree, "tepo").values["to_grpo"] == 6, (mine, others)
    write_run(tree.root / "runs", "tepo", 1, [0.0, 0.0, 0.0, 0.7, 0.8, 0.9])
    assert of(tree, "tepo").values["to_80"] == 6


def test_rollouts_after_a_collapse_count_as_reward_0(tree: Tree) -> None:
    write_run(tree.root / "runs", "tepo", 1, [0.6, 0.6, 0.6], collapsed_at=3)
    found = of(tree, "tepo")
    assert (found.planned, found.rollouts, found.collapsed_at) == (6, 3, 3)
    assert found.values["area"] == pytest.approx(1.8 / 6)
    assert found.values["final"] == 0.0
    assert found.values["to_50"] == 3
    assert found.values["to_80"] is None
    assert found.why["to_80"] == "never reached"
    assert found.values["grad_norm"] == pytest.approx(2.0 + 1.0)  # of the rollouts trained
    assert found.values["entropy_end"] == pytest.approx(0.3)


def test_a_run_that_is_not_finished_has_no_figure_and_says_so(tree: Tree) -> None:
    (tree.layout.run(Run("tiny_qwen2", "grpo", 1)) / "run.json").unlink()
    assert of(tree, "tepo").values["to_grpo"] is None
    assert of(tree, "tepo").why["to_grpo"] == "GRPO/DAPO's run is not finished"
    found = of(tree, "gspo")
    assert not found.finished
    assert set(found.values.values()) == {None}
    assert set(found.why.values()) == {"not finished"}


def over_seeds(tree: Tree, method: str, measure: str) -> dict[str, Any]:
    """The row of a method and measure in convergence_methods.csv."""
    rows = convergence.over_methods(tree, learning_curves.measures(tree))
    (row,) = (row for row in rows if (row["method"], row["measure"]) == (method, measure))
    return row


def test_a_difference_is_paired_by_seed_and_not_cut_to_that_of_scores(tree: Tree) -> None:
    write_run(tree.root / "runs", "tepo", 2, [min(value + 0.2, 1.0) for value in RISING])
    path = tree.root / "runs/tiny_qwen2/tepo/seed2/curve.csv"
    rewrite(path, lambda row: row | {"grad_norm": str(float(row["grad_norm"]) + 4.0)})
    pairs = [value(tree, "tepo", s, "grad_norm") - value(tree, "grpo", s, "grad_norm") for s in (1, 2)]
    found = over_seeds(tree, "tepo", "grad_norm")
    se = statistics.stdev(pairs) / math.sqrt(2)
    t_97_5 = 12.706204736174707  # Student's t, one degree of freedom
    assert found["difference"] == pytest.approx(statistics.fmean(pairs))
    ends = found["difference_low"], found["difference_high"]
    assert ends == pytest.approx((2.0 - t_97_5 * se, 2.0 + t_97_5 * se))
    assert found["p"] == pytest.approx(2 / math.pi * math.atan(1 / (2.0 / se)), rel=1e-6)  # Cauchy's tail


def test_a_seed_that_never_gets_there_leaves_no_mean_over_those_that_did(tree: Tree) -> None:
    write_run(tree.root / "runs", "tepo", 2, [0.1] * 6)
    found = over_seeds(tree, "tepo", "to_50")
    assert (found["difference"], found["difference_how"]) == (None, "TEPO: seed 2: never reached")
    assert (found["value"], found["how"]) == (None, "seed 2: never reached")


def test_an_unfinished_seed_is_not_a_pair(tree: Tree) -> None:
    (tree.root / "runs/tiny_qwen2/tepo/seed2/run.json").unlink()
    found = over_seeds(tree, "tepo", "area")
    assert found["difference"] == pytest.approx(value(tree, "tepo", 1, "area") - value(tree, "grpo", 1, "area"))
    assert (found["p"], found["difference_how"]) == (None, "one seed: no method-level interval")
    assert over_seeds(tree, "gspo", "area")["difference_how"] == "no seed in common: not compared"


def test_a_measure_by_model_and_seed_is_that_of_the_finished_runs(tree: Tree) -> None:
    (tree.root / "runs/tiny_qwen2/tepo/seed2/run.json").unlink()
    found = learning_curves.by_model_and_seed(tree, "tepo", "area")
    assert found == {("tiny_qwen2", 1): value(tree, "tepo", 1, "area")}
    assert learning_curves.by_model_and_seed(tree, "tepo", "area", models=()) == {}
    assert learning_curves.reference("tepo@hot") == "grpo@hot"
    assert learning_curves.reference("tepo+beta=1") == "grpo"


ENDS = (".csv", "_methods.csv", "_runs.csv", "_curves.csv", "_bands.csv")


def test_the_files_hold_every_run_and_every_method(tree: Tree, command: Command) -> None:
    code, out, err = command(convergence.main, "--results", tree.root)
    assert (code, err) == (0, "")
    folder = tree.layout.figures
    assert out.split() == [str(folder / f"convergence{end}") for end in ENDS]
    runs = list(csv.DictReader((folder / "convergence.csv").open(newline="")))
    assert [(r["method"], r["seed"]) for r in runs] == [(run.method, str(run.seed)) for run in tree.runs]
    assert [r["finished"] for r in runs if r["method"] == "gspo"] == ["no", "no"]
    assert float(next(r for r in runs if r["method"] == "grpo")["area"]) == pytest.approx(sum(RISING) / 6)
    rows: list[dict[str, Any]] = list(csv.DictReader((folder / "convergence_methods.csv").open(newline="")))
    assert len(rows) == 4 * len(MEASURES)
    area = {row["method"]: row for row in rows if row["measure"] == "area"}
    assert area["grpo"]["versus"] == ""
    assert (area["tepo"]["versus"], area["gspo"]["difference_how"]) == ("grpo", "no seed in common: not compared")


def test_a_curve_from_before_how_far_training_moves_has_none_and_a_later_one_its_values(tree: Tree) -> None:
    later = {"kl_step": 0.5, "kl_base": 0.75, "update_norm": 2.0, "effective_step": 0.3, "grad_clipped": 0}
    path = tree.layout.run(Run("tiny_qwen2", "tepo", 2)) / "curve.csv"

    def moved(row: dict[str, str]) -> dict[str, str]:
        cells = later | ({"grad_clipped": 1} if row["minibatch"] == "1" else {"kl_step": "", "kl_base": ""})
        return row | {name: str(cell) for name, cell in cells.items()}

    rewrite(path, moved)
    convergence.write(tree)
    rows = list(csv.DictReader((tree.layout.figures / "convergence_curves.csv").open(newline="")))
    for row in rows:
        ours = (row["method"], row["seed"]) == ("tepo", "2")
        assert [row[name] for name in later] == (["0.5", "0.75", "2.0", "0.3", "0.5"] if ours else [""] * 5)
    lines = {line["method"]: line["values"] for line in training.view(tree)["lines"]}
    assert lines["tepo"]["grad_clipped"]["seeds"] == {"1": [None] * PLANNED, "2": [50.0] * PLANNED}
    assert "kl_step" not in lines["grpo"]


def test_a_band_is_around_the_mean_over_clean_models_and_needs_three(tmp_path: Path) -> None:
    def band(seeds: int, starts: int) -> tuple[float, float | None]:
        runs = [Run("tiny_qwen2", "grpo", seed) for seed in range(1, seeds + 1)]
        root = tmp_path / f"{seeds}-{starts}"
        synthetic.write_matrix(Results(root), runs, [], "mine", 1, model={**synthetic.MODEL, "starts": starts})
        curves = {run: {name: [0.05 * run.seed**2] for name in convergence.SERIES} for run in runs}
        rows = {row["series"]: row for row in convergence.bands(Tree(root), curves)}
        return rows["reward"]["mean"], rows["reward"]["low"]

    assert band(3, 2) == (0.225, None), "seeds 1 and 3 continue one clean model; over two an interval is too wide"
    mean, low = band(4, 3)  # 1 and 4 are one
    assert mean == pytest.approx((0.425 + 0.2 + 0.45) / 3)
    assert low is not None
    assert band(3, 3)[0] == pytest.approx(0.7 / 3)


# Figures.

CONFIG = Path(__file__).resolve().parents[2] / "config"
ROLLOUTS, UPDATES = 4, 2
KEYS = [declared.key for declared in spec.figures()]
COLUMNS = (
    "rollout", "update", "minibatch", "reward", "grad_norm", "clip_fraction_tokens", "clip_fraction_sequences",
    "ratio_spread", "entropy", "kl_old", "response_tokens", "seconds_update", "seconds_rollout",
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
    finish(folder, rows, ROLLOUTS, collapsed_at)


def write_tree(root: Path, *configs: str, **changes: Any) -> Tree:
    """Everything that configurations plan, finished."""
    tree = synthetic.write_plan(root, *(CONFIG / name for name in configs), **changes)
    for run in tree.runs:
        write_curve(tree.layout, run)
    return tree


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return write_tree(tmp_path_factory.mktemp("curves") / "embedded", "embedded.yaml")


@pytest.fixture(scope="module")
def collapsed(full: Tree, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Where one seed of TEPO ended after its second rollout."""
    root = tmp_path_factory.mktemp("collapsed") / "embedded"
    shutil.copytree(full.root, root)
    write_curve(Results(root), Run("tiny_qwen2", "tepo", 2), rollouts=2, collapsed_at=2)
    return Tree(root)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return write_tree(tmp_path_factory.mktemp("curves") / "quick", "embedded.yaml", "quick.yaml")


@pytest.fixture
def mine(quick: Tree, tmp_path: Path) -> Tree:
    """A quick tree of one's own to break."""
    return Tree(shutil.copytree(quick.root, tmp_path / "quick"))


def filled(key: str, tree: Tree) -> draw.Drawing:
    return figure.fill(spec.figure(key), tree)


def lines_of(made: draw.Drawing) -> list[draw.Line]:
    return [line for panel in made.panels for line in panel.lines]


def seeds_of(tree: Tree, line: draw.Line) -> list[int]:
    """As the matrix plans them."""
    runs = tree.matrix["runs"]
    return sorted(run["seed"] for run in runs if (run["model"], run["method"]) == (line.model, line.method))


def logged(tree: Tree, run: Run) -> dict[int, list[dict[str, str]]]:
    rollouts: dict[int, list[dict[str, str]]] = {}
    for row in csv.DictReader((tree.layout.run(run) / "curve.csv").open(newline="")):
        rollouts.setdefault(int(row["rollout"]), []).append(row)
    return rollouts


def by_hand(rows: list[dict[str, str]], quantity: str) -> float:
    """The drawn value of a quantity, written out again without the code under test."""
    numbers = {c: [float(r[c]) for r in rows if r[c]] for c in rows[0]}
    return {
        "clip": 100 * sum(numbers["clip_fraction_tokens"]) / 2,
        "time": sum(numbers["seconds_update"]) + numbers["seconds_rollout"][0],
        "reward": 100 * numbers["reward"][0],
        "norm": sum(numbers["grad_norm"]) / 2,
        "entropy": sum(numbers["entropy"]) / 2,
        "length": numbers["response_tokens"][0],
        "spread": numbers["ratio_spread"][0],
        "kl": sum(numbers["kl_old"]) / 2,
    }[quantity]


def test_every_point_is_the_logged_value_with_mean_and_range_over_seeds(full: Tree) -> None:
    for key in KEYS:
        made = filled(key, full)
        assert made.notes == ()
        assert [panel.id for panel in made.panels] == list(spec.figure(key).panels)
        assert {line.model for line in lines_of(made)} == {"tiny_qwen2"}
        for panel in made.panels:
            assert [line.name for line in panel.lines] == ["grpo", "tepo", "gspo", "tepo_nokl"]
            for line in panel.lines:
                seeds = seeds_of(full, line)
                assert len(seeds) > 1
                by_seed = {seed: logged(full, Run(line.model, line.method, seed)) for seed in seeds}
                assert list(line.by_seed) == seeds
                assert [point.rollout for point in line.points] == [1, 2, 3, 4]
                for point in line.points:
                    values = [by_hand(by_seed[seed][point.rollout], panel.key) for seed in seeds]
                    assert [line.by_seed[seed][point.rollout - 1] for seed in seeds] == pytest.approx(values, rel=1e-12)
                    assert point.value == pytest.approx(sum(values) / len(seeds), rel=1e-12)
                    assert (point.low, point.high) == pytest.approx((min(values), max(values)), rel=1e-12)
                    assert point.seeds == len(seeds)


IN_THE_PAPER = {"figure2": {"grpo", "tepo"}, "figure3": {"grpo", "tepo"}}  # figure -> the lines that the paper draws
CALLED = {"GSPO": "gspo", "TEPO without KL": "tepo_nokl"}  # in captions


def test_a_caption_says_which_lines_the_paper_does_not_have() -> None:
    for key in KEYS:
        said = " ".join(captions.paragraphs(key))
        if key in IN_THE_PAPER:
            (ours,) = re.findall(r"the lines of (.*) are ours", said)
            assert {CALLED[name] for name in ours.split(" and of ")} == set(spec.figure(key).lines) - IN_THE_PAPER[key]
        else:
            assert said.endswith("The paper has no such figure: all lines are ours.")


def test_a_figure_is_offered_and_needs_the_runs_that_it_draws(full: Tree, tmp_path: Path) -> None:
    needed = spec.runs(spec.figure("figure3"), full)
    assert {(run.model, run.method) for run in needed} == {("tiny_qwen2", name) for name in spec.figure("3").lines}
    for method, offered in (("grpo", KEYS), ("clip_cov", [])):
        tree = write_tree(tmp_path / method, "embedded.yaml", "quick.yaml", methods=[method])
        assert [one.key for one in spec.offered(tree)] == offered, method


def test_the_files_hold_every_digit_of_what_is_drawn(full: Tree, collapsed: Tree) -> None:
    names = ("rollout", "value", "low", "high", "seeds")
    for key, tree in [(key, tree) for key in KEYS for tree in (full, collapsed)]:
        made = filled(key, tree)
        rows = list(csv.DictReader(draw.texts(made)["csv"].splitlines()))
        shown = [(p.rollout, p.value, p.low, p.high, p.seeds) for line in lines_of(made) for p in line.points]
        assert [tuple(float(row[n]) if row[n] else None for n in names) for row in rows] == shown, key
        named = [(panel.id, line.model, line.method, line.title) for panel in made.panels for line in panel.lines]
        columns = ("panel", "model", "method", "title")
        assert list(dict.fromkeys(tuple(row[name] for name in columns) for row in rows)) == named, key
        words = json.loads(draw.texts(made)["json"])
        assert words == {"scale": "embedded", "models": ["tiny Qwen2"], "notes": [*made.notes]}


Change = Callable[[list[list[str]]], list[list[str]]]


def change_curve(tree: Tree, change: Change) -> None:
    path = tree.root / "runs/tiny_qwen2/tepo/seed1/curve.csv"
    lines = change([line.split(",") for line in path.read_text().splitlines()])
    path.write_text("".join(f"{','.join(line)}\n" for line in lines))


def without_column(name: str) -> Change:
    return lambda lines: [[v for v, head in zip(line, lines[0], strict=True) if head != name] for line in lines]


def with_value(line: int, name: str, value: str) -> Change:
    place = COLUMNS.index(name)
    return lambda lines: [
        [*cells[:place], value, *cells[place + 1 :]] if number == line else cells
        for number, cells in enumerate(lines, 1)
    ]


def without_rollout(number: str) -> Change:
    def change(lines: list[list[str]]) -> list[list[str]]:
        kept = [line for line in lines[1:] if line[0] != number]
        return [lines[0], *([line[0], str(n), *line[2:]] for n, line in enumerate(kept))]

    return change


BROKEN: Mapping[str, tuple[Change, str]] = {
    "a rollout is missing": (without_rollout("3"), "rollout 3 is missing: after rollout 2 comes 4"),
    "an update is missing": (lambda lines: lines[:5] + lines[6:], "update 4 is missing: line 6 has update 5"),
    "a column is missing": (without_column("grad_norm"), "column wanted: unknown value 'grad_norm'"),
    "a value is not a number": (with_value(5, "grad_norm", "oops"), "line 5: grad_norm is 'oops', not a finite number"),
    "a value is nan": (with_value(6, "grad_norm", "nan"), "line 6: grad_norm is 'nan', not a finite number"),
    "shorter than its record says": (lambda lines: lines[:-2], "holds 3 rollouts, its run.json speaks of 4"),
    "no reward in a rollout": (
        lambda lines: with_value(7, "reward", "")(with_value(6, "reward", "")(lines)),
        "rollout 3: reward is empty",
    ),
    "there is nothing": (lambda lines: [], "is empty"),
}


def test_a_broken_curve_is_an_error_naming_file_and_place(mine: Tree) -> None:
    path = mine.root / "runs/tiny_qwen2/tepo/seed1/curve.csv"
    whole = path.read_bytes()
    for case, (change, words) in BROKEN.items():
        path.write_bytes(whole)
        change_curve(mine, change)
        with pytest.raises(BenchError) as error:
            learning_curves.measures(mine)
        assert str(error.value).startswith(str(path)), case
        assert words in str(error.value), case
    path.unlink()
    with pytest.raises(BenchError, match=re.escape(f"{path}: the learning curve is missing")):
        filled("2", mine)


def test_a_value_that_is_not_defined_is_a_gap_and_not_a_zero(mine: Tree) -> None:
    column = COLUMNS.index("ratio_spread")
    change_curve(mine, lambda lines: [lines[0], *([*x[:column], "", *x[column + 1 :]] for x in lines[1:])])
    (panel,) = (panel for panel in filled("entropy", mine).panels if panel.id == "spread")
    points = next(line for line in panel.lines if line.method == "tepo").points
    assert {(point.value, point.seeds) for point in points} == {(None, 0)}


def test_what_is_not_finished_or_not_trained_is_noted_and_the_others_keep_their_style(mine: Tree, quick: Tree) -> None:
    (mine.root / "runs/tiny_qwen2/tepo/seed1/run.json").unlink()
    made = filled("2", mine)
    assert made.notes == ("Not drawn, not finished: tiny_qwen2/tepo/seed1.",)
    styles = [{line.method: line.style for line in lines_of(one)} for one in (filled("2", quick), made)]
    assert styles[1] == {method: style for method, style in styles[0].items() if method != "tepo"}
    for path in mine.root.glob("runs/*/*/*/run.json"):
        path.unlink()
    with pytest.raises(BenchError, match="no finished run of figure2"):
        filled("2", mine)


def test_a_line_is_no_other_method_than_its_row(tmp_path: Path) -> None:
    """`tepo+beta=1` is the paper's TEPO with Qwen3-14B; with Qwen2.5-7B it is another method, and no line says TEPO."""
    tree = write_tree(tmp_path / "one", "embedded.yaml", "quick.yaml", methods=["tepo+beta=1", "grpo"])
    made = filled("figure3", tree)
    assert {line.method for line in lines_of(made)} == {"grpo"}
    assert made.notes == ("Not trained here: tepo, gspo, tepo_nokl.",)


def test_nothing_planned_is_an_error_saying_what_was_wanted_and_what_there_is(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "one", "embedded.yaml", "quick.yaml", methods=["clip_cov"])
    with pytest.raises(BenchError, match=r"plans nothing.*grpo, tepo, gspo, tepo_nokl with Qwen2.5-7B; .*clip_cov"):
        filled("2", tree)


def test_a_collapsed_seed_ends_its_lines_mean_and_is_marked_and_noted(collapsed: Tree) -> None:
    made = filled("3", collapsed)
    line = next(line for line in lines_of(made) if line.method == "tepo")
    seeds = seeds_of(collapsed, line)
    lengths = {seed: len(values) for seed, values in line.by_seed.items()}
    assert (line.ended, lengths) == ({2: 2}, dict.fromkeys(seeds, 4) | {2: 2})
    whole, short = (False, len(seeds)), (True, len(seeds) - 1)
    assert [(point.value is None, point.seeds) for point in line.points] == [whole, whole, short, short]
    assert made.notes == ("Collapsed, training stopped there: tiny_qwen2/tepo/seed2 at rollout 2.",)


@pytest.fixture(scope="module")
def rendered(full: Tree, collapsed: Tree) -> dict[str, dict[str, bytes]]:
    return {"entropy": draw.render(filled("entropy", full)), "figure3": draw.render(filled("3", collapsed))}


def test_pictures_are_equal_when_drawn_twice_fit_a_page_and_name_their_origin(rendered: Any, collapsed: Tree) -> None:
    assert draw.render(filled("3", collapsed)) == rendered["figure3"]
    for key, pictures in rendered.items():
        svg = pictures["svg"].decode()
        assert "<dc:date>" not in svg
        assert float(re.findall(r'<svg[^>]* width="([\d.]+)pt"', svg)[0]) <= 6.5 * 72
        assert min(float(size) for size in re.findall(r"font(?:-size)?: ?([\d.]+)px", svg)) >= 8
        assert f">{draw.AXIS}<" in svg
        assert ">rollout<" not in svg, "the paper's axes count steps"
        marks = "; ×: collapsed" if key == "figure3" else ""
        assert re.search(rf">mean and range \(thin\) of [\d to]+ seeds{marks}; embedded scale, tiny Qwen2<", svg)
        assert pictures["png"].startswith(b"\x89PNG")
        assert b"Date" not in pictures["pdf"]
        # A font for TeX that publishers take: TrueType, embedded.
        fonts = set(re.findall(rb"/BaseFont /(?:[A-Z]{6}\+)?([\w-]+)", pictures["pdf"]))
        assert fonts == {b"STIXGeneral-Regular"}
        assert b"/FontFile2" in pictures["pdf"]
        assert b"/Type3" not in pictures["pdf"]


def test_no_two_looks_are_alike_and_none_of_a_figures_method_is_given_away(tmp_path: Path) -> None:
    assert len({colour for colour, _, _ in spec.STYLES}) == len(spec.STYLES)
    assert len({(dashes, width) for _, dashes, width in spec.STYLES}) == len(spec.STYLES)
    looks = spec.looks()
    assert len({(colour, dashes) for colour, dashes, _ in looks}) == len(looks) > 40
    methods = ["clip_cov", "grpo", "gspo", "tepo", *(f"mine{n}" for n in range(60))]
    styles = draw.line_styles([{"row": one, "title": one.upper()} for one in methods], "GRPO")
    places = spec.given()
    assert [styles[one.upper()]["color"] for one in ("grpo", "gspo", "tepo")] == [
        spec.INK, *(spec.STYLES[places[one]][0] for one in ("gspo", "tepo")),
    ]  # fmt: skip
    others = [(styles[one.upper()]["color"], styles[one.upper()].get("dashes", ())) for one in ("clip_cov", "mine0")]
    assert not {*others} & {spec.STYLES[place][:2] for place in places.values()}
    assert len(styles) == len(methods)
    # the page's curves
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on PATH")
    script = (assets.HTML / "js/charts.js").read_text().partition("\n{\n")[0]
    call = "curves.looks(['a', 'b', 'c', 'd'], new Map([['c', 1]]), new Map([['d', 9]]), [0, 1, 4])"
    (tmp_path / "looks.js").write_text(f"{script}\nconsole.log(JSON.stringify([...{call}]))")
    done = subprocess.run([node, tmp_path / "looks.js"], capture_output=True, text=True, check=True)
    assert dict(json.loads(done.stdout)) == {"c": 1, "d": 9, "a": 2, "b": 3}


DECLARED = """
model: q7
lines: {grpo: 0, tepo: 1}
quantities:
  reward: {title: Reward, columns: [reward], aggregate: first, label: share}
figures:
  mine: {title: Mine, panels: {1a: reward}}
"""
WRONG = {
    "unknown quantity": ("1a: reward", "1a: rewart", "figures.mine.panels.1a", "'rewart'", "nearest: reward"),
    "unknown key": ("title: Mine", "titel: Mine", "figures.mine.titel: unknown key", "nearest: title"),
    "two lines that look alike": ("tepo: 1", "tepo: 0", "lines.tepo: style that no other line has", "'0'"),
}


def test_a_wrong_declaration_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "figures.yaml"
    for case, (old, new, *words) in WRONG.items():
        assert old in DECLARED
        path.write_text(DECLARED.replace(old, new, 1), encoding="utf-8")
        with pytest.raises(BenchError) as error:
            spec.figures(path)
        assert str(error.value).startswith(str(path)), case
        assert [word for word in words if word not in str(error.value)] == [], case
    with pytest.raises(ConfigError, match=r"figures: unknown value 'figur2'.*nearest: figure2"):
        spec.figure("figur2")
