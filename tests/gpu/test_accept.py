"""`make gpu`: what it asks, that a failed check is a failed command, and the whole of it on a CPU."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError, MissingInputError
from core.files import read_json
from core.provenance import ROOT
from tests.gpu import accept, checks, models, runs
from tests.gpu.checks import CHECKS, Check, Place


def test_the_page_has_the_list() -> None:
    text = (ROOT / "docs/scale.md").read_text(encoding="utf-8")
    for check in CHECKS:
        assert f"| {check.number} | {check.title} | {'; '.join(check.criteria)} |" in text
    assert sum(check.minutes for check in CHECKS) <= 20


def test_a_model_folder_is_trained_in_place_of_random_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = models.save(tmp_path / "mine", models.TOY, seed=3)
    spec = runs.spec(Place(tmp_path / "work", "cpu", None, folder), "tepo")
    assert (Path(spec.base) / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    monkeypatch.setattr(sys, "argv", ["accept", "--device", "cpu", "--model", str(tmp_path)])
    with pytest.raises(MissingInputError, match=r"--model: .*config\.json is missing"):
        accept.main()


def test_a_check_that_crashes_is_said_and_an_unknown_one_refused(tmp_path: Path) -> None:
    result = accept.run(replace(CHECKS[0], number=99), Place(tmp_path, "cpu", None))  # the process finds no such check
    assert result["state"] == accept.FAILED
    assert result["why"].startswith("ended with ")
    with pytest.raises(ConfigError, match="--checks: 17: there is no such check; allowed: 0, 1, 2"):
        accept.select([17])
    assert [check.number for check in accept.select([5])] == [3, 5]


def test_each_check_is_recorded_at_once_and_what_does_not_fit_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    def run(check: Check, *_: object) -> dict[str, Any]:
        if check.number:
            seen.append(read_json(tmp_path / "acceptance.json"))
        return {"number": check.number, "state": accept.HELD}

    monkeypatch.setattr(accept, "run", run)
    for minutes, states in {3: "pppnnn", 20: "pppppp"}.items():
        words = ["accept", "--device", "cpu", "--out", str(tmp_path), "--minutes", str(minutes)]
        monkeypatch.setattr(sys, "argv", words)
        assert accept.main() == 0
        record = read_json(tmp_path / "acceptance.json")
        assert "".join("n" if c["state"] == accept.NOT_RUN else "p" for c in record["checks"]) == states
        assert record["passed"] is (True if minutes == 20 else None)
    assert [c["state"] for c in seen[0]["checks"]] == [accept.HELD, *[accept.NOT_RUN] * 5]


def test_a_package_of_another_version_is_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = dict(re.findall(checks.PIN, (ROOT / "requirements/gpu.txt").read_text(), re.MULTILINE))
    monkeypatch.setattr(checks, "version", lambda name: f"{right[name]}+cu130" if name != "ray" else "1.0")
    found = checks.look(Place(tmp_path, "cpu", None))
    assert (found["packages_differ"], found["packages"]) == (1, {"ray": "1.0"})
    assert set(right) == {"torch", "transformers", "tokenizers", "trl", "verl", "tensordict", "ray"}


@pytest.mark.slow
def test_without_a_gpu_what_needs_none_runs_and_holds(tmp_path: Path) -> None:
    """A run that is killed is on a CPU that of tests/adapters/test_verl_run.py."""
    words = [sys.executable, "-m", "tests.gpu.accept", "--device", "cpu", "--out", str(tmp_path)]
    words += ["--checks", "0", "1", "2", "3", "5"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    record = read_json(tmp_path / "acceptance.json")
    states = {result["number"]: result["state"] for result in record["checks"]}
    assert states == dict.fromkeys((0, 1, 2, 3, 5), "passed")
    criteria = [state for result in record["checks"] for state in result["criteria"].values()]
    assert set(criteria) == {"passed", "not run"}
    assert criteria.count("passed") >= 13
