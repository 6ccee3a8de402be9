"""Build a tiny base model: `python -m models.build --model tiny_qwen2 --ladder quick [--out FOLDER] [--threads N]`.

The folder appears whole under its name, or not at all: work goes on in `.<name>.building` beside it, which keeps the
clean checkpoint of an interrupted build. A finished base is checked against its hashes and left alone.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evals.arithmetic import LADDERS
from models import cache
from models.cache import RECORD, WEIGHTS
from models.recipe import Recipe, recipe
from records import cli
from records.errors import BusyError, ConfigError
from records.provenance import environment, sha256_file
from records.read import read_json
from records.write import write_json

CLEAN = "clean"
LEARNT = "learnt.json"
SCHEMA = 1


def build(recipe: Recipe, out: Path, *, threads: int = 1) -> dict[str, Any]:
    """Build the base into `out` unless it is there, the same bits on one thread and two; returns its record.

    ConfigError: `out` holds something else, the gate was not reached, or a figure lies outside its aim.
    """
    digest = cache.hash_of(recipe)
    if cache.finished(out):
        found = cache.record(out)
        if found["recipe_hash"] != digest:
            raise ConfigError(f"{out / RECORD}: recipe_hash: {found['recipe_hash']} is of another recipe than {digest}")
        _accept(recipe, found["figures"]["base"])  # aims may have been tightened since
        return found
    # A workflow that reruns a job removes its declared output, base.json, and leaves the rest: that is ours to replace.
    ours = (out / CLEAN / LEARNT).is_file()
    if out.exists() and not ours and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out}: is not empty and holds no {RECORD}; give another --out or remove it")
    with _workplace(out) as work:
        made = _make(recipe, work, digest, threads)
        ready = work / "ready"
        write_json(ready / RECORD, made)  # last: its presence means finished
        if out.exists():
            shutil.rmtree(out)  # empty, or a base without its record
        ready.rename(out)
    return cache.record(out)


def _make(recipe: Recipe, work: Path, digest: str, threads: int) -> dict[str, Any]:
    """Train both phases, leaving the model's files in `work/ready`; returns the record."""
    from transformers.utils import logging

    from models import measure, phases, tokenizer
    from models.architectures import fresh
    from models.gradients import one_torch_thread

    logging.disable_progress_bar()  # a bar per file written; the phases print their own lines
    wall, cpu = time.monotonic(), time.process_time()
    letters = tokenizer.tokenizer()
    learnt = _kept(work / CLEAN, digest)
    resumed = learnt is not None
    if learnt is None:
        model = fresh(recipe.architecture, seed=recipe.seed)
        learnt = {"recipe_hash": digest, **asdict(phases.clean(model, letters, recipe, threads=threads))}
        _save(model, work / CLEAN)
        write_json(work / CLEAN / LEARNT, learnt)
    # Always from the file, so that a resumed build takes the very same path.
    model = _load(work / CLEAN)
    phases.noisy(model, letters, recipe, threads=threads)
    with one_torch_thread():
        figures = measure.figures(
            model,
            letters,
            recipe.ladder,
            prompts=recipe.measured_prompts,
            samples=recipe.samples_per_prompt,
            tokens=recipe.completion_tokens,
            seed=f"figures {recipe.seed}",
        )
    print(f"[{recipe.model} figures] " + "  ".join(f"{k} {v:.3g}" for k, v in asdict(figures).items()), file=sys.stderr)
    _accept(recipe, figures.json())
    ready = work / "ready"
    _save(model, ready)
    shutil.copytree(work / CLEAN, ready / CLEAN)
    return {
        "schema": SCHEMA,
        "model": recipe.model,
        "ladder": recipe.ladder,
        "recipe": recipe.json(),
        "recipe_hash": digest,
        "parameters": sum(p.numel() for p in model.parameters()),
        "figures": {"gate": {k: v for k, v in learnt.items() if k != "recipe_hash"}, "base": figures.json()},
        "sha256": {name: sha256_file(ready / name) for name in (WEIGHTS, f"{CLEAN}/{WEIGHTS}", "tokenizer.json")},
        "resumed": resumed,
        "threads": min(threads, 2),
        "wall_seconds": round(time.monotonic() - wall, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "environment": environment(),
    }


def _accept(recipe: Recipe, figures: dict[str, float]) -> None:
    for name, (low, high) in asdict(recipe.aims).items():
        if not low <= figures[name] <= high:
            raise ConfigError(
                f"{recipe.where}: {name} {figures[name]:.3f} of the finished base lies outside its aim {low}-{high}"
            )


def _kept(clean: Path, digest: str) -> dict[str, Any] | None:
    """What an interrupted build of the same recipe learnt in phase 1, if it got that far."""
    if not (clean / LEARNT).is_file():
        return None
    learnt: dict[str, Any] = read_json(clean / LEARNT, "record of the clean phase")
    return learnt if learnt["recipe_hash"] == digest else None


def _save(model: Any, folder: Path) -> None:
    """An ordinary Hugging Face folder: config, generation config, safetensors, tokenizer."""
    from models import tokenizer

    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(str(folder), safe_serialization=True)
    tokenizer.save(folder)


def _load(folder: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)


@contextmanager
def _workplace(out: Path) -> Iterator[Path]:
    """`.<name>.building` beside `out`, locked; removed after success, else kept with its clean checkpoint."""
    work = out.parent / f".{out.name}.building"
    work.mkdir(parents=True, exist_ok=True)
    with open(work / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(f"{work}: another process is building this base") from error
        shutil.rmtree(work / "ready", ignore_errors=True)
        yield work
        shutil.rmtree(work)


def _usual_threads() -> int:
    """What a scheduler granted, else the cores."""
    granted = os.environ.get("OMP_NUM_THREADS", "")
    return int(granted) if granted.isdecimal() else os.cpu_count() or 1


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m models.build", description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a key of config/models with made_here")
    parser.add_argument("--ladder", required=True, help=", ".join(LADDERS))
    parser.add_argument(
        "--out", type=Path, help="folder of the base; default: results/cache/models/<model>-<recipe hash>"
    )
    parser.add_argument("--threads", type=int, help="1 or 2, same weights; default: OMP_NUM_THREADS, else cores")
    options = parser.parse_args()
    wanted = recipe(options.model, options.ladder)
    out = options.out or cache.folder(options.model, options.ladder)
    threads = options.threads if options.threads is not None else _usual_threads()
    if threads < 1:
        raise ConfigError(f"--threads: {threads}: must be at least 1")
    made = build(wanted, out, threads=threads)
    figures = "  ".join(f"{name} {value}" for name, value in made["figures"]["base"].items())
    print(f"{out}: {figures}  sha256 {made['sha256'][WEIGHTS][:12]}")


if __name__ == "__main__":
    cli.run(main)
