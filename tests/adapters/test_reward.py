"""A user's reward: called with its own arguments, weighted, and named in one line when it fails."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch

from core.errors import BenchError, ConfigError, CorruptInputError
from methods.adapters.reward import Reward, parsed

HERE = "tests.adapters.test_reward"


def ours(prompts: list[str], responses: list[str], answers: list[str]) -> list[float]:
    return [float(answer in response) for response, answer in zip(responses, answers, strict=True)]


def of_trl(completions: list[str], **columns: list[str]) -> Any:
    assert sorted(columns) == ["answer", "prompts"]
    return numpy.array([len(text) for text in completions])


def some_columns(answer: list[str], completions: list[str]) -> Any:
    return torch.tensor([float(text) for text in answer])


def not_all(completions: list[str], **columns: list[str]) -> list[float | None]:
    return [None, *[1.0] * (len(completions) - 1)]


def late_error(completions: list[str], **columns: list[str]) -> Iterator[float]:
    yield 1.0
    raise ValueError("third")


def one_tensor(completions: list[str], **columns: list[str]) -> Any:
    return torch.tensor(1.0)


def only_columns(**columns: list[str]) -> list[float]:
    return [float(len(columns["completions"]))] * 2


async def later(completions: list[str], **columns: list[str]) -> list[float]:
    return [0.0] * len(completions)


def words(completions: list[str], **columns: list[str]) -> list[str]:
    return ["1.0"] * len(completions)


def short(completions: list[str], **columns: list[str]) -> list[float]:
    return [1.0]


def nothing(completions: list[str], **columns: list[str]) -> None:
    return None


def raises(completions: list[str], **columns: list[str]) -> list[float]:
    return [1 / (int(text) - 3) for text in completions]


def image(completions: list[str], image: list[str]) -> list[float]:
    return [0.0] * len(completions)


def alone(responses: list[str]) -> list[float]:
    return [0.0] * len(responses)


def limits_itself(completions: list[str], **columns: list[str]) -> list[float]:
    time.sleep(0.6)
    return [0.0] * len(completions)


limits_itself.bounded = True  # type: ignore[attr-defined]


def backtracks(completions: list[str], **columns: list[str]) -> list[float]:
    return [float(re.match(r"(a+)+$", "a" * 40 + "b") is not None)] * len(completions)


def forever(completions: list[str], **columns: list[str]) -> list[float]:
    while True:
        pass


GIVEN = (["1?", "2?"], ["1", "3"], ["1", "2"])


def test_functions_of_both_kinds_are_called_with_their_arguments_and_added_by_weight() -> None:
    names = [f"{HERE}:{function.__name__}" for function in (ours, of_trl, some_columns)]
    reward = Reward(names, (1.0, 0.5, -2.0), 7.0)
    assert reward(*GIVEN) == [1 + 0.5 - 2, 0 + 0.5 - 4]
    again = parsed(reward.text)
    assert (again.names, again.weights, again.seconds) == (tuple(names), (1.0, 0.5, -2.0), 7.0)
    assert again(*GIVEN) == reward(*GIVEN)
    assert Reward([f"{HERE}:ours", f"{HERE}:not_all"])(*GIVEN) == [None, 1.0]
    assert Reward([f"{HERE}:only_columns"])(*GIVEN) == [2.0, 2.0]
    with pytest.raises(CorruptInputError, match="reward_weights: returned inf"):
        Reward([f"{HERE}:of_trl"], (1e308 * 10,))(*GIVEN)
    share = Reward(["evals.reward:boxed", f"{HERE}:ours"]).unanswered
    assert share is not None
    assert share(["no box", r"\boxed{2}"]) == 0.5


FAILS: dict[Callable[..., Any], str] = {
    late_error: r"ValueError: third \(response '1'\); correct the function and run",
    one_tensor: "TypeError: iteration over a 0-d tensor",
    words: "returned '1.0' for response 0: '1'",
    short: "returned 1 values for 2 responses",
    nothing: "returned NoneType; must return a list",
    raises: r"ZeroDivisionError: division by zero \(response '3'\); correct the function and run the same command",
}


@pytest.mark.parametrize("function", FAILS, ids=lambda function: function.__name__)
def test_a_failure_names_rollout_function_and_response(function: Callable[..., Any], capfd: Any) -> None:
    name = f"{HERE}:{function.__name__}"
    with pytest.raises(CorruptInputError, match=f"rollout 3: reward {name}: {FAILS[function]}"):
        Reward([name])(*GIVEN, where="rollout 3: ")
    printed = capfd.readouterr().err
    assert ("return [1 / (int(text) - 3)" in printed) == (function is raises), "the traceback of the user's own code"
    assert "adapters/reward.py" not in printed


@pytest.mark.parametrize("name", ["image", "alone"])
def test_other_arguments_are_refused_before_training(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"reward: {HERE}:{name}: cannot be called \(missing a required|too many"):
        Reward([f"{HERE}:{name}"])
    with pytest.raises(ConfigError, match="later: is async; allowed: a function"):
        Reward([f"{HERE}:later"])
    with pytest.raises(BenchError, match="2 weights for 1 rewards; give one for each"):
        Reward([f"{HERE}:ours"], (1, 2))


def test_a_call_without_end_ends_the_run_with_one_line() -> None:
    """In a process of its own: it is ended, because no other way stops every function."""
    code = (
        f"from methods.adapters.reward import Reward; r = Reward(['{HERE}:limits_itself'], seconds=0.5)\n"
        f"with r.limited('', {GIVEN[1]}): print(r(*{GIVEN}))\n"
        f"r = Reward(['{HERE}:forever'], seconds=0.5)\n"
        f"with r.limited('rollout 2: ', {GIVEN[1]}): r(*{GIVEN}, 'rollout 2: ')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "[0.0, 0.0]\n")
    assert done.stderr == (
        f"error: rollout 2: reward {HERE}:forever: did not return within 0.5 s (first of 2 responses '1'); correct it "
        "or set reward_timeout (TEPO_REWARD_TIMEOUT), and run the same command\n"
    )


def test_a_call_that_holds_the_interpreter_ends_too() -> None:
    """A regular expression that backtracks lets no other thread print a line: the function's is shown instead."""
    code = (
        f"from methods.adapters.reward import Reward; r = Reward(['{HERE}:backtracks'], seconds=0.5)\n"
        f"with r.limited('', {GIVEN[1]}): r(*{GIVEN})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "in backtracks" in done.stderr


@pytest.mark.parametrize("text", ["2m", "0", "-1", "inf"])
def test_a_limit_that_is_not_a_time_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEPO_REWARD_TIMEOUT", text)
    with pytest.raises(ConfigError, match=r"TEPO_REWARD_TIMEOUT: .*; allowed: seconds above 0"):
        Reward([f"{HERE}:ours"])
