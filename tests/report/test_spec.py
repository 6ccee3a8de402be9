"""A declaration that cannot be right is refused before anything is computed; the error says where, and what instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import BenchError, ConfigError, MissingInputError
from paper.printed import read
from report.tables import check, spec

PRINTED = Path(__file__).resolve().parents[3] / "shared/paper/tepo.md"
TABLE = """
tables:
  mine:
    columns: [aime24, avg_pooled]
    blocks:
      - model: q7
        rows:
          - {id: a, label: one, method: grpo}
          - {id: b, label: two, method: tepo}
          - {id: c, label: gain, delta: [b, a]}
      - model: q7
        baseline: a
        rows:
          - {id: d, label: first, method: gspo, seeds: [1]}
          - {id: e, label: second, method: gspo, seeds: [2]}
          - {id: f, label: both, mean: [d, e]}
"""


def test_the_smallest_table_needs_rows_and_columns_only(spec_file: Callable[[str], Path]) -> None:
    table = spec.table("mine", spec_file(TABLE))
    assert list(table.columns.items()) == [("aime24", "AIME24"), ("avg_pooled", "Avg. (pooled)")]
    assert [row.id for row in table.rows] == ["a", "b", "c", "d", "e", "f"]
    assert [row.kind for row in table.rows] == ["run", "run", "delta", "run", "run", "mean"]
    assert table.rows[2].delta == ("b", "a")


BROKEN = {
    "unknown column": ("aime24,", "aime42,", "aime42", "nearest: aime2"),
    "column twice": ("[aime24, avg_pooled]", "[aime24, aime24]", "columns", "twice"),
    "unknown model": ("model: q7", "model: q8", "'q8'", "nearest: q7"),
    "unknown method": ("method: tepo", "method: tepoo", "row b", "nearest: tepo"),
    "unknown method option is not the table's": ("method: tepo", "method: tepp+beta=1", "tepp", "tepo"),
    "row id twice": ("id: b, label: two, method", "id: a, label: two, method", "row id a", "twice"),
    "same row under two ids": ("label: two, method: tepo", "label: two, method: grpo", "rows a and b", "grpo"),
    "delta of a row that is not there": ("[b, a]", "[b, x]", "row c", "'x'"),
    "delta of three": ("[b, a]", "[b, a, a]", "row c", "minus"),
    "neither method nor delta": ("label: two, method: tepo", "label: two", "row b", "either"),
    "method and delta": ("delta: [b, a]", "delta: [b, a], method: gpg", "row c", "either"),
    "same method in other words": ("method: tepo}", "method: grpo+high=0.28}", "rows a and b", "the same"),
    "unknown option": ("method: tepo", "method: tepo+bета=1", "row b", "beta"),
    "mean of one": ("mean: [d, e]", "mean: [d]", "row f", "two rows"),
    "mean of a row that is not there": ("mean: [d, e]", "mean: [d, a]", "row f", "'a'"),
    "mean of an untrained model": (
        "second, method: gspo, seeds: [2]",
        "second, method: base",
        "row f",
        "no trained row",
    ),
    "mean over one seed twice": ("seeds: [2]", "seeds: [1], step: 3", "row f", "more than the seed"),
    "mean of two methods": ("second, method: gspo", "second, method: gpg", "row f", "more than the seed"),
    "mean of rows of all seeds": (
        "second, method: gspo, seeds: [2]",
        "second, method: gspo",
        "row f",
        "different seeds",
    ),
    "mean of equal seeds": ("seeds: [2]", "seeds: [2, 1]", "row f", "different seeds"),
    "seeds of a mean": ("mean: [d, e]", "mean: [d, e], seeds: [1]", "row f", "seeds belongs to the rows"),
    "seeds are no list": ("seeds: [2]", "seeds: 2", "blocks.1.rows.1.seeds", "must be a list, got 2"),
    "no seed": ("seeds: [2]", "seeds: []", "row e", "one place or more"),
    "a seed twice": ("seeds: [2]", "seeds: [2, 2]", "row e", "each once"),
    "unknown step": ("seeds: [2]", "seeds: [2], step: lang", "blocks.1.rows.1.step", "`long`", "'lang'"),
    "step zero": ("seeds: [2]", "seeds: [2], step: 0", "blocks.1.rows.1.step", "number of rollouts"),
    "unknown baseline": ("baseline: a", "baseline: x", "blocks.1.baseline", "'x'"),
    "a difference as baseline": ("baseline: a", "baseline: c", "blocks.1.baseline", "'c'"),
    "a baseline of another model": ("- model: q7\n        rows", "- model: q14\n        rows", "baseline", "'a'"),
}


def test_a_broken_table_is_refused_with_the_place_in_the_error(
    spec_file: Callable[[str], Path], subtests: pytest.Subtests
) -> None:
    for case in BROKEN:
        with subtests.test(case):
            old, new, *words = BROKEN[case]
            assert old in TABLE
            path = spec_file(TABLE.replace(old, new, 1))
            with pytest.raises(BenchError) as error:
                check.check(spec.table("mine", path))
            assert str(path) in str(error.value)
            assert "\n" not in str(error.value)
            for word in words:
                assert word in str(error.value)


TWINS = {  # rows that claim to be printed ones
    "another method": ("{id: T1.7, label: x, method: gpg}", "T1.7: method 'gpg', but the printed row is 'gspo'"),
    "another option": ("{id: T3.4, label: x, method: tepo_kl_all}", "'tepo_kl_all', but", "'tepo_kl_all+beta=0.01'"),
    "another model": ("{id: T1.17, label: x, method: tepo+beta=1}", "T1.17: model 'q7'", "'q14'"),
    "another variant": ("{id: T1.7, label: x, method: gspo@hot}", "T1.7: method 'gspo@hot'", "'gspo'"),
    "another seed": ("{id: T1.7, label: x, method: gspo, seeds: [1]}", "T1.7: seeds (1,)", "(2,)"),
    "another step": ("{id: T4.4, label: x, method: grpo, seeds: [2]}", "T4.4: step None", "'long'"),
    "another kind": ("{id: T1.1, label: x, method: gpg}", "T1.1: kind 'run'", "'base'"),
    "other rows": ("{id: T1.9, label: x, delta: [b, a]}", "T1.9: made of ('b', 'a')", "('T1.8', 'T1.2')"),
    "no printed row": ("{id: T3.99, label: x, method: gpg}", "'T3.99'", "nearest: T3.9"),
}


def test_a_row_with_a_printed_id_must_be_that_run(spec_file: Callable[[str], Path], subtests: pytest.Subtests) -> None:
    for case in TWINS:
        with subtests.test(case):
            row, *words = TWINS[case]
            path = spec_file(TABLE.replace("{id: c, label: gain, delta: [b, a]}", row))
            with pytest.raises(ConfigError) as error:
                check.check(spec.table("mine", path))
            assert all(word in str(error.value) for word in (str(path), *words)), error.value


def test_the_shipped_tables_name_methods_of_the_catalog_and_printed_rows_as_they_are() -> None:
    for table in spec.tables().values():
        check.check(table)


def test_a_row_with_a_beta_of_its_own_shows_it() -> None:
    rows = [row for table in spec.tables().values() for row in table.rows]
    betas = {row.id: (found[1], row.label) for row in rows if (found := re.search(r"\+beta=([^+]+)", row.method or ""))}
    assert len(betas) > 10
    assert {id: label for id, (beta, label) in betas.items() if beta not in label} == {}


def test_unknown_table_and_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tables\.yaml: tables: unknown value '11'.*nearest: 1"):
        spec.table("11")
    with pytest.raises(MissingInputError, match="nowhere"):
        spec.table("1", tmp_path / "nowhere.yaml")


def test_the_gains_of_table_1_are_tepo_minus_grpo() -> None:
    for block in spec.table("1").blocks:
        gain = next(row for row in block.rows if row.delta)
        tepo, grpo = (next(row for row in block.rows if row.id == part) for part in gain.delta or ())
        assert (tepo.label, grpo.label) == ("TEPO" if tepo.method == "tepo" else "TEPO (beta 1)", "w. GRPO/DAPO")


def test_every_printed_row_is_declared_once_in_printed_order(subtests: pytest.Subtests) -> None:
    for key in "1234":
        with subtests.test(key):
            declared = [row.id for row in spec.table(key).rows if row.id.startswith(f"T{key}.")]
            assert declared == [row.id for row in read().values() if row.table == key]


def test_panels_hold_the_rows_that_the_paper_puts_there() -> None:
    paper = read()
    for block in spec.table("3").blocks:
        letter = block.title[6] if block.title and block.title.startswith("Panel ") else ""
        assert {paper[row.id].panel for row in block.rows if row.id in paper} <= {letter}


@pytest.mark.skipif(not PRINTED.is_file(), reason=f"the paper's text is not at {PRINTED}")
def test_panel_titles_are_printed_so() -> None:
    text = PRINTED.read_text(encoding="utf-8")
    titles = [block.title for block in spec.table("3").blocks if block.title and block.title.startswith("Panel")]
    assert len(titles) == 5
    assert all(f"<i>{title}</i>" in text for title in titles)


BASELINES = {"T1.8": "T1.2", "T1.17": "T1.11", "T2.6": "T2.5", "T3.3": "T3.1", "T3.15": "T3.13", "T4.9": "T4.7"}


def test_rows_are_held_against_what_the_paper_compares_them_with(subtests: pytest.Subtests) -> None:
    for row in BASELINES:
        with subtests.test(row):
            blocks = [block for key in "1234" for block in spec.table(key).blocks if row in {r.id for r in block.rows}]
            assert [block.baseline for block in blocks] == [BASELINES[row]]
