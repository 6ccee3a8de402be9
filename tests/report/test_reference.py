"""A reference: small, whole, without a trace of the machine, and read by every command that reads results."""

import io
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from core.errors import ConfigError, CorruptInputError
from core.files import write_json
from core.provenance import ROOT, sha256_file
from evals.tree import ARCHIVE, MANIFEST, Tree
from report import compare, manifest, page, reference, responses, show, verify
from tests.report.conftest import Command, write_files
from tests.report.finished import edit, replace

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(scored: Tree, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A finished tree with a table, figures, a page and a manifest."""
    root = tmp_path_factory.mktemp("checkout") / "results"
    tree = Tree(Path(shutil.copytree(scored.root.parent, root)) / "quick")
    write_files(tree)
    tree.layout.report.write_text("<!doctype html>")
    return anew(tree.root)


@pytest.fixture
def source(whole: Tree, tmp_path: Path) -> Path:
    """The root of a copy to change."""
    return Path(shutil.copytree(whole.root.parent, tmp_path / "results")) / "quick"


@pytest.fixture(scope="module")
def made(whole: Tree, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reference that no test changes."""
    out = tmp_path_factory.mktemp("made") / "reference/quick"
    reference.make(whole, out)
    return out


def anew(root: Path) -> Tree:
    """The tree after a change, with a new manifest."""
    write_json(root / MANIFEST, manifest.build(Tree(root)))
    return Tree(root)


def test_it_keeps_what_a_visitor_needs_and_reads_as_the_tree(whole: Tree, made: Path) -> None:
    beside = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()}
    assert {ARCHIVE, "README.md", "tables/table1.md", "figures/figure2.png"} <= beside
    assert {Path(name).suffix for name in beside} == {".xz", ".md", ".png"}
    tree = Tree(made)
    assert (tree.kept, tree.root.name) == (made, "quick")
    inside = {path.relative_to(tree.root).as_posix() for path in tree.root.rglob("*") if path.is_file()}
    assert inside >= {"matrix.json", "scores.csv", "tables/table1.tidy.csv", "figures/figure2.svg", "responses.parquet"}
    assert not [name for name in inside if name.startswith(("samples/", "grades/")) or name.endswith((".pdf", ".tex"))]
    assert tree.finished == whole.finished
    for run in whole.finished:
        assert tree.record(run) == whole.record(run)
    assert verify.problems(tree) == []
    # The same problems of every checkpoint, the first responses to each, with verdicts as in the grades.
    asked = set()
    for checkpoint in whole.checkpoints:
        sampled, every = (responses.evaluated(one)[checkpoint]["syn_mix3"].rows() for one in (tree, whole))
        asked.add(tuple(sorted(set(sampled["item_id"]))))
        first = every[every["item_id"].isin(sampled["item_id"]) & (every["sample"] < 4)]
        first = first.sort_values(["item_id", "sample"])
        for column in ("prompt", "response", "stop", "tokens", "verdict", "extracted", "rule"):
            assert sampled[column].tolist() == first[column].tolist(), column
    assert [len(items) for items in asked] == [20]
    assert 'id="sampled">This is a sample: up to 20 problems' in page.build(tree)


