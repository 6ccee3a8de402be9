"""Where do two trainers part? One rollout through both, compared tensor by tensor in the order of computation.

    python -m methods.replay record --spec JSON_OR_FILE --out RECORD     the first rollout of a run, sampled by TRL
    python -m methods.replay run --trainer trl --record RECORD --out A   what the trainer computes from it
    python -m methods.replay run --trainer verl --record RECORD --out B
    python -m methods.replay A B                                         the first tensor that differs, and by how much

Both trainers work in float32. Two numbers count as equal when they differ by at most 64 roundings (7.6e-6) of the
largest value in their tensor: a sum of n terms taken in another order differs by about sqrt(n) roundings, and 64 is the
root of 4096; `--roundings` sets another number. For the loss, whose terms cancel, the largest value is that of the
advantages if it is larger; for a gradient it is that of all parameters. The optimiser's step is not compared.
Exit codes: 0 equal, 1 different, 2 wrong input.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import errors
from core.declared import Declared, validated
from core.errors import ConfigError, CorruptInputError, MissingInputError, Parser, unknown, whole
from core.files import read_json, write_json
from core.provenance import version
from methods.training import record
from methods.training.record import BATCH_FIELDS, GRADIENT, REPLAY_FILE
from methods.training.spec import TRAINERS, check, read

if TYPE_CHECKING:
    from torch import Tensor

    from methods.training.spec import Spec

ROUNDINGS = 64  # allowed, see above
ROUNDING = 2.0**-23  # of a float32, relative to the value

NAMES = {
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


@dataclass(frozen=True)
class Replayed:
    """What one trainer computed from a record."""

    folder: Path
    trainer: str  # with its version
    record: str  # digest
    spec: Spec

    def update(self, number: int) -> dict[str, Tensor]:
        """All tensors of an update (0-based), by the names that `record.write_update` gives them."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self.folder / f"update{number}.safetensors"
        if not path.is_file():
            raise MissingInputError(f"{path}: is missing; replay the record again")
        try:
            tensors = load_file(path)
        except SafetensorError as error:
            raise CorruptInputError(f"{path}: cannot be read ({error}); replay the record again") from None
        for name in ("mask", "advantage", "loss"):
            if name not in tensors:
                raise CorruptInputError(f"{path}: {name}: is missing; replay the record again")
        return tensors


@dataclass(frozen=True)
class Difference:
    """The first tensor in which two replays differ."""

    update: int  # 0-based
    name: str  # a value of NAMES
    where: str  # parameter and index, or row of the minibatch and token, of the largest difference
    values: tuple[float | None, float | None]  # there, in A and in B; None: there is none
    largest: float  # absolute difference
    relative: float  # of the largest value, see above
    tolerance: float  # at that place, absolute
    differing: int  # numbers beyond their tolerance
    compared: int
    equal: tuple[str, ...]  # what was compared before, in this update

    def lines(self, updates: int) -> list[str]:
        """For people."""
        a, b = ("missing" if value is None else f"{value:.9g}" for value in self.values)
        lines = [
            f"first difference: update {self.update + 1} of {updates}, {self.name}{self.where}: {a} in A, {b} in B",
            f"  {self.largest:.3g} apart, {self.relative:.2g} of the largest value (tolerance {self.tolerance:.2g}); "
            f"{self.differing} of {self.compared} numbers differ",
            f"  equal before it in this update: {', '.join(self.equal) or 'nothing'}",
        ]
        return [*lines[:2], "  updates before it: equal", lines[2]] if self.update else lines


def compare(a: Replayed, b: Replayed, roundings: int = ROUNDINGS) -> Difference | None:
    """The first difference, or None. `ConfigError` for replays that cannot be compared."""
    if a.record != b.record:
        raise ConfigError(f"{b.folder}: is a replay of another record than {a.folder}")
    for update in range(a.spec.training.updates_per_rollout):
        one, other = a.update(update), b.update(update)
        equal: list[str] = []
        for stage in _stages(one, other, roundings * ROUNDING):
            found = stage.difference(update, tuple(equal))
            if found is not None:
                return found
            equal.append(stage.name)
    return None


