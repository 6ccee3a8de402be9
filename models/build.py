"""Build a tiny base model: `python -m models.build --model tiny_qwen2 --ladder quick [--out FOLDER] [--threads N]`.

The folder appears whole under its name, or not at all: work goes on in `.<name>.building` beside it, which keeps the
clean checkpoint of an interrupted build. A finished base is checked against its hashes and left alone.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.arithmetic import LADDERS
from models import measure, tokenizer
from models.batches import Gradients, Pair, clean_pairs, gradients, noisy_pairs, one_torch_thread
from models.recipe import RECORD, WEIGHTS, BaseRecord, Recipe, finished, folder, hash_of, recipe, record
from records import digests, errors, lock
from records.errors import ConfigError, Parser, whole
from records.files import read_json, write_json
from records.progress import Progress
from records.provenance import environment

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

CLEAN = "clean"  # folder of the checkpoint between the two phases
LEARNT = "learnt.json"  # in it: how phase 1 went
MADE = "made.json"  # in the folder of an unfinished build: no other may be removed
SCHEMA = 1


@dataclass(frozen=True)
class Gate:
    """How phase 1 went."""

    gate_step: int  # the step whose check passed the gate
    gate_accuracy: float
    cooled_accuracy: float


def train_clean(model: PreTrainedModel, letters: PreTrainedTokenizerFast, recipe: Recipe, *, threads: int = 1) -> Gate:
    """Phase 1, in place: train on worked solutions until the gate, then cool down. `letters` is the tokenizer.

    ConfigError when `limit` steps do not reach the gate, or cooling does not reach its own. The weights do not
    depend on `threads`.
    """
    phase = recipe.clean
    rng = random.Random(f"clean {recipe.seed}")
    optimizer = _adamw(model, recipe)

    def check(name: str) -> float:
        return measure.accuracy(
            model,
            letters,
            recipe.ladder,
            count=phase.check_answers,
            tokens=recipe.completion_tokens,
            seed=f"check {recipe.seed} {name}",
        )

    with gradients(model, letters, threads=threads) as compute:
        progress = Progress(f"{recipe.model} clean, at most", phase.limit)  # ends at the gate
        accuracy, step = None, 0
        while accuracy is None or accuracy <= phase.gate:
            if step == phase.limit:
                raise ConfigError(
                    f"{recipe.where}: accuracy {accuracy or 0.0:.3f} after {step} steps stays below the gate "
                    f"{phase.gate}; another seed or learning rate may pass"
                )
            step += 1
            rate = phase.learning_rate * min(1.0, step / phase.warmup)
            loss = _step(compute, optimizer, clean_pairs(rng, recipe.ladder, phase.batch), rate=rate, recipe=recipe)
            if step % phase.check_every == 0 or step == phase.limit:
                accuracy = check(str(step))
            progress.update(step, loss=loss, accuracy=accuracy, gate=phase.gate)
        cooling = Progress(f"{recipe.model} cooling", phase.cooling)
        for number in range(1, phase.cooling + 1):
            rate = phase.learning_rate * (1 - number / (phase.cooling + 1))
            loss = _step(compute, optimizer, clean_pairs(rng, recipe.ladder, phase.batch), rate=rate, recipe=recipe)
            cooling.update(number, loss=loss)
        cooled = check("cooled")
    if cooled <= phase.cooled_gate:
        raise ConfigError(
            f"{recipe.where}: accuracy {cooled:.3f} after cooling stays below the gate {phase.cooled_gate}; "
            f"phase 1 was left at step {step} with {accuracy:.3f}"
        )
    return Gate(step, accuracy, cooled)


def train_noisy(model: PreTrainedModel, letters: PreTrainedTokenizerFast, recipe: Recipe, *, threads: int = 1) -> None:
    """Phase 2, in place: solutions of mixed styles with slips, a fresh optimizer, a linearly falling rate."""
    phase = recipe.noisy
    rng = random.Random(f"noisy {recipe.seed}")
    optimizer = _adamw(model, recipe)
    progress = Progress(f"{recipe.model} noisy", phase.steps)
    peak, last = phase.learning_rate, phase.last_learning_rate
    with gradients(model, letters, threads=threads) as compute:
        for step in range(1, phase.steps + 1):
            if step <= phase.warmup:
                rate = peak * step / phase.warmup
            else:
                rate = peak + (last - peak) * (step - phase.warmup) / (phase.steps - phase.warmup)
            pairs = noisy_pairs(rng, recipe.ladder, phase)
            loss = _step(compute, optimizer, pairs, rate=rate, recipe=recipe)
            progress.update(step, loss=loss)


def _adamw(model: PreTrainedModel, recipe: Recipe) -> torch.optim.AdamW:
    import torch

    return torch.optim.AdamW(
        model.parameters(),
        lr=recipe.clean.learning_rate,  # `_step` sets it anew at each step
        betas=recipe.betas,
        weight_decay=recipe.weight_decay,
        fused=True,  # one pass over all weights per update: these models are so small that calls dominate
    )


def _step(
    compute: Gradients, optimizer: torch.optim.AdamW, pairs: Sequence[Pair], *, rate: float, recipe: Recipe
) -> float:
    """One update on the mean cross-entropy over answer tokens; returns the loss before it."""
    import torch

    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    loss = compute(pairs)
    torch.nn.utils.clip_grad_norm_(compute.model.parameters(), recipe.gradient_clip)
    optimizer.step()
    return loss


def build(recipe: Recipe, out: Path, *, threads: int = 1) -> BaseRecord:
    """Build the base into `out` unless it is there, the same bits on one thread and two; returns its record.

    ConfigError: `out` holds something else, the gate was not reached, or a figure lies outside its aim.
    """
    digest = hash_of(recipe)
    if finished(out):
        base = record(out)
        if base.recipe_hash != digest:
            raise ConfigError(f"{out / RECORD}: recipe_hash: {base.recipe_hash} is of another recipe than {digest}")
        check_aims(recipe, base.figures["base"])  # aims may have been tightened since
        return base
    # Snakemake removes the declared output, base.json, before it runs a job again, and leaves the other files. Such a
    # folder may be replaced; any other may hold somebody's work.
    unfinished = (out / CLEAN / LEARNT).is_file()
    if out.exists() and not unfinished and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out}: is not empty and holds no {RECORD}; give another --out or remove it")
    with _workplace(out) as work:
        base = _train(recipe, work, digest, threads)
        ready = work / "ready"
        write_json(ready / RECORD, base.model_dump(mode="json", by_alias=True))  # last: its presence means finished
        digests.write_folder(ready)
        if out.exists():  # empty, or a base without its record
            names = {path.relative_to(ready) for path in ready.rglob("*")}
            for path in sorted(out.rglob("*")):
                if path.relative_to(out) not in names:
                    raise ConfigError(f"{path}: is no file of a base; move it away")
            shutil.rmtree(out)
        ready.rename(out)
    return record(out)


def _train(recipe: Recipe, work: Path, digest: str, threads: int) -> BaseRecord:
    """Train both phases, leaving the model's files in `work/ready`; returns the record."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # a bar per file written; the phases print their own lines
    wall, cpu = time.monotonic(), time.process_time()
    letters = tokenizer.tokenizer()
    learnt = read_json(work / CLEAN / LEARNT) if (work / CLEAN / LEARNT).is_file() else {}
    resumed = learnt.get("recipe_hash") == digest  # an interrupted build of another recipe is of no use
    if not resumed:
        model = tokenizer.fresh(recipe.architecture, seed=recipe.seed)
        learnt = {"recipe_hash": digest, **asdict(train_clean(model, letters, recipe, threads=threads))}
        _save(model, work / CLEAN)
        write_json(work / CLEAN / LEARNT, learnt)  # last: its presence means that phase 1 is finished
    # Always from the file, so that a resumed build computes exactly what an uninterrupted one does.
    model = AutoModelForCausalLM.from_pretrained(str(work / CLEAN), dtype=torch.float32)
    train_noisy(model, letters, recipe, threads=threads)
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
    check_aims(recipe, figures.json())
    ready = work / "ready"
    _save(model, ready)
    shutil.copytree(work / CLEAN, ready / CLEAN)
    return BaseRecord(
        schema=SCHEMA,
        model=recipe.model,
        ladder=recipe.ladder,
        recipe=recipe.model_dump(mode="json"),
        recipe_hash=digest,
        parameters=sum(p.numel() for p in model.parameters()),
        figures={"gate": {k: v for k, v in learnt.items() if k != "recipe_hash"}, "base": figures.json()},
        sha256=digests.of_folder(ready),
        resumed=resumed,
        threads=min(threads, 2),
        wall_seconds=round(time.monotonic() - wall, 1),
        cpu_seconds=round(time.process_time() - cpu, 1),
        environment=environment(),
    )