def test_equal_trees_give_equal_archives_and_a_sample_that_does_not_fit_is_smaller(
    whole: Tree, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "reference/quick"
    before = sum(reference.make(whole, out).values())
    assert sha256_file(out / ARCHIVE) == sha256_file(made / ARCHIVE)
    (out / "tables/table1.md").write_text("edited")
    assert [line.partition(": sha256")[0] for line in verify.problems(Tree(out))] == ["differs: tables/table1.md"]
    monkeypatch.setattr(reference, "LIMIT", before - 1)
    assert sum(reference.make(whole, out).values()) < before
    monkeypatch.setattr(reference, "LIMIT", 5_000)
    with pytest.raises(ValueError, match=r"bytes would be kept, 5,000 may be; \w+"):
        reference.make(whole, out)
    assert verify.problems(Tree(out)) == []  # the earlier one is still there


def test_a_damaged_archive_is_one_line_and_leaves_nothing_in_the_cache(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = Path(shutil.copytree(made, tmp_path / "quick"))
    data = (root / ARCHIVE).read_bytes()
    half = len(data) // 2
    for damaged in (b"", data[:-9], data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :]):
        (root / ARCHIVE).write_bytes(damaged)
        with pytest.raises(CorruptInputError, match=r"tree\.tar\.xz: damaged \(.*; restore it") as error:
            Tree(root)
        assert "\n" not in str(error.value)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    outside = io.BytesIO()
    with tarfile.open(fileobj=outside, mode="w:xz") as tar:
        tar.addfile(tarfile.TarInfo("../outside"))
    (root / ARCHIVE).write_bytes(outside.getvalue())
    with pytest.raises(CorruptInputError, match="outside"):
        Tree(root)


TYPED = {"show": show.main, "page": page.main, "compare": compare.main, "verify": verify.main}


KEPT = ("embedded", "smollm")


@pytest.mark.parametrize("name", KEPT)
def test_every_command_of_a_kept_readme_works_as_typed_and_leaves_the_reference_as_it_is(
    name: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "results/reference" / name, tmp_path / "results/reference" / name)
    for other in {*KEPT} - {name}:
        (tmp_path / "results/reference" / other).symlink_to(ROOT / "results/reference" / other)
    monkeypatch.chdir(tmp_path)
    text = Path(f"results/reference/{name}/README.md").read_text(encoding="utf-8")
    typed = re.findall(r"^    python -m report\.(\w+) (.*)$", text, re.MULTILINE)
    assert [module for module, _ in typed] == list(TYPED)
    for module, arguments in typed:
        code, out, err = command(TYPED[module], *arguments.split())
        # Of one's own results there are none yet: the kept ones of that scale may be of another processor.
        assert code == ("verdict: MOVED" in out), (module, out, err)
        assert (err != "") == (module == "compare"), err
    assert (tmp_path / "results/pages" / name / "report.html").is_file()
    assert "everything stands" in out


def test_doubtful_trees_are_refused(source: Path, tmp_path: Path, command: Command) -> None:
    shutil.rmtree(source / "grades/tiny_qwen2/tepo")
    replace(source / "scores.csv", r"(?:tiny_qwen2,tepo,.*\n)+", "")
    replace(source / "runs/tiny_qwen2/tepo/seed1/run.json", '"dirty": false', '"dirty": true')
    anew(source)
    arguments = "--results", source, "--out", tmp_path / "reference/quick"
    words = "made with uncommitted changes; 1 checkpoints missing, first tiny_qwen2/tepo/seed1"
    code, _, err = command(reference.main, *arguments)
    assert (code, words in err, arguments[-1].exists()) == (2, True, False), err


def test_what_should_not_be_published_is_refused(source: Path, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "reference"
    replace(source / "tables/table1.md", "^", f"made in {source.parent.parent}/here\n")
    anew(source)
    for words in ("table1.md: contains a path of this machine", "differs: matrix.json"):
        code, _, err = command(reference.main, "--results", source, "--out", out / "quick")
        assert (code, words in err) == (2, True), err
        assert not out.exists() or not any(out.iterdir())
        edit(source / "matrix.json", title="edited after the manifest")


def test_it_replaces_nothing_but_an_earlier_reference(whole: Tree, made: Path, tmp_path: Path) -> None:
    """That it replaces one: `test_equal_trees_...` makes it twice."""
    mine, results = (Path(shutil.copytree(of, tmp_path / of.name / "mine")) for of in (made, whole.root.parent))
    (mine / "mine.txt").write_text("?")
    (link := tmp_path / "link").symlink_to(made)
    before = sorted(tmp_path.rglob("*"))
    for out in (mine, results / "quick", link):
        with pytest.raises(ConfigError, match=r"holds files that are not a reference|is not a folder"):
            reference.make(whole, out)
    assert sorted(tmp_path.rglob("*")) == before
