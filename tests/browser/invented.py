"""Responses that try to be more than text, and a tree of the paper's size.

`python -m tests.browser.invented --out DIR` writes the last: 16 runs x 8,844 responses of about 3 kB, all invented.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evals.data import item_id
from records.files import read_json, write_json, write_text
from records.layout import BASE, Checkpoint, Results, Run
from records.provenance import sha256_file
from tests.report import synthetic

HOSTILE = (
    "<script>window.struck = 'script'</script><img src=x onerror=\"window.struck = 'image'\">"
    "<a href=\"javascript:window.struck='link'\">here</a> </script><!-- --> &lt;b&gt; \u202eright to left\u202c \x07"
    " \\(a^2 + b^2\\) $\\href{javascript:window.struck='math'}{x}$ $\\frac{1}{$".encode()
)
BROKEN = b"broken \xff\xfe here, cut \xe2\x82"
STRUCK = (Checkpoint(Run("tiny_qwen2", "tepo", 1), 12), "syn_as3")  # whose first responses are those two


def hostile(root: Path) -> None:
    """Replace the first two responses of one file by HOSTILE and BROKEN, in bytes as a broken writer might."""
    checkpoint, benchmark = STRUCK
    layout = Results(root)
    path = layout.samples(checkpoint) / f"{benchmark}.parquet"
    rows = pq.read_table(path).to_pylist()
    rows.sort(key=lambda row: (row["item_id"], row["sample"]))
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    texts = [HOSTILE, BROKEN, *(row["response"].encode() for row in rows[2:])]
    columns["response"] = pa.array(texts, pa.binary()).view(pa.string())  # not checked to be UTF-8
    pq.write_table(pa.table(columns), path)
    for record, key in (
        (layout.samples(checkpoint) / "samples.json", "sha256"),
        (layout.grades(checkpoint) / "grades.json", "samples_sha256"),
    ):
        value = read_json(record)
        value["benchmarks"][benchmark][key] = sha256_file(path)
        write_json(record, value)


def paper_scale(root: Path, *, runs: int = 16, characters: int = 3000) -> Path:
    """A tree with the paper's seven benchmarks, `runs` runs and every response; problems in `data/` beside it."""
    from evals.benchmark import select
    from evals.score import rows as score
    from records.scores import write_scores

    keys = synthetic.STANDS_FOR
    benchmarks = select(keys)
    layout, model = Results(root), "Qwen2.5-7B"
    seeds = range(1, runs // len(synthetic.METHODS) + 1)
    planned = [Run(model, method, seed) for seed in seeds for method in synthetic.METHODS]
    checkpoints = [Checkpoint.base(model), *(Checkpoint(run, 132) for run in planned)]
    synthetic.write_matrix(layout, planned, checkpoints, "paper", 132)
    matrix = json.loads(layout.matrix.read_text())
    matrix["models"] = [{"key": model, "title": model, "stands_for": None}]
    matrix["benchmarks"] = [
        {"key": b.key, "title": b.title, "stands_for": None, "items": b.n, "samples": b.decoding.samples}
        for b in benchmarks
    ]
    layout.matrix.write_text(json.dumps(matrix))
    draw = random.Random(1)
    words = [("".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 9)))) for _ in range(3000)]
    words += ["$x^2$", "\\(\\frac{a}{b}\\)", "\\[\\sum_{i=1}^n i\\]", "\n"] * 60
    for run in planned:
        synthetic.write_run(layout, run, "paper", 132)
    for checkpoint in checkpoints:
        for benchmark in benchmarks:
            _answers(layout, checkpoint, benchmark.key, benchmark.n, benchmark.decoding.samples, words, characters)
        _records(layout, checkpoint, keys)
    write_scores(layout.scores, score(layout, checkpoints, list(keys), duplicates=dict.fromkeys(keys, "keep")))
    for benchmark in benchmarks:
        lines = [{"problem": _problem(item), "answer": str(2 * item)} for item in range(benchmark.n)]
        write_text(root.parent / "data" / f"{benchmark.key}.jsonl", "\n".join(map(json.dumps, lines)) + "\n")
    return root


def _problem(item: int) -> str:
    return f"What is ${item} + {item}$?"


def _answers(
    layout: Results, checkpoint: Checkpoint, key: str, items: int, samples: int, words: list[str], characters: int
) -> None:
    rng = np.random.default_rng(random.Random(f"{checkpoint.path} {key}").getrandbits(32))
    centre = 0.2 if checkpoint.run.method == BASE else 0.35
    chance = np.random.default_rng(len(key)).beta(2 * centre, 2 * (1 - centre), items)
    right = rng.random((items, samples)) < chance[:, None]
    rows: dict[str, list[Any]] = {
        name: [] for name in ("item_id", "sample", "prompt", "prompt_sha256", "response", "stop", "tokens", "seed")
    }
    grades: dict[str, list[Any]] = {
        name: []
        for name in ("item_id", "sample", "verdict", "extracted", "normalised", "rule", "seconds", "grader_version")
    }
    length = characters // 6
    for item in range(items):
        for sample in range(samples):
            picked = rng.integers(0, len(words), length)
            answer = str(2 * item) if right[item, sample] else "-1"
            values = [
                item_id(_problem(item)),
                sample,
                _problem(item),
                f"{key}{item}",
                " ".join([words[n] for n in picked]) + f" \\boxed{{{answer}}}",
                "stop",
                length,
                7,
            ]
            for name, value in zip(rows, values, strict=True):
                rows[name].append(value)
            graded = [
                item_id(_problem(item)),
                sample,
                "correct" if right[item, sample] else "wrong",
                answer,
                answer,
                "string",
                0.0,
                "g",
            ]
            for name, value in zip(grades, graded, strict=True):
                grades[name].append(value)
    for folder, columns in ((layout.samples(checkpoint), rows), (layout.grades(checkpoint), grades)):
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / f"{key}.parquet")


def _records(layout: Results, checkpoint: Checkpoint, keys: tuple[str, ...]) -> None:
    drawn, graded = {}, {}
    for key in keys:
        one, two = (folder / f"{key}.parquet" for folder in (layout.samples(checkpoint), layout.grades(checkpoint)))
        count = pq.read_metadata(one).num_rows
        drawn[key] = {"sha256": sha256_file(one), "rows": count}
        graded[key] = {"sha256": sha256_file(two), "rows": count, "samples_sha256": drawn[key]["sha256"]}
    model = str(layout.weights(checkpoint)) if checkpoint.run.method != BASE else checkpoint.run.model
    write_json(layout.samples(checkpoint) / "samples.json", {"schema": 1, "model": model, "benchmarks": drawn})
    write_json(layout.grades(checkpoint) / "grades.json", {"schema": 1, "benchmarks": graded})


def main() -> None:
    parser = argparse.ArgumentParser(description="Write an invented results tree of the paper's size.")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--runs", type=int, default=16)
    given = parser.parse_args()
    print(paper_scale(given.out, runs=given.runs))


if __name__ == "__main__":
    main()
