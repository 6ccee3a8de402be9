"""An endpoint with the OpenAI protocol: what it is asked, and that a failure loses nothing and pays for nothing twice.

A server in a thread answers as each test requires. Below: the tasks for lm-eval's own command.
"""

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.errors import BusyError, ConfigError, CorruptInputError, MissingInputError
from core.files import locked
from core.provenance import ROOT
from evals import benchmark as data
from evals import generate
from evals.benchmark import PAPER, benchmark
from evals.generation import openai
from evals.generation.engine import JOURNAL, Settings, arguments, engine, make_plan, per_sample_seed
from tests import planted
from tests.evals.conftest import KEY, Answer, Server, completion, echo, few, read_responses

NAME, GREEDY, SAMPLED = "served", "syn_as3", "syn_mix3"
Drawn = Callable[..., list[Any]]


def draw(server: Server, data: Path, out: Path, key: str = GREEDY, **given: Any) -> list[Any]:
    options: dict[str, Any] = {name: given.pop(name) for name in ("limit", "changes") if name in given}
    given["more"] = {"timeout": 60, **given.pop("more", {})}
    asking = {"model": NAME, "seed": 5, "endpoint": f"{server.address}/v1", "chat": True, "batch_size": 3, **given}
    options["reading"] = "system" if asking["chat"] else None
    generate.generate(engine("openai", Settings(**asking)), [few(key, 4)], data=data, out=out, **options)
    return read_responses(out / f"{key}.parquet")


