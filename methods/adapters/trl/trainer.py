"""GRPOTrainer with our loss. Every override calls `super()`, except those of loss, prompts and weight decay.

Imports TRL, so it is imported only when a run starts. Differences from stock TRL:

- loss and advantages are `Method.loss` and `Method.advantage`;
- constant groups are filtered, with or without refill; prompt groups stay whole in a minibatch (`microbatches`);
- old log-probs and old entropies are computed on the micro-batches that are trained, after the filter: at the first
  update of a rollout the ratio is exactly 1 and dH exactly 0, and dropped sequences cost nothing (for the first
  minibatch the pass of its update gives the old values);
- prompts are tokenised unchanged: no special token is added;
- responses are sampled by `methods.sampling` where supported, which is faster than `generate` and gives its tokens;
- with `training.shared_prefix` a prompt is scored once for all its responses;
- TRL's head uses a buffer no wider than the vocabulary, with bit-identical results;
- weight decay acts on all parameters;
- each rollout has a separate sampling seed: methods share the sampling noise, and resuming needs no generator state.

TRL has no public interface for this and recommends overriding private methods. Their signatures, and the attributes
used below, are pinned by tests/adapters/test_canaries.py.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import transformers
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import utils as trl_utils

from core.errors import ConfigError, CorruptInputError
from methods import catalog, sampling
from methods.adapters import Plan, Reward, checked, loggers, resolved
from methods.adapters.trl import shared_prefix
from methods.adapters.trl.microbatches import MicroBatch, Rows, join, micro_batches
from methods.adapters.trl.recorder import Recorder
from methods.method import Method
from methods.parts.entropy import logp_and_entropy
from methods.training import movement, rollouts
from methods.training.run_folder import RunFolder
from methods.training.spec import Spec, Training

Placebo = Callable[[list[float], list[str], int], list[float]]  # rewards, responses, seed

# Columns of the buffer in which TRL's head computes logits, tile by tile. For a smaller vocabulary this stride puts
# each row on separate memory pages: measured with 264 tokens, a tenth of a run's CPU time.
HEAD_COLUMNS: int = trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE


@dataclass
class RolloutState:
    """Per-rollout state shared between TRL's hooks."""

    # for the last draw
    skips_old_logp: bool = False  # TRL scores the old policy before groups are filtered, `_prepare_inputs` after
    sampled: sampling.Sampled | None = None  # None if `generate` was used
    responses: list[str] = field(default_factory=list)
    rewards: torch.Tensor | None = None  # (N,), true rewards; NaN if a response was not graded
    # for the rollout
    kept: Rows | None = None  # with their advantages
    parts: list[MicroBatch] = field(default_factory=list)
    before: torch.Tensor | None = None  # result of `_measured` before the first update
    weights: list[torch.Tensor] = field(default_factory=list)  # weights at that time, for `kl_target`
    # an update, and the result of `Method.select` for it
    selected: tuple[int, Mapping[str, torch.Tensor]] = -1, MappingProxyType({})


