"""What is left to do and what it costs: jobs by kind, GPU-hours, wall time on so many GPUs, disk, downloads."""

from __future__ import annotations

import csv
import heapq
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from models import registry as models
from records.errors import ConfigError, CorruptInputError, unknown
from records.files import read_json
from records.layout import BASE, Checkpoint, Results
from records.yaml_files import read_yaml
from workflow import matrix
from workflow.matrix import Planned

# How long things take: measured where results lie, else config/throughput.yaml. Unknown is None, never 0.


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


KEPT_STATES = 2  # of a run that is training


@dataclass(frozen=True)
class Job:
    """A piece of work: seconds on `gpus` GPUs (cores, for models made here); seconds is None where nothing is known."""

    name: str
    kind: str
    gpus: int
    seconds: float | None
    done: bool
    source: str | None

    @property
    def gpu_seconds(self) -> float | None:
        return None if self.seconds is None else self.seconds * self.gpus


@dataclass(frozen=True)
class World:
    """A configuration and where its results and cache lie."""

    config: Mapping[str, Any]
    results: Results
    cache: Path
    table: Table

    @cached_property
    def planned(self) -> list[Planned]:
        return matrix.plan(self.config)

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        return matrix.checkpoints(self.config)

    @cached_property
    def models(self) -> list[str]:
        return matrix.models_of(self.config)

    @property
    def gpu(self) -> str:
        return self.config["cluster"]["gpu"] if self.config["cluster"] else CPU

    def size(self, model: str) -> str:
        return models.model(model).size or TINY

    def base(self, model: str) -> Path:
        return self.cache / "models" / matrix.base_name(self.config, model)

    def data(self, benchmark: str) -> Path:
        return Path(self.config["evaluation"]["data"]) / f"{benchmark}.jsonl"

    def bytes(self, model: str, what: str) -> float:
        """Of a model's weights as they are on the hub, in a checkpoint, or in a state."""
        size = self.size(model)
        if size not in self.table.parameters:
            raise unknown(str(TABLE), f"sizes (for {model})", size, self.table.parameters)
        return self.table.parameters[size] * self.table.bytes[what]


def train(world: World) -> list[Job]:
    measured = measured_rollout(world.results, world.planned)
    jobs = []
    for planned in world.planned:
        t = matrix.training(world.config, planned)
        gpus = t.get("nodes", 1) * t.get("gpus_per_node", 1)
        sequences = t["prompts_per_rollout"] * t["samples_per_prompt"]
        rate = world.table.of_rollout(world.gpu, world.size(planned.run.model), gpus, sequences)
        if planned.run.model in measured:
            seconds, runs = measured[planned.run.model]
            rate = Rate(seconds, gpus, f"measured here, median of {runs} run{'s' * (runs > 1)}")
        done = (world.results.run(planned.run) / "run.json").is_file()
        total = None if rate is None else rate.seconds * t["rollouts"]
        jobs.append(Job(str(planned.run.path), "train", gpus, total, done, rate.source if rate else None))
    return jobs


def generate(world: World) -> list[Job]:
    from evals import benchmark as registry

    responses = sum(registry.benchmark(key).responses for key in world.config["evaluation"]["benchmarks"])
    measured = measured_evaluation(world.results, world.checkpoints)
    jobs = []
    for checkpoint in world.checkpoints:
        model = checkpoint.run.model
        rate = world.table.of_evaluation(world.gpu, world.size(model), responses)
        if model in measured:
            seconds, number = measured[model]
            source = f"measured here, median of {number} checkpoint{'s' * (number > 1)}"
            rate = Rate(seconds, rate.gpus if rate else 1, source)
        done = (world.results.samples(checkpoint) / "samples.json").is_file()
        seconds_ = rate.seconds if rate else None
        source_ = rate.source if rate else None
        jobs.append(Job(str(checkpoint.path), "generate", rate.gpus if rate else 1, seconds_, done, source_))
    return jobs


