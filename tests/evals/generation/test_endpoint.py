"""A server process that speaks the OpenAI protocol: asked the right thing, answers kept right."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.errors import BenchError, ConfigError, MissingInputError
from core.provenance import ROOT
from evals import generate
from evals.generation import draw
from evals.generation.engine import Settings, engine, per_sample_seed
from evals.store import Response
from tests import planted
from tests.evals.generation.conftest import few, read_responses

pytestmark = pytest.mark.slow

SERVER = "tests.evals.generation.server"
NAME = "served-tiny"
SAMPLES = 5


@dataclass
class Served:
    url: str
    log: Path

    def asked(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()[1:]]


@pytest.fixture(scope="module")
def served(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("server") / "asked.jsonl"
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", SERVER, str(tiny)], cwd=ROOT, stdout=stream, stderr=subprocess.DEVNULL
        )
    try:
        while not (text := log.read_text()).endswith("\n"):
            assert process.poll() is None, "the server ended"
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
        yield Served(f"http://127.0.0.1:{int(text.splitlines()[0])}/v1", log)
    finally:
        process.terminate()
        process.wait(10)


def settings(served: Served, tiny: Path, *, chat: bool = False, **given: Any) -> Settings:
    tokenizer = None if chat else str(tiny)
    return Settings(**{"model": NAME, "seed": 5, "endpoint": served.url, "tokenizer": tokenizer, "chat": chat, **given})


def drawn(served: Served, tiny: Path, data: Path, out: Path, key: str, limit: int, **given: Any) -> list[Response]:
    reading = given.pop("reading", None)
    generate.generate(
        settings(served, tiny, **given), [few(key, SAMPLES)], backend="openai", data=data, out=out, limit=limit,
        reading=reading,
    )  # fmt: skip
    return read_responses(out / f"{key}.parquet")


def test_greedy_answers_are_those_of_hf(served: Served, tiny: Path, quick_data: Path, tmp_path: Path) -> None:
    own = drawn(served, tiny, quick_data, tmp_path / "server", "syn_as3", 6)
    generate.generate(
        Settings(str(tiny), seed=5, device="cpu"), [few("syn_as3")],
        backend="hf", data=quick_data, out=tmp_path / "hf", limit=6,
    )  # fmt: skip
    hf = read_responses(tmp_path / "hf/syn_as3.parquet")
    assert [row.response for row in own] == [row.response for row in hf]
    assert [row.stop for row in own] == [row.stop for row in hf]
    assert [row.prompt_sha256 for row in own] == [row.prompt_sha256 for row in hf]


def test_every_sample_has_its_own_seed(served: Served, tiny: Path, quick_data: Path, tmp_path: Path) -> None:
    """lm-eval sends one seed for all repeats: a server that honours it would answer every time the same."""
    before = len(served.asked())
    own = drawn(served, tiny, quick_data, tmp_path, "syn_mix3", 3)
    asked = served.asked()[before:]
    assert sorted({body["seed"] for body in asked}) == sorted(per_sample_seed(5, sample) for sample in range(SAMPLES))
    assert [row.seed for row in own] == [per_sample_seed(5, row.sample) for row in own]
    assert all(len(set(texts)) > 1 for texts in draw.by_item(own).values())
    assert len(asked) == 3 * SAMPLES


def test_the_server_is_asked_what_was_planned(served: Served, tiny: Path, quick_data: Path, tmp_path: Path) -> None:
    before = len(served.asked())
    drawn(served, tiny, quick_data, tmp_path, "syn_mix3", 2, seed=6)
    tokenizer: Any = engine("openai", settings(served, tiny)).tokenizer
    prompts = {row.prompt for row in read_responses(tmp_path / "syn_mix3.parquet")}
    for body in served.asked()[before:]:
        assert tokenizer.decode(body["prompt"][0]) in prompts
        assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.6, 1.0, 64)
        assert "top_k" not in body, "no part of the protocol"
        assert body["model"] == NAME


def test_a_chat_endpoint_gets_messages(served: Served, tiny: Path, quick_data: Path, tmp_path: Path) -> None:
    before = len(served.asked())
    own = drawn(served, tiny, quick_data, tmp_path, "syn_as3", 2, chat=True, reading="system")
    bodies = served.asked()[before:]
    assert sorted(json.dumps(body["messages"], ensure_ascii=False) for body in bodies) == sorted(r.prompt for r in own)
    assert [m["role"] for m in bodies[0]["messages"]] == ["system", "user"]
    assert all(row.stop in ("stop", "length") and row.tokens is not None for row in own)


def test_the_same_seed_gives_the_same_rows(served: Served, tiny: Path, quick_data: Path, tmp_path: Path) -> None:
    one, two = (drawn(served, tiny, quick_data, tmp_path / name, "syn_mix3", 2) for name in ("a", "b"))
    assert one == two


def test_a_wrong_endpoint_is_one_clear_line(served: Served, tiny: Path, quick_data: Path, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], type[BenchError], str]] = [
        ({"model": "servd-tiny"}, ConfigError, "nearest: served-tiny"),
        ({"endpoint": "http://127.0.0.1:9/v1"}, MissingInputError, "no OpenAI-compatible server answers there"),
        ({"endpoint": None}, ConfigError, "--endpoint"),
        ({"tokenizer": None}, ConfigError, "--tokenizer"),
    ]
    for given, kind, said in cases:
        with pytest.raises(kind, match=said):
            drawn(served, tiny, quick_data, tmp_path, "syn_as3", 1, **given)


def test_the_key_reaches_the_server_and_no_file(
    served: Served, quick_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The server answers nobody without the key: neither the list of its models nor a request."""
    guarded = served.url.replace("/v1", "/guarded/v1")
    chat: dict[str, Any] = {"chat": True, "reading": "system"}
    monkeypatch.setenv("OPENAI_API_KEY", planted.ENVIRONMENT["OPENAI_API_KEY"])
    own = drawn(served, tmp_path, quick_data, tmp_path / "out", "syn_as3", 2, endpoint=guarded, **chat)
    assert len(own) == 2
    said = capfd.readouterr()
    assert planted.told((said.out + said.err).encode(), planted.WORDS) == set()
    assert planted.told_by_files(tmp_path) == set()

    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(MissingInputError, match="401"):
        drawn(served, tmp_path, quick_data, tmp_path / "other", "syn_as3", 2, endpoint=guarded, **chat)
