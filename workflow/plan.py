"""`snakemake plan`: what will be trained, what it will cost, what is missing. Exit code 1 if something is.

Estimates are from config/throughput.yaml until there are measurements under results/; each says which it is. Jobs that
cost next to nothing (grading, tables) are counted and not timed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from models import registry as models
from records import errors
from records.layout import Results
from workflow import estimate, preflight
from workflow.estimate import CPU, Job, World


def lines(world: World, gpus: int) -> tuple[list[str], list[str]]:
    """The plan as text, and what is missing or wrong."""
    trains, generates = estimate.train(world), estimate.generate(world)
    problems = preflight.all_of(world, trains, generates, gpus)
    text = [
        f"{world.config['scale']}: {world.config['title']}",
        *_runs(world, trains),
        *_counts(world),
        *_times(world, trains, generates, gpus),
        *_disk(world, trains, gpus),
        *_notes(world),
    ]
    return text, problems


def _runs(world: World, trains: Sequence[Job]) -> Iterator[str]:
    done = sum(job.done for job in trains)
    yield f"{len(trains)} unique runs ({done} done), {len(world.checkpoints)} evaluations"
    for model, count in Counter(planned.run.model for planned in world.planned).items():
        gpus = {job.gpus for job in trains if job.name.startswith(f"{model}/")}
        unit = "core" if world.gpu == CPU else "GPU"
        yield f"  {model:<26} {count:>4} runs on {'/'.join(map(str, sorted(gpus)))} {unit}{'s' * (gpus != {1})} each"


def _counts(world: World) -> Iterator[str]:
    yield "Jobs, and how many are still to do (tables, figures and the report come on top):"
    for kind, (count, left) in estimate.counts(world).items():
        yield f"  {kind:<26} {count:>4} {left:>6}"


def _times(world: World, trains: Sequence[Job], generates: Sequence[Job], gpus: int) -> Iterator[str]:
    unit = "core" if world.gpu == CPU else "GPU"
    yield f"{unit}-hours, and how many are still to do:"
    for jobs in (trains, generates):
        kind = jobs[0].kind
        yield f"  {kind:<26} {_hours(jobs):>8} {_hours([job for job in jobs if not job.done]):>8}"
        for source, count in Counter(job.source for job in jobs if job.source).items():
            yield f"    {count:>4} from: {source}"
    seconds = estimate.wall_seconds(trains, generates, gpus)
    yield f"Wall time on {gpus} {unit}s, nothing else running: {'unknown' if seconds is None else _time(seconds)}"


def _hours(jobs: Sequence[Job]) -> str:
    """Unknown as soon as one of them is."""
    found = [job.gpu_seconds for job in jobs]
    known = [seconds for seconds in found if seconds is not None]
    return "unknown" if len(known) < len(found) else f"{sum(known) / 3600:,.1f}"


def _time(seconds: float) -> str:
    hours = seconds / 3600
    if hours < 1:
        return f"{seconds / 60:.0f} minutes"
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"


def _disk(world: World, trains: Sequence[Job], gpus: int) -> Iterator[str]:
    yield "Disk still to be written:"
    for what, size in estimate.disk(world, trains, gpus).items():
        yield f"  {what:<32} {_size(size):>10}"
    found = estimate.downloads(world)
    if found:
        yield "Downloads from the hub:"
        for what, size in found.items():
            yield f"  {what:<58} {_size(size):>10}"


def _size(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e8 else f"{count / 1e6:,.1f} MB"


def _notes(world: World) -> Iterator[str]:
    heads = [model for model in world.models if (known := models.model(model)).hub and known.revision is None]
    if heads:
        yield f"Not pinned to a commit (the head is taken and its commit recorded): {', '.join(heads)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m workflow.plan", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", required=True, help="the merged configuration as JSON, or - for standard input")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--gpus", type=int, help="how many there are; default: cluster.gpus, or this machine's cores")
    given = parser.parse_args()
    config = json.loads(sys.stdin.read() if given.config == "-" else given.config)
    available = config["cluster"]["gpus"] if config["cluster"] else os.cpu_count() or 1
    world = World(config, Results(given.results / config["scale"]), given.results / "cache", estimate.read())
    text, problems = lines(world, given.gpus or available)
    print("\n".join(text))
    print(f"Missing or wrong: {len(problems) or 'nothing'}")
    for problem in problems:
        print(f"  - {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    errors.run(main)
