"""What would stop the work, or make it wait for ever, found before anything is launched."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from core.errors import BenchError, ConfigError
from core.files import read_json, read_yaml
from evals import benchmark as benchmarks
from methods.adapters.verl import config as verl
from methods.training import spec
from models import registry as models
from models import training_data
from workflow import estimate, matrix, memory, resources
from workflow.estimate import Job, World
from workflow.plan import Asked

PROFILE = Path("profiles/slurm/config.yaml")

# What the packages of environment.yml need of a machine.
DRIVER = 580  # torch 2.11.0 and vLLM 0.24.0 are built with CUDA 13
PATIENCE = 20  # seconds for a command's answer
GLIBC = (2, 31)  # llguidance, which vLLM needs, has no wheel for an older one


def problems(world: World, jobs: Sequence[Job], gpus: int) -> list[str]:
    """One sentence per thing that is missing or wrong. gpus: how many there are."""
    trains = [job for job in jobs if job.kind == "train"]
    sentences = [*_shapes(world), *_runs(world), *_memory(world)]
    untimed = {f"{job.kind} {world.size(job.model)}" for job in jobs if job.seconds is None}
    sentences += [
        f"config/throughput.yaml: no entry to estimate `{what}` on {world.gpu} with" for what in sorted(untimed)
    ]
    largest = max(job.gpus for job in trains)
    if largest > gpus:
        sentences.append(f"cluster.gpus: {gpus}, and a run needs {largest}")
    sentences += _disk(world, trains, gpus)
    cluster = world.config["cluster"]
    if cluster is not None and cluster["gpus"] > cluster["gpus_per_node"]:  # the GPUs of one machine need no Slurm
        for rule in ("train", "train_nodes"):
            sentences += time_limit(rule, _profile(rule))
        sentences += _slurm(cluster["gpus_per_node"], largest)
        sentences += glibc(os.confstr("CS_GNU_LIBC_VERSION") if hasattr(os, "confstr") else None)
        sentences += driver(_answer(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]))
        sentences += attention(cluster["attention"], lambda package: importlib.util.find_spec(package) is not None)
    return sentences


def limits(plan: Asked, *, check: bool) -> dict[str, int]:
    """Return what the jobs of one machine share, by the names of Snakemake's resources. check: raise as `check_here`.

    One GPU: nothing tells a job which of several is its own, so each would take the first.
    """
    memory = check_here(World(plan.config, plan.results, plan.cache, estimate.read())) if check else None
    return {"gpu": 1} if memory is None else {"gpu": 1, "mem_mb": memory}


def check_here(world: World) -> int | None:
    """The MB that jobs may share, where fetched models are trained on this machine's CPU; None: no such runs.

    Raises `ConfigError` for memory or disk that they lack.
    """
    if world.config["cluster"] is not None or not any(models.model(model).shape for model in world.models):
        return None
    trains = estimate.train(world)
    for sentence in (*_memory(world), *_disk(world, trains, os.cpu_count() or 1)):
        raise ConfigError(f"{world.config['scale']}: {sentence}")
    return resources.memory_here()


def driver(versions: str | None) -> Iterator[str]:
    """versions: what nvidia-smi says, a line for each GPU; None where it says nothing, as on most login nodes."""
    for version in sorted(set((versions or "").split())):
        major = re.match(r"\d+", version)
        if major and int(major[0]) < DRIVER:
            yield (
                f"driver {version}: torch and vLLM are built with CUDA 13 and need {DRIVER} or newer; "
                "docs/environments.md"
            )


def glibc(version: str | None) -> Iterator[str]:
    """version: as `os.confstr("CS_GNU_LIBC_VERSION")` gives it; None on a system with another C library."""
    found = re.fullmatch(r"glibc (\d+)\.(\d+).*", version or "")
    if found and (int(found[1]), int(found[2])) < GLIBC:
        yield (
            f"{found[0]}: vLLM needs {GLIBC[0]}.{GLIBC[1]} or newer here and on the nodes; without it, a container: "
            "docs/environments.md"
        )


def attention(chosen: str, installed: Callable[[str], bool]) -> Iterator[str]:
    """Whether the chosen kernel's package is there. installed: tells of a package by its import name.

    Where torch is not installed, Snakemake's environment is not the jobs', and says nothing of theirs.
    """
    if chosen == "flash_attention_2" and installed("torch") and not installed("flash_attn"):
        yield (
            "cluster.attention: flash_attention_2: the package flash-attn is not installed; docs/environments.md, or "
            "attention: sdpa"
        )


def _answer(command: Sequence[str]) -> str | None:
    """What a command prints; None where it is missing, fails or gives no answer."""
    try:
        return subprocess.check_output(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, encoding="utf-8", timeout=PATIENCE
        )
    except (OSError, subprocess.SubprocessError):
        return None


def to_fetch(world: World) -> Iterator[str]:
    """One line for each thing that is not there and that Snakemake fetches, with the command that does so now."""
    for model in world.models:
        known, folder = models.model(model), world.fetched_base(model)
        if known.made_here is None and not (folder / "base.json").is_file():
            yield f"model {model}: python -m models.fetch {known.fetched_by(model)} --out {folder}"
    file = world.data_file
    if file and not file.is_file():
        source = world.config["prompts"]["source"]
        given = {key: world.config["prompts"][key] for key in ("revision", "sha256")}
        option = "".join(f" --{key} {value}" for key, value in given.items() if value)
        yield (
            f"training problems {training_data.source(source).dataset}: python -m models.training_data "
            f"--source {source}{option} --out {file}"
        )
    fetched = [key for key in world.config["evaluation"]["benchmarks"] if not benchmarks.benchmark(key).synthetic]
    missing = [key for key in fetched if not world.benchmark_file(key).is_file()]
    if missing:
        folder = world.config["evaluation"]["data"]
        yield f"benchmarks: python -m evals.fetch --benchmarks {' '.join(missing)} --data {folder}"


def _shapes(world: World) -> Iterator[str]:
    """Where a fetched config.json says other sizes than the model's file in config/models."""
    for model in world.models:
        shape, path = models.model(model).shape, world.fetched_base(model) / "config.json"
        if shape is None or not path.is_file():
            continue
        config = read_json(path, "model configuration")
        # head_dim is left out where it is hidden_size / heads
        for key, value in shape.model_dump(exclude={"source", "head_dim"}).items():
            if config.get(key, value) != value:
                yield f"{path}: {key}: {config[key]!r}, and its file in config/models says {value!r}"


