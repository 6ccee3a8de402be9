"""The suite notices every small wrong done to any method: each mutation of each method fails one of its checks."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import pytest

from methods import catalog
from methods.method import Method
from tests.methods import subjects, test_properties, test_reference
from tests.methods.batches import random_fields
from tests.methods.mutations import MUTATIONS

CORRECTED = (
    "grpo+correction=icepop+correction-cap=1.5+correction-floor=0.6",
    "gspo+correction=seq-tis",
    "kl_cov+correction=tis+correction-on=objective",
    "grpo+correction=geo-rs+correction-cap=1.2+correction-floor=0.85",
    "grpo+correction=tis+rejection=geo-rs+rejection-cap=1.2+rejection-floor=0.85",
)


def split(key: str) -> None:
    method = catalog.parse(key)
    # several batches: a rejection of whole sequences may find none to reject in one of them
    for seed in range(41, 46):
        test_properties.split_invariant(method, random_fields(seed, drift=0.8))
    if method.scope != "token":
        test_properties.a_split_beyond_scope_changes_the_loss(key)


def fractions(key: str) -> None:
    if key.startswith(("kl_cov", "clip_cov")):
        test_properties.the_fraction_selects_as_many(key)


CHECKS: tuple[Callable[[str], None], ...] = (
    test_reference.loss_equals,
    test_reference.gradient_equals_finite_differences,
    test_reference.advantage_equals,
    test_reference.loss_of_a_micro_batch_equals,
    split,
    test_properties.every_property,
    fractions,
)


def caught(key: str, mutant: Method) -> bool:
    """Whether a check fails when `key` means `mutant`."""
    parse = catalog.parse
    with mock.patch.object(catalog, "parse", lambda text: mutant if text == key else parse(text)):
        for check in CHECKS:
            try:
                check(key)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # pytest's own failures are no Exceptions; any failure is a catch
                return True
    return False


@pytest.mark.slow
def test_every_mutation_of_every_method_and_reading_is_caught() -> None:
    keys = tuple(dict.fromkeys((*catalog.keys(), *subjects.shapes(), *CORRECTED)))
    for key in keys:  # passes on the method as it is; test_reference.py and test_properties.py run the other checks
        split(key)
    made = [(key, name, mutate(catalog.parse(key))) for name, mutate in MUTATIONS.items() for key in keys]
    mutants = [(key, name, mutant) for key, name, mutant in made if mutant is not None]
    assert len(mutants) >= 20 * len(keys)
    assert [f"{key}: {name}" for key, name, mutant in mutants if not caught(key, mutant)] == []


def test_every_mutation_acts_on_some_method() -> None:
    methods = [catalog.parse(key) for key in subjects.shapes()]
    assert [name for name, mutate in MUTATIONS.items() if all(mutate(method) is None for method in methods)] == []
