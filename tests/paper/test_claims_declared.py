"""claims.yaml: every claim quotes the paper, names kinds and rows that are there, and what the quote states beyond."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from core.errors import ConfigError
from paper import printed
from paper.claims.claims import CLAIMS, Question, read_claims, with_arms
from paper.claims.tests import KINDS, rows_of
from tests.paper.test_printed import TEXT, _plain

ROOT = CLAIMS.parent.parent

ALL = {claim.id: claim for claim in read_claims()}


def test_quotes_stand_in_the_paper() -> None:
    if not TEXT.is_file():
        pytest.skip(f"the paper's text is not at {TEXT}")
    plain = _plain(TEXT.read_text(encoding="utf-8")).replace("**", "")
    quotes = [place.quote for claim in ALL.values() for place in (claim.declared, *claim.declared.also)]
    assert [quote for quote in quotes if _plain(quote) not in plain] == []


def test_every_kind_tests_some_claim() -> None:
    tests = [test for claim in ALL.values() for test in (claim.test, claim.printed) if isinstance(test, Question)]
    assert {test.kind for test in tests} == set(KINDS)


def test_every_row_of_the_tables_is_part_of_some_claim() -> None:
    tests = [test for claim in ALL.values() for test in (claim.test, claim.printed) if isinstance(test, Question)]
    named = {id for test in tests for id in rows_of(test.arguments)}
    trained = [row for row in printed.measured(printed.read()) if row.run and row.run.method != "base"]
    named &= set(printed.read())
    named |= {part for id in named for part in printed.read()[id].of}
    assert {row.run for row in trained} - {printed.read()[id].run for id in named} == set()


CONFIGS = ("beyond", "clean", "matched", "tuned", "smollm")  # that have several step sizes, or move equally far


def test_methods_at_equal_movement_are_all_that_the_experiments_compare() -> None:
    """Of the first model of Table 1, of Panels A to E of Table 3, and of the configurations of our own."""
    rows = [row.run for row in printed.measured(printed.read()) if row.run and row.run.model == "q7"]
    ours = [yaml.safe_load((ROOT / f"config/{name}.yaml").read_text("utf-8")) for name in CONFIGS]
    compared = {run.method for run in rows} | {m for c in ours for block in c["matrix"] for m in block["methods"]}
    compared = {method.partition("@")[0] for method in compared}
    (claim,) = (claim for claim in ALL.values() if claim.test.kind == "equal_movement")
    assert {*claim.declared.methods} == compared - {"base", "grpo", "tepo"}
    assert [id for id, other in ALL.items() if other.declared.methods and other is not claim] == []


def test_what_a_quote_states_beyond_the_test_is_named() -> None:
    """Words of a quote that no test reaches, in any claim with that quote."""
    for word in ("bias", "stability", "steadier", "exploration", "effective", "redundant", "excessive"):
        quoting = [claim.declared for claim in ALL.values() if word in claim.declared.quote]
        assert quoting, word
        assert [declared.id for declared in quoting if not declared.untested] == [], word
    assert "no measure" in ALL["lower-clip-ratio"].declared.untested


OF_SCORES = ("difference_of_rows", "highest", "ordering", "rank", "seed_spread")


def test_scores_of_tiny_models_are_no_test_of_any_claim() -> None:
    """All alike: a claim is tested there by curves, or it is not testable."""
    for id, claim in ALL.items():
        if claim.test.kind in OF_SCORES:
            of_scores = claim.test.arguments.get("measure", "score") == "score"
            assert (claim.untestable is not None) == of_scores, id
            assert claim.needs == ("scores.csv" if of_scores else "runs/*/curve.csv"), id


MEASURED = [id for id, claim in ALL.items() if claim.test.kind != "algebra" and claim.untestable is None]
THRESHOLDS = {"performance-by-entropy", "collapse-of-beta-1"}  # held against a number that is not "no difference"


def test_every_claim_about_curves_has_a_margin() -> None:
    assert {id for id in MEASURED if ALL[id].margin is None} == THRESHOLDS


def test_an_arm_stands_beside_a_printed_row_and_is_in_no_printed_test() -> None:
    rows = with_arms(printed.read())
    arms = [row for id, row in rows.items() if id not in printed.read()]
    assert {(row.model, row.run.steps) for row in arms if row.run} == {("q7", 72)}
    in_print = [claim.printed for claim in ALL.values() if isinstance(claim.printed, Question)]
    assert {row.id for row in arms} & {id for test in in_print for id in rows_of(test.arguments)} == set()
    assert {row.id for row in arms} <= {id for claim in ALL.values() for id in rows_of(claim.test.arguments)}


CONTENT = yaml.safe_load(CLAIMS.read_text(encoding="utf-8"))


def _content(edit: Callable[[dict], object], folder: Path) -> Path:
    content = deepcopy(CONTENT)
    edit(content)
    path = folder / "claims.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def _named(content: dict, id: str) -> dict:
    return next(claim for claim in content["claims"] if claim["id"] == id)


Change = Callable[[dict], object]


def of_test(id: str, kind: str, **changes: object) -> Change:
    """Other arguments of a claim's test."""
    return lambda c: _named(c, id)["test"][kind].update(changes)


