"""Build a base: `python -m models.build --model tiny_qwen2 --ladder quick --seed 1 [--clean] [--out FOLDER]`.

`--clean` builds only the clean model that the seed's base continues (models.recipe); without it, a missing one is built
first. A folder appears complete under its name, or not at all: the build uses a temporary folder next to it. A finished
model is checked against its hashes and left unchanged.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from core import digests, errors, worker
from core.code import warning_entry
from core.errors import ConfigError, Parser, whole
from core.files import locked, write_json
from core.progress import Progress
from core.provenance import environment
from evals.arithmetic import LADDERS
from methods import sampling
from models import recipe as recipes
from models import tiny
from models.recipe import CLEAN_RECORD, RECORD, WEIGHTS, Recipe, Start

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

# Number of the attempt -> the model, and facts for its record. Raises RefusedError.
Attempt: TypeAlias = "Callable[[int], tuple[PreTrainedModel, dict[str, Any]]]"
Update: TypeAlias = Callable[[Sequence[tiny.Pair], float], float]
"""(batch, learning rate) -> the loss before the update."""

RECIPE = "recipe.json"  # the first file of a build: a folder with it and without a record may be replaced
FILES = {
    RECIPE, RECORD, CLEAN_RECORD, WEIGHTS, "config.json", "generation_config.json", "tokenizer.json",
    "tokenizer_config.json",
}  # fmt: skip
SCHEMA = 2


class RefusedError(ConfigError):
    """A gate or an aim was missed."""


@contextmanager
def _training(model: PreTrainedModel, letters: PreTrainedTokenizerFast, start: Start, threads: int) -> Iterator[Update]:
    """Yield a function that makes one update on the mean cross-entropy over answer tokens, with a fresh AdamW."""
    import torch

    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=start.clean.learning_rate,  # set at each update
        betas=start.betas,
        weight_decay=start.weight_decay,
        fused=True,  # one pass over all weights per update: in models this small, calls dominate
    )

    def update(pairs: Sequence[tiny.Pair], rate: float) -> float:
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
        loss = add_gradient(pairs)
        torch.nn.utils.clip_grad_norm_(model.parameters(), start.gradient_clip)
        optimizer.step()
        return loss

    with tiny.gradients(model, letters, threads=threads) as add_gradient:
        yield update


def train_clean(
    model: PreTrainedModel, letters: PreTrainedTokenizerFast, start: Start, *, attempt: int = 0, threads: int = 1
) -> dict[str, int | float]:
    """Train phase 1 in place: on worked solutions until the gate, then cool down. `letters` is the tokenizer.

    Returns the step whose check passed the gate, the share of right answers then, and after cooling.

    Raises RefusedError if `limit` steps do not reach the gate, or cooling does not reach its gate. The weights do
    not depend on `threads`.
    """
    phase = start.clean
    ladder = phase.ladder or start.ladder
    name = f"{start.model} clean {start.number}"
    rng = random.Random(f"clean {start.seed} {start.number} {attempt}")

    def check(at: str) -> float:
        seed = f"check {start.seed} {start.number} {attempt} {at}"
        count, tokens = phase.check_answers, start.completion_tokens
        return sum(tiny.sample(model, letters, ladder, prompts=count, tokens=tokens, seed=seed)[-1]) / count

    with _training(model, letters, start, threads) as update:
        progress = Progress(f"{name}, at most", phase.limit)  # ends at the gate
        accuracy, step = None, 0
        while accuracy is None or accuracy <= phase.gate:
            if step == phase.limit:
                raise RefusedError(
                    f"accuracy {accuracy or 0.0:.3f} after {step} steps stays below the gate {phase.gate}"
                )
            step += 1
            rate = phase.learning_rate * min(1.0, step / phase.warmup)
            loss = update(tiny.clean_pairs(rng, ladder, phase.batch), rate)
            if step % phase.check_every == 0 or step == phase.limit:
                accuracy = check(str(step))
            progress.update(step, loss=loss, accuracy=accuracy, gate=phase.gate)
        cooling = Progress(f"{name} cooling", phase.cooling)
        for number in range(1, phase.cooling + 1):
            rate = phase.learning_rate * (1 - number / (phase.cooling + 1))
            cooling.update(number, loss=update(tiny.clean_pairs(rng, ladder, phase.batch), rate))
        cooled = check("cooled")
    if cooled <= phase.cooled_gate:
        raise RefusedError(
            f"accuracy {cooled:.3f} after cooling stays below the gate {phase.cooled_gate}; "
            f"phase 1 was left at step {step} with {accuracy:.3f}"
        )
    return {"gate_step": step, "gate_accuracy": accuracy, "cooled_accuracy": cooled}


def train_noisy(
    model: PreTrainedModel, letters: PreTrainedTokenizerFast, recipe: Recipe, *, attempt: int = 0, threads: int = 1
) -> None:
    """Train phase 2 in place: solutions of mixed styles with slips, a fresh optimizer, a linearly falling rate."""
    phase, start = recipe.noisy, recipe.start
    rng = random.Random(f"noisy {start.seed} {recipe.seed} {attempt}")
    progress = Progress(f"{recipe.model} seed {recipe.seed} noisy", phase.steps)
    peak, last = phase.learning_rate, phase.last_learning_rate
    with _training(model, letters, start, threads) as update:
        for step in range(1, phase.steps + 1):
            rate = peak * step / phase.warmup
            if step > phase.warmup:
                rate = peak + (last - peak) * (step - phase.warmup) / (phase.steps - phase.warmup)
            progress.update(step, loss=update(tiny.noisy_pairs(rng, start.ladder, phase), rate))


def build_clean(start: Start, out: Path, *, threads: int = 1) -> dict[str, Any]:
    """Build a clean model in `out` unless it exists, bit-identical on one thread and two; return its record.

    Raises ConfigError if `out` contains something else, or no attempt passed the gates.
    """

    def attempt(number: int) -> tuple[PreTrainedModel, dict[str, Any]]:
        init = random.Random(f"start {start.seed} {start.number} {number}").getrandbits(63)
        model = tiny.fresh(start.architecture, seed=init)
        return model, {"figures": train_clean(model, tiny.tokenizer(), start, attempt=number, threads=threads)}

    return _built(start, out, CLEAN_RECORD, attempt, start.clean.attempts, threads)


def build(recipe: Recipe, out: Path, *, threads: int = 1) -> dict[str, Any]:
    """Build the base in `out` unless it exists, and first the clean model next to `out` unless that exists.

    Bit-identical on one thread and two. Raises ConfigError if `out` has other content, or all attempts were rejected.
    """
    start, clean = recipe.start, out.parent / recipes.name_of_clean(recipe.start)

    def attempt(number: int) -> tuple[PreTrainedModel, dict[str, Any]]:
        import torch
        from transformers import AutoModelForCausalLM

        letters, gate = tiny.tokenizer(), recipes.record(clean, CLEAN_RECORD)
        model = AutoModelForCausalLM.from_pretrained(str(clean), dtype=torch.float32)
        train_noisy(model, letters, recipe, attempt=number, threads=threads)
        with tiny.one_torch_thread():
            figures = tiny.figures(
                model, letters, start.ladder, prompts=recipe.measured_prompts, samples=recipe.samples_per_prompt,
                tokens=start.completion_tokens, seed=f"figures {start.seed} {recipe.seed} {number}",
            )  # fmt: skip
        shown = "  ".join(f"{name} {value:.3g}" for name, value in figures.items())
        print(f"[{recipe.model} seed {recipe.seed} figures] {shown}", file=sys.stderr)
        check_aims(recipe, figures)
        made_of = {"model": recipe.model, "ladder": start.ladder, "seed": recipe.seed, "clean": clean.name}
        made_of |= {"clean_sha256": gate["sha256"][WEIGHTS]}
        return model, made_of | {"figures": {"gate": gate["figures"], "base": figures}}

    if not recipes.finished(out):
        build_clean(start, clean, threads=threads)
    return _built(recipe, out, RECORD, attempt, recipe.noisy.attempts, threads)


def check_aims(recipe: Recipe, figures: dict[str, float]) -> None:
    """Raise RefusedError for the first figure outside its aim."""
    for name, (low, high) in recipe.aims:
        if not low <= figures[name] <= high:
            raise RefusedError(f"{name} {figures[name]:.3f} of the finished base lies outside its aim {low}-{high}")


def _built(
    made_by: Recipe | Start, out: Path, name: str, attempt: Attempt, attempts: int, threads: int
) -> dict[str, Any]:
    """Return the record of a model, building it if missing; raise ConfigError for one of another recipe."""
    if not recipes.finished(out, name):
        _check_replaceable(out, name)
        lock = locked(out.parent / f".{out.name}.lock", f"{out}: another process is building this base")
        with lock, tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as temporary:
            work = Path(temporary) / "work"  # with ordinary permissions
            _write(made_by, work, name, attempt, attempts, threads)
            _check_replaceable(out, name)  # again: a build takes minutes
            if out.exists():
                shutil.rmtree(out)
            work.rename(out)
    made = recipes.record(out, name)
    if made.get("recipe_hash") != recipes.hash_of(made_by):
        raise ConfigError(
            f"{out / name}: recipe_hash: {made.get('recipe_hash')} is of another recipe than "
            f"{recipes.hash_of(made_by)}; give another --out or remove it"
        )
    return made


def _check_replaceable(out: Path, name: str) -> None:
    """Raise ConfigError unless the path is free, an empty folder, or left by a build of this kind without its record
    `name`: before it reruns a job, Snakemake removes the record alone. Anything else may be a user's data."""
    if os.path.lexists(out) and (out.is_symlink() or not out.is_dir()):
        raise ConfigError(f"{out}: not a folder; give another --out or remove it")
    names = {path.name for path in out.glob("*")}
    if strange := sorted(names - (FILES - ({RECORD, CLEAN_RECORD} - {name}))):
        raise ConfigError(f"{out / strange[0]}: not a file of a base; move it away or give another --out")
    if names and RECIPE not in names:
        raise ConfigError(f"{out}: a model without {RECIPE}, which every build writes; give another --out or remove it")


