"""From files to scores.csv and back: right figures, same bytes, and an error naming the file for every broken input."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.code import Code
from core.errors import BenchError, CorruptInputError, MissingInputError
from core.files import read_csv, to_csv, write_json
from core.layout import Checkpoint, Results, Run
from core.provenance import ROOT, sha256_file
from evals import score
from evals.score import rows
from evals.scores import COLUMNS, NOT_CORRECT, read_scores, write_scores
from evals.stats import estimate
from evals.stats.compare import paired
from evals.stats.estimate import VERDICTS
from evals.tree import Tree
from tests.evals.stats.fixtures import GRPO, TEPO, beta, responses, write

KEYS = ["sampled", "greedy"]
SAMPLED, GREEDY = beta(12, 8, 0.4, seed=1), beta(50, 1, 0.3, seed=2)


def scores(results: Results, checkpoints: list[Checkpoint], benchmarks: list[str], **how: Any) -> pd.DataFrame:
    """What scores.csv would hold, as a table."""
    path = results.root / "of_rows.csv"
    write_scores(path, rows(results, checkpoints, benchmarks, **how))
    return read_scores(path)


@pytest.fixture(autouse=True)
def policies(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the registry would say of copies in these benchmarks, which it does not have."""
    found = dict.fromkeys(KEYS, "keep")
    monkeypatch.setattr(estimate, "policies", lambda *_: found)
    return found


@pytest.fixture
def results(tmp_path: Path) -> Results:
    sampled, greedy = beta(12, 8, 0.3, seed=3), beta(50, 1, 0.3, seed=4)
    write(tmp_path, GRPO, {"sampled": responses(sampled), "greedy": responses(greedy)})
    return write(tmp_path, TEPO, {"sampled": responses(SAMPLED), "greedy": responses(GREEDY)})


def row(found: pd.DataFrame, checkpoint: Checkpoint, benchmark: str) -> Any:
    (one,) = found[(found.method == checkpoint.run.method) & (found.benchmark == benchmark)].itertuples()
    return one


def test_figures_of_a_row_recomputed_from_the_responses(results: Results) -> None:
    found = scores(results, [TEPO, GRPO], KEYS)
    one = row(found, TEPO, "sampled")
    assert (one.items, one.samples, one.responses, one.correct) == (12, 8, 96, SAMPLED.sum())
    assert one.score == SAMPLED.mean()
    assert one.wrong == 96 - SAMPLED.sum()
    assert one.pass_at_k == SAMPLED.any(1).mean()
    majority = SAMPLED.sum(1)
    assert one.maj_at_k == np.where(majority > 4, 1.0, np.where(majority == 4, 0.5, 0.0)).mean()
    assert one.response_tokens == np.mean(10 + np.arange(12))
    assert one.low < one.score < one.high


def test_every_verdict_is_counted_and_timeouts_are_shown_as_a_range(tmp_path: Path) -> None:
    data = responses(SAMPLED)
    wrong = [r for r in data if r["verdict"] == "wrong"]
    counts = dict(zip(NOT_CORRECT, range(1, 7), strict=True))
    counts["wrong"] += len(wrong) - sum(counts.values())
    for response, verdict in zip(wrong, [name for name, n in counts.items() for _ in range(n)], strict=True):
        response["verdict"] = verdict
    found = scores(write(tmp_path, TEPO, {"sampled": data, "greedy": responses(GREEDY)}), [TEPO], KEYS)
    one, late = row(found, TEPO, "sampled"), counts["timeout"]
    assert {name: getattr(one, name) for name in VERDICTS} == {"correct": SAMPLED.sum(), **counts}
    assert one.score == SAMPLED.mean()
    for key, share in (("sampled", late / 96), ("avg_pooled", late / 146), ("avg_macro", late / 96 / 2)):
        one = row(found, TEPO, key)
        assert one.timeout_low == pytest.approx(one.score, abs=1e-15)
        assert one.timeout_high - one.timeout_low == pytest.approx(share, abs=1e-12)


