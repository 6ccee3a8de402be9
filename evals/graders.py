"""Graders side by side: ours, other people's and the tool's own verdicts on one set of responses.

    python -m evals.graders TREE                              a tree with samples and grades
    python -m evals.graders TREE --graders ours,math_verify   only these
    python -m evals.graders TREE --labels FILE.jsonl          also against labels: lines {gold, output, label}

`ours` is the verdict in the tree's grades, `tool` the column `tool_correct` that an adopted tree may have; the others
are those of `evals.grading.others`. A grader that cannot run here is named with the reason. Equal pairs of gold and
response are graded once. Columns `label` and `tool_correct` hold true, false or nothing: unknown.

Writes TREE/graders, each file with its sha256:

    accuracy.csv       checkpoint, benchmark, grader: responses called right, score with its 95 % interval, timeouts,
                       errors; with labels: agreement, its interval, and the errors in both directions
    pairs.csv          checkpoint, benchmark, two graders: right by a alone, by b alone
    differences.csv    every response on which graders differ, one row per grader: verdict, rule, extracted answer
    <checkpoint>/<benchmark>.parquet   the same columns for all responses; graders.json has hashes, versions, reasons
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from core import digests, errors
from core.code import Code
from core.errors import ConfigError, CorruptInputError, MissingInputError, Parser, unknown
from core.files import atomic, read_jsonl, to_csv, write_json
from core.layout import Checkpoint
from core.provenance import sha256_file, version
from core.results_tree import Tree, open_tree
from core.scores import POOLED
from evals import store
from evals.data import items
from evals.grading import Verdict
from evals.grading.decide import Gold
from evals.grading.others import OTHERS
from evals.grading.pool import Pool, Task
from evals.score import policies
from evals.stats.estimate import Estimate, Samples, estimate, pooled

OURS, TOOL = "ours", "tool"
GRADERS = (OURS, *OTHERS, TOOL)
FOLDER, RECORD = "graders", "graders.json"
PLACE = ("checkpoint", "benchmark")
VERDICTS = ("item_id", "sample", "grader", "verdict", "rule", "extracted")
DIFFERENCES = (*PLACE, "gold", "label", *VERDICTS)
COUNTS = ("labelled", "right_called_wrong", "wrong_called_right")
ACCURACY = (
    *PLACE, "grader", "responses", "right", "timeout", "error", "score", "low", "high", "how",
    "agree", "agree_low", "agree_high", *COUNTS,
)  # fmt: skip
PAIRS = (*PLACE, "a", "b", "responses", "a_alone", "b_alone")


@dataclass(frozen=True)
class Found:
    """What a grader found; rule: of ours its rule, of another's the reason of a timeout or an error."""

    verdict: str
    rule: str = ""
    extracted: str | None = None

    @classmethod
    def plain(cls, right: bool, extracted: str | None = None) -> Found:
        return cls(str(Verdict.CORRECT if right else Verdict.WRONG), extracted=extracted)


@dataclass
class Response:
    """One response with what the tree knows of it; `verdicts` by grader, without those that are unknown."""

    item_id: str
    sample: int
    problem: str  # equal for copies of one problem
    gold: str
    text: str
    verdicts: dict[str, Found]
    label: bool | None = None

    @cached_property
    def key(self) -> str:
        return key(self.gold, self.text)

    def right(self, grader: str) -> bool | None:
        """Whether a grader calls it right; None: unknown."""
        found = self.verdicts.get(grader)
        return None if found is None else found.verdict == Verdict.CORRECT

    def agrees(self, grader: str) -> bool | None:
        """Whether a grader's verdict is the label; None where either is unknown."""
        return None if None in (self.label, self.right(grader)) else self.right(grader) == self.label

    def rows(self, graders: Iterable[str]) -> list[dict[str, Any]]:
        """One row of VERDICTS per grader whose verdict is known."""
        of = {"item_id": self.item_id, "sample": self.sample}
        return [of | {"grader": name} | vars(self.verdicts[name]) for name in graders if name in self.verdicts]


