"""A hub model in a folder: the right files with their hashes and commit, or one line and no `base.json`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from core.errors import CorruptInputError, MissingInputError
from core.files import read_json
from core.provenance import sha256_bytes
from models import fetch
from tests.core.test_digests import flip
from tests.models.hub_server import COMMIT, command, environment, hub

HUB = "someone/small"
SHARDED: dict[str, bytes] = {
    "config.json": b'{"model_type": "qwen2"}',
    "tokenizer_config.json": b"{}",
    "tokenizer.json": b'{"version": "1.0"}',
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    ).encode(),
    "model-00001-of-00002.safetensors": b"first",
    "model-00002-of-00002.safetensors": b"second",
    "consolidated.safetensors": b"the same weights again",
    "original/consolidated.00.pth": b"and again",
    "README.md": b"# words",
}
KEPT = sorted(set(SHARDED) - {"consolidated.safetensors", "original/consolidated.00.pth", "README.md"})


def folder(path: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def test_a_model_of_the_hub_is_recorded_with_commit_and_hashes(tmp_path: Path) -> None:
    out = tmp_path / "small"
    words = ("models.fetch", "--hub", HUB, "--revision", "main", "--out", str(out))
    with hub({f"models/{HUB}": SHARDED}) as (address, asked):
        done = command(*words, **environment(address, tmp_path / "home"))
        assert done.returncode == 0, done.stderr
        fetched = len(asked)
        assert command(*words, **environment(address, tmp_path / "home")).returncode == 0
    assert len(asked) == fetched, "a complete folder asks nothing"
    record = read_json(out / fetch.RECORD)
    assert (record["hub"], record["revision"], record["commit"]) == (HUB, "main", COMMIT)
    assert record["sha256"] == {name: sha256_bytes(SHARDED[name]) for name in KEPT}
    assert not any("consolidated" in line or "README" in line for line in asked)


def test_what_cannot_be_fetched_is_one_line(tmp_path: Path) -> None:
    with hub({f"models/{HUB}": SHARDED}) as (address, _):
        given = environment(address, tmp_path / "home")
        for words, variables, message in (
            (("--hub", HUB), {}, r"--revision: which commit of someone/small\?"),
            (("--hub", HUB, "--revision", "main"), {"HF_HUB_OFFLINE": "1"}, "someone/small@main: cannot be fetched"),
            (("--hub", "no/where", "--revision", "main"), {}, "no/where@main: cannot be fetched"),
        ):
            done = command("models.fetch", *words, "--out", str(tmp_path / "out"), **given | variables)
            assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
            assert re.search(message, done.stderr), done.stderr
            assert not (tmp_path / "out" / "base.json").exists()


def test_a_folder_fetched_elsewhere_is_taken_without_a_network(tmp_path: Path) -> None:
    source = folder(tmp_path / "carried", SHARDED)
    record = fetch.fetch(HUB, COMMIT, tmp_path / "out", source=source)
    assert (record["commit"], sorted(record["sha256"])) == (COMMIT, KEPT)
    assert fetch.fetch(HUB, COMMIT, tmp_path / "out") == record, "a complete folder is checked and left alone"
    assert fetch.fetch(HUB, "main", tmp_path / "head", source=source)["commit"] is None


def without(name: str) -> dict[str, bytes]:
    return {key: content for key, content in SHARDED.items() if key != name}


def test_an_incomplete_model_has_no_record(tmp_path: Path) -> None:
    broken = SHARDED | {"model.safetensors.index.json": b"{"}
    for number, (files, kind, message) in enumerate(
        (
            (without("config.json"), MissingInputError, r"config\.json is missing: what came is not a model folder"),
            (without("model-00002-of-00002.safetensors"), MissingInputError, r"00002-of-00002\.safetensors is missing"),
            (without("model.safetensors.index.json"), MissingInputError, r"model\.safetensors is missing"),
            (broken, CorruptInputError, "no list of shards"),
        )
    ):
        source, out = folder(tmp_path / f"carried{number}", files), tmp_path / f"out{number}"
        with pytest.raises(kind, match=message):
            fetch.fetch(HUB, COMMIT, out, source=source)
        assert not (out / "base.json").exists()


def test_two_commits_never_mix_in_one_folder(tmp_path: Path) -> None:
    source, out = folder(tmp_path / "carried", SHARDED), tmp_path / "out"
    fetch.fetch(HUB, COMMIT, out, source=source)
    with pytest.raises(CorruptInputError, match=rf"holds {HUB}@{COMMIT}, not {HUB}@main; remove it"):
        fetch.fetch(HUB, "main", out, source=source)
    (out / "base.json").unlink()
    with pytest.raises(CorruptInputError, match=rf"holds parts of {HUB}@{COMMIT}, not {HUB}@main"):
        fetch.fetch(HUB, "main", out, source=source)


def test_a_change_of_any_file_is_noticed_and_a_missing_list_of_hashes_written(tmp_path: Path) -> None:
    source, out = folder(tmp_path / "carried", SHARDED), tmp_path / "out"
    fetch.fetch(HUB, COMMIT, out, source=source)
    for name in (*KEPT, "base.json", "SHA256SUMS"):
        before = (out / name).read_bytes()
        flip(out / name, 0.5)
        with pytest.raises(CorruptInputError, match=re.escape(str(out))):
            fetch.fetch(HUB, COMMIT, out, source=source)
        (out / name).write_bytes(before)
    (out / "SHA256SUMS").unlink()  # as of a folder fetched before there was one
    fetch.fetch(HUB, COMMIT, out, source=source)
    assert (out / "SHA256SUMS").read_bytes() == before
