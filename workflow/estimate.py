"""What is left to do and what it costs: jobs by kind, GPU-hours, disk, downloads. What is unknown is None, never 0."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from core.declared import Declared, Tuple, validated
from core.errors import BenchError, CorruptInputError, unknown
from core.files import read_growing_csv, read_yaml
from core.layout import Checkpoint, Run
from core.provenance import ROOT
from evals import benchmark as benchmarks
from evals import store
from methods import catalog
from methods.adapters import adapter
from methods.method import Method
from methods.training import spec
from models import registry as models
from models import training_data
from workflow import matrix, memory
from workflow.matrix import Planned
from workflow.plan import Asked

DATA = ("config/throughput.yaml",)
THROUGHPUT = ROOT / DATA[0]
TINY, CPU = "tiny", "cpu"  # size and device of models made here
UTILISATION = 0.25  # of a card's peak by passes: assumed, as the seconds of docs/notebook/gpu.md

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]


class Rate(Declared):
    gpu: str
    size: str  # of the model
    gpus: Count  # that it was measured or assumed on
    source: str


class RolloutRate(Rate):
    seconds: Positive  # of one rollout
    sequences: Count  # trained on per rollout


class EvaluationRate(Rate):
    tokens_per_second: Positive
    response_tokens: Positive  # mean length of a response


class BuildRate(Declared):
    ladder: str  # of the problems that a model made here learns
    stage: str  # clean or base
    seconds: Positive
    source: str


class Parameters(Declared):
    parameters: Positive
    source: str


class Bytes(Declared):
    per: str  # parameter, response, or token of one
    value: Positive
    source: str


class Card(Declared):
    gib: Positive  # of memory, 2^30 bytes
    # Dense peak in bfloat16. Without it no attention is added to its rollouts; measured ones have theirs.
    tflops: Positive | None = None
    source: str


class Throughput(Declared):
    """config/throughput.yaml."""

    gpus: dict[str, Card]
    sizes: dict[str, Parameters]
    bytes: dict[str, Bytes]
    build: Tuple[BuildRate]
    rollout: Tuple[RolloutRate]
    evaluation: Tuple[EvaluationRate]

    @field_validator("rollout", "evaluation")
    @classmethod
    def _each_once(cls, rates: tuple[Rate, ...]) -> tuple[Rate, ...]:
        pairs = [f"{rate.size} on {rate.gpu}" for rate in rates]
        if twice := [pair for pair in pairs if pairs.count(pair) > 1]:
            raise ValueError(f"{twice[0]} is given twice")
        return rates


def read(path: Path = THROUGHPUT) -> Throughput:
    return validated(Throughput, read_yaml(path, "throughput table"), str(path))


@dataclass(frozen=True)
class Job:
    """A run to train or a checkpoint to evaluate. `gpus` are cores for models made here."""

    name: str
    kind: str
    gpus: int
    seconds: float | None  # on all of `gpus`
    done: bool
    source: str | None  # of `seconds`

    @property
    def model(self) -> str:
        return self.name.partition("/")[0]


@dataclass(frozen=True)
class World(Asked):
    """What a configuration asks for, and what is known of its cost."""

    throughput: Throughput

    @cached_property
    def trainings(self) -> dict[Run, tuple[spec.Spec, Method] | BenchError]:
        """What each run is trained with, or why its specification or trainer refuses it."""
        found: dict[Run, tuple[spec.Spec, Method] | BenchError] = {}
        for planned in self.planned:
            try:
                given = matrix.specification(self.config, planned, "base", "prompts")
                run = spec.check(given, str(planned.run.path))
                method = catalog.parse(run.method)
                adapter(run.trainer).plan(run.training, method)
                found[planned.run] = run, method
            except BenchError as error:
                found[planned.run] = error
        return found

    @cached_property
    def models(self) -> list[str]:
        return matrix.models_of(self.config)

    @property
    def gpu(self) -> str:
        return self.config["cluster"]["gpu"] if self.config["cluster"] else CPU

    @property
    def responses(self) -> int:
        """Of one checkpoint, to all benchmarks."""
        return sum(benchmarks.benchmark(key).responses for key in self.config["evaluation"]["benchmarks"])

    def size(self, model: str) -> str:
        return models.model(model).size or TINY

    def fetched_base(self, model: str) -> Path:
        """The folder of a fetched model, which is one for all seeds."""
        return self.base(model, 0)

    @property
    def base_records(self) -> dict[str, list[Path]]:
        """By stage, the records of the clean models and of the bases that are made here."""
        names = {"clean": sorted({build.clean for build in self.builds.values()}), "base": list(self.builds)}
        return {stage: [self.cache / "models" / name / f"{stage}.json" for name in names[stage]] for stage in names}

    def benchmark_file(self, benchmark: str) -> Path:
        return Path(self.config["evaluation"]["data"]) / f"{benchmark}.jsonl"

    def samples(self, checkpoint: Checkpoint) -> Path:
        return self.results.samples(checkpoint) / "samples.json"

    def record(self, planned: Planned) -> Path:
        return self.results.run(planned.run) / "run.json"

    def bytes(self, model: str, what: str) -> float:
        """Of a model's weights as they are on the hub, in a checkpoint, or in a state."""
        size, shape = self.size(model), models.model(model).shape
        listed = self.throughput.sizes.get(size, shape)
        if listed is None:
            raise unknown(str(THROUGHPUT), f"sizes (for {model})", size, self.throughput.sizes)
        return listed.parameters * self.throughput.bytes[what].value

    def response_bytes(self, model: str) -> float:
        """Of one response, stored and graded. Of a size without a length of its own the longest known is taken."""
        lengths = {(rate.gpu, rate.size): rate.response_tokens for rate in self.throughput.evaluation}
        tokens = lengths.get((self.gpu, self.size(model)), max(lengths.values()))
        return self.throughput.bytes["row"].value + tokens * self.throughput.bytes["sample"].value


