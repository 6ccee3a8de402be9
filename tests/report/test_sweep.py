"""A sweep's table and choice follow from the scores that they name; fresh seeds are never averaged with the others."""

import math
import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.errors import CorruptInputError
from core.layout import Checkpoint, Run
from core.provenance import sha256_file
from evals.stats import compare
from evals.tree import Tree
from report import figures, sweep
from report import rows as table_rows
from report.sweep import Point, choice, selecting, selection
from tests.report import synthetic, tables
from tests.report.conftest import Command
from tests.report.finished import edit, rewrite
from tests.report.synthetic import replanned
from tests.report.tables import filled

SELECT, TEST = (1, 2), (3, 4)
METHODS = {
    "grpo": ("GRPO/DAPO", 0.62),
    "grpo@high": ("GRPO/DAPO, learning rate 0.0002", 0.70),
    "tepo": ("TEPO", 0.68),
    "tepo@high": ("TEPO, learning rate 0.0002", 0.74),
}


def sweep_of_rates(matrix: dict[str, Any]) -> None:
    """Two methods at two rates on seeds 1 and 2; the chosen ones on 3 and 4."""
    matrix["variants"] = {"high": {"title": "learning rate 0.0002", "changes": {"training.learning_rate": 2e-4}}}
    matrix["training"]["learning_rate"] = 1e-4
    for place in ("runs", "checkpoints"):
        matrix[place] = [r for r in matrix[place] if r["seed"] not in TEST or r["method"].endswith("@high")]
    matrix["sweep"] = {
        "axes": {"training.learning_rate": [1e-4, 2e-4]}, "select_seeds": SELECT, "test_seeds": TEST, "by": "score",
        "question": "q",
        "points": [
            {"model": "tiny_qwen2", "row": row, "base": row, "text": row, "method": row + at, "steps": [12],
             "values": {"training.learning_rate": rate}}
            for row in ("grpo", "tepo") for at, rate in (("", 1e-4), ("@high", 2e-4))
        ],
    }  # fmt: skip


def made(root: Path, change: Callable[[dict[str, Any]], None] = sweep_of_rates) -> Tree:
    return Tree(synthetic.write_tree(root, seeds=(*SELECT, *TEST), scale="rates", methods=METHODS, change=change))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return made(tmp_path_factory.mktemp("swept") / "rates")


def with_runs(tree: Tree, keys: Iterable[str], seeds: Iterable[int], **changes: Any) -> Tree:
    """The tree as if these runs and their checkpoints were planned too."""
    names = [{"model": "tiny_qwen2", "method": method, "seed": seed} for method in keys for seed in seeds]
    runs = [*tree.matrix["runs"], *(name | {"row": name["method"], "steps": [12]} for name in names)]
    checkpoints = [*tree.matrix["checkpoints"], *(name | {"step": 12} for name in names)]
    return replanned(tree, runs=runs, checkpoints=checkpoints, **changes)


def test_regret_and_choice_follow_from_the_selection_seeds(swept: Tree) -> None:
    rows = {(row["method"], row["values"]): row for row in selection(swept, selecting(swept))}
    assert len(rows) == 4
    for (method, _), row in rows.items():
        scores = [
            score.value
            for (checkpoint, key), score in swept.scores.items()
            if key == "avg_pooled" and checkpoint.run.method == method and checkpoint.run.seed in SELECT
        ]
        assert row["score"] == pytest.approx(sum(scores) / 2)
        twin = next(r for r in rows.values() if r["row"] == row["row"] and r is not row)
        assert row["regret"] == pytest.approx(max(0.0, twin["score"] - row["score"]))
        assert (row["chosen"] == "yes") == (row["regret"] == 0)
    chosen = {row["method"] for row in choice(swept) if row["chosen"] == "yes"}
    assert chosen == {row["method"] for row in rows.values() if row["chosen"] == "yes"}
    for row in ("grpo", "tepo"):
        assert sum(r["selected"] for r in rows.values() if r["row"] == row) == pytest.approx(1)
    (own,) = (r for r in rows.values() if r.get("fresh") is not None)
    values = [
        {s: swept.scores[Checkpoint(Run("tiny_qwen2", f"{row}@high", s), 12), "avg_pooled"].value for s in TEST}
        for row in ("tepo", "grpo")
    ]
    found = compare.with_choice(compare.compare_seeds(*values), own["choice_sd"])  # type: ignore[arg-type]
    assert (own["row"], own["versus"], own["fresh"], own["fresh_low"]) == ("tepo", "grpo", found.difference, found.low)


