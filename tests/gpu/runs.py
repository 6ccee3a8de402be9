"""Checks 5 to 7: whole runs by the commands that the workflow calls."""

import csv
import json
import math
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from core import digests
from core.files import read_json, write_json, write_text
from methods.training.run_folder import MARK
from methods.training.spec import Spec, check
from models.registry import Shape
from tests.adapters import worlds
from tests.gpu import models
from tests.gpu.checks import Figures, Place, nvidia_smi
from tests.gpu.models import MEDIUM_0_5B, MEDIUM_1_5B

# Floating-point operations per second in bfloat16 without sparsity, by a part of the device's name: data sheets.
PEAKS = {
    "B200": 2250e12, "H200": 989e12, "H100": 989e12, "GH200": 989e12, "A100": 312e12, "L40S": 362e12,
    "RTX 6000 Ada": 364e12, "4090": 165e12, "5090": 210e12, "A6000": 155e12, "A40": 150e12, "A10": 125e12,
    "3090": 71e12,
}  # fmt: skip
SIZES = {MEDIUM_1_5B: "1.5B", MEDIUM_0_5B: "0.5B"}  # as config/throughput.yaml calls them
BENCHMARKS = ("syn_add2q", "syn_as3")  # sampled 32 times; greedy
ITEMS = 6  # of each
SAVE = 2  # rollouts between two states: three of them with 1.5e9 parameters are 55 GB


def spec(place: Place, method: str) -> Spec:
    """Random weights, prompts that differ, and a reward that is a coin: groups are mixed, so that a rollout trains."""
    size, world = place.size, place.folder / "runs"
    if not (world / "base").is_dir():
        if place.model:
            shutil.copytree(place.model, world / "base")
        else:
            models.save(world / "base", size.medium, **({} if place.cuda else {"spread": 0.2, "positions": 256}))
        lines = [json.dumps({"prompt": f"Question {n}: ", "answer": str(n)}) for n in range(20 * size.prompts)]
        write_text(world / "prompts.jsonl", "\n".join(lines) + "\n")
    given: dict[str, Any] = {
        "rollouts": size.rollouts, "prompts_per_rollout": size.prompts, "samples_per_prompt": 8 if place.cuda else 4,
        "minibatches": 4 if place.cuda else 2, "passes": 1, "filter": "refill", "oversample": 1.0,
        "learning_rate": 1e-6 if place.cuda else 1e-3, "max_prompt_tokens": 64, "max_completion_tokens": size.response,
        "save_every": SAVE if place.cuda else 1, "device": place.device,
        "precision": "bfloat16" if place.cuda else "float32", "rollout_memory": size.rollout_memory,
        "max_tokens_per_gpu": min(size.max_tokens, 8 * (64 + size.response)),
    }  # fmt: skip
    return check(worlds.spec(world, method=method, checkpoints=(size.rollouts,), trainer="verl", **given))


def start(place: Place, method: str, folder: Path) -> subprocess.Popen[bytes]:
    """`python -m methods.train` for this run."""
    write_json(folder.with_suffix(".json"), spec(place, method).document)
    words = [sys.executable, "-m", "methods.train", "--spec", str(folder.with_suffix(".json")), "--out", str(folder)]
    return subprocess.Popen(words)


def wait(process: subprocess.Popen[bytes], folder: Path) -> tuple[float, list[dict[str, Any]]]:
    """Until the run ends: its seconds, and verl's own metrics, which go with its state."""
    began, log, text = time.monotonic(), folder / "state" / "verl.jsonl", ""
    while process.poll() is None:
        time.sleep(0.2)
        if log.is_file():
            with suppress(FileNotFoundError):  # the run may end in between
                text = log.read_text(encoding="utf-8")
    if process.returncode:
        raise RuntimeError(f"{folder.name}: training ended with {process.returncode}")
    lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    return time.monotonic() - began, [line.get("data", line) for line in lines]


