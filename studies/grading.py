"""How often the grader is right and how fast it is, beside math-verify.

    python -m studies.grading                     accuracy on the cases of evals/grading/cases, by set
    python -m studies.grading --responses FILE    also on FILE: JSONL with gold, output, label (true: right)
    python -m studies.grading --data DIR          speed; DIR: real items, as `python -m evals.fetch` writes them

math-verify is called as its documentation shows: parse the boxed gold, parse the response, verify; its own limits (5 s
each) and defaults. The cases were labelled by hand before either grader saw them.

Speed: 8844 invented responses to the real golds (32 to each AIME and AMC problem, one to each other): right as stored,
right but rewritten, wrong, and without a box. They are graded in blocks; after each block math-verify grades a sample
of the same block, so that both meet the same machine. Printed: seconds, the ratio, and every response of the sample on
which the two verdicts differ.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core import errors
from core.errors import Parser, whole
from core.files import read_jsonl
from evals import data
from evals.benchmark import Item, select
from evals.grading import Verdict
from evals.grading.decide import gold
from evals.grading.grader import Grader, Question
from tests.evals.grading.cases import accuracy, cases, grade, percent

BLOCKS, SAMPLE = 6, 12  # math-verify grades every SAMPLE-th response of a block
MIX = {"right": 0.42, "rewritten": 0.03, "wrong": 0.30, "other gold": 0.20, "no box": 0.05}
PROSE = "We set up the equation and simplify both sides. " * 40


def by_math_verify(gold: str, text: str) -> bool:
    """Grade one response with math-verify."""
    from math_verify import parse, verify

    return bool(verify(parse(f"\\boxed{{{gold}}}"), parse(text)))


def confusion(labels: Sequence[bool], verdicts: Sequence[bool]) -> str:
    """Count the four combinations of label and verdict."""
    count = Counter(zip(labels, verdicts, strict=True))
    return (
        f"{count[True, True] + count[False, False]}/{len(labels)} as labelled"
        f" ({count[True, True]} right, {count[False, False]} wrong;"
        f" {count[True, False]} right called wrong, {count[False, True]} wrong called right)"
    )


def print_accuracy(grader: Grader, labelled: Path | None) -> None:
    """Print the rates on the hand-written cases, and on a file of labelled responses."""
    found = cases()
    ours = accuracy(found, grade(found, grader))
    theirs = accuracy(found, [by_math_verify(case.gold, case.response) for case in found])
    print("| set | equivalents accepted | near misses rejected | math-verify: accepted | math-verify: rejected |")
    print("|---|---|---|---|---|")
    for name in ours:
        pairs = [pair for side in (ours, theirs) for pair in (side[name][:2], side[name][2:])]
        print(f"| {name} | {' | '.join(percent(part, whole) for part, whole in pairs)} |")
    if labelled:
        rows = read_jsonl(labelled, "labelled responses")
        labels = [bool(row["label"]) for row in rows]
        grades = grader.grade([Question(gold(str(row["gold"])), str(row["output"])) for row in rows])
        print(f"\n{labelled.name}: {confusion(labels, [g.verdict is Verdict.CORRECT for g in grades])}")
        right = [by_math_verify(str(row["gold"]), str(row["output"])) for row in rows]
        print(f"{labelled.name}, math-verify: {confusion(labels, right)}")


@dataclass(frozen=True)
class Response:
    """One invented response; gold: as stored."""

    question: Question
    gold: str
    text: str


def responses(folder: Path, seed: int) -> list[Response]:
    """Invent the responses of one full evaluation, shuffled."""
    rng = random.Random(seed)
    invented = []
    for benchmark in select(["all"]):
        items = data.load(benchmark, folder)
        for item in items:
            read = gold(item.answer, tolerance=item.tolerance, multiple=item.multiple)
            for _ in range(benchmark.decoding.samples):
                text = _answer(item, items, rng)
                response = PROSE + (f"So the answer is $\\boxed{{{text}}}$." if text else "There are 3 cases.")
                invented.append(Response(Question(read, response), item.answer, response))
    rng.shuffle(invented)
    return invented


def _answer(item: Item, items: Sequence[Item], rng: random.Random) -> str | None:
    from tests.evals.grading.rewritten_golds import different, same

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


def print_speed(grader: Grader, folder: Path, seed: int) -> None:
    """Print both graders' seconds block by block, and the responses on which they differ."""
    by_math_verify("1", "\\boxed{1}")  # its imports and patterns are not counted
    invented = responses(folder, seed)
    ours = theirs = 0.0
    differing: list[tuple[Response, str, bool]] = []
    compared = 0
    for start in range(BLOCKS):
        block = invented[start::BLOCKS]
        began = time.perf_counter()
        grades = grader.grade([response.question for response in block])
        ours += time.perf_counter() - began
        began = time.perf_counter()
        sample = range(0, len(block), SAMPLE)
        verdicts = [by_math_verify(block[index].gold, block[index].text) for index in sample]
        theirs += (time.perf_counter() - began) * len(block) / len(sample)
        compared += len(sample)
        for index, right in zip(sample, verdicts, strict=True):
            if right != (grades[index].verdict is Verdict.CORRECT):
                differing.append((block[index], str(grades[index].verdict), right))
        print(f"block {start + 1}: ours {ours:.1f} s, math-verify {theirs:.1f} s (scaled) so far", flush=True)
    print(f"{len(invented)} responses: {ours:.1f} s; math-verify serially {theirs:.0f} s; ratio {theirs / ours:.1f}")
    print(f"verdicts of {compared} responses compared, {len(differing)} differ:")
    for response, verdict, right in differing:
        print(
            f"  gold {response.gold[:60]!r}  response ...{response.text[-70:]!r}  ours {verdict}, math-verify {right}"
        )


def main() -> None:
    parser = Parser(description="Measure the grader beside math-verify.")
    parser.add_argument("--responses", type=Path, metavar="FILE", help="labelled responses for the accuracy")
    parser.add_argument("--data", type=Path, metavar="DIR", help="measure speed on the items in this folder")
    parser.add_argument("--seed", type=whole(0), default=1, help="of the invented responses")
    args = parser.parse_args()
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # one warning per text that it cannot parse
    with Grader() as grader:
        if args.data:
            print_speed(grader, args.data, args.seed)
        else:
            print_accuracy(grader, args.responses)


if __name__ == "__main__":
    errors.run(main)