def test_a_sweep_without_the_baseline_has_a_page_and_regrets_with_an_interval(tmp_path: Path) -> None:
    methods = {key: named for key, named in METHODS.items() if key.startswith("tepo")}

    def change(matrix: dict[str, Any]) -> None:
        sweep_of_rates(matrix)
        matrix["sweep"]["points"] = [point for point in matrix["sweep"]["points"] if point["row"] == "tepo"]

    root = synthetic.write_tree(tmp_path / "rates", seeds=(*SELECT, *TEST), methods=methods, change=change)
    tree = Tree(root)
    sweep.write(tree)
    assert "Nothing to compare: no other method, or no baseline" in (tree.root / "sweep/frontier.md").read_text()
    low, high = (row for row in selection(tree, selecting(tree)))
    found = compare.compare_seeds(*({s: p.score[s] for s in SELECT} for p in reversed(selecting(tree))))
    assert [low[name] for name in ("regret", "regret_low", "regret_high")] == pytest.approx(
        [found.difference, found.low, found.high]
    )
    assert (low["chosen"], high["chosen"], high["regret"], high["regret_low"]) == ("no", "yes", 0, None)


def test_a_choice_that_its_runs_no_longer_give_is_refused(swept: Tree, tmp_path: Path, command: Command) -> None:
    tree = Tree(shutil.copytree(swept.root, tmp_path / "rates"))
    path = tree.root / "sweep/choice.csv"
    assert command(sweep.main, "--results", tree.root, "--choose")[0] == 0
    sweep.write(tree)
    rewrite(path, lambda row: row | {"chosen": {"yes": "no", "no": "yes"}[row["chosen"]]})
    with pytest.raises(CorruptInputError, match=r"grpo: grpo was chosen, the runs now choose grpo@high; delete it and"):
        sweep.write(tree)


def test_the_papers_rows_are_at_the_chosen_value_and_never_average_both_kinds_of_seeds(swept: Tree) -> None:
    (row,) = (row for row in table_rows.tables()["1"].rows if row.id == "T1.8")

    def behind(tree: Tree, name: str = "tepo") -> set[tuple[str, int]]:
        planned = table_rows.planned(row.model_copy(update={"method": name}), "tiny_qwen2", tree)
        return {(checkpoint.run.method, checkpoint.run.seed) for checkpoint in planned}

    both = with_runs(swept, ["tepo"], TEST)  # the scale's own value too, for what the single value costs
    first = replanned(swept, runs=[r for r in swept.matrix["runs"] if r["seed"] in SELECT])  # before the second round
    for tree, method, seeds in ((swept, "tepo@high", TEST), (both, "tepo@high", TEST), (first, "tepo", SELECT)):
        assert behind(tree) == {(method, seed) for seed in seeds}
    assert behind(swept, "base") == {("base", 0)}


def test_the_papers_table_of_a_sweep_is_over_fresh_seeds_and_names_the_value(swept: Tree) -> None:
    table = filled(swept, "1")
    rows = {row.declared.method: row for row in tables.rows(table).values() if row.measured and row.kind == "run"}
    assert rows["tepo"].name == "TEPO, learning rate 0.0002"
    cell = rows["tepo"].cells["avg_pooled"]
    means = [
        sum(swept.scores[Checkpoint(Run("tiny_qwen2", method, seed), 12), "avg_pooled"].value or 0 for seed in TEST) / 2
        for method in ("tepo@high", "grpo@high")
    ]
    assert (cell["seeds"], cell["value"], cell["versus"]) == (
        TEST, pytest.approx(means[0]), pytest.approx(means[0] - means[1]),
    )  # fmt: skip
    assert any("seeds 1, 2;" in note and "over seeds 3, 4," in note for note in table["notes"])


def test_the_command_writes_the_files_that_its_rule_names(swept: Tree, command: Command) -> None:
    frontiers = {f"frontier.{kind}" for kind in ("csv", "md", "svg", "png", "pdf")}
    assert {path.name for path in sweep.write(swept)} == {"sweep.csv", "sweep.md", "matched.csv"} | frontiers
    page = (swept.root / "sweep/sweep.md").read_text()
    assert "| 0.0001 (scale's own) |" in page
    areas = " / ".join(f"{100 * value:.2f}" for value in selecting(swept)[0].area.values())
    assert (f"({areas})" in page, "[" in page.replace("of 2 [", "")) == (True, False), "two seeds have no interval"
    found = [command(sweep.main, "--results", swept.root, "--versus", name) for name in ("tepo", "tepoo")]
    assert (found[0][0], "GRPO/DAPO" in found[0][1]) == (0, True)
    assert (found[1][0], "nearest: tepo" in found[1][2]) == (2, True)


