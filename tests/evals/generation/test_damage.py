"""A model folder or a benchmark's file that is not what was written is refused before anything is computed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evals import data, fetch, generate
from evals.benchmark import benchmark
from evals.generation.engine import Settings, engine
from records import digests
from records.errors import BenchError, CorruptInputError
from records.files import write_json
from tests.records.test_digests import flip

FILES = {
    "model.safetensors": b"weights",
    "config.json": b"{}",
    "tokenizer.json": b"[]",
    "generation_config.json": b"{}",
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint as training publishes it, with the record of its run."""
    folder = tmp_path / "seed1/checkpoints/step4"
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    digests.write_folder(folder)
    outputs = {"checkpoints/step4": digests.tree(digests.check_folder(folder))}
    write_json(tmp_path / "seed1/run.json", {"outputs": outputs})
    return folder


@pytest.mark.parametrize("how", ["a bit flipped", "emptied", "gone"])
@pytest.mark.parametrize("name", [*FILES, digests.SUMS])
def test_a_damaged_checkpoint_is_not_evaluated(name: str, how: str, checkpoint: Path) -> None:
    """By its own list of hashes where nothing else is given, and by its run's record."""
    record = checkpoint.parents[1] / "run.json"
    engine("hf", Settings(str(checkpoint), 1)).identity()
    engine("hf", Settings(str(checkpoint), 1, str(record))).identity()
    path = checkpoint / name
    flip(path, 0.3) if how == "a bit flipped" else path.write_bytes(b"") if how == "emptied" else path.unlink()
    known = [str(record)] if (name, how) == (digests.SUMS, "gone") else [None, str(record)]
    for one in known:
        with pytest.raises(BenchError) as caught:
            engine("hf", Settings(str(checkpoint), 1, one)).identity()
        assert str(checkpoint) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_the_command_says_it_in_one_line(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the tokenizer is read: transformers would end in a traceback."""
    flip(checkpoint / "tokenizer.json", 0.5)
    arguments = ["--benchmarks", "syn_as3", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", ["generate", "--model", str(checkpoint), *arguments])
    with pytest.raises(CorruptInputError, match=r"tokenizer\.json: differs from its sha256 in .*SHA256SUMS$"):
        generate.main()
    assert not (tmp_path / "out").exists()


def test_no_hash_is_computed_twice(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []
    before = digests.sha256_file
    monkeypatch.setattr(digests, "sha256_file", lambda path: (seen.append(Path(path)), before(path))[1])
    model = engine("hf", Settings(str(checkpoint), 1, str(checkpoint.parents[1] / "run.json")))
    model.identity()
    assert model.weights_sha256
    assert model.files_sha256
    assert sorted(path.name for path in seen) == sorted([*FILES, digests.SUMS])


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fetch.fetch(benchmark("syn_as3"), tmp_path_factory.mktemp("data"))


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 0.9999), cut=st.booleans(), beside=st.booleans())
def test_any_damage_of_a_benchmarks_items_is_named(share: float, cut: bool, beside: bool, items: Path) -> None:
    """Fields that nothing is computed from and the layout of the JSON too, which the registry's hash does not cover."""
    path = digests.beside(items) if beside else items
    before = path.read_bytes()
    flip(path, share)
    if cut:
        os.truncate(path, int(share * len(before)))
    try:
        with pytest.raises(CorruptInputError, match=str(items)) as caught:
            data.load(benchmark("syn_as3"), items.parent)
    finally:
        path.write_bytes(before)
    assert "\n" not in str(caught.value)


def test_fetching_again_mends_it(items: Path) -> None:
    before = items.read_bytes()
    flip(items, 0.5)
    fetch.fetch(benchmark("syn_as3"), items.parent)
    assert items.read_bytes() == before
    digests.beside(items).unlink()
    fetch.fetch(benchmark("syn_as3"), items.parent)
    assert digests.check(items) == digests.read(digests.beside(items))[items.name]


def test_a_file_from_elsewhere_is_held_against_the_registry(items: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in items.read_text(encoding="utf-8").splitlines()]
    theirs = tmp_path / items.name
    theirs.write_text("".join(json.dumps({**row, "level": 3}) + "\n" for row in rows))
    assert len(data.load(benchmark("syn_as3"), tmp_path)) == len(rows)
