"""Compare graders: ours, third-party ones and the tool's own verdicts on one set of responses.

    python -m evals.graders TREE                              a tree with samples and grades
    python -m evals.graders TREE --graders ours,math_verify   only these
    python -m evals.graders TREE --labels FILE.jsonl          also against labels: lines {gold, output, label}

`ours` is the verdict in the tree's grades, `tool` the column `tool_correct` that an adopted tree has; the others are
those of `evals.others`. Graders that cannot run here are listed with the reason.

Writes TREE/graders:

    accuracy.csv      checkpoint, benchmark, grader: responses graded right, score with its 95 % interval, timeouts,
                      errors; with labels: labelled responses, and the errors in both directions
    differences.csv   every response on which graders differ, one row per grader: verdict, rule, extracted answer
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pandas as pd

from core import errors
from core.errors import ConfigError, CorruptInputError, MissingInputError, Parser, check_known
from core.files import read_jsonl, to_csv, write_text
from core.layout import Checkpoint
from core.provenance import sha256_file
from evals import store
from evals.benchmark import items
from evals.grading import Verdict
from evals.grading.decide import Gold
from evals.grading.pool import Pool, Task
from evals.others import OTHERS
from evals.stats.estimate import Estimate, Samples, estimate, policies
from evals.tree import Tree, open_tree

OURS, TOOL = "ours", "tool"
GRADERS = (OURS, *OTHERS, TOOL)
FOLDER, WORKER = "graders", "evals.others"
PLACE = ("checkpoint", "benchmark")
FOUND = ("verdict", "rule", "extracted")  # rule: of a third-party grader the reason for a timeout or an error
DIFFERENCES = (*PLACE, "gold", "label", "item_id", "sample", "grader", *FOUND)
COUNTS = ("labelled", "right_called_wrong", "wrong_called_right")
ACCURACY = (*PLACE, "grader", "responses", "right", "timeout", "error", "score", "low", "high", "how", *COUNTS)


def read(tree: Tree, at: Checkpoint, benchmark: str, data: Path) -> pd.DataFrame:
    """Read the responses of a checkpoint to a benchmark by item and sample. data: folder of the problems.

    Columns: item_id, sample, problem (equal for copies of one problem), gold, text, tool_correct, and our FOUND.
    Raises MissingInputError or CorruptInputError naming the file at fault.
    """
    wanted = ("prompt_sha256", "response", "tool_correct")
    _, values = store.read_pair(tree.layout, at, benchmark, FOUND, wanted)
    frame = pd.DataFrame(values, dtype=object).rename(columns={"prompt_sha256": "problem", "response": "text"})
    problems, record = data / f"{benchmark}.jsonl", tree.layout.grades(at) / "grades.json"
    recorded = store.read_record(record)[benchmark].get("data_sha256")
    if not problems.is_file():
        raise MissingInputError(f"{problems}: the problems are missing; set --data to the folder that holds them")
    if sha256_file(problems) != recorded:
        raise CorruptInputError(
            f"{problems}: not the problems that {record} was made from; set --data to the folder that holds them"
        )
    golds = {item.item_id: item.answer for item in items(read_jsonl(problems, "problems"), str(problems))}
    return frame.assign(gold=frame["item_id"].map(golds))


def read_labels(path: Path) -> dict[tuple[str, str], bool]:
    """Read labels by gold and response. Lines hold gold, label, and the response as `output` or `response`."""
    found: dict[tuple[str, str], bool] = {}
    for number, row in enumerate(read_jsonl(path, "labels"), 1):
        text = row.get("output", row.get("response"))
        if not isinstance(text, str) or not isinstance(row.get("label"), bool) or not row.get("gold"):
            raise CorruptInputError(f"{path}: row {number}: needs gold, output (text) and label (true or false)")
        if found.setdefault((str(row["gold"]).strip(), store.clean(text)), row["label"]) != row["label"]:
            raise CorruptInputError(f"{path}: row {number}: labelled both true and false")
    return found


def judge(pool: Pool, name: str, responses: pd.DataFrame) -> pd.DataFrame:
    """Return the responses with FOUND of a grader; its verdict is None where it has none.

    responses: gold and text, by which a third-party grader judges equal ones once; those of `read` for the other two.
    """
    rows = responses.assign(grader=name)
    if name == TOOL:
        if wrong := [each for each in rows["tool_correct"] if each is not None and not isinstance(each, bool)]:
            raise CorruptInputError(f"samples: tool_correct: {wrong[0]!r}; allowed: true, false, or nothing")
        known = {True: str(Verdict.CORRECT), False: str(Verdict.WRONG)}
        return rows.assign(verdict=rows["tool_correct"].map(known.get), rule="", extracted=None)
    if name != OURS:
        pool.cpu_seconds = OTHERS[name].seconds
        pairs = list(zip(rows["gold"], rows["text"], strict=True))
        tasks = {pair: Task(Gold(pair[0], "symbolic"), pair[1], name) for pair in pairs}
        found: dict[tuple[str, str], tuple[str, str, str | None]] = {}
        for pair, answer in zip(tasks, pool.compare([*tasks.values()]), strict=True):
            if answer.outcome in (Verdict.ERROR, Verdict.TIMEOUT):
                found[pair] = answer.outcome, str(answer.reason), None
            else:
                right, extracted = json.loads(answer.outcome)
                found[pair] = str(Verdict.CORRECT if right else Verdict.WRONG), "", extracted
        rows[list(FOUND)] = pd.DataFrame([found[pair] for pair in pairs], rows.index, FOUND, dtype=object)
    return rows


def unavailable(pool: Pool, names: Iterable[str]) -> dict[str, str]:
    """Return why third-party graders cannot run here, by name."""
    probe = pd.DataFrame({"gold": ["1"], "text": [r"\boxed{1}"]})
    reasons = {name: judge(pool, name, probe)["rule"][0] for name in names if name in OTHERS}
    return {name: reason.removeprefix("MissingInputError: ") for name, reason in reasons.items() if reason}


def accuracy(rows: pd.DataFrame, policy: str) -> dict[str, Any]:
    """Return a row of ACCURACY without its place, of one grader's rows.

    The score is unknown where any verdict is. policy: for copies of a problem (`evals.stats.estimate.policies`).
    """
    ends, known = list(rows["verdict"]), rows.dropna(subset=["verdict", "label"])
    unknown = int(rows["verdict"].isna().sum())
    score = Estimate(level="problem", how=f"unknown for {unknown} responses", n=0)
    if not unknown:
        problem = rows.drop_duplicates("item_id")
        right = (rows["verdict"] == Verdict.CORRECT).to_numpy(bool).reshape(len(problem), -1)
        score = estimate(Samples(tuple(problem["item_id"]), right, tuple(problem["problem"])).column(policy))
    errors = known[(known["verdict"] == Verdict.CORRECT) != known["label"]]["label"].tolist()
    counts = (len(known), errors.count(True), errors.count(False)) if len(known) else (None,) * 3
    return {
        "grader": rows["grader"].iloc[0], "responses": len(rows), "right": ends.count(Verdict.CORRECT),
        "timeout": ends.count(Verdict.TIMEOUT), "error": ends.count(Verdict.ERROR),
        "score": score.value, "low": score.low, "high": score.high, "how": score.how,
        **dict(zip(COUNTS, counts, strict=True)),
    }  # fmt: skip


def compare(
    tree: Tree, out: Path, pool: Pool, *, names: Sequence[str], data: Path, labels: Path | None = None
) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Grade every response of the tree by all graders, write the files, and return their rows and the graders not run.

    Raises ConfigError when no label belongs to a response of the tree, and as `read`.
    """
    given = read_labels(labels) if labels else {}
    table: dict[str, list[Any]] = {"accuracy": [], "differences": []}
    missing = unavailable(pool, names)
    not_run, matched = dict(missing), False
    for at in tree.checkpoints:
        record = tree.layout.grades(at) / "grades.json"
        for benchmark in sorted(store.read_record(record)) if record.is_file() else ():
            place = {"checkpoint": at.path.as_posix(), "benchmark": benchmark}
            responses = read(tree, at, benchmark, data)
            pairs = zip(responses["gold"], responses["text"], strict=True)
            responses["label"] = pd.Series([given.get(pair) for pair in pairs], dtype=object)
            matched |= bool(responses["label"].notna().any())
            found = {name: judge(pool, name, responses) for name in names if name not in missing}
            if TOOL in found and found[TOOL]["verdict"].isna().all():
                del found[TOOL]
                not_run[TOOL] = "no verdicts in the column tool_correct of the samples"
            policy = policies(tree.layout, [benchmark])[benchmark]
            table["accuracy"] += [place | accuracy(rows, policy) for rows in found.values()]
            rows = pd.concat(list(found.values())).sort_index(kind="stable").dropna(subset="verdict")
            differ = (rows["verdict"] == Verdict.CORRECT).groupby(level=0).transform("nunique") > 1
            table["differences"] += rows[differ].assign(**place)[list(DIFFERENCES)].to_dict("records")
    if not table["accuracy"]:
        raise MissingInputError(f"{tree.root}: holds no graded responses")
    if labels and not matched:
        raise ConfigError(f"{labels}: none of its {len(given)} labels is of a response in {tree.root}")
    for name, columns in (("accuracy", ACCURACY), ("differences", DIFFERENCES)):
        write_text(out / f"{name}.csv", to_csv(columns, table[name]))
    return table, not_run


