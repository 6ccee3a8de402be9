"""`snakemake plan`: what will be trained, what it will cost, what is missing. Exit code 1 if something is.

Jobs that cost next to nothing (grading, tables) are counted and not timed.
"""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from core import errors
from core.declared import validated
from core.errors import Parser
from core.files import read_json
from core.layout import Results
from models import registry as models
from workflow import estimate, preflight, sweep
from workflow.config import Config
from workflow.estimate import CPU, Job, World


def lines(world: World, gpus: int) -> tuple[list[str], list[str]]:
    """The plan as text, and what is missing or wrong. gpus: how many there are (cores, for models made here)."""
    trains, generates = estimate.train(world), estimate.generate(world)
    unit = "core" if world.gpu == CPU else "GPU"
    done = sum(job.done for job in trains)
    text = [
        f"{world.config['scale']}: {world.config['title']}",
        f"{len(trains)} unique runs ({done} done), {len(world.checkpoints)} evaluations",
    ]
    for model, count in Counter(planned.run.model for planned in world.planned).items():
        sizes = {job.gpus for job in trains if job.model == model}
        text.append(f"  {model:<26} {count:>4} runs on {'/'.join(map(str, sorted(sizes)))} {unit}s each")

    text += _second_round(world, trains, generates)
    text.append("Jobs, and how many are still to do (tables, figures and the report come on top):")
    text += [f"  {kind:<26} {count:>4} {left:>6}" for kind, (count, left) in estimate.counts(world).items()]

    text.append(f"{unit}-hours, and how many are still to do:")
    kinds = [jobs for jobs in (estimate.build(world), trains, generates) if jobs]
    for jobs in kinds:
        left_hours = _hours([job for job in jobs if not job.done])
        text.append(f"  {jobs[0].kind:<26} {_hours(jobs):>8} {left_hours:>8}")
        sources = Counter(job.source for job in jobs if job.source)
        text += [f"    {count:>4} from: {source}" for source, count in sources.items()]

    if total := _seconds([job for jobs in kinds for job in jobs if not job.done]):
        time = total / gpus
        shown = f"{time / 3600:,.1f} hours" if time > 5400 else f"{time / 60:.0f} minutes"
        text.append(f"  what is to do takes {shown} on {gpus} {unit}s, if none is ever idle")

    text.append("Disk still to be written:")
    text += [f"  {what:<32} {_size(size):>10}" for what, size in estimate.disk(world, trains, gpus).items()]
    if downloads := estimate.downloads(world):
        text.append("Downloads:")
        text += [f"  {what:<58} {_size(size):>10}" for what, size in downloads.items()]
    unpinned = [key for key in world.models if models.model(key).hub and models.model(key).revision is None]
    if unpinned:
        text.append(f"Not pinned to a commit (the head is taken and its commit recorded): {', '.join(unpinned)}")
    if fetched := list(preflight.to_fetch(world)):
        text.append("Not there yet; Snakemake fetches it, or these commands now:")
        text += [f"  {line}" for line in fetched]
    return text, preflight.problems(world, [*trains, *generates], gpus)


def _second_round(world: World, trains: Sequence[Job], generates: Sequence[Job]) -> list[str]:
    """What a sweep will train on fresh seeds once its values are chosen: not among the jobs until then."""
    swept = world.config.get("swept")
    if not swept or sweep.is_chosen(swept, world.results):
        return []
    fresh = sweep.fresh_runs(swept)
    cost = {job.name.rpartition("/")[0]: job for job in trains}
    evaluated = {job.model: job for job in generates}
    jobs = [cost[f"{point['model']}/{point['method']}"] for point in fresh]
    jobs += [evaluated[point["model"]] for point in fresh for _ in point["steps"]]
    count = len(jobs) - len(fresh)
    most = "at most " if "own" in swept["fresh"] else ""  # a method whose own value is chosen has one line
    return [
        "Once values are chosen, a second round (the same command again): "
        f"{most}{len(fresh)} runs, {count} evaluations",
        f"  {_hours(jobs)} {'core' if world.gpu == CPU else 'GPU'}-hours on top of those below",
    ]


def _seconds(jobs: Sequence[Job]) -> float | None:
    """Seconds times GPUs; None as soon as those of one job are unknown: a sum without it would look like the whole."""
    known = [job.seconds * job.gpus for job in jobs if job.seconds is not None]
    return sum(known) if len(known) == len(jobs) else None


def _hours(jobs: Sequence[Job]) -> str:
    total = _seconds(jobs)
    return "unknown" if total is None else f"{total / 3600:,.1f}"


def _size(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e8 else f"{count / 1e6:,.1f} MB"


def main() -> int:
    parser = Parser()
    parser.add_argument("--config", type=Path, required=True, help="file of the merged configuration (JSON)")
    parser.add_argument("--results", type=Path, default=Path("results"))
    args = parser.parse_args()
    config = read_json(args.config, "configuration")
    validated(Config, config, str(args.config))
    available = config["cluster"]["gpus"] if config["cluster"] else os.cpu_count() or 1
    world = World(config, Results(args.results / config["scale"]), args.results / "cache", estimate.read())
    text, problems = lines(world, available)
    print("\n".join(text))
    print(f"Missing or wrong: {len(problems) or 'nothing'}")
    for problem in problems:
        print(f"  - {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    errors.run(main)
