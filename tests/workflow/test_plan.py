"""`snakemake plan`: counts as the DAG has them, estimates of time and GPU memory, every missing thing named."""

import copy
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.errors import ConfigError
from core.files import write_json, write_text
from core.layout import Results, Run
from methods import catalog
from methods.training import spec
from methods.training.curve import COLUMNS
from methods.training.spec import Training
from models import registry
from tests.merged_config import load
from tests.workflow.conftest import ROOT, Snakemake
from tests.workflow.test_config import files_of
from tests.workflow.test_config import planned as jobs_of
from workflow import estimate, matrix, memory, preflight, resources, summary
from workflow.estimate import World
from workflow.matrix import Planned
from workflow.plan import plan

EMBEDDED, PAPER = load(files_of("embedded")), load(files_of("paper"))
FLASH = load(files_of("paper"), {"cluster": {"attention": "flash_attention_2"}})
TABLE = estimate.read()


@pytest.fixture(autouse=True)
def _any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether this machine has Slurm, a GPU or a small disk must not matter."""
    monkeypatch.setattr(preflight.shutil, "which", lambda name: None)
    monkeypatch.setattr(preflight, "_answer", lambda command: None)
    free_disk(monkeypatch, 10**15)


def free_disk(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(size, 0, size))


def world(folder: Path, config: dict[str, Any] = PAPER) -> World:
    config = copy.deepcopy(config)
    config["evaluation"]["data"] = str(folder / "data")
    return World(config, Results(folder / config["scale"]), folder / "cache", TABLE)


def problems(of: World, gpus: int = 64) -> list[str]:
    return preflight.problems(of, [*estimate.train(of), *estimate.generate(of)], gpus)


def test_the_papers_plan_by_hand(tmp_path: Path) -> None:
    """35 runs on 8 GPUs (33 of 7B, 2 of 8B) and 7 on 16, 72 rollouts but for the two of 132."""
    of = world(tmp_path, FLASH)
    trains = estimate.train(of)
    rollouts_7b, rollouts_8b, rollouts_14b = 31 * 72 + 2 * 132, 2 * 72, 7 * 72
    by_hand = (rollouts_7b * 350 * 8 + rollouts_8b * 370 * 8 + rollouts_14b * 350 * 16) / 3600
    assert sum((job.seconds or 0) * job.gpus for job in trains) / 3600 == pytest.approx(by_hand)
    assert [job for job in trains if job.done] == []
    # whether they are evaluated or not
    unseen = world(tmp_path, PAPER | {"matrix": [block | {"evaluate": False} for block in PAPER["matrix"]]})
    assert len(unseen.checkpoints) == 5  # the bases
    disks = [estimate.disk(one, estimate.train(one), 64)["checkpoints"] for one in (of, unseen)]
    assert disks == pytest.approx([4 * (37 * 7.6e9 + 2 * 8.0e9 + 7 * 14.8e9)] * 2)
    assert sum(estimate.downloads(of).values()) == pytest.approx(2 * (3 * 7.6e9 + 8.0e9 + 14.8e9) + 290e6)


def test_sdpas_attention_over_packed_sequences_is_added_where_a_rollouts_seconds_are_not_measured(
    tmp_path: Path,
) -> None:
    """Qwen2.5-7B on 8 H100: 19 s of a rollout beside the 350 s that are printed."""
    (name,) = {job.name for job in estimate.train(world(tmp_path)) if job.name.startswith("qwen2.5_7b/gpg/seed2")}

    def seconds(config: dict[str, Any], table: estimate.Throughput = TABLE) -> float:
        of = dataclasses.replace(world(tmp_path, config), throughput=table)
        (job,) = [job for job in estimate.train(of) if job.name == name]
        assert job.seconds is not None
        assert ("for sdpa's attention" in (job.source or "")) == (job.seconds > 72 * 350)
        return job.seconds / 72

    assert seconds(FLASH) == pytest.approx(350)
    assert seconds(PAPER) == pytest.approx(350 + 19.35, abs=0.05)
    cards = {gpu: card.model_copy(update={"tflops": None}) for gpu, card in TABLE.gpus.items()}
    assert seconds(PAPER, TABLE.model_copy(update={"gpus": cards})) == pytest.approx(350)


@pytest.mark.slow
def test_jobs_are_counted_as_snakemake_does_and_on_one_machine_no_two_share_a_gpu(
    tmp_path: Path, dry_run: Snakemake
) -> None:
    """Each would take the first GPU: nothing tells a job which of several is its own."""
    for scale, gpus in (("quick", set()), ("paper", {"1"})):
        counted = estimate.counts(world(tmp_path, load(files_of(scale))))
        said = dry_run("--configfile", f"config/{scale}.yaml").stdout
        jobs = jobs_of(said)
        jobs["train"] += jobs.pop("train_nodes", 0)  # runs over several nodes have a rule of their own
        assert {kind: count for kind, (count, _) in counted.items()} == {kind: jobs.get(kind) for kind in counted}
        assert {*re.findall(r"\bgpu=(\d+)", said)} - {"0"} == gpus, scale


def test_the_second_round_of_a_sweep_is_counted(tmp_path: Path) -> None:
    of = world(tmp_path, dict(plan(files_of("tuned"), root=tmp_path).config))
    text = "\n".join(summary.lines(of, 2)[0])
    assert "448 unique runs (0 done)" in text
    assert "a second round (the same command again): 112 runs, 112 evaluations" in text
    hours = 112 * (12 * 1.4 + of.responses * 20 / 18000) / 3600  # by hand, from throughput.yaml
    assert f"  {hours:.1f} core-hours on top" in text


def test_models_made_here_are_counted_and_what_is_there_is_done(tmp_path: Path) -> None:
    of = world(tmp_path, EMBEDDED)
    found = {job.name: job for job in estimate.build(of)}
    assert set(found) == {*of.builds, *(build.clean for build in of.builds.values())}
    seconds = {rate.stage: rate.seconds for rate in TABLE.build if rate.ladder == "wide"}
    first = next(iter(of.builds))
    assert (found[first].seconds, found[of.builds[first].clean].seconds) == (seconds["base"], seconds["clean"])
    write_json(of.cache / "models" / first / "base.json", {})
    assert [job.name for job in estimate.build(of) if job.done] == [first]
    hours = (20 * seconds["clean"] + 24 * seconds["base"]) / 3600
    left = hours - seconds["base"] / 3600
    lines, wrong = summary.lines(of, 2)
    text = "\n".join(lines)
    assert wrong == []
    assert f"  {'base models':<26} {hours:>8,.1f} {left:>8,.1f}" in text
    assert "core-hours, and how many are still to do:" in text
    assert estimate.downloads(of) == {}
    assert {job.gpus for job in estimate.train(of)} == {1}
    every = [*estimate.build(of), *estimate.train(of), *estimate.generate(of)]
    minutes = sum(job.seconds or 0 for job in every if not job.done) / 2 / 60
    assert f"takes {minutes:.0f} minutes on 2 cores" in text


def curve(path: Path, rollouts: int, update: float, rollout: float) -> None:
    rows = [
        {"rollout": r, "seconds_update": update, "seconds_rollout": rollout if m == 0 else ""}
        for r in range(1, rollouts + 1)
        for m in range(2)
    ]
    lines = [",".join(str(row.get(column, "")) for column in COLUMNS) for row in rows]
    write_text(path, "\n".join([",".join(COLUMNS), *lines, ""]))


def test_a_measured_run_says_nothing_of_another_trainer_and_scales_with_the_sequences(tmp_path: Path) -> None:
    both = {
        "by_verl": {"title": "verl", "trainer": "verl"},
        "half": {"title": "half", "training": {"samples_per_prompt": 4}},
    }
    block = {"models": ["tiny_qwen2"], "methods": ["grpo"], "seeds": [1], "steps": [4]}
    blocks = [block, *(block | {"variant": name} for name in both)]
    options = {"variants": both, "matrix": blocks, "training": {"samples_per_prompt": 8}}
    of = world(tmp_path, load(files_of("quick"), options))
    curve(of.results.run(Run("tiny_qwen2", "grpo", 1)) / "curve.csv", 4, 0.5, 1.0)  # 2 s a rollout
    curve(of.results.run(Run("tiny_qwen2", "grpo@by_verl", 1)) / "curve.csv", 4, 10.0, 20.0)
    seconds = {planned.run.method: job.seconds for planned, job in zip(of.planned, estimate.train(of), strict=True)}
    rollouts = of.config["training"]["rollouts"] or 4
    assert seconds == {"grpo": 2.0 * rollouts, "grpo@by_verl": 40.0 * rollouts, "grpo@half": 1.0 * rollouts}


def test_what_a_container_keeps_of_files_is_memory_that_programs_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts cached files as used, and gives them up when a program wants memory."""
    texts = {
        "/proc/meminfo": "MemTotal: 64000000 kB\nMemAvailable:   60000000 kB\n",
        "/sys/fs/cgroup/memory.max": f"{8 * 10**9}\n",
        "/sys/fs/cgroup/memory.current": f"{7 * 10**9}\n",
        "/sys/fs/cgroup/memory.stat": f"anon {10**9}\nfile {6 * 10**9}\ninactive_file {5 * 10**9}\nactive_file 1\n",
    }
    monkeypatch.setattr(resources, "_text", lambda path: texts.get(path, ""))
    assert resources.memory_here() == 6000


