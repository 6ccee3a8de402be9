"""GRPOTrainer with our loss. Every override calls `super()`, except those of loss, prompts and weight decay.

Imports TRL, so it is imported only when a run starts. Differences from stock TRL:

- loss and advantages are `Method.loss` and `Method.advantage`;
- constant groups are filtered, with or without refill; prompt groups stay whole in a minibatch (`microbatches`);
- old log-probs and old entropies are computed on the micro-batches that are trained, after the filter: at the first
  update of a rollout the ratio is exactly 1 and dH exactly 0, and dropped sequences cost nothing (for the first
  minibatch the values are from its update's forward pass; in half precision that is checked instead of assumed);
- prompts are tokenised unchanged: no special token is added;
- `methods.sampling` samples responses where supported, which is faster than `generate` and gives the same tokens;
- with `training.shared_prefix` a prompt is scored once for all its responses;
- on a GPU, and with a shared prefix anywhere, the head is `parts.entropy` for the models of `sampling.CLASSES`: TRL's
  is a Triton kernel on a GPU, which no test on a CPU runs;
- on a CPU, TRL's head uses a buffer no wider than the vocabulary, with bit-identical results;
- weight decay acts on all parameters;
- each rollout has a separate sampling seed: methods share the sampling noise, and resuming needs no generator state.

TRL has no public interface for this and recommends overriding private methods. Their signatures, and the attributes
used below, are pinned by tests/adapters/test_canaries.py.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import utils as trl_utils

from methods import sampling
from methods.adapters import COLUMN, checked, resolved
from methods.adapters.trl import shared_prefix
from methods.adapters.trl.microbatches import MicroBatch, Rows, join, micro_batches
from methods.batch import Batch
from methods.training import curve, movement, rollouts
from methods.training.spec import Spec

# Columns of the buffer in which TRL's head computes logits, tile by tile. For a smaller vocabulary this stride puts
# each row on separate memory pages: measured with 264 tokens, a tenth of a run's CPU time.
HEAD_COLUMNS: int = trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE

# A stop request waits for the rollout's end if it is nearer than this. By default Slurm leaves 30 s between its signal
# and the kill (KillWait).
GRACE_SECONDS = 20.0


@dataclass
class Arguments(GRPOConfig):
    """TRL's arguments, and the run's specification, which loggers show among the hyper-parameters."""

    specification: dict[str, Any] = field(default_factory=dict)


@dataclass
class RolloutState:
    """Per-rollout state shared between TRL's hooks."""

    # for the last draw
    skips_old_logp: bool = False  # TRL scores the old policy before groups are filtered, `_prepare_inputs` after
    sampling_logp: Callable[[torch.Tensor], torch.Tensor] | None = None  # responses (N, C) -> the sampler's log-probs
    responses: list[str] = field(default_factory=list)
    rewards: torch.Tensor | None = None  # (N,), true rewards; NaN if a response was not graded
    # for the rollout
    kept: Rows | None = None  # with their advantages
    parts: list[MicroBatch] = field(default_factory=list)
    before: torch.Tensor | None = None  # result of `_measured` before the first update
    weights: list[torch.Tensor] = field(default_factory=list)  # weights at that time, for `kl_target`
    # an update, and the result of `Method.select` for it
    selected: tuple[int, Mapping[str, torch.Tensor]] = (-1, {})


