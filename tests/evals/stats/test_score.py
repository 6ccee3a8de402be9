"""From files to scores.csv and back: right figures, same bytes, and an error naming the file for every broken input."""

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
from core.errors import BenchError
from core.files import read_csv, read_json, to_csv, write_json
from core.layout import Checkpoint, Results, Run
from core.provenance import sha256_file
from evals import score
from evals.scores import NOT_CORRECT, read_scores, write_scores
from evals.stats import estimate
from evals.store import VERDICTS
from tests.evals.stats.fixtures import GRPO, TEPO, beta, responses, write

KEYS = ["sampled", "greedy"]
SAMPLED, GREEDY = beta(12, 8, 0.4, seed=1), beta(50, 1, 0.3, seed=2)
OTHER = Checkpoint(Run("mistral", "tepo", 1), 12)
Table = list[dict[str, Any]]


def scores(results: Results, checkpoints: list[Checkpoint], benchmarks: list[str], **how: Any) -> pd.DataFrame:
    """Write scores.csv and read it, by method and benchmark."""
    write_scores(results.scores, score.rows(results, checkpoints, benchmarks, **how))
    return read_scores(results.scores).set_index(["model", "method", "benchmark"])


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


def test_figures_of_a_row_recomputed_from_the_responses(tmp_path: Path) -> None:
    data = responses(SAMPLED)
    wrong = [response for response in data if response["verdict"] == "wrong"]
    counts = dict(zip(NOT_CORRECT, range(1, 7), strict=True))
    counts["wrong"] += len(wrong) - sum(counts.values())
    for response, verdict in zip(wrong, [name for name, n in counts.items() for _ in range(n)], strict=True):
        response["verdict"] = verdict
    found = scores(write(tmp_path, TEPO, {"sampled": data, "greedy": responses(GREEDY)}), [TEPO], KEYS).loc[
        "tiny", "tepo"
    ]
    one, late, right = found.loc["sampled"], counts["timeout"], SAMPLED.sum(1)
    assert (one["items"], one.samples, one.responses, one.score) == (12, 8, 96, SAMPLED.mean())
    assert {name: one[name] for name in VERDICTS} == {"correct": SAMPLED.sum(), **counts}
    assert one.pass_at_k == SAMPLED.any(1).mean()
    assert one.maj_at_k == np.where(right > 4, 1.0, np.where(right == 4, 0.5, 0.0)).mean()
    assert one.response_tokens == np.mean(10 + np.arange(12))
    assert one.low < one.score < one.high
    for key, share in (("sampled", late / 96), ("avg_pooled", late / 146), ("avg_macro", late / 96 / 2)):
        low, high = found.loc[key, ["timeout_low", "timeout_high"]]
        assert (low, high - low) == pytest.approx((found.score[key], share), abs=1e-12)


def test_copies_of_a_problem(tmp_path: Path, policies: dict[str, str]) -> None:
    """Seven rows, the first two problems stored twice and right; (rows, right) in the column and in the pool."""
    right, prompts = [[r] for r in (True, True, True, True, False, False, False)], ["a", "a", "b", "b", "c", "d", "e"]
    results = write(tmp_path, TEPO, {"greedy": responses(right, prompts=prompts)})
    for policy, column, pool in (("paper", (3, 0), (7, 4)), ("keep", (7, 4), (7, 4))):
        policies["greedy"] = policy
        found = scores(results, [TEPO], ["greedy"]).loc["tiny", "tepo"]
        for key, expected in (("greedy", column), ("avg_pooled", pool), ("avg_macro", column)):
            assert tuple(found.loc[key, ["responses", "correct"]]) == expected, policy


def test_a_benchmark_not_run_is_empty_and_both_poolings_are_labelled(tmp_path: Path) -> None:
    write(tmp_path, TEPO, {"sampled": responses(SAMPLED), "greedy": responses(GREEDY)})
    results = write(tmp_path, OTHER, {"greedy": responses(GREEDY)})
    mine = scores(results, [TEPO, OTHER], KEYS, missing=[(OTHER, "sampled")]).loc["mistral", "tepo"]
    assert mine.loc["sampled", "how"] == "not run"
    assert mine.loc["sampled", ["items", "responses", "score", "low", "pass_at_k"]].isna().all()
    assert mine.score["avg_pooled"] == GREEDY.mean()
    assert mine.score["avg_pooled_missing_wrong"] == pytest.approx(GREEDY.sum() / 146, abs=1e-15)
    assert mine.timeout_low["avg_pooled_missing_wrong"] == mine.score["avg_pooled_missing_wrong"]
    assert pd.isna(mine.score["avg_macro"])


