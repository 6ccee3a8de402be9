"""The training reward, and the placebos: from these a method learns nothing, the form, the opposite, or the mean."""

from __future__ import annotations

import random
import threading
from collections import Counter
from importlib import import_module
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import CorruptInputError
from evals import placebo, reward
from evals.reward import boxed
from methods.training.rollouts import derive

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
    responses = [f"so \\boxed{{{_scribble(rng)}}}" for _ in range(1000)]
    answers = [str(rng.randrange(200)) for _ in responses]
    assert set(boxed(answers, responses, answers)) <= {0.0, 1.0}


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


# Placebos

SIZE = 8  # responses of a group
draws = st.lists(st.sampled_from([0.0, 1.0]), min_size=SIZE, max_size=20 * SIZE)
seeds = st.integers(0, 2**63 - 1)


def test_the_names_of_the_configuration_are_those_of_the_catalog() -> None:
    assert set(get_args(placebo.Name)) == placebo.CATALOG.keys()
    for name, function in placebo.CATALOG.items():
        module, _, attribute = placebo.dotted(name).partition(":")
        assert getattr(import_module(module), attribute) is function


@given(rewards=draws, seed=seeds)
def test_what_each_placebo_makes_of_the_rewards(rewards: list[float], seed: int) -> None:
    """A number for each response, which depends on nothing but the arguments; of the coin's, not on the rewards."""
    before, other = list(rewards), [1.0 - reward for reward in rewards]
    for name, function in placebo.CATALOG.items():
        random.seed(1)
        first = function(rewards, [r"\boxed{1}"] * len(rewards), seed)
        random.seed(2)
        assert function(rewards, [r"\boxed{1}"] * len(rewards), seed) == first, name
        assert len(first) == len(rewards), name
        assert set(first) <= {0.0, 1.0}, name
        assert rewards == before, name  # the true rewards, which the curve records
    coins = placebo.coin(rewards, ["right"] * len(rewards), seed)
    assert coins == placebo.coin(other, ["wrong"] * len(rewards), seed)
    assert placebo.inverted(rewards, [""] * len(rewards), seed) == other
    assert Counter(placebo.shuffled(rewards, [""] * len(rewards), seed)) == Counter(rewards)


def test_a_coin_is_fair_and_differs_within_a_group_and_between_draws() -> None:
    drawn = [placebo.coin([1.0] * SIZE, ["same"] * SIZE, derive(1, "placebo", n, 0)) for n in range(1000)]
    heads = sum(map(sum, drawn))
    assert abs(heads - 4 * 1000) < 4 * (0.25 * SIZE * 1000) ** 0.5  # four standard deviations, with fixed seeds
    assert sum(len(set(group)) == 2 for group in drawn) > 950  # 2 of 256 groups are constant
    assert len(set(map(tuple, drawn))) > 200
    # each place of a group is a fair coin of its own
    for place in zip(*drawn, strict=True):
        assert abs(sum(place) - 500) < 4 * 250**0.5


def test_shuffled_leaves_no_trace_of_group_or_response() -> None:
    """A draw of one group that is right and nine that are wrong: on average every group gets the same."""
    rewards = [1.0] * SIZE + [0.0] * 9 * SIZE
    totals = [0.0] * len(rewards)
    for n in range(2000):
        for place, value in enumerate(placebo.shuffled(rewards, [""] * len(rewards), derive(3, n))):
            totals[place] += value
    expected, deviation = 200, (2000 * 0.1 * 0.9) ** 0.5
    assert all(abs(total - expected) < 5 * deviation for total in totals)


BOXES = {
    r"so \boxed{4}": 1.0,
    r"so \boxed{5}": 1.0,
    "4": 0.0,
    r"\boxed{}": 0.0,
    r"\boxed{4": 0.0,
    r"\boxed{4} no, \boxed{": 0.0,
    r"\fbox{4}": 1.0,
}


def test_format_asks_for_the_box_that_the_reward_asks_for_whatever_it_holds() -> None:
    responses = list(BOXES)
    found = placebo.boxes([0.0] * len(responses), responses, 1)
    assert found == list(BOXES.values())
    # no response that the reward calls right lacks the form
    right = boxed(["2+2?"] * len(responses), responses, ["4"] * len(responses))
    assert all(form >= reward for form, reward in zip(found, right, strict=True))