@dataclass(frozen=True)
class _Stage:
    """One kind of tensor of one update, in both replays: by place (parameter), with the tolerance of each number."""

    name: str
    pairs: Mapping[str, tuple[Tensor | None, Tensor | None]]
    scale: float
    tolerance: Mapping[str, Any]  # by place: a number or a tensor

    def difference(self, update: int, equal: tuple[str, ...]) -> Difference | None:
        values: tuple[float | None, float | None] = (None, None)
        worst, where, allowed, differing, compared = -1.0, "", 0.0, 0, 0
        for place, (x, y) in self.pairs.items():
            if x is None or y is None or x.shape != y.shape:
                what = "" if x is None or y is None else f" of shape {tuple(x.shape)} in A and {tuple(y.shape)} in B"
                values = (None if x is None else _largest({"": x}), None if y is None else _largest({"": y}))
                nan = float("nan")
                return Difference(update, self.name, f"{_of(place)}{what}", values, nan, nan, 0.0, 1, 1, equal)
            apart = (x.double() - y.double()).abs().nan_to_num(nan=float("inf"))
            tolerance = (apart.new_zeros(()) + self.tolerance[place]).expand_as(apart)
            beyond = apart > tolerance
            compared += beyond.numel()
            differing += int(beyond.sum())
            # the largest of those beyond their tolerance: others may be larger where more is allowed
            candidates = apart.where(beyond, -1.0).flatten()
            if bool(beyond.any()) and float(candidates.max()) > worst:
                at = int(candidates.argmax())
                worst, values = float(candidates[at]), (float(x.flatten()[at]), float(y.flatten()[at]))
                where, allowed = _of(place) + _place(x, at, words=not place), float(tolerance.flatten()[at])
        if not differing:
            return None
        relative = worst / self.scale if self.scale else float("inf")
        return Difference(update, self.name, where, values, worst, relative, allowed, differing, compared, equal)


def _stages(one: dict[str, Tensor], other: dict[str, Tensor], share: float) -> Iterator[_Stage]:
    """In the order of computation; each is made only when those before it are equal.

    share: of the largest value, the tolerance.
    """
    mask = one["mask"]
    for name in (*BATCH_FIELDS, "loss"):
        if name not in one and name not in other:
            continue
        x, y = one.get(name), other.get(name)
        if x is not None and y is not None and x.ndim == 2:
            # the two may have cut padding at other widths
            x, y = _wide(x, max(x.shape[1], y.shape[1])), _wide(y, max(x.shape[1], y.shape[1]))
            if name != "mask":  # equal from here on; padding may hold anything
                padding = ~_wide(mask, x.shape[1])
                x, y = x.masked_fill(padding, 0), y.masked_fill(padding, 0)
        scale = max(_largest({"": z}) for z in (x, y) if z is not None)
        if name == "loss":
            scale = max(scale, _largest({"": one["advantage"]}))
        # masks and group numbers must be the same: 0.5 is between two of them
        exact = name in ("mask", "group")
        yield _Stage(NAMES[name], {"": (x, y)}, scale, {"": 0.5 if exact else share * scale})
    gradient, its = _part(one, GRADIENT), _part(other, GRADIENT)
    scale = max(_largest(gradient), _largest(its))
    yield _Stage(NAMES[GRADIENT], _pairs(gradient, its), scale, dict.fromkeys(gradient, share * scale))


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}


def _pairs(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, tuple[Tensor | None, Tensor | None]]:
    return {name: (one.get(name), other.get(name)) for name in sorted(one.keys() | other.keys())}


