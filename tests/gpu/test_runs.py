"""Whole runs by the commands that the workflow calls: trained, killed and resumed, evaluated; by TRL and by verl."""

import json
import math
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from core.files import read_growing_csv, read_json, write_json, write_text
from core.provenance import sha256_file
from tests.adapters import worlds
from tests.gpu import models
from tests.gpu.conftest import MODEL, ON_CPU, Check, Figures, Place, each

pytestmark = pytest.mark.slow
BENCHMARKS = ("syn_add2q", "syn_as3")  # sampled 32 times; greedy
ITEMS = 6  # of each
# The command that trains: with `toy`, verl at the CPU's size, sampled by transformers instead of vLLM.
TRAIN = {"trl": "methods.train", "verl": "methods.train", "toy": "tests.gpu.without_vllm"}


def spec(place: Place, kind: str, method: str, **changes: Any) -> dict[str, Any]:
    """Random weights, prompts that differ, and a reward that is a coin: groups are mixed, so that a rollout trains."""
    size = place.size if kind != "toy" else ON_CPU
    shape, world = (models.TOY if kind == "toy" else size.trained), place.folder / ("toy" if kind == "toy" else "runs")
    if not (world / "base").is_dir():
        if MODEL and kind != "toy":
            shutil.copytree(MODEL, world / "base")
        else:
            models.save(world / "base", shape, **({"spread": 0.2, "positions": 256} if shape is models.TOY else {}))
        lines = [json.dumps({"prompt": f"Question {n}: ", "answer": str(n)}) for n in range(20 * size.prompts)]
        write_text(world / "prompts.jsonl", "\n".join(lines) + "\n")
    given: dict[str, Any] = {
        "rollouts": size.rollouts, "prompts_per_rollout": size.prompts, "samples_per_prompt": size.samples,
        "minibatches": 4 if shape is not models.TOY else 2, "passes": 1, "filter": "refill", "oversample": 1.0,
        "learning_rate": 1e-6 if shape is not models.TOY else 1e-3, "max_prompt_tokens": 64,
        "max_completion_tokens": size.response, "save_every": 1, "device": place.device,
        "precision": "bfloat16" if place.cuda else "float32", "rollout_memory": 0.4,
        "max_tokens_per_gpu": max(64 + size.response, size.pass_tokens),
    }  # fmt: skip
    trainer = "trl" if kind == "trl" else "verl"
    return worlds.spec(world, method, (size.rollouts,), trainer=trainer, **given | changes)


def train(place: Place, kind: str, method: str) -> tuple[list[dict[str, str]], float]:
    """The curve of a run, and its seconds."""
    folder = command(place, kind, method, method)
    seconds = place.run((TRAIN[kind], "--spec", folder.with_suffix(".json"), "--out", folder))
    return read_growing_csv(folder / "curve.csv"), seconds


def command(place: Place, kind: str, name: str, method: str, **changes: Any) -> Path:
    """Write a run's specification and return its folder."""
    folder = place.folder / f"{kind} {name}"
    write_json(folder.with_suffix(".json"), spec(place, kind, method, **changes))
    return folder


def values(rows: list[dict[str, str]], column: str) -> list[float]:
    """Of the updates that have one."""
    return [float(row[column]) for row in rows if row.get(column)]


def on_policy(runs: dict[str, list[dict[str, str]]]) -> Figures:
    """Log-probs before a rollout's first update against those of the sampler, and against the update's own."""
    rows = [row for run in runs.values() for row in run]
    first = [row for row in rows if row["minibatch"] == "0"]
    by_entropy = [row for name, run in runs.items() if name.startswith("tepo") for row in run if row in first]
    return {
        "losses_finite": all(math.isfinite(x) for x in values(rows, "loss") + values(rows, "grad_norm")),
        "first_mask_fraction": max(values(by_entropy, "mask_fraction"), default=None),
        "sampling_correlation": min(values(first, "sampling_correlation"), default=None),
        "updates": len(values(rows, "loss")), "first_ratio_spread": max(values(first, "ratio_spread"), default=None),
        "sampling_gap_mean": max(values(first, "sampling_gap_mean"), default=None),
    }  # fmt: skip


def speed(runs: dict[str, list[dict[str, str]]]) -> Figures:
    """Seconds of TEPO and GRPO; the first rollout of a process compiles and fills caches."""
    warm = {method: [row for row in rows if int(row["rollout"]) > 1] for method, rows in runs.items()}
    update = {method: sum(values(rows, "seconds_update")) for method, rows in warm.items()}
    sampling, rollouts = sum(values(warm["tepo"], "seconds_rollout")), len({row["rollout"] for row in warm["tepo"]})
    seconds = {"update_seconds": update["tepo"] / rollouts, "sampling_seconds": sampling / rollouts}
    return seconds | {"tepo_over_grpo_seconds": update["tepo"] / update["grpo"]}


@each("kind", trl="trl", toy="verl", verl="verl vllm")
def test_trained(kind: str, check: Check, place: Place) -> None:
    runs = {name: train(place, kind, name) for name in (("tepo",) if kind == "toy" else ("grpo", "tepo"))}
    rows = {name: of for name, (of, _) in runs.items()}
    check.figures |= {f"{name}_seconds": seconds for name, (_, seconds) in runs.items()}
    check.holds(**on_policy(rows), **({} if kind == "toy" else speed(rows)))


@pytest.mark.gpu("trl paths")
def test_trls_other_paths(check: Check, place: Place) -> None:
    """At once, as their seconds do not count."""
    paths: dict[str, dict[str, Any]] = {
        "tepo+kl-anchor=ref": {"shared_prefix": True},
        "kl_cov+fraction=0.1": {"micro_batches": 2},
        "gspo": {"kl_target": 1e-4},
    }
    folders = {method: command(place, "trl", method, method, **changes) for method, changes in paths.items()}
    place.run(*((TRAIN["trl"], "--spec", f.with_suffix(".json"), "--out", f) for f in folders.values()))
    check.holds(**on_policy({m: read_growing_csv(f / "curve.csv") for m, f in folders.items()}))


