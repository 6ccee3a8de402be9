"""An endpoint with the OpenAI protocol: what it is asked, and that a failure loses nothing and pays for nothing twice.

A server in a thread answers as each test requires.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.errors import BusyError, ConfigError, CorruptInputError, MissingInputError
from core.files import locked
from core.provenance import ROOT
from evals import data, generate
from evals.benchmark import PAPER, benchmark
from evals.generation import openai
from evals.generation.draw import make_plan
from evals.generation.engine import JOURNAL, Settings, arguments, engine, per_sample_seed
from tests import planted
from tests.evals.conftest import few, read_responses

NAME, KEY, GREEDY, SAMPLED = "served", planted.ENVIRONMENT["OPENAI_API_KEY"], "syn_as3", "syn_mix3"
Answer = tuple[int, dict[str, str], bytes] | None  # status, headers, body; None: the connection ends without an answer


def completion(content: Any, reason: str = "stop") -> Answer:
    choice = {"finish_reason": reason, "message": {"content": content}, "text": content}
    return 200, {}, json.dumps({"choices": [choice], "usage": {"completion_tokens": 3}}).encode()


def echo(body: dict[str, Any], number: int) -> Answer:
    return completion(f"{body['messages'][-1]['content']} {body['seed']}")


class Server(ThreadingHTTPServer):
    """Answers a request with what `answer` returns for its body and number."""

    request_queue_size, daemon_threads = 256, True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url, self.lock = f"http://127.0.0.1:{self.server_port}/v1", threading.Lock()
        self.asked: list[dict[str, Any]] = []
        self.models: Answer = 404, {}, b""
        self.answer: Callable[[dict[str, Any], int], Answer] = echo

    def handle_error(self, *_: Any) -> None:
        """A client that is gone, or has read enough, is not an error here."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def send(self, answer: Answer) -> None:
        if self.headers["Authorization"] != f"Bearer {KEY}":
            answer = 401, {}, b"who are you"
        if answer is None:
            self.close_connection = True
            return
        status, headers, body = answer
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send(self.server.models if self.path == "/v1/models" else (404, {}, b""))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.asked)
            self.server.asked.append(body)
        self.send(self.server.answer(body, number))

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(openai, "FIRST_WAIT", 0.001)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    made = Server()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def drawn(server: Server, data: Path, out: Path, key: str = GREEDY, **given: Any) -> list[Any]:
    options = {name: given.pop(name) for name in ("limit", "changes") if name in given}
    given["more"] = {"timeout": 60, **given.pop("more", {})}
    asking: dict[str, Any] = {"model": NAME, "seed": 5, "endpoint": server.url, "chat": True, "batch_size": 3, **given}
    options["reading"] = "system" if asking["chat"] else None
    generate.generate(engine("openai", Settings(**asking)), [few(key, 4)], data=data, out=out, **options)
    return read_responses(out / f"{key}.parquet")


def journals(out: Path) -> list[Path]:
    return sorted(out.rglob(JOURNAL))


def test_without_chat_the_prompts_go_out_as_token_ids(
    server: Server, tiny: Path, quick_data: Path, tmp_path: Path
) -> None:
    """A server would add a begin token to a text that has one. Tokens are counted here, whatever the server reports."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny)

    def answer(body: dict[str, Any], number: int) -> Answer:
        assert (body["temperature"], body["max_tokens"]) == (0, 64)
        (ids,) = body["prompt"]
        return completion(tokenizer.decode(ids, skip_special_tokens=True), "length" if number else "stop")

    server.answer = answer
    rows = drawn(server, quick_data, tmp_path, limit=6, chat=False, tokenizer=str(tiny))
    problems = [item.problem for item in data.load(few(GREEDY), quick_data, 6)]
    assert {tokenizer.decode(body["prompt"][0]) for body in server.asked} == {row.prompt for row in rows}
    assert [(row.prompt, row.response) for row in rows] == [(f"<bos>{problem}", problem) for problem in problems]
    assert [row.tokens for row in rows] == [len(tokenizer.encode(row.response)) for row in rows]
    assert sorted(row.stop for row in rows) == ["length"] * 5 + ["stop"]


def test_the_server_is_asked_what_was_planned_with_a_seed_for_each_sample(
    server: Server, quick_data: Path, tmp_path: Path
) -> None:
    """With one seed for all, a server that honours it copies its answer. A server's own temperature is 1."""
    server.answer = lambda body, number: completion(f"<think>no</think> yes {body['seed']}")
    changes, more = {"temperature": 0.6}, {"think_end_token": "</think>"}
    rows = drawn(server, quick_data, tmp_path, SAMPLED, limit=3, changes=changes, more=more)
    assert [row.seed for row in rows] == [per_sample_seed(5, sample) for sample in range(4)] * 3
    assert all(row.response == f"yes {row.seed}" and row.tokens == 3 for row in rows)
    messages = sorted(json.dumps(body.pop("messages"), ensure_ascii=False) for body in server.asked)
    assert messages == sorted(row.prompt for row in rows)
    assert [message["role"] for message in json.loads(messages[0])] == ["system", "user"]
    fixed = {"model": NAME, "temperature": 0.6, "top_p": 1.0, "max_tokens": 64, "stop": []}
    assert all({**body, "seed": 0} == fixed | {"seed": 0} for body in server.asked)


