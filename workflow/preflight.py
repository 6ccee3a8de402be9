"""What would stop the work or make it wait for ever: looked for before anything is launched."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from methods import catalog
from methods.training import spec
from models import registry as models
from models import training_data
from records.errors import BenchError
from records.yaml_files import read_yaml
from workflow import estimate, matrix
from workflow.estimate import Job, World

PROFILE = Path("profiles/slurm/config.yaml")


def all_of(world: World, trains: Sequence[Job], generates: Sequence[Job], gpus: int) -> list[str]:
    """One sentence per thing that is missing or wrong."""
    return [
        *_models(world), *_data(world), *_runs(world), *_rates(world, trains, generates), *_gpus(world, trains, gpus),
        *_disk(world, trains, gpus), *_warned(world), *_slurm(world, trains),
    ]  # fmt: skip


def _models(world: World) -> Iterator[str]:
    for model in world.models:
        known, folder = models.model(model), world.base(model)
        if known.hub is not None and not (folder / "base.json").is_file():
            yield (
                f"model {model}: {folder} is not there; Snakemake fetches it, or now: python -m models.fetch "
                f"--hub {known.hub} --revision {known.revision or 'main'} --out {folder}"
            )


def _data(world: World) -> Iterator[str]:
    from evals import benchmark

    file = estimate.data_file(world)
    if file and not file.is_file():
        source, revision = world.config["prompts"]["source"], world.config["prompts"]["revision"]
        option = f" --revision {revision}" if revision else ""
        yield (
            f"training problems {training_data.source(source).dataset}: {file} is not there; Snakemake fetches it, or "
            f"now: python -m models.training_data --source {source}{option} --out {file}"
        )
    keys = world.config["evaluation"]["benchmarks"]
    wanted = [key for key in keys if not benchmark.benchmark(key).synthetic and not world.data(key).is_file()]
    if wanted:
        folder = world.config["evaluation"]["data"]
        yield (
            f"benchmarks {', '.join(wanted)}: not in {folder}; Snakemake fetches them, or now: python -m evals.fetch "
            f"--benchmarks {' '.join(wanted)} --data {folder}"
        )


def _runs(world: World) -> Iterator[str]:
    """What the run's specification or its trainer refuses; each sentence once."""
    from methods.adapters import adapter

    said: set[str] = set()
    for planned in world.planned:
        try:
            given = spec.check(matrix.specification(world.config, planned, "base", "prompts"), str(planned.run.path))
            adapter(given.trainer).sizes(given.training, catalog.parse(given.method))
        except BenchError as error:
            if str(error) not in said:
                said.add(str(error))
                yield f"run {planned.run.path}: {error}"


def _rates(world: World, trains: Sequence[Job], generates: Sequence[Job]) -> Iterator[str]:
    untimed = [job for job in [*trains, *generates] if job.seconds is None]
    for what in sorted({f"{job.kind} {world.size(Path(job.name).parts[0])}" for job in untimed}):
        yield f"config/throughput.yaml: no entry to estimate `{what}` on {world.gpu} with"


def _gpus(world: World, trains: Sequence[Job], gpus: int) -> Iterator[str]:
    most = max((job.gpus for job in trains), default=0)
    if most > gpus:
        yield f"cluster.gpus: {gpus}, and a run needs {most}"


def _disk(world: World, trains: Sequence[Job], gpus: int) -> Iterator[str]:
    root = world.results.root.absolute()
    place = next(path for path in [root, *root.parents] if path.is_dir())
    needed, free = sum(estimate.disk(world, trains, gpus).values()), shutil.disk_usage(place).free
    if needed > free:
        yield f"disk: {needed / 1e9:,.0f} GB will be written, {free / 1e9:,.0f} GB are free in {place}"


def _warned(world: World) -> Iterator[str]:
    """Time limits of the profile that leave training no time before it is told to save."""
    if world.config["cluster"] is not None:
        for rule in ("train", "train_nodes"):
            yield from time_limit(rule, _profile(rule))


