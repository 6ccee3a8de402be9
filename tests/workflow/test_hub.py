"""A hub model and a hub data set become training prompts through the workflow's own rules, or one line says why not."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from core.files import read_json, read_jsonl
from models import tokenizer as tokenizers
from models import training_data
from tests.merged_config import load
from tests.models.hub_server import COMMIT, environment, hub
from tests.workflow.conftest import copy_of, run_snakemake
from workflow import matrix

OVER = """
matrix: [{models: [qwen2.5_7b], methods: [tepo], seeds: [1], steps: [72]}]
prompts: {count: 5}
evaluation: {long_step: null}
"""
SOURCE = training_data.source("dapo_math_17k")


def repositories(folder: Path) -> dict[str, dict[str, bytes]]:
    """A model that is all tokenizer, and a data set of ten problems, each twice."""
    tokenizers.save(folder)
    model = {path.name: path.read_bytes() for path in folder.iterdir()}
    rows = [
        {
            "prompt": [
                {
                    "role": "user",
                    "content": f"{training_data.DAPO_BEFORE}How far is ${n}$ from zero?{training_data.DAPO_AFTER}",
                }
            ],
            "reward_model": {"ground_truth": str(n)},
        }
        for n in [*range(10)] * 2
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "set.parquet")
    return {
        "models/Qwen/Qwen2.5-7B": model | {"config.json": b"{}", "model.safetensors": b"weights"},
        f"datasets/{SOURCE.dataset}": {SOURCE.path: (folder / "set.parquet").read_bytes()},
    }


@pytest.mark.slow
def test_prompts_are_made_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = copy_of(tmp_path / "clone")
    (clone / "over.yaml").write_text(OVER)
    config = load([clone / "config/embedded.yaml", clone / "config/paper.yaml", clone / "over.yaml"])
    prompts = f"results/cache/prompts/{matrix.prompts_name(config, 'qwen2.5_7b', 1)}"
    words = (prompts, "--cores", "1", "--configfile", "config/paper.yaml", "over.yaml")
    (tmp_path / "hub").mkdir()
    with hub(repositories(tmp_path / "hub")) as (address, asked):
        for name, value in environment(address, tmp_path / "home").items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        refused = run_snakemake(clone, *words)
        assert refused.returncode != 0
        assert "cannot be fetched" in refused.stdout + refused.stderr
        assert asked == [], "the user's own HF_HUB_OFFLINE is kept to"
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        done = run_snakemake(clone, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(read_jsonl(clone / prompts)) == 5
    cache = clone / "results/cache"
    assert read_json(cache / "models/qwen2.5_7b-unpinned/base.json")["commit"] == COMMIT
    record = read_json(cache / "data/dapo_math_17k-unpinned.json")
    assert (record["commit"], record["distinct"], record["rows"]) == (COMMIT, 10, 20)