def _write(made_by: Recipe | Start, work: Path, name: str, attempt: Attempt, attempts: int, threads: int) -> None:
    """Build a model in the folder `work`. Attempts have a fixed order, so that every machine accepts the same one."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # one bar per file read or written; the phases print progress lines
    code, wall, cpu = recipes.code(), time.monotonic(), time.process_time()
    began, model, facts, refused = code.hash, None, dict[str, Any](), list[str]()
    while model is None:
        try:
            model, facts = attempt(len(refused))
        except RefusedError as error:
            refused.append(str(error))
            if len(refused) == attempts:
                raise ConfigError(f"{made_by.where}: attempt {attempts} of {attempts}: {error}") from error
            print(f"{made_by.where}: attempt {len(refused)} of {attempts} is refused: {error}", file=sys.stderr)
    # A standard Hugging Face folder: config, generation config, safetensors, tokenizer.
    settings = made_by.model_dump(mode="json")
    write_json(work / RECIPE, settings)
    model.save_pretrained(str(work), safe_serialization=True)
    tiny.tokenizer().save_pretrained(str(work))
    record = {
        "schema": SCHEMA, "recipe": settings, "recipe_hash": recipes.hash_of(made_by), **facts,
        "parameters": sum(p.numel() for p in model.parameters()), "attempt": len(refused), "refused": refused,
        "sha256": digests.of_folder(work), "threads": min(threads, 2),
        "wall_seconds": round(time.monotonic() - wall, 1), "cpu_seconds": round(time.process_time() - cpu, 1),
        "environment": environment(), "code": began, **warning_entry((code, began)),
    }  # fmt: skip
    write_json(work / name, record)  # last: it marks the model as finished


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
    recipe = recipes.recipe(args.model, args.ladder, args.seed)
    granted = os.environ.get("OMP_NUM_THREADS", "")  # number granted by a scheduler
    threads = args.threads or (int(granted) if granted.isdecimal() else 0) or os.cpu_count() or 1
    if threads == 1:  # the worker has one thread
        worker.hand_over("models.build", ("pydantic", "yaml", *sampling.LIBRARIES))
    if args.clean:
        out = args.out or recipes.CACHE / recipes.name_of_clean(recipe.start)
        made = build_clean(recipe.start, out, threads=threads)
    else:
        out = args.out or recipes.CACHE / recipes.base_name(args.model, args.ladder, args.seed)
        made = build(recipe, out, threads=threads)
    shown = "  ".join(f"{name} {value}" for name, value in made["figures"].get("base", made["figures"]).items())
    print(f"{out}: {shown}  sha256 {made['sha256'][WEIGHTS][:12]}")


if __name__ == "__main__":
    errors.run(main)
