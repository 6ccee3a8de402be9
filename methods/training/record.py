"""One recorded rollout, and what a trainer computed from it: the folders of `python -m methods.replay`.

A record: record.json (the run specification, the digest of the model folder), rollout.safetensors (prompts, responses,
rewards, the sampler's and the reference's log-probs), weights<u>.safetensors (before update u, from the second on) and
SHA256SUMS. Every update of a replay starts from the record's weights, so that a difference in one update is not carried
into the next. The optimiser's step is not compared: AdamW divides rounding by its own size.

A replay: update<u>.safetensors (what the trainer computed in update u) and replay.json, written last.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from core import digests
from core.declared import Declared, validated
from core.errors import ConfigError, CorruptInputError
from core.files import read_json, write_json
from methods.training.spec import Spec, check

if TYPE_CHECKING:
    from torch import Tensor

    from methods.batch import Batch

# Fields of a `Batch` that a replay keeps, each before what is computed from it; then loss and gradients.
BATCH_FIELDS = (
    "mask", "group", "advantage", "sampling_logp", "ref_logp", "old_logp", "old_entropy", "logp", "entropy",
)  # fmt: skip
GRADIENT = "gradient/"  # prefix of a parameter's name
RECORD_FILE, REPLAY_FILE, ROLLOUT_FILE = "record.json", "replay.json", "rollout.safetensors"


@dataclass(frozen=True)
class Record:
    """A record as it lies on disk."""

    folder: Path
    document: Mapping[str, Any]  # the specification, with one rollout
    digest: str  # of all its files
    rollout: Mapping[str, Tensor]  # fields of `Rows` that are there after sampling, see `methods.adapters.trl`

    def spec(self, trainer: str) -> Spec:
        """The run that this trainer would be."""
        return one_rollout({**self.document, "trainer": trainer}, str(self.folder / RECORD_FILE))

    def weights(self, update: int) -> dict[str, Tensor]:
        """The weights before update `update` (0-based, not the first, which starts from the model folder)."""
        from safetensors.torch import load_file

        return load_file(self.folder / f"weights{update}.safetensors")


def one_rollout(document: Mapping[str, Any], where: str = "spec") -> Spec:
    """The specification cut to its first rollout, on one device in float32; `ConfigError` for what is not replayed."""
    changed: dict[str, Any] = {**document, "checkpoints": [1]}
    changed["training"] = {**changed["training"], "rollouts": 1}
    spec = check(changed, where)
    if spec.training.gpus > 1:
        raise ConfigError(f"{where}: training.gpus_per_node: a replay runs in one process; allowed: 1 node with 1 GPU")
    if spec.training.precision != "float32":  # rounding of bfloat16 hides more than it shows
        raise ConfigError(f"{where}: training.precision: {spec.training.precision!r}; a replay compares float32 only")
    return spec


class RecordFile(Declared):
    """record.json."""

    spec: dict[str, Any]
    base_sha256: str


def write_record(folder: Path, spec: Spec, rollout: Mapping[str, Tensor]) -> None:
    """Complete a folder in which the weights lie already."""
    from safetensors.torch import save_file

    save_file({name: x.detach().cpu().contiguous() for name, x in rollout.items()}, folder / ROLLOUT_FILE)
    # absolute paths: the record may be replayed from another folder
    paths = {name: str(Path(getattr(spec, name)).resolve()) for name in ("base", "prompts")}
    write_json(
        folder / RECORD_FILE,
        {"spec": {**spec.document, **paths}, "base_sha256": digests.tree(digests.check_model(spec.base))},
    )
    digests.write_folder(folder)


def read_record(folder: Path) -> Record:
    """Raises `MissingInputError` without a record, `CorruptInputError` if it or the model is not what was recorded."""
    from safetensors.torch import load_file

    found = digests.check_folder(folder, advice="record it again")
    path = folder / RECORD_FILE
    values = validated(RecordFile, read_json(path, "record of a rollout"), str(path), error=CorruptInputError)
    base = check(values.spec, f"{path}: spec").base
    if digests.tree(digests.check_model(base)) != values.base_sha256:
        raise CorruptInputError(f"{base}: is not the model that {path} names: it has another sha256")
    return Record(folder, values.spec, digests.tree(found), load_file(folder / ROLLOUT_FILE))


def write_update(folder: Path, update: int, batch: Batch, loss: float, gradients: Mapping[str, Tensor]) -> None:
    """Write what a trainer computed in this update: the loss's input and value, gradients before clipping."""
    import torch
    from safetensors.torch import save_file

    tensors = {name: x for name in BATCH_FIELDS if (x := getattr(batch, name)) is not None}
    tensors["loss"] = torch.tensor(loss, dtype=torch.float64)
    tensors |= {GRADIENT + name: x for name, x in gradients.items()}
    # cloned: safetensors refuses two tensors that share memory
    kept = {name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}
    save_file(kept, folder / f"update{update}.safetensors")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder that becomes `out` when the block ends without an error. `ConfigError` if `out` is there."""
    if out.exists():
        raise ConfigError(f"--out: {out}: is there already; name a new folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        yield folder
        folder.chmod(0o755)  # mkdtemp's is closed to others
        folder.rename(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # not there any more, unless something was raised
