"""The small parts on their own: prompt order, refill stream, dealing, joining, seeds, curve."""

from __future__ import annotations

import itertools
import re
import signal
from pathlib import Path

import pytest

from core.errors import CorruptInputError
from core.files import read_growing_csv
from methods.adapters.trl.microbatches import Rows, join, micro_batches
from methods.train import StopRequest
from methods.training import rollouts
from methods.training.curve import COLUMNS, Curve
from methods.training.rollouts import choose, deal, derive, informative


def test_order_is_passes_over_all_prompts() -> None:
    taken = rollouts.order(7, 17, seed=3)
    assert sorted(taken[:7]) == sorted(taken[7:14]) == list(range(7))
    assert taken[:7] != taken[7:14]
    assert taken == rollouts.order(7, 17, seed=3) != rollouts.order(7, 17, seed=4)
    assert taken[:10] == rollouts.order(7, 10, seed=3), "a longer run begins like a shorter one"


def test_refill_goes_on_where_it_was_left() -> None:
    one = rollouts.Refill(9, seed=1)
    drawn = [one.draw(4, {0, 1}) for _ in range(5)]
    other = rollouts.Refill(9, seed=1)
    assert [other.draw(4, {0, 1}) for _ in range(2)] == drawn[:2]
    resumed = rollouts.Refill(9, seed=1, position=other.position)
    assert [resumed.draw(4, {0, 1}) for _ in range(3)] == drawn[2:]
    assert all(len(set(d)) == 4 and not {0, 1} & set(d) for d in drawn)


def test_refill_ends_when_every_prompt_is_used() -> None:
    assert sorted(rollouts.Refill(5, seed=1).draw(9, {0, 1})) == [2, 3, 4]
    assert rollouts.Refill(5, seed=1).draw(1, set(range(5))) == []


def test_seeds_differ_by_every_part_of_the_name() -> None:
    names = [(1, "rollout", 0, 0), (1, "rollout", 0, 1), (1, "rollout", 1, 0), (2, "rollout", 0, 0), (1, "x", 0, 0)]
    seeds = [derive(*name) for name in names]
    assert len(set(seeds)) == len(names)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_choose_and_deal() -> None:
    mixed = [True, False, True, True, False, True]
    assert choose(mixed, 3, "oversample") == [0, 2, 3]
    assert choose(mixed, 5, "mask") == [0, 2, 3, 5]
    assert choose(mixed, 5, "none") == [0, 1, 2, 3, 4]
    assert choose(mixed, 3, "refill", ungraded={0, 1}) == [2, 3, 5]
    assert choose(mixed, 5, "none", ungraded={0, 1}) == [2, 3, 4, 5]
    assert deal([0, 2, 3, 5], 4) == [[0], [2], [3], [5]]
    assert deal([0, 2, 3], 2) == [[0, 3], [2]]
    assert deal([7], 2) == [[7], []]


def rows(lengths: list[int], rewards: list[float], prompt: int = 2) -> Rows:
    """Two rows per group; token ids say row and place."""
    import torch

    width = max(lengths)
    mask = torch.tensor([[int(t < n) for t in range(width)] for n in lengths])
    ids = torch.arange(len(lengths)).unsqueeze(1) * 100 + torch.arange(width)
    prompt_mask = torch.ones(len(lengths), prompt, dtype=torch.long)
    group = torch.arange(len(lengths)) // 2
    reward = torch.tensor(rewards)
    return Rows(prompt_mask * 5, prompt_mask, ids * mask, mask, reward, group, advantage=reward)


def test_informative_groups_have_two_rewards() -> None:
    import torch

    assert informative(torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 0.0]), 2) == [False, True, False]


def test_micro_batches_keep_groups_whole_and_know_their_minibatch() -> None:
    made = micro_batches(rows([3, 1, 2, 2, 5, 4], [0, 1, 0, 1, 0, 1]), samples=2, minibatches=2, parts=2)
    assert [s.rows.group.tolist() for s in made] == [[0, 0], [2, 2], [1], [1]]
    assert [(s.tokens, s.sequences, s.groups) for s in made] == [(13, 4, 2), (13, 4, 2), (4, 2, 1), (4, 2, 1)]
    assert [s.group_tokens.tolist() for s in made] == [[4, 4], [9, 9], [4], [4]]
    assert [s.rows.completion_ids.shape[1] for s in made] == [3, 5, 2, 2], "padding nobody uses is cut"