Parts = Mapping[str, Sequence[Response]]
"""Responses by benchmark."""


def key(gold: str, response: str) -> str:
    """One name for equal pairs of gold and response."""
    return hashlib.sha256(store.clean(f"{gold.strip()}\0{response}").encode()).hexdigest()


# Reading


def read(tree: Tree, at: Checkpoint, benchmark: str, data: Path) -> list[Response]:
    """The responses of a checkpoint to a benchmark by item and sample. data: folder of the problems.

    Raises MissingInputError or CorruptInputError naming the file at fault.
    """
    samples, grades = tree.layout.samples(at), tree.layout.grades(at)
    entry = store.entry_of(store.read_record(samples / "samples.json"), samples / "samples.json", benchmark)
    grade = store.entry_of(store.read_record(grades / "grades.json"), grades / "grades.json", benchmark)
    file, verdicts = samples / f"{benchmark}.parquet", grades / f"{benchmark}.parquet"
    problems = data / f"{benchmark}.jsonl"
    drawn = store.read_table(file, ("item_id", "sample", "prompt_sha256", "response"), entry)
    graded = store.read_table(verdicts, ("item_id", "sample", "verdict", "rule", "extracted"), grade)
    (ids, order), (graded_ids, graded_order) = store.grid(drawn, file), store.grid(graded, verdicts)
    if grade.get("samples_sha256") != entry["sha256"] or ids != graded_ids or len(order) != len(graded_order):
        raise CorruptInputError(f"{verdicts}: these grades are of other samples than {file}: grade again")
    if not problems.is_file():
        raise MissingInputError(f"{problems}: the problems are missing; set --data to the folder that holds them")
    digest = digests.check(problems)
    if (entry.get("data") or {}).get("sha256", digest) != digest:
        raise CorruptInputError(
            f"{problems}: not the problems that {samples / 'samples.json'} was made from; set --data to the folder "
            "that holds them"
        )
    golds = {item.item_id: item.answer for item in items(read_jsonl(problems, "problems"), str(problems))}
    if strange := sorted(set(ids) - set(golds)):
        raise CorruptInputError(f"{problems}: has no item {strange[0]!r} of {file}")
    ours = (graded["verdict"].to_pylist(), graded["rule"].to_pylist(), store.texts(graded["extracted"]))
    tool, label = (_flags(file, name, len(order)) for name in ("tool_correct", "label"))
    columns = [drawn[name].to_pylist() for name in ("item_id", "sample", "prompt_sha256")]
    columns.append(store.texts(drawn["response"]))
    found = []
    for row, other in zip(order.tolist(), graded_order.tolist(), strict=True):
        item, sample, problem, text = (column[row] for column in columns)
        known = {OURS: Found(*(column[other] for column in ours))}
        known |= {} if tool[row] is None else {TOOL: Found.plain(bool(tool[row]))}
        found.append(Response(item, sample, problem, golds[item], text, known, label[row]))
    return found


def _flags(file: Path, name: str, rows: int) -> list[bool | None]:
    """A column of true, false and unknown in a file that was verified when read; all unknown where there is none."""
    import pyarrow.parquet as pq

    if name not in pq.read_schema(file).names:
        return [None] * rows
    column = pq.read_table(file, columns=[name])[name]
    if str(column.type) not in ("bool", "null"):
        raise CorruptInputError(f"{file}: column {name!r} holds {column.type}, true or false is meant")
    return list(column.to_pylist())


def read_labels(path: Path) -> dict[str, bool]:
    """Labels by `key`. Lines hold gold, label, and the response as `output` or `response`."""
    found: dict[str, bool] = {}
    for number, row in enumerate(read_jsonl(path, "labels"), 1):
        text = row.get("output", row.get("response"))
        if not isinstance(text, str) or not isinstance(row.get("label"), bool) or not row.get("gold"):
            raise CorruptInputError(f"{path}: row {number}: needs gold, output (text) and label (true or false)")
        if found.setdefault(key(str(row["gold"]), text), row["label"]) != row["label"]:
            raise CorruptInputError(f"{path}: row {number}: labelled both true and false")
    return found


