"""Exports, each read back by the library that they are for."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from records.files import write_json
from records.results_tree import Tree
from report import export
from report.provenance import manifest
from tests.report import synthetic
from tests.report.finished import finish

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A finished tree with a manifest."""
    tree = finish(Tree(synthetic.write_tree(tmp_path_factory.mktemp("checkout") / "results/quick")))
    write_json(tree.root / manifest.NAME, manifest.build(tree))
    return tree


@pytest.fixture
def exported(tree: Tree, tmp_path: Path, command: Command) -> Callable[..., tuple[Path, str]]:
    """`exported(form, *options)` -> folder and what was printed."""

    def go(form: str, *options: str) -> tuple[Path, str]:
        code, out, err = command(export.main, "--results", tree.root, "--to", form, "--out", tmp_path / "out", *options)
        assert (code, err) == (0, "")
        return tmp_path / "out", out

    return go


def test_eval_results_come_back_from_huggingface_hub(tree: Tree, exported: Callable[..., tuple[Path, str]]) -> None:
    from huggingface_hub import parse_eval_result_entries

    folder, said = exported("eval-results", "--dataset", "syn_mix3=me/mixed", "--dataset", "syn_as3=me/sums")
    files = sorted(folder.rglob("*.yaml"))
    assert len(files) == 2 * len(tree.checkpoints)
    assert {path.parent.name for path in files} == {".eval_results"}
    for checkpoint in tree.checkpoints:
        path = folder / checkpoint.path / ".eval_results/syn_mix3.yaml"
        (entry,) = parse_eval_result_entries(yaml.safe_load(path.read_text(encoding="utf-8")))
        score = tree.scores[checkpoint, "syn_mix3"]
        assert score.value is not None
        assert (entry.dataset_id, entry.task_id) == ("me/mixed", "syn_mix3")
        assert entry.value == pytest.approx(100 * score.value, abs=1e-6)
        assert entry.notes is not None
        assert entry.notes.startswith("avg@8, 20 problems, 95 % interval ")
    assert "left out, no data set on the hub: syn_inv2, syn_add2q, syn_mix2, syn_mul4, syn_seq1" in said


def test_every_eval_ever_holds_against_its_schema(tree: Tree, exported: Callable[..., tuple[Path, str]]) -> None:
    import jsonschema

    from report.site import assets

    schema = json.loads(assets.vendored("every_eval_ever/eval.schema.json"))
    jsonschema.Draft7Validator.check_schema(schema)
    folder, _ = exported("every-eval-ever")
    files = sorted(folder.rglob("*.json"))
    assert len(files) == len(tree.checkpoints)
    for path in files:
        document = json.loads(path.read_text(encoding="utf-8"))
        jsonschema.validate(document, schema)
        found = {result["evaluation_result_id"].rpartition("/")[2]: result for result in document["evaluation_results"]}
        assert list(found) == [str(entry["key"]) for entry in sorted(tree.benchmarks, key=lambda b: str(b["key"]))]
    tepo = next(checkpoint for checkpoint in tree.checkpoints if checkpoint.run.method == "tepo")
    document = json.loads((folder / "tiny_qwen2/tiny_qwen2-tepo-seed1-step12.json").read_text(encoding="utf-8"))
    details = document["evaluation_results"][0]["score_details"]
    score = tree.scores[tepo, document["evaluation_results"][0]["evaluation_result_id"].rpartition("/")[2]]
    interval = details["uncertainty"]["confidence_interval"]
    assert (details["score"], interval["lower"], interval["upper"]) == (score.value, score.low, score.high)


def test_a_document_that_the_schema_refuses_is_named(tree: Tree) -> None:
    from report.site import assets

    schema = json.loads(assets.vendored("every_eval_ever/eval.schema.json"))
    checkpoint, rows = next(iter(export.scores(tree).items()))
    document = export.evaluation(tree, checkpoint, rows, "0.3.0")
    document["evaluation_results"][0]["score_details"]["score"] = "high"
    with pytest.raises(
        ValueError, match=r"every-eval-ever: evaluation_results\.0\.score_details\.score: 'high' is not"
    ):
        export.check_against(schema, document, checkpoint)


def test_tensorboard_reads_every_curve(tree: Tree, exported: Callable[..., tuple[Path, str]]) -> None:
    pytest.importorskip("tensorboard")
    from evals.learning_curves import read_curve
    from tests.methods.test_log import scalars

    folder, _ = exported("tensorboard")
    for run in tree.runs:
        found = scalars(folder / run.path)
        curve = read_curve(tree.layout.run(run) / "curve.csv")
        assert [value for _, value in found["rollout/reward"]] == pytest.approx(curve.series(["reward"], "first"))
        assert len(found["update/loss"]) == sum(len(rows) for rows in curve.rollouts)


def test_a_crate_comes_back_with_every_file_and_what_made_it(
    tree: Tree, exported: Callable[..., tuple[Path, str]]
) -> None:
    pytest.importorskip("rocrate", reason="the package rocrate is not installed")
    from rocrate.rocrate import ROCrate

    folder, said = exported("ro-crate")
    crate = ROCrate(folder)
    listed = manifest.read(tree.root)["files"]
    files = {entity.id: entity for entity in crate.data_entities}
    assert set(files) == {*listed, "Snakefile"}
    for name, entry in listed.items():
        assert files[name]["sha256"] == entry["sha256"]
        assert (folder / name).read_bytes() == (tree.root / name).read_bytes()
    assert crate.mainEntity.id == "Snakefile"
    made = {action.id: [file.id for file in action["result"]] for action in crate.root_dataset["mentions"]}
    assert "runs/tiny_qwen2/tepo/seed1/curve.csv" in made["#tiny_qwen2/tepo/seed1"]
    assert sorted(name for names in made.values() for name in names) == sorted(listed)
    assert "checkpoints (their hashes are in manifest.json)" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--to", "eval-result"), "--to: unknown value 'eval-result'; allowed: .*; nearest: eval-results"),
        (("--to", "eval-results"), "none of its benchmarks is a data set on the hub .*--dataset KEY=ORGANISATION/NAME"),
        (("--to", "eval-results", "--dataset", "syn_mix3"), "--dataset: 'syn_mix3' is not of the form"),
        (("--to", "eval-results", "--dataset", "syn_mix9=a/b"), "'syn_mix9'.*nearest: syn_mix3"),
    ],
)
def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(
    options: tuple[str, ...], said: str, tree: Tree, tmp_path: Path, command: Command
) -> None:
    code, out, err = command(export.main, "--results", tree.root, "--out", tmp_path / "out", *options)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert re.search(said, err), err
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_in_it_is_left_alone(tree: Tree, tmp_path: Path, command: Command) -> None:
    (tmp_path / "mine").write_text("?")
    code, _, err = command(export.main, "--results", tree.root, "--to", "every-eval-ever", "--out", tmp_path)
    assert (code, err.startswith("error: command line: --out: ")) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_missing_package_is_one_line(
    tree: Tree, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("rocrate") is not None:
        monkeypatch.setitem(export.FORMS, "ro-crate", _without_rocrate)  # type: ignore[index]
    code, _, err = command(export.main, "--results", tree.root, "--to", "ro-crate", "--out", tmp_path / "out")
    assert code == 2
    assert err == "error: --to ro-crate needs the package rocrate, which is not installed here: pip install rocrate\n"


def _without_rocrate(*_: object) -> None:
    raise ModuleNotFoundError("No module named 'rocrate'", name="rocrate")