def test_the_key_reaches_the_server_and_no_file(
    server: Server, quick_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The server answers no request without the key."""
    assert len(drawn(server, quick_data, tmp_path / "out", limit=2)) == 2
    printed = capfd.readouterr()
    assert planted.told((printed.out + printed.err).encode(), planted.WORDS) == set()
    assert planted.told_by_files(tmp_path) == set()
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(MissingInputError, match="401"):
        drawn(server, quick_data, tmp_path / "other", limit=2)


FAILURES: dict[str, tuple[Callable[..., Answer], str, int]] = {  # what the server does, the reason printed, times sent
    "429": (lambda *_: (429, {"Retry-After": "0"}, b"slow down"), "HTTP 429 Too Many Requests: slow down", 3),
    "400": (lambda *_: (400, {}, f"too long {KEY}".encode()), "HTTP 400 Bad Request: too long (OPENAI_API_KEY", 1),
    "gone": (lambda *_: None, "disconnected", 3),
    "broken off": (lambda *_: completion("half of a te", "abort"), "broke off its response (finish_reason 'abort')", 3),
    "endless": (lambda *_: (200, {}, b" " * (openai.LONGEST_BODY + 1)), "more than 16777216 bytes", 3),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_came_before_a_failure_is_kept_and_only_the_rest_requested(
    server: Server, quick_data: Path, tmp_path: Path, case: str
) -> None:
    """20 of 64 come, then nothing does. The next call may have other limits: they do not affect a response."""
    failure, reason, times = FAILURES[case]
    out, other = tmp_path / "out", tmp_path / "other"
    server.answer = lambda body, number: echo(body, number) if number < 20 else failure(body, number)
    with pytest.raises(MissingInputError) as caught:
        drawn(server, quick_data, out, SAMPLED, limit=16, more={"max_retries": 3})
    line = str(caught.value)
    assert line.startswith(f"{server.url}/chat/completions: 44 of 64 responses are missing (")
    assert line.endswith(f"20 are kept in {journals(out)[0]}; run the same command to go on")
    assert reason in line
    assert line.isprintable()
    assert KEY not in line
    failed = Counter(json.dumps(body) for body in server.asked[20:])
    assert list(failed.values()) == [times] * 3
    kept = server.asked[:20]

    server.answer, server.asked = echo, []
    drawn(server, quick_data, out, SAMPLED, limit=16, batch_size=5, more={"timeout": 99})
    assert len(server.asked) == 44
    assert all(body not in server.asked for body in kept)
    assert journals(out) == []
    drawn(server, quick_data, other, SAMPLED, limit=16)
    assert (out / f"{SAMPLED}.parquet").read_bytes() == (other / f"{SAMPLED}.parquet").read_bytes()


def test_a_response_that_comes_too_late_is_not_requested_twice(
    server: Server, quick_data: Path, tmp_path: Path
) -> None:
    over = threading.Event()
    server.answer = lambda body, number: echo(body, number) if over.wait(60) else None
    with pytest.raises(MissingInputError, match=r"2 of 2 responses are missing \(no response within 1 s\)"):
        drawn(server, quick_data, tmp_path, limit=2, more={"timeout": 1})
    over.set()
    assert len(server.asked) == 2


def test_more_than_5_percent_empty_is_an_error_before_the_rest_is_paid_for(
    server: Server, quick_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few_empty = [completion(content) for content in (None, "", " \n", None, "")]
    server.answer = lambda body, number: few_empty[number] if number < 5 else echo(body, number)
    assert sum(not row.response.strip() for row in drawn(server, quick_data, tmp_path / "5")) == 5
    assert f"{GREEDY}: 5 of 100 responses are empty" in capsys.readouterr().err
    assert json.loads((tmp_path / "5/samples.json").read_text())["benchmarks"][GREEDY]["empty"] == 5

    server.asked = []
    server.answer = lambda body, number: completion(None if number < 10 else "text")
    with pytest.raises(MissingInputError, match=r"6 responses are empty, more than 5%.* --empty-limit to 1$"):
        drawn(server, quick_data, tmp_path / "6", batch_size=1)
    assert len(server.asked) == 6
    assert len(drawn(server, quick_data, tmp_path / "kept", batch_size=1, empty_limit=1.0)) == 100
    server.answer = echo
    assert all(row.response.strip() for row in drawn(server, quick_data, tmp_path / "6"))
    assert len(server.asked) == 6 + 100 + 100, "the empty ones once more"


def test_damage_of_the_journal_is_named_and_repaired(
    server: Server, quick_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed letter, two lines joined, bytes that are not text, half a line at the end: 4 of 20 lost, 3 named."""
    server.answer = lambda body, number: echo(body, number) if number < 20 else (500, {}, b"")
    with pytest.raises(MissingInputError, match="20 are kept"):
        drawn(server, quick_data, tmp_path, limit=30, more={"max_retries": 1})
    (path,) = journals(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1], lines[3], lines[6] = lines[1].replace(b'"stop"', b'"stoq"', 1), lines[3][:-1], b"\xff\xfe\x00\n"
    path.write_bytes(b"".join([*lines, lines[0][:-9]]))
    capsys.readouterr()
    server.asked = []
    server.answer = echo
    assert len(drawn(server, quick_data, tmp_path, limit=30)) == 30
    named = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"requested again: {path}: ")]
    assert [line.split(": ")[2] for line in named] == ["line 2", "line 4", "line 6"]
    assert len(server.asked) == 14


