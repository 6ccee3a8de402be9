"""Compare graders: ours, third-party ones and the tool's own verdicts on one set of responses.

    python -m evals.graders TREE                              a tree with samples and grades
    python -m evals.graders TREE --graders ours,math_verify   only these
    python -m evals.graders TREE --labels FILE.jsonl          also against labels: lines {gold, output, label}

`ours` is the verdict in the tree's grades, `tool` the column `tool_correct` that an adopted tree may have; the others
are those of `evals.grading.others`. Graders that cannot run here are listed with the reason. Equal pairs of gold and
response are graded once. Columns `label` and `tool_correct` hold true, false or nothing (unknown).

Writes TREE/graders:

    accuracy.csv       checkpoint, benchmark, grader: responses graded right, score with its 95 % interval, timeouts,
                       errors; with labels: agreement, its interval, and the errors in both directions
    pairs.csv          checkpoint, benchmark, two graders: right by a alone, by b alone
    differences.csv    every response on which graders differ, one row per grader: verdict, rule, extracted answer
    <checkpoint>/<benchmark>.parquet   the same columns for all responses; graders.json has hashes, versions, reasons
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from core import errors
from core.code import Code
from core.errors import ConfigError, CorruptInputError, MissingInputError, Parser, unknown
from core.files import atomic, read_jsonl, to_csv, write_json, write_text
from core.layout import Checkpoint
from core.provenance import sha256_file, version
from evals import store
from evals.data import items
from evals.grading import Verdict
from evals.grading.decide import Gold
from evals.grading.others import OTHERS
from evals.grading.pool import Pool, Task
from evals.score import policies
from evals.scores import POOLED
from evals.stats.estimate import Estimate, Samples, estimate, pooled
from evals.tree import Tree, open_tree

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

Found = tuple[str, str, str | None]
"""Verdict, rule (of another's grader the reason of a timeout or an error), extracted answer."""


def key(gold: str, response: str) -> str:
    """Return one key for equal pairs of gold and response."""
    return hashlib.sha256(store.clean(f"{gold.strip()}\0{response}").encode()).hexdigest()


def plain(right: bool, extracted: str | None = None) -> Found:
    return str(Verdict.CORRECT if right else Verdict.WRONG), "", extracted


# Reading


def read(tree: Tree, at: Checkpoint, benchmark: str, data: Path) -> pd.DataFrame:
    """Read the responses of a checkpoint to a benchmark by item and sample. data: folder of the problems.

    Columns: item_id, sample, problem (equal for copies of one problem), gold, text, key, label, and for `ours` and
    `tool` what they found (`Found`, or None where unknown). Raises MissingInputError or CorruptInputError naming the
    file at fault.
    """
    samples, grades = tree.layout.samples(at), tree.layout.grades(at)
    entry = store.entry_of(store.read_record(samples / "samples.json"), samples / "samples.json", benchmark)
    grade = store.entry_of(store.read_record(grades / "grades.json"), grades / "grades.json", benchmark)
    file, verdicts = samples / f"{benchmark}.parquet", grades / f"{benchmark}.parquet"
    drawn = _rows(file, ("item_id", "sample", "prompt_sha256", "response"), entry)
    graded = _rows(verdicts, ("item_id", "sample", "verdict", "rule", "extracted"), grade)
    same = drawn[["item_id", "sample"]].equals(graded[["item_id", "sample"]])
    if grade.get("samples_sha256") != entry["sha256"] or not same:
        raise CorruptInputError(f"{verdicts}: these grades are of other samples than {file}: grade again")
    problems = data / f"{benchmark}.jsonl"
    if not problems.is_file():
        raise MissingInputError(f"{problems}: the problems are missing; set --data to the folder that holds them")
    digest = sha256_file(problems)
    if (entry.get("data") or {}).get("sha256", digest) != digest:
        raise CorruptInputError(
            f"{problems}: not the problems that {samples / 'samples.json'} was made from; set --data to the folder "
            "that holds them"
        )
    golds = {item.item_id: item.answer for item in items(read_jsonl(problems, "problems"), str(problems))}
    if strange := sorted(set(drawn["item_id"]) - set(golds)):
        raise CorruptInputError(f"{problems}: has no item {strange[0]!r} of {file}")
    frame = drawn.rename(columns={"prompt_sha256": "problem", "response": "text", "tool_correct": TOOL})
    frame["gold"] = frame["item_id"].map(golds)
    frame["key"] = [key(*pair) for pair in zip(frame["gold"], frame["text"], strict=True)]
    frame[OURS] = list(graded[["verdict", "rule", "extracted"]].itertuples(index=False, name=None))
    frame[TOOL] = pd.Series(
        [None if right is None else plain(right) for right in frame[TOOL]], frame.index, dtype=object
    )
    return frame


def _rows(file: Path, columns: Sequence[str], entry: Mapping[str, Any]) -> pd.DataFrame:
    """Read columns of a samples or grades file by item and sample; tool_correct and label: true, false or None."""
    import pyarrow.parquet as pq

    table = store.read_table(file, columns, entry)
    frame = {name: table[name].to_pylist() if name == "sample" else store.texts(table[name]) for name in columns}
    there = pq.read_schema(file).names
    for name in ("tool_correct", "label"):
        column = pq.read_table(file, columns=[name])[name] if name in there else [None] * table.num_rows
        frame[name] = column if isinstance(column, list) else column.to_pylist()
        if strange := set(map(type, frame[name])) - {bool, type(None)}:
            raise CorruptInputError(f"{file}: column {name!r} holds {strange.pop().__name__}; allowed: true, false")
    return pd.DataFrame(frame, dtype=object).iloc[store.grid(table, file)[1]].reset_index(drop=True)


def read_labels(path: Path) -> dict[str, bool]:
    """Read labels by `key`. Lines hold gold, label, and the response as `output` or `response`."""
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
    """Third-party graders available here; keep one for many calls. A context manager.

    names: the graders wanted. packages: folder that workers search first for modules. `not_run`: name -> reason.
    """

    def __init__(self, names: Iterable[str], *, packages: Path | None = None):
        folder = str(packages.resolve()) if packages else None
        self.pool = Pool(module="evals.grading.others", compiles=True, packages=folder)
        self.known: dict[tuple[str, str], Found] = {}  # by grader and `key`
        wanted = [name for name in names if name in OTHERS]
        probes = self.pool.compare([Task(Gold("1", "symbolic"), r"\boxed{1}", name) for name in wanted])
        self.not_run = {
            name: str(probe.reason).removeprefix("MissingInputError: ")
            for name, probe in zip(wanted, probes, strict=True)
            if probe.outcome in (Verdict.ERROR, Verdict.TIMEOUT)
        }
        self.names = [name for name in wanted if name not in self.not_run]
        self.versions: dict[str, str | None] = {}
        for package in {OTHERS[name].package for name in self.names}:
            at = importlib.metadata.distributions(name=package, path=[folder] if folder else [])
            self.versions[package] = next((found.version for found in at), version(package))

    def __exit__(self, *_: object) -> None:
        self.pool.close()

    def judge(self, responses: pd.DataFrame) -> None:
        """Add the findings of every grader as columns. responses: key, gold, text."""
        for name in self.names:
            new = responses[[(name, pair) not in self.known for pair in responses["key"]]].drop_duplicates("key")
            self.pool.cpu_seconds = OTHERS[name].seconds
            tasks = [Task(Gold(gold, "symbolic"), text, name) for gold, text in zip(new.gold, new.text, strict=True)]
            for pair, answer in zip(new["key"], self.pool.compare(tasks), strict=True):
                ended = answer.outcome in (Verdict.ERROR, Verdict.TIMEOUT)
                found = (answer.outcome, str(answer.reason), None) if ended else plain(*json.loads(answer.outcome))
                self.known[name, pair] = found
            responses[name] = [self.known[name, pair] for pair in responses["key"]]


# Numbers

Parts = Mapping[str, pd.DataFrame]
"""Responses by benchmark."""


def right(found: pd.Series) -> pd.Series:
    """Return whether a grader accepts each response; None: unknown."""
    return found.map(lambda one: None if one is None else one[0] == Verdict.CORRECT).astype(object)


def accuracy(parts: Parts, grader: str, policies: Mapping[str, str]) -> dict[str, Any]:
    """Return a row of ACCURACY without its place; of several benchmarks pooled.

    policies: policy for copies of a problem, by benchmark (`evals.score.policies`).
    """
    every = pd.concat(parts.values(), ignore_index=True)
    called = {name: right(frame[grader]) for name, frame in parts.items()}
    agrees = {
        name: (called[name] == frame["label"]).astype(object).where(called[name].notna() & frame["label"].notna(), None)
        for name, frame in parts.items()
    }
    score = share(parts, called, policies)
    agree = share(parts, agrees, dict.fromkeys(parts, "keep"))
    ends = [found[0] for found in every[grader] if found]
    labels = zip(every["label"], pd.concat(called.values()), strict=True)
    labelled = [pair for pair in labels if None not in pair]
    errors_of = (len(labelled), labelled.count((True, False)), labelled.count((False, True)))
    return {
        "grader": grader, "responses": len(every), "right": ends.count(Verdict.CORRECT),
        "timeout": ends.count(Verdict.TIMEOUT), "error": ends.count(Verdict.ERROR),
        "score": score.value, "low": score.low, "high": score.high, "how": score.how,
        "agree": agree.value, "agree_low": agree.low, "agree_high": agree.high,
        **dict(zip(COUNTS, errors_of if labelled else (None, None, None), strict=True)),
    }  # fmt: skip


def share(parts: Parts, values: Mapping[str, pd.Series], policies: Mapping[str, str]) -> Estimate:
    """Return the share of responses whose value is true, with its interval over problems, as in scores.csv.

    The share's value is None where any is unknown.
    """
    cells: dict[str, Samples] = {}
    for benchmark, frame in parts.items():
        if missing := int(values[benchmark].isna().sum()):
            return Estimate(level="problem", how=f"unknown for {missing} responses", n=0)
        problem = frame.drop_duplicates("item_id")
        of = values[benchmark].to_numpy(bool).reshape(len(problem), -1)
        cell = Samples(tuple(problem["item_id"]), of, tuple(problem["problem"]))
        cells[benchmark] = cell.pool(policies[benchmark]) if len(parts) > 1 else cell.column(policies[benchmark])
    return pooled(cells) if len(cells) > 1 else estimate(next(iter(cells.values())))


def pairs(frame: pd.DataFrame, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows of PAIRS without their place."""
    found = []
    for a, b in combinations(names, 2):
        both = pd.DataFrame({"a": right(frame[a]), "b": right(frame[b])}).dropna().astype(bool)
        alone = {"a_alone": int((both["a"] & ~both["b"]).sum()), "b_alone": int((both["b"] & ~both["a"]).sum())}
        found.append({"a": a, "b": b, "responses": len(both)} | alone)
    return found


def verdicts(frame: pd.DataFrame, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row with gold, label and VERDICTS for each response and grader with a known verdict."""
    return [
        {name: row[name] for name in ("item_id", "sample", "gold", "label")}
        | {"grader": grader, **dict(zip(("verdict", "rule", "extracted"), row[grader], strict=True))}
        for row in frame.to_dict("records")
        for grader in names
        if row[grader]
    ]


# Writing and printing


def write_verdicts(path: Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Write rows with the columns VERDICTS, and return their entry for the record."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.int64() if name == "sample" else pa.string()) for name in VERDICTS])
    with atomic(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), temporary, compression="zstd")
    return {"sha256": sha256_file(path), "rows": len(rows)}


def compare(
    tree: Tree, out: Path, judges: Judges, *, names: Sequence[str], data: Path, labels: Path | None
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """Grade every response of the tree by all graders, write the files, and return their rows and the graders not run.

    Raises ConfigError when no label belongs to a response of the tree, and as `read`.
    """
    given = read_labels(labels) if labels else {}
    table: dict[str, list[dict[str, Any]]] = {"accuracy": [], "pairs": [], "differences": []}
    not_run, matched = dict(judges.not_run), False
    for at in tree.checkpoints:
        record = tree.layout.grades(at) / "grades.json"
        keys = store.read_record(record) if record.is_file() else {}
        parts = {key: read(tree, at, key, data) for key in sorted(keys)}
        if not parts:
            continue
        for frame in parts.values():
            matched |= bool(frame["key"].isin(given).any())
            frame["label"] = [given.get(k, label) for k, label in zip(frame["key"], frame["label"], strict=True)]
            judges.judge(frame)
        ran = [
            name for name in names if name in judges.names or any(f[name].any() for f in parts.values() if name in f)
        ]
        missing = dict.fromkeys(
            set(names) - {*ran, *judges.not_run}, "no verdicts in the column tool_correct of the samples"
        )
        not_run |= missing
        sampled = store.read_record(tree.layout.samples(at) / "samples.json")
        entries, policy = {}, policies(tree.layout, list(parts))
        for key, frame in parts.items():
            entry = write_verdicts(out / at.path / f"{key}.parquet", verdicts(frame, ran))
            entries[key] = entry | {"samples_sha256": sampled[key]["sha256"]}
            place = {"checkpoint": at.path.as_posix(), "benchmark": key}
            table["accuracy"] += [place | accuracy({key: frame}, name, policy) for name in ran]
            table["pairs"] += [place | row for row in pairs(frame, ran)]
            called = pd.DataFrame({name: right(frame[name]) for name in ran})
            differing = frame[[row.dropna().nunique() > 1 for _, row in called.iterrows()]]
            table["differences"] += [place | row for row in verdicts(differing, ran)]
        if len(parts) > 1:
            place = {"checkpoint": at.path.as_posix(), "benchmark": POOLED}
            table["accuracy"] += [place | accuracy(parts, name, policy) for name in ran]
        facts = {"benchmarks": entries, "graders": ran, "not_run": judges.not_run | missing, "schema": 1}
        facts |= {"versions": judges.versions, "code": Code("grade").hash}
        write_json(out / at.path / RECORD, facts)
    if not table["accuracy"]:
        raise MissingInputError(f"{tree.root}: holds no graded responses")
    if labels and not matched:
        raise ConfigError(f"{labels}: none of its {len(given)} labels is of a response in {tree.root}")
    for name, columns in (("accuracy", ACCURACY), ("pairs", PAIRS), ("differences", DIFFERENCES)):
        write_text(out / f"{name}.csv", to_csv(columns, table[name]))
    return table, not_run


def markdown(table: Mapping[str, Sequence[Mapping[str, Any]]], not_run: Mapping[str, str]) -> str:
    """Render scores, disagreements and agreement with labels as Markdown tables, then the graders not run and why."""
    cells = {(row["checkpoint"], row["benchmark"], row["grader"]): row for row in table["accuracy"]}
    names = sorted({name for *_, name in cells}, key=GRADERS.index)
    places = {place[:2]: row["responses"] for place, row in cells.items()}
    scores = [
        [*place, count, *(_percent(cells.get((*place, name), {}), "score", "low", "high") for name in names)]
        for place, count in places.items()
    ]
    alone = dict.fromkeys(((a, b) for a in names for b in names if a != b), 0)
    for row in table["pairs"]:
        alone[row["a"], row["b"]] += row["a_alone"]
        alone[row["b"], row["a"]] += row["b_alone"]
    lines = ["Score in percent, 95 % interval over problems:", "", *_lines([*PLACE, "responses", *names], scores)]
    lines += ["", "Responses right by the grader of the row and not by that of the column:", ""]
    lines += _lines(["", *names], [[a, *(alone.get((a, b), "") for b in names)] for a in names])
    heads = (*PLACE, "grader", *COUNTS)
    if labelled := [row for row in table["accuracy"] if row["labelled"]]:
        rows = [[*(row[name] for name in heads), _percent(row, "agree", "agree_low", "agree_high")] for row in labelled]
        lines += ["", "Against the labels:", "", *_lines([*heads, "as labelled, percent"], rows)]
    return "\n".join([*lines, "", *(f"not run: {name}: {why}" for name, why in sorted(not_run.items()))]).strip()


def _percent(row: Mapping[str, Any], *names: str) -> str:
    """Format as `88.0 [68.9–96.2]`; unknown values are a dash."""
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
    data = args.data or args.tree / "data"
    with Judges(names, packages=args.packages) as judges:
        table, not_run = compare(tree, out, judges, names=names, data=data, labels=args.labels)
    print(markdown(table, not_run))
    differing = len({tuple(row[name] for name in (*PLACE, "item_id", "sample")) for row in table["differences"]})
    print(f"{differing} responses on which graders differ: {out / 'differences.csv'}")
    return 0


if __name__ == "__main__":
    errors.run(main)