def train(world: World) -> list[Job]:
    """A job per run. Seconds grow with the sequences of a rollout and shrink with the GPUs."""
    rates = {(rate.gpu, rate.size): rate for rate in world.throughput.rollout}
    measured = _measured_sequences(world)
    jobs = []
    for planned in world.planned:
        training = matrix.training(world.config, planned)
        gpus = training.get("nodes", 1) * training.get("gpus_per_node", 1)
        sequences = training["prompts_per_rollout"] * training["samples_per_prompt"]
        seconds = source = None
        if own := measured.get(_kind(world, planned)):
            per_sequence, source = _median(own, "run")
            seconds = per_sequence * sequences * training["rollouts"]
        elif rate := rates.get((world.gpu, world.size(planned.run.model))):
            attention = _attention_seconds(world, planned)
            per_rollout = rate.seconds * sequences / rate.sequences * rate.gpus / gpus + attention
            seconds, source = per_rollout * training["rollouts"], rate.source
            if attention:
                source += f"; and {attention:.0f} s a rollout for sdpa's attention over packed sequences"
        jobs.append(Job(str(planned.run.path), "train", gpus, seconds, world.record(planned).is_file(), source))
    return jobs


def _median(seconds: Sequence[float], what: str) -> tuple[float, str]:
    """The median, so that one job on a busy machine does not decide, and where it comes from."""
    return statistics.median(seconds), f"measured here, median of {len(seconds)} {what}{'s' * (len(seconds) > 1)}"


def _attention_seconds(world: World, planned: Planned) -> float:
    """Of one rollout with verl, where sdpa multiplies whole micro-batches; a quarter of the card's peak is assumed."""
    card, shape = world.throughput.gpus.get(world.gpu), models.model(planned.run.model).shape
    made = world.trainings[planned.run]
    if card is None or card.tflops is None or shape is None or isinstance(made, BenchError):
        return 0.0
    run, method = made
    if run.trainer != "verl" or run.training.attention != "sdpa":
        return 0.0
    flops = memory.attention_flops(shape, run.training, method)
    return flops / run.training.gpus / (UTILISATION * card.tflops * 1e12)


def _kind(world: World, planned: Planned) -> tuple[str, str]:
    """Model and trainer: one says nothing of the other's seconds."""
    return planned.run.model, matrix.trainer(world.config, planned)


def _measured_sequences(world: World) -> dict[tuple[str, str], list[float]]:
    """`_kind` -> mean seconds a sequence of a rollout, in each run that has a curve, finished or not."""
    measured: dict[tuple[str, str], list[float]] = {}
    for planned in world.planned:
        folder = world.results.run(planned.run)
        # A run that is still training has its curve in state/.
        path = folder / "curve.csv" if (folder / "curve.csv").is_file() else folder / "state" / "curve.csv"
        rows = read_growing_csv(path)  # none where there is no such file
        try:
            rollouts = {row["rollout"] for row in rows}
            total = sum(float(row["seconds_update"]) + float(row["seconds_rollout"] or 0) for row in rows)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptInputError(f"{path}: seconds_update, seconds_rollout: unreadable ({error!r})") from error
        if rollouts:
            training = matrix.training(world.config, planned)
            sequences = training["prompts_per_rollout"] * training["samples_per_prompt"]
            measured.setdefault(_kind(world, planned), []).append(total / len(rollouts) / sequences)
    return measured