def test_measured_seconds_replace_the_table_model_by_model(tmp_path: Path) -> None:
    of = world(tmp_path, FLASH)
    runs = {seed: of.results.run(Run("qwen2.5_7b", "grpo", seed)) for seed in (1, 2)}
    curve(runs[1] / "state" / "curve.csv", 3, 10.0, 80.0)  # 100 s a rollout, unfinished
    curve(runs[2] / "curve.csv", 132, 10.0, 180.0)  # 200 s
    write_json(runs[2] / "run.json", {})
    found = {job.name: job for job in estimate.train(of)}
    assert found["qwen2.5_7b/tepo/seed2"].seconds == 150.0 * 72
    assert found["qwen2.5_7b/tepo/seed2"].source == "measured here, median of 2 runs"
    assert found["qwen3_14b/grpo/seed2"].seconds == 350.0 * 72
    assert [name for name, job in found.items() if job.done] == ["qwen2.5_7b/grpo/seed2"]
    assert estimate.counts(of)["train"] == (42, 41)


def staged(of: World) -> World:
    """As if everything had been fetched."""
    for model in of.models:
        write_json(of.fetched_base(model) / "base.json", {})
    data = of.data_file
    assert data is not None
    write_text(data, "")
    for key in of.config["evaluation"]["benchmarks"]:
        write_text(of.benchmark_file(key), "")
    return of