@pytest.mark.parametrize(
    ("rewards", "failed", "broken"),
    [
        ((0.2, 0.2, 0.3, 0.5, 0.6, 0.7), (), False),
        ((0.5, 0.4, 0.3, 0.2, 0.2, 0.2), (1,), True),
        ((0.6, 0.1, 0.1, 0.3, 0.4, 0.4), (), True),  # area below the first reward, and the end above the beginning
    ],
)
def test_a_run_fails_that_ends_with_no_more_than_it_began(
    tmp_path: Path, rewards: tuple[float, ...], failed: tuple[int, ...], broken: bool
) -> None:
    tree = Tree(synthetic.write_tree(tmp_path / "rates", rollouts=len(rewards)))
    folder = tree.layout.run(Run("tiny_qwen2", "tepo", 1))
    rewrite(folder / "curve.csv", lambda row: row | {"reward": row["reward"] and str(rewards[int(row["rollout"]) - 1])})
    edit(folder / "run.json", outputs={"curve.csv": sha256_file(folder / "curve.csv")})
    entry = {"model": "tiny_qwen2", "row": "tepo", "base": "tepo", "method": "tepo", "values": {}, "steps": [12]}
    (found,) = selecting(replanned(tree, sweep={"select_seeds": [1], "points": [entry]}))
    assert (found.failed, found.broken) == (failed, broken)


def test_no_mean_over_seeds_is_over_fresh_ones(swept: Tree) -> None:
    tree = with_runs(swept, ["tepo"], TEST)
    lines = [run for of_line in figures.planned(tree)[0].values() for run in of_line]
    assert {run.seed for run in lines if run.method == "tepo"} == set(SELECT)


def arm(row: str, rate: float, shift: float, *, own: bool = False, recorded: bool = True) -> Point:
    """A method that learns with the log of its movement, on eight seeds."""
    noise = random.Random(f"{row} {rate}")
    movement = {seed: 100 * rate**2 * noise.uniform(0.8, 1.25) for seed in range(1, 9)}
    area = {seed: 0.8 + shift + 0.05 * math.log(m) + 0.01 * noise.random() for seed, m in movement.items()}
    key = row if own else f"{row}@rate"
    known: dict[int, float | None] = dict(movement) if recorded else dict.fromkeys(movement)
    return Point("tiny_qwen2", row, row, key, row, {"training.learning_rate": rate}, area, {}, known, ())


def frontiers(shift: float, **tepo: bool) -> list[Point]:
    """TEPO at four times GRPO's movement at the scale's own rate, and `shift` above it at equal movement."""
    rates = (0.005, 0.01, 0.02, 0.04)
    grpo = [arm("grpo", rate, 0.0, own=rate == 0.01) for rate in rates]
    return grpo + [arm("tepo", rate, shift, own=rate == 0.02, **tepo) for rate in rates]


@pytest.mark.parametrize("shift", [0.0, 0.05])
def test_what_is_left_at_equal_movement(swept: Tree, shift: float) -> None:
    """A method that only moves further has a difference at its own rate, and none at equal movement."""
    (row,) = sweep.matched(swept, frontiers(shift))
    assert (row["row"], row["versus"], row["tests"], row["clusters"]) == ("tepo", "grpo", 1, 8)
    assert row["total"] == pytest.approx(shift + 0.05 * math.log(4), abs=0.02)
    assert row["difference"] == pytest.approx(shift, abs=0.01)
    assert row["difference_low"] <= shift <= row["difference_high"]
    assert row["mark"] == ("↑" if shift else "≈")
    assert row["p_holm"] == row["p"]
    assert row["range_low"] == pytest.approx(0.01, rel=0.1)
    assert row["range_high"] == pytest.approx(0.04, rel=0.1)
    assert "| tepo | 0.0" in sweep.equal_movement(swept, [row], [])


def test_a_rate_that_breaks_a_method_is_drawn_and_left_out_of_the_comparison(swept: Tree) -> None:
    *others, last = frontiers(0.05)
    broken = replace(last, area=dict.fromkeys(last.area, 0.01), failed=(1,), broken=True)
    (row,), (without,) = sweep.matched(swept, [*others, broken]), sweep.matched(swept, others)
    assert row["how"] == f"{without['how']}; left out, because runs fail there: tepo at 0.04"
    assert row | {"how": ""} == without | {"how": ""}
    assert [point["broken"] for point in sweep.arms(swept, [*others, broken])] == ["no"] * 7 + ["yes"]
    (row,) = sweep.matched(swept, [replace(point, broken=True) for point in [*others, last]])
    assert (row["difference"], row["how"]) == (None, "tepo: no arm at the scale's own settings that learns")
    assert (row["movement"], row["total"]) == (without["movement"], without["total"]), "what was measured stays there"
