"""Compare graders: ours, third-party ones and the tool's own verdicts on one set of responses.

    python -m evals.graders TREE                              a tree with samples and grades
    python -m evals.graders TREE --graders ours,math_verify   only these
    python -m evals.graders TREE --labels FILE.jsonl          also against labels: lines {gold, output, label}

`ours` is the verdict in the tree's grades, `tool` the column `tool_correct` that an adopted tree may have; the others
are those of `evals.others`. Graders that cannot run here are listed with the reason. Equal pairs of gold and
response are graded once per checkpoint. Columns `label` and `tool_correct` hold true, false or nothing (unknown).

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
import pyarrow as pa

from core import errors
from core.code import Code
from core.errors import ConfigError, CorruptInputError, MissingInputError, Parser, unknown
from core.files import read_jsonl, to_csv, write_json, write_text
from core.layout import Checkpoint
from core.provenance import sha256_file, version
from evals import store
from evals.data import items
from evals.grading import Verdict
from evals.grading.decide import Gold
from evals.grading.pool import Pool, Task
from evals.others import OTHERS
from evals.scores import POOLED
from evals.stats.estimate import Estimate, Samples, estimate, policies, pooled
from evals.tree import Tree, open_tree

OURS, TOOL = "ours", "tool"
GRADERS = (OURS, *OTHERS, TOOL)
FOLDER, RECORD = "graders", "graders.json"
PLACE = ("checkpoint", "benchmark")
FOUND = ("verdict", "rule", "extracted")  # rule: of a third-party grader the reason for a timeout or an error
VERDICTS = ("item_id", "sample", "grader", *FOUND)
DIFFERENCES = (*PLACE, "gold", "label", *VERDICTS)
COUNTS = ("labelled", "right_called_wrong", "wrong_called_right")
ACCURACY = (
    *PLACE, "grader", "responses", "right", "timeout", "error", "score", "low", "high", "how",
    "agree", "agree_low", "agree_high", *COUNTS,
)  # fmt: skip
PAIRS = (*PLACE, "a", "b", "responses", "a_alone", "b_alone")


def key(gold: str, response: str) -> str:
    """Return one key for equal pairs of gold and response."""
    return hashlib.sha256(store.clean(f"{gold.strip()}\0{response}").encode()).hexdigest()


def read(tree: Tree, at: Checkpoint, benchmark: str, data: Path) -> pd.DataFrame:
    """Read the responses of a checkpoint to a benchmark by item and sample. data: folder of the problems.

    Columns: benchmark, item_id, sample, problem (equal for copies of one problem), gold, text, key, label,
    tool_correct, and our verdict, rule, extracted. Raises MissingInputError or CorruptInputError naming the file at
    fault.
    """
    _, values = store.read_pair(
        tree.layout, at, benchmark, FOUND, ("prompt_sha256", "response", "tool_correct", "label")
    )
    record = tree.layout.samples(at) / "samples.json"
    for name in ("tool_correct", "label"):
        if strange := set(map(type, values[name])) - {bool, type(None)}:
            kind = strange.pop().__name__
            raise CorruptInputError(f"{record}: {benchmark}: column {name!r} holds {kind}; allowed: true, false")
    frame = pd.DataFrame(values, dtype=object).rename(columns={"prompt_sha256": "problem", "response": "text"})
    problems = data / f"{benchmark}.jsonl"
    if not problems.is_file():
        raise MissingInputError(f"{problems}: the problems are missing; set --data to the folder that holds them")
    golds = {item.item_id: item.answer for item in items(read_jsonl(problems, "problems"), str(problems))}
    digest = sha256_file(problems)
    recorded = (store.read_record(record)[benchmark].get("data") or {}).get("sha256", digest)
    if recorded != digest or not set(frame["item_id"]) <= golds.keys():
        raise CorruptInputError(
            f"{problems}: not the problems that {record} was made from; set --data to the folder that holds them"
        )
    frame["gold"] = frame["item_id"].map(golds)
    frame["key"] = [key(*pair) for pair in zip(frame["gold"], frame["text"], strict=True)]
    return frame.assign(benchmark=benchmark)


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


class Judges(AbstractContextManager["Judges"]):
    """Third-party graders available here; keep one for many calls. A context manager.

    names: the graders wanted. packages: folder that workers search first for modules. `not_run`: name -> reason.
    """

    def __init__(self, names: Iterable[str], *, packages: Path | None = None):
        folder = str(packages.resolve()) if packages else None
        self.pool = Pool(module="evals.others", compiles=True, packages=folder)
        probe = pd.DataFrame({"key": [""], "gold": ["1"], "text": [r"\boxed{1}"]})
        ends = {name: self.judge(name, probe).iloc[0] for name in names if name in OTHERS}
        reasons = {name: end["rule"].removeprefix("MissingInputError: ") for name, end in ends.items()}
        self.not_run = {name: reason for name, reason in reasons.items() if reason}
        self.names = [name for name in ends if name not in self.not_run]
        self.versions: dict[str, str | None] = {}
        for package in {OTHERS[name].package for name in self.names}:
            at = importlib.metadata.distributions(name=package, path=[folder] if folder else [])
            self.versions[package] = next((found.version for found in at), version(package))

    def __exit__(self, *_: object) -> None:
        self.pool.close()

    def judge(self, name: str, responses: pd.DataFrame) -> pd.DataFrame:
        """Return FOUND of a grader for each response. responses: key, gold, text; equal keys are graded once."""
        new = responses.drop_duplicates("key")
        tasks = [Task(Gold(gold, "symbolic"), text, name) for gold, text in zip(new.gold, new.text, strict=True)]
        self.pool.cpu_seconds = OTHERS[name].seconds
        found = {}
        for pair, answer in zip(new["key"], self.pool.compare(tasks), strict=True):
            if answer.outcome in (Verdict.ERROR, Verdict.TIMEOUT):
                found[pair] = answer.outcome, str(answer.reason), None
            else:
                right, extracted = json.loads(answer.outcome)
                found[pair] = str(Verdict.CORRECT if right else Verdict.WRONG), "", extracted
        return pd.DataFrame([found[pair] for pair in responses["key"]], responses.index, FOUND, dtype=object)


def judged(responses: pd.DataFrame, name: str, judges: Judges) -> pd.DataFrame:
    """Return the responses with the grader's FOUND, `right`, and `agree` with the label; None where unknown."""
    rows = responses.assign(grader=name)
    if name == TOOL:
        known = {True: str(Verdict.CORRECT), False: str(Verdict.WRONG)}
        rows = rows.assign(verdict=rows["tool_correct"].map(known.get), rule="", extracted=None)
    elif name != OURS:
        rows[list(FOUND)] = judges.judge(name, responses)
    rows["right"] = (rows["verdict"] == Verdict.CORRECT).astype(object).where(rows["verdict"].notna(), None)
    known_both = rows["right"].notna() & rows["label"].notna()
    rows["agree"] = (rows["right"] == rows["label"]).astype(object).where(known_both, None)
    return rows


