"""What a run with `training.trace: true` keeps of its rollouts, for `python -m methods.replay RUN_A RUN_B`. No torch.

    <run>/trace/rollout<n>.safetensors, <run>/trace/SHA256SUMS

Of N sampled responses, group by group as drawn: `prompt` (N,) its line in the file of prompts, from 0; `length` (N,);
`token` (sum of lengths,); `reward` (N,) as the method is given it, NaN: it did not come in time. Of the K responses
trained on, in the order of the first pass: `row` (K,) among the N, `advantage` (K,), `old_logp` (sum of their
lengths,) in nats.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import digests
from core.files import atomic
from core.provenance import sha256_bytes, sha256_file
from methods.training.rollouts import deal

if TYPE_CHECKING:
    from torch import Tensor

    from methods.batch import Batch
    from methods.training.spec import Training

AFFECTS_RESULTS = False  # it copies what is computed anyway

NAME = "rollout{:06d}.safetensors"


def of_rollouts(folder: Path, rollouts: int) -> dict[str, str]:
    """The sha256 of each file of the first rollouts, as far as they are there."""
    paths = [folder / NAME.format(number) for number in range(1, rollouts + 1)]
    return {path.name: sha256_file(path) for path in paths if path.is_file()}


class Trace:
    """The trace of a run in progress: files of its first `rollouts` are kept from an earlier process."""

    def __init__(self, folder: Path, rollouts: int, training: Training):
        self.folder, self.training = folder, training
        self.digests = of_rollouts(folder, rollouts)
        self.columns: dict[str, list[Any]] = {}  # of the present rollout
        self.kept_groups: Sequence[int] = ()
        for path in {*folder.glob("rollout*.safetensors"), *folder.glob(digests.SUMS)}:
            if path.name not in self.digests:  # of rollouts that are sampled again, or of another run
                path.unlink()

    def sampled(
        self, prompts: Sequence[int], tokens: Sequence[Any], rewards: Sequence[float], kept_groups: Sequence[int]
    ) -> None:
        """A rollout begins with its N responses. tokens: of each, its ids as an array or a tensor on any device."""
        import numpy as np

        ids = [np.asarray(row.tolist(), dtype=np.int32) for row in tokens]
        self.kept_groups = kept_groups
        self.columns = {
            "prompt": [np.asarray(prompts, dtype=np.int64)],
            "length": [np.asarray([len(row) for row in ids], dtype=np.int64)],
            "token": ids,
            "reward": [np.asarray(rewards, dtype=np.float64)],
            **{name: [np.zeros(0, kind)] for name, kind in (("row", "i8"), ("advantage", "f4"), ("old_logp", "f4"))},
        }

    def trained(self, minibatch: int, batch: Batch, place: Tensor | None) -> None:
        """A minibatch of the first pass. place: (B,) of its rows as drawn, -1 for filling rows; None: as they lie."""
        if place is not None:
            batch = batch.rows(place.argsort()[int((place < 0).sum()) :])
        size = self.training.samples_per_prompt
        groups = deal(self.kept_groups, self.training.minibatches)[minibatch]
        rows = [row for group in groups for row in range(group * size, (group + 1) * size)]
        self.columns["row"].append(rows)
        for name, x in (("advantage", batch.advantage), ("old_logp", batch.old_logp[batch.mask])):
            self.columns[name].append(x.float().cpu().numpy())

    def write(self, rollout: int) -> None:
        """Write the file of a rollout (1-based) that has ended."""
        import numpy as np
        from safetensors.numpy import save

        data = save({name: np.concatenate(x, dtype=x[0].dtype, casting="unsafe") for name, x in self.columns.items()})
        path = self.folder / NAME.format(rollout)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as temporary:
            temporary.write_bytes(data)
        self.digests[path.name] = sha256_bytes(data)

    def finish(self) -> None:
        """List the files in SHA256SUMS, with the hashes of what was written."""
        digests.write_sums(self.folder, self.digests)
