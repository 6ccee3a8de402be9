"""An endpoint that speaks the OpenAI protocol: asked the right thing; where it fails, nothing is lost or paid twice.

A server in a thread, which answers as each test says.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from core import lock
from core.errors import BusyError, ConfigError, MissingInputError
from core.provenance import ROOT
from evals import data, generate
from evals.benchmark import PAPER, benchmark
from evals.generation import openai
from evals.generation.draw import arguments, make_plan
from evals.generation.engine import JOURNAL, Settings, engine, per_sample_seed
from evals.store import Response
from tests import planted
from tests.evals.conftest import few, read_responses

NAME, KEY, GREEDY, SAMPLED = "served", planted.ENVIRONMENT["OPENAI_API_KEY"], "syn_as3", "syn_mix3"
Answer = tuple[int, dict[str, str], bytes] | None  # status, headers, body; None: the connection ends without an answer


def completion(content: Any, reason: str = "stop") -> Answer:
    choice = {"index": 0, "finish_reason": reason, "message": {"content": content}, "text": content}
    body = json.dumps({"choices": [choice], "usage": {"completion_tokens": 3}})
    return 200, {"Content-Type": "application/json"}, body.encode()


class Server(ThreadingHTTPServer):
    """Answers a request by what `answer` makes of its body and number; without it the text is the request itself."""

    request_queue_size, daemon_threads = 256, True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.lock = threading.Condition()
        self.asked: list[dict[str, Any]] = []
        self.in_flight = self.most_in_flight = self.answered = 0
        self.answer: Callable[[dict[str, Any], int], Answer] = self.echo

    def handle_error(self, *_: Any) -> None:
        """A client that is gone, or has read enough, is no error of these tests."""

    def echo(self, body: dict[str, Any], number: int) -> Answer:
        return completion(f"{body['messages'][-1]['content']} {body['seed']}")


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

    def refused(self) -> bool:
        """Whether the key is missing, without which nobody is answered."""
        refused = self.headers["Authorization"] != f"Bearer {KEY}"
        if refused:
            self.send((401, {}, b"who are you"))
        return refused

    def do_GET(self) -> None:
        if not self.refused():
            self.send((200, {}, json.dumps({"data": [{"id": NAME}]}).encode()))

    def do_POST(self) -> None:
        server, body = self.server, json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.refused():
            return
        with server.lock:
            number = len(server.asked)
            server.asked.append(body)
            server.in_flight += 1
            server.most_in_flight = max(server.most_in_flight, server.in_flight)
            server.lock.notify_all()
        answer = server.answer(body, number)
        with server.lock:
            server.in_flight -= 1
            server.answered += 1
            server.lock.notify_all()
        self.send(answer)

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


def drawn(server: Server, data: Path, out: Path, key: str = GREEDY, **given: Any) -> list[Response]:
    options = {name: given.pop(name) for name in ("limit", "changes") if name in given}
    given["more"] = {"timeout": 60, **given.pop("more", {})}
    asking: dict[str, Any] = {"model": NAME, "seed": 5, "endpoint": server.url, "chat": True, "batch_size": 3, **given}
    reading = "system" if asking["chat"] else None
    generate.generate(
        Settings(**asking), [few(key, 4)], backend="openai", data=data, out=out, reading=reading, **options
    )
    return read_responses(out / f"{key}.parquet")


def journals(out: Path) -> list[Path]:
    return sorted(out.rglob(JOURNAL))


def test_without_chat_the_prompts_go_out_as_token_ids(
    server: Server, tiny: Path, quick_data: Path, tmp_path: Path
) -> None:
    """A server would add a begin token to a text that has one. Tokens are counted here, whatever the server says."""
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


def test_the_server_is_asked_what_was_planned(server: Server, quick_data: Path, tmp_path: Path) -> None:
    """With a seed for each sample: lm-eval sends one for all, so that a server that honours it copies its answer."""
    changes = {"temperature": 0.6}  # a server's own default is 1
    rows = drawn(server, quick_data, tmp_path, SAMPLED, limit=3, changes=changes)
    assert [row.seed for row in rows] == [per_sample_seed(5, sample) for sample in range(4)] * 3
    assert all(row.response.endswith(f" {row.seed}") for row in rows)
    assert sorted(json.dumps(body["messages"], ensure_ascii=False) for body in server.asked) == sorted(
        row.prompt for row in rows
    )
    for body in server.asked:
        assert [message["role"] for message in body["messages"]] == ["system", "user"]
        assert (body["model"], body["temperature"], body["top_p"], body["max_tokens"]) == (NAME, 0.6, 1.0, 64)
        assert "top_k" not in body, "no part of the protocol"


def test_the_key_reaches_the_server_and_no_file(
    server: Server, quick_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The server answers nobody without the key: neither the list of its models nor a request."""
    assert len(drawn(server, quick_data, tmp_path / "out", limit=2)) == 2
    said = capfd.readouterr()
    assert planted.told((said.out + said.err).encode(), planted.WORDS) == set()
    assert planted.told_by_files(tmp_path) == set()
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(MissingInputError, match="401"):
        drawn(server, quick_data, tmp_path / "other", limit=2)