class MethodTrainer(GRPOTrainer):
    """Trainer of `method` that reports every rollout and update to `recorder`."""

    def __init__(
        self,
        *,
        method: Method,
        training: Training,
        recorder: Recorder,
        prompts: list[dict[str, Any]],
        run_seed: int,
        refill: rollouts.Refill,
        placebo: Placebo | None = None,
        **trainer: Any,
    ):
        self.method, self.training_sizes, self.recorder = method, training, recorder
        self.prompts, self.run_seed, self.refill, self.placebo = prompts, run_seed, refill, placebo
        self.present = RolloutState()
        self._refusal: str | None = None  # why `generate` is used; printed once
        super().__init__(**trainer)
        # A resumed run loads its state later. The reference model, if the method has one, has the same weights.
        self.base = (
            [p.detach() for p in self.ref_model.parameters()]
            if self.ref_model
            else movement.copies(self.model.parameters())
        )
        self.exact = int(self.model.config.get_text_config().vocab_size) <= movement.EXACT

    @property
    def rollout(self) -> int:
        """0-based, from the optimizer steps; also right after a resume, because states lie on rollout edges."""
        return int(self.state.global_step) // self.training_sizes.updates_per_rollout

    # --- 1. sample ----------------------------------------------------------------------------------------------------

    def get_train_dataloader(self) -> Any:
        """Return TRL's loader without its search for tensors to move at every update: the examples have none."""
        loader = super().get_train_dataloader()
        loader.device = None
        return loader

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Sample one rollout: draw, draw again if groups are missing, filter. `_prepare_inputs` reads `present`."""
        began, self.present = time.perf_counter(), RolloutState()
        t = self.training_sizes
        output, first = self._draw(inputs, 0)
        draws = [first]
        used = {example["index"] for example in inputs}  # a refill does not repeat a prompt of this rollout
        for nth in range(1, t.refill_rounds + 1 if t.filter == "refill" else 1):
            missing = t.prompts_per_rollout - sum(
                sum(rollouts.informative(draw.reward, t.samples_per_prompt)) for draw in draws
            )
            # twice the missing number, because some of the new groups will be constant too
            indices = self.refill.draw(min(2 * missing, t.prompts_per_rollout), used) if missing > 0 else []
            if not indices:
                break
            used.update(indices)
            examples = [row for row in rollouts.rows_of(self.prompts, indices) for _ in range(t.samples_per_prompt)]
            draws.append(self._draw(examples, nth)[1])
        sampled = join(draws, self._tokenizer.pad_token_id)
        ungraded = (sampled.reward.isnan().nonzero().flatten() // t.samples_per_prompt).tolist()
        kept_groups = rollouts.choose(
            rollouts.informative(sampled.reward, t.samples_per_prompt), t.prompts_per_rollout, t.filter, ungraded
        )
        self.present.kept = self._with_advantage(sampled, kept_groups)
        self.recorder.rollout(self._figures(sampled, self.present.kept), time.perf_counter() - began)
        return output  # TRL shuffles and slices it; `_prepare_inputs` replaces the slices with our micro-batches

    def _draw(self, examples: list[dict[str, Any]], nth: int) -> tuple[dict[str, Any], Rows]:
        """Sample and score one response per example, from a generator seeded by run, rollout and draw."""
        present = self.present
        present.skips_old_logp = True
        # forked: sampling must not change the generator's state for anything else
        with torch.random.fork_rng(), sampling_logps(self.model, self.temperature) as sampled:
            torch.manual_seed(rollouts.derive(self.run_seed, "rollout", self.rollout, nth))
            output = super()._generate_and_score_completions(examples)
            logp = sampled.of(output["completion_ids"]) if present.sampled is None else present.sampled.logp
        present.skips_old_logp = False  # TRL skips the pass over the old policy if there is one update per rollout
        assert present.rewards is not None
        count = len(examples)
        return output, Rows(
            prompt_ids=output["prompt_ids"],
            prompt_mask=output["prompt_mask"],
            completion_ids=output["completion_ids"],
            completion_mask=output["completion_mask"],
            reward=self._given(nth),
            true_reward=None if self.placebo is None else present.rewards,
            group=torch.arange(count, device=present.rewards.device) // self.num_generations,
            ref_logp=output.get("ref_per_token_logps"),
            sampling_logp=logp,
        )

    def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, dict[str, Any]]:
        """Tokenise prompts unchanged: they include the model's begin token, if any; TRL would add another."""
        return self.processing_class(text=prompts, add_special_tokens=False)["input_ids"], None, {}

    def _generate_single_turn(
        self, prompt_ids: list[list[int]], images: Any, multimodal_fields: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Sample with `methods.sampling`, which gives `generate`'s tokens; unsupported requests take TRL's path."""
        refusal = sampling.unsupported(self.model, self.generation_config.to_diff_dict())
        self.present.sampled = None
        if refusal or images or multimodal_fields:
            if refusal and refusal != self._refusal:
                print(f"{self.recorder.run.folder}: sampling by transformers' generate: {refusal}", flush=True)
                self._refusal = refusal
            return super()._generate_single_turn(prompt_ids, images, multimodal_fields, *args, **kwargs)
        width = max(map(len, prompt_ids))
        pad = self._tokenizer.pad_token_id
        with torch.no_grad():
            sampled = self.present.sampled = sampling.sample(
                self.model,
                torch.tensor([[pad] * (width - len(ids)) + ids for ids in prompt_ids]),
                torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompt_ids]),
                max_new_tokens=self.max_completion_length,
                ends=self.eos_token_ids,
                pad=pad,
                temperature=self.temperature,
            )
        tokens, lengths = sampled.tokens.tolist(), sampled.lengths.tolist()
        return [row[:length] for row, length in zip(tokens, lengths, strict=True)], None

    # --- 2. reward ----------------------------------------------------------------------------------------------------

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: list[str], *rest: Any) -> torch.Tensor:
        """Keep the rewards, which TRL passes only to its advantages."""
        rewards: torch.Tensor = super()._calculate_rewards(inputs, prompts, completions, *rest)  # (N, 1)
        self.present.rewards, self.present.responses = rewards[:, 0], completions
        return rewards

    def _given(self, nth: int) -> torch.Tensor:
        """Return the rewards (N,) that the method gets for the last draw: true or the placebo's, NaN for none."""
        true = self.present.rewards
        assert true is not None
        if self.placebo is None:
            return true
        responses, seed = self.present.responses, rollouts.derive(self.run_seed, "placebo", self.rollout, nth)
        given = checked("placebo", self.placebo(true.nan_to_num(0.0).tolist(), responses, seed), responses)
        return true.new_tensor(given).masked_fill(true.isnan(), math.nan)  # a missing reward stays missing

    # --- 3. filter, advantages ----------------------------------------------------------------------------------------

    def _with_advantage(self, sampled: Rows, kept_groups: list[int]) -> Rows:
        """Return the rows of the kept groups, with the method's advantages over exactly these rows."""
        size = self.num_generations
        index = [row for group in kept_groups for row in range(group * size, (group + 1) * size)]
        rows = sampled.take(torch.tensor(index, dtype=torch.long, device=sampled.reward.device))
        # without kept rows there is no training: any empty tensor will do
        if not index:
            return replace(rows, advantage=rows.reward)
        return replace(rows, advantage=self.method.advantage(rows.reward, rows.group, rows.lengths))

    def _figures(self, sampled: Rows, kept: Rows) -> rollouts.RolloutFigures:
        groups = len(sampled) // self.num_generations
        last = sampled.completion_ids.gather(1, (sampled.lengths - 1).unsqueeze(1)).squeeze(1)
        ended = torch.isin(last, torch.tensor(self.eos_token_ids, device=last.device))
        true, true_kept = (x.reward if x.true_reward is None else x.true_reward for x in (sampled, kept))
        graded = ~sampled.reward.isnan()
        if not graded.any():
            raise CorruptInputError(f"trl: rollout {self.rollout + 1}: none of {len(sampled)} responses has a reward")
        return rollouts.RolloutFigures(
            rollout=self.rollout + 1,
            reward=float(true[graded].double().mean()),
            reward_kept=float(true_kept.double().mean()) if len(kept) else None,
            reward_given=float(sampled.reward[graded].double().mean()),
            reward_timeouts=int((~graded).sum()),
            groups_sampled=groups,
            groups_kept=len(kept) // self.num_generations,
            groups_discarded=groups - len(kept) // self.num_generations,
            response_tokens=float(sampled.lengths.double().mean()),
            truncated_fraction=float((~ended).double().mean()),
        )

    # --- 4. score: micro-batches and the old policy -------------------------------------------------------------------

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """Replace TRL's micro-batches with ours.

        TRL calls this before every forward pass, and samples in it when a rollout is due. It reads the buffer at
        `_step % steps_per_generation`, which is the number of our micro-batches.
        """
        before = self.present
        inputs = super()._prepare_inputs(generation_batch)
        if self.present is before:  # no rollout was due
            return inputs
        assert self.present.kept is not None
        began = time.perf_counter()
        t = self.training_sizes
        buffer = micro_batches(self.present.kept, t.samples_per_prompt, t.minibatches, t.micro_batches)
        if t.updates_per_rollout > 1:
            # The first minibatch is trained with these weights: its update gives the old values (`_compute_loss`).
            first, rest = buffer[: t.micro_batches], buffer[t.micro_batches :]
            buffer = first + [self._with_old_policy(micro_batch) for micro_batch in rest]
        self._buffered_inputs = self.present.parts = buffer
        self.present.before = self._measured()
        if t.kl_target is not None:
            self.present.weights = movement.copies(self.model.parameters())
        self.recorder.add_rollout_seconds(time.perf_counter() - began)
        return buffer[self._step % len(buffer)]

    def _with_old_policy(self, micro_batch: MicroBatch) -> MicroBatch:
        """Return it with log-probs and entropies of the policy that sampled it, which is still the current policy."""
        rows = micro_batch.rows
        if len(rows) == 0:
            return micro_batch
        with torch.no_grad():
            logp, entropy, full = self._score(self.model, rows)
        return replace(micro_batch, rows=replace(rows, old_logp=logp, old_entropy=entropy, old_full_logp=full))

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, *args: Any, **kwargs: Any
    ) -> Any:
        """Run TRL's computation, except for its pass over the old policy, which covers all sampled sequences.

        `_prepare_inputs` makes that pass later, for the kept rows and in the micro-batches that are trained: with other
        padding the same tokens differ in the last bits, and dH would not be 0 at the first update.
        """
        # the reference model, if there is one, is another object
        if self.present.skips_old_logp and model is self.model:
            self.present.skips_old_logp = False
            return torch.zeros(len(input_ids), logits_to_keep, device=input_ids.device), None, None
        if self.training_sizes.shared_prefix:
            size = kwargs.get("batch_size") or len(input_ids)  # the reference model is given a whole rollout
            parts = [
                self._shared(model, ids, mask, logits_to_keep)
                for ids, mask in zip(input_ids.split(size), attention_mask.split(size), strict=True)
            ]
            return (*(torch.cat(columns) for columns in zip(*parts, strict=True)), None)
        return super()._get_per_token_logps_and_entropies(
            model, input_ids, attention_mask, logits_to_keep, *args, **kwargs
        )

    def _shared(self, model: Any, ids: torch.Tensor, mask: torch.Tensor, width: int) -> tuple[torch.Tensor, ...]:
        """Return log-probs and entropies (n, C), 0 at padding; a prompt is read once for all its responses."""
        valid = mask[:, -width:].bool()
        with self.accelerator.autocast():
            hidden = shared_prefix.states(model, ids, mask, width)
            found = logp_and_entropy(hidden, model.lm_head.weight, ids[:, -width:][valid], temperature=self.temperature)
        return tuple(x.new_zeros(valid.shape).masked_scatter(valid, x) for x in found)

    def _score(self, model: Any, rows: Rows) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return log-probs (n, C), entropies (n, C) and, if the method reads them, all log-probs (n, C, V)."""
        ids, mask, width = _inputs(rows)
        # entropies for every method: the diagnostics read them even if the loss does not
        logp, entropy, _ = self._get_per_token_logps_and_entropies(model, ids, mask, width, compute_entropy=True)
        return logp, entropy, self._full_logp(model, ids, mask, width) if "full_logp" in self.method.needs else None

    def _full_logp(self, model: Any, ids: torch.Tensor, mask: torch.Tensor, width: int) -> torch.Tensor:
        """Return (n, C, V) at the sampling temperature; an extra pass, because TRL's head never has full logits."""
        with self.accelerator.autocast():
            if self.training_sizes.shared_prefix:
                valid = mask[:, -width:, None].bool()
                found = model.lm_head(shared_prefix.states(model, ids, mask, width)).float() / self.temperature
                return found.new_zeros(*valid.shape[:2], found.shape[1]).masked_scatter(valid, found.log_softmax(-1))
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        full: torch.Tensor = (logits[:, -width - 1 : -1].float() / self.temperature).log_softmax(-1)
        return full

    # --- 5. loss ------------------------------------------------------------------------------------------------------

    def _compute_loss(self, model: Any, inputs: MicroBatch) -> torch.Tensor:
        """Compute our loss without `super()`: TRL's is a chain over `loss_type` without an extension point."""
        if len(inputs.rows) == 0:
            # There is no informative group for this micro-batch. TRL's loop needs a differentiable loss; the zero
            # gradient is removed before the step (Recorder.on_pre_optimizer_step).
            self.recorder.micro_batch(inputs)
            return sum(p.sum() for p in model.parameters() if p.requires_grad) * 0.0
        logp, entropy, full = self._score(model, inputs.rows)
        t = self.training_sizes
        half = t.precision if t.precision != "float32" else None
        batch = inputs.batch(logp, entropy, self.method.key, t.max_completion_tokens, full, half)
        if inputs.rows.old_logp is None:  # computed by the current policy: kept for the rollout's later passes
            rows = replace(
                inputs.rows,
                old_logp=batch.old_logp,
                old_entropy=batch.old_entropy,
                old_full_logp=batch.old_full_logp,
            )
            parts = self.present.parts
            parts[self._step % len(parts)] = replace(inputs, rows=rows)
        # The loss is not divided for gradient accumulation (GRPOTrainer.loss_is_scaled_for_ga): micro-batches are
        # normalised by their minibatch's totals, and their gradients add up.
        split = inputs.parts > 1
        loss = self.method.loss(
            batch,
            tokens=inputs.tokens if split else None,
            sequences=inputs.sequences if split else None,
            generator=self._selection_generator(),
            selected=self._selected_rows(model, inputs, logp),
        )
        self.recorder.micro_batch(inputs, batch, loss)
        return loss

    def _selection_generator(self) -> torch.Generator:
        """Return a generator that depends only on the run's seed and the update."""
        return torch.Generator().manual_seed(rollouts.derive(self.run_seed, "selection", int(self.state.global_step)))

    def _selected_rows(self, model: Any, inputs: MicroBatch, logp: torch.Tensor) -> dict[str, torch.Tensor] | None:
        """Return a part's rows of the whole minibatch's statistics; None if it is not split, or by reading R15.

        Before the first part of an update, all its parts are scored in a pass without gradient.
        """
        t, update = self.training_sizes, int(self.state.global_step)
        if inputs.parts == 1 or t.cov_scope == "microbatch" or not self.method.parts.statistics:
            return None
        if self.present.selected[0] != update:
            batches = []
            for part in self.present.parts:
                if part.minibatch == inputs.minibatch and len(part.rows):
                    with torch.no_grad():
                        scored = self._score(model, part.rows)[:2]
                    batches.append(part.batch(*scored, self.method.key, t.max_completion_tokens))
            self.present.selected = update, self.method.select(rollouts.together(batches), self._selection_generator())
        rows = torch.arange(inputs.start, inputs.start + len(inputs.rows), device=logp.device)
        return rollouts.rows_selected(self.present.selected[1], rows, logp)

    # --- 6. what the curve and a resumed run need ---------------------------------------------------------------------

    def _measured(self) -> torch.Tensor:
        """Return log-probs (N,) of the tokens that `movement` measures; (N, V) for a small vocabulary."""
        t, kept = self.training_sizes, self.present.kept
        assert kept is not None
        rows, size = kept.take(slice(None, None, movement.SHARE)), t.rows_per_minibatch // t.micro_batches
        found = []
        with torch.no_grad():
            for start in range(0, len(rows), size):  # no larger than a micro-batch in training
                part = rows.take(slice(start, start + size))
                logp = self._full_logp(self.model, *_inputs(part)) if self.exact else self._score(self.model, part)[0]
                found.append(logp[part.completion_mask.bool()])
        return torch.cat(found) if found else torch.empty(0)

    def divergences(self) -> dict[str, float | None]:
        """Return how far the rollout's updates moved the policy, and how far it now is from the run's base."""
        kept, before = self.present.kept, self.present.before
        if kept is None or before is None or len(kept) == 0:
            return dict(movement.NOTHING_TRAINED)
        rows = kept.take(slice(None, None, movement.SHARE))
        groups = rows.group.repeat_interleave(rows.lengths)
        if self.training_sizes.kl_target is not None:
            self._move_by(self.training_sizes.kl_target, before, groups)
        after = self._measured()
        with movement.weights(list(self.model.parameters()), self.base):
            base = self._measured()
        return movement.divergences(before, after, base, groups)

    def _move_by(self, target: float, before: torch.Tensor, groups: torch.Tensor) -> None:
        """Rescale the rollout's change of the weights so that its KL is `target`. AdamW's moments are unchanged."""
        parameters, start = list(self.model.parameters()), self.present.weights
        change = [p.detach() - old for p, old in zip(parameters, start, strict=True)]
        if not any(bool(moved.any()) for moved in change):  # no multiple of a zero change reaches the target
            return

        def kl(size: float) -> float:
            for p, old, moved in zip(parameters, start, change, strict=True):
                p.data.copy_(old).add_(moved, alpha=size)
            reached = movement.divergences(before, self._measured(), None, groups)["kl_step"]
            return math.inf if reached is None else reached

        kl(movement.multiple(kl, target))

    def get_decay_parameter_names(self, model: Any) -> list[str]:
        """Return all parameters, as in verl and in torch's AdamW; transformers leaves out biases and norms."""
        return [name for name, _ in model.named_parameters()]

    def _clip_grad_norm(self, model: Any) -> Any:
        norm = super()._clip_grad_norm(model)
        self.recorder.gradient_norm = float(norm)
        self.recorder.check_gradient(float(norm), int(self.state.global_step))
        return norm

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        self.recorder.saved(int(self.state.global_step), self.refill.position)


