"""Build a base: `python -m models.build --model tiny_qwen2 --ladder quick --seed 1 [--clean] [--out FOLDER]`.

`--clean` builds only the clean model that the seed's base continues (models.recipe); without it, one that is missing is
built first. A folder appears whole under its name, or not at all: work goes on in a temporary one beside it. A finished
model is checked against its hashes and left alone.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import digests, errors, lock, worker
from core.errors import ConfigError, Parser, whole
from core.files import write_json
from core.progress import Progress
from core.provenance import environment
from evals.arithmetic import LADDERS
from methods import sampling
from models import tiny
from models.recipe import (
    CACHE,
    CLEAN_RECORD,
    RECORD,
    WEIGHTS,
    BaseRecord,
    CleanRecord,
    Recipe,
    Start,
    base_name,
    clean_record,
    code,
    finished,
    hash_of,
    name_of_clean,
    recipe,
    record,
)

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

RECIPE = "recipe.json"  # the first file of a build: a folder that holds it and no record may be replaced
SCHEMA = 2


class RefusedError(ConfigError):
    """A gate or an aim was missed."""


@dataclass(frozen=True)
class Gate:
    """How phase 1 went."""

    gate_step: int  # the step whose check passed the gate
    gate_accuracy: float
    cooled_accuracy: float


def train_clean(
    model: PreTrainedModel, letters: PreTrainedTokenizerFast, start: Start, *, attempt: int = 0, threads: int = 1
) -> Gate:
    """Phase 1, in place: train on worked solutions until the gate, then cool down. `letters` is the tokenizer.

    RefusedError when `limit` steps do not reach the gate, or cooling not its own. The weights do not depend on
    `threads`.
    """
    phase = start.clean
    ladder = phase.ladder or start.ladder
    name = f"{start.model} clean {start.number}"
    rng = random.Random(f"clean {start.seed} {start.number} {attempt}")
    optimizer = _adamw(model, start)

    def check(at: str) -> float:
        return tiny.accuracy(
            model,
            letters,
            ladder,
            count=phase.check_answers,
            tokens=start.completion_tokens,
            seed=f"check {start.seed} {start.number} {attempt} {at}",
        )

    with tiny.gradients(model, letters, threads=threads) as compute:
        progress = Progress(f"{name}, at most", phase.limit)  # ends at the gate
        accuracy, step = None, 0
        while accuracy is None or accuracy <= phase.gate:
            if step == phase.limit:
                raise RefusedError(
                    f"accuracy {accuracy or 0.0:.3f} after {step} steps stays below the gate {phase.gate}"
                )
            step += 1
            rate = phase.learning_rate * min(1.0, step / phase.warmup)
            loss = _step(compute, optimizer, tiny.clean_pairs(rng, ladder, phase.batch), rate=rate, start=start)
            if step % phase.check_every == 0 or step == phase.limit:
                accuracy = check(str(step))
            progress.update(step, loss=loss, accuracy=accuracy, gate=phase.gate)
        cooling = Progress(f"{name} cooling", phase.cooling)
        for number in range(1, phase.cooling + 1):
            rate = phase.learning_rate * (1 - number / (phase.cooling + 1))
            loss = _step(compute, optimizer, tiny.clean_pairs(rng, ladder, phase.batch), rate=rate, start=start)
            cooling.update(number, loss=loss)
        cooled = check("cooled")
    if cooled <= phase.cooled_gate:
        raise RefusedError(
            f"accuracy {cooled:.3f} after cooling stays below the gate {phase.cooled_gate}; "
            f"phase 1 was left at step {step} with {accuracy:.3f}"
        )
    return Gate(step, accuracy, cooled)


def train_noisy(
    model: PreTrainedModel, letters: PreTrainedTokenizerFast, recipe: Recipe, *, attempt: int = 0, threads: int = 1
) -> None:
    """Phase 2, in place: solutions of mixed styles with slips, a fresh optimizer, a linearly falling rate."""
    phase, start = recipe.noisy, recipe.start
    rng = random.Random(f"noisy {start.seed} {recipe.seed} {attempt}")
    optimizer = _adamw(model, start)
    progress = Progress(f"{recipe.model} seed {recipe.seed} noisy", phase.steps)
    peak, last = phase.learning_rate, phase.last_learning_rate
    with tiny.gradients(model, letters, threads=threads) as compute:
        for step in range(1, phase.steps + 1):
            if step <= phase.warmup:
                rate = peak * step / phase.warmup
            else:
                rate = peak + (last - peak) * (step - phase.warmup) / (phase.steps - phase.warmup)
            loss = _step(compute, optimizer, tiny.noisy_pairs(rng, start.ladder, phase), rate=rate, start=start)
            progress.update(step, loss=loss)


def _adamw(model: PreTrainedModel, start: Start) -> torch.optim.AdamW:
    import torch

    return torch.optim.AdamW(
        model.parameters(),
        lr=start.clean.learning_rate,  # `_step` sets it anew at each step
        betas=start.betas,
        weight_decay=start.weight_decay,
        fused=True,  # one pass over all weights per update: these models are so small that calls dominate
    )


def _step(
    compute: tiny.Gradients, optimizer: torch.optim.AdamW, pairs: Sequence[tiny.Pair], *, rate: float, start: Start
) -> float:
    """One update on the mean cross-entropy over answer tokens; returns the loss before it."""
    import torch

    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    loss = compute(pairs)
    torch.nn.utils.clip_grad_norm_(compute.model.parameters(), start.gradient_clip)
    optimizer.step()
    return loss


def build_clean(start: Start, out: Path, *, threads: int = 1) -> CleanRecord:
    """Build a clean model into `out` unless it is there, the same bits on one thread and two; returns its record.

    ConfigError: `out` holds something else, or no attempt passed the gates.
    """
    if not finished(out, CLEAN_RECORD):
        _place(out, CLEAN_RECORD, start, lambda ready: _train_clean(start, ready, threads))
    made = clean_record(out)
    _check_recipe(out / CLEAN_RECORD, made.recipe_hash, start)
    return made


def build(recipe: Recipe, out: Path, *, threads: int = 1) -> BaseRecord:
    """Build the base into `out` unless it is there, and before it the clean model beside `out` unless that is there.

    The same bits on one thread and two. ConfigError: `out` holds something else, or every attempt was refused.
    """
    if not finished(out):
        clean = out.parent / name_of_clean(recipe.start)
        build_clean(recipe.start, clean, threads=threads)
        _place(out, RECORD, recipe, lambda ready: _train_noisy(recipe, clean, ready, threads))
    made = record(out)
    _check_recipe(out / RECORD, made.recipe_hash, recipe)
    return made


def _check_recipe(path: Path, theirs: str, ours: Recipe | Start) -> None:
    if theirs != hash_of(ours):
        raise ConfigError(f"{path}: recipe_hash: {theirs} is of another recipe than {hash_of(ours)}")


def _place(out: Path, record: str, made_by: Recipe | Start, train: Callable[[Path], CleanRecord | BaseRecord]) -> None:
    """Have `train` fill a folder, and move it to `out` with its record."""
    # Snakemake removes the declared output, the record, before it runs a job again, and leaves the other files.
    if not _replaceable(out):
        raise ConfigError(f"{out}: is not empty and holds no {record}; give another --out or remove it")
    began = code().hash
    held = lock.held(out.parent / f".{out.name}.lock", f"{out}: another process is building this base")
    with held, tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as temporary:
        work = Path(temporary) / "work"  # with ordinary permissions
        write_json(work / RECIPE, made_by.model_dump(mode="json"))
        made = train(work)
        entry = {**made.model_dump(mode="json", by_alias=True), "code": began, **code().warning_entry(began)}
        write_json(work / record, entry)  # last: its presence means finished
        digests.write_folder(work)
        if out.exists():  # empty, or a model without its record
            names = {path.relative_to(work) for path in work.rglob("*")}
            for path in sorted(out.rglob("*")):
                if path.relative_to(out) not in names:
                    raise ConfigError(f"{path}: is no file of a base; move it away")
            shutil.rmtree(out)
        work.rename(out)


def _replaceable(folder: Path) -> bool:
    """Whether nothing is there, an empty folder, or what a build left; anything else may be somebody's work."""
    if folder.is_dir() and not folder.is_symlink():
        return (folder / RECIPE).is_file() or not any(folder.iterdir())
    return not os.path.lexists(folder)