ROWS, RATIO, PRINT = "difference_of_rows", "curve_ratio", {"difference_of_rows": {"left": "held", "right": "T3.19"}}
BROKEN: list[tuple[Change, tuple[str, ...]]] = [
    (lambda c: _named(c, "gain-q7").update(test={"diference_of_rows": {}}), ("gain-q7", "nearest: difference_of_rows")),
    (of_test("gain-q7", ROWS, left="T1.88"), ("gain-q7", "T1.88", "nearest: T1.8")),
    (of_test("gain-q7", ROWS, left="T1.9"), ("gain-q7", "T1.9")),  # a row of differences
    (of_test("gain-q7", ROWS, right="T2.2"), ("gain-q7", "q7 and l8")),
    (of_test("higher-gradient-norm", RATIO, right=["T1.2"]), ("higher-gradient-norm", "same models")),
    (lambda c: c["claims"].append(_named(c, "gain-q7")), ("gain-q7", "twice")),
    (of_test("gain-q7", ROWS, rigth="T1.2"), ("gain-q7", "rigth", "nearest: right")),
    (lambda c: _named(c, "gain-q7")["test"][ROWS].pop("right"), ("gain-q7", "right: is missing")),
    (of_test("aime-q14", "highest", columns=["aime26"]), ("aime-q14", "aime26")),
    (of_test("higher-gradient-norm", RATIO, measure="grad_nrm"), ("higher-gradient-norm", "nearest: grad_norm")),
    (lambda c: c["arms"]["held"].update(row="T3.99"), ("arms.held", "T3.99")),
    (lambda c: _named(c, "faster-reward").update(print=PRINT), ("faster-reward", "printed row", "held")),
    (lambda c: c["margins"]["area"].update(within=0), ("claims.yaml", "within")),
    (lambda c: c["margins"]["area"].pop("why"), ("claims.yaml", "why: is missing")),
    (lambda c: _named(c, "stability").update(print="drwan"), ("stability", "nearest: drawn")),
    (lambda c: _named(c, "stability").update(quotes="x"), ("stability", "nearest: quote")),
    (lambda c: _named(c, "stability").update(tests=None), ("stability", "tests")),
    (lambda c: _named(c, "collapse-of-beta-1").update(readings={"k1": {"T3.3": "x"}}), ("collapse-of-beta-1", "T3.3")),
]


def test_bad_claims_are_refused_by_name(tmp_path: Path) -> None:
    for edit, words in BROKEN:
        with pytest.raises(ConfigError) as caught:
            read_claims(_content(edit, tmp_path))
        assert [word for word in ("claims.yaml", *words) if word not in str(caught.value)] == [], words
