"""Downloads against a server on loopback: what is written is right, or nothing is written and the way out is said."""

import dataclasses
import itertools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from core.errors import BenchError, ConfigError, CorruptInputError, MissingInputError
from evals import arithmetic, benchmark, data, fetch
from evals.benchmark import Benchmark, Decoding, Generated, RepositoryFile, Row
from tests.merged_config import load
from tests.models.test_fetch_model import COMMIT

CONFIG = Path(__file__).resolve().parents[3] / "config"

ROWS = [{"question": f"What is ${n}+{n}$?", "gold": 2 * n} for n in range(40)]


def read(row: Row) -> Row:
    return {"problem": row["question"], "answer": str(row["gold"])}


def lines(rows: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


BENCHMARK = Benchmark(
    key="doubles",
    title="Doubles",
    source=RepositoryFile("someone/sets", "folder/doubles set.jsonl", read),
    revision=COMMIT,
    sha256=data.content_sha256(data.items([read(row) for row in ROWS])),
    n=len(ROWS),
    licence="invented",
    prompt="none",
    decoding=Decoding(1, 0.0, 1.0, 64),
    files=("doubles_set",),
)
PATH = f"/someone/sets/{COMMIT}/folder/doubles%20set.jsonl"


Pages = dict[str, tuple[int, bytes, int | None]]
"""Path -> (status, body, claimed length or None for the true one)."""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    pages: Pages = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body, claimed = pages.get(self.path, (404, b"", None))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) if claimed is None else claimed))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("TEPO_REPOSITORY_FILE", address + "/{repository}/{revision}/{path}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield pages
    server.shutdown()
    server.server_close()
    thread.join()


BAD_PAGES = (
    ((404, b"", None), MissingInputError, "HTTP Error 404"),
    ((200, lines(ROWS)[:-30], len(lines(ROWS))), MissingInputError, "connection broke after"),
    ((200, lines(ROWS[:-1]), None), CorruptInputError, "39 items, doubles has 40"),
    ((200, lines([*ROWS[:-1], {"question": "What else?", "gold": 1}]), None), CorruptInputError, "content sha256"),
    ((200, lines([*ROWS[:-1], {"prompt": "renamed"}]), None), CorruptInputError, "row 40 is neither"),
    ((200, b"<html>", None), CorruptInputError, "not valid JSON"),
    ((200, b"", None), CorruptInputError, "no rows"),
)


def test_a_bad_download_writes_nothing_and_says_what_to_do(served: Pages, tmp_path: Path) -> None:
    for page, kind, said in BAD_PAGES:
        served[PATH] = page
        with pytest.raises(kind, match=said) as caught:
            fetch.fetch(BENCHMARK, tmp_path)
        assert "--from FILE" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert list(tmp_path.iterdir()) == []


def test_the_next_source_is_tried_when_the_first_is_gone(served: Pages, tmp_path: Path) -> None:
    spare = RepositoryFile("other/place", "doubles.jsonl", read)
    served[f"/other/place/{COMMIT}/doubles.jsonl"] = (200, lines(ROWS), None)
    fetch.fetch(dataclasses.replace(BENCHMARK, alternatives=(spare,)), tmp_path)
    assert len(data.load(BENCHMARK, tmp_path)) == 40


def test_a_right_file_is_left_alone_and_a_damaged_one_replaced(served: Pages, tmp_path: Path) -> None:
    served[PATH] = (200, lines(ROWS), None)
    path = fetch.fetch(BENCHMARK, tmp_path)
    assert data.load(BENCHMARK, tmp_path)[3].item_id == data.item_id("What is $3+3$?")
    page = served.pop(PATH)
    before = path.stat().st_mtime_ns
    assert fetch.fetch(BENCHMARK, tmp_path).stat().st_mtime_ns == before
    served[PATH] = page
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(CorruptInputError):
        data.load(BENCHMARK, tmp_path)
    assert fetch.fetch(BENCHMARK, tmp_path).read_bytes() == whole


def test_a_mirror_needs_no_network_and_is_verified(tmp_path: Path) -> None:
    forms = lines(ROWS), lines([dict(read(row)) for row in ROWS])
    names = "doubles.jsonl", "doubles_set.jsonl", "someone/sets/folder/doubles set.jsonl"
    for number, (name, content) in enumerate(itertools.product(names, forms)):
        folder = tmp_path / str(number)
        file = folder / "mirror" / name
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
        fetch.fetch(BENCHMARK, folder / "a", mirror=folder / "mirror")
        fetch.fetch(BENCHMARK, folder / "b", file=file)
        assert (folder / "a/doubles.jsonl").read_bytes() == (folder / "b/doubles.jsonl").read_bytes()
        file.write_bytes(lines([*ROWS[:-1], {"question": "What else?", "gold": 1}]))
        for given in ({"mirror": folder / "mirror"}, {"file": file}):  # trusted no more than a download
            with pytest.raises(CorruptInputError, match="content sha256"):
                fetch.fetch(BENCHMARK, folder / "out", **given)  # type: ignore[arg-type]
            assert not (folder / "out").exists()
    with pytest.raises(MissingInputError, match=r"looked for: .*doubles\.jsonl, .*doubles_set\.jsonl"):
        fetch.fetch(BENCHMARK, tmp_path, mirror=tmp_path)


def test_a_users_mistake_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for words, said in (
        ("--benchmarks amc", "--data: missing; say where"),
        ("--benchmarks amc math500 --data x --from f", "one file is one benchmark"),
        ("--benchmarks amc --data x --from nowhere.jsonl", "nowhere.jsonl: data of amc is missing"),
    ):
        monkeypatch.setattr("sys.argv", ["fetch", *words.split()])
        with pytest.raises(BenchError, match=said) as caught:
            fetch.main()
        assert "\n" not in str(caught.value)


KEYS = benchmark.keys()
SYNTHETIC = [key for key in KEYS if benchmark.benchmark(key).synthetic]

# evaluation.md section 3: rows, counted responses, decoding
PAPER = {
    "aime24": (30, 960, 0.6),
    "aime25": (30, 960, 0.6),
    "amc": (83, 2656, 0.6),
    "math500": (500, 500, 0.0),
    "omni_math": (2821, 2821, 0.0),
    "olympiadbench": (675, 675, 0.0),
    "minerva": (272, 272, 0.0),
}


def test_paper_sets_have_the_papers_denominators_and_order() -> None:
    found = [benchmark.benchmark(key) for key in benchmark.PAPER]
    assert {b.key: (b.n, b.responses, b.decoding.temperature) for b in found} == PAPER
    assert {(b.decoding.top_p, b.decoding.max_tokens, b.prompt) for b in found} == {(1.0, 8192, "system")}
    assert sum(b.responses for b in found) == 8844
    assert tuple(b.key for b in benchmark.select(["all"])) == benchmark.keys()[:7] == tuple(PAPER)


def test_a_wrong_selection_or_decoding_is_one_clear_line() -> None:
    for names, said in ((["amie24"], "nearest: aime24"), ([], "none given"), (["all", "amc"], "amc is given twice")):
        with pytest.raises(ConfigError, match=said):
            benchmark.select(names)
    for samples, temperature, said in ((2, 0.0, "copies of one response"), (0, 0.6, "positive"), (1, -1.0, "range")):
        with pytest.raises(ConfigError, match=said):
            Decoding(samples, temperature, 1.0, 8)


def test_entries_are_complete() -> None:
    for key in KEYS:
        found = benchmark.benchmark(key)
        assert len(found.sha256) == 64, key
        assert found.licence, key
        assert found.synthetic == key.startswith("syn_")
        assert (found.stands_for in benchmark.PAPER) == (key not in benchmark.PAPER), key
        if not found.synthetic:
            assert len(found.revision) == 40, f"{key}: a commit, not a branch"


@pytest.mark.parametrize("scale", ["quick", "embedded", "smollm"])
def test_a_scales_benchmarks_stand_for_each_of_the_papers_once(scale: str) -> None:
    keys = load([CONFIG / "embedded.yaml", CONFIG / f"{scale}.yaml"])["evaluation"]["benchmarks"]
    assert [benchmark.benchmark(key).stands_for for key in keys] == list(benchmark.PAPER)


def test_generated_sets_are_the_registered_ones_and_held_out() -> None:
    for key in SYNTHETIC:
        found = benchmark.benchmark(key)
        assert isinstance(found.source, Generated)
        items = data.items(found.source.make())
        data.verify(found, items, key)
        assert all(arithmetic.is_test(item.problem) for item in items), key
        assert len({item.item_id for item in items}) == found.n, key


GIVEN_ROWS: list[dict[str, Any]] = [
    {"problem": "What is $1+1$?", "answer": "2"},
    {"problem": "What is $2+2$?", "answer": "4", "multiple": True},
    {"problem": "What is  $1+1$?\n", "answer": "2"},
]


def test_ids_follow_the_text_not_the_row() -> None:
    forward, backward = data.items(GIVEN_ROWS), data.items(GIVEN_ROWS[::-1])
    assert {i.item_id for i in forward} == {i.item_id for i in backward}
    assert forward[2].item_id == forward[0].item_id + "-2"
    assert forward[1].item_id == backward[1].item_id


def test_the_digest_sees_order_and_every_field_that_is_graded_and_no_facts() -> None:
    items = data.items(GIVEN_ROWS)
    for field in ("problem", "answer", "multiple", "tolerance", "unit"):
        other: dict[str, Any] = {field: "7"}
        changed = [dataclasses.replace(items[0], **other), *items[1:]]
        assert data.content_sha256(changed) != data.content_sha256(items), field
    assert data.content_sha256(items[::-1]) != data.content_sha256(items)
    assert data.content_sha256(data.items([{**row, "level": 3} for row in GIVEN_ROWS])) == data.content_sha256(items)


def test_a_row_without_texts_is_refused_and_a_missing_file_says_the_command(tmp_path: Path) -> None:
    for row in ({"problem": "x"}, {"problem": "", "answer": "1"}, {"problem": "x", "answer": 3}):
        with pytest.raises(CorruptInputError, match="row 1"):
            data.items([row], "file.jsonl")
    with pytest.raises(MissingInputError, match=r"python -m evals.fetch --benchmarks amc --data"):
        data.load(benchmark.benchmark("amc"), tmp_path)