# Grading


class Judges(AbstractContextManager["Judges"]):
    """Other people's graders that run here; keep one for many calls. A context manager.

    names: those wanted. packages: folder that workers search first for modules. `not_run`: name -> reason.
    """

    def __init__(self, names: Iterable[str], *, packages: Path | None = None):
        folder = str(packages.resolve()) if packages else None
        self.pool = Pool(module="evals.grading.others", compiles=True, packages=folder)
        self.known: dict[tuple[str, str], Found] = {}  # by grader and `Response.key`
        self.names = [name for name in names if name in OTHERS]
        probes = self.pool.compare([Task(Gold("1", "symbolic"), r"\boxed{1}", name) for name in self.names])
        self.not_run = {
            name: str(probe.reason).removeprefix("MissingInputError: ")
            for name, probe in zip(self.names, probes, strict=True)
            if probe.outcome in (Verdict.ERROR, Verdict.TIMEOUT)
        }
        self.names = [name for name in self.names if name not in self.not_run]
        self.versions: dict[str, str | None] = {}
        for package in {OTHERS[name].package for name in self.names}:
            at = importlib.metadata.distributions(name=package, path=[folder] if folder else [])
            self.versions[package] = next((found.version for found in at), version(package))

    def __exit__(self, *_: object) -> None:
        self.pool.close()

    def judge(self, responses: Sequence[Response]) -> None:
        """Add the verdicts of every grader to the responses."""
        for name in self.names:
            new = {r.key: r for r in responses if (name, r.key) not in self.known}
            self.pool.cpu_seconds = OTHERS[name].seconds
            tasks = [Task(Gold(response.gold, "symbolic"), response.text, name) for response in new.values()]
            for pair, answer in zip(new, self.pool.compare(tasks), strict=True):
                ended = answer.outcome in (Verdict.ERROR, Verdict.TIMEOUT)
                self.known[name, pair] = (
                    Found(answer.outcome, str(answer.reason)) if ended else Found.plain(*json.loads(answer.outcome))
                )
            for response in responses:
                response.verdicts[name] = self.known[name, response.key]


# Numbers


@dataclass
class Table:
    """The rows of the three files, and why graders were not run."""

    accuracy: list[dict[str, Any]] = field(default_factory=list)
    pairs: list[dict[str, Any]] = field(default_factory=list)
    differences: list[dict[str, Any]] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)

    def add(self, at: str, parts: Parts, names: Sequence[str], policies: Mapping[str, str]) -> None:
        """Add one checkpoint. policies: what counts of copies of a problem, by benchmark (`evals.score.policies`)."""
        for benchmark, responses in parts.items():
            place = {"checkpoint": at, "benchmark": benchmark}
            self.accuracy += [place | accuracy({benchmark: responses}, name, policies) for name in names]
            for a, b in combinations(names, 2):
                both = [pair for r in responses if None not in (pair := (r.right(a), r.right(b)))]
                alone = {"a_alone": both.count((True, False)), "b_alone": both.count((False, True))}
                self.pairs.append(place | {"a": a, "b": b, "responses": len(both)} | alone)
            for r in responses:
                if len({r.right(name) for name in r.verdicts if name in names}) > 1:
                    self.differences += [place | {"gold": r.gold, "label": r.label} | row for row in r.rows(names)]
        if len(parts) > 1:
            place = {"checkpoint": at, "benchmark": POOLED}
            self.accuracy += [place | accuracy(parts, name, policies) for name in names]


