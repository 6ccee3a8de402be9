"""Loggers: TRL's own while a run trains, the same callbacks for a finished tree. Both have what curve.csv holds."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError
from core.files import read_growing_csv, write_json
from core.provenance import ROOT
from methods import adapters
from methods.adapters.verl.config import overrides
from methods.training.curve import COLUMNS, Curve
from methods.training.spec import check
from tests.adapters import worlds

VARIABLES = ("DIR", "ENTITY", "PROJECT", "RUN_GROUP", "NAME", "MODE", "API_KEY")


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folders = ("TENSORBOARD_LOGGING_DIR", "TENSORBOARD_DIR", "TRACKIO_DIR")
    for name in (*folders, "WANDB_BASE_URL", *(f"WANDB_{name}" for name in VARIABLES)):
        monkeypatch.setenv(name, "")  # so that what is set below is undone
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def assert_has_the_curve(folder: Path, run: Path) -> None:
    rows, found = read_growing_csv(run / "curve.csv"), scalars(folder)
    for name in COLUMNS:
        expected = [(int(row["update"]) + 1, pytest.approx(float(row[name]))) for row in rows if row[name]]
        assert found.get(f"train/curve/{name}", []) == expected, name


def test_the_users_variables_come_first_and_a_key_makes_wandb_online(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters, "find_spec", lambda name: None if name == "trackio" else name)
    spec = check(worlds.spec(tmp_path, variant="fast"))
    monkeypatch.setenv("TEPO_LOG", "tensorboard,wandb")
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    (tmp_path / "netrc").write_text("machine example.org login user password word\n")
    made = overrides(spec, tmp_path / "state")
    keys = ("logger", "project_name", "experiment_name")
    named = [["file", "tensorboard", "wandb"], "mine", "random/tepo@fast/seed1"]
    assert [made[f"trainer.{key}"] for key in keys] == named
    found = {name: os.environ.get(f"WANDB_{name}") for name in VARIABLES if name != "API_KEY"}
    expected = {"PROJECT": "mine", "RUN_GROUP": "test", "NAME": "random/tepo@fast/seed1", "MODE": "offline"}
    assert found == {"DIR": str(tmp_path / "log"), "ENTITY": None, **expected}
    for host, key in (("api.wandb.ai", ""), ("example.org", "a key")):
        (tmp_path / "netrc").write_text(f"machine {host} login user password word\n")
        monkeypatch.setenv("WANDB_API_KEY", key)
        del os.environ["WANDB_MODE"]
        assert adapters.loggers(tmp_path, spec) == ["tensorboard", "wandb"]
        assert "WANDB_MODE" not in os.environ
        os.environ["WANDB_MODE"] = "offline"
    for text, said in (("tensorbord", "'tensorbord'.*nearest: tensorboard"), ("trackio", "pip install trackio")):
        monkeypatch.setenv("TEPO_LOG", text)
        with pytest.raises(ConfigError, match=said):
            adapters.loggers(tmp_path, spec)


def write_to(tree: Path, logger: str) -> str:
    """`python -m methods.training.log`, as the workflow starts it."""
    line = [sys.executable, "-m", "methods.training.log", "--results", str(tree), "--to", logger]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()[-1]


@pytest.mark.slow
def test_a_finished_tree_is_written_once_to_tensorboard_and_wandb(tmp_path: Path) -> None:
    tree, runs = tmp_path / "tree", []
    for seed in (1, 2):
        run = tree / f"runs/random/tepo/seed{seed}"
        run.mkdir(parents=True)
        curve = Curve(run / "curve.csv")
        for update in range(3):
            values: dict[str, Any] = dict.fromkeys(COLUMNS, 0.125 * seed) | {"kl_base": None}
            curve.append(values | {"rollout": 1, "update": update, "sampling_gap_mean": None})
        curve.close()
        write_json(run / "run.json", {"spec": worlds.spec(tmp_path, seed=seed)})
        runs.append(run)
    for logger in ("tensorboard", "wandb"):
        assert write_to(tree, logger) == f"{tree}: {logger} has the curves of 2 runs, 2 of them written now"
    assert write_to(tree, "wandb").endswith("2 runs, 0 of them written now")
    for seed, run in enumerate(runs, 1):
        assert_has_the_curve(run / "log/curve", run)
        (file,) = run.glob("log/wandb/offline-run-*/run-*.wandb")
        wanted = ("tepo-bench", "test", f"random/tepo/seed{seed}", "specification", "train/curve/reward", "0.003")
        assert not [text for text in wanted if text.encode() not in file.read_bytes()]


@pytest.mark.slow
def test_a_run_that_trains_logs_its_curve(
    train: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEPO_LOG", "tensorboard")
    run = tmp_path / "runs/random/tepo/seed1"
    assert train(run) == 0
    assert_has_the_curve(run / "log", run)
    assert write_to(tmp_path, "tensorboard").endswith("1 runs, 0 of them written now")
