"""The TRL adapter: GRPOTrainer samples, scores and steps; the loss is `Method.loss`. Protocol: `methods.adapters`.

Differences from stock TRL are listed at the top of `trainer`. This module imports neither TRL nor torch.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.caches import engine_caches
from core.errors import ConfigError, MissingInputError
from core.provenance import version
from methods import catalog, sampling
from methods.adapters import TRL_VERSION, Outcome, loggers, mark_logged, temporary_folder
from methods.adapters.reward import Reward
from methods.adapters.trl import shared_prefix
from methods.method import Method
from methods.training import rollouts
from methods.training.spec import Spec, Training

if TYPE_CHECKING:
    from methods.adapters.trl.trainer import MethodTrainer
    from methods.training.run_folder import RunFolder

# Settings for several devices, or for packages missing from the TRL environment: only one value is possible.
ONLY: dict[str, object] = {"nodes": 1, "gpus_per_node": 1, "tensor_parallel": 1, "attention": "sdpa"}


def check(t: Training, method: Method) -> None:
    """Raise `ConfigError` for settings that TRL does not support."""
    for name, allowed in ONLY.items():
        if getattr(t, name) != allowed:
            raise ConfigError(
                f"spec: training.{name}: {getattr(t, name)!r}: the trl adapter runs on one device; allowed: {allowed!r}"
            )
    if not method.splittable and t.cov_scope == "minibatch" and t.micro_batches > 1:
        raise ConfigError(
            f"spec: training.micro_batches: {t.micro_batches} would split a minibatch, but {method.key} divides by "
            "the tokens of a micro-batch; allowed: 1, or cov_scope: microbatch"
        )


def prompts_drawn(t: Training) -> int:
    """Return the prompts of a rollout, rounded up until their sequences can be split into equal micro-batches.

    TRL counts in micro-batches: a rollout is split into `steps_per_generation` of them, all of the same size.
    """
    micro_batches = t.minibatches * t.micro_batches
    multiple = micro_batches // math.gcd(micro_batches, t.samples_per_prompt)
    return -(-t.prompts_drawn // multiple) * multiple


def preflight(spec: Spec) -> None:
    """Raise a one-line `ConfigError` or `MissingInputError` for a run that cannot start, without loading a model."""
    installed = version("trl")
    if installed != TRL_VERSION:
        raise ConfigError(f"environment: trl: version {installed!r} is installed; allowed: {TRL_VERSION}")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("environment: WORLD_SIZE: the trl adapter runs in one process; groups must not be spread")
    check(spec.training, catalog.parse(spec.method))
    rollouts.check_inputs(spec, prompts_drawn(spec.training))
    if spec.training.shared_prefix:
        shared_prefix.check(spec.base)
    if spec.training.sampler == "vllm":
        check_vllm()


def check_vllm() -> None:
    """Raise `MissingInputError` where vLLM is not installed."""
    if find_spec("vllm") is None:
        raise MissingInputError(
            "spec: training.sampler: vllm: the package vllm is not installed here; set null, or see docs/scale.md"
        )


# Read once, when TRL and the hub client are imported. Without these variables TRL sends a ping.
VARIABLES = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
# Third-party modules that a run imports: a worker (`core.worker`) imports them once for many runs.
LIBRARIES = ("pydantic", "yaml", "datasets", "trl.trainer.grpo_trainer", *sampling.LIBRARIES)


def train(spec: Spec, run: RunFolder, stop: Callable[[], bool]) -> Outcome:
    """Train until the end, a collapse or a stop request; see the protocol."""
    os.environ.update(VARIABLES)
    reward = Reward(spec.rewards, spec.reward_weights)
    start = run.open()
    try:
        with temporary_folder(run.state):
            trainer = build(spec, run, stop, reward)
            if stop():  # the stop request arrived during loading
                return Outcome(run.start.update, False, None)
            trainer.train(resume_from_checkpoint=str(start) if start else None)
    finally:
        run.curve.close()
    recorder, responses = trainer.recorder, trainer.present.responses
    if run.start.update == 0 and not recorder.stopped:  # the loggers have every row
        mark_logged(run.folder, trainer.args.report_to, run.curve.text)
    unanswered = reward.unanswered(responses) if reward.unanswered and responses else None
    return Outcome(int(trainer.state.global_step), not recorder.stopped, recorder.collapsed_at, unanswered)


def build(spec: Spec, run: RunFolder, stop: Callable[[], bool], reward: Reward) -> MethodTrainer:
    """Return the trainer, ready to train."""
    import torch
    import transformers
    from datasets import Dataset

    from methods.adapters.trl.trainer import Arguments, MethodTrainer, Recorder

    t, method = spec.training, catalog.parse(spec.method)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    # If jobs share the cores, a second thread mostly spins: 3 to 4 times slower on a busy machine (measured).
    if os.environ.get("OMP_NUM_THREADS") == "1":
        torch.set_num_threads(1)
    if t.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("spec: training.device: 'cuda' is not available on this machine; allowed: cpu")
    if t.device == "cuda" and torch.cuda.device_count() > 1:  # transformers would wrap the model in DataParallel
        raise ConfigError("environment: CUDA_VISIBLE_DEVICES: several devices are visible; the trl adapter uses one")
    prompts = rollouts.prompts(spec)
    tokenizer = transformers.AutoTokenizer.from_pretrained(spec.base, padding_side="left")
    rollouts.check_readable(spec, [row["prompt"] for row in prompts], tokenizer)
    drawn = rollouts.order(len(prompts), t.rollouts * prompts_drawn(t), spec.seed)

    def scored(prompts: list[str], completions: list[str], answer: list[str], **_: object) -> list[float | None]:
        """Call the reward with TRL's arguments. None, for a response that was not graded, drops its group."""
        where = f"rollout {trainer.rollout + 1}: "
        with reward.limited(where, completions):
            return reward(prompts, completions, answer, where)

    scored.__name__ = "+".join(spec.rewards)  # TRL names its metrics after the function
    trainer = MethodTrainer(
        spec=spec,
        recorder=Recorder(run, method, stop),
        prompts=prompts,
        model=str(spec.base),
        reward_funcs=scored,
        args=Arguments(**arguments(spec, method, run.state)),
        # the whole run's prompts, in order: one epoch
        train_dataset=Dataset.from_list(rollouts.rows_of(prompts, drawn)),
        processing_class=tokenizer,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


def arguments(spec: Spec, method: Method, folder: Path) -> dict[str, Any]:
    """Return keyword arguments of `trainer.Arguments` that differ from the defaults of the pinned TRL.

    TRL's defaults are bfloat16, a learning rate that decays to 0, and gradient checkpointing. Arguments of TRL's
    loss keep their defaults: our loss replaces it.
    """
    t = spec.training
    cpu, micro_batches = t.device == "cpu", t.minibatches * t.micro_batches
    report_to = loggers(folder.parent, spec)
    named = {"run_name": os.environ["WANDB_NAME"], "project": os.environ["WANDB_PROJECT"]} if report_to else {}
    sampler = vllm_arguments(t) if t.sampler == "vllm" else {}
    return sampler | {
        "per_device_train_batch_size": prompts_drawn(t) * t.samples_per_prompt // micro_batches,
        "steps_per_generation": micro_batches,
        "num_iterations": t.passes,
        "gradient_accumulation_steps": t.micro_batches,
        "max_steps": t.updates,
        "output_dir": str(folder),
        "seed": spec.seed,
        "data_seed": spec.seed,
        "num_generations": t.samples_per_prompt,
        "max_completion_length": t.max_completion_tokens,
        "temperature": t.temperature,
        "vllm_importance_sampling_correction": False,
        "shuffle_dataset": False,  # our order, and one epoch: TRL's shuffle starts over in a resumed second epoch
        "pad_to_multiple_of": None,
        # Fused: one pass over weights and states instead of eight, 0.2 s instead of 0.95 s per update of 135 M
        # parameters, and no temporaries. Its last bits differ, so it is used only where the gradient's differ anyway.
        "optim": "adamw_torch_fused" if t.shared_prefix or not cpu else "adamw_torch",
        "learning_rate": t.learning_rate,
        "lr_scheduler_type": "constant",
        "weight_decay": t.weight_decay,
        "max_grad_norm": t.gradient_clip,
        "use_cpu": cpu,
        "bf16": t.precision == "bfloat16",
        "tf32": None if cpu else False,
        # A second forward pass, for a tenth of the memory: as with verl, on a GPU, whose memory is the limit.
        "gradient_checkpointing": not cpu,
        "disable_dropout": True,
        "use_cache": True,  # False would be saved in every checkpoint's config and slow down its evaluation
        # Only a switch: TRL loads and runs the reference model if beta is not 0; the loss does not read it.
        "beta": 1.0 if "ref_logp" in method.needs else 0.0,
        # Weights and optimiser state stay float32; bfloat16 is autocast. Eager attention is 13 % faster than sdpa for
        # short sequences on a CPU (measured).
        "model_init_kwargs": {"dtype": "float32", "attn_implementation": "eager" if cpu else "sdpa"},
        # We write the records. Our callback requests saves, at rollout edges only, and `RunFolder` removes old states:
        # TRL would remove one before the new one is complete.
        "logging_strategy": "steps" if report_to else "no",
        "logging_steps": 1,
        "report_to": report_to or "none",
        "specification": dict(spec.document),
        **named,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": not cpu,
    }


def vllm_arguments(t: Training) -> dict[str, Any]:
    """Prepare vLLM for import and return its arguments of `GRPOConfig`: TRL builds the engine in this process."""
    os.environ.update(engine_caches(Path(tempfile.gettempdir())))  # a run's own folder, removed at its end
    if t.device == "cpu":
        from trl.generation import vllm_generation
        from vllm import _custom_ops

        # oneDNN computes with packed copies of the weights, which would stay those of the base model.
        _custom_ops._supports_onednn = False
        # TRL has no argument for these. Compiling takes minutes on a CPU, and `auto` would round float32 to bfloat16.
        vllm_generation.LLM = partial(vllm_generation.LLM, enforce_eager=True, dtype=t.precision)
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": t.rollout_memory,
        "vllm_max_model_length": t.max_prompt_tokens + t.max_completion_tokens,
    }
