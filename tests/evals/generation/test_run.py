"""One command from a model folder to scores; and what it says when it may not begin."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import BenchError, ConfigError
from core.layout import Results
from core.provenance import ROOT
from core.results_tree import open_tree
from core.scores import read_rows, read_scores
from evals import benchmark, run
from evals.generate import Settings
from report.build import of_evaluation
from report.tables import details
from tests.evals.conftest import few, read_responses


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "evals.run", *arguments], capture_output=True, text=True, timeout=1800, check=False
    )


def test_the_pages_of_benchmarks_name_every_benchmark() -> None:
    pages = ("docs/evaluation.md", "docs/notebook/benchmarks.md")
    page = "".join((ROOT / name).read_text(encoding="utf-8") for name in pages)
    keys = benchmark.keys()
    assert [key for key in keys if f"| `{key}` |" not in page] == []


def test_models_and_benchmarks_add_rows_and_drop_none(tiny: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    shutil.copytree(tiny, other)

    def add(model: Path, *keys: str, seed: int = 1) -> set[tuple[str, str]]:
        benchmarks = [few(key) for key in keys]
        run.collect(benchmarks, out / "data", None, download=False)
        path = run.evaluate(Settings(str(model), seed=seed, device="cpu"), benchmarks, out, backend="hf", limit=2)
        rows = read_scores(path)
        return {(r["model"], r["benchmark"]) for r in rows.to_dict("records") if r["how"] != "not run"}

    first = {(tiny.name, "syn_mix3"), (tiny.name, "avg_pooled"), (tiny.name, "avg_macro")}
    assert add(tiny, "syn_mix3") == first
    samples = (Results(out).samples(run.checkpoint(tiny)) / "syn_mix3.parquet").read_bytes()
    assert {("other", "syn_as3"), *first} <= add(other, "syn_as3")
    every = add(tiny, "syn_as3")
    table = read_scores(Results(out).scores)
    assert list(table["benchmark"])[:2] == ["syn_as3", "syn_mix3"]
    assert table[table["how"] != "not run"]["low"].notna().any()
    assert {(tiny.name, "syn_as3"), ("other", "syn_as3"), *first} <= every
    assert ("other", "syn_mix3") not in every, "it was not asked"
    assert (Results(out).samples(run.checkpoint(tiny)) / "syn_mix3.parquet").read_bytes() == samples
    assert str(tiny.name) in run.table(Results(out).scores)
    page = of_evaluation(open_tree(out))
    assert all(text in page for text in (tiny.name, "other", "synthetic mix k=3, modulo 10", "not run", 'id="samples"'))
    before = Results(out).scores.read_bytes()
    with pytest.raises(ConfigError, match="drawn with --seed 1, not 2; choose another --out"):
        add(tiny, "syn_as3", seed=2)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"initializer_range": 0.5}))
    with pytest.raises(ConfigError, match="another model of this name"):
        add(other, "syn_mix3")
    assert Results(out).scores.read_bytes() == before


MISTAKES = {
    "--model nowhere --benchmarks all": "nowhere: no model there",
    "--model Qwen/Qwen2.5-0.5B --benchmarks all": "python -m models.fetch --hub Qwen/Qwen2.5-0.5B",
    "--model TINY --benchmarks all": "no --data: nothing was downloaded; add --download",
    "--model TINY --benchmarks syn_as3 --data no/such/folder": "--data: no/such/folder: no folder",
    "--model TINY,TINY --benchmarks syn_as3": "two of one name",
    "--model TINY --benchmarks amie24": "nearest: aime24",
    "--model TINY --benchmarks syn_as3 --backend hff": "nearest: hf",
    "--model TINY --benchmarks syn_as3 --engine x": "expected NAME=VALUE",
    "--model TINY --benchmarks syn_as3 --samples 0": "--samples: must be a whole number from 1",
    "--model TINY --benchmarks syn_as3 --temperature nan": "--temperature: must be a number from 0",
    "--model TINY --benchmarks syn_as3 --max-tokens 1.5": "--max-tokens: must be a whole number",
    "--model TINY --benchmarks syn_mix3 --temperature 0": "syn_mix3: decoding: 32 greedy .*; set --samples 1, or",
    "--model TINY --benchmarks syn_as3 --samples 4": "syn_as3: decoding: 4 greedy .*; set --samples 1, or",
}


def test_a_users_mistake_is_named_and_nothing_written(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in MISTAKES.items():
        given = words.replace("TINY", str(tiny)).split()
        monkeypatch.setattr("sys.argv", ["run", *given, "--out", str(tmp_path / "out")])
        with pytest.raises(BenchError, match=said) as caught:
            run.main()
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists(), words
    printed = capsys.readouterr().out.splitlines()  # what would be downloaded
    for key in benchmark.PAPER:
        assert any(line.startswith(key) and benchmark.benchmark(key).licence in line for line in printed)


def test_responses_of_another_decoding_never_stand_in_one_table(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    shutil.copytree(tiny, other)

    def call(model: Path, key: str, options: str) -> str:
        given = ["--model", str(model), "--benchmarks", key, "--limit", "2", "--out", str(out), *options.split()]
        monkeypatch.setattr("sys.argv", ["run", *given])
        run.main()
        return capsys.readouterr().out

    drawn = "--samples 3 --temperature 1.5 --max-tokens 5"
    assert f"python -m report.show details --results {out}" in call(tiny, "syn_mix3", drawn)
    printed = details.text(read_rows(Results(out).scores))
    samples = Results(out).samples(run.checkpoint(tiny))
    record = json.loads((samples / "samples.json").read_text())
    assert record["decoding"] == {"samples": 3, "temperature": 1.5, "max_tokens": 5}
    entry = record["benchmarks"]["syn_mix3"]
    assert entry["decoding"] == record["decoding"] | {"top_p": 1.0}
    assert entry["deviations"] == [
        "samples 3, the registry's is 32",
        "temperature 1.5, the registry's is 0.6",
        "max_tokens 5, the registry's is 64",
        "the first 2 of 20 items",
    ]
    rows = read_responses(samples / "syn_mix3.parquet")
    assert len(rows) == 2 * 3
    assert max(row.tokens or 0 for row in rows) == 5
    (score,) = (row for row in read_rows(Results(out).scores) if row["benchmark"] == "syn_mix3")
    figures = [f"{100 * score[name]:.2f}" for name in ("score", "pass_at_k", "maj_at_k")]
    cut = f"{100 * score['truncated'] / 6:.2f}"
    shown = next(line.split() for line in printed.splitlines() if line.split()[1:3] == ["syn_mix3", "3"])
    assert shown[3:] == [*figures, f"{score['response_tokens']:.1f}", cut, f"{100 * score['no_answer'] / 6:.2f}"]
    before = Results(out).scores.read_bytes()
    for model, key in ((tiny, "syn_mix3"), (other, "syn_mix3"), (tiny, "syn_as3")):
        for options, said in (("", "the registry's decoding"), (f"{drawn} --samples 2", "--samples 2 --temp")):
            with pytest.raises(ConfigError, match=f"drawn with {drawn}, not {said}.*; choose another --out"):
                call(model, key, options)
    assert Results(out).scores.read_bytes() == before
    assert "other/base" in call(other, "syn_mix3", drawn)
    page = of_evaluation(open_tree(out))
    assert " / ".join(shown[4:]) in page


def test_a_weights_folder_of_ours_keeps_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "results/quick/runs/tiny/tepo+beta=1/seed3/checkpoints/step12"
    folder.mkdir(parents=True)
    assert run.checkpoint(folder).path.as_posix() == "tiny/tepo+beta=1/seed3/step12"
    shutil.move(folder, tmp_path / "my model")
    assert run.checkpoint(tmp_path / "my model").path.as_posix() == "my-model/base/seed0/step0"
