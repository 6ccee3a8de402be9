"""The paper's rows are planned at both scales, each run once; what a cluster adds to a run; names in the cache."""

from __future__ import annotations

import copy
import csv
from pathlib import Path
from typing import Any

import pytest

from methods.training import spec as specs
from models import registry
from records.errors import ConfigError
from tests.merged_config import load
from workflow import matrix

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "embedded": [ROOT / "config/embedded.yaml"],
    "paper": [ROOT / "config/embedded.yaml", ROOT / "config/paper.yaml"],
}
CONFIGS = {scale: load(files) for scale, files in FILES.items()}
SLOTS = {
    "q7": "Qwen2.5-7B",
    "q14": "Qwen3-14B",
    "l8": "DeepSeek-R1-Distill-Llama-8B",
    "m7": "Mistral-7B-Instruct-v0.2",
    "dq7": "DeepSeek-R1-Distill-Qwen-7B",
}
STEPS = {"72": "table_step", "132": "long_step"}
with open(ROOT / "paper/tables/rows.csv", encoding="utf-8", newline="") as stream:
    ROWS = {row["row"]: row for row in csv.DictReader(stream) if row["kind"] in ("run", "base")}


def slot(config: dict[str, Any], name: str) -> str:
    """The scale's model that stands for one of the paper's."""
    (found,) = [key for key in matrix.models_of(config) if registry.model(key).stands_for == SLOTS[name]]
    return found


@pytest.mark.parametrize(
    ("scale", "runs", "checkpoints", "evaluations"), [("embedded", 122, 126, 131), ("paper", 36, 38, 43)]
)
def test_counts(scale: str, runs: int, checkpoints: int, evaluations: int) -> None:
    planned = matrix.plan(CONFIGS[scale])
    assert len(planned) == len({p.run for p in planned}) == runs
    assert sum(len(p.checkpoints) for p in planned) == checkpoints
    assert len(matrix.checkpoints(CONFIGS[scale])) == evaluations


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("scale", CONFIGS)
def test_every_row_of_the_paper_is_a_planned_checkpoint(scale: str, row: str) -> None:
    config, wanted = CONFIGS[scale], ROWS[row]
    model = slot(config, wanted["model"])
    found = [p for p in matrix.plan(config) if p.run.model == model]
    if wanted["kind"] == "base":
        assert found
        return
    step = config["evaluation"][STEPS[wanted["steps"]]]
    matches = [p for p in found if (p.row, p.run.seed) == (wanted["method"], int(wanted["seed"])) and step in p.steps]
    assert len(matches) == 1, f"{row}: {wanted['method']} on {model}, seed {wanted['seed']}, step {step}"


def test_the_papers_sizes_reach_every_run() -> None:
    """Section 4.1, as a specification of methods.train."""
    config = CONFIGS["paper"]
    for planned in matrix.plan(config):
        t = specs.check(matrix.specification(config, planned, "base", "prompts")).training
        assert (t.prompts_per_rollout, t.samples_per_prompt, t.rows_per_minibatch, t.updates_per_rollout) == (
            64,
            8,
            128,
            4,
        )
        assert (t.learning_rate, t.weight_decay, t.temperature, t.filter) == (5e-7, 0.0, 1.0, "refill")
        assert (t.max_prompt_tokens, t.max_completion_tokens, t.precision) == (2048, 8192, "bfloat16")
        assert (t.nodes, t.gpus_per_node, t.tensor_parallel) == ((2, 8, 2) if "14b" in planned.run.model else (1, 8, 1))
        assert t.rollouts == max(planned.steps)


def test_a_cluster_changes_nothing_for_models_made_here() -> None:
    config = copy.deepcopy(CONFIGS["embedded"])
    before = [matrix.training(config, planned) for planned in matrix.plan(config)]
    config["cluster"] = CONFIGS["paper"]["cluster"]
    assert [matrix.training(config, planned) for planned in matrix.plan(config)] == before


def test_a_size_the_cluster_does_not_know_is_named() -> None:
    config = copy.deepcopy(CONFIGS["paper"])
    del config["cluster"]["sizes"]["14B"]
    (planned,) = [p for p in matrix.plan(config) if p.run.path.as_posix() == "qwen3_14b/grpo/seed2"]
    with pytest.raises(ConfigError, match=r"cluster\.sizes \(for qwen3_14b\): unknown value '14B'; allowed: 7B, 8B"):
        matrix.training(config, planned)


def test_names_in_the_cache_follow_what_decides_the_content(monkeypatch: pytest.MonkeyPatch) -> None:
    config = copy.deepcopy(CONFIGS["paper"])
    one, other = (matrix.prompts_name(config, key) for key in ("qwen2.5_7b", "r1_distill_llama_8b"))
    assert one.endswith("/qwen2.5_7b-unpinned.jsonl")
    assert one != other, "each model has its own chat template"
    for key, value in {"count": 64, "seed": 1, "revision": "0" * 40}.items():
        changed = copy.deepcopy(config)
        changed["prompts"][key] = value
        assert matrix.prompts_name(changed, "qwen2.5_7b") != one, key
    pinned = registry.Model(title="Qwen", stands_for="Qwen2.5-7B", hub="a/b", revision="1" * 40, size="7B")
    monkeypatch.setattr(registry, "model", lambda key: pinned)
    assert matrix.base_name(config, "qwen2.5_7b") == f"qwen2.5_7b-{'1' * 40}"
    embedded = CONFIGS["embedded"]
    monkeypatch.undo()
    assert len({matrix.prompts_name(embedded, key) for key in matrix.models_of(embedded)}) == 1
