"""Companion files of the page, vendored files, the page's script."""

import base64
import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from core.errors import CorruptInputError
from core.files import write_text
from core.layout import Checkpoint, Run
from core.provenance import ROOT, sha256_file
from evals.tree import Tree
from report import page, responses
from tests.browser import invented
from tests.report.finished import replace

TEPO = Checkpoint(Run("tiny_qwen2", "tepo", 1), 12)


@pytest.fixture
def written(scored_copy: Tree) -> tuple[Tree, Path]:
    folder = scored_copy.root / responses.FOLDER
    responses.write(scored_copy, scored_copy.root, None)
    return scored_copy, folder


def unpacked(folder: Path, name: str) -> Any:
    """The value of a companion file, as the page reads it."""
    script = (folder / f"{name}.js").read_text(encoding="ascii")
    written_for, packed = json.loads("[" + script.removeprefix("bench.arrived(").removesuffix(");\n") + "]")
    assert written_for == name
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_golds_are_those_of_the_problems_asked_and_notation_is_explained(
    scored: Tree, scored_copy: Tree, tmp_path: Path
) -> None:
    data = Path(shutil.copytree(scored.root.parent / "cache/benchmarks", tmp_path / "data"))
    responses.write(scored_copy, scored_copy.root, data)
    for key, notation in (("syn_mix3", " (modulo 10, from left to right)"), ("syn_add2q", "")):
        ((_, problem, gold),) = unpacked(scored_copy.root / responses.FOLDER, f"problems/{key}")
        assert (problem, gold) == (f"an invented item of {key}{notation}", "1")
    path = data / "syn_as3.jsonl"
    write_text(path, '{"problem": "one", "answer": "2"}\n')
    with pytest.raises(CorruptInputError, match=rf"{path}: not the problems that .*json was made from; set --data"):
        responses.write(scored_copy, scored_copy.root, data)


def test_every_response_with_its_grade_is_in_the_companion_files(
    scored_copy: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several files, which are split where an item ends."""
    monkeypatch.setattr(responses, "TEXT_BYTES", 100)
    responses.write(scored_copy, scored_copy.root, None)
    folder, letters = scored_copy.root / responses.FOLDER, responses.LETTERS
    for benchmark in ("syn_as3", "syn_mix3"):
        name = f"samples/{TEPO.path.as_posix()}/{benchmark}"
        index = unpacked(folder, name)["items"]
        grades, samples = (
            pq.read_table(layout(TEPO) / f"{benchmark}.parquet").to_pylist()
            for layout in (scored_copy.layout.grades, scored_copy.layout.samples)
        )
        verdicts = {(row["item_id"], row["sample"]): row["verdict"] for row in grades}
        files = {item["file"] for item in index}
        assert files == set(range(len(files)))
        assert len(files) > 5
        shown = {}
        for item in index:
            prompt, texts = unpacked(folder, f"{name}.{item['file']}")[item["place"]]
            for sample, (text, letter) in enumerate(zip(texts, item["verdicts"], strict=True)):
                shown[item["id"], sample] = prompt, text
                assert letter == letters[verdicts[item["id"], sample]]
        assert shown == {(row["item_id"], row["sample"]): (row["prompt"], row["response"]) for row in samples}


def test_equal_results_give_equal_files(written: tuple[Tree, Path]) -> None:
    tree, folder = written
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (folder / "problems/left from earlier.js").write_text("")
    (folder / "math.js").write_text("damaged")
    responses.write(tree, tree.root, None)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_bytes_that_are_not_text_become_escapes_and_of_4_mb_the_two_ends_are_shown(scored_copy: Tree) -> None:
    invented.hostile(scored_copy.root)
    checkpoint, benchmark = invented.STRUCK
    texts = responses.read(scored_copy, checkpoint, benchmark)["response"].tolist()
    assert {invented.HOSTILE.decode(), r"broken \xff\xfe here, cut \xe2\x82"} <= set(texts)
    responses.write(scored_copy, scored_copy.root, None)
    folder, name = scored_copy.root / responses.FOLDER, f"samples/{checkpoint.path.as_posix()}/{benchmark}"
    shown = unpacked(folder, f"{name}.0")[2][1][0]
    long = invented.LONG.decode()
    assert len(shown) < responses.HEAD + responses.TAIL + 100
    assert (shown[: responses.HEAD], shown[-9:]) == (long[: responses.HEAD], long[-9:])
    assert "4,140,000 of 4,200,000 characters left out" in shown


def test_grades_of_other_samples_are_an_error_that_leaves_the_old_files(written: tuple[Tree, Path]) -> None:
    """A missing or damaged parquet: tests/evals/stats/test_score.py."""
    tree, folder = written
    before = sorted(folder.rglob("*"))
    replace(tree.layout.samples(TEPO) / "samples.json", r'"sha256": "\w+"', '"sha256": "other"')
    with pytest.raises(CorruptInputError, match="these grades are of other samples"):
        responses.write(Tree(tree.root), tree.root, None)
    assert sorted(folder.rglob("*")) == before
    assert [path.name for path in tree.root.glob(".report.data*")] == []


@pytest.mark.parametrize("folder", [responses.VENDOR, ROOT / "tests/browser"])
def test_vendored_files_are_as_published(folder: Path) -> None:
    for package, entry in json.loads((folder / "record.json").read_text()).items():
        there = {path.relative_to(folder / package).as_posix() for path in (folder / package).rglob("*.*")}
        assert there | {"LICENSE"} == set(entry["files"])
        assert {file: sha256_file(folder / package / file) for file in entry["files"]} == entry["files"]


def test_the_script_never_makes_markup_of_text() -> None:
    banned = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "var ")
    text = (page.HTML / "page.js").read_text(encoding="utf-8")
    assert '"use strict";' in text.splitlines()[1]
    assert [word for word in banned if word in re.sub(r"`[^`]*`", "", text)] == []
    assert not re.search(r"https?://", text)
