"""A declaration that cannot be right is refused before anything is computed; the error says where, and what instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from records.errors import BenchError, ConfigError, MissingInputError
from report import spec

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
"""


def test_the_smallest_table_needs_rows_and_columns_only(spec_file: Callable[[str], Path]) -> None:
    table = spec.table("mine", spec_file(TABLE))
    assert list(table.columns.items()) == [("aime24", "AIME24"), ("avg_pooled", "Avg. (pooled)")]
    assert [row.id for row in table.rows] == ["a", "b", "c"]
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
    "unknown key": ("label: two", "lable: two", "lable", "nearest: label"),
    "key twice": ("label: two", "label: two, label: too", "label", "twice"),
    "unknown condition": ("label: two,", "label: two, when: never,", "when", "'never'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_table_is_refused_with_the_place_in_the_error(case: str, spec_file: Callable[[str], Path]) -> None:
    old, new, *words = BROKEN[case]
    assert old in TABLE
    path = spec_file(TABLE.replace(old, new))
    with pytest.raises(BenchError) as error:
        spec.table("mine", path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_unknown_table_and_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tables\.yaml: tables: unknown value '11'.*nearest: 1"):
        spec.table("11")
    with pytest.raises(MissingInputError, match="nowhere"):
        spec.table("1", tmp_path / "nowhere.yaml")


def test_table_1_has_the_papers_rows_in_the_papers_order() -> None:
    table = spec.table("1")
    printed = [row.id for row in table.rows if not row.optional]
    assert printed == [f"T1.{n}" for n in range(1, 19)]
    for block in table.blocks:
        gain = next(row for row in block.rows if row.delta)
        tepo, grpo = (next(row for row in block.rows if row.id == part) for part in gain.delta or ())
        assert (tepo.label, grpo.label) == ("TEPO", "w. GRPO/DAPO")


def test_every_row_is_a_catalog_method() -> None:
    for name in (row.method for row in spec.table("1").rows if row.method):
        spec.check_method(name, "report", "method")
