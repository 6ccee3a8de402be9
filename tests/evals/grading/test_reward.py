"""The training reward: right, cheap on integers, and free of processes there."""

from __future__ import annotations

import random
import threading
import time

import pytest

from evals import reward
from evals.arithmetic import _DIGITS
from evals.reward import boxed
from records.errors import CorruptInputError

SIGNS = [*"0123456789+-*=;?,x()#", "\\boxed{", "}", " "]


def _scribble(rng: random.Random) -> str:
    """What a model that cannot calculate yet writes into its box."""
    return "".join(rng.choice(SIGNS) for _ in range(rng.randrange(12)))


def test_right_and_wrong() -> None:
    responses = [r"7*3=1;\boxed{1}", r"\boxed{2}", "1", r"\boxed{1", r"\boxed{1}\boxed{2}", r"\boxed{1.0}"]
    assert boxed(["7*3?"] * 6, responses, ["1"] * 6) == [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]


def test_integer_answers_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a worker was started")

    monkeypatch.setattr("evals.grading.pool._Worker", refuse)
    rng = random.Random(1)
    responses = [f"so \\boxed{{{_scribble(rng)}}}" for _ in range(5000)]
    answers = [str(rng.randrange(200)) for _ in responses]
    assert set(boxed(answers, responses, answers)) <= {0.0, 1.0}


def test_integer_answers_cost_microseconds() -> None:
    rng = random.Random(2)
    answers = [rng.choice(_DIGITS) for _ in range(2000)]
    responses = [f"7*3=1;1*9=9;\\boxed{{{rng.choice(_DIGITS)}}}" for _ in answers]
    boxed(answers, responses, answers)
    began = time.process_time()
    boxed(answers, responses, answers)
    assert (time.process_time() - began) / len(answers) < 200e-6


def test_what_numbers_cannot_decide_goes_to_a_worker_from_any_thread() -> None:
    found: list[list[float]] = []

    def work() -> None:
        found.append(boxed(["", ""], [r"\boxed{\sqrt{8}}", r"\boxed{\sqrt{7}}"], [r"2\sqrt{2}"] * 2))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[1.0, 0.0]] * 2
    for grader in reward._GRADER.values():
        grader.close()


def test_lists_of_different_length_are_an_error() -> None:
    with pytest.raises(CorruptInputError, match="2 responses, 1 answers"):
        boxed(["a", "b"], ["x", "y"], ["1"])
