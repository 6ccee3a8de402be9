"""`python -m evals.graders`: the packages' own verdicts, files, labels, what is not run, what hangs, what is refused.

`held_out.jsonl` has responses to 16 golds, two to each, labelled before any grader saw them; an answer without a box is
labelled wrong, as the prompt asks for one.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from core.errors import BenchError
from core.files import read_csv, read_jsonl
from core.provenance import ROOT
from evals import adopt, graders
from evals.grading import Verdict
from evals.grading.pool import Pool
from evals.others import OTHERS
from evals.tree import Tree
from tests.evals.grading.test_pool import HOSTILE, PROOF

LABELS = Path(__file__).parent / "grading" / "held_out.jsonl"
HELD_OUT = read_jsonl(LABELS)
KEY = "mine"


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The held-out responses as `evals.adopt` writes them; the tool is right on 31 and has no verdict on the last."""
    folder = tmp_path_factory.mktemp("graders")
    rows = [row | {"correct": row["label"]} for row in HELD_OUT[:-1]] + [HELD_OUT[-1] | {"correct": None}]
    path = str(write_lines(folder / "model.jsonl", rows))
    fields = "response=output,sample=@order,correct=correct"
    words = ["--from", "jsonl", path, "--benchmark", KEY, "--out", str(folder / "tree"), "--fields", fields]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.argv", ["adopt", *words])
        adopt.main()
    return Tree(folder / "tree")


def test_files_agree_with_labels_and_with_a_count_by_hand(tree: Tree) -> None:
    with Pool(module=graders.WORKER) as pool:
        out, data, names = tree.root / "graders", tree.root / "data", ("ours", "exact_match", "tool")
        table, not_run = graders.compare(tree, out, pool, names=names, data=data, labels=LABELS)
        for reason in graders.unavailable(pool, ["minerva"]).values():  # it needs another antlr4 than ours
            assert "antlr4-python3-runtime==4.11" in reason
    accuracy, differences = (
        read_csv(out / f"{name}.csv", name, columns)
        for name, columns in (("accuracy", graders.ACCURACY), ("differences", graders.DIFFERENCES))
    )
    rows = {row["grader"]: [row[name] for name in ("right", "score", *graders.COUNTS)] for row in accuracy}
    missed = 15  # of 23 labelled right by exact_match, which has no algebra
    assert rows["ours"] == ["23", "0.71875", "32", "0", "0"]
    assert rows["exact_match"] == [str(23 - missed), "0.25", "32", str(missed), "0"]
    assert rows["tool"] == ["22", "", "31", "0", "0"]  # its missing verdict is unknown, and not wrong
    assert accuracy[2]["how"] == "unknown for 1 responses"
    assert (len(differences), {row["label"] for row in differences}) == (3 * missed - 1, {"True"})
    (ours,) = (row for row in differences if (row["gold"], row["grader"]) == (r"2\sqrt{3}", "ours"))
    assert [ours[name] for name in graders.FOUND] == ["correct", "symbolic", r"\sqrt{12}"]
    text = graders.markdown(table, not_run)
    assert f"| ours |  | {missed} | 0 |" in text
    assert f"| exact_match | 32 | {missed} | 0 | 53.1 |" in text


@pytest.mark.slow
def test_each_verdict_is_what_the_package_itself_says() -> None:
    """Called here as its users call it, in the main thread with its own time limits."""
    import math_verify
    from lm_eval.tasks.aime.utils import process_results

    own = {
        "math_verify": lambda g, t: math_verify.verify(math_verify.parse(f"\\boxed{{{g}}}"), math_verify.parse(t)),
        "exact_match": lambda g, t: process_results({"answer": g}, [t])["exact_match"] == 1,
    }
    responses = pd.DataFrame(HELD_OUT).rename(columns={"output": "text"})
    with Pool(module=graders.WORKER) as pool:
        assert graders.unavailable(pool, own) == {}
        for name, call in own.items():
            found = list(graders.judge(pool, name, responses)["verdict"] == Verdict.CORRECT)
            assert found == [bool(call(row["gold"], row["output"])) for row in HELD_OUT], name
            assert 0 < sum(found) < len(found)


@pytest.mark.slow
def test_hostile_answers_end_in_a_verdict_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, other in OTHERS.items():
        monkeypatch.setitem(OTHERS, name, dataclasses.replace(other, seconds=0.5))
    texts = [text for name, hostile in HOSTILE.items() for text in (f"\\boxed{{{hostile}}}", rf"{name}: \boxed{{7}}")]
    responses = pd.DataFrame([("7", text) for text in texts], columns=["gold", "text"], dtype=object)
    with Pool(module=graders.WORKER) as pool:
        for name in OTHERS.keys() - graders.unavailable(pool, OTHERS):
            found = graders.judge(pool, name, responses)
            assert set(found["verdict"][1::2]) == {"wrong" if name == "minerva" else "correct"}
            assert not set(found["verdict"][::2]) & {"correct"}, name
            assert all(found["rule"][found["verdict"].isin(("timeout", "error"))])
            assert "timeout" in set(found["verdict"]) or name != "math_verify"
    assert not PROOF.exists()


def test_what_the_command_refuses_is_one_line(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"gold": "7", "output": "\\boxed{7}", "label": True}
    labels = [
        write_lines(tmp_path / f"labels{number}.jsonl", rows)
        for number, rows in enumerate(([row], [row, row | {"label": False}], [row | {"label": "yes"}]))
    ]
    golds = (tree.root / "data" / f"{KEY}.jsonl").read_text(encoding="utf-8")
    (tmp_path / f"{KEY}.jsonl").write_text(golds.replace('"answer": "', '"answer": "1', 1), encoding="utf-8")
    for text, arguments in {
        "holds no graded responses": (ROOT / "results" / "reference" / "beyond", "--graders", "ours"),
        "mine.jsonl: not the problems that .*grades.json was made from; set --data": (tree.root, "--data", tmp_path),
        "none of its 1 labels": (tree.root, "--labels", labels[0]),
        "row 2: labelled both": (tree.root, "--labels", labels[1]),
        "row 1: needs gold, output": (tree.root, "--labels", labels[2]),
    }.items():
        more = () if "--graders" in arguments else ("--graders", "ours", "--out", tmp_path)
        monkeypatch.setattr("sys.argv", ["graders", *map(str, (*arguments, *more))])
        with pytest.raises(BenchError, match=text) as caught:
            graders.main()
        assert "\n" not in str(caught.value)