def check_aims(recipe: Recipe, figures: dict[str, float]) -> None:
    """ConfigError for the first figure outside its aim."""
    for name, (low, high) in recipe.aims:
        if not low <= figures[name] <= high:
            raise ConfigError(
                f"{recipe.where}: {name} {figures[name]:.3f} of the finished base lies outside its aim {low}-{high}"
            )


def _save(model: Any, folder: Path) -> None:
    """An ordinary Hugging Face folder: config, generation config, safetensors, tokenizer."""
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(str(folder), safe_serialization=True)
    tokenizer.save(folder)


@contextmanager
def _workplace(out: Path) -> Iterator[Path]:
    """`.<name>.building` beside `out`, locked; removed after success, else kept with its clean checkpoint."""
    work = out.parent / f".{out.name}.building"
    mark = work / MADE
    # Beside the folder, not in it: the folder is removed while the lock is still held.
    with lock.held(out.parent / f".{out.name}.lock", f"{work}: another process is building this base"):
        if work.is_symlink() or (work.exists() and not mark.is_file()):
            raise ConfigError(f"{work}: was not made by a build of a base; move it away")
        if not work.exists():
            with tempfile.TemporaryDirectory(dir=out.parent, ignore_cleanup_errors=True) as fresh:
                write_json(Path(fresh) / "work" / MADE, {"base": str(out)})
                (Path(fresh) / "work").rename(work)  # it never exists without its mark
        shutil.rmtree(work / "ready", ignore_errors=True)
        yield work
        shutil.rmtree(work)


def main() -> None:
    parser = Parser(prog="python -m models.build", description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a key of config/models with made_here")
    parser.add_argument("--ladder", required=True, help=", ".join(LADDERS))
    parser.add_argument(
        "--out", type=Path, help="folder of the base; default: results/cache/models/<model>-<recipe hash>"
    )
    parser.add_argument(
        "--threads", type=whole(1, 4096), help="1 or 2, same weights; default: OMP_NUM_THREADS, else cores"
    )
    args = parser.parse_args()
    out = args.out or folder(args.model, args.ladder)
    threads = args.threads
    if threads is None:
        granted = os.environ.get("OMP_NUM_THREADS", "")  # what a scheduler granted
        threads = int(granted) if granted.isdecimal() and int(granted) else os.cpu_count() or 1
    base = build(recipe(args.model, args.ladder), out, threads=threads)
    figures = "  ".join(f"{name} {value}" for name, value in base.figures["base"].items())
    print(f"{out}: {figures}  sha256 {base.sha256[WEIGHTS][:12]}")


if __name__ == "__main__":
    errors.run(main)