def test_what_snakemake_fetches_is_listed_with_its_command_and_neither_missing_nor_wrong(tmp_path: Path) -> None:
    of = world(tmp_path)
    text, wrong = summary.lines(of, 64)
    assert wrong == []
    commands = list(preflight.to_fetch(of))
    assert [f"  {command}" for command in commands] == text[-len(commands) :]
    found = "\n".join(commands)
    for model in ("qwen2.5_7b", "qwen3_14b", "r1_distill_llama_8b", "mistral_7b_instruct_v0.2", "r1_distill_qwen_7b"):
        assert f"model {model}: " in found
    assert "python -m models.fetch --hub Qwen/Qwen3-14B-Base --revision main --out" in found
    assert "python -m models.training_data --source dapo_math_17k --out" in found
    pinned = world(tmp_path, load(files_of("paper"), {"prompts": {"sha256": "1" * 64}}))
    assert any(f" --sha256 {'1' * 64} --out" in command for command in preflight.to_fetch(pinned))
    assert "python -m evals.fetch --benchmarks aime24 aime25 amc" in found
    assert list(preflight.to_fetch(staged(of))) == []


# What is changed of `cluster`, and what is said of it.
WRONG = [
    ({"gpus_per_node": 6}, r"run qwen2\.5_7b/grpo/seed2: .*1 x 6 GPUs do not divide"),
    ({"max_tokens_per_gpu": 4096}, "max_tokens_per_gpu: 4096 is less than the longest"),
    ({"gpu": "B300"}, "no entry to estimate `generate 14B` on B300 with"),
    ({"rollout_memory": 0.9}, r"GiB in the phase `sampling` .* lower cluster.rollout_memory \(0.9\)"),
    ({"rollout_memory": 0.1}, r"the inference engine needs 1\d.\d GiB and gets 7.9 .* raise cluster"),
    ({"gpus_per_node": 1}, r"in the phase `optimiser step` \(1\d\d.\d of states.* raise cluster.sizes.7B"),
    ({"max_tokens_per_gpu": 150_000}, r"GiB .* `update` .* lower cluster.max_tokens_per_gpu \(150000; at l"),
    ({"gpu": "RTX4090-24GB", "rollout_memory": 0.4}, "gets 9.4 of RTX4090-24GB's 23.5; raise"),
    ({"gpu": "V100"}, r"throughput.yaml: gpus: has no memory of V100; there are: .*H100-80GB"),
]


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    staged(world(tmp_path))
    for changes, message in WRONG:
        found = problems(world(tmp_path, PAPER | {"cluster": PAPER["cluster"] | changes}))
        assert any(re.search(message, line) for line in found), (changes, found)
        assert all("\n" not in line for line in found)


