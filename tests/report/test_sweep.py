"""A sweep's table and choice follow from the scores that they name; fresh seeds are never averaged with the others."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from records.layout import Run
from records.results_tree import Tree
from report import sweep
from report.tables import runs, spec, tidy
from tests.report import synthetic
from tests.report.tables import filled

SELECT, TEST = (1, 2), (3, 4)
METHODS = {"gspo": "grpo@high", "tepo_nokl": "tepo@high"}  # synthetic method -> the point whose place it takes


def swept_tree(root: Path) -> Tree:
    """Two methods at two rates on seeds 1 and 2; the chosen ones on 3 and 4."""
    tree = Tree(synthetic.write_tree(root, seeds=(*SELECT, *TEST), scale="rates"))
    value = json.loads(tree.layout.matrix.read_text())
    for place in ("runs", "samples", "grades"):
        for old, new in METHODS.items():
            (root / place / "tiny_qwen2" / old).rename(root / place / "tiny_qwen2" / new)
    for entry in (*value["runs"], *value["checkpoints"]):
        entry["method"] = METHODS.get(entry["method"], entry["method"])
    titles = {"grpo": "GRPO/DAPO", "tepo": "TEPO"}
    high = {f"{key}@high": f"{title}, learning rate 0.0002" for key, title in titles.items()}
    value["methods"] = [{"key": key, "row": key, "title": title} for key, title in (titles | high).items()]
    value["variants"] = {"high": {"title": "learning rate 0.0002", "changes": {"training.learning_rate": 2e-4}}}
    value["training"]["learning_rate"] = 1e-4
    chosen = ("grpo@high", "tepo@high")
    value["runs"] = [r for r in value["runs"] if r["seed"] in SELECT or r["method"] in chosen]
    kept = {(r["method"], r["seed"]) for r in value["runs"]} | {("base", 0)}
    value["checkpoints"] = [c for c in value["checkpoints"] if (c["method"], c["seed"]) in kept]
    value["sweep"] = {
        "axes": {"training.learning_rate": [1e-4, 2e-4]}, "select_seeds": SELECT, "test_seeds": TEST, "by": "score",
        "question": "q",
        "points": [
            {"model": "tiny_qwen2", "row": row, "base": row, "text": row, "method": row + at, "steps": [12],
             "values": {"training.learning_rate": rate}}
            for row in titles for at, rate in (("", 1e-4), ("@high", 2e-4))
        ],
    }  # fmt: skip
    tree.layout.matrix.write_text(json.dumps(value))
    for path in root.glob("runs/*/*@high/*/run.json"):
        record = json.loads(path.read_text())
        record["spec"] |= {"method": path.parent.parent.name.split("@")[0], "variant": "high"}
        path.write_text(json.dumps(record))
    from evals.score import rows
    from records.scores import write_scores

    tree = Tree(root)
    write_scores(tree.layout.scores, rows(tree.layout, tree.checkpoints, [b["key"] for b in synthetic.BENCHMARKS]))
    return tree


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return swept_tree(tmp_path_factory.mktemp("swept") / "rates")


def test_rank_regret_and_choice_follow_from_the_selection_seeds(swept: Tree) -> None:
    rows = {(row["method"], row["values"]): row for row in sweep.table(swept)}
    assert len(rows) == 4
    for (method, _), row in rows.items():
        scores = [
            score.value
            for (checkpoint, key), score in swept.scores.items()
            if key == "avg_pooled" and checkpoint.run.method == method and checkpoint.run.seed in SELECT
        ]
        assert row["score"] == pytest.approx(sum(scores) / 2)
        rival = next(r for r in rows.values() if r["values"] == row["values"] and r is not row)
        assert row["rank"] == (1 if row["score"] > rival["score"] else 2)
        twin = next(r for r in rows.values() if r["row"] == row["row"] and r is not row)
        assert row["regret"] == pytest.approx(max(0.0, twin["score"] - row["score"]))
        assert (row["chosen"] == "yes") == (row["regret"] == 0)
    assert {row["method"] for row in rows.values() if row["own"] == "yes"} == {"grpo", "tepo"}
    chosen = {row["method"] for row in sweep.choice(swept) if row["chosen"] == "yes"}
    assert chosen == {row["method"] for row in rows.values() if row["chosen"] == "yes"}
    assert {row["select_seeds"] for row in sweep.choice(swept)} == {"1 2"}


def test_fresh_seeds_have_a_block_of_their_own_with_the_baseline_at_its_own_value(swept: Tree) -> None:
    blocks = runs.declare(swept).blocks
    fresh = [row for row in blocks[0].rows if row.method != "base"]
    assert [(row.method, row.seeds) for row in fresh] == [("grpo@high", TEST), ("tepo@high", TEST)]
    assert blocks[0].baseline == fresh[0].id
    others = [row for block in blocks[1:] for row in block.rows if row.method != "base"]
    assert {row.seeds for row in others} == {SELECT}
    shown = [Run("tiny_qwen2", str(row.method), seed) for row in (*fresh, *others) for seed in row.seeds or ()]
    assert sorted(shown) == sorted(swept.runs)
    table = filled(swept, "runs")
    assert [row.label for row in table.blocks[0]][1:] == [
        "GRPO/DAPO, learning rate 0.0002", "TEPO, learning rate 0.0002",
    ]  # fmt: skip


def test_the_papers_rows_do_not_average_over_fresh_seeds(swept: Tree) -> None:
    tree = Tree(swept.root)
    # As when the scale's own value was chosen: the plain runs are on fresh seeds too.
    more = [{"model": "tiny_qwen2", "method": "tepo", "row": "tepo", "seed": seed, "steps": [12]} for seed in TEST]
    tree.matrix = swept.matrix | {
        "runs": swept.matrix["runs"] + more,
        "checkpoints": swept.matrix["checkpoints"]
        + [{"model": "tiny_qwen2", "method": "tepo", "seed": seed, "step": 12} for seed in TEST],
    }
    (row,) = (row for row in spec.table("1").rows if row.id == "T1.8")
    assert {checkpoint.run.seed for checkpoint in tidy.planned(row, "tiny_qwen2", tree)} == set(SELECT)


def test_the_files_hold_what_the_page_shows(swept: Tree) -> None:
    names = {path.name for path in sweep.write(swept)}
    assert names == {"sweep.csv", "sweep.md", "sweep.svg", "sweep.png"}
    with open(swept.root / "sweep/sweep.csv", encoding="utf-8", newline="") as stream:
        assert len(list(csv.DictReader(stream))) == 4
    text = (swept.root / "sweep/sweep.md").read_text()
    assert "training.learning_rate=0.0001 (scale's own)" in text
    svg = (swept.root / "sweep/sweep.svg").read_text()
    assert "learning rate" in svg
    assert all(title in svg for title in ("GRPO/DAPO", "TEPO", "Area under reward"))


@pytest.mark.parametrize(
    ("values", "log"),
    [((5e-5, 1e-4, 2e-4), True), ((1, 2, 3), False), ((0.001, 0.1), True), ((1, 2), False), ((0, 1, 10), False)],
)
def test_the_axis_is_logarithmic_where_the_values_are_spaced_so(values: tuple[float, ...], log: bool) -> None:
    assert sweep.is_geometric(values) is log


def test_a_tree_without_a_sweep_says_so(scored: Tree) -> None:
    from records.errors import MissingInputError

    with pytest.raises(MissingInputError, match="sweep: this tree has none"):
        sweep.table(scored)
