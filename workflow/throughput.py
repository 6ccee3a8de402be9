"""How long things take: measured where results lie, else config/throughput.yaml. Unknown is None, never 0."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from records.errors import ConfigError, CorruptInputError
from records.layout import Checkpoint, Results
from records.read import read_json
from records.yaml_files import read_yaml
from workflow.matrix import Planned

TABLE = Path(__file__).parent.parent / "config" / "throughput.yaml"
TINY, CPU = "tiny", "cpu"  # size and device of models made here
_KEYS: Mapping[str, tuple[str, ...]] = {
    "rollout": ("gpu", "size", "seconds", "gpus", "sequences", "source"),
    "evaluation": ("gpu", "size", "tokens_per_second", "gpus", "response_tokens", "source"),
}


@dataclass(frozen=True)
class Rate:
    """seconds: of one rollout, or of one checkpoint's responses; on `gpus` GPUs. source: where the number is from."""

    seconds: float
    gpus: int
    source: str


@dataclass(frozen=True)
class Table:
    """config/throughput.yaml, checked."""

    rollout: Mapping[tuple[str, str], Mapping[str, Any]]
    evaluation: Mapping[tuple[str, str], Mapping[str, Any]]
    parameters: Mapping[str, float]
    bytes: Mapping[str, float]

    def of_rollout(self, gpu: str, size: str, gpus: int, sequences: int) -> Rate | None:
        found = self.rollout.get((gpu, size))
        if found is None:
            return None
        seconds = found["seconds"] * sequences / found["sequences"] * found["gpus"] / gpus
        return Rate(seconds, gpus, found["source"])

    def of_evaluation(self, gpu: str, size: str, responses: int) -> Rate | None:
        found = self.evaluation.get((gpu, size))
        if found is None:
            return None
        seconds = responses * found["response_tokens"] / found["tokens_per_second"]
        return Rate(seconds, found["gpus"], found["source"])


def read(path: Path = TABLE) -> Table:
    """`ConfigError` names the file, the entry and its key."""
    given = read_yaml(path, "throughput table")
    if missing := {"sizes", "bytes", *_KEYS} - given.keys():
        raise ConfigError(f"{path}: {', '.join(sorted(missing))}: missing")
    return Table(
        rollout=_entries(path, "rollout", given["rollout"]),
        evaluation=_entries(path, "evaluation", given["evaluation"]),
        parameters={key: _positive(path, f"sizes.{key}", entry, "parameters") for key, entry in given["sizes"].items()},
        bytes={key: _positive(path, f"bytes.{key}", entry, "value") for key, entry in given["bytes"].items()},
    )


def _entries(path: Path, name: str, given: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Mapping[str, Any]]:
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for number, entry in enumerate(given):
        where = f"{name}.{number}"
        if set(entry) != set(_KEYS[name]):
            wrong = sorted(set(entry) ^ set(_KEYS[name]))
            raise ConfigError(f"{path}: {where}: {wrong[0]}: every entry has exactly {', '.join(_KEYS[name])}")
        for key in _KEYS[name]:
            if key not in ("gpu", "size", "source"):
                _positive(path, where, entry, key)
        if (entry["gpu"], entry["size"]) in found:
            raise ConfigError(f"{path}: {where}: {entry['size']} on {entry['gpu']} is given twice")
        found[entry["gpu"], entry["size"]] = entry
    return found


def _positive(path: Path, where: str, entry: Mapping[str, Any], key: str) -> float:
    try:
        value = float(entry[key])
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: {where}.{key}: must be a number, got {entry.get(key)!r}") from error
    if not value > 0:
        raise ConfigError(f"{path}: {where}.{key}: {value} is not positive")
    return value


def measured_rollout(results: Results, planned: Iterable[Planned]) -> dict[str, tuple[float, int]]:
    """model -> (median seconds of a rollout, runs it is from), from the curves that are there, finished or not."""
    found: dict[str, list[float]] = {}
    for p in planned:
        folder = results.run(p.run)
        path = next((c for c in (folder / "curve.csv", folder / "state" / "curve.csv") if c.is_file()), None)
        seconds = None if path is None else _seconds(path)
        if seconds is not None:
            found.setdefault(p.run.model, []).append(seconds)
    return {model: (statistics.median(values), len(values)) for model, values in found.items()}


def _seconds(path: Path) -> float | None:
    """Mean seconds of the rollouts of a curve; None for one without a rollout."""
    with open(path, encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    try:
        rollouts = {row["rollout"] for row in rows}
        total = sum(float(row["seconds_update"]) + float(row["seconds_rollout"] or 0) for row in rows)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptInputError(f"{path}: seconds_update, seconds_rollout: unreadable ({error!r})") from error
    return total / len(rollouts) if rollouts else None


def measured_evaluation(results: Results, checkpoints: Iterable[Checkpoint]) -> dict[str, tuple[float, int]]:
    """model -> (median seconds of drawing a checkpoint's responses, checkpoints it is from)."""
    found: dict[str, list[float]] = {}
    for checkpoint in checkpoints:
        path = results.samples(checkpoint) / "samples.json"
        if path.is_file():
            entries = read_json(path, "record of samples")["benchmarks"].values()
            found.setdefault(checkpoint.run.model, []).append(sum(entry["seconds"] for entry in entries))
    return {model: (statistics.median(values), len(values)) for model, values in found.items()}