def accuracy(parts: Parts, grader: str, policies: Mapping[str, str]) -> dict[str, Any]:
    """A row of ACCURACY without its place; of several benchmarks pooled. Arguments as in `Table.add`."""
    every = [response for responses in parts.values() for response in responses]
    score = share(parts, lambda response: response.right(grader), policies)
    agree = share(parts, lambda response: response.agrees(grader), dict.fromkeys(parts, "keep"))
    ends = [response.verdicts[grader].verdict for response in every if grader in response.verdicts]
    labelled = [(r.label, r.right(grader)) for r in every if r.agrees(grader) is not None]
    errors_of = (len(labelled), labelled.count((True, False)), labelled.count((False, True)))
    return {
        "grader": grader, "responses": len(every), "right": ends.count(Verdict.CORRECT),
        "timeout": ends.count(Verdict.TIMEOUT), "error": ends.count(Verdict.ERROR),
        "score": score.value, "low": score.low, "high": score.high, "how": score.how,
        "agree": agree.value, "agree_low": agree.low, "agree_high": agree.high,
        **dict(zip(COUNTS, errors_of if labelled else (None, None, None), strict=True)),
    }  # fmt: skip


def share(parts: Parts, of: Callable[[Response], bool | None], policies: Mapping[str, str]) -> Estimate:
    """The share of responses of which `of` is true, with its interval over problems, as in scores.csv.

    Its value is None where `of` is unknown for a response.
    """
    cells: dict[str, Samples] = {}
    for benchmark, responses in parts.items():
        values = [of(response) for response in responses]
        if missing := values.count(None):
            return Estimate(level="problem", how=f"unknown for {missing} responses", n=0)
        problem = {response.item_id: response.problem for response in responses}
        cell = Samples(tuple(problem), np.array(values, bool).reshape(len(problem), -1), tuple(problem.values()))
        policy = policies[benchmark]
        cells[benchmark] = cell.pool(policy) if len(parts) > 1 else cell.column(policy)
    return pooled(cells) if len(cells) > 1 else estimate(next(iter(cells.values())))


# Writing and printing