@each("kind", trl="trl resumed", verl="verl resumed vllm")
def test_killed_after_a_rollout_and_resumed(kind: str, check: Check, place: Place) -> None:
    """Against the straight run of the test above; a resumed run is bit for bit that run on a CPU."""
    whole = place.folder / f"{kind} tepo"
    if not (whole / "run.json").is_file():
        train(place, kind, "tepo")
    folder, before = command(place, kind, "killed", "tepo"), torch.cuda.mem_get_info()[0] if place.cuda else 0
    words = TRAIN[kind], "--spec", folder.with_suffix(".json"), "--out", folder
    process = place.start(*words)
    while not (kept := sorted((folder / "state").glob("checkpoint-*/SHA256SUMS"))):  # written last
        time.sleep(0.05)
        assert process.poll() is None, "training ended before a state was complete"
    process.kill()
    process.wait()
    rollout = read_json(kept[0].parent / "position.json")["rollout"]
    end = time.monotonic() + 120  # its processes leave the card by themselves, but not at once
    while place.cuda and torch.cuda.mem_get_info()[0] < before - 2e9 and time.monotonic() < end:
        time.sleep(1)
    early = [row for row in read_growing_csv(folder / "state/curve.csv") if int(row["rollout"]) <= rollout]
    place.run(words)
    done, straight = (read_growing_csv(of / "curve.csv") for of in (folder, whole))
    bare = [[{k: v for k, v in row.items() if not k.startswith("seconds_")} for row in of] for of in (done, straight)]
    rewards = [{row["rollout"]: float(row["reward"]) for row in of} for of in (done, straight)]
    sequences = place.size.samples * int(done[-1]["groups_sampled"])
    gaps = [abs(r - rewards[1][n]) / math.sqrt(2 * max(r * (1 - r), 0.01) / sequences) for n, r in rewards[0].items()]
    weights = {sha256_file(next(of.glob("checkpoints/*/model.safetensors"))) for of in (folder, whole)}
    check.holds(
        killed_after_rollout=rollout, reward_gap_in_standard_errors=max(gaps), weights_equal=len(weights) == 1,
        rows_before_differ=sum(a != b for a, b in zip(early, done, strict=False)),
        rows_differ=sum(a != b for a, b in zip(*bare, strict=True)),
    )  # fmt: skip


@each("name", losses="verl losses", unchanged="verl unchanged")
def test_the_engine(name: str, check: Check, place: Place) -> None:
    """In a process of its own (`tests.gpu.engine`)."""
    (folder := place.folder / name).mkdir()
    place.run(("tests.gpu.engine", name, place.device, folder))
    check.holds(**read_json(folder / f"{name}.json"))


@each("backend", hf="evaluated", vllm="evaluated vllm")
def test_a_trained_checkpoint_is_evaluated(backend: str, check: Check, place: Place) -> None:
    """Drawn twice, graded; greedily in float32: in bfloat16 rounding would decide between random weights' words."""
    from evals import fetch, store
    from evals.benchmark import select

    run, data = place.folder / "trl tepo", place.folder / "data"
    if not (run / "run.json").is_file():
        train(place, "trl", "tepo")
    for benchmark in select(BENCHMARKS):
        fetch.fetch(benchmark, data)  # generated: nothing is downloaded
    (model,) = (run / "checkpoints").iterdir()

    def drawn(name: str, benchmarks: tuple[str, ...] = BENCHMARKS, backend: str = backend, **more: str) -> Path:
        out = place.folder / f"{backend} {name}"
        options = [word for key, value in more.items() for word in (f"--{key}", value)]
        words = (
            "evals.generate", "--model", model, "--record", run / "run.json", "--data", data, "--benchmarks",
            *benchmarks, "--limit", ITEMS, "--backend", backend, "--seed", 1, "--out", out, *options,
        )  # fmt: skip
        place.run(words)
        return out

    out, graded = drawn("samples"), place.folder / f"{backend} grades"
    record = store.read_record(out / "samples.json")
    first, again = (texts_of(folder / f"{BENCHMARKS[0]}.parquet") for folder in (out, drawn("again")))
    place.run(("evals.grade", "--samples", out, "--data", data, "--out", graded))
    rows = sum(pq.read_metadata(graded / f"{key}.parquet").num_rows for key in BENCHMARKS)
    equal = None
    if place.cuda:
        how = {"dtype": "float32"} | ({"device": "cpu"} if backend == "hf" else {})
        two = drawn("greedy", BENCHMARKS[1:], dtype="float32"), drawn("compared", BENCHMARKS[1:], "hf", **how)
        pairs = zip(*(texts_of(folder / f"{BENCHMARKS[1]}.parquet") for folder in two), strict=True)
        equal = sum(a[:60] == b[:60] for a, b in pairs) / ITEMS  # a dozen tokens
    check.holds(
        equal_texts=sum(a == b for a, b in zip(first, again, strict=True)) / len(first), greedy_equal=equal,
        distinct_fraction=record[BENCHMARKS[0]].get("distinct_fraction"), seconds=record[BENCHMARKS[0]].get("seconds"),
        graded_rows_missing=sum(record[key]["rows"] for key in BENCHMARKS) - rows,
    )  # fmt: skip


def texts_of(path: Path) -> list[str]:
    rows = sorted(pq.read_table(path).to_pylist(), key=lambda row: (row["item_id"], row["sample"]))
    return [row["response"] for row in rows]
