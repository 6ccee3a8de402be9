"""`tables.yaml`: what is declared wrongly is refused by name before anything is trained; the paper's rows are printed
so."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import BenchError, ConfigError, MissingInputError
from methods import catalog
from paper.printed import read
from report import rows

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
    table = rows.table("mine", spec_file(TABLE))
    assert list(table.columns.items()) == [("aime24", "AIME24"), ("avg_pooled", "Avg. (pooled)")]
    assert [(row.id, row.kind) for row in table.rows] == [
        *(("a", "run"), ("b", "run"), ("c", "delta"), ("d", "run"), ("e", "run"), ("f", "mean"))
    ]
    assert table.rows[2].delta == ("b", "a")


SECOND = "second, method: gspo, seeds: [2]"
GAIN = "{id: c, label: gain, delta: [b, a]}"
BROKEN = {  # case -> what is replaced, by what, words of the error
    "unknown column": ("aime24,", "aime42,", "aime42", "nearest: aime2"),
    "column twice": ("[aime24, avg_pooled]", "[aime24, aime24]", "columns", "twice"),
    "unknown model": ("model: q7", "model: q8", "'q8'", "nearest: q7"),
    "unknown key": ("baseline: a", "baselin: a", "blocks.1.baselin: unknown key", "nearest: baseline"),
    "unknown method": ("method: tepo", "method: tepoo", "row b", "nearest: tepo"),
    "unknown method with option": ("method: tepo", "method: tepp+beta=1", "tepp", "tepo"),
    "unknown option": ("method: tepo", "method: tepo+bета=1", "row b", "beta"),
    "row id twice": ("id: b, label: two, method", "id: a, label: two, method", "row id a", "twice"),
    "same row under two ids": ("label: two, method: tepo", "label: two, method: grpo", "rows a and b", "grpo"),
    "same method in other words": ("method: tepo}", "method: grpo+high=0.28}", "rows a and b", "the same"),
    "delta of a row that is not there": ("[b, a]", "[b, x]", "row c", "'x'"),
    "delta of three": ("[b, a]", "[b, a, a]", "row c", "minus"),
    "neither method nor delta": ("label: two, method: tepo", "label: two", "row b", "either"),
    "method and delta": ("delta: [b, a]", "delta: [b, a], method: gpg", "row c", "either"),
    "mean of one": ("mean: [d, e]", "mean: [d]", "row f", "two rows"),
    "mean of a row that is not there": ("mean: [d, e]", "mean: [d, a]", "row f", "'a'"),
    "mean of an untrained model": (SECOND, "second, method: base", "row f", "e is not a trained row"),
    "mean over one seed twice": ("seeds: [2]", "seeds: [1], step: 3", "row f", "more than the seed"),
    "mean of two methods": ("second, method: gspo", "second, method: gpg", "row f", "more than the seed"),
    "mean of rows of all seeds": (SECOND, "second, method: gspo", "row f", "different seeds"),
    "mean of equal seeds": ("seeds: [2]", "seeds: [2, 1]", "row f", "different seeds"),
    "seeds of a mean": ("mean: [d, e]", "mean: [d, e], seeds: [1]", "row f", "seeds belongs to the rows"),
    "seeds are not a list": ("seeds: [2]", "seeds: 2", "blocks.1.rows.1.seeds", "must be a list, got 2"),
    "no seed": ("seeds: [2]", "seeds: []", "row e", "one place or more"),
    "a seed twice": ("seeds: [2]", "seeds: [2, 2]", "row e", "each once"),
    "unknown step": ("seeds: [2]", "seeds: [2], step: lang", "blocks.1.rows.1.step", "`long`", "'lang'"),
    "step zero": ("seeds: [2]", "seeds: [2], step: 0", "blocks.1.rows.1.step", "number of rollouts"),
    "unknown baseline": ("baseline: a", "baseline: x", "blocks.1.baseline", "'x'"),
    "a difference as baseline": ("baseline: a", "baseline: c", "blocks.1.baseline", "'c'"),
    "a baseline of another model": ("- model: q7\n        rows", "- model: q14\n        rows", "baseline", "'a'"),
    # Rows with the id of a printed one, which must be that run.
    "another method": (GAIN, "{id: T1.7, label: x, method: gpg}", "T1.7: method 'gpg', but", "'gspo'"),
    "another option": (GAIN, "{id: T3.4, label: x, method: tepo_kl_all}", "'tepo_kl_all', but", "+beta=0.01'"),
    "another model": (GAIN, "{id: T1.17, label: x, method: tepo+beta=1}", "T1.17: model 'q7'", "'q14'"),
    "another variant": (GAIN, "{id: T1.7, label: x, method: gspo@hot}", "T1.7: method 'gspo@hot'", "'gspo'"),
    "another seed": (GAIN, "{id: T1.7, label: x, method: gspo, seeds: [1]}", "T1.7: seeds (1,)", "(2,)"),
    "another step": (GAIN, "{id: T4.4, label: x, method: grpo, seeds: [2]}", "T4.4: step None", "'long'"),
    "another kind": (GAIN, "{id: T1.1, label: x, method: gpg}", "T1.1: kind 'run'", "'base'"),
    "other rows": (GAIN, "{id: T1.9, label: x, delta: [b, a]}", "T1.9: made of ('b', 'a')", "('T1.8', 'T1.2')"),
    "not a printed row": (GAIN, "{id: T3.99, label: x, method: gpg}", "'T3.99'", "nearest: T3.9"),
}


def test_a_broken_table_is_refused_with_the_place_in_the_error(
    spec_file: Callable[[str], Path], subtests: pytest.Subtests
) -> None:
    for case, (old, new, *words) in BROKEN.items():
        with subtests.test(case):
            assert old in TABLE
            path = spec_file(TABLE.replace(old, new, 1))
            with pytest.raises(BenchError) as error:
                rows.check(rows.table("mine", path), catalog)
            assert all(word in str(error.value) for word in (str(path), *words)), error.value
            assert "\n" not in str(error.value)


def test_unknown_table_and_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tables\.yaml: tables: unknown value '11'.*nearest: 1"):
        rows.table("11")
    with pytest.raises(MissingInputError, match="nowhere"):
        rows.tables(tmp_path / "nowhere.yaml")


def test_the_shipped_tables_name_methods_of_the_catalog_and_a_beta_stands_in_its_label() -> None:
    betas = 0
    for table in rows.tables().values():
        rows.check(table, catalog)
        for row in table.rows:
            if found := re.search(r"\+beta=([^+]+)", row.method or ""):
                betas += 1
                assert found[1] in row.label, row.id
    assert betas > 10


BASELINES = {"T1.8": "T1.2", "T1.17": "T1.11", "T2.6": "T2.5", "T3.3": "T3.1", "T3.15": "T3.13", "T4.9": "T4.7"}


def test_every_printed_row_is_declared_once_in_its_place_and_held_against_the_papers_baseline() -> None:
    paper = read()
    for key in "1234":
        declared = [row.id for row in rows.table(key).rows if row.id.startswith(f"T{key}.")]
        assert declared == [row.id for row in paper.values() if row.table == key]
    blocks = [block for key in "1234" for block in rows.table(key).blocks]
    baselines = {row.id: block.baseline for block in blocks for row in block.rows}
    assert {row: baselines[row] for row in BASELINES} == BASELINES
    for block in rows.table("3").blocks:
        letter = block.title[6] if block.title and block.title.startswith("Panel ") else ""
        assert {paper[row.id].panel for row in block.rows if row.id in paper} <= {letter}


@pytest.mark.skipif(not PRINTED.is_file(), reason=f"the paper's text is not at {PRINTED}")
def test_panel_titles_are_printed_so() -> None:
    text = PRINTED.read_text(encoding="utf-8")
    titles = [block.title for block in rows.table("3").blocks if block.title and block.title.startswith("Panel")]
    assert len(titles) == 5
    assert all(f"<i>{title}</i>" in text for title in titles)
