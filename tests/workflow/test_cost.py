"""`snakemake plan`: counts as the DAG has them, hours, disk and GPU memory, every missing thing named."""

import copy
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.layout import Run
from methods import catalog
from methods.training import spec
from methods.training.spec import Training
from models import registry
from tests.merged_config import load
from tests.workflow.conftest import Snakemake, finish, run_snakemake
from tests.workflow.test_config import files_of
from tests.workflow.test_config import planned as jobs_of
from workflow import cost
from workflow.matrix import Matrix
from workflow.plan import GIB, Plan, generate_need, train_need

EMBEDDED, PAPER = load(files_of("embedded")), load(files_of("paper"))


@pytest.fixture(autouse=True)
def _any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether this machine has Slurm, a GPU or a small disk must not matter."""
    monkeypatch.setattr(cost.shutil, "which", lambda name: None)
    free_disk(monkeypatch, 10**15)


def free_disk(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(cost.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(size, 0, size))


def asked(folder: Path, config: dict[str, Any] = PAPER) -> Plan:
    config = copy.deepcopy(config)
    config["evaluation"]["data"] = str(folder / "data")
    return Plan(config | {"results": str(folder)})


def test_the_papers_plan_by_hand(tmp_path: Path) -> None:
    """72 rollouts but for the two of 132; 350 s a rollout are printed, for 7B on 8 GPUs as is assumed."""
    of = asked(tmp_path)
    sizes = {p.run.model: cost.parameters(p.run.model) for p in of.planned}
    rollouts = {model: sum(max(p.steps) for p in of.planned if p.run.model == model) for model in sizes}
    assert (rollouts["qwen2.5_7b"], rollouts["qwen3_14b"]) == (27 * 72 + 2 * 132, 7 * 72)
    by_hand = sum(rollouts[model] * 350 * 8 * sizes[model] / 7.6e9 for model in sizes)
    found = cost.jobs(of)
    assert found.loc[found["stage"] == "train", "seconds"].sum() == pytest.approx(by_hand)
    saved = 4 * sum(sizes[p.run.model] * len(p.steps) for p in of.planned)
    assert cost.disk(of, 64)["checkpoints"] == pytest.approx(saved)
    downloads = sum(thing.download for thing in cost.missing(of))
    assert downloads == pytest.approx(2 * sum(sizes.values()) + 290e6 + 1_400 * 4_411)


@pytest.mark.slow
def test_what_is_planned_is_what_snakemake_runs_and_on_one_machine_no_two_share_a_gpu(dry_run: Snakemake) -> None:
    """Each would take the first GPU: nothing tells a job which of several is its own."""
    said = dry_run("--configfile", "config/paper.yaml").stdout
    jobs = jobs_of(said)
    assert (jobs["train"] + jobs["train_nodes"], jobs["train_nodes"], jobs["generate"]) == (42, 7, 51)
    assert {*re.findall(r"\bgpu=(\d+)", said)} - {"0"} == {"1"}


def test_a_run_that_follows_another_is_planned_like_any_other(tmp_path: Path) -> None:
    made = asked(tmp_path, load(files_of("yoked")))
    assert cost.problems(made, gpus=2) == []
    followers = {planned.run.method: made.yoke(planned) for planned in made.planned if planned.run.seed == 3}
    curve = f"{made.results.root}/runs/tiny_qwen2/tepo/seed3/curve.csv"
    assert (followers["grpo@as_tepo"], followers["grpo@flat"]) == (curve, None)


def test_the_plan_is_a_target_that_runs_no_job(clone: Path) -> None:
    said = run_snakemake(clone, "plan", "--configfile", "config/quick.yaml")
    assert said.returncode == 0, said.stderr
    first, _, train, generate, *_ = said.stdout.splitlines()
    assert (first, train.split()[:3], generate.split()[:3]) == (
        "quick: Quick run", ["train", "6", "6"], ["generate", "5", "5"]
    )  # fmt: skip
    assert not any((clone / folder).exists() for folder in ("results", "logs"))


def test_hours_are_those_of_finished_runs_of_the_same_model_and_trainer(tmp_path: Path) -> None:
    variants = {
        "by_verl": {"title": "verl", "trainer": "verl"},
        "half": {"title": "half", "training": {"samples_per_prompt": 4}},
    }
    block = {"models": ["tiny_qwen2"], "methods": ["grpo"], "seeds": [1, 2], "steps": [4]}
    blocks = [block, *(block | {"variant": name} for name in variants)]
    options = {"variants": variants, "matrix": blocks, "training": {"samples_per_prompt": 8}}
    of = asked(tmp_path, load(files_of("quick"), options))
    assert cost.jobs(of)["seconds"].isna().all()
    assert "  train             6        6  unknown, unknown to do" in cost.lines(of, 2)
    for method, wall in (("grpo", 3600.0), ("grpo@by_verl", 36_000.0)):
        finish(of, {of.results.run(Run("tiny_qwen2", method, 1)) / "run.json"}, wall_seconds=wall)
    of = replace(of)
    seconds = {p.run.method: took for p, took in zip(of.planned, cost.jobs(of)["seconds"], strict=False)}
    assert seconds == {"grpo": 3600.0, "grpo@by_verl": 36_000.0, "grpo@half": 1800.0}
    assert "  train             6        4  23.0, 12.0 to do" in cost.lines(of, 2)
    first = of.checkpoints[0]
    finish(of, {of.samples(first)}, benchmarks={"a": {"seconds": 5.0}, "b": {"seconds": 2.5}})
    of = replace(of)
    found = cost.jobs(of).query("stage == 'generate'")
    assert (set(found["seconds"]), found["done"].sum()) == ({7.5}, 1)


def test_what_snakemake_fetches_is_listed_and_neither_missing_nor_wrong(tmp_path: Path) -> None:
    of = asked(tmp_path)
    assert cost.problems(of, 64) == []
    found = "\n".join(cost.lines(of, 64))
    assert all(f"model {model} " in found for model in of.models)
    assert re.search(r"training problems BytedTsinghua-SIA/DAPO-Math-17k +0\.3 GB", found)
    assert "benchmarks aime24, aime25, amc" in found


# What is changed of `cluster`, and what is said of it.
WRONG = [
    ({"gpus_per_node": 6}, r"run qwen2\.5_7b/grpo/seed2: .*1 x 6 GPUs do not divide"),
    ({"rollout_memory": 0.9}, r"GiB in the phase `sampling`.* lower cluster.rollout_memory \(0.9\)"),
    ({"rollout_memory": 0.1}, r"the inference engine needs 1\d.\d GiB and gets 7.9 .* raise cluster"),
    ({"gpus_per_node": 1}, r"in the phase `optimiser step`.* raise cluster.sizes.7B"),
    ({"max_tokens_per_gpu": 150_000}, r"GiB .* `update`.* lower cluster.max_tokens_per_gpu \(150000; at l"),
    ({"gpu": "H100"}, r"cluster.gpu: unknown value 'H100'; allowed: .*nearest: H100-80GB"),
]


def test_what_is_wrong_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = asked(tmp_path)
    for changes, message in WRONG:
        found = cost.problems(asked(tmp_path, PAPER | {"cluster": PAPER["cluster"] | changes}), 64)
        assert any(re.search(message, line) for line in found), (changes, found)
        assert all("\n" not in line for line in found)
        assert len(found) <= 6, "once for all runs of a kind"
    assert cost.problems(of, 8) == ["cluster.gpus: 8, and a run needs 16"]
    with monkeypatch.context() as small:
        free_disk(small, 10**9)
        (said,) = cost.problems(of, 64)
        assert cost.show(of) == 1
    assert re.match(r"disk: 3,\d+ GB will be written, 1 GB are free in ", said)
    # No GPU here: jobs run elsewhere, and bring the CPUs that Ray would wait for.
    monkeypatch.setattr(cost.os, "cpu_count", lambda: 33)
    assert cost.problems(of, 64) == []
    monkeypatch.setattr(cost.shutil, "which", lambda name: name if name == "nvidia-smi" else None)
    first, second = cost.problems(of, 64)  # the runs on 8 and those on 16 GPUs, a line each
    for line in (first, second):
        assert re.search(r"CPUs: this machine has 33; a run on (\d+) GPUs needs (\d+)", line)
    assert cost.problems(asked(tmp_path / "cpu", EMBEDDED), 1) == []


# of the tensors in the hub repositories, as their pages state them
PARAMETERS = {
    "qwen2.5_0.5b": 494_032_768, "qwen2.5_1.5b": 1_543_714_304, "qwen2.5_7b": 7_615_616_512,
    "r1_distill_qwen_7b": 7_615_616_512, "qwen3_14b": 14_768_307_200, "r1_distill_llama_8b": 8_030_261_248,
    "mistral_7b_instruct_v0.2": 7_241_732_096,
}  # fmt: skip


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3", "llama", "mistral"])
def test_parameters_are_counted_as_transformers_makes_them_and_the_hub_states_them(model_type: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "vocab_size": 50, "head_dim": 8}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    for tied in (False, True):
        with torch.device("meta"):
            config = AutoConfig.for_model(model_type, **sizes, tie_word_embeddings=tied)
            made = AutoModelForCausalLM.from_config(config)
        declared = registry.Shape(model_type=model_type, **sizes, tie_word_embeddings=tied, source="here")
        assert declared.parameters == made.num_parameters()
        assert declared.layer_parameters == sum(p.numel() for p in made.model.layers[0].parameters())
    assert {model: cost.parameters(model) for model in PARAMETERS} == PARAMETERS


def training(**changes: Any) -> Training:
    """Of the paper's GRPO on Qwen2.5-7B."""
    paper = Matrix(PAPER)
    return spec.check(paper.specification(paper.planned[0], "base", "prompts")).training.model_copy(update=changes)


