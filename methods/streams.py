"""Which stream of two recorded runs differs first? Behind `python -m methods.replay RUN_A RUN_B`.

    a finished run of ours    run.json, curve.csv and, with `training.trace: true`, trace/ (`methods.training.trace`)
    TRL with log_completions  completions_<step>.parquet
    verl's rollout_data_dir   <step>.jsonl; groups lie in a random order there, so rows are compared by their prompts

Streams are compared in the order of `OWN_STREAMS`, one rollout after the other, and in a rollout one update after the
other. Numbers are equal when they differ by at most `roundings` roundings of the largest value beside them.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from core import digests
from core.declared import Recorded, validated
from core.errors import ConfigError, CorruptInputError, MissingInputError
from core.files import cells_of, read_csv, read_jsonl
from methods.diagnostics import NAMES
from methods.training.movement import MOVEMENT
from methods.training.trace import NAME

ROUNDING = 2.0**-23  # of a float32, relative to the value
COLUMNS = {  # of curve.csv; those of tokens and rewards are the rollout's, and each row of it repeats them
    "sampled tokens": ("response_tokens", "truncated_fraction"),
    "rewards": ("reward", "reward_given", "reward_timeouts", "groups_kept", "reward_kept"),
    "old log-probs": tuple(name for name in NAMES if name.startswith(("entropy", "sampling_"))),
    "loss": (*(name for name in NAMES if not name.startswith(("entropy", "sampling_"))), "loss"),
    "gradient": ("grad_norm", "learning_rate"),
}
STREAMS = ("base", "prompts", "order", *list(COLUMNS)[:3], "advantage", *list(COLUMNS)[3:])
OWN_STREAMS = (*STREAMS, "update")  # of a run of ours; its checkpoints' hashes come last in their rollouts
FACTS = {"base": "base", "base_files": "base", "prompts": "prompts"}  # inputs of run.json: their stream
SETTINGS_SHOWN = 6


class Part(NamedTuple):
    """A part of a stream, in one rollout."""

    stream: str
    name: str
    rows: Sequence[Any]  # of each an array of numbers or characters
    numbers: Sequence[int | str] | None = None  # of the rows, from 0; None: as they lie; none: a row is no response
    unit: str | None = None  # of what a row holds; None: one number
    update: int = 0  # in the rollout
    mean: bool = False  # of what is not in this part
    scale: float = 0.0  # whose roundings count, where it is larger than all values


class Recording(NamedTuple):
    """A recorded run, or a replay of one rollout."""

    kind: str
    rollouts: Mapping[int, Callable[[], list[Part]]]  # by number, what reads one; 0: what is the same for all
    settings: Mapping[str, object] = MappingProxyType({})
    streams: Sequence[str] = STREAMS
    step: str = "rollout"


def _text(value: object) -> Any:
    """A text as an array of characters; what is no text (messages, numbers) as JSON."""
    import numpy as np

    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


# --- What the three record --------------------------------------------------------------------------------------------


class RunFile(Recorded):
    """run.json, as far as it is compared."""

    spec: dict[str, Any]
    environment: dict[str, Any]
    inputs: dict[str, str]
    outputs: dict[str, str]


def _run(folder: Path) -> Recording:
    path, curve, trace = (folder / name for name in ("run.json", "curve.csv", "trace"))
    run = validated(RunFile, digests.read_record(path, "run record"), str(path), error=CorruptInputError)
    traced = "trace" in run.outputs
    found = {"curve.csv": digests.check(curve)} | (
        {"trace": digests.tree(digests.check_folder(trace))} if traced else {}
    )
    if wrong := [name for name, digest in found.items() if digest != run.outputs.get(name)]:
        raise CorruptInputError(f"{folder / wrong[0]}: differs from its sha256 in {path}")
    rows = read_csv(curve, "curve", ("rollout", "update", *sum(COLUMNS.values(), ())))
    empty = {name for name in rows[0] if not any(row[name] for row in rows)}
    columns = COLUMNS | {"update": tuple(name for name in MOVEMENT if name in rows[0])}  # older curves have none
    by_rollout: dict[int, list[dict[str, str]]] = {}
    with cells_of(curve):
        for row in rows:
            by_rollout.setdefault(int(row["rollout"]), []).append(row)
        parts = {number: list(_columns(of, empty, columns)) for number, of in by_rollout.items()}
    for name in sorted(name for name in run.outputs if name.startswith("checkpoints/")):
        number = min(int(name.removeprefix("checkpoints/step")), max(parts))  # a collapse publishes later ones as well
        hashed, last = [_text(run.outputs[name])], len(by_rollout[number])
        parts[number].append(Part("checkpoint", f"sha256 of {name}", hashed, [], "character", last))

    def read(number: int) -> list[Part]:
        whole = _traced(trace / NAME.format(number)) if traced else []
        # in the first update by stream, what is exact before its mean; later ones as they lie
        return sorted([*whole, *parts[number]], key=lambda p: (p.update, not p.update and OWN_STREAMS.index(p.stream)))

    names = [name for name in FACTS if name in run.inputs]
    facts = [Part(FACTS[name], f"sha256 of {name}", [_text(run.inputs[name])], [], "character") for name in names]
    settings = dict(_leaves({"": run.spec, "environment": run.environment, "code": run.inputs.get("code")}))
    reads = {0: lambda: facts} | {number: partial(read, number) for number in parts}
    return Recording("run", reads, settings, OWN_STREAMS)


def _leaves(value: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, object]]:
    """Dotted names and values, without paths and what follows from others."""
    for key, inner in value.items():
        name = f"{at}.{key}".strip(".")
        if isinstance(inner, Mapping):
            yield from _leaves(inner, name)
        elif name not in ("base", "prompts", "training.trace", "environment.commit", "environment.dirty"):
            yield name, inner


def _columns(
    rows: Iterable[Mapping[str, str]], empty: set[str], columns: Mapping[str, Sequence[str]]
) -> Iterator[Part]:
    import numpy as np

    for update, row in enumerate(rows):
        for nth, (stream, names) in enumerate(columns.items()):
            for name in names if nth > 1 or update == 0 else ():
                if name not in empty:
                    # the policy of a later update is what the gradients before made of the old one
                    of = "gradient" if update and nth == 2 else stream
                    value = np.array([float(row[name] or "nan")])
                    yield Part(of, f"{name} (update {row['update']})", [value], [], None, update, of in STREAMS[3:6])


def _traced(path: Path) -> list[Part]:
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        x = load_file(path)
        rows, ends = x["row"], x["length"].cumsum()
        tokens = np.split(x["token"], ends[:-1])
        old = np.split(x["old_logp"], x["length"][rows].cumsum()[:-1])
        return [
            Part("order", "line of the prompts", x["prompt"][:, None]),
            Part("sampled tokens", "tokens", tokens, unit="token"),
            Part("rewards", "reward", x["reward"][:, None]),
            Part("rewards", "rows kept", rows[:, None]),
            Part("old log-probs", "old log-prob", old if len(rows) else [], rows, "token"),
            Part("advantage", "advantage", x["advantage"][:, None], rows),
        ]
    except (OSError, SafetensorError, KeyError, IndexError) as error:
        raise CorruptInputError(f"{path}: not the trace of a rollout ({' '.join(str(error).split())})") from None


def _completions(path: Path) -> list[Part]:
    """What TRL 1.16's GRPOTrainer.log writes. Rewards: the columns of numbers that have no name of TRL's."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read(use_threads=False)
        texts = {"prompt": "prompts", "completion": "sampled tokens"}
        parts = [Part(texts[n], n, [*map(_text, table[n].to_pylist())], unit="character") for n in texts]
        numbers = [f.name for f in table.schema if pa.types.is_floating(f.type)]
        for name in sorted(numbers, key=lambda name: name == "advantage"):
            stream = "advantage" if name == "advantage" else "rewards"
            parts.append(Part(stream, name, table[name].to_numpy()[:, None]))
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise CorruptInputError(f"{path}: not completions of TRL ({' '.join(str(error).split())[:200]})") from None
    return parts


