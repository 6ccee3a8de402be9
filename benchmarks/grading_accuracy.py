"""How often the grader is right, beside math-verify: on the hand-written cases, and on responses that carry a label.

    python benchmarks/grading_accuracy.py                    the cases of tests/evals/grading/cases, by set
    python benchmarks/grading_accuracy.py --responses FILE   also FILE: JSONL with gold, output, label (true: right)

math-verify is called as its documentation says: parse the boxed gold, parse the response, verify; its own limits (5 s
each) and defaults. The cases were labelled by hand before either grader saw them. Prints Markdown.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.grading_speed import by_math_verify
from evals.grading.decide import gold
from evals.grading.grader import Grader, Question
from evals.grading.verdict import Verdict
from records.files import read_jsonl
from tests.evals.grading.cases import accuracy, cases, grade, percent


def confusion(labels: Sequence[bool], verdicts: Sequence[bool]) -> str:
    """Counts of the four combinations of label and verdict."""
    count = Counter(zip(labels, verdicts, strict=True))
    return (
        f"{count[True, True] + count[False, False]}/{len(labels)} as labelled"
        f" ({count[True, True]} right, {count[False, False]} wrong;"
        f" {count[True, False]} right called wrong, {count[False, True]} wrong called right)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--responses", type=Path, metavar="FILE")
    args = parser.parse_args()
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # one warning per text that it cannot parse
    found = cases()
    with Grader() as grader:
        ours = accuracy(found, grade(found, grader))
        theirs = accuracy(found, [by_math_verify(case.gold, case.response) for case in found])
        print("| set | equivalents accepted | near misses rejected | math-verify: accepted | math-verify: rejected |")
        print("|---|---|---|---|---|")
        for name in ours:
            cells = [
                percent(part, whole)
                for found_by in (ours, theirs)
                for part, whole in (found_by[name][:2], found_by[name][2:])
            ]
            print(f"| {name} | {' | '.join(cells)} |")
        if args.responses:
            rows = read_jsonl(args.responses, "labelled responses")
            labels = [bool(row["label"]) for row in rows]
            grades = grader.grade([Question(gold(str(row["gold"])), str(row["output"])) for row in rows])
            print(f"\n{args.responses.name}: {confusion(labels, [g.verdict is Verdict.CORRECT for g in grades])}")
            right = [by_math_verify(str(row["gold"]), str(row["output"])) for row in rows]
            print(f"{args.responses.name}, math-verify: {confusion(labels, right)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