def build(world: World) -> list[Job]:
    """A job per clean model and per base that is made here."""
    rates = {(rate.ladder, rate.stage): rate for rate in world.throughput.build}
    jobs = []
    for stage, records in world.base_records.items():
        rate = rates.get((world.config["base"]["ladder"], stage))
        seconds, source = (None, None) if rate is None else (rate.seconds, f"{stage}: {rate.source}")
        jobs += [Job(path.parent.name, "base models", 1, seconds, path.is_file(), source) for path in records]
    return jobs


def generate(world: World) -> list[Job]:
    """A job per checkpoint that is evaluated."""
    rates = {(rate.gpu, rate.size): rate for rate in world.throughput.evaluation}
    measured: dict[str, list[float]] = {}
    for checkpoint in world.checkpoints:
        if (path := world.samples(checkpoint)).is_file():
            spent = [entry.get("seconds") for entry in store.read_record(path).values()]
            if None not in spent:
                measured.setdefault(checkpoint.run.model, []).append(sum(filter(None, spent)))
    jobs = []
    for checkpoint in world.checkpoints:
        model, done = checkpoint.run.model, world.samples(checkpoint).is_file()
        rate = rates.get((world.gpu, world.size(model)))
        seconds = source = None
        if model in measured:
            seconds, source = _median(measured[model], "checkpoint")
        elif rate is not None:
            seconds, source = world.responses * rate.response_tokens / rate.tokens_per_second, rate.source
        jobs.append(Job(str(checkpoint.path), "generate", rate.gpus if rate else 1, seconds, done, source))
    return jobs


def counts(world: World) -> dict[str, tuple[int, int]]:
    """Kind of job -> (how many there are in all, how many are still to do)."""
    fetched = [model for model in world.models if models.model(model).made_here is None]
    data = world.data_file
    outputs: dict[str, Sequence[Path]] = {
        **world.base_records,
        "fetch_model": [world.fetched_base(model) / "base.json" for model in fetched],
        "training_data": [data] if data else [],
        "hub_prompts" if data else "prompts": sorted({world.prompts(planned.run) for planned in world.planned}),
        "benchmark_data": [world.benchmark_file(key) for key in world.config["evaluation"]["benchmarks"]],
        "train": [world.record(planned) for planned in world.planned],
        "generate": [world.samples(checkpoint) for checkpoint in world.checkpoints],
        "grade": [world.results.grades(checkpoint) / "grades.json" for checkpoint in world.checkpoints],
    }
    return {kind: (len(files), sum(not file.is_file() for file in files)) for kind, files in outputs.items() if files}


def disk(world: World, trains: Sequence[Job], gpus: int) -> dict[str, float]:
    """What -> bytes that are still to be written."""
    # Also those that only blocks with `evaluate: false` keep.
    trained = [Checkpoint(planned.run, step) for planned in world.planned for step in planned.steps]
    unsaved = [checkpoint for checkpoint in trained if not world.results.weights(checkpoint).is_dir()]
    unanswered = [checkpoint for checkpoint in world.checkpoints if not world.samples(checkpoint).is_file()]
    return {
        "base models": sum(downloads(world, on_disk=True).values()),
        "checkpoints": sum(world.bytes(checkpoint.run.model, "checkpoint") for checkpoint in unsaved),
        "states to resume from, at most": _states(world, trains, gpus),
        "samples": sum(world.response_bytes(checkpoint.run.model) * world.responses for checkpoint in unanswered),
    }


def _states(world: World, trains: Sequence[Job], gpus: int) -> float:
    """Bytes of the states of as many runs as `gpus` allow at once, the largest first: a run's end removes its state."""
    # a new one is complete before the oldest is removed
    most = world.config["training"].get("kept_states", spec.Training.model_fields["kept_states"].default) + 1
    sizes = {job: world.bytes(job.model, "state") * most for job in trains if not job.done}
    total, free = 0.0, gpus
    for job in sorted(sizes, key=lambda job: sizes[job] / job.gpus, reverse=True):
        if job.gpus <= free:
            total += sizes[job]
            free -= job.gpus
    return total


def downloads(world: World, *, on_disk: bool = False) -> dict[str, float]:
    """What is still to be fetched -> bytes of the download, or of what it becomes on disk."""
    sizes: dict[str, float] = {}
    for model in world.models:
        known = models.model(model)
        if known.made_here is not None or (world.fetched_base(model) / "base.json").is_file():
            continue
        if known.wheel is not None:
            sizes[known.wheel.package] = world.bytes(model, "checkpoint") if on_disk else known.wheel.bytes
        else:
            sizes[f"{known.hub}@{known.revision or 'main'}"] = world.bytes(model, "hub")
    data = world.data_file
    if data is not None and not data.is_file():
        source = training_data.source(world.config["prompts"]["source"])
        sizes[f"{source.dataset}@{world.config['prompts']['revision'] or 'main'}"] = source.megabytes * 1e6
    return sizes