def test_same_bytes_from_function_and_command_whatever_the_order(results: Results) -> None:
    scores(results, [TEPO, GRPO], KEYS)
    write(results.root, TEPO, {"sampled": responses(SAMPLED, shuffle=9), "greedy": responses(GREEDY, shuffle=8)})
    out, asked = results.root / "out/scores.csv", results.root / "asked"
    asked.write_text("\n".join(c.path.as_posix() for c in (GRPO, TEPO)))
    command = ["--results", results.root, "--checkpoints", f"@{asked}", "--benchmarks", *KEYS[::-1], "--out", out]
    score.main([str(word) for word in command])
    assert out.read_text() == results.scores.read_text().replace(",\n", f",{Code('score').hash}\n")


def _rewrite(path: Path, change: Callable[[Table], Table]) -> None:
    """Change rows of a grades or samples parquet and record it honestly, so that only the change is at fault."""
    data = change(pq.read_table(path).to_pylist())
    pq.write_table(pa.Table.from_pylist(data), path)
    (record,) = path.parent.glob("*.json")
    value = read_json(record, "record")
    value["benchmarks"][path.stem] |= {"rows": len(data), "sha256": sha256_file(path)}
    write_json(record, value)


def _set(**cells: Any) -> Callable[[Table], Table]:
    return lambda data: [data[0] | cells, *data[1:]]


# act on the files of grades and samples, benchmark -> message
BROKEN: list[tuple[Callable[[Path, Path], object], str, str]] = [
    (lambda g, s: g.unlink(), "sampled", "file is missing; its record has 96 rows; run: python -m evals.grade, or"),
    (lambda g, s: (g.parent / "grades.json").unlink(), "sampled", "seed1/step12/grades.json: record of the grades is"),
    (lambda g, s: g.write_bytes(g.read_bytes() + b" "), "sampled", "tepo/seed1/step12/sampled.parquet: sha256 is"),
    (lambda g, s: _rewrite(s, _set(response="edited")), "sampled", "graded other samples"),
    (lambda g, s: _rewrite(g, lambda d: d[:-1]), "sampled", "rows = items x samples"),
    (lambda g, s: _rewrite(g, _set(verdict="corect")), "sampled", "verdict 'corect'; allowed: correct, wrong, "),
    (lambda g, s: None, "sampeld", "no benchmark 'sampeld'; there: greedy, sampled; nearest: sampled"),
    (lambda g, s: None, "avg_macro", "'avg_macro' is the name of an average"),
]


@pytest.mark.parametrize(("act", "benchmark", "message"), BROKEN)
def test_broken_input_is_one_line_naming_the_file(results: Results, act: Any, benchmark: str, message: str) -> None:
    act(*(folder(TEPO) / "sampled.parquet" for folder in (results.grades, results.samples)))
    with pytest.raises(BenchError) as caught:
        scores(results, [TEPO, GRPO], [benchmark])
    assert (message in str(caught.value), "\n" in str(caught.value)) == (True, False)


def test_broken_scores_are_an_error_naming_file_and_row(results: Results) -> None:
    path = results.scores
    scores(results, [TEPO, GRPO], KEYS)
    changes: dict[str, Callable[[Table], Table]] = {
        "two rows for greedy": lambda d: [*d, d[0]],
        "row 2: score: 32.5 is out of range": _set(score="32.5"),
        "unknown column 'scroe'; nearest: score": lambda d: [r | {"scroe": "1"} for r in d],
    }
    good = read_csv(path, "scores", [])
    for message, change in changes.items():
        data = change(good)
        path.write_text(to_csv(list(data[0]), data), encoding="utf-8")
        with pytest.raises(BenchError, match=f"{re.escape(str(path))}.*{re.escape(message)}"):
            read_scores(path)
