"""Build a tiny base model: `python -m models.build --model tiny_qwen2 --ladder quick [--out FOLDER] [--threads N]`.

The folder appears whole under its name, or not at all: work goes on in `.<name>.building` beside it, which keeps the
clean checkpoint of an interrupted build. A finished base is checked against its hashes and left alone.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.arithmetic import LADDERS
from models import recipe as cache
from models.batches import Gradients, Pair, clean_pairs, gradients, noisy_pairs
from models.measure import accuracy
from models.recipe import RECORD, WEIGHTS, Recipe, recipe
from records import errors
from records.errors import BusyError, ConfigError
from records.files import read_json, write_json
from records.progress import Progress
from records.provenance import environment, sha256_file

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

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

    from models import measure, tokenizer
    from models.batches import one_torch_thread
    from models.tokenizer import fresh

    logging.disable_progress_bar()  # a bar per file written; the phases print their own lines
    wall, cpu = time.monotonic(), time.process_time()
    letters = tokenizer.tokenizer()
    learnt = _kept(work / CLEAN, digest)
    resumed = learnt is not None
    if learnt is None:
        model = fresh(recipe.architecture, seed=recipe.seed)
        learnt = {"recipe_hash": digest, **asdict(clean(model, letters, recipe, threads=threads))}
        _save(model, work / CLEAN)
        write_json(work / CLEAN / LEARNT, learnt)
    # Always from the file, so that a resumed build takes the very same path.
    model = _load(work / CLEAN)
    noisy(model, letters, recipe, threads=threads)
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


# The two training phases of a tiny base (`models.recipe` says why there are two). Both change the model in place.


@dataclass(frozen=True)
class Learnt:
    """How phase 1 went: the step whose check passed the gate, the accuracy there and after cooling."""

    gate_step: int
    gate_accuracy: float
    cooled_accuracy: float


def clean(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, recipe: Recipe, *, threads: int = 1) -> Learnt:
    """Train on worked solutions until the gate, then cool down.

    ConfigError when `limit` steps do not reach the gate, or cooling does not reach its own. The weights do not
    depend on `threads`.
    """
    phase = recipe.clean
    rng = random.Random(f"clean {recipe.seed}")
    optimizer = _adamw(model, recipe)

    def check(name: str) -> float:
        return accuracy(
            model,
            tokenizer,
            recipe.ladder,
            count=phase.check_answers,
            tokens=recipe.completion_tokens,
            seed=f"check {recipe.seed} {name}",
        )

    with gradients(model, tokenizer, threads=threads) as add:

        def train(rate: float) -> float:
            return _step(add, optimizer, clean_pairs(rng, recipe.ladder, phase.batch), rate=rate, recipe=recipe)

        progress = Progress(f"{recipe.model} clean, at most", phase.limit)  # left at the gate
        right, step = None, 0
        while right is None or right <= phase.gate:
            if step == phase.limit:
                raise ConfigError(
                    f"{recipe.where}: accuracy {right or 0.0:.3f} after {step} steps stays below the gate "
                    f"{phase.gate}; another seed or learning rate may pass"
                )
            step += 1
            loss = train(phase.learning_rate * min(1.0, step / phase.warmup))
            if step % phase.check_every == 0 or step == phase.limit:
                right = check(str(step))
            progress.update(step, loss=loss, accuracy=right, gate=phase.gate)
        cooling = Progress(f"{recipe.model} cooling", phase.cooling)
        for done in range(1, phase.cooling + 1):
            loss = train(phase.learning_rate * (1 - done / (phase.cooling + 1)))
            cooling.update(done, loss=loss)
        cooled = check("cooled")
    if cooled <= phase.cooled_gate:
        raise ConfigError(
            f"{recipe.where}: accuracy {cooled:.3f} after cooling stays below the gate {phase.cooled_gate}; "
            f"phase 1 was left at step {step} with {right:.3f}"
        )
    return Learnt(step, right, cooled)


def noisy(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, recipe: Recipe, *, threads: int = 1) -> None:
    """Train on solutions of mixed styles with slips, with a fresh optimizer and a linearly falling rate."""
    phase = recipe.noisy
    rng = random.Random(f"noisy {recipe.seed}")
    optimizer = _adamw(model, recipe)
    progress = Progress(f"{recipe.model} noisy", phase.steps)
    rate = _warm_then_linear(phase.learning_rate, phase.last_learning_rate, phase.warmup, phase.steps)
    with gradients(model, tokenizer, threads=threads) as add:
        for step in range(1, phase.steps + 1):
            pairs = noisy_pairs(rng, recipe.ladder, phase)
            loss = _step(add, optimizer, pairs, rate=rate(step), recipe=recipe)
            progress.update(step, loss=loss)


def _warm_then_linear(peak: float, last: float, warmup: int, steps: int) -> Callable[[int], float]:
    def rate(step: int) -> float:
        if step <= warmup:
            return peak * step / warmup
        return peak + (last - peak) * (step - warmup) / (steps - warmup)

    return rate


def _adamw(model: PreTrainedModel, recipe: Recipe) -> torch.optim.AdamW:
    import torch

    return torch.optim.AdamW(
        model.parameters(),
        lr=recipe.clean.learning_rate,
        betas=recipe.betas,
        weight_decay=recipe.weight_decay,
        fused=True,
    )


def _step(
    gradients: Gradients, optimizer: torch.optim.AdamW, pairs: Sequence[Pair], *, rate: float, recipe: Recipe
) -> float:
    """One update on the mean cross-entropy over answer tokens; returns it."""
    import torch

    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    loss = gradients(pairs)
    torch.nn.utils.clip_grad_norm_(gradients.model.parameters(), recipe.gradient_clip)
    optimizer.step()
    return loss


if __name__ == "__main__":
    errors.run(main)
