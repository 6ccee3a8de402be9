"""A model folder or a benchmark's file that is not what was written is refused before anything is computed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core import digests
from core.errors import BenchError, CorruptInputError
from core.files import write_json
from core.provenance import sha256_file
from evals import data, fetch, generate, store
from evals.benchmark import benchmark
from evals.generation.engine import Settings, engine
from tests.core.test_digests import flip
from tests.core.test_readers import damages

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


def test_a_damaged_checkpoint_is_not_evaluated(checkpoint: Path) -> None:
    """By its own list of hashes where nothing else is given, and by its run's record."""
    record = str(checkpoint.parents[1] / "run.json")
    for name in (*FILES, digests.SUMS):
        path = checkpoint / name
        before = path.read_bytes()
        for how in ("a bit flipped", "emptied", "gone"):
            engine("hf", Settings(str(checkpoint), 1)).identity()
            engine("hf", Settings(str(checkpoint), 1, record)).identity()
            flip(path, 0.3) if how == "a bit flipped" else path.write_bytes(b"") if how == "emptied" else path.unlink()
            for one in [record] if (name, how) == (digests.SUMS, "gone") else [None, record]:
                with pytest.raises(BenchError) as caught:
                    engine("hf", Settings(str(checkpoint), 1, one)).identity()
                assert str(checkpoint) in str(caught.value), (name, how)
                assert "\n" not in str(caught.value)
            path.write_bytes(before)


def test_the_command_says_it_in_one_line(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the tokenizer is read: transformers would end in a traceback."""
    flip(checkpoint / "tokenizer.json", 0.5)
    arguments = ["--benchmarks", "syn_as3", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", ["generate", "--model", str(checkpoint), *arguments])
    with pytest.raises(CorruptInputError, match=r"tokenizer\.json: differs from its sha256 in .*SHA256SUMS$"):
        generate.main()
    assert not (tmp_path / "out").exists()


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


RESPONSES = [store.Response(f"i{i}", sample, "p", "h", "r", "stop", 3, 1) for i in range(3) for sample in range(4)]
RECORD = {
    "items": 3, "decoding": {"samples": 4}, "task_hash": "t", "seed": 1, "prompt": ["arithmetic"], "prompts_cut": 0,
    "deviations": [], "distinct_fraction": 0.5, "cut_at_limit": 0, "response_tokens": 36, "seconds": 1.5,
}  # fmt: skip


def put(path: Path, content: bytes | None) -> None:
    """Put a file there, or for None a folder, whatever is there now."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.mkdir() if content is None else path.write_bytes(content)


@pytest.mark.parametrize("hashed", [False, True], ids=["damaged", "written so"])
def test_a_damaged_record_of_a_slot_is_never_finished(
    hashed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Drawn again, which is said in one line; a folder in its place is an error, since it could not be replaced.

    "written so": by somebody else's program, with its hash beside it.
    """
    slot = generate.Slot(tmp_path / "slot")
    entry = slot.finish(RESPONSES, dict(RECORD))
    assert slot.finished() == entry
    path = slot.folder / generate.DONE
    before, sums = path.read_bytes(), digests.beside(path).read_bytes()

    @settings(max_examples=60, derandomize=True, database=None, deadline=None)
    @given(damages(before, ".json", json.loads(before)))
    def damaged(content: bytes | None) -> None:
        put(path, content)
        if hashed and content is not None:
            digests.write_list(digests.beside(path), [path])
        capsys.readouterr()
        if content is None:
            with pytest.raises(CorruptInputError, match=r"done\.json: is a folder") as caught:
                slot.finished()
            assert "\n" not in str(caught.value)
            return
        found, said = slot.finished(), capsys.readouterr().err
        if found is None:
            assert said.startswith("drawn again: ")
            assert said.count("\n") == 1
            assert str(slot.folder) in said
            refused.append(said)
        else:
            assert found == entry or hashed  # the damage may be none: a byte replaced by itself

    refused: list[str] = []
    try:
        damaged()
    finally:
        put(path, before)
        put(digests.beside(path), sums)
    assert refused
    assert slot.finished() == entry


def other_type(column: Any) -> Any:
    return pa.array([[None]] * len(column))


TABLES: list[Any] = [
    lambda table, name: table.drop_columns([name]),
    lambda table, name: table.rename_columns([f"{own}x" if own == name else own for own in table.column_names]),
    lambda table, name: table.set_column(table.column_names.index(name), name, other_type(table[name])),
    lambda table, name: table.set_column(
        table.column_names.index(name), name,
        pa.array(["x"] * len(table)) if pa.types.is_integer(table[name].type) else pa.array([2.5] * len(table)),
    ),
    lambda table, name: table.set_column(
        table.column_names.index(name), name, pa.nulls(len(table), table[name].type)
    ),
    lambda table, name: table.slice(0, 0),
    lambda table, name: table.slice(1),
    lambda table, name: pa.concat_tables([table, table]),
]  # fmt: skip


def test_a_samples_file_is_read_or_named(tmp_path: Path) -> None:
    """Cut, flipped, a folder, and whole files of other columns, types and rows, as another program may write them."""
    path = tmp_path / "b.parquet"
    entry = {"sha256": store.write_samples(path, RESPONSES), "rows": len(RESPONSES)}
    before, table = path.read_bytes(), pq.read_table(path)
    columns = ("item_id", "sample", "response", "stop")
    store.read_samples(tmp_path, "b", entry)

    def refused(entry: dict[str, Any]) -> None:
        with pytest.raises(BenchError) as caught:
            store.read_samples(tmp_path, "b", entry)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)

    @settings(max_examples=60, derandomize=True, database=None, deadline=None)
    @given(place=st.integers(0, len(before) - 1), bit=st.integers(0, 7), cut=st.booleans())
    def damaged(place: int, bit: int, cut: bool) -> None:
        changed = bytes([before[place] ^ 1 << bit])
        put(path, before[:place] if cut else before[:place] + changed + before[place + 1 :])
        refused(entry)
        if cut:
            refused({**entry, "sha256": sha256_file(path)})

    damaged()
    put(path, None)
    refused(entry)
    put(path, before)
    for change in TABLES:
        for name in columns:
            pq.write_table(change(table, name), path)
            refused({**entry, "sha256": sha256_file(path)})