def test_two_commands_do_not_pay_for_one_benchmark(server: Server, quick_data: Path, tmp_path: Path) -> None:
    server.answer = lambda *_: (400, {}, b"")
    with pytest.raises(MissingInputError):
        drawn(server, quick_data, tmp_path, limit=2)
    server.asked = []
    held = next((tmp_path / ".work").iterdir()) / Path(JOURNAL).with_suffix(".lock")
    with locked(held, "busy"), pytest.raises(BusyError, match=r"another command draws these responses \(.*pid"):
        drawn(server, quick_data, tmp_path, limit=2)
    assert server.asked == []


def listed(**facts: Any) -> Answer:
    return 200, {}, json.dumps({"data": [{"id": "other"}, {"id": NAME, "object": "model", **facts}]}).encode()


def test_another_model_of_the_same_name_is_not_mixed_with_kept_responses(
    server: Server, quick_data: Path, tmp_path: Path
) -> None:
    """Kept of an unfinished benchmark, of a finished one, and of another benchmark in the folder."""
    server.models = listed(root="/models/one", created=int(time.time()))  # vLLM: the time of the request
    server.answer = lambda body, number: echo(body, number) if number < 20 else (400, {}, b"")
    with pytest.raises(MissingInputError, match="20 are kept"):
        drawn(server, quick_data, tmp_path, limit=30)
    server.answer, one, other = echo, server.models, listed(root="/models/two", created=5)
    for finished, key in ((False, GREEDY), (True, GREEDY), (True, SAMPLED)):
        server.models, count = other, len(server.asked)
        kept = "the responses" if finished else "the 20 responses in .*jsonl"
        with pytest.raises(
            ConfigError, match=rf"v1: served: .* root '/models/two'; .*{kept}.* '/models/one' \(seen 20"
        ):
            drawn(server, quick_data, tmp_path, key, limit=30)
        assert len(server.asked) == count
        server.models = one
        drawn(server, quick_data, tmp_path, limit=30)
    entry = json.loads((tmp_path / "samples.json").read_text())["benchmarks"][GREEDY]
    assert entry["served"] == {"id": NAME, "root": "/models/one", "at": entry["served"]["at"]}
    server.models = 404, {}, b""  # nothing is known, as before
    drawn(server, quick_data, tmp_path, limit=30)

    def swapped(body: dict[str, Any], number: int) -> Answer:
        server.models = other
        return echo(body, number)

    server.models, server.answer = one, swapped
    asking = Settings(NAME, 5, endpoint=server.url, chat=True, more={"timeout": 60})
    both, out = [few(GREEDY), few(SAMPLED, 4)], tmp_path / "both"
    with pytest.raises(ConfigError, match=r"that of the 2 responses in .* has '/models/one'"):
        generate.generate(engine("openai", asking), both, data=quick_data, out=out, limit=2, reading="system")