FAILURES: dict[str, tuple[Callable[..., Answer], str, int]] = {  # what the server does, what is said, times sent
    "429": (lambda *_: (429, {"Retry-After": "0"}, b"slow down"), "HTTP 429 Too Many Requests: slow down", 3),
    "400": (lambda *_: (400, {}, b"too long"), "HTTP 400 Bad Request: too long", 1),
    "gone": (lambda *_: None, "disconnected", 3),
    "broken off": (lambda *_: completion("half of a te", "abort"), "broke off its response (finish_reason 'abort')", 3),
    "endless": (lambda *_: (200, {}, b" " * (openai.LONGEST_BODY + 1)), "more than 16777216 bytes", 3),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_came_before_a_failure_is_kept_and_only_the_rest_requested(
    server: Server, quick_data: Path, tmp_path: Path, case: str
) -> None:
    """20 of 64 come, then nothing does. The next call may have other limits: they decide no response."""
    failure, said, times = FAILURES[case]
    out, other = tmp_path / "out", tmp_path / "other"
    server.answer = lambda body, number: server.echo(body, number) if number < 20 else failure(body, number)
    with pytest.raises(MissingInputError) as caught:
        drawn(server, quick_data, out, SAMPLED, limit=16, more={"max_retries": 3})
    line = str(caught.value)
    assert line.startswith(f"{server.url}/chat/completions: 44 of 64 responses are missing (")
    assert line.endswith(f"20 are kept in {journals(out)[0]}; run the same command to go on")
    assert said in line
    assert line.isprintable()
    assert KEY not in line
    failed = [json.dumps(body) for body in server.asked[20:]]
    assert len(failed) == 3 * times
    assert {failed.count(body) for body in failed} == {times}
    kept = server.asked[:20]

    server.answer, server.asked = server.echo, []
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
    server.answer = lambda body, number: server.echo(body, number) if over.wait(60) else None
    with pytest.raises(MissingInputError, match=r"2 of 2 responses are missing \(no response within 1 s\)"):
        drawn(server, quick_data, tmp_path, limit=2, more={"timeout": 1})
    over.set()
    assert len(server.asked) == 2


def test_more_than_5_percent_empty_is_an_error(
    server: Server, quick_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """6 of 100, and before the others are paid for; 5 are counted and shown."""
    few_empty = [completion(content) for content in (None, "", " \n", None, "")]
    server.answer = lambda body, number: few_empty[number] if number < 5 else server.echo(body, number)
    assert sum(not row.response.strip() for row in drawn(server, quick_data, tmp_path / "5")) == 5
    assert f"{GREEDY}: 5 of 100 responses are empty" in capsys.readouterr().err
    assert json.loads((tmp_path / "5/samples.json").read_text())["benchmarks"][GREEDY]["empty"] == 5

    server.asked = []
    server.answer = lambda body, number: completion(None if number < 10 else "text")
    with pytest.raises(MissingInputError, match="6 responses are empty, more than 5%") as caught:
        drawn(server, quick_data, tmp_path / "6", batch_size=1)
    assert str(caught.value).endswith("run the same command to go on; else set --empty-limit to 1")
    assert str(caught.value).isprintable()
    assert len(server.asked) == 6

    kept = drawn(server, quick_data, tmp_path / "kept", batch_size=1, empty_limit=1.0)
    assert len(kept) == 100
    server.answer = server.echo
    assert all(row.response.strip() for row in drawn(server, quick_data, tmp_path / "6"))
    assert len(server.asked) == 6 + 100 + 100, "the empty ones once more"


def test_damage_of_the_journal_is_named_and_repaired(
    server: Server, quick_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a line at the end, a changed bit, two lines joined, bytes that are not text: 4 of 20 are lost, 3 named."""
    server.answer = lambda body, number: server.echo(body, number) if number < 20 else (500, {}, b"")
    with pytest.raises(MissingInputError, match="20 are kept"):
        drawn(server, quick_data, tmp_path, limit=30, more={"max_retries": 1})
    (path,) = journals(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1], lines[3], lines[6] = lines[1].replace(b'"stop"', b'"stoq"', 1), lines[3][:-1], b"\xff\xfe\x00\n"
    path.write_bytes(b"".join([*lines, lines[0][:-9]]))
    capsys.readouterr()
    with pytest.raises(MissingInputError, match="16 are kept"):
        drawn(server, quick_data, tmp_path, limit=30, more={"max_retries": 1})
    named = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"requested again: {path}: ")]
    assert [line.split(": ")[2] for line in named] == ["line 2", "line 4", "line 6"]
    server.answer, server.asked = server.echo, []
    assert len(drawn(server, quick_data, tmp_path, limit=30)) == 30
    assert "requested again" not in capsys.readouterr().err, "repaired"
    assert len(server.asked) == 14


def test_two_commands_do_not_pay_for_one_benchmark(server: Server, quick_data: Path, tmp_path: Path) -> None:
    server.answer = lambda *_: (500, {}, b"")
    with pytest.raises(MissingInputError):
        drawn(server, quick_data, tmp_path, limit=2, more={"max_retries": 1})
    server.asked = []
    held = next((tmp_path / ".work").iterdir()) / Path(JOURNAL).with_suffix(".lock")
    with lock.held(held, "busy"), pytest.raises(BusyError, match=r"another command draws these responses \(.*pid"):
        drawn(server, quick_data, tmp_path, limit=2)
    assert server.asked == []


def test_copies_of_one_draw_are_not_kept(server: Server, quick_data: Path, tmp_path: Path) -> None:
    """Else the same command would find them again after the server is mended."""

    def answer(body: dict[str, Any], number: int) -> Answer:
        return completion(f"{body['messages'][-1]['content']} {body['temperature']}")

    server.answer = answer
    with pytest.raises(generate.CorruptInputError, match="copies of one draw"):
        drawn(server, quick_data, tmp_path, SAMPLED, limit=3)
    assert journals(tmp_path) == []
    server.answer = server.echo
    assert len(drawn(server, quick_data, tmp_path, SAMPLED, limit=3)) == 12


SECRET = "plantedU5z4"
NO_ENGINE: tuple[tuple[dict[str, Any], str], ...] = (  # settings, what is said; a secret among them is not shown
    ({"endpoint": f"http://someone:{SECRET}@127.0.0.1:9/v1"}, "--endpoint: .*OPENAI_API_KEY$"),
    ({"endpoint": f"http://127.0.0.1:9/v1?api_key={SECRET}"}, "--endpoint: .*OPENAI_API_KEY$"),
    ({"more": {"api_key": SECRET}}, "--engine: api_key: .*OPENAI_API_KEY$"),
    ({"endpoint": None}, "--endpoint: backend openai needs"),
    ({"endpoint": "localhost:8000/v1"}, "--endpoint: not an address like .*'localhost:8000/v1'$"),
    ({"endpoint": "http://[::1/v1"}, r"--endpoint: not an address like .*'http://\[::1/v1'$"),
    ({"chat": False}, "--tokenizer: give a folder"),
    (
        {"more": {"batch_size": 2}},
        "--engine: batch_size: unknown key; allowed: max_retries, think_end_token, timeout, verify_certificate",
    ),
    ({"more": {"max_retrys": 20}}, "--engine: max_retrys: .*nearest: max_retries"),
    ({"more": {"max_retries": 0}}, "--engine: max_retries: "),
)


def test_wrong_settings_are_one_line_without_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(NAME, 1, endpoint="http://127.0.0.1:9/v1", chat=True)

    def refused(given: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigError, match=f"^generate: {said}") as caught:
            engine("openai", replace(settings, **given))
        assert SECRET not in str(caught.value)
        assert "\n" not in str(caught.value)

    for given, said in NO_ENGINE:
        refused(given, said)
    for end in ("\n", "\u0142"):  # no header can hold these
        monkeypatch.setenv("OPENAI_API_KEY", SECRET + end)
        refused({}, "variable OPENAI_API_KEY: holds")


def test_a_wrong_argument_of_hf_is_one_line(tiny: Path) -> None:
    """An own one, and one that neither lm-eval nor transformers takes; what transformers takes goes through."""
    for name in ("device", "foo", "dtyp"):
        settings = Settings(str(tiny), 1, device="cpu", more={name: "x"})
        with pytest.raises(ConfigError, match=f"^generate: --engine: unknown value '{name}'; allowed: ") as caught:
            engine("hf", settings).lm(64)
        assert "\n" not in str(caught.value)
    engine("hf", Settings(str(tiny), 1, device="cpu", more={"attn_implementation": "eager"})).lm(64)


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
        assert shipped.pop(f"tepo_{key}") == names | {
            "output_type": "generate_until",
            "repeats": decoding.samples,
            "generation_kwargs": arguments(decoding, {"top_k": 0}),
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
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert ended.value.code == 2
    assert f"run: python -m evals.fetch --benchmarks aime24 --data {tmp_path}; for another folder set TEPO" in said
    monkeypatch.setenv("TEPO_BENCH_DATA", str(quick_data))
    (task,) = loaded(synthetic).values()
    with pytest.raises(ConfigError, match="--system_instruction: tepo_aime24 has its own prompt"):
        task.fewshot_context(task.eval_docs[0], 0, system_instruction="Be brief.")