def test_join_pads_and_renumbers() -> None:
    joined = join([rows([3, 1], [0, 1], prompt=2), rows([4, 4], [1, 1], prompt=3)], pad=9)
    assert joined.group.tolist() == [0, 0, 1, 1]
    assert joined.prompt_ids.tolist()[0] == [9, 5, 5]
    assert joined.completion_ids.tolist()[0] == [0, 1, 2, 9]
    assert joined.completion_mask.sum(1).tolist() == [3, 1, 4, 4]


def row(update: int, **values: float | None) -> dict[str, float | int | None]:
    return {**dict.fromkeys(COLUMNS, 0.1 + 0.2), "rollout": 1, "update": update, **values}


def test_curve_reads_back_to_the_same_bits_and_goes_on(tmp_path: Path) -> None:
    curve = Curve(tmp_path / "curve.csv", 0)
    for update in range(3):
        curve.append(row(update, mask_fraction=None, reward_given=0.5))
    curve.close()
    with open(tmp_path / "curve.csv", "a", encoding="utf-8") as stream:
        stream.write("1,3,0.30")  # killed while writing
    again = Curve(tmp_path / "curve.csv", 2)
    assert again.rewards == {1: 0.5}
    again.append(row(2, reward_given=0.25))
    again.close()
    found = read_growing_csv(tmp_path / "curve.csv")
    assert [r["update"] for r in found] == ["0", "1", "2"]
    assert float(found[0]["reward"]) == 0.1 + 0.2
    assert found[0]["mask_fraction"] == ""
    assert again.rewards == {1: 0.25}, "a run collapses by what its method is given"


def test_curve_refuses_other_columns(tmp_path: Path) -> None:
    curve = Curve(tmp_path / "curve.csv", 0)
    with pytest.raises(CorruptInputError, match="a row with columns"):
        curve.append({"rollout": 1})
    curve.close()
    (tmp_path / "old.csv").write_text("rollout,reward\n1,2\n")
    with pytest.raises(CorruptInputError, match="are not those of a curve"):
        Curve(tmp_path / "old.csv", 1)


FLOAT32, HALF = (5e-7, 1 - 1e-12), (0.01, 0.998)  # of engines that compute one policy
ALARMS: dict[str, tuple[list[tuple[float | None, float | None]], bool]] = {
    # gap and correlation of the rollouts 1, 2, ...; whether the last one is an alarm
    "wrong from the start": ([(0.5, 0.8)], True),
    "half precision from the start": ([HALF], False),
    "old weights in float32": ([FLOAT32, (0.031, 0.997)], True),
    "half precision goes on": ([HALF, (0.02, 0.99)], False),
    "old weights in half precision": ([HALF, (0.11, 0.97)], True),
    "a few tokens far off": ([FLOAT32, (0.5, 1 - 1e-7)], False),
    "certain of everything: the correlation is noise": ([FLOAT32, (1e-5, 0.5)], False),
    "rounding grows": ([FLOAT32, (1e-4, 1 - 1e-7)], False),
    "unknown": ([FLOAT32, (None, None)], False),
    "without spread": ([FLOAT32, (0.5, None)], False),
}


def test_the_alarm_for_a_sampler_with_another_policy(tmp_path: Path) -> None:
    """Within one process, and in one that resumes after the first rollout; off if the run says so."""
    path, message = tmp_path / "curve.csv", r"curve.csv: rollout \d: the sampler has another policy .* weights updated"
    for case, (figures, alarm) in ALARMS.items():
        rows = [
            dict.fromkeys(COLUMNS, 1.0) | {"rollout": n, "sampling_gap_mean": gap, "sampling_correlation": correlation}
            for n, (gap, correlation) in enumerate(figures, 1)
        ]
        for check, resumed in itertools.product((False, True), repeat=2):
            curve = Curve(path, 0, sampler_check=check)
            for row in rows[:-1]:
                curve.append(row)
            if resumed:
                curve.close()
                curve = Curve(path, len(rows) - 1, sampler_check=check)
            try:
                curve.append(rows[-1])
                found = ""
            except rollouts.SamplerError as error:
                found = str(error)
            assert bool(re.search(message, found)) == (alarm and check), (case, check, resumed)
            curve.close()
            assert read_growing_csv(path)[-1]["rollout"] == str(len(rows)), "the row that says so stands there"


def test_the_first_of_two_signals_is_the_reason_of_a_stop() -> None:
    """Near a time limit Slurm's SIGTERM may come before the update ends that SIGUSR1 is to be the last of."""
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)}
    stop = StopRequest()
    try:
        stop.install()
        assert not stop()
        for number in before:
            signal.raise_signal(number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert stop()
    assert stop.signal == signal.SIGUSR1
