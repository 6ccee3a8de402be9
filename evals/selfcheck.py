"""Grade hand-written answers to golds of the seven benchmarks: does this installation's grader decide as it should?

    python -m evals.selfcheck                              accuracy by set; 1 if there are errors not known
    python -m evals.selfcheck --data DIR                   instead: how the golds of the benchmarks found there are read

The cases stand in `evals/grading/cases/`. `equal.tsv` has answers that mean what the gold means, `different.tsv` near
misses. `known_errors.tsv` lists the cases that the grader gets wrong, with the reason. Verdicts depend on the libraries
that parse LaTeX, so another installation may differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evals import data
from evals.benchmark import PAPER, keys, select
from evals.grading.decide import gold
from evals.grading.grader import Grader, Question
from evals.grading.verdict import Verdict
from records import errors
from records.errors import CorruptInputError, MissingInputError, Parser
from records.progress import Progress
from records.provenance import ROOT

DATA = ("evals/grading/cases",)
FOLDER = ROOT / DATA[0]

Key = tuple[str, str, str]
"""What names a case: set, gold, answer."""


@dataclass(frozen=True)
class Case:
    """An answer to one gold, and whether it is right."""

    set: str  # key of the benchmark
    kind: str  # what the case is an example of
    gold: str  # as stored upstream, but with single blanks for line breaks
    answer: str  # what stands in the model's box; with a box in it, all of the response
    multiple: bool  # the item wants several values (`Item.multiple`)
    tolerance: str | None  # the item's own (`Item.tolerance`)
    right: bool  # as mathematics and the problem say, whatever the grader says

    @property
    def key(self) -> Key:
        """Set, gold and answer: no two cases have the same."""
        return self.set, self.gold, self.answer

    @property
    def response(self) -> str:
        """The shortest response that gives this answer."""
        return self.answer if "\\boxed" in self.answer else f"\\boxed{{{self.answer}}}"

    def question(self) -> Question:
        """What the grader is asked."""
        return Question(gold(self.gold, tolerance=self.tolerance, multiple=self.multiple), self.response)


def cases(folder: Path = FOLDER) -> list[Case]:
    """All cases, equivalents first, in the order of the files. Raises CorruptInputError for a malformed line."""
    found = []
    for name, right in (("equal.tsv", True), ("different.tsv", False)):
        for row in _rows(folder / name, ("set", "kind", "gold", "answer", "item", "note")):
            found.append(
                Case(
                    set=row["set"],
                    kind=row["kind"],
                    gold=row["gold"],
                    answer=row["answer"],
                    multiple=row["item"] == "multiple",
                    tolerance=row["item"].removeprefix("tolerance=") if "=" in row["item"] else None,
                    right=right,
                )
            )
    return found


def known_errors(folder: Path = FOLDER) -> dict[Key, str]:
    """The cases that the grader gets wrong, each with the reason."""
    rows = _rows(folder / "known_errors.tsv", ("set", "gold", "answer", "reason"))
    return {(row["set"], row["gold"], row["answer"]): row["reason"] for row in rows}


def _rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    # Not CSV: LaTeX is full of commas, quotes and backslashes, and stands here as it is.
    lines = path.read_text(encoding="utf-8").splitlines()
    if lines[0].split("\t") != list(columns):
        raise CorruptInputError(f"{path}: line 1: the columns must be {', '.join(columns)}, separated by tabs")
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        cells = line.split("\t")
        if len(cells) != len(columns):
            raise CorruptInputError(f"{path}: line {number}: {len(cells)} columns, needed are {len(columns)}")
        rows.append(dict(zip(columns, cells, strict=True)))
    return rows


def grade(found: Sequence[Case], grader: Grader, *, label: str = "selfcheck") -> list[bool]:
    """Whether the grader calls each answer correct, in order."""
    progress = Progress(label, len(found))
    grades = grader.grade([case.question() for case in found], report=progress.update)
    return [grade.verdict is Verdict.CORRECT for grade in grades]


def accuracy(found: Sequence[Case], verdicts: Sequence[bool]) -> dict[str, tuple[int, int, int, int]]:
    """Set -> equivalents accepted, equivalents, near misses rejected, near misses; `all` for their sum."""
    counts: dict[str, Counter[tuple[bool, bool]]] = {}
    for case, verdict in zip(found, verdicts, strict=True):
        for name in (case.set, "all"):
            counts.setdefault(name, Counter())[case.right, verdict] += 1
    order = [key for key in (*PAPER, "all") if key in counts]
    return {
        name: (
            counts[name][True, True],
            counts[name][True, True] + counts[name][True, False],
            counts[name][False, False],
            counts[name][False, True] + counts[name][False, False],
        )
        for name in order
    }


def percent(part: int, whole: int) -> str:
    """`97/99 98.0%`."""
    return f"{part}/{whole} {100 * part / whole:.1f}%"


def check_cases(folder: Path = FOLDER) -> int:
    """Print accuracy by set, then what differs from the known errors; 1 if anything does."""
    found, known = cases(folder), known_errors(folder)
    with Grader() as grader:
        verdicts = grade(found, grader)
    print(f"{'benchmark':<14} {'equivalents accepted':>22} {'near misses rejected':>22}")
    for name, (accepted, equal, rejected, different) in accuracy(found, verdicts).items():
        print(f"{name:<14} {percent(accepted, equal):>22} {percent(rejected, different):>22}")
    wrong = {case.key: case for case, verdict in zip(found, verdicts, strict=True) if verdict != case.right}
    new = [case for key, case in wrong.items() if key not in known]
    mended = [key for key in known if key not in wrong]
    print(f"{len(wrong) - len(new)} of {len(known)} known errors, {len(new)} others")
    for case in new:
        print(f"  error: {case.set}: gold {case.gold}: {case.answer} is {'rejected' if case.right else 'accepted'}")
    for key in mended:
        print(f"  no error any more: {key[0]}: gold {key[1]}: {key[2]}")
    return 1 if new or mended else 0


def show_golds(folder: Path, names: Sequence[str] | None) -> int:
    """Print how many golds of each kind the benchmarks in `folder` have, and every gold that cannot be read."""
    benchmarks = select(names or keys())
    if not names:
        benchmarks = tuple(benchmark for benchmark in benchmarks if data.path_in(folder, benchmark))
    if not benchmarks:
        raise MissingInputError(f"{folder}: no benchmark's items; run: python -m evals.fetch --data {folder}")
    for benchmark in benchmarks:
        read = [
            (item, gold(item.answer, tolerance=item.tolerance, multiple=item.multiple))
            for item in data.load(benchmark, folder)
        ]
        counts = Counter(found.kind for _, found in read)
        print(f"{benchmark.key}: {len(read)} golds: " + ", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
        for item, found in read:
            if found.kind == "unparsed":
                print(f"  compared as text only: {item.item_id}: {item.answer[:90]}")
    return 0


def main() -> int:
    parser = Parser()
    parser.add_argument("--data", type=Path, metavar="DIR", help="read the golds in DIR/<benchmark>.jsonl instead")
    parser.add_argument("--benchmarks", nargs="+", metavar="KEY", help="with --data; default: all that are found")
    args = parser.parse_args()
    if args.benchmarks and args.data is None:
        parser.error("--benchmarks: needs --data")
    return check_cases() if args.data is None else show_golds(args.data, args.benchmarks)


if __name__ == "__main__":
    errors.run(main)