def curve(folder: Path) -> list[dict[str, str]]:
    with open(folder / "curve.csv", encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def values(rows: list[dict[str, str]], column: str) -> list[float]:
    """Of the updates that have one."""
    return [float(row[column]) for row in rows if row.get(column)]


def worst(figures: list[float]) -> float | None:
    return max(figures) if figures else None


def sampler(rows: list[dict[str, str]]) -> Figures:
    """The log-probs of the trainer before its first update of a rollout, and the engine's that sampled: of one policy,
    if the weights arrived."""
    first = [row for row in rows if row["minibatch"] == "0"]
    gaps, correlations = values(first, "sampling_gap_mean"), values(first, "sampling_correlation")
    return {
        "sampling_gap_mean": worst(gaps),
        "sampling_gap_p99": worst(values(first, "sampling_gap_p99")),
        "sampling_correlation": min(correlations) if correlations else None,
    }


def train(place: Place) -> Figures:
    """Check 5."""
    runs = place.folder / "runs"
    rows, metrics, seconds = {}, {}, {}
    for method in ("grpo", "tepo"):
        shutil.rmtree(runs / method, ignore_errors=True)
        seconds[method], metrics[method] = wait(start(place, method, runs / method), runs / method)
        rows[method] = curve(runs / method)
    everything = [row for method in rows.values() for row in method]
    first = [row for row in everything if row["minibatch"] == "0"]
    # the first rollout compiles and fills caches
    warm = {m: [row for row in of if int(row["rollout"]) > 1] for m, of in rows.items()}
    update = {m: sum(values(of, "seconds_update")) for m, of in warm.items()}
    rollouts = place.size.rollouts - 1
    tepo = warm["tepo"]
    tokens = sum(values(tepo, "tokens"))
    step = (update["tepo"] + sum(values(tepo, "seconds_rollout"))) / rollouts
    sampling = sum(values(tepo, "seconds_rollout"))
    shape = place.size.medium
    figures: Figures = {
        "trained": f"{place.model or f'{shape.parameters / 1e9:.2f}e9 random parameters'}, at most "
        f"{place.size.response} tokens a response",
        "trained_size": None if place.model else SIZES.get(shape),
        "losses_finite": all(math.isfinite(x) for x in values(everything, "loss") + values(everything, "grad_norm")),
        "updates": len(values(everything, "loss")),
        "first_ratio_spread": worst(values(first, "ratio_spread")),
        "first_mask_fraction": worst(values([r for r in rows["tepo"] if r["minibatch"] == "0"], "mask_fraction")),
        **sampler(everything),
        "tepo_over_grpo_seconds": update["tepo"] / update["grpo"],
        "update_mfu": None if place.model else mfu(place, shape, tokens, update["tepo"]),
        "rollout_seconds": step,
        "sequences": place.size.prompts * (8 if place.cuda else 4),
        "update_seconds": update["tepo"] / rollouts,
        "sampled_tokens_per_second": tokens / sampling if sampling else None,
        "seconds_with_start": seconds["tepo"],
        "peak_gb": worst(
            [row[key] for row in metrics["tepo"] for key in row if key.endswith("max_memory_allocated_gb")]
        )
        if place.cuda
        else None,
    }
    last = metrics["tepo"][-1] if metrics["tepo"] else {}
    return figures | {
        f"seconds_{key.removeprefix('timing_s/')}": last[key] for key in sorted(last) if key.startswith("timing_s/")
    }


def mfu(place: Place, shape: Shape, tokens: float, seconds: float) -> float | None:
    """Share of the card's peak that the updates reach: 6 operations per parameter and token, recomputation not counted.
    None for a card whose peak is not known here."""
    if not place.cuda or not seconds:
        return None

    import torch

    name = torch.cuda.get_device_name()
    peak = next((value for part, value in PEAKS.items() if part in name), None)
    return None if peak is None else 6 * shape.parameters * tokens / seconds / peak


def resume(place: Place) -> Figures:
    """Check 6: TEPO is killed once a state is complete, and goes on from it. The straight run is check 5's."""
    folder, whole = place.folder / "runs" / "killed", place.folder / "runs" / "tepo"
    shutil.rmtree(folder, ignore_errors=True)
    process = start(place, "tepo", folder)
    kept = None
    while process.poll() is None:
        time.sleep(0.1)
        kept = complete(folder)
        if kept is not None:
            process.kill()
            process.wait()
    if kept is None:
        raise RuntimeError(f"training ended with {process.returncode} before a state was complete")
    mark = read_json(kept / MARK)
    waited = settle(place)
    found = digests.of_folder(kept)
    # in a process of its own: what it takes of the GPU is free again before the run goes on
    out = place.folder / "loaded.json"
    subprocess.run(
        [sys.executable, "-m", "tests.gpu.runs", str(place.folder), place.device, str(kept), str(out)], check=True
    )
    differ = int(read_json(out))
    before = curve_lines(folder / "state", mark["rollout"])
    unchanged = digests.of_folder(kept) == found
    wait(start(place, "tepo", folder), folder)
    done, straight = curve(folder), curve(whole)
    figures: Figures = {
        "killed_after_rollout": mark["rollout"],
        "seconds_until_the_killed_run_left_the_gpu": waited,
        "shards_differ": differ + (not unchanged),
        "rows_before_differ": sum(a != b for a, b in zip(before, curve_lines(folder, mark["rollout"]), strict=True)),
        "refills_missing_from_the_mark": max(
            0, refills(done, mark["rollout"], place.size.prompts) - mark["refill_position"]
        ),
    }
    later = [row for row in done if int(row["rollout"]) > mark["rollout"]]
    other = {row["rollout"]: float(row["reward"]) for row in straight}
    gaps = []
    for rollout, reward in {row["rollout"]: float(row["reward"]) for row in later}.items():
        sequences = int(later[0]["groups_sampled"]) * spec(place, "tepo").training.samples_per_prompt
        error = math.sqrt(2 * max(reward * (1 - reward), 0.01) / sequences)
        gaps.append(abs(reward - other[rollout]) / error)
    return figures | {"reward_gap_in_standard_errors": worst(gaps), **sampler(later)}


def complete(folder: Path) -> Path | None:
    """The first state of the run whose sums are written: they come last."""
    states = sorted((folder / "state").glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    return next((state for state in states if (state / digests.SUMS).is_file()), None)


def curve_lines(folder: Path, rollouts: int) -> list[str]:
    """The rows up to this rollout: later ones are computed again."""
    rows = (folder / "curve.csv").read_text(encoding="utf-8").splitlines()[1:]
    return [row for row in rows if int(row.partition(",")[0]) <= rollouts]


def refills(rows: list[dict[str, str]], rollouts: int, prompts: int) -> int:
    """Prompts drawn beyond the rollouts' own, up to this rollout: the stream of refills is at least there."""
    sampled = {int(row["rollout"]): int(row["groups_sampled"]) for row in rows}
    return sum(sampled[rollout] - prompts for rollout in range(1, rollouts + 1))


def settle(place: Place) -> float | None:
    """Seconds until the card is free again: the processes of a killed run end by themselves, but not at once."""
    if not place.cuda:
        return None
    began, said = time.monotonic(), None
    while time.monotonic() - began < 120:
        said = nvidia_smi("memory.used", "memory.total")
        if said is None:  # a container may lack the program
            time.sleep(30)
            return None
        if float(said[0]) < 0.05 * float(said[1]):
            return time.monotonic() - began
        time.sleep(1)
    raise RuntimeError(f"MiB of the GPU that are still taken 120 s after the run was killed, and all: {said}")


def loaded(place: Place, state: Path) -> int:
    """Tensors of weights and optimiser that are not what was saved, after verl has loaded and saved them again."""
    from methods.adapters.verl import checkpoint
    from tests.gpu.engine import worker

    actor = worker(check(read_json(place.folder / "runs" / "killed.json")), place.folder / "again", half=place.cuda)

    import torch

    saved, again = checkpoint.actor_of(state), place.folder / "again" / "actor"
    actor.load_checkpoint(str(saved))
    actor.save_checkpoint(str(again), None, 1, None)
    differ = 0
    for part in ("model", "optim"):
        name = f"{part}_world_size_1_rank_0.pt"
        one, other = (
            tensors(torch.load(path / name, map_location="cpu", weights_only=False)) for path in (saved, again)
        )
        differ += len(one.keys() ^ other.keys())
        differ += sum(not torch.equal(one[key], other[key]) for key in one.keys() & other.keys())
    shutil.rmtree(again)
    return differ


def tensors(tree: Any, name: str = "") -> dict[str, Any]:
    """Every tensor in nested dicts and lists, by its path; of a sharded one this rank's part."""
    import torch

    if isinstance(tree, torch.Tensor):
        return {name: tree.to_local() if hasattr(tree, "to_local") else tree}
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, (list, tuple)) else ()
    return {path: x for key, child in children for path, x in tensors(child, f"{name}/{key}").items()}


# --- 7: evaluation ----------------------------------------------------------------------------------------------


def generate(
    place: Place, out: Path, *benchmarks: str, backend: str | None = None, more: tuple[str, ...] = ()
) -> float:
    """Draw from the checkpoint of check 5; seconds."""
    run = place.folder / "runs" / "tepo"
    words = [
        sys.executable, "-m", "evals.generate", "--model", str(run / "checkpoints" / f"step{place.size.rollouts}"),
        "--record", str(run / "run.json"), "--data", str(data(place)), "--benchmarks", *benchmarks,
        "--limit", str(ITEMS), "--backend", backend or ("vllm" if place.cuda else "hf"), "--seed", "1",
        "--out", str(out), *more,
    ]  # fmt: skip
    began = time.monotonic()
    subprocess.run(words, check=True)
    return time.monotonic() - began


def data(place: Place) -> Path:
    """Generated items: nothing is downloaded."""
    from evals import fetch
    from evals.benchmark import select

    folder = place.folder / "data"
    for benchmark in select(BENCHMARKS):
        fetch.fetch(benchmark, folder)
    return folder


def evaluate(place: Place) -> Figures:
    """Check 7."""
    from evals import store

    out, other = place.folder / "samples", place.folder / "samples again"
    for folder in (out, other, place.folder / "grades"):
        shutil.rmtree(folder, ignore_errors=True)
    generate(place, out, *BENCHMARKS)
    slots = finished(out)
    generate(place, out, *BENCHMARKS)
    again = sum(finished(out)[slot] != when for slot, when in slots.items())
    # as a kill between two benchmarks leaves it: one is finished, the other is not, and there is no record of the whole
    (out / "samples.json").unlink()
    (second,) = (slot for slot in slots if slot.name.startswith(BENCHMARKS[1]))
    shutil.rmtree(second)
    generate(place, out, *BENCHMARKS)
    half = sum(finished(out)[slot] != when for slot, when in slots.items())
    generate(place, other, *BENCHMARKS)
    record = store.read_record(out / "samples.json")
    texts, repeated = (texts_of(folder / f"{BENCHMARKS[0]}.parquet") for folder in (out, other))
    graded = place.folder / "grades"
    words = ["--samples", str(out), "--data", str(data(place)), "--out", str(graded)]
    subprocess.run([sys.executable, "-m", "evals.grade", *words], check=True)
    rows = sum(rows_of(graded / f"{key}.parquet") for key in BENCHMARKS)
    entry = record[BENCHMARKS[0]]
    tokens, seconds = entry.get("response_tokens"), entry.get("seconds")
    return {
        "drawn_again_by_a_second_call": again,
        "drawn_again_after_half": half,
        "equal_texts": sum(a == b for a, b in zip(texts, repeated, strict=True)) / len(texts),
        "distinct_fraction": entry.get("distinct_fraction"),
        "graded_rows_missing": sum(record[key]["rows"] for key in BENCHMARKS) - rows,
        "evaluation_tokens_per_second": tokens / seconds if tokens and seconds else None,
        "evaluation_response_tokens": tokens / entry["rows"] if tokens else None,
        "greedy_equal_to_transformers": greedy(place) if place.cuda else None,
    }


def finished(out: Path) -> dict[Path, int]:
    """Slot -> when its record was written, in nanoseconds: a slot that is drawn again gets a new one."""
    return {path.parent: path.stat().st_mtime_ns for path in (out / ".work").glob("*/done.json")}


def texts_of(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    rows = sorted(pq.read_table(path).to_pylist(), key=lambda row: (row["item_id"], row["sample"]))
    return [row["response"] for row in rows]


def rows_of(path: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


def greedy(place: Place) -> float:
    """Share of the first 32 tokens that vLLM and transformers agree on, greedily and in float32: in bfloat16 the nearly
    equal probabilities of random weights would be decided by rounding."""
    said = []
    for backend in ("vllm", "hf"):
        out = place.folder / f"greedy {backend}"
        shutil.rmtree(out, ignore_errors=True)
        generate(place, out, BENCHMARKS[1], backend=backend, more=("--dtype", "float32"))
        said.append(
            [re.findall(r"w\d+|.", text, re.DOTALL)[:32] for text in texts_of(out / f"{BENCHMARKS[1]}.parquet")]
        )
    pairs = [(a, b) for one, other in zip(*said, strict=True) for a, b in zip(one, other, strict=False)]
    total = sum(max(len(one), len(other)) for one, other in zip(*said, strict=True))
    return sum(a == b for a, b in pairs) / total


if __name__ == "__main__":
    _folder, _device, _state, _out = sys.argv[1:]
    # which sizes a card has does not matter here: the run's files are there
    write_json(_out, loaded(Place(Path(_folder), _device, None), Path(_state)))
