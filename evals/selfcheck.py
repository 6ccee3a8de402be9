"""What the grader does with golds rewritten: accepts those that say the same, rejects those that do not.

python -m evals.selfcheck --data DIR                    every gold of every benchmark found there
python -m evals.selfcheck --data DIR --every 10         every tenth gold
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evals import data, registry
from evals.benchmark import Item
from evals.grading.decide import Gold, gold
from evals.grading.grader import Grader, Question
from evals.grading.rewrite import different, same
from evals.grading.verdict import Verdict
from records import cli
from records.errors import ConfigError, MissingInputError
from records.progress import Progress


@dataclass
class Rates:
    """How one benchmark's rewritten golds fared; failures: (item_id, gold, rewriting, text, verdict)."""

    golds: int = 0
    accepted: int = 0
    same: int = 0
    rejected: int = 0
    different: int = 0
    rejected_integers: int = 0
    different_integers: int = 0
    unparsed: list[str] = field(default_factory=list)
    failures: list[tuple[str, str, str, str, str]] = field(default_factory=list)

    @property
    def accept(self) -> float:
        """Share of the rewritings that say the same and are accepted."""
        return self.accepted / self.same

    @property
    def reject(self) -> float | None:
        """Share of the texts that say something else and are rejected; None when there are none."""
        return self.rejected / self.different if self.different else None

    @property
    def reject_integers(self) -> float | None:
        """The same for integer golds alone."""
        return self.rejected_integers / self.different_integers if self.different_integers else None


def check(items: Sequence[Item], grader: Grader, *, label: str = "selfcheck") -> Rates:
    """Grade every rewriting of every gold but those that are the gold's own text, which would prove nothing."""
    rates = Rates(golds=len(items))
    cases: list[tuple[Item, Gold, str, str, bool]] = []
    for item in items:
        read = gold(item.answer, tolerance=item.tolerance, multiple=item.multiple)
        if read.kind == "unparsed":
            rates.unparsed.append(item.item_id)
            continue
        cases += [(item, read, name, text, True) for name, text in same(read) if text != read.text]
        cases += [(item, read, name, text, False) for name, text in different(read)]
    questions = [Question(read, f"so \\boxed{{{text}}}.") for _, read, _, text, _ in cases]
    progress = Progress(label, len(questions))
    grades = grader.grade(questions, report=progress.update)
    for (item, read, name, text, equal), grade in zip(cases, grades, strict=True):
        right = (grade.verdict is Verdict.CORRECT) == equal
        if equal:
            rates.same += 1
            rates.accepted += right
        else:
            rates.different += 1
            rates.rejected += right
            if read.kind == "integer":
                rates.different_integers += 1
                rates.rejected_integers += right
        if not right:
            rates.failures.append((item.item_id, item.answer, name, text, str(grade.verdict)))
    return rates


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evals.selfcheck", description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder with <benchmark>.jsonl")
    parser.add_argument("--benchmarks", nargs="+", metavar="KEY", help="default: all that are found")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take every N-th gold")
    parser.add_argument(
        "--failures", type=int, default=20, metavar="N", help="how many failures to print per benchmark"
    )
    given = parser.parse_args()
    if given.every < 1:
        raise ConfigError(f"selfcheck: --every: {given.every} is not positive")
    chosen = [
        benchmark
        for benchmark in registry.select(given.benchmarks or registry.keys())
        if given.benchmarks or data.path_in(given.data, benchmark)
    ]
    if not chosen:
        raise MissingInputError(f"{given.data}: no benchmark's items; run: python -m evals.fetch --data {given.data}")
    print(f"{'benchmark':<14} {'golds':>5}  {'accept':>15}  {'reject':>15}  {'reject integers':>17}  unparsed golds")
    with Grader() as grader:
        for benchmark in chosen:
            rates = check(data.load(benchmark, given.data)[:: given.every], grader, label=f"selfcheck {benchmark.key}")
            print(
                f"{benchmark.key:<14} {rates.golds:>5}  {_share(rates.accepted, rates.same):>15}"
                f"  {_share(rates.rejected, rates.different):>15}"
                f"  {_share(rates.rejected_integers, rates.different_integers):>17}  {len(rates.unparsed)}"
            )
            for failure in rates.failures[: given.failures]:
                print("   ", *(part if len(part) < 90 else part[:87] + "..." for part in failure), sep="  ")
    return 0


def _share(part: int, whole: int) -> str:
    return f"{part}/{whole} {100 * part / whole:.2f}%" if whole else "-"


if __name__ == "__main__":
    cli.run(main)