def accuracy(rows: pd.DataFrame, policies: Mapping[str, str]) -> dict[str, Any]:
    """Return a row of ACCURACY without its place, of one grader's rows; of several benchmarks pooled.

    policies: policy for copies of a problem, by benchmark (`evals.stats.estimate.policies`).
    """
    score, agree = share(rows, "right", policies), share(rows, "agree", dict.fromkeys(policies, "keep"))
    ends, labelled = list(rows["verdict"]), rows[rows["agree"].notna()]
    wrong = labelled[labelled["agree"] == False]["label"]  # noqa: E712
    counts = (len(labelled), int(wrong.sum()), int((~wrong.astype(bool)).sum())) if len(labelled) else (None,) * 3
    return {
        "grader": rows["grader"].iloc[0], "responses": len(rows), "right": ends.count(Verdict.CORRECT),
        "timeout": ends.count(Verdict.TIMEOUT), "error": ends.count(Verdict.ERROR),
        "score": score.value, "low": score.low, "high": score.high, "how": score.how,
        "agree": agree.value, "agree_low": agree.low, "agree_high": agree.high,
        **dict(zip(COUNTS, counts, strict=True)),
    }  # fmt: skip


def share(rows: pd.DataFrame, column: str, policies: Mapping[str, str]) -> Estimate:
    """Return the share of responses whose value is true, with its interval over problems, as in scores.csv.

    The share's value is None where any is unknown.
    """
    cells: dict[str, Samples] = {}
    parts = [(str(benchmark), frame) for benchmark, frame in rows.groupby("benchmark")]
    for benchmark, frame in parts:
        if missing := int(frame[column].isna().sum()):
            return Estimate(level="problem", how=f"unknown for {missing} responses", n=0)
        problem = frame.drop_duplicates("item_id")
        values = frame[column].to_numpy(bool).reshape(len(problem), -1)
        cell = Samples(tuple(problem["item_id"]), values, tuple(problem["problem"]))
        cells[benchmark] = cell.pool(policies[benchmark]) if len(parts) > 1 else cell.column(policies[benchmark])
    return pooled(cells) if len(cells) > 1 else estimate(next(iter(cells.values())))


