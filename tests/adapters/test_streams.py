"""Two recorded runs: equal, or the first stream that differs is the one that was changed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.errors import BenchError
from core.provenance import ROOT
from methods import replay
from tests.adapters import worlds
from tests.adapters.conftest import StopAfter

SECTION = re.search(r"## Which stream moved\?\n(.*?)\n## ", (ROOT / "docs/own-responses.md").read_text("utf-8"), re.S)


@pytest.fixture(scope="module")
def runs(train: Callable[..., int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traced runs of two rollouts; `bare` has no trace."""
    folder = tmp_path_factory.mktemp("runs")
    rare = {"reward": "tests.adapters.worlds:rarely"}
    changes: dict[str, dict[str, Any]] = {"a": {}, "again": {}, "b": {"seed": 2}, "reward": rare}
    changes |= {"temperature": {"temperature": 0.9}, "rate": {"learning_rate": 1e-3}}
    for name, change in changes.items():
        assert train(folder / name, trace=True, **change) == 0
    assert train(folder / "bare") == 0
    return folder


def answer(a: Path, b: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    return replay.main([str(a), str(b)]), capsys.readouterr().out


FIRST = "first difference: rollout 1 of 2, "


@pytest.mark.parametrize(
    ("other", "first"),
    [
        ("again", r"equal up to rollout 2 \(the last in A is 2, in B 2\)\n$"),
        (
            "bare",
            r"equal up to rollout 2 .*\n  not recorded in B: order, sampled tokens \(but its mean\), .*advantage\n",
        ),
        ("b", FIRST + r"order, .*row 0: \d+ in A, \d+ in B\n"),
        ("temperature", FIRST + r"sampled tokens, .*row \d+, token \d+: \d+ in A, \d+ in B\n"),
        ("reward", FIRST + r"rewards, reward, row \d+: 1 in A, 0 in B\n.*by up to 1 "),
        ("rate", FIRST + r"gradient, learning_rate \(update 0\): 0\.003 in A, 0\.001 in B"),
    ],
)
def test_the_changed_stream_is_named(other: str, first: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = answer(runs / "a", runs / other, capsys)
    assert re.match(first, out), out
    assert code == (not out.startswith("equal"))


def test_a_trace_changes_no_number_and_holds_what_the_curve_is_made_of(runs: Path) -> None:
    from safetensors.numpy import load_file

    assert worlds.numbers(runs / "a") == worlds.numbers(runs / "bare")
    assert worlds.weights(runs / "a") == worlds.weights(runs / "bare")
    for rollout in (1, 2):
        x = load_file(runs / f"a/trace/rollout{rollout:06d}.safetensors")
        rows = [row for row in worlds.numbers(runs / "a") if row["rollout"] == str(rollout)]
        assert float(rows[0]["reward"]) == x["reward"].mean()
        assert float(rows[0]["reward_kept"]) == x["reward"][x["row"]].mean()
        assert float(rows[0]["response_tokens"]) == x["length"].mean() == len(x["token"]) / len(x["length"])
        lengths = x["length"][x["row"]]
        assert [int(row["tokens"]) for row in rows[:2]] == [lengths[:8].sum(), lengths[8:].sum()]
        assert len(x["old_logp"]) == lengths.sum()
        assert len(x["advantage"]) == 16


def test_a_resumed_run_has_the_same_trace(runs: Path, train: Callable[..., int], tmp_path: Path) -> None:
    out, trace = tmp_path / "run", "trace/rollout000001.safetensors"
    for damage in (lambda: None, lambda: (out / trace).write_bytes(b"x")):  # a damaged one is made again
        assert train(out, stop=StopAfter(1), trace=True) == 75
        assert (out / trace).is_file()
        damage()
        assert train(out, trace=True) == 0
        for path in sorted((runs / "a/trace").iterdir()):
            assert (out / "trace" / path.name).read_bytes() == path.read_bytes()
        shutil.rmtree(out)


def dumps(folder: Path, change: Callable[[dict[str, list[Any]]], object] = lambda columns: None) -> Path:
    """Two steps of rollouts by verl's own writer; `change` acts on the second. Groups lie in random order in verl's."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    for step in (1, 2):
        columns: dict[str, list[Any]] = {
            "inputs": ["1+1=", "1+1=", "2+3=", "2+3="],
            "outputs": [f"{step}", "2", "5", "\\boxed{5}"],
            "gts": ["2", "2", "5", "5"],
            "scores": [0.0, 1.0, 1.0, 1.0],
        }
        if step == 2:
            change(columns)
        PPOTrainer._write_generations(*columns.values(), {"uid": list("abcd")}, str(folder), step)
    return folder


@pytest.mark.slow
def test_traces_of_verl_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = dumps(tmp_path / "a")
    turned = dumps(
        tmp_path / "turned", lambda c: [column.extend([column.pop(0), column.pop(0)]) for column in c.values()]
    )
    code, out = answer(a, turned, capsys)
    assert (code, out.splitlines()[0]) == (0, "equal up to rollout 2 (the last in A is 2, in B 2)")
    assert out.splitlines()[1] == "  not recorded in A: base, order, old log-probs, advantage, loss, gradient"
    prompt = dumps(tmp_path / "prompt", lambda c: c["inputs"].__setitem__(0, "1+2="))
    assert answer(a, prompt, capsys)[1].startswith("first difference: rollout 2 of 2, prompts, input, row 1 (0 in B)")
    assert SECTION  # what the page types
    dumps(tmp_path / "dumps/b", lambda c: c["scores"].__setitem__(3, 0.5)).with_name("a").mkdir()
    shutil.copytree(a, tmp_path / "dumps/a", dirs_exist_ok=True)
    command, printed = re.search(r"```console\n\$ (.*?)\n(.*?)```", SECTION[1], re.S).groups()  # type: ignore[union-attr]
    done = subprocess.run(
        ["env", f"PYTHONPATH={ROOT}", *command.split()], cwd=tmp_path, capture_output=True, encoding="utf-8"
    )
    assert (done.stdout, done.returncode) == (printed, 1), done.stderr


@pytest.mark.slow
def test_traces_of_trl_are_compared(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stock TRL, one seed and another."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    rows = [json.loads(line) for line in (world / "prompts.jsonl").read_text("utf-8").splitlines()]
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        sizes = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 6, "max_steps": 2}
        off = {"use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no", "disable_tqdm": True}
        config = GRPOConfig(str(tmp_path / name), seed=seed, logging_steps=1, log_completions=True, **sizes, **off)
        reward = lambda completions, **_: worlds.even([], completions, [])  # noqa: E731
        GRPOTrainer(str(world / "base"), reward, config, Dataset.from_list(rows)).train()
    assert answer(tmp_path / "a", tmp_path / "b", capsys)[1].startswith("equal up to rollout 2 ")
    code, out = answer(tmp_path / "a", tmp_path / "c", capsys)
    assert (code, out.split(",")[1]) == (1, " prompts"), out  # of two steps' prompts none is in the other run
    path = tmp_path / "c/completions/completions_00002.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(BenchError, match=r"^[^\n]*completions_00002.parquet: not completions of TRL \([^\n]*\)$"):
        replay.main([str(tmp_path / "b"), str(tmp_path / "c")])