def test_memory_grows_with_what_takes_it() -> None:
    """Each part of the estimate by a change of the setting that alone decides it."""
    method, qwen = catalog.parse("tepo"), registry.model("qwen2.5_7b").shape
    assert qwen is not None

    def phases(**changes: Any) -> dict[str, float]:
        return cost.verl_memory(qwen, training(**changes), method, 79.1)

    usual, flash, twice = phases(), phases(attention="flash_attention_2"), phases(nodes=2)
    ratio, tokens = cost.FRAGMENTATION / GIB, cost.largest_batch(training(), method)
    assert usual["update"] - flash["update"] == pytest.approx(3 * tokens**2 * ratio)
    assert usual["update"] - twice["update"] == pytest.approx(16 * qwen.parameters / 16 * ratio)
    assert usual["optimiser step"] == pytest.approx(2.5 + 24 * qwen.parameters / 8 * ratio)
    assert phases(offload=True)["optimiser step"] == pytest.approx(2.5)
    assert usual["sampling"] == pytest.approx(1 + 12 * qwen.parameters / 8 / GIB + 0.6 * 79.1)
    rows = cost.largest_batch(training(cov_scope="microbatch"), catalog.parse("clip_cov"))
    assert rows <= 2 * (2048 + 8192)


GPU = {"device": "cuda", "rollouts": 72, "gpus_per_node": 8}


def test_jobs_request_what_their_settings_need() -> None:
    needs = [train_need(settings) for settings in ({}, {"device": "cpu"}, GPU, GPU | {"nodes": 2})]
    assert [(need.gpus, need.nodes) for need in needs] == [(0, 1), (0, 1), (8, 1), (16, 2)]
    assert train_need(GPU | {"rollouts": 132}).minutes > train_need(GPU).minutes > 72 * 357 / 60  # as printed
    # transformers takes a GPU that it finds, and 7B without one need more than a core, an hour and 4 GB
    paper_with_hf = load(files_of("paper"), {"evaluation": {"backend": "hf"}})
    on_cuda = load(files_of("quick"), {"training": {"device": "cuda"}})
    found = [generate_need(config).gpus for config in (EMBEDDED, PAPER, paper_with_hf, on_cuda)]
    assert found == [0, 1, 1, 1]
