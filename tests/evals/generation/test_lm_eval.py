"""lm-eval's own program on the task files that we ship: prompts, requests and scores are those of `evals.run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.errors import ConfigError
from core.provenance import ROOT
from core.scores import MACRO, read_scores
from evals import data
from evals.benchmark import PAPER, benchmark
from evals.generation.draw import make_plan, requests
from evals.generation.engine import Settings, engine
from tests.evals.generation.test_endpoint import NAME, Answer, Server, completion, server  # noqa: F401 - a fixture

TASKS = ROOT / "evals" / "lm_eval"
GROUP = "tepo_math"


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
    group = shipped.pop(GROUP)
    assert group["task"] == [f"tepo_{key}" for key in PAPER]
    # the macro average of scores.csv
    assert group["aggregate_metric_list"] == [{"metric": "acc", "aggregation": "mean", "weight_by_size": False}]
    for key in PAPER:
        names = {"include": "_common_yaml", "task": f"tepo_{key}", "dataset_name": key, "metadata": {"version": 1.0}}
        assert shipped.pop(f"tepo_{key}") == names | requests(benchmark(key).decoding, {"top_k": 0})
    assert not shipped


def test_a_task_asks_as_our_plan_does_and_scores_each_problem(
    synthetic: Path, tiny: Path, quick_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval.api.model import LM
    from lm_eval.evaluator import evaluate

    monkeypatch.setenv("TEPO_BENCH_DATA", str(quick_data))
    entry = benchmark("syn_mix3")
    items = data.load(entry, quick_data, 4)
    plan = make_plan(engine("hf", Settings(str(tiny), seed=1)), entry, items, seed=1)
    golds = {prompt.text: item.answer for prompt, item in zip(plan.prompts, items, strict=True)}
    right = [0, 1, 16, 32]  # of 32 responses to each item
    asked = Counter[str]()

    class Canned(LM):
        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            answers = []
            for prompt, arguments in (request.args for request in requests):
                assert (arguments["temperature"], arguments["top_p"], arguments["until"]) == (0.6, 1.0, [])
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


@pytest.mark.slow
def test_lm_evals_own_command_gives_the_scores_of_ours(server: Server, shared: Path, tmp_path: Path) -> None:  # noqa: F811
    """All seven sets, 3 items of each, from one server that gives a known share of right answers to each problem."""
    folder, out = shared / "benchmarks", tmp_path / "ours"
    items = {key: data.load(benchmark(key), folder, 3) for key in PAPER}
    golds = {item.problem: item.answer for of in items.values() for item in of}
    asked: Counter[str] = Counter()

    def answer(body: dict[str, Any], _: int) -> Answer:
        problem = body["messages"][-1]["content"]
        with server.lock:
            asked[problem] += 1
            right = asked[problem] % 4 != list(golds).index(problem) % 4  # of 32: 24; of one: 0 or 1
        return completion(rf"so \boxed{{{golds[problem]}}}" if right else r"so \boxed{none}")

    def call(*arguments: str) -> list[dict[str, Any]]:
        asked.clear()
        server.asked.clear()
        environment = os.environ | {"TEPO_BENCH_DATA": str(folder), "PYTHONPATH": ""}
        done = subprocess.run(
            arguments, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800, check=False,
            encoding="utf-8",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        return list(server.asked)

    server.answer = answer
    lm_eval = Path(sys.executable).parent / "lm_eval"
    arguments = f"model={NAME},base_url={server.url}/chat/completions,num_concurrent=1,tokenizer_backend=None"
    theirs = call(
        str(lm_eval), "run", "--tasks", GROUP, "--include_path", str(TASKS), "--model", "local-chat-completions",
        "--model_args", arguments, "--apply_chat_template", "--limit", "3", "--output_path", str(tmp_path / "theirs"),
    )  # fmt: skip
    ours = call(
        sys.executable, "-m", "evals.run", "--model", NAME, "--benchmarks", "all", "--limit", "3",
        "--backend", "openai", "--endpoint", server.url, "--chat", "--data", str(folder), "--out", str(out),
    )  # fmt: skip

    def compared(bodies: list[dict[str, Any]]) -> Counter[str]:
        names = ("messages", "temperature", "max_tokens")
        return Counter(json.dumps([body[name] for name in names]) for body in bodies)

    assert compared(theirs) == compared(ours)
    (path,) = (tmp_path / "theirs").rglob("results_*.json")
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    scores = {row["benchmark"]: row for row in read_scores(out / "scores.csv").to_dict("records")}
    for key in PAPER:
        found = results[f"tepo_{key}"]
        assert found["acc,responses"] == scores[key]["score"], key
        if scores[key]["se"] == scores[key]["se"]:  # not nan
            assert found["acc_stderr,responses"] == pytest.approx(scores[key]["se"]), key
    assert scores["aime24"]["score"] == 0.75
    assert 0 < scores["math500"]["score"] < 1
    assert results[GROUP]["acc,responses"] == pytest.approx(scores[MACRO]["score"])
