"""A reference: small, whole, without a trace of the machine, and read by every command that reads results."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from records import files
from records.errors import BenchError
from records.files import write_json
from records.provenance import ROOT
from records.results_tree import Tree
from report import build, compare, figure, reference, show, table, verify
from report.provenance import manifest
from report.site import samples
from tests.report import synthetic
from tests.report.conftest import write_files
from tests.report.finished import COMMIT, edit, finish, rehash, replace

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A finished tree with a table, figures, a page and a manifest."""
    root = tmp_path_factory.mktemp("checkout") / "results/quick"
    tree = finish(Tree(synthetic.write_tree(root)))
    write_files(tree)
    tree.layout.report.write_text("<!doctype html>")
    write_json(root / manifest.NAME, manifest.build(tree))
    return tree


@pytest.fixture
def source(whole: Tree, tmp_path: Path) -> Path:
    """The root of a copy to change."""
    return Path(shutil.copytree(whole.root.parent, tmp_path / "results")) / "quick"


@pytest.fixture
def made(whole: Tree, tmp_path: Path) -> Path:
    reference.make(whole, tmp_path / "reference/quick")
    return tmp_path / "reference/quick"


def anew(root: Path) -> Tree:
    """The tree after a change, with a manifest that knows of it."""
    rehash(root)
    write_json(root / manifest.NAME, manifest.build(Tree(root)))
    return Tree(root)


def test_it_keeps_what_a_visitor_needs_and_nothing_large(whole: Tree, made: Path) -> None:
    names = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()}
    run = "runs/tiny_qwen2/tepo/seed1"
    assert names >= {"matrix.json", "scores.csv", "tables/table1.csv", "figures/figure2.svg", "figures/figure2.png",
                     "report.html", f"{run}/curve.csv.gz", f"{run}/run.json", "manifest.json", "README.md"}  # fmt: skip
    assert not [name for name in names if name.endswith(".parquet") or "checkpoints" in name or "state/" in name]
    for name in {name for name in names if not name.startswith("responses/")} - {"manifest.json", "README.md"}:
        assert files.content(made / name) == (whole.root / name.removesuffix(".gz")).read_bytes()


def test_it_keeps_a_sample_of_the_responses_that_its_page_shows(whole: Tree, made: Path) -> None:
    """The same problems of every checkpoint, the first responses to each, with verdicts as in the grades."""
    tree = Tree(made)
    assert list(samples.evaluated(tree)) == whole.checkpoints
    asked = set()
    for checkpoint in whole.checkpoints:
        kept = {item.id: item for item in samples.read(tree, checkpoint, "syn_mix3")}
        every = {item.id: item for item in samples.read(whole, checkpoint, "syn_mix3")}
        assert len(kept) == min(samples.PROBLEMS, len(every))
        for id, item in kept.items():
            assert item.prompt == every[id].prompt
            assert item.responses == every[id].responses[: samples.RESPONSES]
        asked.add(tuple(kept))
    assert len(asked) == 1
    page = build.build(made)
    assert 'id="sampled">This is a sample: up to 20 problems' in page
    assert "samples?left=tiny_qwen2/tepo/seed1/step12" in page
    assert samples.view(whole)["sample"] is None


