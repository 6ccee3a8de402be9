"""claims.yaml quotes the paper and names what is there; the ledger of the printed numbers, by hand and by command."""

import csv
import io
import math
import re
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from core import errors
from core.errors import ConfigError
from paper import printed
from paper.claims import ledger
from paper.claims.__main__ import main, paper_page
from paper.claims.claims import CLAIMS, KINDS, Question, declared, read_claims, rows_of, with_arms
from paper.claims.contrast import Gap
from paper.claims.entries import COLUMNS, Entry, read, to_text
from paper.claims.from_print import Prints, sd
from paper.printed import POOL, Row
from tests.paper.claim_trees import both, tree
from tests.paper.test_printed import TEXT, _plain

ROOT = CLAIMS.parent.parent

PAPER = printed.read()
ALL = {claim.id: claim for claim in read_claims()}
QUESTIONS = [test for claim in ALL.values() for test in (claim.test, claim.printed) if isinstance(test, Question)]


def test_quotes_stand_in_the_paper() -> None:
    if not TEXT.is_file():
        pytest.skip(f"the paper's text is not at {TEXT}")
    plain = _plain(TEXT.read_text(encoding="utf-8")).replace("**", "")
    quotes = [place.quote for claim in ALL.values() for place in (claim.declared, *claim.declared.also)]
    assert [quote for quote in quotes if _plain(quote) not in plain] == []


def test_every_kind_tests_some_claim() -> None:
    assert {test.kind for test in QUESTIONS} == set(KINDS)


def test_every_row_of_the_tables_is_part_of_some_claim() -> None:
    named = {id for test in QUESTIONS for id in rows_of(test.arguments)} & PAPER.keys()
    named |= {part for id in named for part in PAPER[id].of}
    trained = [row for row in printed.measured(PAPER) if row.run and row.run.method != "base"]
    assert {row.run for row in trained} - {PAPER[id].run for id in named} == set()


CONFIGS = ("beyond", "clean", "matched", "tuned", "smollm")  # that have several step sizes, or move equally far


def test_methods_at_equal_movement_are_all_that_the_experiments_compare() -> None:
    """Of the first model of Table 1, of Panels A to E of Table 3, and of the configurations of our own."""
    rows = [row.run for row in printed.measured(PAPER) if row.run and row.run.model == "q7"]
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


def test_every_arm_is_part_of_some_claim() -> None:
    assert with_arms(PAPER).keys() - PAPER.keys() <= {id for test in QUESTIONS for id in rows_of(test.arguments)}


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
    (lambda c: c["claims"].append(_named(c, "gain-q7")), ("gain-q7", "twice")),
    (of_test("gain-q7", ROWS, rigth="T1.2"), ("gain-q7", "rigth", "nearest: right")),
    (lambda c: _named(c, "gain-q7")["test"][ROWS].pop("right"), ("gain-q7", "right: is missing")),
    (of_test("aime-q14", "highest", columns=["aime26"]), ("aime-q14", "aime26")),
    (of_test("higher-gradient-norm", RATIO, measure="grad_nrm"), ("higher-gradient-norm", "nearest: grad_norm")),
    (lambda c: c["arms"]["held"].update(row="T3.99"), ("arms.held", "T3.99")),
    (lambda c: _named(c, "faster-reward").update(print=PRINT), ("faster-reward", "printed row", "held")),
    (lambda c: c["margins"]["area"].update(within=0), ("claims.yaml", "within")),
    (lambda c: _named(c, "stability").update(print="drwan"), ("stability", "nearest: drawn")),
    (lambda c: _named(c, "stability").update(quotes="x"), ("stability", "nearest: quote")),
    (lambda c: _named(c, "collapse-of-beta-1").update(readings={"k1": {"T3.3": "x"}}), ("collapse-of-beta-1", "T3.3")),
]


def test_bad_claims_are_refused_by_name(tmp_path: Path) -> None:
    for edit, words in BROKEN:
        with pytest.raises(ConfigError) as caught:
            read_claims(_content(edit, tmp_path))
        assert [word for word in ("claims.yaml", *words) if word not in str(caught.value)] == [], words


@pytest.fixture(scope="module")
def entries() -> dict[str, Entry]:
    return {e.id: e for e in ledger.printed_entries()}


def test_chance_by_hand() -> None:
    """Table 4: three pairs of seeds, averages .55, .04 and .03 points apart, against generation noise of the counts."""

    def generation(a: str, b: str) -> float:
        parts = []
        for key, n in printed.COLUMN.items():
            share = float((PAPER[a].cells[key] or 0) + (PAPER[b].cells[key] or 0)) / 200
            parts.append((POOL[key] / 8844 * sd(share, n)) ** 2)
        return math.sqrt(sum(parts))

    pairs = {("T4.1", "T4.2"): 0.0055, ("T4.3", "T4.4"): 0.0004, ("T4.5", "T4.6"): 0.0003}
    factor = sum((apart / generation(*pair)) ** 2 for pair, apart in pairs.items()) / 3
    se = math.sqrt(factor) * generation("T1.8", "T1.2")
    half = 3.182446305284263 * se
    found = Prints(PAPER).difference("T1.8", "T1.2", "score", "avg", 0.0)
    assert (found.value, found.low, found.high) == pytest.approx((0.0174, 0.0174 - half, 0.0174 + half), rel=2e-3)