def test_a_server_that_is_not_there_is_one_line_at_once(
    server: Server, quick_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai, "FIRST_WAIT", 30)
    server.url, began = "http://127.0.0.1:9/v1", time.monotonic()
    with pytest.raises(
        MissingInputError, match=r"2 of 2 responses are missing \(Cannot connect to host 127\.0\.0\.1:9"
    ):
        drawn(server, quick_data, tmp_path, limit=2)
    assert time.monotonic() - began < 25


def test_copies_of_one_draw_are_not_kept(server: Server, quick_data: Path, tmp_path: Path) -> None:
    """Otherwise the same command would find them again after the server is repaired."""
    server.answer = lambda body, _: completion(f"{body['messages'][-1]['content']} {body['temperature']}")
    with pytest.raises(CorruptInputError, match="all samples of every item are equal"):
        drawn(server, quick_data, tmp_path, SAMPLED, limit=3)
    assert journals(tmp_path) == []
    server.answer = echo
    assert len(drawn(server, quick_data, tmp_path, SAMPLED, limit=3)) == 12


SECRET = "plantedU5z4"
ADDRESS = "--endpoint: backend openai needs an address like http://host:port/v1, .*OPENAI_API_KEY$"
NO_ENGINE: tuple[tuple[dict[str, Any], str], ...] = (  # settings, error; a secret among them is not shown
    ({"endpoint": f"http://someone:{SECRET}@127.0.0.1:9/v1"}, ADDRESS),
    ({"endpoint": f"http://127.0.0.1:9/v1?api_key={SECRET}"}, ADDRESS),
    ({"endpoint": None}, ADDRESS),
    ({"endpoint": "localhost:8000/v1"}, ADDRESS),
    (
        {"more": {"api_key": SECRET}},
        "--engine: api_key: unknown key; allowed: max_retries, think_end_token, timeout, v",
    ),
    ({"chat": False}, "--tokenizer: give a folder"),
    ({"more": {"max_retrys": 20}}, "--engine: max_retrys: .*nearest: max_retries"),
    ({"more": {"max_retries": 0}}, "--engine: max_retries: "),
)


