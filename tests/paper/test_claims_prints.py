"""The ledger of the printed numbers: noise by hand, verdicts that turn with the numbers, files and command."""

from __future__ import annotations

import csv
import io
import math
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from core import errors
from paper import printed
from paper.claims import ledger
from paper.claims.__main__ import main, paper_page
from paper.claims.claims import read_claims, read_margins
from paper.claims.contrast import Gap
from paper.claims.entries import COLUMNS, Entry, read, to_text
from paper.claims.from_print import Prints, sd
from paper.printed import POOL, Paper, Row
from tests.paper.claim_trees import both, tree

ROOT = Path(__file__).resolve().parents[2]
PAPER = printed.read()
CLAIMS = read_claims(paper=PAPER)


@pytest.fixture(scope="module")
def entries() -> dict[str, Entry]:
    return {e.id: e for e in ledger.printed_entries(CLAIMS, PAPER)}


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


def test_the_wider_of_two_intervals_counts() -> None:
    """AIME24: Table 4's seeds happen to lie closer than generation alone allows, so that decides; AMC: the seeds do."""
    prints = Prints(PAPER)
    share = float(PAPER["T1.8"].cells["aime24"] + PAPER["T1.2"].cells["aime24"]) / 200  # type: ignore[operator]
    aime, amc = (prints.difference("T1.8", "T1.2", "score", column, 0.0) for column in ("aime24", "amc"))
    assert prints.factor("aime24") < 1 < prints.factor("amc")
    assert (aime.high or 0) - (aime.value or 0) == pytest.approx(1.959964 * sd(share, 960), rel=1e-3)
    assert "generation noise" in aime.how
    assert "seed pairs" in amc.how


def test_a_cell_that_is_not_printed_is_a_gap() -> None:
    with pytest.raises(Gap, match=r"T2\.6 prints - under AIME24"):
        Prints(PAPER).difference("T2.6", "T2.5", "score", "aime24", 0.0)


def with_cell(paper: Paper, id: str, column: str, value: Decimal) -> dict[str, Row]:
    """The paper with another value in one cell, in every row of the same run."""
    run = paper[id].run
    return {
        key: replace(row, cells={**row.cells, column: value}) if key == id or (run and row.run == run) else row
        for key, row in paper.items()
    }


def _shift(rows: dict[str, str]) -> dict[str, Row]:
    """The paper with other averages; its cells stay."""
    changed = dict(PAPER)
    for id, value in rows.items():
        changed = with_cell(changed, id, "avg", Decimal(value))
    return changed


TURNED: dict[str, tuple[str, dict[str, str], str, str]] = {
    "gain swapped": ("gain-q14", {"T1.17": "41.51", "T1.11": "44.02"}, "supported", "contradicted"),
    "gain gone": ("gain-q14", {"T1.17": "41.61"}, "supported", "undecided"),
    "seeds far apart": ("gain-q14", {"T4.5": "22.62"}, "supported", "undecided"),
    "small gain large": ("gain-m7", {"T2.6": "9.65"}, "undecided", "supported"),
    "drop turned round": ("drop-at-beta-0.1", {"T3.3": "42.00"}, "supported", "contradicted"),
    "no collapse": ("collapse-of-beta-1", {"T3.2": "31.00"}, "supported", "undecided"),
}


@pytest.mark.parametrize("case", TURNED)
def test_verdicts_turn_with_the_printed_numbers(entries: dict[str, Entry], case: str) -> None:
    id, cells, before, after = TURNED[case]
    assert entries[id].verdict == before
    prints = Prints(_shift(cells))
    claim = next(claim for claim in CLAIMS if claim.id == id)
    blank = replace(entries[id], verdict="undecided", reason="")
    (entry,) = ledger.judge([ledger.Case(blank, claim.printed, prints)])
    assert entry.verdict == after


def test_averages_that_contradict_their_cells_give_no_verdict(entries: dict[str, Entry]) -> None:
    entry = entries["gain-dq7"]
    assert entry.verdict == "undecided"
    assert "its cells imply 47.91 to 48.04" in entry.reason
    assert "as printed supported" in entry.reason


def test_what_is_only_drawn_is_undecided(entries: dict[str, Entry]) -> None:
    drawn = [e for e in entries.values() if not e.kind]
    assert {"lower-clip-ratio", "higher-gradient-norm", "faster-reward"} <= {e.id for e in drawn}
    assert all(e.verdict == "undecided" and e.reason and e.estimate is None for e in drawn)


def test_undecided_entries_say_what_they_could_have_seen(entries: dict[str, Entry]) -> None:
    for entry in entries.values():
        if entry.verdict == "undecided" and entry.estimate is not None and "with these averages" not in entry.reason:
            assert "would have found" in entry.reason, entry.id


def test_the_page_in_docs_is_what_the_ledger_says() -> None:
    printed = ledger.printed_entries()
    assert (ROOT / "docs" / "claims.md").read_text(encoding="utf-8") == paper_page(printed, read_margins())
    assert (ROOT / "paper" / "claims.csv").read_text(encoding="utf-8") == to_text(printed)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[object, str]]:
    def call(*words: object) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["claims", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            errors.run(main)
        return ended.value.code, capsys.readouterr().err

    return call


def test_command_writes_both_ledgers(tmp_path: Path, command: Callable[..., tuple[object, str]]) -> None:
    seeds = [{"score": 0.7}, {"score": 0.71}]
    found = tree(tmp_path / "tiny", both(seeds, [{"score": 0.6}, {"score": 0.62}]), stand_ins=True)
    assert command("--results", found.root) == (0, "")
    rows = list(csv.DictReader(io.StringIO((found.root / "claims.csv").read_text(encoding="utf-8"))))
    assert tuple(rows[0]) == COLUMNS
    assert {row["ledger"] for row in rows} == {"paper", "ours"}
    assert read(found.root / "claims.csv") == [*ledger.printed_entries(), *ledger.run_entries(found)]
    text = (found.root / "claims.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((runs/[^)]*)\)", text)
    assert links
    assert all((found.root / link).is_file() for link in links)
    tables = [line for line in text.splitlines() if line.startswith("| ")]
    assert len({line.count("|") for line in tables}) == 1
    anchors = {"#" + title.replace(".", "") for title in re.findall(r"^### (.*)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\((#[^)]*)\)", text)) == anchors


def test_a_kept_ledger_of_other_claims_is_refused(
    tmp_path: Path, command: Callable[..., tuple[object, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tree(tmp_path / "tiny", both([{"score": 0.7}], [{"score": 0.6}]))
    monkeypatch.setattr("paper.claims.claims.read_claims", lambda: CLAIMS[1:])
    code, err = command("--results", found.root)
    assert code == 2
    assert "paper/claims.csv: holds other claims than claims.yaml; run python -m paper.claims --page" in err


@pytest.mark.parametrize("words", [(), ("--results", "no/such/tree")])
def test_command_refuses_in_one_line(words: tuple[str, ...], command: Callable[..., tuple[object, str]]) -> None:
    code, err = command(*words)
    assert code == 2
    assert err.count("\n") == 1