def test_copies_of_a_problem(tmp_path: Path, policies: dict[str, str]) -> None:
    """Seven rows, the first two problems stored twice and right; (rows, right) in the column and in the pool."""
    right, prompts = [[r] for r in (True, True, True, True, False, False, False)], ["a", "a", "b", "b", "c", "d", "e"]
    results = write(tmp_path, TEPO, {"greedy": responses(right, prompts=prompts)})
    for policy, column, pool in (("paper", (3, 0), (7, 4)), ("unique", (5, 2), (5, 2)), ("keep", (7, 4), (7, 4))):
        policies["greedy"] = policy
        found = scores(results, [TEPO], ["greedy"])
        one, average = row(found, TEPO, "greedy"), row(found, TEPO, "avg_pooled")
        assert (one.responses, one.correct) == column, policy
        assert (average.responses, average.correct) == pool, policy
        assert row(found, TEPO, "avg_macro").score == one.score, policy


def test_a_benchmark_not_run_is_empty_and_both_poolings_are_labelled(tmp_path: Path) -> None:
    other = Checkpoint(Run("mistral", "tepo", 1), 12)
    write(tmp_path, TEPO, {"sampled": responses(SAMPLED), "greedy": responses(GREEDY)})
    results = write(tmp_path, other, {"greedy": responses(GREEDY)})
    found = scores(results, [TEPO, other], KEYS, missing=[(other, "sampled")])
    mine = found[found.model == "mistral"].set_index("benchmark")
    assert mine.loc["sampled", "how"] == "not run"
    assert mine.loc["sampled", ["items", "responses", "score", "low", "pass_at_k"]].isna().all()
    assert mine.loc["avg_pooled", "score"] == GREEDY.mean()
    assert mine.loc["avg_pooled_missing_wrong", "score"] == pytest.approx(GREEDY.sum() / 146, abs=1e-15)
    assert pd.isna(mine.loc["avg_macro", "score"])
    write_scores(tmp_path / "scores.csv", rows(results, [TEPO, other], KEYS, missing=[(other, "sampled")]))
    pd.testing.assert_frame_equal(read_scores(tmp_path / "scores.csv"), found)
    entries = [{"key": key, "title": key} for key in KEYS]
    matrix = {"scale": "", "title": "", "table_step": 12, "models": [], "methods": [], "runs": [], "checkpoints": []}
    write_json(results.matrix, matrix | {"benchmarks": entries})
    compared = paired(Tree(tmp_path), TEPO, other)
    assert {key: c.difference for key, c in compared.items()} == {"greedy": 0.0, "avg_pooled": 0.0}


def test_same_bytes_whatever_the_order(results: Results, tmp_path: Path) -> None:
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    write_scores(one, rows(results, [TEPO, GRPO], KEYS))
    write(tmp_path, TEPO, {"sampled": responses(SAMPLED, shuffle=9), "greedy": responses(GREEDY, shuffle=8)})
    write_scores(two, rows(results, [GRPO, TEPO], KEYS[::-1]))
    assert one.read_bytes() == two.read_bytes()