def _generations(path: Path) -> list[Part]:
    """What verl 0.9's _dump_generations writes."""
    import numpy as np

    lines = read_jsonl(path, "rollouts of verl")
    for number, line in enumerate(lines, 1):
        for key, kind in (("input", str), ("output", str), ("score", (int, float))):
            if not isinstance(line.get(key), kind):
                raise CorruptInputError(f"{path}: line {number}: {key}: got {str(line.get(key))[:40]!r}")
    rows = sorted(range(len(lines)), key=lambda row: str(lines[row]["input"]))  # stable: samples stay as they lie
    texts = {"input": "prompts", "gts": "prompts", "output": "sampled tokens"}
    parts = [Part(texts[n], n, [_text(lines[row].get(n)) for row in rows], rows, "character") for n in texts]
    return [*parts, Part("rewards", "score", [np.array([float(lines[row]["score"])]) for row in rows], rows)]


ADOPTED = (
    ("completions of TRL", (".", "completions"), r"completions_(\d{1,9})\.parquet", _completions),
    ("rollouts of verl", (".",), r"(\d{1,9})\.jsonl", _generations),
)


def recording(folder: Path) -> Recording:
    """The recorded run in a folder; `MissingInputError` if it holds none, `CorruptInputError` if it is damaged."""
    if (folder / "run.json").is_file():
        return _run(folder)
    for kind, places, name, read in ADOPTED:
        files = [path for place in places for path in (folder / place).glob("*")]
        paths = {int(m[1]): path for path in files if (m := re.fullmatch(name, path.name))}
        if paths:
            return Recording(kind, {number: partial(read, path) for number, path in paths.items()})
    raise MissingInputError(
        f"{folder}: holds no recorded run; expected replay.json, run.json (a finished run), "
        "completions_<step>.parquet (TRL) or <step>.jsonl (verl)"
    )


