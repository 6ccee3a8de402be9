"""Where do two trainers, or two recorded runs, part? The first stream or tensor that differs, in order of computation.

    python -m methods.replay RUN_A RUN_B                                 two recorded runs: see `methods.streams`

Two trainers: one rollout through both, compared tensor by tensor.

    python -m methods.replay record --spec JSON_OR_FILE --out RECORD     the first rollout of a run, sampled by TRL
    python -m methods.replay run --trainer trl --record RECORD --out A   what the trainer computes from it
    python -m methods.replay run --trainer verl --record RECORD --out B
    python -m methods.replay A B                                         the first tensor that differs, and by how much

Both trainers work in float32. Two numbers count as equal when they differ by at most 64 roundings (7.6e-6) of the
largest value in their tensor: a sum of n terms taken in another order differs by about sqrt(n) roundings, and 64 is the
root of 4096; `--roundings` sets another number. For the loss, whose terms cancel, the largest value is that of the
advantages if it is larger; for a gradient it is that of all parameters.
Exit codes: 0 equal, 1 different, 2 wrong input.

A record: record.json (the run specification, the digest of the model folder), rollout.safetensors (prompts, responses,
rewards, the sampler's and the reference's log-probs), weights<u>.safetensors (before update u, from the second on) and
SHA256SUMS. Every update of a replay starts from the record's weights, so that a difference in one update is not carried
into the next. The optimiser's step is not compared: AdamW divides rounding by its own size.

A replay: update<u>.safetensors (what the trainer computed in update u) and replay.json, written last.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from core import digests, errors
from core.declared import Declared, validated
from core.errors import ConfigError, CorruptInputError, MissingInputError, Parser, unknown, whole
from core.files import read_json, write_json
from core.provenance import version
from methods import streams
from methods.streams import Part, Recording
from methods.training.spec import TRAINERS, Spec, check, read

if TYPE_CHECKING:
    from torch import Tensor

    from methods.batch import Batch

ROUNDINGS = 64  # allowed, see above
RECORD_FILE, REPLAY_FILE, ROLLOUT_FILE = "record.json", "replay.json", "rollout.safetensors"
GRADIENT = "gradient/"  # prefix of a parameter's name

NAMES = {  # what a replay keeps, each before what is computed from it
    "mask": "response mask",
    "group": "prompt group",
    "advantage": "advantage",
    "sampling_logp": "sampler's log-prob",
    "ref_logp": "reference log-prob",
    "old_logp": "old log-prob",
    "old_entropy": "old entropy",
    "logp": "log-prob",
    "entropy": "entropy",
    "loss": "loss",
    GRADIENT: "gradient",
}
BATCH_FIELDS = tuple(NAMES)[:-2]

# --- Records ----------------------------------------------------------------------------------------------------------


class RecordFile(Declared):
    """record.json."""

    spec: dict[str, Any]
    base_sha256: str


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


def one_rollout(document: Mapping[str, Any], where: str = "spec") -> Spec:
    """The specification cut to its first rollout, on one device in float32; `ConfigError` for what is not replayed."""
    training = {**document["training"], "rollouts": 1}
    spec = check({**document, "checkpoints": [1], "training": training}, where)
    if spec.training.gpus > 1:
        raise ConfigError(f"{where}: training.gpus_per_node: a replay runs in one process; allowed: 1 node with 1 GPU")
    if spec.training.precision != "float32":  # rounding of bfloat16 hides more than it shows
        raise ConfigError(f"{where}: training.precision: {spec.training.precision!r}; a replay compares float32 only")
    return spec


def write_record(folder: Path, spec: Spec, rollout: Mapping[str, Tensor]) -> None:
    """Complete a folder in which the weights lie already."""
    write_tensors(folder / ROLLOUT_FILE, rollout)
    # absolute paths: the record may be replayed from another folder
    paths = {name: str(Path(getattr(spec, name)).resolve()) for name in ("base", "prompts")}
    base = digests.tree(digests.check_model(spec.base))
    write_json(folder / RECORD_FILE, {"spec": {**spec.document, **paths}, "base_sha256": base})
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


def weights_file(folder: Path, update: int) -> Path:
    """The weights before update `update` (0-based; the first starts from the model folder)."""
    return folder / f"weights{update}.safetensors"


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    from safetensors.torch import save_file

    # cloned: safetensors refuses two tensors that share memory
    save_file({name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}, path)


# --- Replays ----------------------------------------------------------------------------------------------------------


class ReplayFile(Declared):
    """replay.json."""

    trainer: str
    record: str
    spec: dict[str, Any]


class Updates:
    """Writes what a trainer computes in each update of a replay, and gives it the record's weights for the next."""

    def __init__(self, record: Record, folder: Path, count: int):
        self.record, self.folder, self.count = record, folder, count
        self.done = 0

    def add(self, batch: Batch, loss: float, gradients: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> None:
        """An update: the loss's input and value, gradients before clipping. parameters: changed in place."""
        import torch
        from safetensors.torch import load_file

        tensors = {name: x for name in BATCH_FIELDS if (x := getattr(batch, name)) is not None}
        tensors["loss"] = torch.tensor(loss, dtype=torch.float64)
        tensors |= {GRADIENT + name: x for name, x in gradients.items()}
        write_tensors(self.folder / f"update{self.done}.safetensors", tensors)
        self.done += 1
        if self.done < self.count:
            for name, x in load_file(weights_file(self.record.folder, self.done)).items():
                parameters[name].copy_(x)


# --- The comparison ---------------------------------------------------------------------------------------------------


def recording(folder: Path) -> Recording:
    """A finished replay, whose updates are compared as rollouts are.

    `MissingInputError`, `CorruptInputError` or `ConfigError` for anything else.
    """
    path = folder / REPLAY_FILE
    values = validated(ReplayFile, read_json(path, "replay of a record"), str(path), error=CorruptInputError)
    spec = check(values.spec, f"{path}: spec")
    updates = range(spec.training.updates_per_rollout)
    reads = {number + 1: partial(_parts, folder / f"update{number}.safetensors") for number in updates}
    settings = {"method": spec.method, "trainer": values.trainer}
    return Recording(f"replay of record {values.record}", reads, settings, tuple(NAMES.values()), "update")


def _parts(path: Path) -> list[Part]:
    """A part for each tensor of an update, without padding; of a tensor that is not there, one without rows."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.is_file():
        raise MissingInputError(f"{path}: is missing; replay the record again")
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise CorruptInputError(f"{path}: cannot be read ({error}); replay the record again") from None
    for name in ("mask", "advantage", "loss"):
        if name not in tensors:
            raise CorruptInputError(f"{path}: {name}: is missing; replay the record again")
    mask = tensors["mask"]
    parts = []
    for name in (*BATCH_FIELDS, "loss"):
        x = tensors.get(name)
        if x is None:
            rows: Any = []
        elif name == "mask":
            rows = [row[: row.nonzero()[0].max(initial=-1) + 1].astype(int) for row in mask]
        else:
            rows = [row[keep] for row, keep in zip(x, mask, strict=True)] if x.ndim == 2 else x.reshape(-1, 1)
        sizes = abs(tensors["advantage"])
        # of the loss, whose terms cancel; what is not finite is no scale
        scale = float(sizes[sizes < math.inf].max(initial=0.0)) if name == "loss" else 0.0
        unit = "token" if x is not None and x.ndim == 2 else None
        parts.append(Part(NAMES[name], NAMES[name], list(rows), [] if name == "loss" else None, unit, scale=scale))
    gradients = {n.removeprefix(GRADIENT): x.ravel() for n, x in sorted(tensors.items()) if n.startswith(GRADIENT)}
    return [*parts, Part("gradient", "gradient", list(gradients.values()), list(gradients), "number")]


# --- The command ------------------------------------------------------------------------------------------------------


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


def run(trainer: str, source: Path, out: Path) -> None:
    """Send a record through a trainer; `out` is a new folder."""
    if trainer not in TRAINERS:
        raise unknown("command line", "--trainer", trainer, TRAINERS)
    record = read_record(source)
    with new_folder(out) as folder:
        # by name: neither trainer's package needs the other's to be installed
        module: Any = import_module(f"methods.adapters.{trainer}.replay")
        module.replay(record, folder)
        spec = {**record.spec(trainer).document}
        made = {"trainer": f"{trainer} {version(trainer)}", "record": record.digest, "spec": spec}
        write_json(folder / REPLAY_FILE, made)


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    command = words[0] if words[:1] in (["record"], ["run"]) else ""
    parser = Parser(prog=f"python -m methods.replay {command}".strip())
    if command == "record":
        parser.add_argument("--spec", required=True, help="run specification: JSON, or a file holding it")
        parser.add_argument("--out", required=True, type=Path, help="new folder of the record")
        args = parser.parse_args(words[1:])
        spec = one_rollout({**read(args.spec).document, "trainer": "trl"})
        with new_folder(args.out) as folder:
            import_module("methods.adapters.trl.replay").record(spec, folder)
        return 0
    if command == "run":
        parser.add_argument("--trainer", required=True, help=" or ".join(TRAINERS))
        parser.add_argument("--record", required=True, type=Path, help="folder of the record")
        parser.add_argument("--out", required=True, type=Path, help="new folder of what the trainer computes")
        args = parser.parse_args(words[1:])
        run(args.trainer, args.record, args.out)
        return 0
    parser.add_argument("a", type=Path, metavar="A", help="folder that `run` wrote, or a recorded run")
    parser.add_argument("b", type=Path, metavar="B", help="another of the same kind")
    help_text = f"of a float32 that count as equal (default {ROUNDINGS}; 0 for recorded runs)"
    parser.add_argument("--roundings", type=whole(1), help=help_text)
    args = parser.parse_args(words)
    replays = any((folder / REPLAY_FILE).is_file() for folder in (args.a, args.b))
    reader, roundings = (recording, ROUNDINGS) if replays else (streams.recording, 0)
    sides = reader(args.a), reader(args.b)
    found = streams.compare(*sides, roundings=args.roundings or roundings)
    print("\n".join(streams.report(*sides, found)))
    return int(found is not None)


if __name__ == "__main__":
    errors.run(main)
