"""`tables.yaml`: what would show a wrong number is refused by name before anything is trained."""

from pathlib import Path

import pytest

from core.errors import BenchError
from paper.printed import read
from report import rows

TABLE = """
models: {q7: Qwen2.5-7B, q14: Qwen3-14B}
columns: {aime24: AIME24, avg_pooled: Avg. (pooled)}
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
GAIN = "{id: c, label: gain, delta: [b, a]}"
BROKEN = {  # case -> what is replaced, by what, words of the error
    "unknown column": ("[aime24,", "[aime42,", "tables.mine: columns", "nearest: aime24"),
    "unknown model": ("q7\n        baseline: a", "q8", "tables.mine: model", "'q8'", "nearest: q7"),
    "unknown method": ("method: tepo", "method: tepoo", "row b: method", "nearest: tepo"),
    "row id twice": (GAIN, "{id: a, label: x, method: gpg}", "row id a", "twice"),
    "delta of a row that is not there": ("[b, a]", "[b, x]", "row c: delta", "'x'"),
    "neither method nor delta": ("label: two, method: tepo", "label: two", "row b", "either"),
    "mean of two methods": ("second, method: gspo", "second, method: gpg", "row f: mean", "nothing else"),
    "mean of equal seeds": ("seeds: [2]", "seeds: [2, 1]", "row f: mean", "must differ in `seeds`"),
    "seeds of a mean": ("mean: [d, e]", "mean: [d, e], seeds: [1]", "row f", "seeds and step belong to the rows"),
    "unknown step": ("seeds: [2]", "seeds: [2], step: lang", "blocks.1.rows.1.step", "'lang'", "nearest: long"),
    "unknown baseline": ("baseline: a", "baseline: x", "block of q7: baseline", "'x'"),
    "a baseline of another model": ("- model: q7\n        rows", "- model: q14\n        rows", "baseline", "'a'"),
    # Rows with the id of a printed one, which must be that run.
    "another method": (GAIN, "{id: T1.7, label: x, method: gpg}", "T1.7: method 'gpg', but", "'gspo'"),
    "another model": (GAIN, "{id: T1.17, label: x, method: tepo+beta=1}", "T1.17: model 'q7'", "'q14'"),
    "another seed": (GAIN, "{id: T1.7, label: x, method: gspo, seeds: [1]}", "T1.7: seeds (1,)", "(2,)"),
    "other rows": (GAIN, "{id: T1.9, label: x, delta: [b, a]}", "T1.9: made of ('b', 'a')", "('T1.8', 'T1.2')"),
    "not a printed row": (GAIN, "{id: T3.99, label: x, method: gpg}", "'T3.99'", "nearest: T3.9"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_table_is_refused_with_the_place_in_the_error(tmp_path: Path, case: str) -> None:
    old, new, *words = BROKEN[case]
    assert old in TABLE
    path = tmp_path / "tables.yaml"
    path.write_text(TABLE.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BenchError) as error:
        rows.check(rows.tables(path)["mine"])
    assert all(word in str(error.value) for word in ("tables.yaml: tables.mine", *words)), error.value
    assert "\n" not in str(error.value)


BASELINES = {"T1.8": "T1.2", "T1.17": "T1.11", "T2.6": "T2.5", "T3.3": "T3.1", "T3.15": "T3.13", "T4.9": "T4.7"}


def test_every_printed_row_is_declared_once_in_its_place_and_held_against_the_papers_baseline() -> None:
    paper, tables = read(), rows.tables()
    for key in "1234":
        declared = [row.id for row in tables[key].rows if row.id.startswith(f"T{key}.")]
        assert declared == [row.id for row in paper.values() if row.id.startswith(f"T{key}.")]
    blocks = [block for key in "1234" for block in tables[key].blocks]
    baselines = {row.id: block.baseline for block in blocks for row in block.rows}
    assert {row: baselines[row] for row in BASELINES} == BASELINES
    for block in tables["3"].blocks:
        letter = block.title[6] if block.title and block.title.startswith("Panel ") else ""
        assert {paper[row.id].panel for row in block.rows if row.id in paper} <= {letter}
