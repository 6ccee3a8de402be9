"""One run from its first process to its last state. verl's trainer runs in this process, not in an actor of Ray."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
import transformers
from omegaconf import OmegaConf
from ray.exceptions import RayActorError, RayTaskError
from verl.trainer.main_ppo import TaskRunnerV1

from methods import catalog
from methods.adapters import Outcome, Plan
from methods.adapters.verl import checkpoint, dataset, processes
from methods.adapters.verl.config import Files, check_cpus, compose, overrides
from methods.adapters.verl.recorder import Recorder
from methods.adapters.verl.trainer import MethodTrainer
from methods.training import rollouts
from methods.training.rollouts import Refill, check_readable
from methods.training.run_folder import RunFolder
from methods.training.spec import Spec
from records.errors import BenchError
from records.provenance import ROOT

Runner: Any = TaskRunnerV1.__ray_metadata__.modified_class  # verl's class without Ray around it: we are the driver


def drive(spec: Spec, run: RunFolder, stop: Callable[[], bool], sizes: Plan, short: Path) -> Outcome:
    """Resume from the run's last state, or start. Raises what a worker raised if it is one of our one-line errors.

    short: the run's folder for what is over with the process (`processes.short_folder`).
    """
    t, method = spec.training, catalog.parse(spec.method)
    prompts = rollouts.prompts(spec)
    tokenizer = transformers.AutoTokenizer.from_pretrained(spec.base)
    check_readable(spec, [row["prompt"] for row in prompts], tokenizer)
    start = run.open()
    recorder = Recorder(run, method, stop)
    watchdog = processes.Watchdog()
    try:
        if start is not None:
            checkpoint.check_world_size(start, t.gpus)
        with watchdog.watching():
            table = run.state / "prompts.parquet"
            dataset.write_parquet(prompts, spec.reward, table)
            files = Files(
                train_parquet=table,
                val_parquet=table,  # verl insists on one; nothing is validated during training
                checkpoints=run.state,
                log=run.state / "verl.jsonl",
                reward_module=ROOT / "methods/adapters/verl/dataset.py",
                resume=None if start is None else checkpoint.step_of(start),
                ray_temp=short / "ray",
            )
            config = compose(overrides(spec, files))
            OmegaConf.save(config, run.state / "verl.yaml")
            attributes = {
                "spec": spec,
                "method": method,
                "prompts_drawn": sizes.prompts_drawn,
                "end_tokens": end_tokens(spec.base, tokenizer),
                "recorder": recorder,
                "checkpoints": checkpoint.CheckpointWriter(run),
                "refill": Refill(len(prompts), spec.seed, run.mark.refill_position),
                "watchdog": watchdog,
            }
            for name, value in attributes.items():  # verl builds the trainer from its configuration alone
                setattr(MethodTrainer, name, value)
            with processes.ray_for(config, processes.environment(t, short)):
                check_cpus(t, ray.cluster_resources().get("CPU", 0), "Ray")
                if not stop():
                    Runner().run(config)
                else:
                    recorder.stopped = True
    except RayTaskError as error:
        if isinstance(error.cause, BenchError):
            raise error.cause from None
        raise
    except RayActorError as error:
        message = " ".join(str(error).split())
        raise processes.WorkerDiedError(f"verl: a worker died ({message}); run the same command to go on") from None
    finally:
        run.curve.close()
    return Outcome(run.curve.rows, not recorder.stopped, recorder.collapsed_at)


def end_tokens(base: str, tokenizer: transformers.PreTrainedTokenizerBase) -> list[int]:
    """The tokens that end a response. A generation config may name more than the tokenizer knows."""
    tokens: Any = None
    if (Path(base) / "generation_config.json").is_file():
        tokens = transformers.GenerationConfig.from_pretrained(base).eos_token_id
    if tokens is None:
        tokens = tokenizer.eos_token_id
    return list(tokens) if isinstance(tokens, list) else [tokens]