# --- The comparison ---------------------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """The first part in which two recordings differ."""

    number: int  # of the rollout, or the update of a replay
    stream: str
    equal: tuple[str, ...]  # streams compared before it, in this rollout
    place: str  # and both values there: of numbers where they differ most, of ids and characters the first
    largest: float
    tolerance: float  # absolute
    differing: int  # values
    compared: int


def compare(a: Recording, b: Recording, roundings: int = 0) -> Difference | None:
    """The first difference, or None. `ConfigError` for recordings that cannot be compared."""
    common = sorted(a.rollouts.keys() & b.rollouts.keys())
    if a.kind != b.kind or not any(common):
        raise ConfigError(f"A ({a.kind}) and B ({b.kind}) are of two kinds, or have no rollout in common")
    for number in common:
        others = {part.name: part for part in b.rollouts[number]()}
        equal = dict.fromkeys(FACTS.values()) if number and 0 in common else {}
        for part in a.rollouts[number]():
            if part.name not in others or (roundings and part.stream == "checkpoint"):  # a hash knows no rounding
                continue
            stream = part.stream
            if found := _first(part, others[part.name], roundings):
                if stream == "prompts" and number and _prompts(a, part.name) == _prompts(b, part.name):
                    stream = "order"
                return Difference(number, stream, tuple(s for s in equal if s != stream), *found)
            if len(part.rows) and (not part.mean or stream not in equal):
                equal[stream + " (mean)" * part.mean] = None
    return None


def _prompts(recording: Recording, name: str) -> set[bytes]:
    """All prompts of a recorded run."""
    parts = (part for read in recording.rollouts.values() for part in read() if part.name == name)
    return {row.tobytes() for part in parts for row in part.rows}