def test_wrong_settings_are_one_line_without_the_secret(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(NAME, 1, endpoint="http://127.0.0.1:9/v1", chat=True)
    for given, expected in NO_ENGINE:
        with pytest.raises(ConfigError, match=f"^generate: {expected}") as caught:
            engine("openai", replace(settings, **given))
        assert SECRET not in str(caught.value)
        assert "\n" not in str(caught.value)
    for end in ("\n", "\u0142"):  # no header can hold these
        monkeypatch.setenv("OPENAI_API_KEY", SECRET + end)
        with pytest.raises(ConfigError, match="variable OPENAI_API_KEY: holds") as caught:
            engine("openai", settings)
        assert SECRET not in str(caught.value)
    for name in ("device", "dtyp"):  # of hf: ours, and one that neither lm-eval nor transformers has
        hf = Settings(str(tiny), 1, device="cpu", more={name: "x"})
        with pytest.raises(ConfigError, match=f"^generate: --engine: unknown value '{name}'; allowed: [^\n]*$"):
            engine("hf", hf).open(64)
    engine("hf", Settings(str(tiny), 1, device="cpu", more={"attn_implementation": "eager"})).open(64)


# The tasks for lm-eval's own command

TASKS = ROOT / "evals" / "lm_eval"


def loaded(task: str | Path) -> dict[str, Any]:
    from lm_eval.tasks import TaskManager

    return dict(TaskManager(include_path=str(TASKS), include_defaults=False).load([str(task)])["tasks"])


@pytest.fixture
def synthetic(tmp_path: Path) -> Path:
    """The task of AIME24 with the problems of a set that needs no download."""
    path = tmp_path / "tepo_synthetic.yaml"
    path.write_text(
        f"include: {TASKS / 'tepo_aime24.yaml'}\ntask: tepo_aime24\ndataset_name: syn_mix3\n", encoding="utf-8"
    )
    return path


def test_the_shipped_files_are_the_registrys() -> None:
    shipped = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in TASKS.glob("*.yaml")}
    group = shipped.pop("tepo_math")
    assert group["task"] == [f"tepo_{key}" for key in PAPER]
    # the macro average of scores.csv
    assert group["aggregate_metric_list"] == [{"metric": "acc", "aggregation": "mean", "weight_by_size": False}]
    for key in PAPER:
        names = {"include": "_common_yaml", "task": f"tepo_{key}", "dataset_name": key, "metadata": {"version": 1.0}}
        decoding = benchmark(key).decoding
        assert "seed" not in arguments(decoding), "one for all would make 4 repeats 1 sample (measured)"
        assert shipped.pop(f"tepo_{key}") == names | {
            "output_type": "generate_until",
            "repeats": decoding.samples,
            "generation_kwargs": arguments(decoding),
            "filter_list": [{"name": "responses", "filter": [{"function": "take_first_k", "k": decoding.samples}]}],
        }
    assert not shipped


def test_a_task_asks_as_our_plan_does_and_scores_each_problem(
    synthetic: Path, tiny: Path, quick_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval.api.model import LM
    from lm_eval.evaluator import evaluate

    monkeypatch.setenv("TEPO_BENCH_DATA", str(quick_data))
    entry = benchmark("syn_mix3")
    items = data.load(entry, quick_data, 4)
    plan = make_plan(engine("hf", Settings(str(tiny), seed=1)), entry, items)
    golds = {prompt.text: item.answer for prompt, item in zip(plan.prompts, items, strict=True)}
    right = [0, 1, 16, 32]  # of 32 responses to each item
    asked = Counter[str]()

    class Canned(LM):
        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            answers = []
            for prompt, asked_for in (request.args for request in requests):
                assert (asked_for["temperature"], asked_for["top_p"], asked_for["until"]) == (0.6, 1.0, [])
                place = list(golds).index(prompt)
                asked[prompt] += 1
                answers.append(rf"\boxed{{{golds[prompt] if asked[prompt] <= right[place] else 'none'}}}")
            return answers

        def loglikelihood(self, requests: list[Any]) -> Any: ...
        def loglikelihood_rolling(self, requests: list[Any]) -> Any: ...

    result: Any = evaluate(lm=Canned(), task_dict={"tasks": loaded(synthetic), "groups": {}}, limit=4)
    found = result["results"]["tepo_aime24"]
    assert set(asked.values()) == {32}
    assert found["acc,responses"] == sum(right) / 128
    shares = [number / 32 for number in right]
    spread = sum((share - sum(shares) / 4) ** 2 for share in shares) / 3
    assert found["acc_stderr,responses"] == pytest.approx((spread / 4) ** 0.5)


def test_missing_data_and_a_second_system_message_are_refused_in_a_line(
    synthetic: Path,
    tmp_path: Path,
    quick_data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TEPO_BENCH_DATA", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        loaded("tepo_aime24")
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert ended.value.code == 2
    assert f"run: python -m evals.fetch --benchmarks aime24 --data {tmp_path}; for another folder set TEPO" in line
    monkeypatch.setenv("TEPO_BENCH_DATA", str(quick_data))
    (task,) = loaded(synthetic).values()
    with pytest.raises(ConfigError, match="--system_instruction: tepo_aime24 has its own prompt"):
        task.fewshot_context(task.eval_docs[0], 0, system_instruction="Be brief.")