def _runs(world: World) -> Iterator[str]:
    """What a run's specification, its trainer or its machine refuses; a sentence that holds for many runs once."""
    refusals: dict[str, str] = {}
    # GPUs here and no Slurm: the runs will be here. Else a job brings the CPUs.
    here = shutil.which("nvidia-smi") is not None and shutil.which("sinfo") is None
    for planned in world.planned:
        made = world.trainings[planned.run]
        try:
            if isinstance(made, BenchError):
                raise made
            if made[0].trainer == "verl" and made[0].training.device == "cuda":
                need = world.need(planned)
                counted = (os.cpu_count() or 1) if here else need.cores * need.nodes
                verl.check_cpus(made[0].training, counted, "this machine" if here else "its job")
        except BenchError as error:
            refusals.setdefault(str(error), f"run {planned.run.path}: {error}")
    yield from refusals.values()


def _memory(world: World) -> Iterator[str]:
    """Runs whose estimated peak is more than one GPU, or this machine, has; once for many runs of a model."""
    said: dict[tuple[str, str], str] = {}
    if world.config["cluster"] is None:
        yield from _cpu_memory(world)
        return
    for planned in world.planned:
        model, made = models.model(planned.run.model), world.trainings[planned.run]
        if model.shape is None or matrix.trainer(world.config, planned) != "verl":
            continue
        card = world.throughput.gpus.get(world.gpu)
        if card is None:
            known = ", ".join(world.throughput.gpus)
            yield f"config/throughput.yaml: gpus: has no memory of {world.gpu}; there are: {known}"
            return
        if not isinstance(made, BenchError):  # these are named by `_runs`
            run, method = made
            found = memory.estimate(model.shape, run.training, method, card.gib)
            if sentence := too_much(found, world.gpu, card.gib, f"cluster.sizes.{model.size}", run.training):
                said.setdefault((planned.run.model, sentence), f"run {planned.run.path}: {sentence}")
    yield from said.values()


def _cpu_memory(world: World) -> Iterator[str]:
    """The first run of a fetched model that needs more memory than this machine has left."""
    free = resources.memory_here()
    for planned in world.planned:
        shape = models.model(planned.run.model).shape
        if shape is not None and free is not None and not world.record(planned).is_file():
            needed = world.need(planned).memory
            if needed > free:
                yield (
                    f"run {planned.run.path}: needs {needed / 1000:.1f} GB of memory, {free / 1000:.1f} GB are free "
                    "here; raise training.micro_batches, or free some"
                )
                return


