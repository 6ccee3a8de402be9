"""How fast a full evaluation is graded, and how much faster than math-verify called one by one.

    python benchmarks/grading_speed.py --data DIR        DIR: real items, as `python -m evals.fetch` writes them

8844 invented responses to the real golds (32 to each AIME and AMC problem, one to each other): right as stored, right
but rewritten, wrong, and without a box. They are graded in blocks; after each block math-verify grades a sample of
the same block, so that both meet the same machine. Printed: seconds, the ratio, and every response of the
sample on which the two verdicts differ.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.rewritten_golds import different, same
from evals import data
from evals.benchmark import Item, select
from evals.grading.decide import gold
from evals.grading.grader import Grader, Question
from evals.grading.verdict import Verdict
from records.errors import whole

MIX = {"right": 0.42, "rewritten": 0.03, "wrong": 0.30, "other gold": 0.20, "no box": 0.05}
PROSE = "We set up the equation and simplify both sides. " * 40


@dataclass(frozen=True)
class Response:
    """One invented response; gold: as stored."""

    question: Question
    gold: str
    text: str


def responses(folder: Path, seed: int) -> list[Response]:
    """The responses of one full evaluation, shuffled."""
    rng = random.Random(seed)
    answers = []
    for benchmark in select(["all"]):
        items = data.load(benchmark, folder)
        for item in items:
            read = gold(item.answer, tolerance=item.tolerance, multiple=item.multiple)
            for _ in range(benchmark.decoding.samples):
                text = _answer(item, items, rng)
                response = PROSE + (f"So the answer is $\\boxed{{{text}}}$." if text else "There are 3 cases.")
                answers.append(Response(Question(read, response), item.answer, response))
    rng.shuffle(answers)
    return answers


def _answer(item: Item, items: Sequence[Item], rng: random.Random) -> str | None:
    read = gold(item.answer, tolerance=item.tolerance, multiple=item.multiple)
    kind = rng.choices(list(MIX), list(MIX.values()))[0]
    stored = item.answer.strip().strip("$")
    if kind == "right":
        return stored
    if kind == "rewritten":
        return rng.choice([text for _, text in same(read)] or [stored])
    if kind == "wrong" and (wrong := [text for _, text in different(read)]):
        return rng.choice(wrong)
    return None if kind == "no box" else rng.choice(items).answer.strip().strip("$")


def by_math_verify(gold: str, text: str) -> bool:
    """The plain way: parse the boxed gold, parse the response's text, verify; its own limits, its own defaults."""
    from math_verify import parse, verify

    return bool(verify(parse(f"\\boxed{{{gold}}}"), parse(text)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, type=Path, metavar="DIR")
    parser.add_argument("--blocks", type=whole(1), default=6)
    parser.add_argument(
        "--sample", type=whole(1), default=12, metavar="N", help="math-verify grades every N-th response"
    )
    parser.add_argument("--seed", type=whole(0), default=1)
    args = parser.parse_args()
    import math_verify

    math_verify.parse("\\boxed{1}")  # its imports and patterns are not counted
    invented = responses(args.data, args.seed)
    ours = theirs = 0.0
    differing: list[tuple[Response, str, bool]] = []
    compared = 0
    with Grader() as grader:
        for start in range(args.blocks):
            block = invented[start :: args.blocks]
            began = time.perf_counter()
            grades = grader.grade([response.question for response in block])
            ours += time.perf_counter() - began
            began = time.perf_counter()
            sample = range(0, len(block), args.sample)
            verdicts = [by_math_verify(block[index].gold, block[index].text) for index in sample]
            theirs += (time.perf_counter() - began) * len(block) / len(sample)
            compared += len(sample)
            for index, right in zip(sample, verdicts, strict=True):
                if right != (grades[index].verdict is Verdict.CORRECT):
                    differing.append((block[index], str(grades[index].verdict), right))
            print(f"block {start + 1}: ours {ours:.1f} s, math-verify {theirs:.1f} s (scaled) so far", flush=True)
    print(f"{len(invented)} responses: {ours:.1f} s; math-verify serially {theirs:.0f} s;"
          f" ratio {theirs / ours:.1f}")  # fmt: skip
    print(f"verdicts of {compared} responses compared, {len(differing)} differ:")
    for response, verdict, right in differing:
        print(
            f"  gold {response.gold[:60]!r}  response ...{response.text[-70:]!r}  ours {verdict}, math-verify {right}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
