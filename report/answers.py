"""One side of a comparison: what a tree, a CSV, the paper or a typed score tells of right answers.

TREE, TREE:MODEL, TREE:MODEL/METHOD/seedN/stepN     results of `evals.run`, of `evals.adopt` or of Snakemake
FILE.csv                                            columns problem, correct, samples; or score, problems, samples;
                                                    and benchmark where there are several
paper:METHOD, paper:MODEL/METHOD, paper:T2.3        a row of the paper's tables; METHOD: the first row that has it
SCORE:PROBLEMS:SAMPLES, NAME=SCORE:PROBLEMS:SAMPLES a score as a fraction, with its benchmark's name
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from core.errors import ConfigError, CorruptInputError, MissingInputError, real, unknown, whole
from core.files import csv_lines, read_text
from core.layout import Checkpoint
from core.results_tree import Tree, open_or_kept
from core.scores import AVERAGES
from evals.stats.sizes import Score, measured_parts

AFFECTS_RESULTS = False  # what is compared by hand

PROBLEM, PRINTED, BENCHMARK = ("problem", "correct", "samples"), ("score", "problems", "samples"), "benchmark"
MOST, LARGEST = 10**6, 16 * 2**20  # problems or samples; bytes of a file
_TYPED = re.compile(r"(?:([\w.+-]+)=)?([^:=]+):(\d+):(\d+)")
Rows = Mapping[str, tuple[float, int, int]]  # by problem: share right, samples of a row, rows (copies)


class Answers(NamedTuple):
    """One benchmark."""

    score: Score
    by_problem: Rows = MappingProxyType({})  # empty: unknown


def read(text: str) -> dict[str, Answers]:
    """By benchmark, the empty name where none is given; ConfigError, MissingInputError or CorruptInputError."""
    kind, colon, name = text.partition(":")
    if colon and kind == "paper":
        return _paper(name)
    if typed := _TYPED.fullmatch(text):
        benchmark, *cells = typed.groups("")
        return {benchmark: _printed(text, dict(zip(PRINTED, cells, strict=True)))}
    path = Path(text)
    if path.is_file():
        return _csv(path)
    root, name = (text, "") if path.is_dir() or not colon else text.rsplit(":", 1)
    if path.suffix == ".csv" or not (Path(root).is_dir() or len(Path(root).parts) > 1):
        forms = "a tree, TREE:MODEL, FILE.csv, paper:METHOD, or SCORE:PROBLEMS:SAMPLES such as 0.367:30:32"
        raise MissingInputError(
            f"{text}: no file or folder there; give {forms}; for two methods of a tree add --results TREE"
        )
    return _checkpoint(open_or_kept(Path(root)), name)


def of_rows(rows: Rows) -> Answers:
    """Problems with their answers."""
    share, samples, weight = zip(*rows.values(), strict=True)
    value = sum(w * y for w, y in zip(weight, share, strict=True)) / sum(weight)
    mean = len(rows) / sum(1 / k for k in samples)
    return Answers(Score(value, len(rows), mean, measured_parts(share, samples)), rows)


def _checkpoint(tree: Tree, name: str) -> dict[str, Answers]:
    """From its grades, or from scores.csv where a reference keeps no grades."""
    from evals.score import policies
    from evals.stats.estimate import read_graded
    from evals.store import read_record

    names: dict[str, list[Checkpoint]] = {}
    for at in tree.checkpoints:
        for key in ("", at.run.model, at.path.as_posix()):
            names.setdefault(key, []).append(at)
    if len(found := names.get(name, [])) != 1:
        near = get_close_matches(name, [key for key in names if key], 5, 0.0)
        raise ConfigError(
            f"{tree.root}: checkpoint {name!r}: names {len(found)}; add one to the tree's name, as in "
            f"{tree.root}:{near[0] if near else 'MODEL'}; nearest: {', '.join(near)}"
        )
    record = tree.layout.grades(found[0]) / "grades.json"
    if not record.is_file():
        scores = {key: s for (at, key), s in tree.scores.items() if at == found[0] and key not in AVERAGES}
        return {
            key: Answers(Score(s.value, s.items, s.responses / s.items))
            for key, s in scores.items()
            if s.value is not None and s.items and s.responses
        }
    keys = list(read_record(record))
    policy, sides = policies(tree.layout, keys), {}
    for key, graded in read_graded(tree.layout, found[0], keys).items():
        samples = graded.samples.column(policy[key])
        # By the problem's first item: prompts, which tell copies of a problem, differ between models.
        first = dict(zip(samples.problem_of_row[::-1], samples.items[::-1], strict=True))
        figures = enumerate(zip(samples.right_per_problem, samples.rows_per_problem, strict=True))
        sides[key] = of_rows({first[i]: (float(y / n), samples.k, int(n)) for i, (y, n) in figures})
    return sides


def _csv(path: Path) -> dict[str, Answers]:
    if (size := path.stat().st_size) > LARGEST:
        raise CorruptInputError(f"{path}: {size} bytes; at most {LARGEST} are read")
    header, *cells = csv_lines(path, "table of answers", read_text(path, "table of answers").lstrip("\ufeff")) or [[]]
    columns = PRINTED if "score" in header else PROBLEM
    for column in columns:
        if column not in header:
            raise unknown(f"{path}: line 1", "column wanted", column, header)
    for column in header:
        if column not in (*columns, BENCHMARK) or header.count(column) > 1:
            raise unknown(f"{path}: line 1", "columns, each once", column, (*columns, BENCHMARK))
    rows: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(cells, 2):
        where, row = f"{path}: line {number}", dict(zip(header, line, strict=True))
        own, key = rows.setdefault(row.get(BENCHMARK, ""), {}), row.get("problem", "")
        if key in own:
            raise CorruptInputError(f"{where}: {key or row.get(BENCHMARK, '')!r} is given twice")
        if columns == PRINTED:
            own[key] = _printed(where, row)
        else:
            samples = _number(where, "samples", row["samples"], whole(1, MOST))
            own[key] = _number(where, "correct", row["correct"], whole(0, samples)) / samples, samples, 1
    if not rows:
        raise CorruptInputError(f"{path}: line 1: no rows follow")
    return {key: own[""] if columns == PRINTED else of_rows(own) for key, own in rows.items()}


def _printed(where: str, row: Mapping[str, str]) -> Answers:
    score = _number(where, "score (a fraction)", row["score"], real(least=0, most=1))
    return Answers(Score(score, *(_number(where, name, row[name], whole(1, MOST)) for name in PRINTED[1:])))


def _number(where: str, name: str, text: str, parse: Callable[[str], float]) -> Any:
    try:
        return parse(text)
    except ArgumentTypeError as error:
        raise CorruptInputError(f"{where}: {name}: {error}") from None


def _paper(name: str) -> dict[str, Answers]:
    from evals.benchmark import benchmark
    from paper.printed import COLUMN, measured, read

    rows: dict[str, Any] = {}
    for row in measured(read()):
        for key in (row.run.method, f"{row.model}/{row.run.method}", row.id) if row.run else ():
            rows.setdefault(key, row)
    if name not in rows:
        raise unknown("the paper's tables", "row", name, (key for key in rows if "/" not in key and key[0] != "T"))
    sampled = {
        key: benchmark(key).decoding.samples
        for key, cell in rows[name].cells.items()
        if key in COLUMN and cell is not None
    }
    return {key: Answers(Score(float(rows[name].cells[key]) / 100, COLUMN[key] // k, k)) for key, k in sampled.items()}