def write_verdicts(path: Path, responses: Sequence[Response], names: Sequence[str]) -> dict[str, Any]:
    """Write the verdicts on one benchmark, a row per response and grader, and return the entry of the record."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [row for response in responses for row in response.rows(names)]
    schema = pa.schema([(name, pa.int64() if name == "sample" else pa.string()) for name in VERDICTS])
    with atomic(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), temporary, compression="zstd")
    return {"sha256": sha256_file(path), "rows": len(rows)}


def compare(tree: Tree, out: Path, judges: Judges, *, names: Sequence[str], data: Path, labels: Path | None) -> Table:
    """Grade every response of the tree by all graders, write the files, and return their rows.

    Raises ConfigError when no label is of a response of the tree, and as `read`.
    """
    given = read_labels(labels) if labels else {}
    table, matched = Table(not_run=dict(judges.not_run)), False
    for at in tree.checkpoints:
        record = tree.layout.grades(at) / "grades.json"
        keys = store.read_record(record) if record.is_file() else {}
        parts = {key: read(tree, at, key, data) for key in sorted(keys)}
        every = [response for responses in parts.values() for response in responses]
        if not every:
            continue
        for response in every:
            response.label = given.get(response.key, response.label)
            matched |= response.key in given
        judges.judge(every)
        ran = [name for name in names if any(name in response.verdicts for response in every)]
        missing = dict.fromkeys(
            set(names) - {*ran, *judges.not_run}, "no verdicts in the column tool_correct of the samples"
        )
        sampled = store.read_record(tree.layout.samples(at) / "samples.json")
        entries = {
            key: write_verdicts(out / at.path / f"{key}.parquet", responses, ran)
            | {"samples_sha256": sampled[key]["sha256"]}
            for key, responses in parts.items()
        }
        facts = {"benchmarks": entries, "graders": ran, "not_run": judges.not_run | missing, "schema": 1}
        facts |= {"versions": judges.versions, "code": Code("grade").hash}
        write_json(out / at.path / RECORD, digests.with_own(facts))
        table.not_run |= missing
        table.add(at.path.as_posix(), parts, ran, policies(tree.layout, list(parts)))
    if not table.accuracy:
        raise MissingInputError(f"{tree.root}: holds no graded responses")
    if labels and not matched:
        raise ConfigError(f"{labels}: none of its {len(given)} labels is of a response in {tree.root}")
    for name, columns in (("accuracy", ACCURACY), ("pairs", PAIRS), ("differences", DIFFERENCES)):
        digests.write(out / f"{name}.csv", to_csv(columns, getattr(table, name)))
    return table


def markdown(table: Table) -> str:
    """Scores, disagreements and agreement with labels as Markdown tables; then what was not run, with the reasons."""
    cells = {(row["checkpoint"], row["benchmark"], row["grader"]): row for row in table.accuracy}
    names = sorted({name for *_, name in cells}, key=GRADERS.index)
    places = {place[:2]: row["responses"] for place, row in cells.items()}
    scores = [
        [*place, count, *(_percent(cells.get((*place, name), {}), "score", "low", "high") for name in names)]
        for place, count in places.items()
    ]
    alone = dict.fromkeys(((a, b) for a in names for b in names if a != b), 0)
    for row in table.pairs:
        alone[row["a"], row["b"]] += row["a_alone"]
        alone[row["b"], row["a"]] += row["b_alone"]
    lines = ["Score in percent, 95 % interval over problems:", "", *_lines([*PLACE, "responses", *names], scores)]
    lines += ["", "Responses right by the grader of the row and not by that of the column:", ""]
    lines += _lines(["", *names], [[a, *(alone.get((a, b), "") for b in names)] for a in names])
    heads = (*PLACE, "grader", *COUNTS)
    if labelled := [row for row in table.accuracy if row["labelled"]]:
        rows = [[*(row[name] for name in heads), _percent(row, "agree", "agree_low", "agree_high")] for row in labelled]
        lines += ["", "Against the labels:", "", *_lines([*heads, "as labelled, percent"], rows)]
    return "\n".join([*lines, "", *(f"not run: {name}: {why}" for name, why in sorted(table.not_run.items()))]).strip()


def _percent(row: Mapping[str, Any], *names: str) -> str:
    """`88.0 [68.9–96.2]`; what is unknown is a dash."""
    value, low, high = (None if row.get(name) is None else f"{100 * row[name]:.1f}" for name in names)
    return "–" if value is None else value if low is None else f"{value} [{low}–{high}]"


def _lines(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    rule = ["---"] * len(heads)
    return [f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |" for row in (heads, rule, *rows)]


def main() -> int:
    parser = Parser()
    parser.add_argument("tree", type=Path, metavar="TREE", help="folder with samples/ and grades/")
    parser.add_argument("--graders", default=",".join(GRADERS), metavar="A,B", help=f"of {', '.join(GRADERS)}")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="JSONL: gold, output, label (true or false)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of the problems (default: TREE/data)")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"default: TREE/{FOLDER}, which the page reads")
    parser.add_argument("--packages", type=Path, metavar="DIR", help="where other graders search first for packages")
    args = parser.parse_args()
    names = list(dict.fromkeys(name for name in args.graders.split(",") if name))
    if strange := [name for name in names if name not in GRADERS]:
        raise unknown("command line", "--graders", strange[0], GRADERS)
    if args.packages and not args.packages.is_dir():
        raise MissingInputError(f"--packages: {args.packages}: no folder there")
    tree, out = open_tree(args.tree), args.out or args.tree / FOLDER
    with Judges(names, packages=args.packages) as judges:
        table = compare(tree, out, judges, names=names, data=args.data or args.tree / "data", labels=args.labels)
    print(markdown(table))
    differing = len({(row["checkpoint"], row["benchmark"], row["item_id"], row["sample"]) for row in table.differences})
    print(f"{differing} responses on which graders differ: {out / 'differences.csv'}")
    return 0


if __name__ == "__main__":
    errors.run(main)
