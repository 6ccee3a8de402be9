"""Checks 3 to 5: whole runs by the commands that the workflow calls."""

import csv
import json
import math
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from core.files import read_json, write_json, write_text
from methods.training.spec import Spec, check
from tests.adapters import worlds
from tests.gpu import models
from tests.gpu.checks import Figures, Place, nvidia_smi

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


def wait(process: subprocess.Popen[bytes], folder: Path) -> float:
    """Seconds until the run has ended."""
    began = time.monotonic()
    if process.wait():
        raise RuntimeError(f"{folder.name}: training ended with {process.returncode}")
    return time.monotonic() - began


def curve(folder: Path) -> list[dict[str, str]]:
    with open(folder / "curve.csv", encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def values(rows: list[dict[str, str]], column: str) -> list[float]:
    """Of the updates that have one."""
    return [float(row[column]) for row in rows if row.get(column)]


def worst(figures: list[float]) -> float | None:
    return max(figures) if figures else None


def sampler(rows: list[dict[str, str]]) -> Figures:
    """Log-probs of the trainer before a rollout's first update against those of the engine: of one policy, if the
    weights arrived."""
    first = [row for row in rows if row["minibatch"] == "0"]
    correlations = values(first, "sampling_correlation")
    return {
        "sampling_gap_mean": worst(values(first, "sampling_gap_mean")),
        "sampling_correlation": min(correlations) if correlations else None,
    }


def train(place: Place) -> Figures:
    """Check 3."""
    runs = place.folder / "runs"
    rows, seconds = {}, {}
    for method in ("grpo", "tepo"):
        shutil.rmtree(runs / method, ignore_errors=True)
        seconds[method] = wait(start(place, method, runs / method), runs / method)
        rows[method] = curve(runs / method)
    everything = [row for method in rows.values() for row in method]
    first = [row for row in everything if row["minibatch"] == "0"]
    # the first rollout compiles and fills caches
    warm = {method: [row for row in of if int(row["rollout"]) > 1] for method, of in rows.items()}
    update = {method: sum(values(of, "seconds_update")) for method, of in warm.items()}
    sampling = sum(values(warm["tepo"], "seconds_rollout"))
    rollouts = place.size.rollouts - 1
    return {
        "trained": f"{place.model or f'{place.size.medium.parameters / 1e9:.2f}e9 random parameters'}, at most "
        f"{place.size.response} tokens a response",
        "losses_finite": all(math.isfinite(x) for x in values(everything, "loss") + values(everything, "grad_norm")),
        "updates": len(values(everything, "loss")),
        "first_ratio_spread": worst(values(first, "ratio_spread")),
        "first_mask_fraction": worst(values([r for r in rows["tepo"] if r["minibatch"] == "0"], "mask_fraction")),
        **sampler(everything),
        "tepo_over_grpo_seconds": update["tepo"] / update["grpo"],
        "rollout_seconds": (update["tepo"] + sampling) / rollouts,
        "update_seconds": update["tepo"] / rollouts,
        "sampled_tokens_per_second": sum(values(warm["tepo"], "tokens")) / sampling if sampling else None,
        "seconds_with_start": seconds["tepo"],
    }


def resume(place: Place) -> Figures:
    """Check 4: TEPO is killed once a state is complete, and goes on from it. The straight run is check 3's."""
    folder, whole = place.folder / "runs" / "killed", place.folder / "runs" / "tepo"
    shutil.rmtree(folder, ignore_errors=True)
    process = start(place, "tepo", folder)
    while not (kept := sorted((folder / "state").glob("checkpoint-*/SHA256SUMS"))):  # written last
        time.sleep(0.1)
        if process.poll() is not None:
            raise RuntimeError(f"training ended with {process.returncode} before a state was complete")
    process.kill()
    process.wait()
    state = kept[0].parent
    rollout = read_json(state / "position.json")["rollout"]  # trained before it
    waited = settle(place)
    before = curve_lines(folder / "state", rollout)
    wait(start(place, "tepo", folder), folder)
    done, straight = curve(folder), curve(whole)
    later = [row for row in done if int(row["rollout"]) > rollout]
    other = {row["rollout"]: float(row["reward"]) for row in straight}
    gaps = []
    for number, reward in {row["rollout"]: float(row["reward"]) for row in later}.items():
        sequences = int(later[0]["groups_sampled"]) * spec(place, "tepo").training.samples_per_prompt
        error = math.sqrt(2 * max(reward * (1 - reward), 0.01) / sequences)
        gaps.append(abs(reward - other[number]) / error)
    return {
        "killed_after_rollout": rollout,
        "seconds_until_the_killed_run_left_the_gpu": waited,
        "rows_before_differ": sum(a != b for a, b in zip(before, curve_lines(folder, rollout), strict=True)),
        "reward_gap_in_standard_errors": worst(gaps),
        **sampler(later),
    }


def curve_lines(folder: Path, rollouts: int) -> list[str]:
    """The rows up to this rollout: later ones are computed again."""
    rows = (folder / "curve.csv").read_text(encoding="utf-8").splitlines()[1:]
    return [row for row in rows if int(row.partition(",")[0]) <= rollouts]


def settle(place: Place) -> float:
    """Seconds until the card is free again: the processes of a killed run end by themselves, but not at once."""
    began = time.monotonic()
    while place.cuda and (used := nvidia_smi("memory.used", "memory.total")):
        if float(used[0]) < 0.05 * float(used[1]):
            break
        if time.monotonic() - began > 120:
            raise RuntimeError(f"MiB of the GPU still taken 120 s after the run was killed, and all: {used}")
        time.sleep(1)
    return time.monotonic() - began


# --- 5: evaluation ----------------------------------------------------------------------------------------------


def generate(place: Place, out: Path, *benchmarks: str, backend: str | None = None, more: tuple[str, ...] = ()) -> None:
    """Draw from the checkpoint of check 3."""
    run = place.folder / "runs" / "tepo"
    words = [
        sys.executable, "-m", "evals.generate", "--model", str(run / "checkpoints" / f"step{place.size.rollouts}"),
        "--record", str(run / "run.json"), "--data", str(data(place)), "--benchmarks", *benchmarks,
        "--limit", str(ITEMS), "--backend", backend or ("vllm" if place.cuda else "hf"), "--seed", "1",
        "--out", str(out), *more,
    ]  # fmt: skip
    subprocess.run(words, check=True)


def data(place: Place) -> Path:
    """Generated items: nothing is downloaded."""
    from evals import fetch
    from evals.data import select

    folder = place.folder / "data"
    for benchmark in select(BENCHMARKS):
        fetch.fetch(benchmark, folder)
    return folder


def evaluate(place: Place) -> Figures:
    """Check 5. What a second call draws, and a call after a kill, does not depend on the engine: CPU tests have it."""
    from evals import store

    out, other, graded = (place.folder / name for name in ("samples", "samples again", "grades"))
    for folder in (out, other, graded):
        shutil.rmtree(folder, ignore_errors=True)
    generate(place, out, *BENCHMARKS)
    generate(place, other, *BENCHMARKS)
    record = store.read_record(out / "samples.json")
    texts, repeated = (texts_of(folder / f"{BENCHMARKS[0]}.parquet") for folder in (out, other))
    words = ["--samples", str(out), "--data", str(data(place)), "--out", str(graded)]
    subprocess.run([sys.executable, "-m", "evals.grade", *words], check=True)
    rows = sum(pq.read_metadata(graded / f"{key}.parquet").num_rows for key in BENCHMARKS)
    return {
        "equal_texts": sum(a == b for a, b in zip(texts, repeated, strict=True)) / len(texts),
        "distinct_fraction": record[BENCHMARKS[0]].get("distinct_fraction"),
        "graded_rows_missing": sum(record[key]["rows"] for key in BENCHMARKS) - rows,
        "greedy_equal_to_transformers": greedy(place) if place.cuda else None,
    }


def texts_of(path: Path) -> list[str]:
    rows = sorted(pq.read_table(path).to_pylist(), key=lambda row: (row["item_id"], row["sample"]))
    return [row["response"] for row in rows]


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