def _inputs(rows: Rows) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return tokens (n, P + C) of prompts and completions, their mask, and C."""
    ids = torch.cat([rows.prompt_ids, rows.completion_ids], dim=1)
    return ids, torch.cat([rows.prompt_mask, rows.completion_mask], dim=1), rows.completion_ids.shape[1]


# --- What the sampler computed ---------------------------------------------------------------------------------------


class SamplingLogps:
    """Logits processor that changes nothing and records the sampled tokens' log-probs, step by step."""

    def __init__(self, temperature: float):
        self.temperature = temperature
        self.steps: list[torch.Tensor] = []  # (N,) each
        self.last: torch.Tensor | None = None  # (N, V) of the step whose token is not yet known

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self._take(input_ids[:, -1])
        # called before `generate` divides by the temperature
        self.last = scores if self.temperature == 1 else scores / self.temperature
        return scores

    def of(self, completion_ids: torch.Tensor) -> torch.Tensor:
        """Return log-probs (N, C) of responses (N, C) whose steps were all recorded."""
        self._take(completion_ids[:, len(self.steps)])
        return torch.stack(self.steps, dim=1)

    def _take(self, token_N: torch.Tensor) -> None:
        if self.last is not None:  # a difference instead of log_softmax, which would write the whole vocabulary
            self.steps.append(self.last.gather(1, token_N.unsqueeze(1)).squeeze(1) - self.last.logsumexp(1))


