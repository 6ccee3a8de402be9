"""Compare two checkpoints or two printed scores over problems: is the difference noise, and what would resolve it?

Scores are paired by problem where both sides have answers. Printed scores hide how far problems differ, so
there are three cases: the least and the most variance that such scores allow, and the assumed one in between.
"""

import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from core.errors import ConfigError, CorruptInputError, MissingInputError, real, unknown, whole
from core.layout import Checkpoint
from evals.benchmark import benchmark
from evals.scores import AVERAGES
from evals.stats.estimate import read_graded
from evals.stats.sizes import Case, Score, compare_scores, of_answers, together
from evals.store import read_record
from evals.tree import Tree, open_or_kept
from paper import printed
from paper.printed import COLUMN, SPREAD, measured
from report.markdown import bracketed, columns

# Correlation of the problems' difficulties between two checkpoints. Checkpoints trained from one base had .81 to .97 in
# results/reference/embedded and embedded_models (4 samples per problem), different models .14 to .54.
CORRELATION = 0.9
COUNT = whole(1, 10**6)
PRINTED = {"score (a fraction)": real(least=0, most=1), "problems": COUNT, "samples": COUNT}
TYPED = re.compile(r"(?:([\w.+-]+)=)?([^:=]+):(\d+):(\d+)")
FORMS = "a tree, TREE:MODEL, paper:METHOD, or SCORE:PROBLEMS:SAMPLES such as 0.367:30:32"
ALL = "all, by responses"
HEADS = ("benchmark", "problems", "samples", "A", "B", "difference, points", "p", "found in 80 %", "problems needed")

Side = Mapping[str, Score]  # by benchmark; "" where none is named


def read(text: str) -> Side:
    """Parse a side (see `report.compare --help`); raises ConfigError, MissingInputError or CorruptInputError."""
    kind, colon, name = text.partition(":")
    if colon and kind == "paper":
        return _paper(name)
    if typed := TYPED.fullmatch(text):
        benchmark, *cells = typed.groups("")
        return {benchmark: _typed(text, *cells)}
    root, name = (text, "") if Path(text).is_dir() or not colon else text.rsplit(":", 1)
    if not (Path(root).is_dir() or len(Path(root).parts) > 1):
        raise MissingInputError(f"{text}: no file or folder there; give {FORMS}; for two methods add --results TREE")
    return _checkpoint(open_or_kept(Path(root)), name)


def _checkpoint(tree: Tree, name: str) -> Side:
    """Read a checkpoint's grades, or scores.csv where a reference has no grades."""
    names: dict[str, list[Checkpoint]] = {}
    for at in tree.checkpoints:
        for key in ("", at.run.model, at.path.as_posix()):
            names.setdefault(key, []).append(at)
    if len(found := names.get(name, [])) != 1:
        near = get_close_matches(name, [key for key in names if key], 5, 0.0)
        raise ConfigError(
            f"{tree.given}: checkpoint {name!r}: names {len(found)}; add one to the tree's name, as in "
            f"{tree.given}:{near[0] if near else 'MODEL'}; nearest: {', '.join(near)}"
        )
    if not (record := tree.layout.grades(found[0]) / "grades.json").is_file():
        scores = {key: s for (at, key), s in tree.scores.items() if at == found[0] and key not in AVERAGES}
        return {
            key: Score(s.value, s.items, s.responses / s.items)
            for key, s in scores.items()
            if s.value is not None and s.items and s.responses
        }
    keys = list(read_record(record))
    side = {}
    for key, (samples, _) in read_graded(tree.layout, found[0], keys).items():
        rows = pd.DataFrame({"item": samples.items, "problem": samples.problem_of_row, "share": samples.right.mean(1)})
        # Indexed by the problem's first item: prompts, which identify copies of a problem, differ between models.
        problems = rows.groupby("problem").agg(item=("item", "first"), share=("share", "mean"), copies=("item", "size"))
        side[key] = of_answers(problems.assign(samples=samples.k).set_index("item"))
    return side


def _typed(text: str, *cells: str) -> Score:
    """Return a score typed as fraction, problems and samples; raises CorruptInputError for another number."""
    values: list[Any] = []
    for (name, parse), cell in zip(PRINTED.items(), cells, strict=True):
        try:
            values.append(parse(cell))
        except ArgumentTypeError as error:
            raise CorruptInputError(f"{text}: {name}: {error}") from None
    return Score(*values)


