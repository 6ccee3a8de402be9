"""Train in a bare loop on transformers, without a trainer: one process, one micro-batch per minibatch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import ConfigError
from methods import catalog
from methods.adapters import Outcome
from methods.adapters.reward import Reward
from methods.batch import Batch
from methods.training import movement, rollouts
from methods.training.curve import Recorder
from methods.training.rollouts import choose, deal, derive, order, stream_seed

if TYPE_CHECKING:
    from torch import Tensor

    from methods.method import Method
    from methods.training.run_folder import RunFolder
    from methods.training.spec import Spec, Training


# Override the model's defaults (generation_config.json), which the log-probs ignore.
NEUTRAL = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "num_beams": 1}


def check(t: Training, method: Method) -> None:
    if t.filter == "refill":
        raise ConfigError("spec: training.filter: 'refill': not done by trainer direct; allowed: oversample")
    if t.micro_batches > 1:
        raise ConfigError(f"spec: training.micro_batches: {t.micro_batches}: not done by trainer direct; allowed: 1")
    if method.needs & {"ref_logp", "full_logp"}:
        needs = ", ".join(sorted(method.needs))
        raise ConfigError(f"spec: method: {method.key} needs {needs}: not done by trainer direct")


def preflight(spec: Spec) -> None:
    if spec.placebo is not None:
        raise ConfigError(f"spec: placebo: {spec.placebo!r}: not done by trainer direct")
    check(spec.training, catalog.parse(spec.method))
    rollouts.check_inputs(spec, spec.training.prompts_drawn)


def train(spec: Spec, run: RunFolder, stop: Callable[[], bool]) -> Outcome:
    import torch

    loop = _Loop(spec, run, stop)
    t, rollout = spec.training, run.start.rollout
    recorder = loop.recorder
    recorder.stopped = stop()
    while rollout < t.rollouts and not recorder.stopped and recorder.collapsed_at is None:
        rollout += 1
        due, save = recorder.end_rollout(loop.rollout(rollout))
        for step in due:
            run.publish(step, loop.write)
        if save:
            state = run.state / f"checkpoint-{rollout * t.updates_per_rollout}"
            state.mkdir(parents=True, exist_ok=True)
            torch.save((loop.model.state_dict(), loop.optimizer.state_dict()), state / "weights.pt")
            run.save(state, update=rollout * t.updates_per_rollout, rollout=rollout, refill_position=0)
    run.curve.close()
    return Outcome(rollout * t.updates_per_rollout, not recorder.stopped, recorder.collapsed_at)


class _Loop:
    def __init__(self, spec: Spec, run: RunFolder, stop: Callable[[], bool]):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.spec, self.method = spec, catalog.parse(spec.method)
        self.prompts = rollouts.prompts(spec)
        self.reward = Reward(spec.rewards, spec.reward_weights)
        self.model = AutoModelForCausalLM.from_pretrained(spec.base, dtype=torch.float32)
        self.tokenizer = AutoTokenizer.from_pretrained(spec.base, padding_side="left")
        t = spec.training
        self.optimizer = torch.optim.AdamW(self.model.parameters(), t.learning_rate, weight_decay=t.weight_decay)
        start = run.open()
        if start is not None:
            weights, optimizer = torch.load(start / "weights.pt")
            self.model.load_state_dict(weights)
            self.optimizer.load_state_dict(optimizer)
        self.recorder = Recorder(run, self.method, stop)

    def rollout(self, number: int) -> dict[str, Any]:
        """Sample, score and make all updates of one rollout; return its figures."""
        import torch

        t, n = self.spec.training, self.spec.training.samples_per_prompt
        drawn = order(len(self.prompts), number * t.prompts_drawn, self.spec.seed)[-t.prompts_drawn :]
        rows = [self.prompts[index] for index in drawn for _ in range(n)]
        # prompts are complete: many tokenizers would add a second begin token
        texts = [row["prompt"] for row in rows]
        asked = self.tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        width = asked["input_ids"].shape[1]
        torch.manual_seed(derive(stream_seed(self.spec), "rollout", number))  # the samples depend on nothing else
        ids = self.model.generate(
            **asked, do_sample=True, temperature=t.temperature, max_new_tokens=t.max_completion_tokens,
            pad_token_id=self.tokenizer.pad_token_id, **NEUTRAL,
        )  # fmt: skip
        ends = torch.tensor(self.model.generation_config.eos_token_id).flatten()
        ended = torch.isin(ids[:, width:], ends)
        mask = ended.long().cumsum(1) - ended.long() == 0  # up to and including the end token
        responses = [
            self.tokenizer.decode(row[keep], skip_special_tokens=True)
            for row, keep in zip(ids[:, width:], mask, strict=True)
        ]
        with self.reward.limited("", responses):
            rewards = self.reward(texts, responses, [row["answer"] for row in rows])
        kept = choose(rewards, n, t.prompts_per_rollout, t.filter)  # whole groups with every reward
        reward = torch.tensor([float("nan") if value is None else value for value in rewards])
        at = (torch.tensor(kept, dtype=torch.long).unsqueeze(1) * n + torch.arange(n)).flatten()
        advantage = torch.zeros(len(rows))
        if kept:
            advantage[at] = self.method.advantage(reward[at], at // n, mask[at].sum(1))
        lengths, truncated = mask.sum(1).tolist(), (~ended.any(1)).tolist()
        figures = rollouts.figures(number, rewards, kept, n, lengths, truncated)
        whole = torch.cat([asked["attention_mask"], mask.long()], 1)
        minibatches = []
        for groups in deal(kept, t.minibatches):
            these = (torch.tensor(groups, dtype=torch.long).unsqueeze(1) * n + torch.arange(n)).flatten()
            with torch.no_grad():
                old = self._score(ids[these], whole[these], width) if groups else None
            minibatches.append((these, old))
        for index in range(t.updates_per_rollout):
            these, old = minibatches[index % t.minibatches]
            update, batch = (number - 1) * t.updates_per_rollout + index, None
            loss = norm = moved = None
            if old is not None:
                logp, entropy = self._score(ids[these], whole[these], width)
                batch = Batch(
                    logp=logp, entropy=entropy, old_logp=old[0], old_entropy=old[1], advantage=advantage[these],
                    mask=mask[these], group=these // n, max_tokens=t.max_completion_tokens, label=self.method.key,
                )  # fmt: skip
                value = loss_of(self.method, batch, self.spec.seed, update)
                self.optimizer.zero_grad()
                value.backward()
                loss, before = float(value.detach()), movement.copies(self.model.parameters())
                norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), t.gradient_clip))
                self.recorder.check_gradient(norm, update)
                self.optimizer.step()
                moved = movement.update(before, self.model.parameters())
            self.recorder.write_row(
                figures, index, batch, norm, moved=moved, loss=loss, learning_rate=t.learning_rate,
                tokens=batch.tokens if batch else 0, sequences=batch.sequences if batch else 0,
                seconds_update=None, seconds_rollout=None,
            )  # fmt: skip
        return figures

    def _score(self, ids: Tensor, mask: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Return (B, T) log-probs at the sampling temperature, and entropies, of the responses."""
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        logits = self.model(input_ids=ids, attention_mask=mask, position_ids=positions).logits
        full = (logits[:, width - 1 : -1] / self.spec.training.temperature).log_softmax(-1)
        return full.gather(2, ids[:, width:].unsqueeze(2)).squeeze(2), -(full.exp() * full).sum(2)

    def write(self, folder: Path) -> None:
        self.model.save_pretrained(str(folder))
        self.tokenizer.save_pretrained(str(folder))


def loss_of(method: Method, batch: Batch, seed: int, update: int) -> Tensor:
    """Return the loss that `train` minimises. Random numbers of a selection depend only on run and update."""
    import torch

    return method.loss(batch, generator=torch.Generator().manual_seed(derive(seed, "selection", update)))
