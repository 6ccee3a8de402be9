"""GRPOTrainer with our loss in it. Every override calls `super()`, except `_compute_loss`, which is ours.

Imported only when a run starts: it imports TRL. What differs from stock TRL:

- loss and advantages are `Method.loss` and `Method.advantage`;
- constant groups are filtered, with or without refill (`trl_rollout`); prompt groups stay whole in a minibatch;
- old log-probs and old entropies are computed on the very slices that are trained, after the filter: at the first
  update of a rollout the ratio is exactly 1 and dH exactly 0, and nothing is spent on sequences that are dropped;
- each rollout samples from its own seed: methods share the sampling noise, and going on needs no generator state.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from trl import GRPOTrainer

from methods.adapters.trl.microbatches import Rows, Slice, join, slices
from methods.adapters.trl.recorder import Recorder
from methods.method import Method
from methods.training.rollouts import Refill, RolloutFigures, choose, derive, informative, rows_of
from methods.training.spec import Training

Reward = Callable[[list[str], list[str], list[str]], list[float]]


class MethodTrainer(GRPOTrainer):
    """Trains `method`; tells `recorder` about every rollout and update."""

    def __init__(
        self,
        *,
        method: Method,
        training: Training,
        recorder: Recorder,
        prompts: list[dict[str, Any]],
        run_seed: int,
        refill: Refill,
        **trainer: Any,
    ):
        self.method, self.training_sizes, self.recorder = method, training, recorder
        self.prompts, self.run_seed, self.refill = prompts, run_seed, refill
        self._defers_old = False  # inside a rollout: TRL asks for old log-probs before the filter has spoken
        self._rewards: torch.Tensor | None = None
        self._kept: Rows | None = None
        super().__init__(**trainer)

    @property
    def rollout(self) -> int:
        """0-based, from the optimizer steps done: right after a resume too, states lie on rollout edges."""
        return int(self.state.global_step) // self.training_sizes.updates_per_rollout

    # --- 1. log-probs ---------------------------------------------------------------------------------------------

    def _get_per_token_logps_and_entropies(self, model: Any, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
        if self._defers_old and model is self.model:
            # TRL's old pass covers all that was sampled. `_prepare_inputs` makes it on what is kept.
            self._defers_old = False
            logits_to_keep = kwargs["logits_to_keep"] if "logits_to_keep" in kwargs else args[1]
            return torch.zeros(len(input_ids), logits_to_keep, device=input_ids.device), None, None
        return super()._get_per_token_logps_and_entropies(model, input_ids, *args, **kwargs)

    def _score(self, model: Any, rows: Rows) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """log-probs (n, C), entropies (n, C) and, if the method reads them, all log-probs (n, C, V)."""
        ids = torch.cat([rows.prompt_ids, rows.completion_ids], dim=1)
        mask = torch.cat([rows.prompt_mask, rows.completion_mask], dim=1)
        width = rows.completion_ids.shape[1]
        logp, entropy, _ = self._get_per_token_logps_and_entropies(model, ids, mask, width, compute_entropy=True)
        return logp, entropy, self._full_logp(model, ids, mask, width) if "full_logp" in self.method.needs else None

    def _full_logp(self, model: Any, ids: torch.Tensor, mask: torch.Tensor, width: int) -> torch.Tensor:
        """(n, C, V) at the sampling temperature; one more forward pass, because TRL's head never makes the logits."""
        with self.accelerator.autocast():
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        full: torch.Tensor = (logits[:, -width - 1 : -1].float() / self.temperature).log_softmax(-1)
        return full

    # --- 2. rewards -----------------------------------------------------------------------------------------------

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        rewards: torch.Tensor = super()._calculate_rewards(*args, **kwargs)  # (N, 1)
        self._rewards = rewards[:, 0]
        return rewards

    # --- 3. sampling, filter, advantages --------------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        began = time.perf_counter()
        t = self.training_sizes
        output, drawn = self._draw(inputs, 0)
        parts = [drawn]
        used = {example["index"] for example in inputs}
        for nth in range(1, t.refill_rounds + 1 if t.filter == "refill" else 1):
            missing = t.prompts_per_rollout - sum(sum(informative(p.reward, t.samples_per_prompt)) for p in parts)
            indices = self.refill.draw(min(2 * missing, t.prompts_per_rollout), used) if missing > 0 else []
            if not indices:
                break
            used.update(indices)
            examples = [row for row in rows_of(self.prompts, indices) for _ in range(t.samples_per_prompt)]
            parts.append(self._draw(examples, nth)[1])
        sampled = join(parts, self._tokenizer.pad_token_id)
        kept = choose(informative(sampled.reward, t.samples_per_prompt), t.prompts_per_rollout, t.filter)
        self._kept = self._with_advantage(sampled, kept)
        self.recorder.rollout(self._figures(sampled, self._kept), time.perf_counter() - began)
        return output  # TRL shuffles and slices it; `_prepare_inputs` puts our slices in their place

    def _draw(self, examples: list[dict[str, Any]], nth: int) -> tuple[dict[str, Any], Rows]:
        """Sample and score one response per example, from a generator seeded by run, rollout and draw."""
        self._defers_old = True
        with torch.random.fork_rng():
            torch.manual_seed(derive(self.run_seed, "rollout", self.rollout, nth))
            output = super()._generate_and_score_completions(examples)
        self._defers_old = False
        assert self._rewards is not None
        count = len(examples)
        return output, Rows(
            prompt_ids=output["prompt_ids"],
            prompt_mask=output["prompt_mask"],
            completion_ids=output["completion_ids"],
            completion_mask=output["completion_mask"],
            reward=self._rewards,
            group=torch.arange(count, device=self._rewards.device) // self.num_generations,
            ref_logp=output.get("ref_per_token_logps"),
        )

    def _with_advantage(self, sampled: Rows, kept: list[int]) -> Rows:
        """The rows of the kept groups, with the method's advantages over exactly these."""
        size = self.num_generations
        at = [row for k in kept for row in range(k * size, (k + 1) * size)]
        rows = sampled.take(torch.tensor(at, dtype=torch.long, device=sampled.reward.device))
        advantage = self.method.advantage(rows.reward, rows.group) if at else rows.reward
        return Rows(**{**vars(rows), "advantage": advantage})

    def _figures(self, sampled: Rows, kept: Rows) -> RolloutFigures:
        groups = len(sampled) // self.num_generations
        last = sampled.completion_ids.gather(1, (sampled.lengths - 1).unsqueeze(1)).squeeze(1)
        ended = torch.isin(last, torch.tensor(self.eos_token_ids, device=last.device))
        return RolloutFigures(
            rollout=self.rollout + 1,
            reward=float(sampled.reward.double().mean()),
            reward_kept=float(kept.reward.double().mean()) if len(kept) else None,
            groups_sampled=groups,
            groups_kept=len(kept) // self.num_generations,
            groups_discarded=groups - len(kept) // self.num_generations,
            response_tokens=float(sampled.lengths.double().mean()),
            truncated_fraction=float((~ended).double().mean()),
        )

    # --- 4. slices ------------------------------------------------------------------------------------------------

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        self._kept = None
        inputs = super()._prepare_inputs(generation_batch)
        if self._kept is None:  # no rollout was due
            return inputs
        began = time.perf_counter()
        t = self.training_sizes
        made = slices(self._kept, t.samples_per_prompt, t.minibatches, t.micro_batches)
        if t.updates_per_rollout > 1:
            made = [self._with_old(piece) for piece in made]
        self._buffered_inputs = made
        self.recorder.rollout_takes(time.perf_counter() - began)
        return made[self._step % len(made)]

    def _with_old(self, piece: Slice) -> Slice:
        """The slice with log-probs and entropies of the policy that sampled it, which is still the current one."""
        rows = piece.rows
        if len(rows) == 0:
            return piece
        with torch.no_grad():
            logp, entropy, full = self._score(self.model, rows)
        rows = Rows(**{**vars(rows), "old_logp": logp, "old_entropy": entropy, "old_full_logp": full})
        return Slice(**{**vars(piece), "rows": rows})

    # --- 5. loss --------------------------------------------------------------------------------------------------

    def _compute_loss(self, model: Any, inputs: Slice) -> torch.Tensor:
        if len(inputs.rows) == 0:  # no informative group left for this slice: no gradient, see Recorder.before_step
            self.recorder.empty(inputs)
            return sum(p.sum() for p in model.parameters() if p.requires_grad) * 0.0
        logp, entropy, full = self._score(model, inputs.rows)
        batch = inputs.batch(logp, entropy, self.method.key, full)
        split = inputs.parts > 1
        generator = torch.Generator().manual_seed(derive(self.run_seed, "selection", int(self.state.global_step)))
        loss = self.method.loss(
            batch,
            tokens=inputs.tokens if split else None,
            sequences=inputs.sequences if split else None,
            generator=generator,
        )
        self.recorder.part(batch, loss, inputs)
        return loss

    # --- 6. what the curve and a resumed run need -----------------------------------------------------------------

    def _clip_grad_norm(self, model: Any) -> Any:
        norm = super()._clip_grad_norm(model)
        self.recorder.gradient_norm(float(norm))
        return norm

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        self.recorder.saved(int(self.state.global_step), self.refill.position)
