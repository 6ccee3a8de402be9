"""What a loss refuses: the message names the tensor, its shape or index, the method, and the nearest allowed name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from methods import catalog
from methods.batch import Batch
from methods.parts.entropy import logp_and_entropy
from records.errors import BenchError
from tests.methods import subjects
from tests.methods.batches import Fields, random_fields, refill
from tests.methods.subjects import ALWAYS, batch_of, evaluate

GOOD = random_fields(201)
ROWS, WIDTH = GOOD["mask"].shape
OPTIONAL = ("entropy", "old_entropy", "ref_logp", "sampling_logp", "full_logp", "old_full_logp")


def message(**changes: Any) -> str:
    """What `Batch` says to the good fields with these changed."""
    given = {name: GOOD[name] for name in (*ALWAYS, *OPTIONAL)} | changes
    with pytest.raises(BenchError) as caught:
        Batch(**given, label="tepo")
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", ["old_logp", "entropy", "old_entropy", "ref_logp", "sampling_logp", "mask"])
def test_a_token_tensor_of_another_shape(name: str) -> None:
    text = message(**{name: GOOD[name][:, :-1]})
    assert all(part in text for part in ("tepo", name, str((ROWS, WIDTH - 1)), str((ROWS, WIDTH)))), text


@pytest.mark.parametrize("name", ["old_logp", "entropy", "old_entropy", "ref_logp", "sampling_logp", "mask"])
def test_a_token_tensor_that_would_broadcast(name: str) -> None:
    text = message(**{name: GOOD[name][:1]})
    assert name in text
    assert str((1, WIDTH)) in text


@pytest.mark.parametrize("name", ["advantage", "group"])
def test_a_row_tensor_of_another_shape(name: str) -> None:
    for wrong in (GOOD[name][:-1], GOOD[name][:, None]):
        text = message(**{name: wrong})
        assert name in text
        assert str(tuple(wrong.shape)) in text


@pytest.mark.parametrize("name", ["full_logp", "old_full_logp"])
def test_a_vocabulary_tensor_of_another_shape(name: str) -> None:
    text = message(**{name: GOOD[name][:, :-1]})
    assert name in text
    assert str((ROWS, WIDTH - 1, 5)) in text


def test_vocabularies_of_two_sizes() -> None:
    text = message(old_full_logp=GOOD["old_full_logp"][..., :-1])
    assert "full_logp" in text
    assert "4" in text


def test_log_probabilities_of_one_dimension() -> None:
    text = message(logp=GOOD["logp"][0])
    assert "logp" in text
    assert str((WIDTH,)) in text


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["logp", "old_logp", "entropy", "old_entropy", "ref_logp", "sampling_logp"])
def test_a_value_that_is_not_finite_on_a_token(name: str, bad: float) -> None:
    row, column = GOOD["mask"].nonzero()[-1].tolist()
    broken = GOOD[name].clone()
    broken[row, column] = bad
    text = message(**{name: broken})
    assert all(part in text for part in ("tepo", name, f"[{row}, {column}]")), text


@pytest.mark.parametrize("name", ["full_logp", "old_full_logp"])
def test_a_vocabulary_value_that_is_not_a_number(name: str) -> None:
    """At the latest the loss refuses: no NaN is passed on."""
    row, column = GOOD["mask"].nonzero()[0].tolist()
    broken = GOOD[name].clone()
    broken[row, column, 0] = float("nan")
    method = catalog.parse("tepo_kl_all+kl-estimator=full")
    with pytest.raises(BenchError) as caught:
        method.loss(batch_of(method, GOOD | {name: broken}))
    assert "nan" in str(caught.value)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_an_advantage_that_is_not_finite(bad: float) -> None:
    broken = GOOD["advantage"].clone()
    broken[3] = bad
    text = message(advantage=broken)
    assert all(part in text for part in ("tepo", "advantage", "[3]", str(bad))), text


def test_two_infinities_that_cancel_are_still_found() -> None:
    broken = GOOD["logp"].clone()
    first, last = GOOD["mask"].nonzero()[0].tolist(), GOOD["mask"].nonzero()[-1].tolist()
    broken[first[0], first[1]], broken[last[0], last[1]] = float("inf"), -float("inf")
    assert str(first) in message(logp=broken)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_anything_may_stand_in_padding(value: float) -> None:
    fields = refill(GOOD, value)
    given: dict[str, Any] = {name: fields[name] for name in (*ALWAYS, *OPTIONAL)}
    Batch(**given)


def test_a_row_without_a_token() -> None:
    broken = GOOD["mask"].clone()
    broken[4] = False
    text = message(mask=broken)
    assert all(part in text for part in ("tepo", "mask", "row 4", "no token")), text


def test_a_row_dropped_that_has_tokens() -> None:
    dropped = torch.zeros(ROWS, dtype=torch.bool)
    dropped[2] = True
    text = message(dropped=dropped)
    assert "row 2" in text


def test_a_mask_that_is_not_boolean() -> None:
    text = message(mask=GOOD["mask"].double())
    assert "mask" in text
    assert "bool" in text


@pytest.mark.parametrize("name", ["old_logp", "old_entropy", "ref_logp", "sampling_logp", "advantage", "old_full_logp"])
def test_a_constant_that_carries_gradient(name: str) -> None:
    text = message(**{name: GOOD[name].clone().requires_grad_()})
    assert name in text
    assert "gradient" in text


@pytest.mark.parametrize("text", subjects.shapes())
def test_a_need_that_is_not_supplied(text: str) -> None:
    method = catalog.parse(text)
    for name in sorted(method.needs):
        given: dict[str, Any] = {n: GOOD[n] for n in (*ALWAYS, *sorted(method.needs - {name}))}
        batch = Batch(**given)
        for call in (method.loss, method.check):
            with pytest.raises(BenchError) as caught:
                call(batch)
            assert text.split("+")[0] in str(caught.value)
            assert name in str(caught.value)


def test_an_entropy_without_gradient_where_the_loss_differentiates_it() -> None:
    method = catalog.parse("tepo_maxent")
    given: dict[str, Any] = {n: GOOD[n] for n in (*ALWAYS, "entropy")} | {"logp": GOOD["logp"].clone().requires_grad_()}
    with pytest.raises(BenchError, match="entropy"):
        method.loss(Batch(**given))


@pytest.mark.parametrize("key", catalog.keys())
def test_a_ratio_that_overflows_is_not_passed_on(key: str) -> None:
    """Unclipped losses become infinite: refused, with the method and the largest log ratio."""
    method = catalog.parse(key)
    try:
        loss, gradient = evaluate(method, GOOD | {"old_logp": GOOD["old_logp"] - 1000.0})
    except BenchError as error:
        refusal = str(error)
    else:
        assert loss == loss
        assert all(bool(g.isfinite().all()) for g in gradient.values())
        return
    assert key in refusal


def test_entropies_in_half_precision_need_a_tolerance() -> None:
    half: Fields = GOOD | {name: GOOD[name].bfloat16() for name in ("entropy", "old_entropy")}
    with pytest.raises(BenchError, match="dh-tol"):
        catalog.parse("tepo").loss(batch_of(catalog.parse("tepo"), half))
    catalog.parse("tepo+dh-tol=0.01").loss(batch_of(catalog.parse("tepo+dh-tol=0.01"), half))


# ---- rewards ----


@pytest.mark.parametrize("key", ["grpo", "gpg"])
def test_a_reward_that_is_not_finite(key: str) -> None:
    with pytest.raises(BenchError, match=r"reward.*2"):
        catalog.parse(key).advantage(torch.tensor([1.0, 0.0, float("nan"), 1.0]), torch.tensor([0, 0, 1, 1]))


@pytest.mark.parametrize("key", ["grpo", "gpg"])
def test_a_group_of_one_response(key: str) -> None:
    with pytest.raises(BenchError, match=r"group.*7"):
        catalog.parse(key).advantage(torch.tensor([1.0, 0.0, 1.0]), torch.tensor([0, 0, 7]))


PAIR = torch.tensor([0, 0])


@pytest.mark.parametrize("key", ["grpo", "gpg", "opo", "reinforce_pp", "maxrl", "rloo"])
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
def test_what_is_no_reward_group_or_length_is_refused_in_a_line(
    key: str, arguments: tuple[Any, ...], words: list[str]
) -> None:
    with pytest.raises(BenchError) as caught:
        catalog.parse(key).advantage(*arguments)
    assert "\n" not in str(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []


# ---- counts, states and tokens ----


@pytest.mark.parametrize("count", [-5, 0, float("nan"), float("inf"), torch.tensor(-5)])
@pytest.mark.parametrize("name", ["tokens", "sequences"])
@pytest.mark.parametrize("key", ["grpo", "gspo", "tepo"])
def test_a_count_that_is_none_is_refused(key: str, name: str, count: Any) -> None:
    """Also where the method divides by the other one: a sign that flips is found nowhere else."""
    method = catalog.parse(key)
    with pytest.raises(BenchError, match=rf"^{key}: {name}: got .*, expected .* above 0"):
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
        ("gspro", ["gspro", "nearest: gspo"]),
        ("TEPO", ["TEPO", "nearest: tepo"]),
        ("DAPO+beta=1", ["DAPO", "nearest: dapo"]),
        ("tepo+bta=1", ["tepo", "bta", "nearest: beta"]),
        ("tepo+kl-estimator=k4", ["tepo", "kl-estimator", "k4", "k3", "nearest: k"]),
        ("tepo+seq-eps=gsp", ["tepo", "seq-eps", "nearest: gspo"]),
        ("tepo+beta=much", ["tepo", "beta", "'much'", "number"]),
        ("tepo+beta=-1", ["tepo", "beta", "-1", "at least 0"]),
        ("tepo+beta=nan", ["tepo", "beta", "nan"]),
        ("tepo+beta=inf", ["tepo", "beta", "inf"]),
        ("tepo+beta", ["'beta'", "name=value"]),
        ("tepo+=1", ["name=value"]),
        ("tepo+beta=1+beta=2", ["beta", "twice"]),
        ("tepo+dual-clip=0.5", ["dual-clip", "0.5", "at least 1"]),
        ("gpg+beta=1", ["gpg", "beta"]),
        ("", ["method"]),
        ("grpo+correction=tsi", ["grpo", "correction", "'tsi'", "icepop", "nearest: tis"]),
        ("grpo+correction-cap=3", ["grpo", "correction-cap", "correction=none"]),
        ("grpo+correction=none+correction-floor=1", ["grpo", "correction-floor", "correction=none"]),
        ("grpo+correction=icepop+correction-floor=2", ["grpo", "correction-floor", "2", "at most 1"]),
        ("grpo+correction=tis+correction-cap=0.5", ["grpo", "correction-cap", "0.5", "at least 1"]),
        ("grpo+correction=tis+correction-cap=1+correction-floor=1", ["correction-floor", "1", "correction-cap"]),
        ("grpo+correction=geo-rs+correction-cap=2", ["correction-cap", "got 2", "0.8 to 1.25", "1.001"]),
        ("grpo+correction=geo-rs+correction-floor=0.5", ["correction-floor", "got 0.5", "0.8 to 1.25", "0.999"]),
        ("grpo+correction=tis+rejection=geo-rs+rejection-cap=5", ["rejection-cap", "got 5", "0.8 to 1.25"]),
        ("grpo+correction=seq-rs+correction-cap=none+correction-floor=none", ["seq-rs", "rejects nothing", "set "]),
        ("grpo+rejection=geo-rs", ["grpo", "rejection", "correction=none"]),
        ("grpo+correction=tis+rejection-cap=3", ["grpo", "rejection-cap", "rejection=none"]),
        ("grpo+correction=tis+rejection=tis", ["grpo", "rejection", "'tis'", "geo-rs"]),
        ("dppo_tv+dppo-anchor=sampler+correction=tis", ["correction=tis", "dppo-anchor=sampler"]),
        ("grpo+correction=tis+correction-on=objective", ["grpo", "correction-on", "penalty"]),
    ],
)
def test_a_key_that_does_not_parse(text: str, parts: list[str]) -> None:
    with pytest.raises(BenchError) as caught:
        catalog.parse(text)
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value), str(caught.value)


@pytest.mark.parametrize("text", ["cispo+high=0.1+cispo=cap", "tepo+seq-eps=gspo+low=0.1", "tepo+low=0.1+seq-eps=gspo"])
def test_two_settings_of_one_option_are_refused(text: str) -> None:
    with pytest.raises(BenchError) as caught:
        catalog.parse(text)
    name = text.split("+")[1].split("=")[0]
    assert name in str(caught.value)


def test_a_setting_given_as_param_and_as_reading() -> None:
    with pytest.raises(BenchError, match="beta"):
        catalog.method("tepo", params={"beta": 1}, readings={"beta": 1})


@pytest.mark.parametrize("text", subjects.contradictions())
def test_settings_that_contradict_each_other_are_named(text: str) -> None:
    with pytest.raises(BenchError) as caught:
        catalog.parse(text)
    name, value = text.split("+")[1].split("=")
    assert name in str(caught.value)
    assert value in str(caught.value)


# ---- keys that do parse ----


@pytest.mark.parametrize("text", subjects.variants())
def test_the_canonical_key_parses_to_itself(text: str) -> None:
    key = catalog.parse(text).key
    assert catalog.parse(key).key == key
    assert "/" not in key
    assert " " not in key


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("tepo+beta=1", "tepo+beta=1.0"),
        ("tepo+beta=1e-2", "tepo+beta=0.01"),
        ("tepo+beta=0.001", "tepo"),
        ("tepo+kl-estimator=k1+beta=1", "tepo+beta=1+kl-estimator=k1"),
        ("tepo+seq-eps=gspo", "tepo+low=3e-4+high=4e-4"),
        ("tepo+seq-eps=clip-higher", "tepo"),
        ("tepo_line21", "tepo+gradient=alg1_line21"),
        ("dapo", "grpo"),
        ("tepo+correction=none", "tepo"),
        ("tepo+correction=tis+correction-cap=2.0", "tepo+correction-floor=none+correction=tis"),
        ("grpo+correction=icepop", "grpo+correction=icepop+correction-cap=5+correction-floor=0.5"),
        ("grpo+correction=seq-mis", "grpo+correction=seq-mis+correction-cap=3+correction-floor=none"),
        ("grpo+correction=geo-rs", "grpo+correction-cap=1.001+correction-floor=0.999+correction=geo-rs"),
        ("grpo+correction=tis+rejection=none", "grpo+correction=tis"),
    ],
)
def test_two_spellings_of_one_method_have_one_key(a: str, b: str) -> None:
    assert catalog.parse(a).key == catalog.parse(b).key
