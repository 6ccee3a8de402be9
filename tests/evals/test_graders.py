"""`python -m evals.graders`: the packages' own verdicts, files and labels.

`held_out.jsonl` has responses to 16 golds, two to each, labelled before any grader saw them; an answer without a box is
labelled wrong, as the prompt asks for one.
"""

import json
from pathlib import Path

import pandas as pd
import pytest

from core.files import read_csv, read_jsonl, write_text
from evals import adopt, graders
from evals.grading import Verdict
from evals.grading.pool import Pool
from evals.tree import Tree

LABELS = Path(__file__).parent / "grading" / "held_out.jsonl"
HELD_OUT = read_jsonl(LABELS)
KEY = "mine"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The held-out responses as `evals.adopt` writes them; the tool is right on 31 and has no verdict on the last."""
    folder = tmp_path_factory.mktemp("graders")
    rows = [row | {"correct": row["label"]} for row in HELD_OUT[:-1]] + [HELD_OUT[-1] | {"correct": None}]
    write_text(folder / "model.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    fields = "response=output,sample=@order,correct=correct"
    words = [
        "--from",
        "jsonl",
        str(folder / "model.jsonl"),
        "--benchmark",
        KEY,
        "--out",
        str(folder / "tree"),
        "--fields",
        fields,
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.argv", ["adopt", *words])
        adopt.main()
    return Tree(folder / "tree")


def test_files_agree_with_labels_and_with_a_count_by_hand(tree: Tree) -> None:
    with Pool(module=graders.WORKER) as pool:
        out, data, names = tree.root / "graders", tree.root / "data", ("ours", "exact_match", "tool")
        table, not_run = graders.compare(tree, out, pool, names=names, data=data, labels=LABELS)
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
    assert f"| exact_match | 32 | {missed} | 0 | 53.1 |" in graders.markdown(table, not_run)


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