MACHINES = [
    (preflight.driver("570.86.15\n570.86.15\n"), "driver 570.86.15: torch and vLLM are built with CUDA 13"),
    (preflight.driver("580.65.06\n570.1\n"), "driver 570.1:"),
    (preflight.driver("1001.2"), None),  # numbers, not texts, are compared
    (preflight.driver(None), None),
    (preflight.glibc("glibc 2.9"), "glibc 2.9: vLLM needs 2.31"),
    (preflight.glibc("glibc 2.31"), None),
    (preflight.glibc("glibc 3.1"), None),
    (preflight.glibc("musl 1.2"), None),
    (preflight.glibc(None), None),
    (preflight.attention("flash_attention_2", {"torch"}.__contains__), "flash-attn is not installed"),
    (preflight.attention("flash_attention_2", {"torch", "flash_attn"}.__contains__), None),
    (preflight.attention("flash_attention_2", set().__contains__), None),  # not the jobs' environment
    (preflight.attention("sdpa", {"torch"}.__contains__), None),
]


def test_what_the_gpu_packages_need_of_a_machine() -> None:
    for said, wrong in MACHINES:
        lines = list(said)
        assert len(lines) == (wrong is not None)
        assert not wrong or wrong in lines[0]


def test_what_the_machine_lacks_is_named_where_gpus_are_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = staged(world(tmp_path))
    assert problems(of, gpus=8) == ["cluster.gpus: 8, and a run needs 16"]
    with monkeypatch.context() as small:
        free_disk(small, 10**9)
        (said,) = problems(of)
    assert re.match(r"disk: 3,\d+ GB will be written, 1 GB are free in ", said)
    monkeypatch.setattr(preflight.os, "cpu_count", lambda: 33)
    assert problems(of) == []  # no GPU here: jobs run elsewhere, and bring the CPUs that Ray would wait for
    with monkeypatch.context() as here:
        here.setattr(preflight.shutil, "which", lambda name: name if name == "nvidia-smi" else None)
        first, second = problems(of)  # the runs on 8 and those on 16 GPUs, a line each
    for line in (first, second):
        assert re.search(r"CPUs: this machine has 33; a run on (\d+) GPUs needs (\d+)", line)
    monkeypatch.setattr(preflight, "_answer", lambda command: "535.1\n" if command[0] == "nvidia-smi" else None)
    (said,) = problems(of)
    assert said.startswith("driver 535.1:")
    assert problems(world(tmp_path / "cpu", EMBEDDED), gpus=1) == []