def _first(x: Part, y: Part, roundings: int) -> tuple[str, float, float, int, int] | None:
    """The fields of `Difference` from `place` on; None: equal."""
    import numpy as np

    exact = all(row.dtype.kind in "iu" for row in (*x.rows, *y.rows))  # ids and characters have no rounding
    sizes = [np.abs(row[np.isfinite(row)]).max(initial=0.0) for row in (*x.rows, *y.rows)]
    tolerance = 0.0 if exact else roundings * ROUNDING * float(max(x.scale, y.scale, *sizes, 0.0))
    place, largest, differing, compared = "", 0.0, 0, 0
    for nth, (p, q) in enumerate(zip_longest(x.rows, y.rows, fillvalue=np.zeros(0))):
        count, longest = sorted((len(p), len(q)))
        one, other = (row[:count].astype(np.float64) for row in (p, q))
        apart = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, np.abs(one - other))
        apart[np.isnan(apart)] = np.inf
        beyond = np.flatnonzero(apart > tolerance)
        most = float(apart.max(initial=0.0)) if len(beyond) else 0.0
        if (len(beyond) or count < longest) and (not place or (most > largest and not exact)):
            at = count if not len(beyond) else int(beyond[0] if exact else apart.argmax())
            rows = [nth if of.numbers is None or nth >= len(of.numbers) else of.numbers[nth] for of in (x, y)]
            place = x.name * (x.name != x.stream)
            if x.numbers is None or len(x.numbers):
                place += f", row {rows[0]}" + f" ({rows[1]} in B)" * (rows[0] != rows[1])
            place += f", {x.unit} {at}" * bool(x.unit) + f": {_shown(p[at:], x)} in A, {_shown(q[at:], x)} in B"
        largest, compared = max(largest, most), compared + longest
        differing += len(beyond) + longest - count
    return (place.removeprefix(", "), largest, tolerance, differing, compared) if place else None


def _shown(rest: Any, part: Part) -> str:
    """The first value of what is left of a row; of characters a few."""
    if not len(rest):
        return "nothing"
    if part.unit == "character":
        return repr("".join(map(chr, rest[:24])))
    return f"{float(rest[0]):.9g}" if rest.dtype.kind == "f" else str(rest[0])


def report(a: Recording, b: Recording, found: Difference | None) -> list[str]:
    """For people: the difference, what was not recorded, and other settings."""
    common, ends = sorted(a.rollouts.keys() & b.rollouts.keys()), [max(side.rollouts) for side in (a, b)]
    lines = [f"equal up to {a.step} {common[-1]} (the last in A is {ends[0]}, in B {ends[1]})"]
    if found:
        at = f"{a.step} {found.number} of {common[-1]}, " if found.number else ""
        lines = [
            f"first difference: {at}{found.stream}, {found.place}",
            f"  {found.differing} of {found.compared} values differ, by up to {found.largest:.3g}"
            f" (tolerance {found.tolerance:.2g})",
            *([f"  {a.step}s before it: equal"] if found.number > 1 else []),
            f"  equal before it: {', '.join(found.equal) or 'nothing'}",
        ]
    for side, name in ((a, "A"), (b, "B")):
        parts = [part for number in {common[0], max(common[:2])} for part in side.rollouts[number]()]
        exact, means = ({part.stream for part in parts if part.mean is mean} for mean in (False, True))
        absent = [stream + " (but its mean)" * (stream in means) for stream in a.streams if stream not in exact]
        lines += [f"  not recorded in {name}: {', '.join(absent)}"] if absent else []
    if gaps := sorted(n for n in a.rollouts.keys() ^ b.rollouts.keys() if n < common[-1]):
        lines.append(f"  not recorded in A or B: {len(gaps)} {a.step}s, the first is {gaps[0]}")
    names = sorted(n for n in a.settings.keys() | b.settings.keys() if a.settings.get(n) != b.settings.get(n))
    shown = [f"{n}: {a.settings.get(n)!r} in A, {b.settings.get(n)!r} in B" for n in names[:SETTINGS_SHOWN]]
    shown += [f"{len(names) - SETTINGS_SHOWN} more"] if len(names) > SETTINGS_SHOWN else []
    return [*lines, *([f"  settings that differ: {'; '.join(shown)}"] if shown else [])]
