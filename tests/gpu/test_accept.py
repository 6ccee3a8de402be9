"""`make gpu`: what it asks, that a failed check is a failed command, and the whole of it on a CPU."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.errors import ConfigError, MissingInputError
from core.files import read_json
from core.provenance import ROOT
from tests.gpu import accept, checks, models, runs
from tests.gpu.checks import CHECKS, Criterion, Place
from workflow import estimate


def test_the_list_is_whole_and_fits_twenty_minutes() -> None:
    assert [check.number for check in CHECKS] == list(range(len(CHECKS)))
    assert sum(check.minutes for check in CHECKS) <= 20
    for check in CHECKS:
        assert check.criteria, "a check that asks nothing cannot fail"
        module, _, name = check.function.partition(":")
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        assert f"def {name}(place: Place)" in source
        assert all(f'"{c.figure}"' in source or c.figure.startswith(("float32", "bfloat16")) for c in check.criteria)


def test_the_page_has_the_list() -> None:
    text = (ROOT / "docs/notebook/gpu.md").read_text(encoding="utf-8")
    for check in CHECKS:
        assert f"| {check.number} | {check.title} | {'; '.join(map(str, check.criteria))} |" in text


def test_a_criterion() -> None:
    at_most, equal = Criterion("x", "<=", 1.0), Criterion("x", "=", 0)
    assert [at_most.holds({"x": value}) for value in (1.0, 1.1, None)] == [True, False, False]
    assert not at_most.holds({})
    assert [equal.holds({"x": value}) for value in (0, 1)] == [True, False]
    assert not Criterion("x", ">=", 1.0).holds({"x": float("nan")})


def test_a_model_folder_is_trained_in_place_of_random_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = models.save(tmp_path / "mine", models.TOY, seed=3)
    spec = runs.spec(Place(tmp_path / "work", "cpu", None, folder), "tepo")
    assert (Path(spec.base) / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    monkeypatch.setattr(sys, "argv", ["accept", "--device", "cpu", "--model", str(tmp_path)])
    with pytest.raises(MissingInputError, match=r"--model: .*config\.json is missing"):
        accept.main()


def test_what_is_trained_has_the_size_that_throughput_names() -> None:
    untied = models.TOY.model_copy(update={"tie_word_embeddings": False, "num_key_value_heads": 1})
    for shape in (models.TOY, untied):
        assert models.build(shape).num_parameters() == shape.parameters
    counts = {size: shape.parameters for shape, size in runs.SIZES.items()}
    assert set(counts) == {"0.5B", "1.5B"}
    table = estimate.read().sizes
    assert counts == pytest.approx({size: table[size].parameters for size in counts}, rel=0.01)


def test_a_check_that_crashes_or_fails_is_said_and_fails_the_command(tmp_path: Path) -> None:
    result = accept.run(replace(CHECKS[0], number=99), Place(tmp_path, "cpu", None))  # the process finds no such check
    assert result["state"] == accept.FAILED
    assert result["why"].startswith("ended with ")


SMI = """#!/bin/sh
[ "$1" = "--id=3" ] || exit 6
case $2 in
--query-gpu=name,driver_version) echo "NVIDIA L40S, 580.65.06" ;;
--query-gpu=memory.total) echo "46068" ;;
*) exit 2 ;;
esac
"""


def test_the_driver_is_asked_about_the_gpu_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    assert checks.nvidia_smi("memory.total") == ["46068"]
    found = checks.look(Place(tmp_path, "cpu", None))
    assert (found["gpu"], found["driver"]) == ("NVIDIA L40S", 580.65)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert checks.nvidia_smi("memory.total") is None


def test_unknown_checks_are_refused() -> None:
    with pytest.raises(ConfigError, match="--checks: 17: there is no such check; allowed: 0, 1, 2"):
        accept.select([17])
    assert [check.number for check in accept.select([7])] == [5, 7]
    assert accept.select(None) == list(CHECKS)


MEASURED: list[dict[str, Any]] = [
    {"figures": {"gpu": "NVIDIA L40S", "card_gb": 47.6}},
    {
        "figures": {
            "trained": "1.54e9 random parameters", "trained_size": "1.5B", "rollout_seconds": 61.2, "sequences": 128,
            "evaluation_tokens_per_second": 8123.4, "evaluation_response_tokens": 63.7,
        }
    },
]  # fmt: skip


def test_lines_of_throughput_are_the_tables() -> None:
    """What is printed can be put into the file as it is."""
    lines = accept.throughput(MEASURED)
    assert len(lines) == 2
    content = yaml.safe_load(estimate.THROUGHPUT.read_text())
    for line in lines:
        section, _, entry = line.partition(": - ")
        content[section].append(yaml.safe_load(entry))
    table = estimate.Throughput(**content)
    assert (table.rollout[-1].gpu, table.rollout[-1].seconds, table.rollout[-1].size) == ("L40S-44GB", 61.2, "1.5B")


@pytest.mark.slow
def test_without_a_gpu_what_needs_none_runs_and_holds(tmp_path: Path) -> None:
    """Losses through the engine, and a run that is killed, are on a CPU those of tests/adapters/test_verl_*.py."""
    words = [sys.executable, "-m", "tests.gpu.accept", "--device", "cpu", "--out", str(tmp_path)]
    words += ["--checks", "0", "2", "3", "4", "5", "7"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    record = read_json(tmp_path / "acceptance.json")
    states = {result["number"]: result["state"] for result in record["checks"]}
    assert states == dict.fromkeys((0, 2, 3, 4, 5, 7), "passed") | {3: "not run"}
    asked = [c for result in record["checks"] for c in result["criteria"] if c["state"] == "passed"]
    assert len(asked) >= 15
    left = [c for result in record["checks"] for c in result["criteria"] if c["state"] == "not run"]
    assert all(c["why"] for c in left)
    json.dumps(record, allow_nan=False)
