"""What a loss refuses: the message names the tensor, its shape or index, the method, and the nearest allowed name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from core.errors import BenchError
from methods import catalog
from methods.batch import Batch
from methods.parts.entropy import logp_and_entropy
from tests.methods import subjects
from tests.methods.batches import random_fields
from tests.methods.subjects import ALWAYS, batch_of

GOOD = random_fields(201)
ROWS, WIDTH = GOOD["mask"].shape
TOKENS = ("old_logp", "entropy", "old_entropy", "ref_logp", "sampling_logp", "mask")
OPTIONAL = ("entropy", "old_entropy", "ref_logp", "sampling_logp", "full_logp", "old_full_logp")


def message(**changes: Any) -> str:
    """What `Batch` says to the good fields with these changed."""
    given = {name: GOOD[name] for name in (*ALWAYS, *OPTIONAL)} | changes
    with pytest.raises(BenchError) as caught:
        Batch(**given, label="tepo")
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_tensor_of_another_shape() -> None:
    for name in TOKENS:
        text = message(**{name: GOOD[name][:, :-1]})
        assert all(part in text for part in ("tepo", name, str((ROWS, WIDTH - 1)), str((ROWS, WIDTH)))), text
        text = message(**{name: GOOD[name][:1]})  # it would broadcast
        assert all(part in text for part in (name, str((1, WIDTH)))), text
    for name in ("advantage", "group"):
        for wrong in (GOOD[name][:-1], GOOD[name][:, None]):
            text = message(**{name: wrong})
            assert all(part in text for part in (name, str(tuple(wrong.shape)))), text
    for name in ("full_logp", "old_full_logp"):
        text = message(**{name: GOOD[name][:, :-1]})
        assert all(part in text for part in (name, str((ROWS, WIDTH - 1, 5)))), text


def test_a_value_that_is_not_finite_on_a_token() -> None:
    row, column = GOOD["mask"].nonzero()[-1].tolist()
    for name in ("logp", *TOKENS[:-1]):
        for bad in (float("nan"), float("inf"), -float("inf")):
            broken = GOOD[name].clone()
            broken[row, column] = bad
            text = message(**{name: broken})
            assert all(part in text for part in ("tepo", name, f"[{row}, {column}]")), text


def test_a_constant_that_carries_gradient() -> None:
    for name in ("old_logp", "old_entropy", "ref_logp", "sampling_logp", "advantage", "old_full_logp"):
        text = message(**{name: GOOD[name].clone().requires_grad_()})
        assert all(part in text for part in (name, "gradient")), text


# ---- rewards ----


PAIR = torch.tensor([0, 0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([1.0, 0.0], PAIR, PAIR + 1), ["reward", "list", "tensor", "(B,)"]),
        ((None, PAIR, PAIR + 1), ["reward", "NoneType"]),
        ((torch.ones(2, 1), PAIR, PAIR + 1), ["reward", "(2, 1)", "(B,)"]),
        ((torch.ones(2, dtype=torch.complex64), PAIR, PAIR + 1), ["reward", "complex64", "float32"]),
        ((torch.ones(2), [0, 0], PAIR + 1), ["group", "list", "(2,)"]),
        ((torch.ones(2), PAIR.float(), PAIR + 1), ["group", "float32", "int64"]),
        ((torch.ones(2), torch.tensor([0, 0, 0]), PAIR + 1), ["group", "(3,)", "(2,)"]),
        ((torch.ones(2), PAIR, [3, 4]), ["lengths", "list", "(2,)"]),
        ((torch.ones(2), PAIR, torch.tensor([3, 4, 5])), ["lengths", "(3,)", "(2,)"]),
    ],
)
def test_what_is_no_reward_group_or_length_is_refused_in_a_line(arguments: tuple[Any, ...], words: list[str]) -> None:
    for key in ("grpo", "gpg", "opo", "reinforce_pp", "maxrl", "rloo"):
        with pytest.raises(BenchError) as caught:
            catalog.parse(key).advantage(*arguments)
        assert "\n" not in str(caught.value)
        assert [word for word in words if word not in str(caught.value)] == [], key


# ---- counts, states and tokens ----


def test_a_count_that_is_none_is_refused() -> None:
    """Also where the method divides by the other one: a sign that flips is found nowhere else."""
    for method in map(catalog.parse, ("grpo", "gspo", "tepo")):
        for name in ("tokens", "sequences"):
            for count in (-5, 0, float("nan"), float("inf"), torch.tensor(-5)):
                with pytest.raises(BenchError, match=rf"^{method.key}: {name}: got .*, expected .* above 0"):
                    method.loss(batch_of(method, GOOD), **{name: count})


HEAD = {"hidden": torch.zeros(2, 3, 4), "weight": torch.zeros(5, 4), "token": torch.zeros(2, 3, dtype=torch.long)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden": torch.zeros(2, 4, 4)}, ["hidden", "(2, 4, 4)", "(2, 3, 4)"]),  # one position too many
        ({"hidden": torch.zeros(2, 3, 5)}, ["hidden", "(2, 3, 5)", "(2, 3, 4)"]),
        ({"hidden": None}, ["hidden", "NoneType"]),
        ({"hidden": torch.zeros(2, 3, 4).bfloat16()}, ["hidden", "bfloat16", "float32", "weight"]),
        ({"weight": torch.zeros(4)}, ["weight", "(4,)", "(V, D)"]),
        ({"token": [[0, 1, 2], [3, 4, 0]]}, ["token", "list"]),
        ({"token": torch.zeros(2, 3)}, ["token", "float32", "int64"]),
        ({"temperature": 0.0}, ["temperature", "0.0", "above 0"]),
        ({"temperature": float("nan")}, ["temperature", "nan", "above 0"]),
        ({"chunk": 0}, ["chunk", "0", "above 0"]),
    ],
)
def test_states_and_tokens_that_do_not_belong_together(changes: dict[str, Any], words: list[str]) -> None:
    logp_and_entropy(**HEAD)
    with pytest.raises(BenchError) as caught:
        logp_and_entropy(**HEAD | changes)
    assert "\n" not in str(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []


# ---- keys ----


@pytest.mark.parametrize("text", [None, 3, ["tepo"], b"tepo"])
def test_a_key_that_is_no_text(text: Any) -> None:
    with pytest.raises(BenchError, match=rf"method: got {type(text).__name__}, expected a text"):
        catalog.parse(text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("tepoo", ["tepoo", "nearest: tepo"]),
        ("tepo+bta=1", ["tepo", "bta", "nearest: beta"]),
        ("tepo+kl-estimator=k4", ["tepo", "kl-estimator", "k4", "k3", "nearest: k"]),
        ("tepo+beta=much", ["tepo", "beta", "'much'", "number"]),
        ("tepo+beta=-1", ["tepo", "beta", "-1", "at least 0"]),
        ("tepo+beta=nan", ["tepo", "beta", "nan"]),
        ("tepo+beta", ["'beta'", "name=value"]),
        ("tepo+beta=1+beta=2", ["beta", "twice"]),
        ("tepo+dual-clip=0.5", ["dual-clip", "0.5", "at least 1"]),
        ("", ["method"]),
        ("grpo+correction-cap=3", ["grpo", "correction-cap", "correction=none"]),
        ("grpo+correction=icepop+correction-floor=2", ["grpo", "correction-floor", "2", "at most 1"]),
        ("grpo+correction=tis+correction-cap=0.5", ["grpo", "correction-cap", "0.5", "at least 1"]),
        ("grpo+correction=tis+correction-cap=1+correction-floor=1", ["correction-floor", "1", "correction-cap"]),
        ("grpo+correction=geo-rs+correction-cap=2", ["correction-cap", "got 2", "0.8 to 1.25", "1.001"]),
        ("grpo+correction=tis+rejection=geo-rs+rejection-cap=5", ["rejection-cap", "got 5", "0.8 to 1.25"]),
        ("grpo+correction=seq-rs+correction-cap=none+correction-floor=none", ["seq-rs", "rejects nothing", "set "]),
        ("grpo+rejection=geo-rs", ["grpo", "rejection", "correction=none"]),
        ("grpo+correction=tis+rejection=tis", ["grpo", "rejection", "'tis'", "geo-rs"]),
        ("dppo_tv+dppo-anchor=sampler+correction=tis", ["correction=tis", "dppo-anchor=sampler"]),
        ("grpo+correction=tis+correction-on=objective", ["grpo", "correction-on", "penalty"]),
        ("tepo+clip-form=eq5", ["clip-form", "'eq5'", "nearest: eq4", "ppo"]),
        ("tepo_steer+lambda-min=1.5", ["lambda-min", "at most 1"]),
        ("grpo+kl-estimator=k1", ["grpo", "kl-estimator"]),
        ("tepo+kl-anchor=ref+kl-estimator=full", ["kl-estimator=full", "kl-anchor=ref"]),
        ("tepo+clip-form=eq4+dual-clip=3", ["dual-clip", "clip-form=eq4"]),
        ("tepo+clip-form=none+low=0.1", ["low", "clip-form=none"]),
        ("tepo+dh-def=theorem+dh-tol=0.1", ["dh-tol", "dh-def=theorem"]),
        ("tepo+seq-eps=gspo+low=0.1", ["low", "seq-eps", "twice"]),
        ("tepo_eq4+clip-form=none", ["clip-form", "twice"]),
    ],
)
def test_a_key_that_does_not_parse(text: str, parts: list[str]) -> None:
    with pytest.raises(BenchError) as caught:
        catalog.parse(text)
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value), str(caught.value)


def test_settings_that_contradict_each_other_are_named() -> None:
    for text in subjects.contradictions():
        with pytest.raises(BenchError) as caught:
            catalog.parse(text)
        assert all(word in str(caught.value) for word in text.split("+")[1].split("=")), text


# ---- keys that do parse ----


def test_the_canonical_key_parses_to_itself() -> None:
    for text in subjects.variants():
        key = catalog.parse(text).key
        assert catalog.parse(key).key == key, text
        assert not {"/", " "} & set(key), text