def test_a_cell_that_is_not_printed_is_a_gap() -> None:
    with pytest.raises(Gap, match=r"T2\.6 prints - under AIME24"):
        Prints(PAPER).difference("T2.6", "T2.5", "score", "aime24", 0.0)


def _shift(rows: dict[str, str]) -> dict[str, Row]:
    """The paper with other averages, in every row of the same run; its cells stay."""
    changed = dict(PAPER)
    for id, value in rows.items():
        same = [row for row in PAPER.values() if row.id == id or (row.run and row.run == PAPER[id].run)]
        changed |= {row.id: replace(row, cells={**row.cells, "avg": Decimal(value)}) for row in same}
    return changed


TURNED: dict[str, tuple[str, dict[str, str], str, str]] = {
    "gain swapped": ("gain-q14", {"T1.17": "41.51", "T1.11": "44.02"}, "supported", "contradicted"),
    "gain gone": ("gain-q14", {"T1.17": "41.61"}, "supported", "undecided"),
    "seeds far apart": ("gain-q14", {"T4.5": "22.62"}, "supported", "undecided"),
    "small gain large": ("gain-m7", {"T2.6": "9.65"}, "undecided", "supported"),
    "drop turned round": ("drop-at-beta-0.1", {"T3.3": "42.00"}, "supported", "contradicted"),
    "no collapse": ("collapse-of-beta-1", {"T3.2": "31.00"}, "supported", "not tested"),
}


@pytest.mark.parametrize("case", TURNED)
def test_verdicts_turn_with_the_printed_numbers(entries: dict[str, Entry], case: str) -> None:
    id, cells, before, after = TURNED[case]
    assert entries[id].verdict == before
    prints = Prints(_shift(cells))
    blank = replace(entries[id], verdict="not tested", reason="")
    (entry,) = ledger.judge([ledger.Case(blank, ALL[id].printed, prints)])
    assert entry.verdict == after


def test_the_page_in_docs_is_what_the_ledger_says(entries: dict[str, Entry]) -> None:
    printed = list(entries.values())
    assert (ROOT / "docs" / "claims.md").read_text(encoding="utf-8") == paper_page(printed, declared().margins)
    assert (ROOT / "paper" / "claims.csv").read_text(encoding="utf-8") == to_text(printed)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[object, str]]:
    def call(*words: object) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["claims", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            errors.run(main)
        return ended.value.code, capsys.readouterr().err

    return call


def test_command_writes_both_ledgers(
    tmp_path: Path, command: Callable[..., tuple[object, str]], entries: dict[str, Entry]
) -> None:
    seeds = [{"score": 0.7}, {"score": 0.71}]
    found = tree(tmp_path / "tiny", both(seeds, [{"score": 0.6}, {"score": 0.62}]), stand_ins=True)
    assert command("--results", found.root) == (0, "")
    rows = list(csv.DictReader(io.StringIO((found.root / "claims.csv").read_text(encoding="utf-8"))))
    assert tuple(rows[0]) == COLUMNS
    assert {row["ledger"] for row in rows} == {"paper", "ours"}
    assert read(found.root / "claims.csv") == [*entries.values(), *ledger.run_entries(found)]
    text = (found.root / "claims.md").read_text(encoding="utf-8")
    folders = [
        f"{method}/seed{seed}"
        for method, seeds_of in re.findall(r"`(runs/[^`]*)/seed\{([^}]*)\}`", text)
        for seed in seeds_of.split(",")
    ]
    assert folders
    assert all((found.root / folder / "run.json").is_file() for folder in folders)
    tables = [line for line in text.splitlines() if line.startswith("| ")]
    assert len({line.count("|") for line in tables}) == 1
    anchors = {"#" + title.replace(".", "") for title in re.findall(r"^### (.*)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\((#[^)]*)\)", text)) == anchors


def test_a_kept_ledger_of_other_claims_is_refused(
    tmp_path: Path, command: Callable[..., tuple[object, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tree(tmp_path / "tiny", both([{"score": 0.7}], [{"score": 0.6}]))
    monkeypatch.setattr("paper.claims.claims.read_claims", lambda: list(ALL.values())[1:])
    code, err = command("--results", found.root)
    assert code == 2
    assert "paper/claims.csv: holds other claims than claims.yaml; run python -m paper.claims --page" in err


@pytest.mark.parametrize("words", [(), ("--results", "no/such/tree")])
def test_command_refuses_in_one_line(words: tuple[str, ...], command: Callable[..., tuple[object, str]]) -> None:
    code, err = command(*words)
    assert code == 2
    assert err.count("\n") == 1