class MethodTrainer(GRPOTrainer):
    """Trainer of a specification's method that reports every rollout and update to `recorder`."""

    _last_loaded_step: int  # TRL's: the update whose weights vLLM has

    def __init__(self, *, spec: Spec, recorder: "Recorder", prompts: list[dict[str, Any]], **trainer: Any):
        self.method, self.training_sizes, self.recorder = recorder.method, spec.training, recorder
        self.prompts, self.run_seed = prompts, rollouts.stream_seed(spec)
        self.kl_targets = rollouts.kl_targets(spec)
        self.refill = rollouts.Refill(len(prompts), spec.seed, recorder.run.start.refill_position)
        self.placebo = None if spec.placebo is None else resolved(spec.placebo, "placebo")
        self.present = RolloutState()
        self._refusal: str | None = None  # why `generate` is used; printed once
        super().__init__(callbacks=[recorder], **trainer)
        recorder.trainer = self
        # A resumed run loads its state later. The reference model, if the method has one, has the same weights.
        parameters = (self.ref_model or self.model).parameters()
        self.base = [p.detach() for p in parameters] if self.ref_model else movement.copies(parameters)
        vocabulary = int(self.model.config.get_text_config().vocab_size)
        self.exact = vocabulary <= movement.EXACT
        # The same results, in a buffer no wider than the vocabulary.
        trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE = min(HEAD_COLUMNS, vocabulary)

    @property
    def rollout(self) -> int:
        """0-based number, from the optimizer steps; correct after a resume too, because states lie on rollout edges."""
        return int(self.state.global_step) // self.training_sizes.updates_per_rollout

    # --- 1. sample ----------------------------------------------------------------------------------------------------

    def get_train_dataloader(self) -> Any:
        """Return TRL's loader without its search, at every update, for tensors to move: the examples contain none."""
        loader = super().get_train_dataloader()
        loader.device = None
        return loader

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Sample one rollout: draw, draw again if groups are missing, filter. `_prepare_inputs` reads `present`."""
        began, self.present = time.perf_counter(), RolloutState()
        t = self.training_sizes
        limits = t.samples_per_prompt, t.prompts_per_rollout, t.filter
        output, first = self._draw(inputs, 0)
        draws = [first]
        used = {example["index"] for example in inputs}  # a refill does not repeat a prompt of this rollout
        for nth in range(1, t.refill_rounds + 1 if t.filter == "refill" else 1):
            rewards = [reward for draw in draws for reward in graded(draw.reward)]
            # twice the missing number, because some of the new groups will be constant too
            missing = 2 * (t.prompts_per_rollout - len(rollouts.choose(rewards, *limits)))
            indices = self.refill.draw(min(missing, t.prompts_per_rollout), used)
            if not indices:
                break
            used.update(indices)
            examples = [row for row in rollouts.rows_of(self.prompts, indices) for _ in range(t.samples_per_prompt)]
            draws.append(self._draw(examples, nth)[1])
        sampled = join(draws, self._tokenizer.pad_token_id)
        kept_groups = rollouts.choose(graded(sampled.reward), *limits)
        self.present.kept = self._with_advantage(sampled, kept_groups)
        self.recorder.figures = self._figures(sampled, kept_groups)
        self.recorder.rollout_seconds = time.perf_counter() - began
        return output  # TRL shuffles and slices it; `_prepare_inputs` replaces the slices with our micro-batches

    def _draw(self, examples: list[dict[str, Any]], nth: int) -> tuple[dict[str, Any], Rows]:
        """Sample and score one response per example, from a generator seeded by run, rollout and draw."""
        present = self.present
        present.skips_old_logp = True
        with torch.random.fork_rng():  # sampling must not change the generator's state for anything else
            torch.manual_seed(rollouts.derive(self.run_seed, "rollout", self.rollout, nth))
            output = super()._generate_and_score_completions(examples)
        present.skips_old_logp = False  # TRL skips the pass over the old policy if there is one update per rollout
        assert present.rewards is not None
        assert present.sampling_logp is not None
        return output, Rows(
            prompt_ids=output["prompt_ids"],
            prompt_mask=output["prompt_mask"],
            completion_ids=output["completion_ids"],
            completion_mask=output["completion_mask"],
            reward=self._given(nth),
            true_reward=present.rewards,
            group=torch.arange(len(examples), device=present.rewards.device) // self.num_generations,
            ref_logp=output.get("ref_per_token_logps"),
            sampling_logp=present.sampling_logp(output["completion_ids"]),
        )

    def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, dict[str, Any]]:
        """Tokenise prompts unchanged: they include the model's begin token, if any; TRL would add another."""
        return self.processing_class(text=prompts, add_special_tokens=False)["input_ids"], None, {}

    def _generate_single_turn(
        self, prompt_ids: list[list[int]], images: Any, multimodal_fields: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Sample with `methods.sampling`, which returns `generate`'s tokens, or with TRL's code if unsupported."""
        if self.use_vllm:
            tokens, logp = self._sample_with_vllm(prompt_ids, torch.initial_seed())
            self.present.sampling_logp = lambda _: logp.to(self.model.device)
            return tokens, None
        refusal = sampling.unsupported(self.model, self.generation_config.to_diff_dict())
        if refusal or images or multimodal_fields:
            if refusal and refusal != self._refusal:
                print(f"{self.recorder.run.folder}: sampling by transformers' generate: {refusal}", flush=True)
                self._refusal = refusal
            seen = SamplingLogps(self.temperature)
            self.present.sampling_logp = seen.of
            self.model.generate = partial(self.model.generate, logits_processor=[seen])
            try:
                return super()._generate_single_turn(prompt_ids, images, multimodal_fields, *args, **kwargs)
            finally:
                del self.model.generate  # restores the method of the class
        width = max(map(len, prompt_ids))
        pad, device = self._tokenizer.pad_token_id, self.model.device
        with torch.no_grad():
            sampled = sampling.sample(
                self.model,
                torch.tensor([[pad] * (width - len(ids)) + ids for ids in prompt_ids], device=device),
                torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompt_ids], device=device),
                max_new_tokens=self.max_completion_length,
                ends=self.eos_token_ids,
                pad=pad,
                temperature=self.temperature,
            )
        self.present.sampling_logp = lambda _: sampled.logp
        tokens, lengths = sampled.tokens.tolist(), sampled.lengths.tolist()
        return [row[:length] for row, length in zip(tokens, lengths, strict=True)], None

    def _sample_with_vllm(self, prompt_ids: list[list[int]], seed: int) -> tuple[list[list[int]], torch.Tensor]:
        """Return the tokens of one response to each of N prompts, and their log-probs (N, C) at the temperature.

        seed: of this draw. The engine gets the trainer's weights first, unless it has those of this update. Requests
        are ours: TRL gives all of them one set of sampling parameters, and with one seed all samples of a prompt would
        be equal.
        """
        from vllm import SamplingParams

        if self.state.global_step != self._last_loaded_step:
            self.vllm_generation.sync_weights()
            self._last_loaded_step = self.state.global_step
        shared: dict[str, Any] = {
            "temperature": self.temperature,
            "max_tokens": self.max_completion_length,
            "stop_token_ids": self.eos_token_ids,
            "logprobs": 0,  # of the sampled token alone
        }
        outputs = self.vllm_generation.llm.generate(
            [{"prompt_token_ids": ids} for ids in prompt_ids],
            [SamplingParams(seed=rollouts.derive(seed, "response", n), **shared) for n in range(len(prompt_ids))],
            use_tqdm=False,
        )
        responses = [output.outputs[0] for output in outputs]
        logp = [
            torch.tensor([at[token].logprob for token, at in zip(r.token_ids, r.logprobs, strict=True)])
            for r in responses
        ]
        return [list(r.token_ids) for r in responses], torch.nn.utils.rnn.pad_sequence(logp, batch_first=True)

    # --- 2. reward ----------------------------------------------------------------------------------------------------

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: list[str], *rest: Any) -> torch.Tensor:
        """Keep the rewards, which TRL uses only for its advantages."""
        rewards: torch.Tensor = super()._calculate_rewards(inputs, prompts, completions, *rest)  # (N, 1)
        self.present.rewards, self.present.responses = rewards[:, 0], completions
        return rewards

    def _given(self, nth: int) -> torch.Tensor:
        """Return the last draw's rewards (N,) for the method: the true ones or a placebo's; NaN if not graded."""
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
        # without kept rows nothing is trained: any empty tensor is valid
        if not index:
            return replace(rows, advantage=rows.reward)
        return replace(rows, advantage=self.method.advantage(rows.reward, rows.group, rows.lengths))

    def _figures(self, sampled: Rows, kept_groups: list[int]) -> dict[str, Any]:
        last = sampled.completion_ids.gather(1, (sampled.lengths - 1).unsqueeze(1)).squeeze(1)
        ended = torch.isin(last, torch.tensor(self.eos_token_ids, device=last.device))
        assert sampled.true_reward is not None
        return rollouts.figures(
            self.rollout + 1, graded(sampled.true_reward), kept_groups, self.num_generations, sampled.lengths.tolist(),
            (~ended).tolist(), graded(sampled.reward),
        )  # fmt: skip

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
            # The first minibatch is trained with these weights: its update computes the old values (`_compute_loss`).
            # In half precision another kernel without gradient would round otherwise, and dH of the later minibatches
            # would be noise: with this pass's values `check_unchanged` sees that in the first.
            own = t.micro_batches if t.precision == "float32" else 0
            first, rest = buffer[:own], buffer[own:]
            with torch.no_grad():
                buffer = first + [
                    part.with_old(*self._score(self.model, part.rows)) if len(part.rows) else part for part in rest
                ]
        self._buffered_inputs = self.present.parts = buffer
        self.present.before = self._measured()
        if self.kl_targets is not None:
            self.present.weights = movement.copies(self.model.parameters())
        self.recorder.rollout_seconds = (self.recorder.rollout_seconds or 0.0) + time.perf_counter() - began
        return buffer[self._step % len(buffer)]

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
        t = self.training_sizes
        if t.shared_prefix or (t.device == "cuda" and type(model).__name__ in sampling.CLASSES):
            size = kwargs.get("batch_size") or len(input_ids)  # TRL passes a whole rollout to the reference model
            with self.accelerator.autocast():
                parts = [
                    shared_prefix.score(model, ids, mask, logits_to_keep, self.temperature, shared=t.shared_prefix)
                    for ids, mask in zip(input_ids.split(size), attention_mask.split(size), strict=True)
                ]
            return (*(torch.cat(columns) for columns in zip(*parts, strict=True)), None)
        inputs = model, input_ids, attention_mask, logits_to_keep
        return super()._get_per_token_logps_and_entropies(*inputs, *args, **kwargs)

    def _score(self, model: Any, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probs and entropies, (n, C) each."""
        ids, mask, width = rows.inputs
        # entropies for every method: the diagnostics read them even if the loss does not
        logp, entropy, _ = self._get_per_token_logps_and_entropies(model, ids, mask, width, compute_entropy=True)
        return logp, entropy

    def _full_logp(self, model: Any, ids: torch.Tensor, mask: torch.Tensor, width: int) -> torch.Tensor:
        """Return (n, C, V) at the sampling temperature; an extra pass, because TRL's head never has full logits."""
        with self.accelerator.autocast():
            if self.training_sizes.shared_prefix:
                return shared_prefix.full_logp(model, ids, mask, width, self.temperature)
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        return (logits[:, -width - 1 : -1].float() / self.temperature).log_softmax(-1)

    # --- 5. loss ------------------------------------------------------------------------------------------------------

    def _compute_loss(self, model: Any, inputs: MicroBatch) -> torch.Tensor:
        """Compute our loss without `super()`: TRL's is a chain over `loss_type` without an extension point."""
        self.recorder.minibatch = inputs
        if len(inputs.rows) == 0:
            # There is no informative group for this micro-batch. TRL's loop needs a differentiable loss; the zero
            # gradient is removed before the step (Recorder.on_pre_optimizer_step).
            return sum(p.sum() for p in model.parameters() if p.requires_grad) * 0.0
        logp, entropy = self._score(model, inputs.rows)
        t = self.training_sizes
        half = t.precision if t.precision != "float32" else None
        batch = inputs.batch(logp, entropy, self.method.key, t.max_completion_tokens, half)
        if inputs.rows.old_logp is None:  # computed by the current policy: kept for the rollout's later passes
            parts = self.present.parts
            parts[self._step % len(parts)] = inputs.with_old(batch.old_logp, batch.old_entropy)
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
        self.recorder.micro_batch(batch, loss)
        return loss

    def _selection_generator(self) -> torch.Generator:
        """Return a generator that depends only on the run's seed and the update."""
        return torch.Generator().manual_seed(rollouts.derive(self.run_seed, "selection", int(self.state.global_step)))

    def _selected_rows(self, model: Any, inputs: MicroBatch, logp: torch.Tensor) -> dict[str, torch.Tensor] | None:
        """Return a part's rows of its minibatch's statistics; None for an unsplit minibatch, or by reading R15.

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
                        scored = self._score(model, part.rows)
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
                logp = self._full_logp(self.model, *part.inputs) if self.exact else self._score(self.model, part)[0]
                found.append(logp[part.completion_mask.bool()])
        return torch.cat(found) if found else torch.empty(0)

    def divergences(self) -> dict[str, float | None]:
        """Return how far the rollout's updates moved the policy, and how far it now is from the run's base."""
        kept, before = self.present.kept, self.present.before
        # The recorder calls this at the rollout's end, when `rollout` is the next one's.
        target = None if self.kl_targets is None else self.kl_targets[self.rollout - 1]
        if kept is None or before is None or len(kept) == 0:
            found = dict(movement.NOTHING_TRAINED)
            return found if target is None else found | movement.aim(target, 1.0, 0.0)
        rows = kept.take(slice(None, None, movement.SHARE))
        groups, after, scale = rows.group.repeat_interleave(rows.lengths), None, 1.0
        if target is not None:

            def kl() -> float:
                nonlocal after
                after = self._measured()
                reached = movement.divergences(before, after, None, groups)["kl_step"]
                return math.inf if reached is None else reached

            # AdamW's moments stay those of the unscaled change.
            scale = movement.move(list(self.model.parameters()), self.present.weights, kl, target)
        if after is None:
            after = self._measured()
        with movement.weights(list(self.model.parameters()), self.base):
            base = self._measured()
        found = movement.divergences(before, after, base, groups)
        return found if target is None else found | movement.aim(target, scale, found["kl_step"])

    def get_decay_parameter_names(self, model: Any) -> list[str]:
        """Return all parameters, as in verl and in torch's AdamW; transformers leaves out biases and norms."""
        return [name for name, _ in model.named_parameters()]

    def _clip_grad_norm(self, model: Any) -> Any:
        norm = super()._clip_grad_norm(model)
        self.recorder.gradient_norm = float(norm)
        self.recorder.check_gradient(float(norm), int(self.state.global_step))
        return norm

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Complete the state that TRL writes; the recorder requests it at edges only."""
        super()._save_checkpoint(model, trial)
        run, update = self.recorder.run, int(self.state.global_step)
        if update % self.training_sizes.updates_per_rollout:
            raise RuntimeError(f"state requested inside a rollout, at update {update}: it could not be resumed")
        state = run.state / f"checkpoint-{update}"
        run.save(state, update=update, rollout=self.rollout, refill_position=self.refill.position)

    def write_weights(self, folder: Path) -> None:
        """Write an ordinary model folder: weights, configs, tokenizer."""
        self.model.save_pretrained(str(folder))
        self.processing_class.save_pretrained(str(folder))


def graded(reward_N: torch.Tensor) -> list[float | None]:
    """Return rewards as numbers; None for a response that was not graded."""
    return [None if math.isnan(reward) else reward for reward in reward_N.tolist()]


class SamplingLogps:
    """Logits processor that changes nothing and records the sampled tokens' log-probs; TRL reports only vLLM's."""

    def __init__(self, temperature: float):
        self.temperature = temperature
        self.steps: list[torch.Tensor] = []  # (N,) each
        self.last: torch.Tensor | None = None  # (N, V) of the step whose token is not yet sampled

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self._take(input_ids[:, -1])
        # called before `generate` divides by the temperature
        self.last = scores if self.temperature == 1.0 else scores / self.temperature
        return scores

    def of(self, completion_ids: torch.Tensor) -> torch.Tensor:
        """Return log-probs (N, C) of responses (N, C) whose steps were all recorded."""
        self._take(completion_ids[:, len(self.steps)])
        self.last = None  # (N, V) would otherwise stay allocated during the updates
        return torch.stack(self.steps, dim=1)

    def _take(self, token_N: torch.Tensor) -> None:
        if self.last is not None:  # a difference instead of log_softmax, which would write the whole vocabulary
            self.steps.append(self.last.gather(1, token_N.unsqueeze(1)).squeeze(1) - self.last.logsumexp(1))


# --- Rows of the curve, checkpoints and states ------------------------------------------------------------------------
# An edge lies after the last update of a rollout. States are saved only there: they do not contain a rollout's
# sequences, so a run resumed inside a rollout would sample different ones.


class Recorder(curve.Recorder, TrainerCallback):
    """Recorder that collects the trainer's figures, writes them after each update, and controls TRL's loop at edges."""

    trainer: MethodTrainer  # set by the trainer
    figures: dict[str, Any]  # of the rollout that is trained on
    rollout_seconds: float | None = None  # of sampling before the update; None if no rollout was due
    minibatch: MicroBatch  # of the update: its last part
    gradient_norm: float | None = None  # of the update, before clipping
    _loss: float | None = None  # of the update
    _batches: list[Batch]  # of the update's micro-batches

    def micro_batch(self, batch: Batch, loss: torch.Tensor) -> None:
        """Record one forward pass. The batch is kept until the update: diagnostics cover the whole minibatch."""
        self._batches.append(batch)
        self._loss = float(loss.detach()) + (self._loss or 0.0)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        self._began = time.perf_counter()
        self._batches, self._loss, self.gradient_norm, self.rollout_seconds = [], None, None, None

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        self._weights = movement.copies(kwargs["model"].parameters())
        if not self._batches:
            # There is nothing to learn without an informative group. AdamW skips parameters without a gradient; with a
            # zero gradient it would move on momentum alone.
            for parameter in kwargs["model"].parameters():
                parameter.grad = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        seconds = time.perf_counter() - self._began - (self.rollout_seconds or 0.0)
        per_rollout = self.training.updates_per_rollout
        moved, self._weights = movement.update(self._weights, kwargs["model"].parameters()), []
        left = -state.global_step % per_rollout  # updates until the rollout's end
        batch = rollouts.together(self._batches) if self._batches else None
        self._batches = []  # frees the graph
        self.write_row(
            self.figures,
            (state.global_step - 1) % per_rollout,
            batch,
            self.gradient_norm,
            moved=moved,
            divergences=None if left else self.trainer.divergences(),
            loss=self._loss,
            learning_rate=float(kwargs["optimizer"].param_groups[0]["lr"]),
            tokens=self.minibatch.tokens,
            sequences=self.minibatch.sequences,
            seconds_update=seconds,
            seconds_rollout=self.rollout_seconds,
        )
        if args.report_to:  # TRL logs its metrics after this
            for name, value in self.run.curve.rows[-1].items():
                if value is not None:
                    self.trainer._metrics["train"][COLUMN.format(name)].append(value)
        if left == 0:
            # Checkpoints come before TRL writes the state: a complete state must not lack an earlier checkpoint.
            due, control.should_save = self.end_rollout(self.figures)
            for step in due:
                self.run.publish(step, self.trainer.write_weights)
            control.should_training_stop |= self.stopped or self.collapsed_at is not None
        elif self.stop() and left * seconds > GRACE_SECONDS:
            # The edge is too far away: Slurm kills soon after its signal. The run resumes from the last edge's state.
            control.should_training_stop = self.stopped = True
        return control