@contextmanager
def sampling_logps(model: Any, temperature: float) -> Iterator[SamplingLogps]:
    """Add a `SamplingLogps` to every `model.generate` in the block: TRL reports log-probs from vLLM only."""
    seen, generate = SamplingLogps(temperature), model.generate
    model.generate = partial(generate, logits_processor=[seen])
    try:
        yield seen
    finally:
        del model.generate  # restores the method of the class


# --- Building the trainer ---------------------------------------------------------------------------------------------


def arguments(spec: Spec, sizes: Plan, method: Method, folder: Path) -> dict[str, Any]:
    """Return keyword arguments of `GRPOConfig` that differ from the defaults of the pinned TRL.

    TRL's defaults are bfloat16, a learning rate that decays to 0, and gradient checkpointing. Arguments of TRL's
    loss keep their defaults: our loss replaces it.
    """
    t = spec.training
    cpu = t.device == "cpu"
    report_to = loggers(folder.parent)
    return {
        **sizes.trainer,
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
        # parameters. Its last bits differ, so it is used only where the gradient's last bits differ anyway.
        "optim": "adamw_torch_fused" if t.shared_prefix else "adamw_torch",
        "learning_rate": t.learning_rate,
        "lr_scheduler_type": "constant",
        "weight_decay": t.weight_decay,
        "max_grad_norm": t.gradient_clip,
        "use_cpu": cpu,
        "bf16": t.precision == "bfloat16",
        "tf32": None if cpu else False,
        "gradient_checkpointing": False,  # it saves memory at the cost of a second forward pass
        "disable_dropout": True,
        "use_cache": True,  # False would be saved in every checkpoint's config and slow down its evaluation
        # Only a switch: TRL loads and runs the reference model if beta is not 0; the loss does not read it.
        "beta": 1.0 if "ref_logp" in method.needs else 0.0,
        # Weights and optimiser state stay float32; bfloat16 is autocast. Eager attention is 13 % faster than sdpa for
        # short sequences on a CPU (measured).
        "model_init_kwargs": {"dtype": "float32", "attn_implementation": "eager" if cpu else "sdpa"},
        # Records are ours. Our callback requests saves, at rollout edges only, and `RunFolder` removes old states: TRL
        # would remove one before the new one is complete.
        "logging_strategy": "steps" if report_to else "no",
        "logging_steps": 1,
        "report_to": report_to or "none",
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": not cpu,
    }


