"""Seeds are added while something is undecided, and the line says how many are left."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from core.errors import MissingInputError
from core.layout import Run
from core.results_tree import Tree
from evals.stats.sequential import decide
from report import decide as deciding
from tests.report import synthetic


def test_every_method_is_decided_against_the_baseline_from_its_scores(embedded: Tree) -> None:
    rows = deciding.decisions(embedded, "score", 20, None)
    assert len(rows) > 10
    assert {row["baseline"] for row in rows} == {"grpo"}
    row = next(row for row in rows if (row["model"], row["method"]) == ("tiny_qwen2", "tepo"))
    scores = {
        method: {
            c.run.seed: score.value
            for (c, key), score in embedded.scores.items()
            if key == "avg_pooled"
            and (c.run.model, c.run.method) == ("tiny_qwen2", method)
            and c.step == max(embedded.runs[c.run]["steps"])
        }
        for method in ("tepo", "grpo")
    }
    differences = {seed: scores["tepo"][seed] - scores["grpo"][seed] for seed in scores["tepo"]}  # type: ignore[operator]
    expected = decide(differences, alpha=0.05 / len(rows))
    assert (row["verdict"], row["difference"], row["low"]) == (expected.verdict, expected.difference, expected.low)


def test_the_line_names_what_is_open_and_the_next_seeds() -> None:
    done = {"model": "m", "method": "gspo", "verdict": "lower", "seeds_left": 0, "more_starts": False}
    rest = {"model": "m", "method": "tepo", "verdict": "undecided", "seeds_left": 3, "more_starts": False}
    assert deciding.line([done, rest], [1, 2, 8], 4) == (
        "1 of 2 decided (gspo lower); undecided: tepo; 3 seeds left of the budget; next: --config seeds=9,10,11"
    )
    assert "next" not in deciding.line([rest | {"seeds_left": 0}], [1], 4)
    used = rest | {"seeds_left": 0, "more_starts": True, "clean_models": 4}
    assert deciding.line([used], [1, 2], 4).endswith(
        "; 0 seeds left of the budget; m: further seeds continue the same 4 clean models: set made_here.starts above 4 "
        "in config/models/m.yaml"
    )
    assert deciding.line([done], [1], 4) == "1 of 1 decided (gspo lower); nothing is left to decide"
    assert set(csv.DictReader([",".join(deciding.HEADER)]).fieldnames or ()) >= {"verdict", "low", "high", "e"}


def test_without_the_baseline_there_is_nothing_to_decide(embedded: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(embedded.matrix, "baseline", "nobody")
    with pytest.raises(MissingInputError, match="no finished run of nobody"):
        deciding.decisions(embedded, "score", 20, None)


def test_areas_are_read_from_curves_alone(tmp_path: Path) -> None:
    tree = Tree(synthetic.write_tree(tmp_path / "mine", seeds=(1, 2, 3)))
    tree.matrix["baseline"] = "grpo"
    tree.layout.scores.unlink()
    again = Run("tiny_qwen2", "grpo@again", 1)  # runs with a variant are no reason to read scores
    tree.runs[again] = {"steps": [12]}
    every = deciding.decisions(tree, "area", 20, None)
    assert len(every) > 1
    with pytest.raises(MissingInputError, match="scores"):
        deciding.decisions(tree, "score", 20, None)