def markdown(table: Mapping[str, Sequence[Mapping[str, Any]]], not_run: Mapping[str, str]) -> str:
    """Render scores, disagreements and agreement with labels as Markdown tables, then the graders not run and why."""
    scores: dict[tuple[object, ...], dict[str, str]] = {}
    labelled = []
    for row in table["accuracy"]:
        place = row["checkpoint"], row["benchmark"]
        value, low, high = ("–" if row[x] is None else f"{100 * row[x]:.1f}" for x in ("score", "low", "high"))
        interval = "" if row["low"] is None else f" [{low}–{high}]"
        scores.setdefault((*place, row["responses"]), {})[row["grader"]] = value + interval
        if total := row["labelled"]:
            counts = [row[name] for name in COUNTS]
            labelled.append((*place, row["grader"], *counts, f"{100 * (1 - sum(counts[1:]) / total):.1f}"))
    names = sorted({row["grader"] for row in table["accuracy"]}, key=GRADERS.index)
    by_response = pd.DataFrame(table["differences"], columns=DIFFERENCES).pivot(
        index=[*PLACE, "item_id", "sample"], columns="grader", values="verdict"
    )
    right, known = by_response == Verdict.CORRECT, by_response.notna()
    alone = {(a, b): int((right[a] & ~right[b] & known[b]).sum()) for a, b in permutations(right, 2)}
    by_place = [[*at, *(of.get(name, "–") for name in names)] for at, of in scores.items()]
    against = [[a, *("" if a == b else alone.get((a, b), 0) for b in names)] for a in names]
    parts = [_table("Score in percent, 95 % interval over problems:", [*PLACE, "responses", *names], by_place)]
    parts += [_table("Responses right by the grader of the row and not by that of the column:", ["", *names], against)]
    if labelled:
        parts += [_table("Against the labels:", [*PLACE, "grader", *COUNTS, "as labelled, percent"], labelled)]
    return "\n".join([*parts, *(f"not run: {name}: {why}" for name, why in sorted(not_run.items()))]).strip()


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [" | ".join(str(cell).replace("|", "/") for cell in row) for row in (heads, ["---"] * len(heads), *rows)]
    return "\n".join([title, "", *(f"| {line} |" for line in lines), ""])


