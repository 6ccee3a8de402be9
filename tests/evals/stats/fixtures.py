"""Synthetic grades and samples by the documented columns, written the way the pipeline writes them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from core.files import write_json
from core.layout import Checkpoint, Results, Run
from core.provenance import sha256_bytes
from evals.grading import Grade
from evals.stats.estimate import Samples
from evals.store import SAMPLES, write_grades, write_samples

TEPO = Checkpoint(Run("tiny", "tepo", 1), 12)
GRPO = Checkpoint(Run("tiny", "grpo", 1), 12)


def responses(
    right: Sequence[Sequence[bool]], *, prompts: Sequence[str] | None = None, shuffle: int = 0
) -> list[dict[str, Any]]:
    """One dict with the columns of both files per response; rows in a shuffled order."""
    rows = []
    for item, samples in enumerate(right):
        prompt = prompts[item] if prompts else f"What is {item} + {item}?"
        for sample, is_right in enumerate(samples):
            answer = str(2 * item) if is_right else "-1"
            row = {"item_id": f"item{item:04d}", "sample": sample, "tokens": 10 + item, "seed": 7, "rule": "string"}
            row |= {"prompt": prompt, "prompt_sha256": sha256_bytes(prompt.encode()), "stop": "stop"}
            row |= {"response": f"so \\boxed{{{answer}}}", "extracted": answer, "normalised": answer}
            rows.append(row | {"verdict": "correct" if is_right else "wrong"})
    return [rows[i] for i in np.random.default_rng(shuffle).permutation(len(rows))]


def write(root: Path, checkpoint: Checkpoint, benchmarks: Mapping[str, Sequence[Mapping[str, Any]]]) -> Results:
    """samples/ and grades/ of a checkpoint with their JSON records."""
    results = Results(root)
    samples, grades = results.samples(checkpoint), results.grades(checkpoint)
    sample_record, grade_record = {}, {}
    for key, rows in benchmarks.items():
        digest = write_samples(samples / f"{key}.parquet", [{name: row[name] for name in SAMPLES} for row in rows])
        given = [Grade(row["verdict"], row["extracted"], row["normalised"], row["rule"]) for row in rows]
        sample_record[key] = {"sha256": digest, "rows": len(rows)}
        grade_record[key] = write_grades(grades / f"{key}.parquet", pd.DataFrame(rows), digest, given, "test")
    model = results.weights(checkpoint) if checkpoint.run.method != "base" else checkpoint.run.model
    write_json(samples / "samples.json", {"schema": 1, "model": str(model), "benchmarks": sample_record})
    write_json(grades / "grades.json", {"schema": 1, "benchmarks": grade_record})
    return results


def beta(problems: int, k: int, mean: float, *, seed: int, spread: float = 1.0) -> np.ndarray:
    """(problems, k) bool with difficulties from Beta(mean spread, (1 - mean) spread)."""
    rng = np.random.default_rng(seed)
    chance = rng.beta(mean * spread, (1 - mean) * spread, problems)
    return rng.random((problems, k)) < chance[:, None]


def samples(right: np.ndarray, start: int = 0, problems: tuple[str, ...] = ()) -> Samples:
    """Verdicts (problems, k) with the item ids p0000, p0001, ..., counted from `start`."""
    items = tuple(f"p{i + start:04d}" for i in range(len(right)))
    return Samples(items, np.asarray(right, bool), problems or items)