def _paper(name: str) -> Side:
    rows: dict[str, Any] = {}
    for row in measured(printed.read()):
        for key in (row.run.method, f"{row.model}/{row.run.method}", row.id) if row.run else ():
            rows.setdefault(key, row)
    if name not in rows:
        raise unknown("the paper's tables", "row", name, (key for key in rows if "/" not in key and key[0] != "T"))
    cells = {key: cell for key, cell in rows[name].cells.items() if key in COLUMN and cell is not None}
    sampled = {key: benchmark(key).decoding.samples for key in cells}
    return {key: Score(float(cells[key]) / 100, COLUMN[key] // k, k) for key, k in sampled.items()}


class Line(NamedTuple):
    """One benchmark, or all of them."""

    benchmark: str
    problems: str
    scores: tuple[Score, Score]
    cases: tuple[Case, ...]  # one if measured, else least, assumed and most

    @property
    def main(self) -> Case:
        return self.cases[len(self.cases) // 2]


def lines(a: Side, b: Side) -> list[Line]:
    """Return a line per shared benchmark, plus one over several; raises CorruptInputError if none is shared."""
    if len(a) == len(b) == 1 and "" in (*a, *b):  # an unnamed benchmark takes the other's name
        key = max(*a, *b)
        a, b = {key: next(iter(a.values()))}, {key: next(iter(b.values()))}
    found = []
    for key in (key for key in a if key in b):
        try:
            scores, cases = compare_scores(a[key], b[key], SPREAD, CORRELATION)
        except CorruptInputError as error:
            raise CorruptInputError(f"{key or 'problems'}: {error}") from error
        n, m, used = a[key].problems, b[key].problems, scores[0].problems
        if scores[0].rows is None or scores[1].rows is None:
            problems = f"the same {n}" if n == m else f"{n} and {m}"
        else:
            problems = f"{used}" if used == n == m else f"{used} of {n}, {m}"
        found.append(Line(key, problems, scores, cases))
    if not found:
        names = " and ".join(", ".join(key or "one without a name" for key in side) for side in (a, b))
        raise CorruptInputError(
            f"no benchmark in common: {names}; give both logs the same one: evals.adopt --benchmark KEY"
        )
    if len(found) == 1:
        return found
    responses = {line.benchmark: sum(score.problems * score.samples for score in line.scores) for line in found}
    weights = {key: n / sum(responses.values()) for key, n in responses.items()}
    cases = together(weights, {line.benchmark: line.cases for line in found})
    n = cases[0].comparison.n
    means = [sum(weights[line.benchmark] * line.scores[side].value for line in found) for side in (0, 1)]
    return [*found, Line(ALL, f"{n}", (Score(means[0], n, math.nan), Score(means[1], n, math.nan)), cases)]


def compared(a: str, b: str) -> str:
    """Return a table of two sides (`read`) and its assumptions, for the terminal."""
    sides = read(a), read(b)
    try:
        found = lines(*sides)
    except CorruptInputError as error:
        raise CorruptInputError(f"{a} and {b}: {error}") from error
    out = [f"A: {a}; B: {b}; percent [95 % interval], Student's t over problems", ""]
    out += columns([HEADS, *map(_cells, found)])
    out += ["", "About these two checkpoints: how far other training seeds would lie apart is not in it."]
    if any(len(line.cases) > 1 for line in found):
        out += ["Printed scores do not show how far problems differ. (from to): the least and most that they allow.",
                f"Assumed: difficulties are Beta-distributed with a + b = {SPREAD:g}; on the same problems those of A "
                f"and B correlate at {CORRELATION:g}."]  # fmt: skip
    return "\n".join(out)


def _points(value: float, sign: str = "") -> str:
    return f"{100 * value:{sign}.1f}" if abs(value) <= 1 else "none"  # detectable: only above 100 points


def _cells(line: Line) -> list[str]:
    c, signed = line.main.comparison, partial(_points, sign="+")
    sampled = "" if line.benchmark == ALL else " / ".join(dict.fromkeys(f"{s.samples:.4g}" for s in line.scores))
    cells = [line.benchmark or "score", line.problems, sampled, *(_points(score.value) for score in line.scores)]
    cells += [bracketed(signed(c.difference or 0.0), c.low, c.high, signed)]
    columns_of: list[tuple[Callable[[Any], str], list[float | None]]] = [
        ("{:.2g}".format, [case.comparison.p for case in line.cases]),
        (_points, [case.comparison.detectable for case in line.cases]),
        ("{:,}".format, [case.problems for case in line.cases]),
    ]
    for form, numbers in columns_of:
        texts = ["?" if number is None else form(number) for number in numbers]
        cells.append(texts[0] if len(set(texts)) == 1 else f"{texts[1]} ({texts[0]} to {texts[2]})")
    return cells