def time_limit(rule: str, profile: dict[str, Any]) -> Iterator[str]:
    """profile: what `rule` asks for. Slurm looks at its jobs once a minute, so it may tell them that much earlier.

    >>> list(time_limit("train", {"runtime": "1440 * attempt", "slurm_extra": "'--signal=USR1@900'"}))
    []
    """
    signal = re.search(r"--signal=\w+@(\d+)", str(profile.get("slurm_extra", "")))
    minutes = re.match(r"(\d+)\s*(?:\*|$)", str(profile.get("runtime", "")))
    if signal and minutes and 60 * (int(minutes[1]) - 1) <= int(signal[1]):
        yield (
            f"Slurm: {PROFILE}: {rule}: runtime: {minutes[1]} minutes, and --signal tells training {signal[1]} s "
            f"before the limit to save and end: as soon as it starts. Allowed: more than "
            f"{int(signal[1]) // 60 + 1} minutes"
        )


def _slurm(world: World, trains: Sequence[Job]) -> Iterator[str]:
    """Partitions and GPUs, where the Slurm commands are and the configuration is for a cluster."""
    cluster = world.config["cluster"]
    if cluster is None or shutil.which("sinfo") is None:
        return
    asked = subprocess.run(
        ["sinfo", "-h", "-o", "%R|%G|%D"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if asked.returncode:
        yield f"Slurm: sinfo fails: {' '.join(asked.stderr.split()) or asked.returncode}"
        return
    a_node = cluster["gpus_per_node"]
    nodes = max((job.gpus for job in trains), default=0) // a_node
    yield from slurm(asked.stdout, _profile("train"), a_node, nodes)


def slurm(listing: str, profile: dict[str, Any], gpus: int, nodes: int) -> Iterator[str]:
    """listing: `partition|gres|nodes` lines of sinfo; profile: what training asks for. Each run takes `nodes` nodes of
    `gpus` GPUs in one partition."""
    rows = [line.split("|") for line in listing.split()]
    partitions = sorted({row[0] for row in rows})
    partition, model = profile.get("slurm_partition"), profile.get("gpu_model")
    if partition is not None and partition not in partitions:
        yield f"Slurm: partition {partition} of {PROFILE} does not exist; there are: {', '.join(partitions)}"
        return
    fitting: dict[str, int] = {}
    for name, gres, count in rows:
        if partition in (None, name) and _gpus_of(gres, model) >= gpus:
            fitting[name] = fitting.get(name, 0) + int(count)
    if max(fitting.values(), default=0) < nodes:
        kind = f"{model} GPUs" if model else "GPUs"
        where = f"partition {partition}" if partition else "the partition with most of them"
        most = max(fitting.values(), default=0)
        yield f"Slurm: a run needs {nodes} node{'s' * (nodes > 1)} with {gpus} {kind} each; {where} has {most}"


def _gpus_of(gres: str, model: str | None) -> int:
    """`gpu:h100:8(S:0-1),shm:1` has 8 GPUs, of any model or of h100.

    >>> _gpus_of("gpu:h100:8(S:0-1),shm:1", None), _gpus_of("gpu:4", None), _gpus_of("gpu:a100:4", "h100")
    (8, 4, 0)
    """
    found = re.findall(r"(?:^|,)gpu(?::([^:,(]+))?:(\d+)(?=[,(]|$)", gres)
    return sum(int(number) for name, number in found if model in (None, name))


def _profile(rule: str) -> dict[str, Any]:
    """What the Slurm profile asks for a job of `rule`. The rules of training have times of their own, so that the
    profile's default does not hold for them."""
    if not PROFILE.is_file():
        return {}
    given = read_yaml(PROFILE, "profile")
    defaults = {key: value for key, value in (given.get("default-resources") or {}).items() if key != "runtime"}
    return {**defaults, **((given.get("set-resources") or {}).get(rule) or {})}