def compare(
    tree: Tree, out: Path, judges: Judges, *, names: Sequence[str], data: Path, labels: Path | None
) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Grade every response of the tree by all graders, write the files, and return their rows and the graders not run.

    Raises ConfigError when no label belongs to a response of the tree, and as `read`.
    """
    schema = pa.schema([(name, pa.int64() if name == "sample" else pa.string()) for name in VERDICTS])
    given = read_labels(labels) if labels else {}
    table: dict[str, list[Any]] = {"accuracy": [], "pairs": [], "differences": []}
    not_run, matched = dict(judges.not_run), False
    for at in tree.checkpoints:
        record = tree.layout.grades(at) / "grades.json"
        keys = sorted(store.read_record(record)) if record.is_file() else []
        if not keys:
            continue
        responses = pd.concat([read(tree, at, key, data) for key in keys], ignore_index=True)
        matched |= bool(responses["key"].isin(given).any())
        responses["label"] = [
            given.get(k, label) for k, label in zip(responses["key"], responses["label"], strict=True)
        ]
        found = {name: judged(responses, name, judges) for name in names if name not in judges.not_run}
        ran = [name for name, rows in found.items() if rows["verdict"].notna().any()]
        missing = dict.fromkeys(found.keys() - ran, "no verdicts in the column tool_correct of the samples")
        not_run |= missing
        sampled = store.read_record(tree.layout.samples(at) / "samples.json")
        entries, policy = {}, policies(tree.layout, keys)
        for scope in [*keys, *[POOLED] * (len(keys) > 1)]:
            place = {"checkpoint": at.path.as_posix(), "benchmark": scope}
            inside = responses["benchmark"].isin(keys if scope == POOLED else [scope])
            table["accuracy"] += [place | accuracy(found[name][inside], policy) for name in ran]
            if scope == POOLED:
                continue
            right = pd.DataFrame({name: found[name]["right"][inside] for name in ran}, dtype=object)
            for a, b in combinations(ran, 2):
                both = right[[a, b]].dropna().astype(bool)
                alone = {"a_alone": int((both[a] & ~both[b]).sum()), "b_alone": int((both[b] & ~both[a]).sum())}
                table["pairs"].append(place | {"a": a, "b": b, "responses": len(both)} | alone)
            rows = pd.concat([found[name][inside] for name in ran]).sort_index(kind="stable").dropna(subset="verdict")
            written = pa.Table.from_pylist(rows[list(VERDICTS)].to_dict("records"), schema=schema)
            digest = store.write_table(out / at.path / f"{scope}.parquet", written, compression="zstd")
            entries[scope] = {"sha256": digest, "rows": len(rows), "samples_sha256": sampled[scope]["sha256"]}
            wanted = rows[rows.index.isin(right.index[right.nunique(axis=1) > 1])][["gold", "label", *VERDICTS]]
            table["differences"] += wanted.assign(**place).to_dict("records")
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
    rows = pd.DataFrame(table["accuracy"], dtype=object)
    names = sorted(rows["grader"].unique(), key=GRADERS.index)
    rows["score"] = _percent(rows, "score", "low", "high")
    rows["as labelled, percent"] = _percent(rows, "agree", "agree_low", "agree_high")
    place = [*PLACE, "responses"]
    order = pd.MultiIndex.from_frame(rows[place].drop_duplicates())
    scores = rows.pivot(index=place, columns="grader", values="score").reindex(order)[names].fillna("–").reset_index()
    alone = dict.fromkeys(((a, b) for a in names for b in names if a != b), 0)
    for row in table["pairs"]:
        alone[row["a"], row["b"]] += row["a_alone"]
        alone[row["b"], row["a"]] += row["b_alone"]
    lines = ["Score in percent, 95 % interval over problems:", "", *_lines(list(scores.columns), scores.to_numpy())]
    lines += ["", "Responses right by the grader of the row and not by that of the column:", ""]
    lines += _lines(["", *names], [[a, *(alone.get((a, b), "") for b in names)] for a in names])
    heads = [*PLACE, "grader", *COUNTS, "as labelled, percent"]
    if rows["labelled"].notna().any():
        lines += ["", "Against the labels:", "", *_lines(heads, rows[rows["labelled"].notna()][heads].to_numpy())]
    return "\n".join([*lines, "", *(f"not run: {name}: {why}" for name, why in sorted(not_run.items()))]).strip()


def _percent(rows: pd.DataFrame, *names: str) -> list[str]:
    """Format as `88.0 [68.9–96.2]`; unknown values are a dash."""
    cells = rows[list(names)].map(lambda value: "" if pd.isna(value) else f"{100 * value:.1f}")
    return [f"{value} [{low}–{high}]" if low else value or "–" for value, low, high in cells.to_numpy()]


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