@pytest.fixture
def drawn(server: Server, quick_data: Path, monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Responses of the server, written to a folder and read from there."""
    monkeypatch.setattr(openai, "FIRST_WAIT", 0.001)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return partial(draw, server, quick_data)


def journals(out: Path) -> list[Path]:
    return sorted(out.rglob(JOURNAL))


def test_without_chat_the_prompts_go_out_as_token_ids(server: Server, drawn: Drawn, tiny: Path, tmp_path: Path) -> None:
    """A server would add a begin token to a text that has one. Tokens are counted here, whatever the server reports."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny)

    def answer(body: dict[str, Any], number: int) -> Answer:
        assert (body["temperature"], body["max_tokens"]) == (0, 64)
        return completion(tokenizer.decode(body["prompt"][0][1:]), "length" if number else "stop")

    server.answer = answer
    rows = drawn(tmp_path, limit=6, chat=False, tokenizer=str(tiny))
    assert {tokenizer.decode(body["prompt"][0]) for body in server.asked} == {row.prompt for row in rows}
    assert [row.prompt for row in rows] == [f"<bos>{row.response}" for row in rows]
    assert [row.tokens for row in rows] == [len(tokenizer.encode(row.response)) for row in rows]
    assert sorted(row.stop for row in rows) == ["length"] * 5 + ["stop"]


def test_the_server_is_asked_what_was_planned_with_a_seed_for_each_sample_and_the_key_reaches_no_file(
    server: Server, drawn: Drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With one seed for all, a server that honours it copies its answer. A server's own temperature is 1."""
    server.answer = lambda body, number: completion(f"<think>no</think> yes {body['seed']}")
    rows = drawn(tmp_path, SAMPLED, limit=3, changes={"temperature": 0.6}, more={"think_end_token": "</think>"})
    assert [row.seed for row in rows] == [per_sample_seed(5, sample) for sample in range(4)] * 3
    assert all(row.response == f"yes {row.seed}" and row.tokens == 3 for row in rows)
    messages = sorted(json.dumps(body.pop("messages"), ensure_ascii=False) for body in server.asked)
    assert messages == sorted(row.prompt for row in rows)
    assert [message["role"] for message in json.loads(messages[0])] == ["system", "user"]
    fixed = {"model": NAME, "temperature": 0.6, "top_p": 1.0, "max_tokens": 64, "stop": [], "seed": 0}
    assert all({**body, "seed": 0} == fixed for body in server.asked)
    printed = capfd.readouterr()
    assert planted.told((printed.out + printed.err).encode(), planted.WORDS) == set()
    assert planted.told_by_files(tmp_path) == set()
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(MissingInputError, match="401"):
        drawn(tmp_path / "other", limit=2)


FAILURES: dict[str, tuple[Callable[..., Answer], str, int]] = {  # what the server does, the reason printed, times sent
    "429": (lambda *_: (429, {"Retry-After": "0"}, b"slow down"), "HTTP 429 Too Many Requests: slow down", 3),
    "400": (lambda *_: (400, {}, f"too long {KEY}".encode()), "HTTP 400 Bad Request: too long (OPENAI_API_KEY", 1),
    "gone": (lambda *_: None, "disconnected", 3),
    "broken off": (lambda *_: completion("half of a te", "abort"), "broke off its response (finish_reason 'abort')", 3),
    "endless": (lambda *_: (200, {}, b" " * (openai.LONGEST_BODY + 1)), "more than 16777216 bytes", 3),
    "late": (lambda *_: time.sleep(4), "no response within 3 s", 1),  # it may already be billed
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_came_before_a_failure_is_kept_and_only_the_rest_requested(
    server: Server, drawn: Drawn, tmp_path: Path, case: str
) -> None:
    """20 of 64 come, then nothing does. The next call may have other limits: they do not affect a response."""
    failure, reason, times = FAILURES[case]
    out, other = tmp_path / "out", tmp_path / "other"
    server.answer = lambda body, number: echo(body, number) if number < 20 else failure(body, number)
    with pytest.raises(MissingInputError) as caught:
        drawn(out, SAMPLED, limit=16, more={"max_retries": 3, "timeout": 3 if case == "late" else 60})
    line = str(caught.value)
    assert line.startswith(f"{server.address}/v1/chat/completions: 44 of 64 responses are missing (")
    assert line.endswith(f"20 are kept in {journals(out)[0]}; run the same command to go on")
    assert reason in line
    assert line.isprintable()
    assert KEY not in line
    assert list(Counter(json.dumps(body) for body in server.asked[20:]).values()) == [times] * 3
    kept = server.asked[:20]

    server.answer, server.asked = echo, []
    drawn(out, SAMPLED, limit=16, batch_size=5, more={"timeout": 99})
    assert len(server.asked) == 44
    assert all(body not in server.asked for body in kept)
    assert journals(out) == []
    drawn(other, SAMPLED, limit=16)
    assert (out / f"{SAMPLED}.parquet").read_bytes() == (other / f"{SAMPLED}.parquet").read_bytes()


def test_a_server_that_is_not_there_is_one_line_at_once(
    drawn: Drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai, "FIRST_WAIT", 30)
    began = time.monotonic()
    missing = r"2 of 2 responses are missing \(Cannot connect to host 127\.0\.0\.1:9"
    with pytest.raises(MissingInputError, match=missing):
        drawn(tmp_path, limit=2, endpoint="http://127.0.0.1:9/v1")
    assert time.monotonic() - began < 25


def test_more_than_5_percent_empty_is_an_error_before_the_rest_is_paid_for(
    server: Server, drawn: Drawn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few_empty = [completion(content) for content in (None, "", " \n", None, "")]
    server.answer = lambda body, number: few_empty[number] if number < 5 else echo(body, number)
    assert sum(not row.response.strip() for row in drawn(tmp_path / "5")) == 5
    assert f"{GREEDY}: 5 of 100 responses are empty" in capsys.readouterr().err

    server.asked = []
    server.answer = lambda body, number: completion(None if number < 10 else "text")
    with pytest.raises(MissingInputError, match=r"6 responses are empty, more than 5%.* --empty-limit to 1$"):
        drawn(tmp_path / "6", batch_size=1)
    assert len(server.asked) == 6
    server.answer = echo
    assert all(row.response.strip() for row in drawn(tmp_path / "6"))
    assert len(server.asked) == 6 + 100, "the empty ones once more"


def test_damage_of_the_journal_is_named_and_repaired_and_two_commands_do_not_pay_for_one_benchmark(
    server: Server, drawn: Drawn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed letter, two lines joined, bytes that are not text, half a line at the end: 4 of 20 lost, 3 named."""
    server.answer = lambda body, number: echo(body, number) if number < 20 else (500, {}, b"")
    with pytest.raises(MissingInputError, match="20 are kept"):
        drawn(tmp_path, limit=30, more={"max_retries": 1})
    (path,) = journals(tmp_path)
    server.asked, server.answer = [], echo
    with locked(path.with_suffix(".lock"), "busy"), pytest.raises(BusyError, match="another command draws these"):
        drawn(tmp_path, limit=30)
    assert server.asked == []
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1], lines[3], lines[6] = lines[1].replace(b'"stop"', b'"stoq"', 1), lines[3][:-1], b"\xff\xfe\x00\n"
    path.write_bytes(b"".join([*lines, lines[0][:-9]]))
    capsys.readouterr()
    assert len(drawn(tmp_path, limit=30)) == 30
    named = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"requested again: {path}: ")]
    assert [line.split(": ")[2] for line in named] == ["line 2", "line 4", "line 6"]
    assert len(server.asked) == 14


def test_another_model_of_the_same_name_is_not_mixed_with_kept_responses(
    server: Server, drawn: Drawn, tmp_path: Path
) -> None:
    """Kept of an unfinished benchmark, of a finished one, and of another benchmark in the folder."""
    one, other = (
        (200, {}, json.dumps({"data": [{"id": "x"}, {"id": NAME, "root": f"/models/{name}"}]}).encode())
        for name in ("one", "two")
    )
    server.pages["/v1/models"] = one
    server.answer = lambda body, number: echo(body, number) if number < 20 else (400, {}, b"")
    with pytest.raises(MissingInputError, match="20 are kept"):
        drawn(tmp_path, limit=30)
    server.answer = echo
    for key, kept in ((GREEDY, "the 20 responses in .*jsonl"), (GREEDY, "the responses"), (SAMPLED, "the responses")):
        server.pages["/v1/models"], count = other, len(server.asked)
        with pytest.raises(
            ConfigError, match=rf"v1: served: .* root '/models/two'; .*{kept}.* '/models/one' \(seen 20"
        ):
            drawn(tmp_path, key, limit=30)
        assert len(server.asked) == count
        server.pages["/v1/models"] = one
        drawn(tmp_path, limit=30)
    entry = json.loads((tmp_path / "samples.json").read_text())["benchmarks"][GREEDY]["served"]
    assert entry == {"id": NAME, "root": "/models/one", "at": entry["at"]}

    def swapped(body: dict[str, Any], number: int) -> Answer:
        server.pages["/v1/models"] = other
        return echo(body, number)

    server.pages["/v1/models"], server.answer = one, swapped
    with pytest.raises(ConfigError, match=r"that of the 2 responses in .* has '/models/one'"):
        drawn(tmp_path / "swapped", limit=2)


def test_copies_of_one_draw_are_not_kept(server: Server, drawn: Drawn, tmp_path: Path) -> None:
    """Otherwise the same command would find them again after the server is repaired."""
    server.answer = lambda body, _: completion(f"{body['messages'][-1]['content']} {body['temperature']}")
    with pytest.raises(CorruptInputError, match="all samples of every item are equal"):
        drawn(tmp_path, SAMPLED, limit=3)
    assert journals(tmp_path) == []
    server.answer = echo
    assert len(drawn(tmp_path, SAMPLED, limit=3)) == 12


SECRET = "plantedU5z4"
ADDRESS = "--endpoint: backend openai needs an address like http://host:port/v1, .*OPENAI_API_KEY$"
NO_ENGINE: tuple[tuple[dict[str, Any], str], ...] = (  # settings, error; a secret among them is not shown
    ({"endpoint": f"http://someone:{SECRET}@127.0.0.1:9/v1"}, ADDRESS),
    ({"endpoint": f"http://127.0.0.1:9/v1?api_key={SECRET}"}, ADDRESS),
    ({"more": {"api_key": SECRET}}, "--engine: api_key: unknown key; allowed: max_retries, think_end_token, timeout"),
    ({"chat": False}, "--tokenizer: give a folder"),
)


def test_wrong_settings_are_one_line_without_the_secret(tiny: Path) -> None:
    settings = Settings(NAME, 1, endpoint="http://127.0.0.1:9/v1", chat=True)
    for given, expected in NO_ENGINE:
        with pytest.raises(ConfigError, match=f"^generate: {expected}") as caught:
            engine("openai", replace(settings, **given))
        assert SECRET not in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"^generate: --engine: [^\n]*dtyp[^\n]*$"):
        engine("hf", Settings(str(tiny), 1, device="cpu", more={"dtyp": "x"})).open(64)
    engine("hf", Settings(str(tiny), 1, device="cpu", more={"attn_implementation": "eager"})).open(64)


# The tasks for lm-eval's own command

TASKS = ROOT / "evals" / "lm_eval"


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
    tiny: Path, quick_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The task of AIME24 with the problems of a set that needs no download."""
    from lm_eval.api.model import LM
    from lm_eval.evaluator import evaluate
    from lm_eval.tasks import TaskManager

    include = TASKS / "tepo_aime24.yaml"
    synthetic = tmp_path / "tepo_synthetic.yaml"
    synthetic.write_text(f"include: {include}\ntask: tepo_aime24\ndataset_name: syn_mix3\n", encoding="utf-8")
    manager = TaskManager(include_path=str(TASKS), include_defaults=False)
    monkeypatch.setenv("TEPO_BENCH_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match="2"):
        manager.load(["tepo_aime24"])
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"run: python -m evals.fetch --benchmarks aime24 --data {tmp_path}; for another folder set TEPO" in line

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

    tasks: dict[str, Any] = dict(manager.load([str(synthetic)])["tasks"])
    result: Any = evaluate(lm=Canned(), task_dict={"tasks": tasks, "groups": {}}, limit=4)
    found = result["results"]["tepo_aime24"]
    assert set(asked.values()) == {32}
    assert found["acc,responses"] == sum(right) / 128
