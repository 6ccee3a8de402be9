"""Loggers get what curve.csv holds while a run trains, under names that the user may set."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import ConfigError
from core.files import read_growing_csv
from methods import adapters
from methods.adapters.verl.config import overrides
from methods.training.curve import COLUMNS
from methods.training.spec import check
from tests.adapters import worlds

VARIABLES = ("DIR", "PROJECT", "RUN_GROUP", "NAME")


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = ("TENSORBOARD_LOGGING_DIR", "TENSORBOARD_DIR", "TRACKIO_DIR")
    for name in (*folders, *(f"WANDB_{name}" for name in VARIABLES)):
        monkeypatch.setenv(name, "")  # so that what is set below is undone
        monkeypatch.delenv(name)


def test_the_users_variables_come_first_and_a_wrong_logger_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters, "find_spec", lambda name: None if name == "trackio" else name)
    spec = check(worlds.spec(tmp_path, variant="fast"))
    monkeypatch.setenv("TEPO_LOG", "tensorboard,wandb")
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    made = overrides(spec, tmp_path / "state")
    keys = ("logger", "project_name", "experiment_name")
    named = [["file", "tensorboard", "wandb"], "mine", "random/tepo@fast/seed1"]
    assert [made[f"trainer.{key}"] for key in keys] == named
    found = {name: os.environ.get(f"WANDB_{name}") for name in VARIABLES}
    expected = {"PROJECT": "mine", "RUN_GROUP": "test", "NAME": "random/tepo@fast/seed1"}
    assert found == {"DIR": str(tmp_path / "log"), **expected}
    for text, said in (("tensorbord", "'tensorbord'.*nearest: tensorboard"), ("trackio", "pip install trackio")):
        monkeypatch.setenv("TEPO_LOG", text)
        with pytest.raises(ConfigError, match=said):
            adapters.loggers(tmp_path, spec)


@pytest.mark.slow
def test_a_run_that_trains_logs_its_curve(
    train: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TEPO_LOG", "tensorboard")
    assert train(tmp_path / "run") == 0
    rows, events = read_growing_csv(tmp_path / "run/curve.csv"), EventAccumulator(str(tmp_path / "run/log"))
    events.Reload()
    for name in COLUMNS:
        expected = [(int(row["update"]) + 1, pytest.approx(float(row[name]))) for row in rows if row[name]]
        tag = f"train/curve/{name}"
        found = events.Scalars(tag) if tag in events.Tags()["scalars"] else []
        assert [(e.step, e.value) for e in found] == expected, name