def counts(world: World) -> dict[str, tuple[int, int]]:
    """Kind of job -> (how many there are in all, how many are still to do)."""
    made = {model: models.model(model).made_here is not None for model in world.models}
    data = data_file(world)
    prompts = {world.cache / "prompts" / matrix.prompts_name(world.config, model) for model in world.models}
    outputs: dict[str, Sequence[Path]] = {
        "base": [world.base(model) / "base.json" for model in world.models if made[model]],
        "fetch_model": [world.base(model) / "base.json" for model in world.models if not made[model]],
        "training_data": [data] if data else [],
        "hub_prompts" if data else "prompts": sorted(prompts),
        "benchmark_data": [world.data(key) for key in world.config["evaluation"]["benchmarks"]],
        "train": [world.results.run(planned.run) / "run.json" for planned in world.planned],
        "generate": [world.results.samples(checkpoint) / "samples.json" for checkpoint in world.checkpoints],
        "grade": [world.results.grades(checkpoint) / "grades.json" for checkpoint in world.checkpoints],
    }
    return {kind: (len(files), sum(not file.is_file() for file in files)) for kind, files in outputs.items() if files}


def data_file(world: World) -> Path | None:
    """The distinct problems of the data set that prompts are chosen from; None where prompts are generated."""
    if world.config["prompts"]["source"] == "arithmetic":
        return None
    return world.cache / "data" / f"{matrix.data_name(world.config)}.jsonl"


def wall_seconds(trains: Sequence[Job], generates: Sequence[Job], gpus: int) -> float | None:
    """Seconds until all is done when every job starts as soon as what it needs is done and GPUs are free, trainings in
    the order planned. None when a job's time is unknown or it needs more GPUs than there are."""
    jobs = [job for job in [*trains, *generates] if not job.done]
    if any(job.seconds is None or job.gpus > gpus for job in jobs):
        return None
    free = [0.0] * gpus
    heapq.heapify(free)
    ended: dict[str, float] = {}

    def run(job: Job, ready: float) -> float:
        taken = [heapq.heappop(free) for _ in range(job.gpus)]
        end = max(ready, *taken) + (job.seconds or 0.0)
        for _ in taken:
            heapq.heappush(free, end)
        return end

    for job in trains:
        ended[job.name] = 0.0 if job.done else run(job, 0.0)
    waiting = [(ended.get(str(Path(job.name).parent), 0.0), job) for job in generates if not job.done]
    ends = [run(job, ready) for ready, job in sorted(waiting, key=lambda pair: pair[0])]
    return max([*ended.values(), *ends], default=0.0)


def disk(world: World, trains: Sequence[Job], gpus: int) -> dict[str, float]:
    """What -> bytes that are still to be written. States are those of as many runs as train at once on `gpus`."""
    from evals import benchmark as registry

    responses = sum(registry.benchmark(key).responses for key in world.config["evaluation"]["benchmarks"])
    left = [c for c in world.checkpoints if c.run.method != BASE and not world.results.weights(c).is_dir()]
    undrawn = [c for c in world.checkpoints if not (world.results.samples(c) / "samples.json").is_file()]
    return {
        "base models": sum(downloads(world).values()),
        "checkpoints": sum(world.bytes(c.run.model, "checkpoint") for c in left),
        "states to resume from, at most": _states(world, trains, gpus),
        "samples": len(undrawn) * responses * world.table.bytes["sample"],
    }


def _states(world: World, trains: Sequence[Job], gpus: int) -> float:
    """Bytes of what is kept to go on from while as many runs train as GPUs allow, the largest ones first."""
    sizes = {job: world.bytes(Path(job.name).parts[0], "state") * KEPT_STATES for job in trains if not job.done}
    total, free = 0.0, gpus
    for job in sorted(sizes, key=lambda job: sizes[job] / job.gpus, reverse=True):
        if job.gpus <= free:
            total, free = total + sizes[job], free - job.gpus
    return total


def downloads(world: World) -> dict[str, float]:
    """What is fetched from the hub -> bytes, of what is not here yet."""
    from models import training_data

    found = {
        f"{known.hub}@{known.revision or 'main'}": world.bytes(model, "hub")
        for model in world.models
        if (known := models.model(model)).hub and not (world.base(model) / "base.json").is_file()
    }
    data = data_file(world)
    if data and not data.is_file():
        of = training_data.source(world.config["prompts"]["source"])
        found[f"{of.dataset}@{world.config['prompts']['revision'] or 'main'}"] = of.megabytes * 1e6
    return found