def _largest(tensors: Mapping[str, Tensor]) -> float:
    """The largest absolute value of them all; what is not finite is no scale."""
    finite = [x.double().abs().nan_to_num(nan=0.0, posinf=0.0) for x in tensors.values() if x.numel()]
    return max((float(x.max()) for x in finite), default=0.0)


def _wide(x: Tensor, width: int) -> Tensor:
    from torch.nn.functional import pad

    return pad(x, (0, width - x.shape[1]))


def _of(parameter: str) -> str:
    return f" of {parameter}" if parameter else ""


def _place(x: Tensor, flat: int, *, words: bool) -> str:
    """The index of an element; in words for a tensor of rows and tokens."""
    index: list[int] = []
    for size in reversed(x.shape):
        flat, at = divmod(flat, size)
        index.insert(0, at)
    if not index or not words:
        return f" at {index}" if index else ""
    return " at " + ", ".join(f"{name} {number}" for name, number in zip(("row", "token"), index, strict=False))


# --- The command ------------------------------------------------------------------------------------------------------


class ReplayFile(Declared):
    """replay.json."""

    trainer: str
    record: str
    spec: dict[str, Any]


def replayed(folder: Path) -> Replayed:
    """A finished replay; `MissingInputError`, `CorruptInputError` or `ConfigError` for anything else."""
    path = folder / REPLAY_FILE
    values = validated(ReplayFile, read_json(path, "replay of a record"), str(path), error=CorruptInputError)
    return Replayed(folder, values.trainer, values.record, check(values.spec, f"{path}: spec"))


def run(trainer: str, source: Path, out: Path) -> None:
    """Send a record through a trainer; `out` is a new folder."""
    if trainer not in TRAINERS:
        raise unknown("command line", "--trainer", trainer, TRAINERS)
    read_from = record.read_record(source)
    with record.new_folder(out) as folder:
        # by name: neither trainer's package needs the other's to be installed
        module: Any = import_module(f"methods.adapters.{trainer}.replay")
        module.replay(read_from, folder)
        spec = {**read_from.spec(trainer).document}
        made = {"trainer": f"{trainer} {version(trainer)}", "record": read_from.digest, "spec": spec}
        write_json(folder / REPLAY_FILE, made)


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    command = words[0] if words[:1] in (["record"], ["run"]) else ""
    parser = Parser(prog=f"python -m methods.replay {command}".strip())
    if command == "record":
        parser.add_argument("--spec", required=True, help="run specification: JSON, or a file holding it")
        parser.add_argument("--out", required=True, type=Path, help="new folder of the record")
        args = parser.parse_args(words[1:])
        spec = record.one_rollout({**read(args.spec).document, "trainer": "trl"})
        with record.new_folder(args.out) as folder:
            import_module("methods.adapters.trl.replay").record(spec, folder)
        return 0
    if command == "run":
        parser.add_argument("--trainer", required=True, help=" or ".join(TRAINERS))
        parser.add_argument("--record", required=True, type=Path, help="folder of the record")
        parser.add_argument("--out", required=True, type=Path, help="new folder of what the trainer computes")
        args = parser.parse_args(words[1:])
        run(args.trainer, args.record, args.out)
        return 0
    parser.add_argument("a", type=Path, metavar="A", help="folder that `run` wrote")
    parser.add_argument("b", type=Path, metavar="B", help="another")
    parser.add_argument(
        "--roundings", type=whole(1), default=ROUNDINGS, help=f"of a float32 that count as equal (default {ROUNDINGS})"
    )
    args = parser.parse_args(words)
    a, b = replayed(args.a), replayed(args.b)
    updates = a.spec.training.updates_per_rollout
    found = compare(a, b, args.roundings)
    print(f"{a.spec.method}, {updates} updates of one rollout; A: {a.trainer}, B: {b.trainer}")
    print("no difference" if found is None else "\n".join(found.lines(updates)))
    return int(found is not None)


if __name__ == "__main__":
    errors.run(main)
