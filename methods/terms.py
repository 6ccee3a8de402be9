"""What the slots of one loss read, computed at most once. Made anew for every loss: no graph outlives its backward."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from methods.batch import Batch
    from methods.parts import Parts


class Terms:
    """A batch seen through a method's parts. A value equal for all tokens of a row may be (B, 1) instead of (B, T)."""

    def __init__(self, batch: Batch, parts: Parts, generator: Generator | None = None):
        self.batch, self.parts, self.generator = batch, parts, generator

    @cached_property
    def logp_BT(self) -> Tensor:  # noqa: N802
        """log pi(y_t), zero on padding."""
        return self.batch.valid(self.batch.logp)

    @cached_property
    def log_ratio_BT(self) -> Tensor:  # noqa: N802
        """d_t = log pi(y_t) / pi_old(y_t), zero on padding."""
        return self.batch.valid(self.batch.logp - self.batch.old_logp)

    @cached_property
    def lengths_B1(self) -> Tensor:  # noqa: N802
        """|y| in the log-probs' dtype; 1 for dropped rows, so that dividing by it is safe."""
        return self.batch.lengths_B.clamp(min=1).to(self.batch.logp.dtype).unsqueeze(1)

    @cached_property
    def advantage(self) -> Tensor:
        """A, (B, 1), or (B, T) once shaped."""
        advantage_B1 = self.batch.advantage.to(self.batch.logp.dtype).unsqueeze(1)
        return self.parts.shape(self.batch, advantage_B1) if self.parts.shape else advantage_B1

    @cached_property
    def log_weight(self) -> Tensor:
        """Logarithm of the importance weight at the method's level."""
        return self.parts.ratio(self)