SINFO = "gpu|gpu:h100:8(S:0-1),shm:1|3\nsmall|gpu:4|10\ncpu|(null)|50\n"
CLUSTERS = [
    ({}, 3, None),
    ({"slurm_partition": "gpu", "gpu_model": "h100"}, 3, None),
    ({}, 4, "a run needs 4 nodes with 8 GPUs each; the partition with most of them has 3"),
    ({"slurm_partition": "gpus"}, 1, "partition gpus of .* does not exist; there are: cpu, gpu, small"),
    ({"slurm_partition": "small"}, 1, "a run needs 1 node with 8 GPUs each; partition small has 0"),
    ({"gpu_model": "a100"}, 1, "8 a100 GPUs each; .* has 0"),
]


def test_partitions_and_gpus_of_a_cluster() -> None:
    for profile, nodes, message in CLUSTERS:
        found = list(preflight.slurm(SINFO, profile, 8, nodes))
        assert len(found) == (message is not None), profile
        assert message is None or re.search(message, found[0]), found


def test_a_time_limit_that_is_all_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm would tell training to save and end as soon as it starts, at every attempt."""
    profile = yaml.safe_load(preflight.PROFILE.read_text())
    monkeypatch.setattr(preflight, "PROFILE", tmp_path / "config.yaml")
    of = staged(world(tmp_path))
    for runtime, allowed in ((60, True), ("60 * attempt", True), (17, True), (16, False), ("10 * attempt", False)):
        profile["set-resources"]["train_nodes"]["runtime"] = runtime
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(profile))
        said = "; ".join(problems(of))
        wanted = r"train_nodes: runtime: 1\d minutes.*900 s before.*Allowed: more than 16 minutes"
        assert (said == "") if allowed else re.search(wanted, said), (runtime, said)


def test_a_rate_that_is_given_twice_is_named(tmp_path: Path) -> None:
    content = yaml.safe_load(estimate.THROUGHPUT.read_text())
    content["rollout"][1]["size"] = "7B"
    (tmp_path / "table.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=r"rollout: 7B on H100-80GB is given twice"):
        estimate.read(tmp_path / "table.yaml")


def test_the_command_ends_with_what_is_missing(tmp_path: Path) -> None:
    """`python -m workflow.summary` without Slurm on the path: the paper's runs need more room than most disks have."""
    file = tmp_path / "config.json"
    for config, code in ((PAPER, None), (EMBEDDED, 0)):
        write_json(file, config)
        done = subprocess.run(
            [sys.executable, "-m", "workflow.summary", "--config", str(file), "--results", str(tmp_path)],
            cwd=ROOT, env=os.environ | {"PATH": str(Path(sys.executable).parent)},
            capture_output=True, text=True, timeout=1800, check=False,
        )  # fmt: skip
        runs, evaluations = len(matrix.plan(config)), len(matrix.checkpoints(config))
        assert f"{runs} unique runs (0 done), {evaluations} evaluations" in done.stdout
        missing = re.search("Missing or wrong: (nothing|1)\n", done.stdout)
        assert missing, "most likely the disk is too small; what is fetched is not missing"
        assert done.returncode == (missing[1] == "1"), done.stderr
        assert done.returncode == code or code is None
        assert ("Not pinned to a commit" in done.stdout) == (config is PAPER)


# of the tensors in the hub repositories, as their pages state them
PARAMETERS = {
    "qwen2.5_0.5b": 494_032_768,
    "qwen2.5_1.5b": 1_543_714_304,
    "qwen2.5_7b": 7_615_616_512,
    "r1_distill_qwen_7b": 7_615_616_512,
    "qwen3_14b": 14_768_307_200,
    "r1_distill_llama_8b": 8_030_261_248,
    "mistral_7b_instruct_v0.2": 7_241_732_096,
}


