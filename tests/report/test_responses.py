"""Companion files of the page, vendored files, the page's script."""

import base64
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from core.errors import ConfigError, CorruptInputError
from core.files import write_text
from core.layout import Checkpoint, Run
from core.provenance import ROOT, sha256_file
from evals.tree import Tree
from report import responses
from tests.browser import invented
from tests.report.finished import replace

TEPO = Checkpoint(Run("tiny_qwen2", "tepo", 1), 12)


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
    folder = scored_copy.root / responses.FOLDER
    name = f"samples/{TEPO.path.as_posix()}/syn_as3"
    index = unpacked(folder, name)["items"]
    assert len(files := {item["file"] for item in index}) == max(files) + 1 > 5
    shown = {}
    for item in index:
        prompt, texts = unpacked(folder, f"{name}.{item['file']}")[item["place"]]
        for sample, found in enumerate(zip(texts, item["verdict"], strict=True)):
            shown[item["id"], sample] = prompt, *found
    verdicts = {}
    for row in pq.read_table(scored_copy.layout.grades(TEPO) / "syn_as3.parquet").to_pylist():
        verdicts[row["item_id"], row["sample"]] = row["verdict"]
    for row in pq.read_table(scored_copy.layout.samples(TEPO) / "syn_as3.parquet").to_pylist():
        place = row["item_id"], row["sample"]
        assert shown.pop(place) == (row["prompt"], row["response"], verdicts[place])
    assert shown == {}


def test_equal_results_give_equal_files_and_an_error_leaves_them(scored_copy: Tree) -> None:
    """A missing or damaged parquet: tests/evals/stats/test_score.py."""
    folder = scored_copy.root / responses.FOLDER
    responses.write(scored_copy, scored_copy.root, None)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (folder / "problems/left from earlier.js").write_text("")
    (folder / "math.js").write_text("of an older page")
    responses.write(scored_copy, scored_copy.root, None)
    replace(scored_copy.layout.samples(TEPO) / "samples.json", r'"sha256": "\w+"', '"sha256": "other"')
    with pytest.raises(CorruptInputError, match="these grades are of other samples"):
        responses.write(Tree(scored_copy.root), scored_copy.root, None)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert [path.name for path in scored_copy.root.glob(".report.data*")] == []


def test_bytes_that_are_not_text_become_escapes_and_4_mb_stand_whole_in_a_file_beside(scored_copy: Tree) -> None:
    invented.hostile(scored_copy.root)
    checkpoint, benchmark = invented.STRUCK
    texts = responses.evaluated(scored_copy)[checkpoint][benchmark].rows()["response"].tolist()
    assert {invented.HOSTILE.decode(), r"broken \xff\xfe here, cut \xe2\x82"} <= set(texts)
    responses.write(scored_copy, scored_copy.root, None)
    folder, name = scored_copy.root / responses.FOLDER, f"samples/{checkpoint.path.as_posix()}/{benchmark}"
    items = unpacked(folder, name)["items"]
    (item,) = (item for item in items if "whole" in item)
    (place, whole), long = next(iter(item["whole"].items())), invented.LONG.decode()
    assert (folder / whole).read_text(encoding="utf-8-sig") == long
    shown = unpacked(folder, f"{name}.{item['file']}")[item["place"]][1][int(place)]
    assert len(shown) < responses.HEAD + responses.TAIL + 100
    assert (shown[: responses.HEAD], shown[-9:]) == (long[: responses.HEAD], long[-9:])
    assert "4,140,000 of 4,200,000 characters left out" in shown
    responses.write(scored_copy, scored_copy.root, None)  # the file is one of its own, and replaced


@pytest.mark.parametrize("folder", [responses.VENDOR, ROOT / "tests/browser"])
def test_vendored_files_are_as_published(folder: Path) -> None:
    for package, entry in json.loads((folder / "record.json").read_text()).items():
        there = {path.relative_to(folder / package).as_posix() for path in (folder / package).rglob("*.*")}
        assert there | {"LICENSE"} == set(entry["files"])
        assert {file: sha256_file(folder / package / file) for file in entry["files"]} == entry["files"]


def test_a_users_file_is_not_removed(scored_copy: Tree) -> None:
    responses.write(scored_copy, scored_copy.root, None)
    path = scored_copy.root / responses.FOLDER / "notes.txt"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="move it away"):
        responses.write(scored_copy, scored_copy.root, None)
    assert path.read_text() == "mine"
