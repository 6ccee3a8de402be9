"""Whole runs by the commands that the workflow calls: trained, killed and resumed, evaluated; by TRL and by verl."""

import csv
import json
import math
import re
import shutil
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from core.files import read_json, write_json, write_text
from core.provenance import sha256_file
from methods.training.spec import Spec
from methods.training.spec import check as checked
from tests.adapters import worlds
from tests.gpu import models
from tests.gpu.conftest import MODEL, ON_CPU, Check, Figures, Place, nvidia_smi

pytestmark = pytest.mark.slow
BENCHMARKS = ("syn_add2q", "syn_as3")  # sampled 32 times; greedy
ITEMS = 6  # of each
# The command that trains: with `toy`, verl at the CPU's size, sampled by transformers instead of vLLM.
TRAIN = {"trl": "methods.train", "verl": "methods.train", "toy": "tests.gpu.without_vllm"}


def spec(place: Place, kind: str, method: str, **changes: Any) -> Spec:
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
    return checked(worlds.spec(world, method, (size.rollouts,), trainer=trainer, **given | changes))


def train(place: Place, kind: str, name: str, method: str, **changes: Any) -> tuple[list[dict[str, str]], float]:
    """The curve of a run, and its seconds."""
    folder = command(place, kind, name, method, **changes)
    shutil.rmtree(folder, ignore_errors=True)
    seconds = place.run(TRAIN[kind], "--spec", folder.with_suffix(".json"), "--out", folder)
    return curve(folder), seconds


def command(place: Place, kind: str, name: str, method: str, **changes: Any) -> Path:
    """Write a run's specification and return its folder."""
    folder = place.folder / f"{kind} {name}"
    write_json(folder.with_suffix(".json"), spec(place, kind, method, **changes).document)
    return folder


def curve(folder: Path) -> list[dict[str, str]]:
    with open(folder / "curve.csv", encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


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
        "updates": len(values(rows, "loss")),
        "first_ratio_spread": max(values(first, "ratio_spread"), default=None),
        "first_mask_fraction": max(values(by_entropy, "mask_fraction"), default=None),
        "sampling_gap_mean": max(values(first, "sampling_gap_mean"), default=None),
        "sampling_correlation": min(values(first, "sampling_correlation"), default=None),
    }


def speed(runs: dict[str, list[dict[str, str]]]) -> Figures:
    """Seconds of TEPO and GRPO; the first rollout of a process compiles and fills caches."""
    warm = {method: [row for row in rows if int(row["rollout"]) > 1] for method, rows in runs.items()}
    update = {method: sum(values(rows, "seconds_update")) for method, rows in warm.items()}
    sampling, rollouts = sum(values(warm["tepo"], "seconds_rollout")), len({row["rollout"] for row in warm["tepo"]})
    return {
        "tepo_over_grpo_seconds": update["tepo"] / update["grpo"], "update_seconds": update["tepo"] / rollouts,
        "rollout_seconds": (update["tepo"] + sampling) / rollouts,
        "sampled_tokens_per_second": sum(values(warm["tepo"], "tokens")) / sampling if sampling else None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=pytest.mark.gpu(n)) for k, n in (("trl", "trl"), ("toy", "verl"), ("verl", "verl vllm"))],
)
def test_trained(kind: str, check: Check, place: Place) -> None:
    if kind != "trl" and find_spec("verl") is None:
        pytest.skip("verl is not installed")
    runs = {name: train(place, kind, name, name) for name in (("tepo",) if kind == "toy" else ("grpo", "tepo"))}
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
    started = [place.start(TRAIN["trl"], "--spec", f.with_suffix(".json"), "--out", f) for f in folders.values()]
    assert [process.wait(timeout=900) for process in started] == [0] * len(paths)
    check.holds(**on_policy({method: curve(folder) for method, folder in folders.items()}))


@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.gpu(f"{k} resumed")) for k in ("trl", "verl")])
def test_killed_after_a_rollout_and_resumed(kind: str, check: Check, place: Place) -> None:
    """Against the straight run of the test above; a resumed run is bit for bit that run on a CPU."""
    whole = place.folder / f"{kind} tepo"
    if not (whole / "run.json").is_file():
        train(place, kind, "tepo", "tepo")
    folder, before = command(place, kind, "killed", "tepo"), nvidia_smi("memory.used")
    words = TRAIN[kind], "--spec", folder.with_suffix(".json"), "--out", folder
    process = place.start(*words)
    while not (kept := sorted((folder / "state").glob("checkpoint-*/SHA256SUMS"))):  # written last
        time.sleep(0.05)
        assert process.poll() is None, "training ended before a state was complete"
    process.kill()
    process.wait()
    rollout = read_json(kept[0].parent / "position.json")["rollout"]
    settle(before)
    early = rows_until(folder / "state", rollout)
    place.run(*words)
    done, straight = curve(folder), curve(whole)
    bare = [[{k: v for k, v in row.items() if not k.startswith("seconds_")} for row in of] for of in (done, straight)]
    rewards = [{row["rollout"]: float(row["reward"]) for row in of} for of in (done, straight)]
    sequences = spec(place, kind, "tepo").training.samples_per_prompt * int(done[-1]["groups_sampled"])
    gaps = [abs(r - rewards[1][n]) / math.sqrt(2 * max(r * (1 - r), 0.01) / sequences) for n, r in rewards[0].items()]
    weights = {sha256_file(next(of.glob("checkpoints/*/model.safetensors"))) for of in (folder, whole)}
    check.holds(
        killed_after_rollout=rollout, reward_gap_in_standard_errors=max(gaps), weights_equal=len(weights) == 1,
        rows_before_differ=sum(a != b for a, b in zip(early, rows_until(folder, rollout), strict=True)),
        rows_differ=sum(a != b for a, b in zip(*bare, strict=True)),
    )  # fmt: skip