def shape(model: str) -> registry.Shape:
    found = registry.model(model).shape
    assert found is not None, f"{model}: has no shape"
    return found


def training(**changes: Any) -> Training:
    """Of the paper's GRPO on Qwen2.5-7B."""
    (planned, *_) = matrix.plan(PAPER)
    return spec.check(matrix.specification(PAPER, planned, "base", "prompts")).training.model_copy(update=changes)


def test_a_shape_has_the_models_parameters() -> None:
    assert {model: shape(model).parameters for model in PARAMETERS} == PARAMETERS


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3", "llama", "mistral"])
def test_parameters_are_counted_as_transformers_makes_them(model_type: str) -> None:
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


def test_a_fetched_model_of_other_sizes_is_named(tmp_path: Path) -> None:
    of = staged(world(tmp_path))
    config = {"hidden_size": 3584, "vocab_size": 151936, "num_hidden_layers": 28}
    (of.fetched_base("qwen2.5_7b") / "config.json").write_text(json.dumps(config))
    (line,) = [line for line in problems(of) if "config.json" in line]
    assert line.endswith("vocab_size: 151936, and its file in config/models says 152064")


def test_memory_grows_with_what_takes_it() -> None:
    """Each part of the estimate by a change of the setting that alone decides it."""
    method, qwen = catalog.parse("tepo"), shape("qwen2.5_7b")
    usual = memory.estimate(qwen, training(), method, 79.1)
    flash = memory.estimate(qwen, training(attention="flash_attention_2"), method, 79.1)
    ratio = memory.FRAGMENTATION / memory.GIB
    assert usual.phases["update"] - flash.phases["update"] == pytest.approx(3 * usual.tokens**2 * ratio)
    sync = memory.estimate(qwen, training(offload=True), method, 79.1).phases["weight sync"]
    embedding, bucket = 152_064 * 3584 * 4, 2 * memory.GIB
    assert embedding == pytest.approx(2.18e9, rel=1e-3)
    assert (sync - 2.5) * memory.GIB == pytest.approx(1.08 * (embedding + bucket) + 2 * PARAMETERS["qwen2.5_7b"])
    assert usual.phases["weight sync"] - sync == pytest.approx(12 * qwen.parameters / 8 * ratio)
    twice = memory.estimate(qwen, training(nodes=2), method, 79.1)
    assert twice.states == pytest.approx(usual.states / 2)
    rows = memory.estimate(qwen, training(cov_scope="microbatch"), catalog.parse("clip_cov"), 79.1)
    assert rows.tokens <= 2 * (2048 + 8192)


def test_the_bucket_of_the_weight_sync_is_verls() -> None:
    keys = yaml.safe_load((ROOT / "methods/adapters/verl/config.yaml").read_text(encoding="utf-8"))
    bucket = keys["actor_rollout_ref"]["rollout"]["checkpoint_engine"]["update_weights_bucket_megabytes"]
    assert bucket * 2**20 == memory.BUCKET


