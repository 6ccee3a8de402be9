"""Mutation check: do every small wrong to every method in turn and show which test catches it.

    python -m tests.methods.mutate [--methods KEY ...] [--readings]

Prints a Markdown table, mutations down, methods across: the letter of the first check that failed, `.` where the
mutation leaves the method what it is or has nothing to act on, SURVIVED where nothing noticed (then exit status 1).
The checks are the suite's own test functions, run on the one method.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from unittest import mock

from methods import catalog
from methods.method import Method
from tests.methods import reference, subjects, test_identities, test_properties, test_reference
from tests.methods.batches import random_fields
from tests.methods.mutations_of_parts import MUTATIONS


def value(key: str) -> None:
    test_reference.loss_equals(key)


def split(key: str) -> None:
    method = catalog.parse(key)
    # several batches: a rejection of whole sequences may find none to reject in one of them
    for seed in range(41, 46):
        test_properties.split_invariant(method, random_fields(seed, drift=0.8))
    if method.scope != "token":
        test_properties.a_split_beyond_scope_changes_the_loss(key)


def properties(key: str) -> None:
    test_properties.every_property(key)


def first_update(key: str) -> None:
    if key in reference.LOSSES:  # readings have none of their own
        test_identities.the_first_update_is_reinforce_unless_the_reference_says_why_not(key)


def fractions(key: str) -> None:
    if key.startswith(("kl_cov", "clip_cov")):
        test_identities.the_fraction_selects_as_many(key)


CHECKS: dict[str, tuple[str, Callable[[str], None]]] = {
    "V": ("loss against the scalar reference", value),
    "G": (
        "gradient against its finite differences",
        test_reference.gradient_equals_finite_differences,
    ),
    "A": ("advantage against the reference", test_reference.advantage_equals),
    "T": ("loss with the minibatch's totals", test_reference.loss_of_a_micro_batch_equals),
    "S": ("splits within and beyond the scope", split),
    "P": ("padding, order, dropped rows", properties),
    "1": ("first update is REINFORCE", first_update),
    "F": ("fractions of a long batch", fractions),
}


def caught_by(key: str, mutant: Method | None) -> str:
    """Letter of the first check that fails when `key` means `mutant`; `.` without a mutant, `SURVIVED` if none."""
    if mutant is None:
        return "."
    parse = catalog.parse
    with mock.patch.object(catalog, "parse", lambda text: mutant if text == key else parse(text)):
        for letter, (_, check) in CHECKS.items():
            try:
                check(key)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # pytest's own failures are no Exceptions; any failure is a catch
                return letter
    return "SURVIVED"


def unmutated(keys: Sequence[str]) -> None:
    """The checks must pass on the methods as they are, or a catch would mean nothing."""
    for key in keys:
        for _, check in CHECKS.values():
            check(key)


def table(keys: Sequence[str]) -> tuple[str, int, list[str]]:
    """The Markdown table, how many mutants it holds, and those that survived."""
    unmutated(keys)
    lines = ["| mutation | " + " | ".join(keys) + " |", "|" + "---|" * (len(keys) + 1)]
    survived, mutants = [], 0
    for name, mutate in MUTATIONS.items():
        cells = [caught_by(key, mutate(catalog.parse(key))) for key in keys]
        mutants += sum(cell != "." for cell in cells)
        survived += [f"{key}: {name}" for key, cell in zip(keys, cells, strict=True) if cell == "SURVIVED"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    legend = "\n".join(f"- {letter}: {meaning}" for letter, (meaning, _) in CHECKS.items())
    return "\n".join([*lines, "", legend]), mutants, survived


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--methods", nargs="+", default=catalog.keys(), metavar="KEY")
    parser.add_argument("--readings", action="store_true", help="every reading of these methods too (a minute)")
    args = parser.parse_args(argv)
    keys = list(args.methods)
    if args.readings:
        keys = [text for text in subjects.shapes() if text.split("+")[0] in keys]
    text, mutants, survived = table(keys)
    print(text)
    print(f"\n{mutants} mutants of {len(keys)} methods, {mutants - len(survived)} caught, {len(survived)} survived")
    for line in survived:
        print(f"SURVIVED {line}")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
