"""One rollout through `MethodTrainer`: recorded while TRL samples it, or replayed with the recording in its place.

Everything but sampling, rewards and the reference's pass is what a run does: filter, advantages, the pass over the old
policy, loss, backward pass, clipping, step.
"""

import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from core.errors import ConfigError
from methods.adapters import trl
from methods.adapters.trl.microbatches import Rows
from methods.adapters.trl.recorder import Recorder
from methods.adapters.trl.trainer import MethodTrainer, build_trainer, resolve_reward
from methods.batch import Batch
from methods.replay import Record, Updates, weights_file, write_record, write_tensors
from methods.training.rollouts import together
from methods.training.run_folder import RunFolder
from methods.training.spec import Spec

Keep = Callable[[int, Batch, float, dict[str, torch.Tensor], dict[str, torch.Tensor]], None]


class ReplayRecorder(Recorder):
    """Hands each update to `keep`, in the place of a curve, checkpoints and states."""

    keep: Keep  # (updates done, batch, loss, gradients before clipping, parameters after the step)
    gradients: dict[str, torch.Tensor]

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        assert self._loss is not None
        parameters = {name: p.data for name, p in kwargs["model"].named_parameters()}
        self.keep(state.global_step, together(self._batches), self._loss, self.gradients, parameters)
        self._batches = []
        return control


class ReplayTrainer(MethodTrainer):
    """`recorded`: the rollout to replay; None: sample one. `trained_on`: the rows of the rollout that were kept."""

    recorded: Rows | None = None
    trained_on: Rows

    def _draw(self, examples: list[dict[str, Any]], nth: int) -> tuple[dict[str, Any], Rows]:
        if self.recorded is None:
            return super()._draw(examples, nth)
        rows = self.recorded
        # TRL shuffles and cuts this; `_prepare_inputs` puts our micro-batches in its place
        return {"completion_ids": rows.completion_ids, "completion_mask": rows.completion_mask}, rows

    def _with_advantage(self, sampled: Rows, kept_groups: list[int]) -> Rows:
        self.trained_on = super()._with_advantage(sampled, kept_groups)
        return self.trained_on

    def _clip_grad_norm(self, model: Any) -> Any:
        named = model.named_parameters()
        self.recorder.gradients = {name: p.grad.detach().clone() for name, p in named if p.grad is not None}
        return super()._clip_grad_norm(model)


def _train(spec: Spec, recorded: Rows | None, keep: Keep) -> Rows:
    """One rollout and its updates; the rows that were trained on."""
    sizes = trl.preflight(spec)
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder), spec)
        trainer: Any = build_trainer(
            spec, run, lambda: False, sizes, resolve_reward(spec.reward), ReplayTrainer, ReplayRecorder
        )
        trainer.recorded, trainer.recorder.keep = recorded, keep
        trainer.train()
        rows: Rows = trainer.trained_on
    return rows


def record(spec: Spec, folder: Path) -> None:
    """Sample the run's first rollout and train on it; `folder` becomes a record (`methods.replay`)."""
    t = spec.training

    def keep(done: int, batch: Batch, loss: float, gradients: object, parameters: dict[str, torch.Tensor]) -> None:
        if done < t.updates_per_rollout:  # what the last update makes, no update starts from
            write_tensors(weights_file(folder, done), parameters)

    rows = _train(spec, None, keep)
    groups = len(rows) // t.samples_per_prompt
    if groups < t.prompts_per_rollout:
        raise ConfigError(
            f"spec: training.oversample: only {groups} of {t.prompts_per_rollout} prompt groups have rewards that "
            "differ; a record needs all: raise it, or set filter: none"
        )
    rows = replace(rows, advantage=None, true_reward=None, group=torch.arange(len(rows)) // t.samples_per_prompt)
    write_record(folder, spec, {f.name: x for f in fields(rows) if (x := getattr(rows, f.name)) is not None})


def replay(record: Record, folder: Path) -> None:
    """The record through TRL; into `folder` an update<u>.safetensors for each update."""
    spec = record.spec("trl")
    updates = Updates(record, folder, spec.training.updates_per_rollout)
    rows = Rows(**{name: x.to(spec.training.device) for name, x in record.rollout.items()})
    _train(spec, rows, lambda done, *update: updates.add(*update))