def _facts(made_by: Recipe | Start, model: PreTrainedModel, refused: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """Save the model; what both kinds of record hold of it."""
    _save(model, folder)
    return {
        "schema": SCHEMA,
        "recipe": made_by.model_dump(mode="json"),
        "recipe_hash": hash_of(made_by),
        "parameters": sum(p.numel() for p in model.parameters()),
        "attempt": len(refused),
        "refused": refused,
        "sha256": digests.of_folder(folder),
        "environment": environment(),
    }


def _cost(threads: int, began: tuple[float, float]) -> dict[str, Any]:
    """Threads, wall and CPU seconds since `began`."""
    wall, cpu = began
    return {
        "threads": min(threads, 2),
        "wall_seconds": round(time.monotonic() - wall, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }


def _train_clean(start: Start, ready: Path, threads: int) -> CleanRecord:
    """Phase 1, leaving the model's files in `ready`; returns the record."""
    began = time.monotonic(), time.process_time()
    letters = tiny.tokenizer()

    def attempt(number: int) -> tuple[PreTrainedModel, Gate]:
        init = random.Random(f"start {start.seed} {start.number} {number}").getrandbits(63)
        model = tiny.fresh(start.architecture, seed=init)
        return model, train_clean(model, letters, start, attempt=number, threads=threads)

    (model, gate), refused = _first_accepted(attempt, start.clean.attempts, start.where)
    return CleanRecord(**_facts(start, model, refused, ready), figures=asdict(gate), **_cost(threads, began))


def _train_noisy(recipe: Recipe, clean: Path, ready: Path, threads: int) -> BaseRecord:
    """Phase 2 from the clean model, leaving the model's files in `ready`; returns the record."""
    import torch
    from transformers import AutoModelForCausalLM

    began, start = (time.monotonic(), time.process_time()), recipe.start
    letters = tiny.tokenizer()
    continued = clean_record(clean)

    def attempt(number: int) -> tuple[PreTrainedModel, tiny.Figures]:
        model = AutoModelForCausalLM.from_pretrained(str(clean), dtype=torch.float32)
        train_noisy(model, letters, recipe, attempt=number, threads=threads)
        with tiny.one_torch_thread():
            figures = tiny.figures(
                model,
                letters,
                start.ladder,
                prompts=recipe.measured_prompts,
                samples=recipe.samples_per_prompt,
                tokens=start.completion_tokens,
                seed=f"figures {start.seed} {recipe.seed} {number}",
            )
        shown = "  ".join(f"{name} {value:.3g}" for name, value in asdict(figures).items())
        print(f"[{recipe.model} seed {recipe.seed} figures] {shown}", file=sys.stderr)
        check_aims(recipe, figures.json())
        return model, figures

    (model, figures), refused = _first_accepted(attempt, recipe.noisy.attempts, recipe.where)
    return BaseRecord(
        **_facts(recipe, model, refused, ready),
        model=recipe.model,
        ladder=start.ladder,
        seed=recipe.seed,
        clean=clean.name,
        clean_sha256=continued.sha256[WEIGHTS],
        figures={"gate": continued.figures, "base": figures.json()},
        **_cost(threads, began),
    )


def _first_accepted(
    attempt: Callable[[int], tuple[PreTrainedModel, Any]], most: int, where: str
) -> tuple[tuple[PreTrainedModel, Any], tuple[str, ...]]:
    """What the first attempt that is not refused returns, and why those before it were refused; ConfigError if all are.

    Attempts follow a fixed order, so that every machine comes to the same one.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()  # a bar per file read or written; the phases print their own lines
    refused: list[str] = []
    while True:
        try:
            return attempt(len(refused)), tuple(refused)
        except RefusedError as error:
            refused.append(str(error))
            if len(refused) == most:
                raise ConfigError(f"{where}: attempt {most} of {most}: {error}") from error
            print(f"{where}: attempt {len(refused)} of {most} is refused: {error}", file=sys.stderr)


def check_aims(recipe: Recipe, figures: dict[str, float]) -> None:
    """RefusedError for the first figure outside its aim."""
    for name, (low, high) in recipe.aims:
        if not low <= figures[name] <= high:
            raise RefusedError(f"{name} {figures[name]:.3f} of the finished base lies outside its aim {low}-{high}")


def _save(model: Any, folder: Path) -> None:
    """An ordinary Hugging Face folder: config, generation config, safetensors, tokenizer."""
    model.save_pretrained(str(folder), safe_serialization=True)
    tiny.save(folder)


def main() -> None:
    parser = Parser()
    parser.add_argument("--model", required=True, help="a key of config/models with made_here")
    parser.add_argument("--ladder", required=True, help=", ".join(LADDERS))
    parser.add_argument("--seed", type=whole(0), required=True, help="of the runs that start from the base")
    parser.add_argument("--clean", action="store_true", help="only the clean model that the base continues")
    parser.add_argument("--out", type=Path, help="folder of the model; default: in results/cache/models")
    parser.add_argument(
        "--threads", type=whole(1, 4096), help="1 or 2, same weights; default: OMP_NUM_THREADS, else cores"
    )
    args = parser.parse_args()
    made_by = recipe(args.model, args.ladder, args.seed)
    threads = args.threads
    if threads is None:
        granted = os.environ.get("OMP_NUM_THREADS", "")  # what a scheduler granted
        threads = int(granted) if granted.isdecimal() and int(granted) else os.cpu_count() or 1
    if threads == 1:  # the worker's number
        worker.hand_over("models.build", ("pydantic", "yaml", *sampling.LIBRARIES))
    if args.clean:
        out = args.out or CACHE / name_of_clean(made_by.start)
        clean = build_clean(made_by.start, out, threads=threads)
        figures, sha256 = clean.figures, clean.sha256
    else:
        out = args.out or CACHE / base_name(args.model, args.ladder, args.seed)
        base = build(made_by, out, threads=threads)
        figures, sha256 = base.figures["base"], base.sha256
    shown = "  ".join(f"{name} {value}" for name, value in figures.items())
    print(f"{out}: {shown}  sha256 {sha256[WEIGHTS][:12]}")


if __name__ == "__main__":
    errors.run(main)