def test_the_command_writes_what_the_function_returns(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out" / "scores.csv"
    paths = [c.path.as_posix() for c in (TEPO, GRPO)]
    (tmp_path / "asked").write_text("\n".join(paths))
    asked = f"@{tmp_path}/asked"
    score.main(["--results", str(results.root), "--checkpoints", asked, "--benchmarks", *KEYS, "--out", str(out)])
    written = read_scores(out)
    assert set(written.pop("code")) == {Code("score").hash}
    pd.testing.assert_frame_equal(written, scores(results, [TEPO, GRPO], KEYS).drop(columns="code"))
    assert "8 rows" in capsys.readouterr().out


def _rewrite(path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Change rows of a grades or samples parquet and record it honestly, so that only the change is at fault."""
    data = change(pq.read_table(path).to_pylist())
    pq.write_table(pa.Table.from_pylist(data), path)
    _record(path, rows=len(data), sha256=sha256_file(path))


def _record(path: Path, **entries: Any) -> None:
    (record,) = path.parent.glob("*.json")
    value = json.loads(record.read_text())
    value["benchmarks"][path.stem] |= entries
    write_json(record, value)


def _set(**cells: Any) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    return lambda data: [data[0] | cells, *data[1:]]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda g, s: g.unlink(), "file is missing; its record has 96 rows; run: python -m evals.grade, or"),
        (lambda g, s: (g.parent / "grades.json").unlink(), "grades.json: record of the grades is"),
        (lambda g, s: g.write_bytes(g.read_bytes() + b" "), "sampled.parquet: sha256 is"),
        (lambda g, s: _rewrite(s, _set(response="edited")), "graded other samples"),
        (lambda g, s: _rewrite(g, lambda d: d[:-1]), "rows = items x samples"),
        (
            lambda g, s: _rewrite(g, lambda d: [r | {"item_id": r["item_id"].replace("03", "99")} for r in d]),
            "items on one side only: item0003, item0099",
        ),
        (
            lambda g, s: _rewrite(g, _set(verdict="corect")),
            "sampled.parquet: verdict 'corect'; allowed: correct, wrong, ",
        ),
    ],
)
def test_broken_input_is_an_error_naming_the_file(
    results: Results, act: Callable[[Path, Path], object], message: str
) -> None:
    act(*(folder(TEPO) / "sampled.parquet" for folder in (results.grades, results.samples)))
    with pytest.raises((MissingInputError, CorruptInputError)) as caught:
        scores(results, [TEPO], KEYS)
    text = str(caught.value)
    assert (message in text, TEPO.path.as_posix() in text, "\n" in text) == (True, True, False)


def test_samples_and_grades_of_two_checkpoints_that_changed_places_are_refused(results: Results) -> None:
    for place in (results.samples, results.grades):
        aside = place(TEPO).rename(results.root / "aside")
        place(GRPO).rename(place(TEPO))
        aside.rename(place(GRPO))
    with pytest.raises(CorruptInputError, match=r"samples\.json: model: drawn from .*grpo.* that ends in tiny/tepo/"):
        scores(results, [TEPO, GRPO], KEYS)


@pytest.mark.parametrize(
    ("checkpoint", "benchmark", "message"),
    [
        (TEPO, "sampeld", "no benchmark 'sampeld'; there: greedy, sampled; nearest: sampled"),
        (TEPO, "avg_macro", "name of an average"),
        (Checkpoint.base("tiny"), "sampled", "tiny/base/seed0/step0/grades.json"),
        (GRPO, "sampled", "sampled: 40 responses, other checkpoints have 96"),
    ],
)
def test_a_wrong_request_is_refused(results: Results, checkpoint: Checkpoint, benchmark: str, message: str) -> None:
    write(results.root, GRPO, {"sampled": responses(SAMPLED[:5]), "greedy": responses(GREEDY)})
    with pytest.raises(BenchError, match=re.escape(message)):
        scores(results, [TEPO, checkpoint], [benchmark])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d[1:], "grpo/seed1/step12 has no row for greedy"),
        (lambda d: [*d, d[0]], "two rows for greedy"),
        (_set(score="many"), "row 2: score: 'many' is not a number"),
        (_set(score="32.5"), "row 2: score: 32.5 is not a fraction"),
        (_set(score=""), "row 2: score is empty"),
        (_set(low="0.99", high="1.0"), "is not inside its interval, 0.99 to 1.0"),
        (_set(high=""), "is not inside its interval"),
        (_set(responses="0"), "of 0 responses"),
        (lambda d: [r | {"scroe": "1"} for r in d], "unknown column 'scroe'; nearest: score"),
    ],
)
def test_broken_scores_are_an_error_naming_file_and_row(
    results: Results, tmp_path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], message: str
) -> None:
    path = tmp_path / "scores.csv"
    write_scores(path, rows(results, [TEPO, GRPO], KEYS))
    data = change(read_csv(path, "scores", []))
    path.write_text(to_csv(list(data[0]), data), encoding="utf-8")
    with pytest.raises(BenchError, match=f"{re.escape(str(path))}.*{re.escape(message)}"):
        read_scores(path)


def test_the_page_on_results_names_every_column_of_scores() -> None:
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8").split("## scores.csv")[1].split("\n## ")[0]
    assert [name for name in COLUMNS if f"`{name}`" not in page] == []
