"""A method: slots filled with parts.  loss = -reduce( correction * mask * surrogate - sum of penalties )."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from core.errors import ConfigError, CorruptInputError
from methods import diagnostics as _diagnostics
from methods.batch import INTEGERS, NUMBERS, WIDE, check_tensor
from methods.parts import Parts, Scope, Terms, widest
from methods.parts.objective import Count

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from methods.batch import Batch


@dataclass(frozen=True)
class Method:
    """One policy-optimisation loss with every choice made. Built by `methods.catalog.parse`."""

    key: str  # canonical text such as tepo+beta=1; the name of its folder in results
    title: str  # as printed in tables
    source: str  # the paper that proposed it
    parts: Parts
    params: Mapping[str, Any] = field(default_factory=dict)  # option -> value, recorded with a run
    readings: Mapping[str, Any] = field(default_factory=dict)  # ambiguity -> label in force, recorded with a run

    @property
    def scope(self) -> Scope:
        """What a micro-batch split may not cut: token (nothing), sequence (rows stay whole), batch (see `select`)."""
        return widest([part.scope for part in self.parts.filled().values()])

    @property
    def needs(self) -> frozenset[str]:
        """Optional `Batch` fields the loss reads."""
        return frozenset().union(*(part.needs for part in self.parts.filled().values()))

    def advantage(self, reward_B: Tensor, group_B: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Rewards (B,) of whole prompt groups -> advantages (B,), float64 for rewards in float64, else float32.

        Call it once per rollout with the rows that will be trained on: REINFORCE++ averages over all of them.
        reward_B: any real dtype, bool too. group_B: any integer dtype; rows with one number answer one prompt.
        lengths_B: response tokens of each row, (B,); without it REINFORCE++ and OPO raise `ConfigError`. Another type,
        shape or dtype, rewards that are not finite, and a group of one response where a group is needed, raise
        `CorruptInputError`.
        """
        import torch

        check_tensor("reward", reward_B, ("B",), NUMBERS)
        check_tensor("group", group_B, tuple(reward_B.shape), INTEGERS)
        if lengths_B is not None:
            check_tensor("lengths", lengths_B, tuple(reward_B.shape), (*INTEGERS, *WIDE))
        # 0/1 rewards are often integers or bool, in which an advantage would be cut to a whole number
        dtype = torch.promote_types(reward_B.dtype, torch.float32)
        advantage_B: Tensor = self.parts.advantage(reward_B.to(dtype), group_B, lengths_B)
        return advantage_B.to(dtype)

    @property
    def splittable(self) -> bool:
        """Whether micro-batches with `select`'s values add up to the minibatch: all but agg-scope=microbatch."""
        return self.parts.reduce.scope != "batch"

    def select(self, minibatch: Batch, generator: Generator | None = None) -> dict[str, Tensor]:
        """What statistics over a whole update minibatch say about each of its tokens: {part: (B, T)}, no gradient.

        Empty for methods without such a statistic. A trainer that splits the minibatch calls this once, with the
        log-probs of the policy before the update, and gives every micro-batch its rows of each tensor: the losses of
        the micro-batches then add up to the minibatch's. `full_logp` is not read. Raises as `loss` does.
        """
        import torch

        statistics = self.parts.statistics
        for part in statistics:
            self._check(minibatch, part.needs)
        with torch.no_grad():
            t = Terms(minibatch, self.parts, generator)
            return {str(part): part(t) for part in statistics}

    def loss(
        self,
        batch: Batch,
        *,
        tokens: Count = None,
        sequences: Count = None,
        generator: Generator | None = None,
        selected: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Scalar to minimise. Its gradient flows to `logp`, and to `entropy` or `full_logp` where they carry one.

        tokens, sequences: the update minibatch's counts, when `batch` is a micro-batch of it. Counted over all ranks, a
        gradient that is averaged over ranks (DDP, FSDP) is 1/ranks of the right one: divide the counts by the ranks.
        generator: on the CPU, for methods that draw tokens at random (Clip-Cov).
        selected: this micro-batch's rows of what `select` returned for its minibatch; None: `batch` is all there is.
        Raises `ConfigError` when a needed tensor is missing, `CorruptInputError` for a count that is not above 0 and
        when the loss is not finite.
        """
        self.check(batch)
        for name, count in (("tokens", tokens), ("sequences", sequences)):
            if count is not None and not 0 < float(count) < math.inf:
                raise CorruptInputError(
                    f"{self.key}: {name}: got {float(count):g}, expected the minibatch's count, above 0"
                )
        t, parts = Terms(batch, self.parts, generator, selected), self.parts
        objective = parts.surrogate(t)
        # the mask acts on the surrogate alone: each penalty brings a mask of its own
        if parts.mask is not None:
            objective = objective * parts.mask(t).to(objective.dtype)
        weight = parts.correction
        if weight is not None and weight.settings["on"] == "surrogate":
            objective = objective * weight(t)
        for penalty in parts.penalties:
            objective = objective - penalty(t)
        if weight is not None and weight.settings["on"] == "objective":
            objective = objective * weight(t)
        loss = -parts.reduce(objective, batch, tokens, sequences)
        # refused here, because an optimiser step on a NaN or infinite loss destroys the weights without a message
        if not math.isfinite(value := float(loss.detach())):
            largest = float(t.log_ratio_BT.detach().abs().max())
            raise CorruptInputError(f"{self.key}: loss is {value}; largest |log ratio| {largest:.3g}")
        return loss

    def diagnostics(self, batch: Batch) -> dict[str, float | None]:
        """The same metrics for every method and trainer; see `methods.diagnostics`."""
        self.check(batch)
        return _diagnostics.diagnostics(self.parts, batch)

    def check_unchanged(self, batch: Batch) -> dict[str, float | str] | None:
        """Of a minibatch whose policy is the one that sampled it; see `methods.diagnostics.check_unchanged`."""
        return _diagnostics.check_unchanged(self.parts, batch)

    def check(self, batch: Batch) -> None:
        """Raise `ConfigError` naming the first needed tensor that `batch` lacks."""
        self._check(batch, self.needs)

    def _check(self, batch: Batch, needs: frozenset[str]) -> None:
        for name in sorted(needs):
            if getattr(batch, name) is None:
                raise ConfigError(
                    f"{self.key}: {name}: needed by the loss, not supplied (needs: {', '.join(sorted(self.needs))})"
                )