def build_trainer(
    spec: Spec,
    run: RunFolder,
    stop: Callable[[], bool],
    sizes: Plan,
    reward: Reward,
) -> MethodTrainer:
    """Return the trainer, ready to train."""
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
    recorder = Recorder(run, method, stop)
    drawn = rollouts.order(len(prompts), t.rollouts * sizes.prompts_drawn, spec.seed)
    trainer = MethodTrainer(
        method=method,
        training=t,
        recorder=recorder,
        prompts=prompts,
        run_seed=rollouts.stream_seed(spec),
        refill=rollouts.Refill(len(prompts), spec.seed, run.start.refill_position),
        placebo=None if spec.placebo is None else resolved(spec.placebo, "placebo"),
        model=str(spec.base),
        reward_funcs=_as_trl_calls(spec.reward, reward),
        args=GRPOConfig(**arguments(spec, sizes, method, run.state)),
        train_dataset=Dataset.from_list(
            rollouts.rows_of(prompts, drawn)
        ),  # the whole run's prompts, in order: one epoch
        processing_class=tokenizer,
        callbacks=[recorder],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    # The same results, in a buffer no wider than the vocabulary.
    vocabulary = int(trainer.model.config.get_text_config().vocab_size)
    trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE = min(HEAD_COLUMNS, vocabulary)

    def write_weights(folder: Path) -> None:
        """Write an ordinary model folder: weights, configs, tokenizer."""
        trainer.model.save_pretrained(str(folder))
        trainer.processing_class.save_pretrained(str(folder))

    recorder.write_weights, recorder.divergences = write_weights, trainer.divergences
    return trainer


def _as_trl_calls(name: str, reward: Reward) -> Reward:
    """Wrap the reward to take TRL's arguments. None, for a response that was not graded, drops its group."""

    def scored(prompts: list[str], completions: list[str], answer: list[str], **_: object) -> list[float | None]:
        return checked(f"reward {name}", reward(prompts, completions, answer), completions, missing=True)

    scored.__name__ = name  # TRL names its metrics after the function
    return scored