def test_attention_costs_what_sdpa_multiplies() -> None:
    """Counted by torch in one layer given a mask, as packed sequences are; then 28 layers and five passes."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    qwen, tokens = shape("qwen2.5_7b"), 128
    heads = torch.randn(1, qwen.num_attention_heads, tokens, qwen.head_dim)
    mask = torch.block_diag(*[torch.ones(32, 32)] * 4).bool().tril()
    with FlopCounterMode(display=False) as counted, sdpa_kernel(SDPBackend.MATH):
        torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)
    run, method = training(), catalog.parse("grpo")
    length = memory.PROMPT + memory.RESPONSE * run.max_completion_tokens
    rows = run.prompts_per_rollout * run.samples_per_prompt
    found = memory.attention_flops(qwen, run, method) / (rows * length * memory.largest_batch(run, method))
    assert found == pytest.approx(5 * 28 * counted.get_total_flops() / tokens**2)
    share = found * 19_875 / (5 * 2 * qwen.parameters)
    assert share == pytest.approx(0.524, abs=1e-3)


COMMON = {"num_attention_heads": 4, "num_key_value_heads": 2}
PASSES = {  # what dominates -> sizes, tokens, precision
    "head": (
        {**COMMON, "model_type": "qwen2", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
        | {"head_dim": 32, "vocab_size": 32768},
        1280,
        "bfloat16",
    ),
    # float32: a CPU's kernels for bfloat16 have buffers of their own, which a GPU's have not
    "layers": (
        {**COMMON, "model_type": "llama", "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4}
        | {"head_dim": 64, "vocab_size": 128},
        2048,
        "float32",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", PASSES)
def test_a_pass_takes_what_is_estimated(what: str) -> None:
    """The system's own figure, in a process of its own. 10 %: pages, and buffers of libraries, of 100 to 300 MB."""
    sizes, tokens, precision = PASSES[what]
    line = [sys.executable, "-m", "tests.workflow.memory_pass", json.dumps(sizes), str(tokens), precision]
    # every tensor is given back to the system when it is freed: without it malloc keeps some, as it sees fit
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, encoding="utf-8", check=True)
    made = registry.Shape(**sizes, tie_word_embeddings=False, source="here")  # type: ignore[arg-type]
    width = 2 if precision == "bfloat16" else 4
    layers = memory.activations(made, tokens, width) + memory.attention_mask(tokens, width)
    expected = {"head": memory.output_head(made, tokens, width), "layers": layers}
    assert expected[what] == max(expected.values())
    assert int(done.stdout) == pytest.approx(expected[what], rel=0.1)


GPU = {"device": "cuda", "rollouts": 72, "gpus_per_node": 8}
TINY_RUN = Planned(Run("tiny_qwen2", "grpo", 1), "grpo", (8,))
HOT = Planned(Run("tiny_qwen2", "grpo@hot", 1), "grpo@hot", (8,))


def test_training_asks_for_the_gpus_of_its_specification_and_more_time_for_more_rollouts() -> None:
    needs = [resources.train(settings) for settings in ({}, {"device": "cpu"}, GPU, GPU | {"nodes": 2})]
    assert [(need.gpus, need.nodes) for need in needs] == [(0, 1), (0, 1), (8, 1), (16, 2)]
    assert resources.train(GPU | {"rollouts": 132}).minutes > resources.train(GPU).minutes > 72 * 357 / 60  # as printed


def test_drawing_takes_a_gpu_with_vllm_and_where_there_are_gpus() -> None:
    """transformers takes a GPU that it finds, and 7B without one need more than a core, an hour and 4 GB."""
    paper_with_hf = load(files_of("paper"), {"evaluation": {"backend": "hf"}})
    on_cuda = load(files_of("quick"), {"training": {"device": "cuda"}})
    found = [resources.generate(config).gpus for config in (EMBEDDED, PAPER, paper_with_hf, on_cuda)]
    assert found == [0, 1, 1, 1]


def settings_of(**hot: object) -> dict[str, object]:
    return {"training": {"rollouts": 8}, "cluster": None, "variants": {"hot": {"title": "", "training": hot}}}


def test_models_over_several_nodes_are_told_apart() -> None:
    assert resources.several_nodes(settings_of(), [TINY_RUN]) == set()
    assert resources.several_nodes(settings_of(nodes=2, device="cuda"), [HOT]) == {"tiny_qwen2"}
    with pytest.raises(ConfigError, match="runs of tiny_qwen2 need 1 and 2"):
        resources.several_nodes(settings_of(nodes=2, device="cuda"), [TINY_RUN, HOT])


def test_a_pattern_matches_its_names_and_no_other() -> None:
    matching = re.compile(resources.pattern({"qwen2.5_7b", "tiny"}))
    found = [name for name in ("qwen2.5_7b", "tiny", "qwen2x5_7b", "") if matching.fullmatch(name)]
    assert found == ["qwen2.5_7b", "tiny"]
    assert not re.fullmatch(resources.pattern(set()), "anything")
