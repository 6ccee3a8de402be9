"""Specifications: bad ones end before training in one line; every run of the paper as verl's configuration."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.errors import BenchError, ConfigError, CorruptInputError, MissingInputError
from core.provenance import ROOT
from methods import adapters, catalog, train
from methods.adapters import adapter, trl, verl
from methods.adapters.verl import config as verl_config
from methods.training import rollouts
from methods.training import spec as specs
from methods.training.spec import Spec
from tests.adapters import worlds
from tests.merged_config import load
from workflow.matrix import Matrix

Train = Callable[..., int]
GPUS: dict[str, Any] = {"trainer": "verl", "device": "cuda"}
BY_MICRO_BATCH = "grpo+agg-scope=microbatch"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {  # its name; the changes of a specification, the error
    "trainer": ({"trainer": "trll"}, "trainer: unknown value 'trll'; allowed: trl, verl; nearest: trl"),
    "checkpoint": ({"checkpoints": [3]}, r"checkpoints: 3 is not a rollout of this run \(1 to 2\)"),
    "uneven parts": ({"micro_batches": 3}, "training.micro_batches: 3 does not divide a minibatch of 8 sequences"),
    "nodes on cpu": ({"nodes": 2, "gpus_per_node": 4}, "training.nodes: 2 x 4 GPUs need device cuda, got cpu"),
    "an engine over three of four GPUs": (
        {"device": "cuda", "gpus_per_node": 4, "tensor_parallel": 3},
        "training.tensor_parallel: 3 does not divide the 4 GPUs of a node",
    ),
    "GPUs with trl": ({"device": "cuda", "gpus_per_node": 8}, "gpus_per_node: 8: the trl adapter runs on one device"),
    "a mean with trl": (
        {"method": BY_MICRO_BATCH, "micro_batches": 2},
        r"micro_batches: 2 would split a minibatch, but grpo.*divides.*allowed: 1",
    ),
    "micro-batches by count": (GPUS | {"micro_batches": 2}, "micro_batches: 2: on cuda verl cuts"),
    "few tokens": (GPUS | {"max_tokens_per_gpu": 2000}, r"2000 is less than the longest sequence \(2048 \+ 8 = 2056\)"),
    "a mean on GPUs": (
        GPUS | {"method": BY_MICRO_BATCH, "gpus_per_node": 8},
        r"grpo.* divides by the tokens of a micro-batch, and 8 GPUs would split the minibatch; allowed: microbatch",
    ),
    "a target with verl": (
        {"trainer": "verl", "kl_target": [0.1, 0.2]},
        r"training.kl_target: \(0.1, 0.2\): only trl scales a rollout's step; set null",
    ),
    "a target for one rollout of two": (
        {"kl_target": [0.1]},
        r"training.kl_target: must have a value for each of 2 rollouts, got \(0.1,\)",
    ),
    "a negative target": ({"kl_target": -0.1}, "training.kl_target: must be greater than 0, got -0.1"),
    "a yoke without a curve": ({"kl_target": {"yoke": "tepo"}}, "yoke: goes with training.kl_target.yoke: set it to"),
    "a misspelt yoke": ({"kl_target": {"yok": "tepo"}}, "training.kl_target.yok: unknown key; allowed: yoke"),
    "a placebo": (
        {"trainer": "verl", "placebo": "evals.placebo:coin"},
        r"spec: placebo: 'evals\.placebo:coin': the verl adapter trains on true",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_one_clear_line(case: str, tmp_path: Path) -> None:
    changes, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message) as error:
        preflight(tmp_path, **changes)
    assert "\n" not in str(error.value)


def test_specification_from_a_file_and_from_the_architecture_page(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    for text, line in (
        (json.dumps(worlds.spec(tmp_path, seed=-1)), "seed: must be .* got -1"),
        ("{", "not valid JSON"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=f"{re.escape(str(path))}.*{line}"):
            specs.read(str(path))
    with pytest.raises(MissingInputError, match="run specification is missing"):
        specs.read(str(tmp_path / "nothing.json"))
    page = (ROOT / "docs/architecture.md").read_text()
    text = page[page.index('{"scale"') : page.index('"checkpoints": [12]}') + len('"checkpoints": [12]}')]
    assert specs.read(text).training.updates_per_rollout == 8


def preflight(world: Path, **changes: Any) -> Spec:
    spec = specs.check(worlds.spec(world, **changes))
    adapter(spec.trainer).preflight(spec)
    return spec


def test_trl_gets_equal_micro_batches(world: Path) -> None:
    spec = preflight(world, micro_batches=2)
    given = trl.arguments(spec, catalog.parse("tepo"), world / "state")
    names = ("per_device_train_batch_size", "steps_per_generation", "num_iterations", "gradient_accumulation_steps")
    assert [given[name] for name in (*names, "max_steps")] == [6, 4, 2, 2, 8]
    t = spec.training.model_copy(update={"samples_per_prompt": 3, "minibatches": 4})
    assert trl.prompts_drawn(t) == 8, "24 sequences in 8 micro-batches"


def prompts(count: int, more: str = "") -> list[dict[str, str]]:
    return [{"prompt": f"<bos>{i}{more}", "answer": "1"} for i in range(count)]


def test_a_followed_movement_that_rounded_below_zero_counts_as_none(world: Path, tmp_path: Path) -> None:
    (tmp_path / "curve.csv").write_text("rollout,kl_step\n1,\n1,-1e-09\n2,0.25\n")
    spec = worlds.spec(world, kl_target={"yoke": "tepo"}, yoke=str(tmp_path / "curve.csv"))
    assert rollouts.kl_targets(specs.check(spec)) == (0.0, 0.25)


LONG = "line 1: prompt: 62 tokens and a response of 8 exceed the model's 64 positions"
# of a run: its prompts (None: the world's), changes of its specification, the error
INPUTS: dict[str, tuple[list[dict[str, str]] | None, dict[str, Any], type[BenchError], str]] = {
    "no base": (None, {"base": "nowhere"}, MissingInputError, "nowhere: base model is missing"),
    "no prompts": ([], {}, MissingInputError, "prompts are missing"),
    "few prompts": (prompts(5), {}, ConfigError, "holds 5 prompts, one rollout draws 6"),
    "few prompts with verl": (prompts(5), {"trainer": "verl"}, ConfigError, "holds 5 prompts, one rollout draws 6"),
    "no answer": ([{"prompt": "<bos>1"}] * 9, {}, CorruptInputError, "line 1: answer: must be text, got None"),
    "too long": (prompts(9, "1" * 60), {}, ConfigError, LONG),
    "no module": (None, {"reward": "no.such.module:f"}, BenchError, "cannot be imported"),
    "no function": (None, {"reward": "tests.adapters.worlds:nothing"}, BenchError, "cannot be imported"),
    "no colon": (None, {"reward": "tests.adapters.worlds"}, BenchError, "is not of the form"),
    "not a function": (None, {"reward": "tests.adapters.worlds:TRAINING"}, BenchError, "is a dict, not a function"),
    "a misspelt method": (None, {"method": "tepoo"}, ConfigError, r"unknown value 'tepoo'.*nearest: tepo"),
}


@pytest.mark.parametrize("case", INPUTS)
def test_a_wrong_input_is_named_before_training(case: str, train: Train, tmp_path: Path) -> None:
    lines, changes, kind, message = INPUTS[case]
    if lines is not None:
        changes = changes | {"prompts": str(tmp_path / "prompts.jsonl")}
    if lines:
        (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(kind, match=message):
        train(tmp_path / "run", **changes)


@pytest.mark.parametrize("trainer", ["trl", "verl"])
def test_a_base_without_a_tokenizer_is_named(trainer: str, world: Path, tmp_path: Path, train: Train) -> None:
    shutil.copytree(world / "base", tmp_path / "bare")
    (tmp_path / "bare/tokenizer_config.json").unlink()
    with pytest.raises(MissingInputError, match=r"bare: tokenizer_config\.json is missing"):
        train(tmp_path / "run", base=str(tmp_path / "bare"), trainer=trainer)


FOLDER = Path("run/state")
PAPER = load([ROOT / "config/embedded.yaml", ROOT / "config/paper.yaml"])
RUNS = {planned.run.path.as_posix(): planned for planned in Matrix(PAPER).planned}


def paper_spec(name: str, **training: Any) -> Spec:
    given = Matrix(PAPER).specification(RUNS[name], "models/base", "prompts.jsonl")
    return specs.check({**given, "training": given["training"] | training})


TEPO = "qwen2.5_7b/tepo/seed2"
A, M, R = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"

# key -> its value at the paper's scale, where verl has another default or two places
TRAPS: dict[str, Any] = {
    "algorithm.adv_estimator": "methods",  # else verl's own advantage
    f"{A}.optim.lr": 5e-7,
    f"{A}.optim.weight_decay": 0.0,
    f"{A}.ppo_mini_batch_size": 16,  # in prompts: verl multiplies by n
    f"{A}.ppo_epochs": 1,
    f"{A}.calculate_entropy": True,  # else the loss reads no entropy
    f"{A}.use_dynamic_bsz": True,
    f"{M}.external_lib": "methods.adapters.verl.worker",
    f"{R}.n": 8,
    f"{R}.name": "vllm",
    f"{R}.log_prob_max_token_len_per_gpu": 20480,  # packed as the updates are, else dH is noise
    "data.max_prompt_length": 2048,
    "data.truncation": "left",  # as TRL cuts
    f"{A}.data_loader_seed": 2,
    "data.max_response_length": 8192,
    "data.train_batch_size": 64,
    "data.shuffle": False,
    "trainer.resume_mode": "disable",
    "trainer.total_training_steps": 72,
}


def test_the_papers_values_reach_verls_configuration() -> None:
    ours = verl_config.overrides(paper_spec(TEPO), FOLDER)
    assert {key: ours[key] for key in TRAPS} == TRAPS


@pytest.mark.slow
def test_verl_accepts_every_kind_of_run_of_the_paper() -> None:
    """Every method and every model once; other runs differ in numbers only."""
    methods = {planned.run.method: name for name, planned in RUNS.items()}
    models = {planned.run.model: name for name, planned in RUNS.items()}
    for name in sorted({*methods.values(), *models.values()}):
        spec = paper_spec(name)
        made = verl_config.compose(verl_config.overrides(spec, FOLDER))
        verl.check(spec.training, catalog.parse(spec.method))
        actor = made.actor_rollout_ref.actor
        assert actor.ppo_mini_batch_size * made.actor_rollout_ref.rollout.n == 128, name
        assert made.trainer.nnodes * made.trainer.n_gpus_per_node == (16 if "14b" in name else 8), name
        # methods of scope batch too: their statistics are gathered over all micro-batches
        assert (actor.use_dynamic_bsz, actor.ppo_micro_batch_size_per_gpu) == (True, None), name


def test_statistics_over_a_minibatch_are_gathered_over_gpus_and_micro_batches() -> None:
    training = paper_spec(TEPO).training
    split = training.model_copy(update={"cov_scope": "microbatch"})
    for method in map(catalog.parse, ("clip_cov", "kl_cov", "tepo_steer", "top_entropy")):
        assert [verl_config.packs_by_tokens(t, method) for t in (training, split)] == [True, False]
        assert verl_config.micro_batch_rows(split, method) == 2


KILLED = """
import os, pathlib, signal, sys, tempfile
from methods.adapters import temporary_folder
with temporary_folder(pathlib.Path(sys.argv[1])) as folder:
    assert pathlib.Path(tempfile.mkdtemp()).parent == folder
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_temporary_folder_of_a_killed_process_is_removed_at_the_next_start(tmp_path: Path) -> None:
    record, before = tmp_path / "temporary", tempfile.gettempdir()
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, check=False)
    left = Path(before) / record.read_text()
    assert len(list(left.iterdir())) == 1
    with adapters.temporary_folder(tmp_path) as folder:
        assert (left.exists(), folder.stat().st_mode & 0o077) == (False, 0)
    assert (folder.exists(), record.exists(), tempfile.gettempdir()) == (False, False, before)
    # nothing else is removed, whatever the file holds
    (tmp_path / "mine").mkdir()
    record.write_text(os.path.relpath(tmp_path / "mine", before))
    with adapters.temporary_folder(tmp_path):
        assert (tmp_path / "mine").is_dir()


def test_a_plan_checks_everything_and_trains_nothing(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["--out", str(world / "run"), "--plan", "--spec"]
    assert train.main([*call, json.dumps(worlds.spec(world))]) == 0
    assert "settings, model and prompts are checked" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="tokens and a response of 100000 exceed the model's"):
        train.main([*call, json.dumps(worlds.spec(world, max_completion_tokens=100_000))])
    assert not (world / "run" / "curve.csv").exists()
