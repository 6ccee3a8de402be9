"""`python -m evals.graders`: the packages' own verdicts, files, labels, what is not run, what hangs, what is refused.

`held_out.jsonl` has responses to 16 golds, two to each, labelled before any grader saw them; an answer without a box is
labelled wrong, as the prompt asks for one.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from core.code import Code
from core.errors import BenchError, ConfigError, CorruptInputError
from core.files import read_jsonl, write_json, write_text
from core.layout import Checkpoint
from core.provenance import ROOT, version
from evals import adopt, data, grade, graders, store
from evals.benchmark import definition
from evals.grading import Verdict
from evals.others import OTHERS
from evals.tree import Tree

LABELS = Path(__file__).parent / "grading" / "held_out.jsonl"
HELD_OUT = read_jsonl(LABELS)
AT, KEY = Checkpoint.base("model"), "mine"
QUICK = ("ours", "exact_match", "tool")


def write_tree(folder: Path, rows: Sequence[Mapping[str, Any]]) -> Tree:
    """The tree that `evals.adopt` makes of rows with problem, gold, output and correct: the tool's verdict."""
    (folder / "model.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = ["--from", "jsonl", str(folder / "model.jsonl"), "--benchmark", KEY, "--out", str(folder / "tree")]
    words += ["--fields", "response=output,sample=@order,correct=correct"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.argv", ["adopt", *words])
        adopt.main()
    return Tree(folder / "tree")


def asked(golds: Sequence[str], texts: Sequence[str]) -> pd.DataFrame:
    keys = [graders.key(*pair) for pair in zip(golds, texts, strict=True)]
    return pd.DataFrame({"gold": golds, "text": texts, "key": keys}, dtype=object)


def compared(tree: Tree, names: Sequence[str], labels: Path | None = None) -> Any:
    with graders.Judges(names) as judges:
        out = tree.root / graders.FOLDER
        return graders.compare(tree, out, judges, names=names, data=tree.root / "data", labels=labels)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The held-out responses, compared by QUICK; the tool is right on 31 and has no verdict on the last."""
    rows = [row | {"correct": row["label"]} for row in HELD_OUT[:-1]] + [HELD_OUT[-1] | {"correct": None}]
    made = write_tree(tmp_path_factory.mktemp("graders"), rows)
    compared(made, QUICK, LABELS)
    return made


def table(tree: Tree, name: str) -> pd.DataFrame:
    return pd.read_csv(tree.root / graders.FOLDER / f"{name}.csv", keep_default_na=False)


def verdicts(tree: Tree) -> pd.DataFrame:
    """By item and sample in the order of the files, a column per grader."""
    folder = tree.root / graders.FOLDER / AT.path
    entry = store.read_record(folder / graders.RECORD)[KEY]
    long = store.read_table(folder / f"{KEY}.parquet", graders.VERDICTS, entry).to_pandas()
    return long.pivot(index=["item_id", "sample"], columns="grader", values="verdict")


def test_files_agree_with_labels_with_each_other_and_with_a_count_by_hand(tree: Tree) -> None:
    found, rows = verdicts(tree), table(tree, "accuracy").set_index("grader")
    labels = {(data.item_id(row["problem"]), n % 2): row["label"] for n, row in enumerate(HELD_OUT)}
    right = found == Verdict.CORRECT
    for name in ("ours", "exact_match"):
        errors = Counter((labels[place], right[name][place]) for place in labels)
        wanted = {"labelled": 32, "right_called_wrong": errors[True, False], "wrong_called_right": errors[False, True]}
        assert rows.loc[name, list(wanted)].map(int).to_dict() == wanted
        assert float(rows.loc[name, "score"]) == right[name].mean()
        assert float(rows.loc[name, "low"]) < right[name].mean() < float(rows.loc[name, "high"])
    assert rows.loc["ours", ["right_called_wrong", "wrong_called_right"]].map(int).tolist() == [0, 0]
    assert rows.loc["exact_match", "right_called_wrong"] > 10  # no algebra
    assert (rows.loc["tool", "score"], rows.loc["tool", "how"]) == ("", "unknown for 1 responses")  # and not as wrong
    pairs = table(tree, "pairs").set_index(["a", "b"])
    assert pairs.loc[("ours", "exact_match"), "a_alone"] == (right["ours"] & ~right["exact_match"]).sum()
    assert pairs.loc[("ours", "tool"), ["responses", "a_alone", "b_alone"]].tolist() == [31, 0, 0]
    differing = table(tree, "differences")
    places = [place for place in labels if len(set(right.loc[place][found.loc[place].notna()])) > 1]
    assert set(zip(differing["item_id"], differing["sample"], strict=True)) == set(places)
    ours = differing[(differing["gold"] == r"2\sqrt{3}") & (differing["grader"] == "ours")].iloc[0]
    assert ours[["verdict", "rule", "extracted"]].tolist() == ["correct", "symbolic", r"\sqrt{12}"]


def test_third_party_graders_are_not_code_of_the_grades() -> None:
    assert "evals/grading/decide.py" in Code("grade").files
    assert "evals/others.py" not in Code("grade").files


def test_what_cannot_run_is_named(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, [HELD_OUT[n] | {"correct": None} for n in [10] * 6 + [18] * 6])
    found, not_run = compared(tree, ("ours", "minerva", "exact_match", "tool"))
    assert {row["responses"] for row in found["accuracy"]} == {12}
    assert not_run.pop("tool") == "no verdicts in the column tool_correct of the samples"
    wanted = {} if str(version("antlr4-python3-runtime")).startswith("4.11") else {"minerva"}
    assert not_run.keys() == set(wanted)
    assert all("antlr4-python3-runtime==4.11" in reason for reason in not_run.values())
    assert {row["grader"] for row in found["accuracy"]} == {"ours", "minerva", "exact_match"} - set(wanted)


@pytest.mark.slow
def test_each_verdict_is_what_the_package_itself_says(tmp_path: Path) -> None:
    """Called here as its users call it, in the main thread with its own time limits."""
    import math_verify
    from lm_eval.tasks.aime.utils import process_results

    rows = HELD_OUT
    if (outputs := ROOT.parent / "shared" / "data" / "outputs" / "qwen25math_math25x8.jsonl").is_file():
        rows = rows + [row for n, row in enumerate(read_jsonl(outputs)) if n % 8 < 2]
    own = {
        "math_verify": lambda g, t: math_verify.verify(math_verify.parse(f"\\boxed{{{g}}}"), math_verify.parse(t)),
        "exact_match": lambda g, t: process_results({"answer": g}, [t])["exact_match"] == 1,
    }
    golds, texts = ([row[name] for row in rows] for name in ("gold", "output"))
    responses = asked(golds, texts)
    with graders.Judges(own) as judges:
        assert judges.not_run == {}
        verdicts = {name: judges.judge(name, responses)["verdict"] for name in own}
    for name, call in own.items():
        found = list(verdicts[name] == Verdict.CORRECT)
        assert found == [bool(call(*pair)) for pair in zip(golds, texts, strict=True)], name
        assert 0 < sum(found) < len(found)


HOSTILE = (
    r"\boxed{" + "(" * 30000 + "}",
    r"\boxed{\frac{" * 5000,
    r"\boxed{9^{9^{9^{9^{9}}}}}",
    r"\boxed{\int_0^7 e^{x^{x}}dx + \sum_{n=1}^{10^{9}} \frac{1}{n^n}}",
    "$" * 20000 + r"\text{" * 5000,
    "9**9**9**9**9**9 " * 20,
    "\x00\u202e\ud800\\boxed{7",
)


@pytest.mark.slow
def test_hostile_answers_end_in_a_verdict_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, other in OTHERS.items():
        monkeypatch.setitem(OTHERS, name, dataclasses.replace(other, seconds=0.5))
    texts = [text for hostile in HOSTILE for text in (hostile, f"\\boxed{{7}} of {len(hostile)}")]
    responses = asked(["7"] * len(texts), texts)
    with graders.Judges(OTHERS) as judges:
        found = {name: list(judges.judge(name, responses).itertuples(index=False)) for name in judges.names}
        for name, ends in found.items():
            assert {verdict for verdict, *_ in ends[1::2]} == {"wrong" if name == "minerva" else "correct"}
            assert not any(verdict == "correct" for verdict, *_ in ends[::2]), name
            assert all(reason for verdict, reason, _ in ends if verdict in ("timeout", "error"))
    assert any(verdict == "timeout" for verdict, *_ in found["math_verify"])


def test_what_the_command_refuses_is_one_line(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, files = {"gold": "7", "output": "\\boxed{7}", "label": True}, []
    for number, rows in enumerate(([row], [row, row | {"label": False}], [row | {"label": "yes"}])):
        files.append(tmp_path / f"labels{number}.jsonl")
        files[-1].write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    for text, arguments in {
        "nearest: minerva": (tree.root, "--graders", "ours,minerv"),
        "holds no graded responses": (ROOT / "results" / "reference" / "beyond", "--graders", "ours"),
        "set --data to the folder that holds them": (tree.root, "--graders", "ours", "--data", tmp_path),
        "none of its 1 labels": (tree.root, "--graders", "ours", "--labels", files[0], "--out", tmp_path),
        "row 2: labelled both": (tree.root, "--graders", "ours", "--labels", files[1], "--out", tmp_path),
        "row 1: needs gold, output": (tree.root, "--graders", "ours", "--labels", files[2], "--out", tmp_path),
    }.items():
        monkeypatch.setattr("sys.argv", ["graders", *map(str, arguments)])
        with pytest.raises(BenchError, match=text) as caught:
            graders.main()
        assert "\n" not in str(caught.value)


def test_a_gold_that_cannot_be_read_is_named_with_its_benchmark_and_item(tmp_path: Path) -> None:
    (item,) = data.items([{"problem": "1 + 1?", "answer": "2", "tolerance": "much"}])
    write_text(tmp_path / f"{KEY}.jsonl", data.text([item]))
    write_json(definition(tmp_path, KEY), {"title": "", "tool": "", "n": 1, "sha256": data.content_sha256([item])})
    row = dict.fromkeys(store.SAMPLES, "") | {"item_id": item.item_id, "sample": 0, "tokens": None, "seed": 1}
    digest = store.write_samples(tmp_path / f"{KEY}.parquet", [row])
    write_json(tmp_path / "samples.json", {"benchmarks": {KEY: {"sha256": digest, "rows": 1}}})
    with pytest.raises(ConfigError, match=f"^{KEY}: item {item.item_id}: item: tolerance: 'much' is not a number$"):
        grade.grade(tmp_path, tmp_path, tmp_path / "grades")


def test_golds_of_other_items_are_refused(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, [row | {"correct": None} for row in HELD_OUT[:4]])
    path = tree.root / "data" / f"{KEY}.jsonl"
    write_text(path, path.read_text(encoding="utf-8").replace('"answer": "', '"answer": "1', 1))
    with pytest.raises(CorruptInputError, match=r"mine\.jsonl: not the problems that .*samples\.json was made from"):
        compared(tree, ("ours",))
