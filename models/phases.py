"""The two training phases of a tiny base (`models.recipe` says why there are two). Both change the model in place."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.batches import Pair, clean_pairs, noisy_pairs
from models.gradients import Gradients, gradients
from models.measure import accuracy
from models.recipe import Recipe
from records.errors import ConfigError
from records.progress import Progress

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


@dataclass(frozen=True)
class Learnt:
    """How phase 1 went: the step whose check passed the gate, the accuracy there and after cooling."""

    gate_step: int
    gate_accuracy: float
    cooled_accuracy: float


def clean(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, recipe: Recipe, *, threads: int = 1) -> Learnt:
    """Train on worked solutions until the gate, then cool down.

    ConfigError when `limit` steps do not reach the gate, or cooling does not reach its own. The weights do not
    depend on `threads`.
    """
    phase = recipe.clean
    rng = random.Random(f"clean {recipe.seed}")
    optimizer = _adamw(model, recipe)

    def check(name: str) -> float:
        return accuracy(
            model,
            tokenizer,
            recipe.ladder,
            count=phase.check_answers,
            tokens=recipe.completion_tokens,
            seed=f"check {recipe.seed} {name}",
        )

    with gradients(model, tokenizer, threads=threads) as add:

        def train(rate: float) -> float:
            return _step(add, optimizer, clean_pairs(rng, recipe.ladder, phase.batch), rate=rate, recipe=recipe)

        progress = Progress(f"{recipe.model} clean, at most", phase.limit)  # left at the gate
        right, step = None, 0
        while right is None or right <= phase.gate:
            if step == phase.limit:
                raise ConfigError(
                    f"{recipe.where}: accuracy {right or 0.0:.3f} after {step} steps stays below the gate "
                    f"{phase.gate}; another seed or learning rate may pass"
                )
            step += 1
            loss = train(phase.learning_rate * min(1.0, step / phase.warmup))
            if step % phase.check_every == 0 or step == phase.limit:
                right = check(str(step))
            progress.update(step, loss=loss, accuracy=right, gate=phase.gate)
        cooling = Progress(f"{recipe.model} cooling", phase.cooling)
        for done in range(1, phase.cooling + 1):
            loss = train(phase.learning_rate * (1 - done / (phase.cooling + 1)))
            cooling.update(done, loss=loss)
        cooled = check("cooled")
    if cooled <= phase.cooled_gate:
        raise ConfigError(
            f"{recipe.where}: accuracy {cooled:.3f} after cooling stays below the gate {phase.cooled_gate}; "
            f"phase 1 was left at step {step} with {right:.3f}"
        )
    return Learnt(step, right, cooled)


def noisy(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, recipe: Recipe, *, threads: int = 1) -> None:
    """Train on solutions of mixed styles with slips, with a fresh optimizer and a linearly falling rate."""
    phase = recipe.noisy
    rng = random.Random(f"noisy {recipe.seed}")
    optimizer = _adamw(model, recipe)
    progress = Progress(f"{recipe.model} noisy", phase.steps)
    rate = _warm_then_linear(phase.learning_rate, phase.last_learning_rate, phase.warmup, phase.steps)
    with gradients(model, tokenizer, threads=threads) as add:
        for step in range(1, phase.steps + 1):
            pairs = noisy_pairs(rng, recipe.ladder, phase)
            loss = _step(add, optimizer, pairs, rate=rate(step), recipe=recipe)
            progress.update(step, loss=loss)


def _warm_then_linear(peak: float, last: float, warmup: int, steps: int) -> Callable[[int], float]:
    def rate(step: int) -> float:
        if step <= warmup:
            return peak * step / warmup
        return peak + (last - peak) * (step - warmup) / (steps - warmup)

    return rate


def _adamw(model: PreTrainedModel, recipe: Recipe) -> torch.optim.AdamW:
    import torch

    return torch.optim.AdamW(
        model.parameters(),
        lr=recipe.clean.learning_rate,
        betas=recipe.betas,
        weight_decay=recipe.weight_decay,
        fused=True,
    )


def _step(
    gradients: Gradients, optimizer: torch.optim.AdamW, pairs: Sequence[Pair], *, rate: float, recipe: Recipe
) -> float:
    """One update on the mean cross-entropy over answer tokens; returns it."""
    import torch

    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    loss = gradients(pairs)
    torch.nn.utils.clip_grad_norm_(gradients.model.parameters(), recipe.gradient_clip)
    optimizer.step()
    return loss
