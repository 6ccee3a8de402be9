"""Another question in a tree that is there adds to it: what is finished stays, other settings are refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from core import digests
from core.errors import ConfigError
from core.files import write_json
from core.layout import BASE, Checkpoint, Results, Run
from core.results_tree import Tree
from tests.merged_config import load
from tests.workflow.test_config import EMBEDDED, QUICK
from workflow import tree
from workflow.plan import plan

FILES = [EMBEDDED, QUICK]
HOT = {"matrix": [{"variant": "hot", "models": ["tiny_qwen2"], "methods": ["gpg"], "seeds": [1], "steps": [12]}]}


def asked(results: Results, **options: Any) -> dict[str, Any]:
    """The matrix.json that a question leads to."""
    return dict(plan(FILES, options, root=results.root.parent).matrix)


def finish(results: Results, content: dict[str, Any], *methods: str) -> None:
    """Write the tree's matrix.json, and what says that runs of these methods, and the base models, are finished."""
    write_json(results.matrix, digests.with_own(content))
    for entry in content["checkpoints"]:
        if entry["method"] in (*methods, BASE):
            checkpoint = Checkpoint.parse(f"{entry['model']}/{entry['method']}/seed{entry['seed']}/step{entry['step']}")
            write_json(Path(results.grades(checkpoint)) / "grades.json", {})
            write_json(Path(results.run(checkpoint.run)) / "run.json", {})


def planned(content: dict[str, Any]) -> list[str]:
    return [f"{entry['method']}/seed{entry['seed']}: {entry['steps']}" for entry in content["runs"]]


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """The quick tree, where GRPO and TEPO are finished, and GSPO is not."""
    results = Results(tmp_path / "quick")
    finish(results, asked(results, methods="grpo,tepo,gspo"), "grpo", "tepo")
    return results


def test_a_finished_run_without_evaluation_stays_for_its_curve(tmp_path: Path) -> None:
    results = Results(tmp_path / "quick")
    first = asked(results, methods="grpo,tepo")
    first["checkpoints"] = [entry for entry in first["checkpoints"] if entry["method"] == BASE]
    finish(results, first)
    write_json(Path(results.run(Run("tiny_qwen2", "tepo", 1))) / "run.json", {})
    content = asked(results, methods="gpg")
    assert planned(content) == ["gpg/seed1: [12]", "tepo/seed1: [12]"], "and GRPO's run is not finished"
    assert {entry["method"] for entry in content["checkpoints"]} == {BASE, "gpg"}


def test_what_is_finished_stays_beside_what_is_asked_for(results: Results) -> None:
    content = asked(results, methods="gpg", seeds="3")
    assert planned(content) == ["gpg/seed3: [12]", "grpo/seed1: [12]", "tepo/seed1: [12]"]
    assert [entry["key"] for entry in content["methods"]] == ["gpg", "grpo", "tepo"]
    assert content["seeds"] == [1, 3]
    assert [(entry["method"], entry["seed"]) for entry in content["checkpoints"]] == [
        (BASE, 3), ("gpg", 3), (BASE, 1), ("grpo", 1), ("tepo", 1)
    ]  # fmt: skip
    write_json(results.matrix, digests.with_own(content))
    assert len(Tree(results.root).runs) == 3


def test_asking_again_changes_nothing(results: Results) -> None:
    first = asked(results, methods="gpg")
    write_json(results.matrix, digests.with_own(first))
    assert asked(results, methods="gpg") == first
    assert sorted(planned(asked(results, methods="grpo,tepo"))) == ["grpo/seed1: [12]", "tepo/seed1: [12]"], (
        "gpg was asked for and is not finished"
    )


def test_a_model_and_a_variant_of_an_earlier_question_stay(results: Results) -> None:
    finish(results, asked(results, **copy.deepcopy(HOT), models="tiny_llama"), "gpg@hot")
    content = asked(results, methods="grpo")
    assert planned(content) == ["grpo/seed1: [12]", "gpg@hot/seed1: [12]", "tepo/seed1: [12]"]
    assert [entry["key"] for entry in content["models"]] == ["tiny_qwen2", "tiny_llama"]
    assert content["variants"]["hot"]["changes"] == {"training.learning_rate": 2e-4}
    assert {"model": "tiny_llama", "method": BASE, "seed": 1, "step": 0} in content["checkpoints"]


def test_a_run_keeps_its_other_checkpoints(results: Results) -> None:
    block = {"models": ["tiny_qwen2"], "methods": ["grpo"], "seeds": [1]}
    finish(results, asked(results, matrix=[block | {"steps": [4, 12]}]), "grpo")
    assert "grpo/seed1: [4, 12]" in planned(asked(results, methods="grpo"))


REFUSED = [
    ({"training": {"learning_rate": "3e-5"}}, r"training.learning_rate: 3e-05, but .*quick holds .* with 0\.0001; "),
    ({"training": {"rollouts": "14"}}, "training.rollouts: 14, but .* with 12; a tree of its own: --config name="),
    ({"evaluation": {"benchmarks": "syn_mix3"}}, "evaluation.benchmarks: syn_mix3, but .* with syn_mix3, syn_inv2"),
    ({"evaluation": {"seed": "1"}}, "evaluation.seed: 1, but "),
    ({"base": {"ladder": "wide"}}, "base.ladder: wide, but .* with quick"),
    ({"prompts": {"ladder": "taught"}}, "prompts.ladder: taught, but .* with None"),
    ({"trainer": "verl"}, "trainer: verl, but .* with trl"),
]


def test_other_settings_are_refused(results: Results) -> None:
    for options, message in REFUSED:
        with pytest.raises(ConfigError, match=rf"^command line \(--config\): {message}.*$") as caught:
            asked(results, methods="gpg", **options)
        assert "\n" not in str(caught.value)


def test_one_more_benchmark_is_for_all_runs_of_the_tree(results: Results) -> None:
    every = load(FILES)["evaluation"]["benchmarks"]
    more = {"evaluation": {"benchmarks": [*reversed(every), "syn_iter3"]}}
    assert len(asked(results, methods="grpo,tepo,gspo", **more)["benchmarks"]) == len(every) + 1
    with pytest.raises(ConfigError, match=r"evaluation\.benchmarks: .*syn_iter3, but"):
        asked(results, methods="grpo", **more)


def test_other_settings_are_fine_where_nothing_is_finished(tmp_path: Path) -> None:
    results = Results(tmp_path / "quick")
    write_json(results.matrix, digests.with_own(asked(results)))
    assert asked(results, training={"learning_rate": "3e-5"})["training"]["learning_rate"] == 3e-5


def test_a_method_that_is_gone_is_named_and_left_out(results: Results) -> None:
    content = asked(results)
    for part in ("runs", "checkpoints", "methods"):
        for entry in content[part]:
            for key in ("method", "key"):
                entry |= {key: "mine"} if entry.get(key) == "tepo" else {}
    finish(results, content, "mine", "gspo")
    before, _ = tree.recorded(results)
    assert tree.gone(before) == ["mine"]
    assert planned(asked(results, methods="grpo")) == ["grpo/seed1: [12]", "gspo/seed1: [12]"]


def test_a_damaged_list_is_said_and_not_in_the_way(results: Results) -> None:
    results.matrix.write_text(results.matrix.read_text().replace("tepo", "topo"))
    before, problem = tree.recorded(results)
    assert before is None
    assert problem is not None
    assert "matrix.json" in problem
    assert "\n" not in problem