def too_much(found: memory.Memory, gpu: str, gib: float, sizes: str, training: spec.Training) -> str | None:
    """What does not fit on a GPU of `gib` GiB and the key that changes it; None: it fits. sizes: key of the model's."""
    longest = training.max_prompt_tokens + training.max_completion_tokens
    if found.engine_least > found.engine:
        return (
            f"the inference engine needs {found.engine_least:.1f} GiB and gets {found.engine:.1f} of {gpu}'s {gib:g}; "
            f"raise cluster.rollout_memory ({training.rollout_memory:g}) or {sizes}.tensor_parallel"
        )
    if found.peak <= gib:
        return None
    more = f"{sizes}.nodes or cluster.gpus_per_node"
    if found.phase == "sampling":
        change = f"lower cluster.rollout_memory ({training.rollout_memory:g}), or raise {more}"
    elif found.phase in ("optimiser step", "weight sync") or training.max_tokens_per_gpu <= longest:
        change = f"raise {more}"
    else:
        change = (
            f"lower cluster.max_tokens_per_gpu ({training.max_tokens_per_gpu}; at least {longest}), or raise {more}"
        )
    return (
        f"{found.peak:.1f} GiB in the phase `{found.phase}` ({found.states:.1f} of states, micro-batches up to "
        f"{found.tokens:,} tokens), and {gpu} has {gib:g}; {change}"
    )


def _disk(world: World, trains: Sequence[Job], gpus: int) -> Iterator[str]:
    root = world.results.root.absolute()
    folder = next(path for path in [root, *root.parents] if path.is_dir())
    needed, free = sum(estimate.disk(world, trains, gpus).values()), shutil.disk_usage(folder).free
    if needed > free:
        yield f"disk: {needed / 1e9:,.0f} GB will be written, {free / 1e9:,.0f} GB are free in {folder}"


def time_limit(rule: str, profile: dict[str, Any]) -> Iterator[str]:
    """A time limit so short that training is told to save as soon as it starts. profile: what `rule` asks for."""
    # Slurm looks at its jobs once a minute, so it may tell them that much earlier.
    signal = re.search(r"--signal=\w+@(\d+)", str(profile.get("slurm_extra", "")))
    minutes = re.match(r"(\d+)\s*(?:\*|$)", str(profile.get("runtime", "")))
    if signal and minutes and 60 * (int(minutes[1]) - 1) <= int(signal[1]):
        yield (
            f"Slurm: {PROFILE}: {rule}: runtime: {minutes[1]} minutes, and --signal tells training {signal[1]} s "
            f"before the limit to save and end: as soon as it starts. Allowed: more than "
            f"{int(signal[1]) // 60 + 1} minutes"
        )


def _slurm(gpus_per_node: int, largest: int) -> Iterator[str]:
    """Whether the partition has what the largest run needs, where Slurm's commands are."""
    if shutil.which("sinfo") is None:
        return
    # partition, generic resources, number of nodes that have both
    listing = _answer(["sinfo", "-h", "-o", "%R|%G|%D"])
    if listing is None:  # the rest of the plan is still worth reading
        yield f"Slurm: sinfo fails, or gives no answer within {PATIENCE} s"
    else:
        yield from slurm(listing, _profile("train"), gpus_per_node, largest // gpus_per_node)


def slurm(listing: str, profile: dict[str, Any], gpus: int, nodes: int) -> Iterator[str]:
    """listing: `partition|gres|nodes` lines of sinfo; profile: what training asks for. Each run takes `nodes` nodes of
    `gpus` GPUs in one partition."""
    rows = [line.split("|") for line in listing.split()]
    partitions = sorted({row[0] for row in rows})
    partition, model = profile.get("slurm_partition"), profile.get("gpu_model")
    if partition is not None and partition not in partitions:
        yield f"Slurm: partition {partition} of {PROFILE} does not exist; there are: {', '.join(partitions)}"
        return
    suitable: Counter[str] = Counter()
    for name, generic, count in rows:
        if partition in (None, name) and _gpus_of(generic, model) >= gpus:
            suitable[name] += int(count)
    most = max(suitable.values(), default=0)
    if most < nodes:
        kind = f"{model} GPUs" if model else "GPUs"
        where = f"partition {partition}" if partition else "the partition with most of them"
        yield f"Slurm: a run needs {nodes} node{'s' * (nodes > 1)} with {gpus} {kind} each; {where} has {most}"


def _gpus_of(resources: str, model: str | None) -> int:
    """`gpu:h100:8(S:0-1),shm:1` has 8 GPUs, of any model or of h100."""
    entries = re.findall(r"(?:^|,)gpu(?::([^:,(]+))?:(\d+)(?=[,(]|$)", resources)
    return sum(int(number) for name, number in entries if model in (None, name))


def _profile(rule: str) -> dict[str, Any]:
    """What the Slurm profile asks for a job of `rule`, which has a time of its own."""
    if not PROFILE.is_file():
        return {}
    content = read_yaml(PROFILE, "profile")
    defaults = {key: value for key, value in (content.get("default-resources") or {}).items() if key != "runtime"}
    return {**defaults, **((content.get("set-resources") or {}).get(rule) or {})}