def main() -> int:
    parser = Parser()
    parser.add_argument("tree", type=Path, metavar="TREE", help="folder with samples/ and grades/")
    parser.add_argument("--graders", default=",".join(GRADERS), metavar="A,B", help=f"of {', '.join(GRADERS)}")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="JSONL: gold, output, label (true or false)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of the problems (default: TREE/data)")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"default: TREE/{FOLDER}")
    parser.add_argument("--packages", type=Path, metavar="DIR", help="where other graders search first for packages")
    args = parser.parse_args()
    names = list(dict.fromkeys(name for name in args.graders.split(",") if name))
    check_known("command line", "--graders", names, GRADERS)
    if args.packages and not args.packages.is_dir():
        raise MissingInputError(f"--packages: {args.packages}: no folder there")
    tree, out, data = open_tree(args.tree), args.out or args.tree / FOLDER, args.data or args.tree / "data"
    with Pool(module=WORKER, packages=args.packages) as pool:
        table, not_run = compare(tree, out, pool, names=names, data=data, labels=args.labels)
    print(markdown(table, not_run))
    count = len({tuple(row[name] for name in (*PLACE, "item_id", "sample")) for row in table["differences"]})
    print(f"{count} responses on which graders differ: {out / 'differences.csv'}")
    return 0


if __name__ == "__main__":
    errors.run(main)
