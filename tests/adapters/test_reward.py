"""A user's reward: called with its own arguments, weighted, and named in one line when it fails."""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

from core.errors import ConfigError, CorruptInputError
from methods.adapters.reward import Reward, parsed

HERE = "tests.adapters.test_reward"
GIVEN = (["1?", "2?"], ["1", "3"], ["1", "2"])


def ours(prompts: list[str], responses: list[str], answers: list[str]) -> list[float]:
    return [float(answer in response) for response, answer in zip(responses, answers, strict=True)]


def of_trl(completions: list[str], **columns: list[str]) -> Any:
    assert sorted(columns) == ["answer", "prompts"]
    return numpy.array([len(text) for text in completions])


def some_columns(answer: list[str], completions: list[str]) -> Any:
    return torch.tensor([float(text) for text in answer])


def only_columns(**columns: list[str]) -> list[float | None]:
    return [None, float(len(columns["completions"]))]


def raises(completions: list[str], **columns: list[str]) -> list[float]:
    return [1 / (int(text) - 3) for text in completions]


async def later(completions: list[str]) -> list[float]:
    return [0.0] * len(completions)


def limits_itself(completions: list[str]) -> list[float]:
    time.sleep(0.6)
    return [0.0] * len(completions)


limits_itself.bounded = True  # type: ignore[attr-defined]


def test_functions_of_both_kinds_are_called_with_their_arguments_and_added_by_weight() -> None:
    names = [f"{HERE}:{function.__name__}" for function in (ours, of_trl, some_columns)]
    reward = Reward(names, (1.0, 0.5, -2.0), 7.0)
    assert reward(*GIVEN) == [1 + 0.5 - 2, 0 + 0.5 - 4]
    again = parsed(reward.text)
    assert (again.names, again.weights, again.seconds) == (tuple(names), (1.0, 0.5, -2.0), 7.0)
    assert Reward([f"{HERE}:ours", f"{HERE}:only_columns"])(*GIVEN) == [None, 2.0]
    with pytest.raises(CorruptInputError, match="reward_weights: returned inf"):
        Reward([f"{HERE}:of_trl"], (1e308 * 10,))(*GIVEN)
    share = Reward(["evals.reward:boxed", f"{HERE}:ours"]).unanswered
    assert share is not None
    assert share(["no box", r"\boxed{2}"]) == 0.5


FAILS: dict[str, tuple[Callable[..., Any], str]] = {
    "one_tensor": (lambda completions: torch.tensor(1.0), "TypeError: iteration over a 0-d tensor"),
    "words": (lambda completions: ["1.0", "1.0"], "returned '1.0' for response 0: '1'"),
    "short": (lambda completions: [1.0], "returned 1 values for 2 responses"),
    "nothing": (lambda completions: None, "returned NoneType; must return a list"),
    "raises": (raises, r"ZeroDivisionError: division by zero \(response '3'\); correct the function and run the same"),
}
REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "image": (lambda completions, image: [], r"image: cannot be called \(missing a required"),
    "alone": (lambda responses: [], r"alone: cannot be called \(too many"),
    "later": (later, "later: is async; allowed: a function"),
}
globals().update({name: function for name, (function, _) in (FAILS | REFUSED).items()})


@pytest.mark.parametrize("name", FAILS)
def test_a_failure_names_rollout_function_and_response(name: str, capfd: Any) -> None:
    with pytest.raises(CorruptInputError, match=f"^rollout 3: reward {HERE}:{name}: {FAILS[name][1]}"):
        Reward([f"{HERE}:{name}"])(*GIVEN, where="rollout 3: ")
    printed = capfd.readouterr().err
    assert ("return [1 / (int(text) - 3)" in printed) == (name == "raises"), "the traceback of the user's own code"
    assert "adapters/reward.py" not in printed


def test_what_cannot_be_called_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (_, line) in REFUSED.items():
        with pytest.raises(ConfigError, match=f"reward: {HERE}:{line}"):
            Reward([f"{HERE}:{name}"])
    with pytest.raises(ConfigError, match="2 weights for 1 rewards; give one for each"):
        Reward([f"{HERE}:ours"], (1, 2))
    for text in ("2m", "0", "inf"):
        monkeypatch.setenv("TEPO_REWARD_TIMEOUT", text)
        with pytest.raises(ConfigError, match=r"TEPO_REWARD_TIMEOUT: .*; allowed: seconds above 0"):
            Reward([f"{HERE}:ours"])


def forever(completions: list[str]) -> list[float]:
    while True:
        pass


def backtracks(completions: list[str]) -> list[float]:
    return [float(re.match(r"(a+)+$", "a" * 40 + "b") is not None)] * len(completions)


def test_a_call_without_end_ends_the_run_with_one_line() -> None:
    """In processes of their own, which end. A regular expression that backtracks lets no other thread print a line."""

    def ended(*functions: str) -> subprocess.CompletedProcess[str]:
        call = (
            f"r = Reward(['{HERE}:{{}}'], seconds=0.5)\nwith r.limited('rollout 2: ', {GIVEN[1]}): print(r(*{GIVEN}))\n"
        )
        code = "from methods.adapters.reward import Reward\n" + "".join(map(call.format, functions))
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)

    done = ended("limits_itself", "forever")
    assert (done.returncode, done.stdout) == (2, "[0.0, 0.0]\n")
    assert done.stderr == (
        f"error: rollout 2: reward {HERE}:forever: did not return within 0.5 s (first of 2 responses '1'); correct it "
        "or set reward_timeout (TEPO_REWARD_TIMEOUT), and run the same command\n"
    )
    done = ended("backtracks")
    assert done.returncode != 0
    assert "in backtracks" in done.stderr
