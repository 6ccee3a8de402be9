"""Once per session: a tiny model with random weights, data of the quick synthetic sets, and one grader; a server."""

import dataclasses
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from core.provenance import ROOT
from evals import benchmark, fetch
from evals.benchmark import Benchmark
from evals.grading.grader import Grader
from tests import planted
from tests.evals.generation.tiny import save_tiny

SHARED = ROOT.parent / "shared" / "data"
KEY = planted.ENVIRONMENT["OPENAI_API_KEY"]
Answer = tuple[int, dict[str, str], bytes] | None  # status, headers, body; None: the connection ends without an answer
QUICK = ("syn_mix3", "syn_as3")


def few(key: str, samples: int = 8) -> Benchmark:
    """A registered set with fewer samples per item: what is tested here does not depend on their number."""
    found = benchmark.benchmark(key)
    if found.decoding.greedy:
        return found
    return found.model_copy(update={"decoding": dataclasses.replace(found.decoding, samples=samples)})


def read_responses(path: Path) -> list[SimpleNamespace]:
    return [SimpleNamespace(**row) for row in pq.read_table(path).to_pylist()]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny", seed=0)


@pytest.fixture(scope="session")
def quick_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for key in QUICK:
        fetch.fetch(benchmark.benchmark(key), folder)
    return folder


@pytest.fixture(scope="session")
def grader() -> Iterator[Grader]:
    """Its two workers start once for all tests."""
    with Grader() as made:
        yield made


@pytest.fixture(scope="session")
def shared() -> Path:
    """Private copies of the seven sets, in the format a mirror may have, and of labelled outputs."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is not there: real problems and outputs are tested only where a copy of them lies")
    return SHARED


def completion(content: Any, reason: str = "stop") -> Answer:
    choice = {"finish_reason": reason, "message": {"content": content}, "text": content}
    return 200, {}, json.dumps({"choices": [choice], "usage": {"completion_tokens": 3}}).encode()


def echo(body: dict[str, Any], number: int) -> Answer:
    return completion(f"{body['messages'][-1]['content']} {body['seed']}")


class Server(ThreadingHTTPServer):
    """Answers a POST with what `answer` returns for its body and number, but only with the key; a GET with a page."""

    request_queue_size, daemon_threads = 256, True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address, self.lock = f"http://127.0.0.1:{self.server_port}", threading.Lock()
        self.asked: list[dict[str, Any]] = []
        self.pages: dict[str, Answer] = {}
        self.answer: Callable[[dict[str, Any], int], Answer] = echo

    def handle_error(self, *_: Any) -> None:
        """A client that is gone, or has read enough, is not an error here."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def send(self, answer: Answer) -> None:
        if answer is None:
            self.close_connection = True
            return
        status, headers, body = answer
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = "Content-Length" in headers  # a false one

    def do_GET(self) -> None:
        self.send(self.server.pages.get(self.path, (404, {}, b"")))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.asked)
            self.server.asked.append(body)
        known = self.headers["Authorization"] == f"Bearer {KEY}"
        self.send(self.server.answer(body, number) if known else (401, {}, b"who are you"))

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()