def test_the_sample_has_the_golds_of_the_benchmarks(
    whole: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = min(item.id for item in samples.read(whole, whole.checkpoints[0], "syn_mix3"))
    given = [[first, "8+3 modulo 10?", "1"]]
    monkeypatch.setattr(samples, "_problems", lambda key, data: given if data and key == "syn_mix3" else [])
    reference.make(whole, tmp_path / "reference/quick")  # finds the data by the manifest's inputs
    tree = Tree(tmp_path / "reference/quick")
    known = samples._known(tree, samples.evaluated(tree), "syn_mix3")
    assert known == given
    assert len(samples._known(tree, samples.evaluated(tree), "syn_mix2")) == 0


@pytest.mark.parametrize("damage", [b"", gzip.compress(b"[]", mtime=0)], ids=["empty", "of another shape"])
def test_a_damaged_sample_is_named(damage: bytes, made: Path) -> None:
    path = made / "responses/tiny_qwen2/tepo/seed1/step12" / samples.SAMPLED
    path.write_bytes(damage)
    with pytest.raises(BenchError, match=re.escape(f"{path}: damaged")):
        build.build(made)


def test_a_sample_that_does_not_fit_stays_behind(whole: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(tree: Tree, folder: Path, data: Path | None) -> int:
        (folder / "responses").mkdir(parents=True)
        return reference.LIMIT

    monkeypatch.setattr(samples, "keep", too_large)
    written = reference.make(whole, tmp_path / "reference/quick")
    assert "responses" in written.left_out
    assert not (tmp_path / "reference/quick/responses").exists()


def test_its_manifest_lists_it_and_still_knows_samples_grades_and_weights(made: Path, command: Command) -> None:
    content = manifest.read(made)
    assert set(content["left_out"]) == {"weights", "inputs", "samples", "samples record", "grades", "grades record"}
    assert content["weights"]["runs/tiny_qwen2/tepo/seed1/checkpoints/step12"]["sha256"]
    assert content["checkpoints"]["tiny_qwen2/tepo/seed1/step12"]["benchmarks"]["syn_as3"]["samples"]
    code, out, _ = command(verify.main, "--results", made)
    assert (code, "everything stands" in out) == (0, True), out
    (made / "runs/tiny_qwen2/tepo/seed1/curve.csv.gz").write_bytes(b"x")
    code, out, _ = command(verify.main, "--results", made)
    assert (code, "differs: runs/tiny_qwen2/tepo/seed1/curve.csv.gz" in out) == (1, True), out


def test_its_readme_says_what_when_on_what_and_how_to_compare(made: Path) -> None:
    text = (made / "README.md").read_text()
    for words in ("4 of 4 planned training runs, 5 of 5 planned checkpoints", "2026-01-02T03:04:05Z", "Invented CPU",
                  "torch 2.13.0", COMMIT, "python -m report.compare quick results/quick"):  # fmt: skip
        assert words in text
    assert "Not a complete run" not in text


COMMANDS = {
    "show": (show.main, ("table1", "--results", "{}")),
    "table": (table.main, ("--table", "1", "--results", "{}")),
    "figure": (figure.main, ("--figure", "2", "--results", "{}")),
    "build": (build.main, ("--results", "{}")),
    "compare": (compare.main, ("{}", "{whole}")),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_commands_read_it_like_any_results(name: str, whole: Tree, made: Path, command: Command) -> None:
    main, arguments = COMMANDS[name]
    code, out, err = command(main, *(word.format(made, whole=whole.root) for word in arguments))
    assert (code, err) == (0, ""), out


def dirty(root: Path) -> None:
    replace(root / "runs/tiny_qwen2/tepo/seed1/run.json", '"dirty": false', '"dirty": true')


def unfinished(root: Path) -> None:
    shutil.rmtree(root / "grades/tiny_qwen2/tepo")
    replace(root / "scores.csv", r"(?:tiny_qwen2,tepo,.*\n)+", "")


@pytest.mark.parametrize(
    ("act", "words"),
    [(dirty, "made with uncommitted changes"), (unfinished, "1 checkpoints missing, first tiny_qwen2/tepo/seed1")],
)
def test_doubtful_trees_only_when_told_to(
    act: Callable[[Path], None], words: str, source: Path, tmp_path: Path, command: Command
) -> None:
    act(source)
    anew(source)
    arguments = "--results", source, "--out", tmp_path / "reference/quick"
    code, _, err = command(reference.main, *arguments)
    assert (code, words in err, (tmp_path / "reference/quick").exists()) == (2, True, False), err
    code, out, _ = command(reference.main, *arguments, "--partial")
    assert (code, "bytes in " in out) == (0, True)
    assert f"**Not a complete run of committed code: {words}" in (tmp_path / "reference/quick/README.md").read_text()


def machine_path(root: Path) -> None:
    replace(root / "tables/table1.md", "^", f"made in {root.parent.parent}/here\n")
    anew(root)


REFUSED = {
    "edited after its manifest": (lambda root: edit(root / "matrix.json", title="?"), "differs: matrix.json"),
    "without a manifest": (
        lambda root: (root / manifest.NAME).unlink(),
        "manifest (python -m report.provenance.manifest writes",
    ),
    "a file that names a folder of the machine": (machine_path, "table1.md: names a folder of this machine"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_should_not_be_published_is_refused(case: str, source: Path, tmp_path: Path, command: Command) -> None:
    act, words = REFUSED[case]
    act(source)
    code, _, err = command(reference.main, "--results", source, "--out", tmp_path / "reference/quick", "--partial")
    assert (code, words in err) == (2, True), err
    assert not (tmp_path / "reference").exists() or not any((tmp_path / "reference").iterdir())


def test_what_does_not_fit_is_left_out_in_order_then_refused(
    whole: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "reference/quick"
    total = reference.make(whole, out).total
    pictures = sum(path.stat().st_size for path in whole.layout.figures.glob("*.png"))
    monkeypatch.setattr(reference, "LIMIT", total)  # the room for README and manifest is taken generously
    assert "picture" in reference.make(whole, out).left_out
    monkeypatch.setattr(reference, "LIMIT", total - pictures - whole.layout.report.stat().st_size)
    assert {"picture", "report"} <= set(reference.make(whole, out).left_out)
    monkeypatch.setattr(reference, "LIMIT", 50_000)
    with pytest.raises(ValueError, match=r"bytes would be kept, 50,000 may be; \w+"):
        reference.make(whole, out)
    assert verify.problems(Tree(out)) == []  # the earlier one is still there


def test_it_replaces_an_earlier_reference(whole: Tree, tmp_path: Path) -> None:
    out = tmp_path / "reference/quick"
    reference.make(whole, out)
    scores = out / "scores.csv"
    scores.write_text("old")
    reference.make(whole, out)
    assert scores.read_text() == whole.layout.scores.read_text()


def foreign(out: Path, whole: Tree) -> None:
    (out / "mine.txt").write_text("?")


def foreign_link(out: Path, whole: Tree) -> None:
    (out / "mine").symlink_to(out.parent)


def no_manifest(out: Path, whole: Tree) -> None:
    (out / manifest.NAME).unlink()


def results_tree(out: Path, whole: Tree) -> None:
    shutil.rmtree(out)
    shutil.copytree(whole.root, out)


def link(out: Path, whole: Tree) -> None:
    out.rename(out.parent / "elsewhere")
    out.symlink_to("elsewhere")


@pytest.mark.parametrize("change", [foreign, foreign_link, no_manifest, results_tree, link])
def test_it_replaces_nothing_else(change: Callable[[Path, Tree], None], whole: Tree, tmp_path: Path) -> None:
    out = tmp_path / "reference/quick"
    reference.make(whole, out)
    change(out, whole)
    before = sorted(out.parent.rglob("*"))
    with pytest.raises(ValueError, match=r"holds other things than a reference|is no folder") as error:
        reference.make(whole, out)
    assert "\n" not in str(error.value)
    assert sorted(out.parent.rglob("*")) == before


def test_git_takes_it_and_no_other_results() -> None:
    def ignored(name: str) -> bool:
        return subprocess.run(["git", "check-ignore", "-q", name], cwd=ROOT, check=False).returncode == 0

    assert not ignored("results/reference/embedded/runs/tiny_qwen2/tepo/seed1/curve.csv")
    assert not ignored("results/reference/embedded/figures/figure2.png")
    assert ignored("results/embedded/scores.csv")


@pytest.mark.demo
def test_the_quick_run_makes_a_reference(tmp_path: Path, command: Command) -> None:
    source, out = ROOT / "results/quick", tmp_path / "reference/quick"
    code, printed, err = command(reference.main, "--results", source, "--out", out, "--partial")
    assert (code, err) == (0, ""), err
    assert command(compare.main, out, source)[0] == 0
    assert command(verify.main, "--results", out)[0] == 0
    assert "bytes in " in printed
