"""A method: slots filled with parts.  loss = -reduce( correction * mask * surrogate - sum of penalties )."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from core.errors import ConfigError, CorruptInputError
from methods import diagnostics as _diagnostics
from methods.batch import INTEGERS, NUMBERS, WIDE, check_tensor
from methods.parts import SCOPES, Part, Parts, Scope, Terms
from methods.parts.objective import Count

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from methods.batch import Batch


def _needs(slots: Iterable[Part]) -> frozenset[str]:
    """Return the optional `Batch` fields that these parts and their inner parts read."""
    return frozenset().union(*(part.own_needs for slot in slots for part in slot.nested))


@dataclass(frozen=True)
class Method:
    """A fully configured policy-optimisation loss, built by `methods.catalog.parse`."""

    key: str  # canonical text such as tepo+beta=1; the name of its folder in results
    title: str  # as printed in tables
    source: str  # the paper that proposed it
    parts: Parts
    params: Mapping[str, Any] = field(default_factory=dict)  # option -> value, recorded with a run
    readings: Mapping[str, Any] = field(default_factory=dict)  # ambiguity -> label in use, recorded with a run

    @property
    def scope(self) -> Scope:
        """Unit that a micro-batch split must keep whole: token (any), sequence (rows), batch (see `select`)."""
        return max((part.own_scope for slot in self.parts.filled().values() for part in slot.nested), key=SCOPES.index)

    @property
    def needs(self) -> frozenset[str]:
        """Optional `Batch` fields that the loss reads."""
        return _needs(self.parts.filled().values())

    def advantage(self, reward_B: Tensor, group_B: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Return advantages (B,) for rewards (B,) of whole prompt groups: float64 for float64 rewards, else float32.

        Call it once per rollout with the rows that will be trained on: REINFORCE++ averages over all of them.
        reward_B: any real dtype or bool. group_B: any integer dtype; rows with the same number answer the same prompt.
        lengths_B: response tokens of each row, (B,); without it REINFORCE++ and OPO raise `ConfigError`. Raises
        `CorruptInputError` for a wrong type, shape or dtype, for rewards that are not finite, and for a group of one
        response where the advantage is relative to the group.
        """
        import torch

        check_tensor("reward", reward_B, ("B",), NUMBERS)
        check_tensor("group", group_B, tuple(reward_B.shape), INTEGERS)
        if lengths_B is not None:
            check_tensor("lengths", lengths_B, tuple(reward_B.shape), (*INTEGERS, *WIDE))
        # 0/1 rewards are often integers or bool, and an integer advantage would be truncated
        dtype = torch.promote_types(reward_B.dtype, torch.float32)
        advantage_B: Tensor = self.parts.advantage(reward_B.to(dtype), group_B, lengths_B)
        return advantage_B.to(dtype)

    @property
    def splittable(self) -> bool:
        """Whether micro-batch losses with `select`'s values add up to the minibatch's; not for agg-scope=microbatch."""
        return all(part.own_scope != "batch" for part in self.parts.reduce.nested)

    def select(self, minibatch: Batch, generator: Generator | None = None) -> dict[str, Tensor]:
        """Return the per-token values of statistics over a whole update minibatch: {part: (B, T)}, without gradient.

        Empty for methods without such a statistic. A trainer that splits the minibatch calls this once, with the
        log-probs of the policy before the update. It passes each micro-batch its rows of every tensor. The losses of
        the micro-batches then add up to the minibatch's. Raises the same errors as `loss`.
        """
        import torch

        self.check(minibatch, _needs(self.parts.statistics))
        with torch.no_grad():
            t = Terms(minibatch, self.parts, generator)
            return {str(part): part(t) for part in self.parts.statistics}

    def loss(
        self,
        batch: Batch,
        *,
        tokens: Count = None,
        sequences: Count = None,
        generator: Generator | None = None,
        selected: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Return the scalar to minimise. Gradient flows to `logp`, and to `entropy` if it carries one.

        tokens, sequences: counts of the update minibatch if `batch` is a micro-batch of it. If they are counted over
        all ranks and gradients are averaged over ranks (DDP, FSDP), divide the counts by the number of ranks.
        generator: a CPU generator, for methods that draw tokens at random (Clip-Cov).
        selected: this micro-batch's rows of what `select` returned for its minibatch; None: `batch` is a minibatch.
        Raises `ConfigError` if a required tensor is missing, and `CorruptInputError` if a count is not above 0 or the
        loss is not finite.
        """
        self.check(batch)
        for name, count in (("tokens", tokens), ("sequences", sequences)):
            if count is not None and not 0 < float(count) < math.inf:
                raise CorruptInputError(
                    f"{self.key}: {name}: got {float(count):g}, expected the minibatch's count, above 0"
                )
        t, parts = Terms(batch, self.parts, generator, selected), self.parts
        objective = parts.surrogate(t)
        # the mask applies to the surrogate only: each penalty has a separate mask
        if parts.mask is not None:
            objective = objective * parts.mask(t).to(objective.dtype)
        if parts.correction is not None:
            objective = objective * parts.correction(t)
        for penalty in parts.penalties:
            objective = objective - penalty(t)
        loss = -parts.reduce(objective, batch, tokens, sequences)
        # checked here, because an optimiser step on a NaN or infinite loss silently destroys the weights
        if not math.isfinite(value := float(loss.detach())):
            largest = float(t.log_ratio_BT.detach().abs().max())
            raise CorruptInputError(f"{self.key}: loss is {value}; largest |log ratio| {largest:.3g}")
        return loss

    def diagnostics(self, batch: Batch) -> dict[str, float | None]:
        """Return the metrics common to all methods and trainers; see `methods.diagnostics`."""
        self.check(batch)
        return _diagnostics.diagnostics(self.parts, batch)

    def check_unchanged(self, batch: Batch) -> dict[str, float | str] | None:
        """Check a minibatch whose policy is the one that sampled it; see `methods.diagnostics.check_unchanged`."""
        return _diagnostics.check_unchanged(self.parts, batch)

    def check_repeatable(self, batch: Batch) -> None:
        """Raise `ConfigError` if two calls with the same input give another loss, or another advantage.

        A formula that keeps a running mean or coefficient loses it when a run resumes, and no other check would notice;
        neither does this one if the state no longer changes. batch: a whole minibatch; costs three losses without
        gradients.
        """
        import torch

        # on the CPU: elsewhere a sum's last bits may differ between two calls
        batch = batch.detached()
        # In between, another input: a running mean of equal values stays where it is.
        other = replace(batch, logp=1.1 * batch.logp, advantage=-batch.advantage)
        kept = batch.lengths_B > 0  # without rows that only fill a batch
        rows = torch.arange(int(kept.sum()))
        given = 1.0 + rows % 2, batch.group[kept], batch.lengths_B[kept]  # invented rewards
        with torch.no_grad():
            losses = [self.loss(each, generator=torch.Generator().manual_seed(0)) for each in (batch, other, batch)]
            advantages = [self.advantage(reward_B, *given[1:]) for reward_B in (given[0], 3.0 + rows, given[0])]
            for what, (first, _, second) in {"loss": losses, "advantage": advantages}.items():
                if not torch.equal(first.nan_to_num(), second.nan_to_num()):
                    raise ConfigError(
                        f"{self.key}: the {what} of the same input differs between two calls: a formula keeps state, "
                        "which a resumed run would lose; compute it from the batch alone (docs/extend.md)"
                    )

    def check(self, batch: Batch, needs: frozenset[str] | None = None) -> None:
        """Raise `ConfigError` with the name of the first tensor of `needs` (None: of the loss) that `batch` lacks."""
        for name in sorted(self.needs if needs is None else needs):
            if getattr(batch, name) is None:
                raise ConfigError(
                    f"{self.key}: {name}: needed by the loss, not supplied (needs: {', '.join(sorted(self.needs))})"
                )
