"""Downloads against a server on loopback: what is written is right, or nothing is written and the error has the way
out; entries of benchmarks."""

import json
import re
from pathlib import Path

import pytest

from core.errors import BenchError, ConfigError, CorruptInputError, MissingInputError
from core.files import write_text
from core.provenance import ROOT
from evals import arithmetic, benchmark, fetch
from evals.benchmark import Benchmark, Decoding
from tests.evals.conftest import Server
from tests.merged_config import load

ROWS: list[dict[str, object]] = [{"question": f"What is ${n}+{n}$?", "gold": 2 * n} for n in range(40)]
OURS = [{"problem": row["question"], "answer": str(row["gold"])} for row in ROWS]
OTHER = [*ROWS[:-1], {"question": "What else?", "gold": 1}]
PATH = "/someone/sets/folder/doubles.jsonl"
BENCHMARK = Benchmark(
    key="doubles", title="Doubles", fields={"problem": "question", "answer": "gold"},
    sha256=benchmark.content_sha256(benchmark.items(OURS)), n=len(ROWS), licence="invented", prompt="none",
    decoding=Decoding(1, 0.0, 1.0, 64), files=("doubles_set",),
)  # fmt: skip


def lines(rows: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture
def doubles(server: Server, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    """Its sources are two pages of a server."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return BENCHMARK.model_copy(update={"sources": (server.address + PATH, f"{server.address}/spare.jsonl")})


def test_a_bad_download_writes_nothing_and_says_what_to_do(server: Server, doubles: Benchmark, tmp_path: Path) -> None:
    for page, kind, message in (
        ((404, {}, b""), MissingInputError, "404 Not Found"),
        ((200, {"Content-Length": "999"}, b"{}"), MissingInputError, "without sending complete message body"),
        ((200, {}, lines(OTHER)), CorruptInputError, "content sha256"),
        ((200, {}, lines([*ROWS[:-1], {"prompt": "renamed"}])), CorruptInputError, "row 40 is neither"),
        ((200, {}, b"<html>"), CorruptInputError, "not valid JSON"),
    ):
        server.pages[PATH] = page
        with pytest.raises(kind, match=message) as caught:
            fetch.fetch(doubles, tmp_path)
        assert "--mirror FOLDER" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert list(tmp_path.iterdir()) == []


def test_a_right_file_is_left_alone_and_a_damaged_one_replaced(
    server: Server, doubles: Benchmark, tmp_path: Path
) -> None:
    """By the next source where the first is gone."""
    server.pages["/spare.jsonl"] = (200, {}, lines(ROWS))
    path = fetch.fetch(doubles, tmp_path)
    assert benchmark.load(doubles, tmp_path)[3].item_id == benchmark.item_id("What is $3+3$?")
    whole, before = path.read_bytes(), path.stat().st_mtime_ns
    assert fetch.fetch(doubles, tmp_path).stat().st_mtime_ns == before
    path.write_bytes(whole[:-100])
    with pytest.raises(CorruptInputError):
        benchmark.load(doubles, tmp_path)
    assert fetch.fetch(doubles, tmp_path).read_bytes() == whole


def test_an_address_of_the_hub_follows_the_hubs_variables(
    server: Server, doubles: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HF_ENDPOINT replaces the host; under HF_HUB_OFFLINE nothing is requested there."""
    from huggingface_hub import constants

    path = "datasets/someone/doubles/resolve/main/test.jsonl"
    asked = doubles.model_copy(update={"sources": (doubles.sources[0], fetch.HUB + path)})
    server.pages[f"/{path}"] = (200, {}, lines(ROWS))
    monkeypatch.setattr(constants, "ENDPOINT", server.address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(MissingInputError, match=rf"{fetch.HUB}{path}: cannot be downloaded \(HF_HUB_OFFLINE") as caught:
        fetch.fetch(asked, tmp_path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert fetch.fetch(asked, tmp_path).read_text() == benchmark.text(benchmark.items(OURS))


@pytest.mark.parametrize(("name", "content"), [("doubles.jsonl", lines(ROWS)), ("doubles_set.jsonl", lines(OURS))])
def test_a_mirror_needs_no_network_and_is_verified(name: str, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "mirror" / name
    with pytest.raises(MissingInputError, match=r"no file for doubles; looked for: doubles\.jsonl"):
        fetch.fetch(BENCHMARK, tmp_path, mirror=tmp_path / "mirror")
    write_text(file, content)
    found = fetch.fetch(BENCHMARK, tmp_path / "a", mirror=tmp_path / "mirror")
    assert found.read_text() == benchmark.text(benchmark.items(OURS))
    write_text(file, lines(OTHER))
    with pytest.raises(CorruptInputError, match="content sha256"):  # trusted no more than a download
        fetch.fetch(BENCHMARK, tmp_path / "out", mirror=tmp_path / "mirror")
    assert not (tmp_path / "out").exists()


MISTAKES = (  # words of the command, error
    ("--benchmarks amc", "--data: missing"),
    ("--benchmarks amie24 --data x", "nearest: aime24"),
    ("--data x", "none given"),
    ("--benchmarks all amc --data x", "amc is given twice"),
)


def test_a_users_mistake_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for words, message in MISTAKES:
        monkeypatch.setattr("sys.argv", ["fetch", *words.split()])
        with pytest.raises(BenchError, match=message) as caught:
            fetch.main()
        assert "\n" not in str(caught.value)
    with pytest.raises(MissingInputError, match=r"python -m evals.fetch --benchmarks amc --data"):
        benchmark.load(benchmark.benchmark("amc"), tmp_path)
    write_text(tmp_path / "evals/tasks/a.yaml", "mine: {titel: Mine}")
    monkeypatch.setattr(benchmark, "ROOT", tmp_path)
    benchmark._registry.cache_clear()
    with pytest.raises(ConfigError, match=r"tasks/a\.yaml: mine\.titel: unknown key; .*nearest: title"):
        benchmark.keys()
    benchmark._registry.cache_clear()


# evaluation.md section 3: rows, counted responses, decoding
PAPER = {
    "aime24": (30, 960, 0.6), "aime25": (30, 960, 0.6), "amc": (83, 2656, 0.6), "math500": (500, 500, 0.0),
    "omni_math": (2821, 2821, 0.0), "olympiadbench": (675, 675, 0.0), "minerva": (272, 272, 0.0),
}  # fmt: skip


def test_entries_are_complete_and_held_out_and_the_papers_have_its_denominators_and_order() -> None:
    found = [benchmark.benchmark(key) for key in benchmark.PAPER]
    assert {b.key: (b.n, b.responses, b.decoding.temperature) for b in found} == PAPER
    assert {(b.decoding.top_p, b.decoding.max_tokens, b.prompt) for b in found} == {(1.0, 8192, "system")}
    assert tuple(b.key for b in benchmark.select(["all"])) == benchmark.keys()[:7] == tuple(PAPER)
    for key, one in benchmark._registry().items():
        assert one.synthetic == key.startswith("syn_")
        assert (one.stands_for in benchmark.PAPER) == (key not in benchmark.PAPER), key
        assert one.synthetic or re.search("/[0-9a-f]{40}/", one.sources[0]), f"{key}: a commit, not a branch"
        if one.synthetic:
            items = benchmark.items(one.make())
            benchmark.verify(one, items, key)
            assert all(arithmetic.is_test(item.problem) for item in items), key
            assert len({item.item_id for item in items}) == one.n, key
    for scale in ("quick", "embedded", "smollm"):  # each stands for one of the paper's, in its order
        keys = load([ROOT / "config/embedded.yaml", ROOT / f"config/{scale}.yaml"])["evaluation"]["benchmarks"]
        assert [benchmark.benchmark(key).stands_for for key in keys] == list(benchmark.PAPER), scale