def rows_until(folder: Path, rollout: int) -> list[str]:
    """The curve's lines up to this rollout: later ones are computed again."""
    rows = (folder / "curve.csv").read_text(encoding="utf-8").splitlines()[1:]
    return [row for row in rows if int(row.partition(",")[0]) <= rollout]


def settle(before: list[str] | None) -> None:
    """Wait until a killed run has left the card: its processes end by themselves, but not at once."""
    end = time.monotonic() + 120
    while before and (used := nvidia_smi("memory.used")) and float(used[0]) > float(before[0]) + 2000:
        assert time.monotonic() < end, f"MiB of the GPU still taken 120 s after the run was killed: {used[0]}"
        time.sleep(1)


# --- Evaluation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "backend",
    [pytest.param(b, marks=pytest.mark.gpu(n)) for b, n in (("hf", "evaluated"), ("vllm", "evaluated vllm"))],
)
def test_a_trained_checkpoint_is_evaluated(backend: str, check: Check, place: Place) -> None:
    """Drawn twice, graded; greedily in float32: in bfloat16 rounding would decide between random weights' words."""
    from evals import fetch, store
    from evals.data import select

    run, data = place.folder / "trl tepo", place.folder / "data"
    if not (run / "run.json").is_file():
        train(place, "trl", "tepo", "tepo")
    for benchmark in select(BENCHMARKS):
        fetch.fetch(benchmark, data)  # generated: nothing is downloaded
    (model,) = (run / "checkpoints").iterdir()

    def drawn(name: str, benchmarks: tuple[str, ...] = BENCHMARKS, backend: str = backend, **more: str) -> Path:
        out = place.folder / f"{backend} {name}"
        shutil.rmtree(out, ignore_errors=True)
        options = [word for key, value in more.items() for word in (f"--{key}", value)]
        place.run(
            "evals.generate", "--model", model, "--record", run / "run.json", "--data", data, "--benchmarks",
            *benchmarks, "--limit", ITEMS, "--backend", backend, "--seed", 1, "--out", out, *options,
        )  # fmt: skip
        return out

    out, graded = drawn("samples"), place.folder / f"{backend} grades"
    record = store.read_record(out / "samples.json")
    first, again = (texts_of(folder / f"{BENCHMARKS[0]}.parquet") for folder in (out, drawn("again")))
    place.run("evals.grade", "--samples", out, "--data", data, "--out", graded)
    rows = sum(pq.read_metadata(graded / f"{key}.parquet").num_rows for key in BENCHMARKS)
    equal = None
    if place.cuda:
        cpu = {"device": "cpu"} if backend == "hf" else {}
        one, other = (
            texts_of(folder / f"{BENCHMARKS[1]}.parquet")
            for folder in (
                drawn("greedy", BENCHMARKS[1:], dtype="float32"),
                drawn("compared", BENCHMARKS[1:], backend="hf", dtype="float32", **cpu),
            )
        )
        equal = agreement(one, other)
    check.holds(
        equal_texts=sum(a == b for a, b in zip(first, again, strict=True)) / len(first), greedy_equal=equal,
        distinct_fraction=record[BENCHMARKS[0]].get("distinct_fraction"), seconds=record[BENCHMARKS[0]].get("seconds"),
        graded_rows_missing=sum(record[key]["rows"] for key in BENCHMARKS) - rows,
    )  # fmt: skip


def texts_of(path: Path) -> list[str]:
    rows = sorted(pq.read_table(path).to_pylist(), key=lambda row: (row["item_id"], row["sample"]))
    return [row["response"] for row in rows]


def agreement(one: list[str], other: list[str]) -> float:
    """Share of the first 32 tokens that are equal."""
    cut = [[re.findall(r"w\d+|.", text, re.DOTALL)[:32] for text in texts] for texts in (one, other)]
    pairs = list(zip(*cut, strict=True))
    return sum(a == b for x, y in pairs for a, b in zip(x, y, strict=False)) / sum(max(map(len, p)) for p in pairs)
