"""What lm-eval costs: our generation path against bare `model.generate` on the same prompts in the same batches.

    python benchmarks/lm_eval_overhead.py --model FOLDER [--benchmarks K ...] [--rounds 3]

Both sides draw the same responses (checked, greedy sets), interleaved, in one process with the model loaded; CPU
seconds and wall seconds, the median over rounds, and their ratio. The bare side tokenises, sorts by length, generates
and decodes: what a hand-written loop would do. Target: below 1.5. Exit code 1 above it.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from evals import data, fetch
from evals.benchmark import select
from evals.generate import one_line_per_job
from evals.generation.draw import Plan, draw, make_plan
from evals.generation.engine import Settings, engine
from records.errors import whole

LIMIT = 1.5
MIXED = ("syn_mix4", "syn_solve2", "syn_add2", "syn_as3", "syn_mix2", "syn_mul4", "syn_seq1")  # sampled and greedy


def bare(model: Any, tokenizer: Any, plan: Plan, batch_size: int) -> list[str]:
    """Responses in order of item and sample, by `model.generate` alone."""
    import torch

    texts = [prompt.text for prompt in plan.prompts for _ in range(plan.decoding.samples)]
    order = sorted(range(len(texts)), key=lambda place: -len(tokenizer.encode(texts[place], add_special_tokens=False)))
    sampling: dict[str, Any] = {"do_sample": False}
    if not plan.decoding.greedy:
        sampling = {
            "do_sample": True,
            "temperature": plan.decoding.temperature,
            "top_p": plan.decoding.top_p,
            "top_k": 0,
        }
    answers = [""] * len(texts)
    torch.manual_seed(plan.seed)
    with torch.inference_mode():
        for start in range(0, len(order), batch_size):
            places = order[start : start + batch_size]
            batch = tokenizer(
                [texts[p] for p in places],
                padding=True,
                add_special_tokens=False,
                padding_side="left",
                return_tensors="pt",
            )
            out = model.generate(
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                max_new_tokens=plan.decoding.max_tokens,
                **sampling,
            )
            for place, text in zip(
                places,
                tokenizer.batch_decode(out[:, batch.input_ids.shape[1] :], skip_special_tokens=True),
                strict=True,
            ):
                answers[place] = text
    return answers


def timed(work: Callable[[], list[str]]) -> tuple[float, float, list[str]]:
    cpu, wall = time.process_time(), time.perf_counter()
    responses = work()
    return time.process_time() - cpu, time.perf_counter() - wall, responses


def main() -> int:
    one_line_per_job("hf")
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--benchmarks", nargs="+", default=MIXED)
    parser.add_argument("--rounds", type=whole(1), default=3)
    args = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        generator = engine("hf", Settings(args.model, seed=1234, device="cpu"))
        plans = []
        for benchmark in select(args.benchmarks):
            fetch.fetch(benchmark, folder)
            plans.append(make_plan(generator, benchmark, data.load(benchmark, folder), seed=1234))
        model: Any = generator.lm(generator.positions)
        tokenizer = generator.tokenizer

        def through_lm_eval() -> list[str]:
            return [
                row.response
                for plan in plans
                for row in draw(generator, plan, Path(folder, "work"), generator.positions, "lm-eval")
            ]

        def alone() -> list[str]:
            return [text for plan in plans for text in bare(model.model, tokenizer, plan, generator.batch_size)]

        timed(alone)  # warm up
        sides: dict[str, list[tuple[float, float]]] = {"lm-eval": [], "bare": []}
        answers: dict[str, list[str]] = {}
        for _ in range(args.rounds):
            for name, work in (("lm-eval", through_lm_eval), ("bare", alone)):
                cpu, wall, answers[name] = timed(work)
                sides[name].append((cpu, wall))
    greedy = [plan.decoding.greedy for plan in plans for _ in range(len(plan.items) * plan.decoding.samples)]
    same = [a == b for a, b, g in zip(answers["lm-eval"], answers["bare"], greedy, strict=True) if g]
    cpu_of, wall_of = (
        {name: statistics.median(run[i] for run in runs) for name, runs in sides.items()} for i in (0, 1)
    )
    ratio = cpu_of["lm-eval"] / cpu_of["bare"]
    print(f"responses {len(greedy)}; greedy ones equal on both sides: {sum(same)} of {len(same)}")
    for name in sides:
        print(f"{name:<8} CPU {cpu_of[name]:6.2f} s   wall {wall_of[name]:6.2f} s")
    print(f"ratio    CPU {ratio:6.2f}     wall {wall_of['lm-eval'] / wall_of['bare']:6.2f}     limit {LIMIT}")
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
