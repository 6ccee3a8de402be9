"""A run's curve in TensorBoard while it grows: every row once, whatever happened to the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError
from core.provenance import ROOT
from methods.training import log
from methods.training.curve import COLUMNS
from tests.merged_config import load


def rows(count: int, *, reward: float = 0.5) -> list[dict[str, str]]:
    """Updates of a curve, two to a rollout; a method without a mask."""
    figures = dict.fromkeys(COLUMNS, "1.0") | {"mask_fraction": "", "reward": repr(reward)}
    index = ({"rollout": f"{n // 2 + 1}", "update": f"{n}", "minibatch": f"{n % 2}"} for n in range(count))
    return [figures | place | {"loss": f"{n / 8}"} for n, place in enumerate(index)]


def copied(run: Path, names: list[str], content: list[dict[str, str]]) -> None:
    """The rows as a process that trains the run hands them over."""
    copy = log.of_run(run, names)
    for row in content if copy else ():
        copy.add(row)  # type: ignore[union-attr]
    if copy:
        copy.close()


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every scalar of all event files in a folder, by TensorBoard's own reader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0})
    events.Reload()
    tags = events.Tags()
    found = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags["scalars"]}
    return found | {
        tag: [(e.step, float(make_ndarray(e.tensor_proto))) for e in events.Tensors(tag)] for tag in tags["tensors"]
    }


def test_every_row_is_there_once_under_its_step_in_a_resumed_run_too(tmp_path: Path) -> None:
    """The first process wrote five rows, saved four, and was killed; the second goes on from the fourth."""
    pytest.importorskip("tensorboard")
    for count, reward in ((5, 0.25), (4, 0.5)):
        copied(tmp_path, ["tensorboard"], rows(count, reward=reward))
    found = scalars(tmp_path / "log/tensorboard")
    assert found["update/loss"] == [(0, 0.0), (1, 0.125), (2, 0.25), (3, 0.375)]
    assert found["rollout/reward"] == [(1, 0.5), (2, 0.5)]
    assert "update/mask_fraction" not in found  # unknown, not 0
    assert "update/rollout" not in found


def test_a_logger_that_fails_stops_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in ("open", "write", "close"):

        def fail(at: str, place: str = place) -> None:
            if at == place:
                raise RuntimeError("no room")

        def broken(folder: Path, name: str, fail: Any = fail) -> Any:
            fail("open")
            return lambda *_: fail("write"), lambda: fail("close")

        monkeypatch.setattr(log, "LOGGERS", {"broken": broken})
        copied(tmp_path, ["broken"], rows(2))
        said = capsys.readouterr().err
        assert said == f"{tmp_path}/log/broken: broken failed and is left out: RuntimeError: no room\n", place


def test_without_a_logger_nothing_is_made(tmp_path: Path) -> None:
    assert log.of_run(tmp_path, log.chosen("")) is None


def test_a_misspelt_and_a_missing_logger_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"unknown value 'tensorbord'.*nearest: tensorboard"):
        log.chosen("tensorbord")
    monkeypatch.setattr(log, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="tensorboard is not installed here: pip install tensorboard"):
        log.chosen("tensorboard")


def test_the_configuration_takes_every_logger() -> None:
    files = [ROOT / "config/embedded.yaml", ROOT / "config/quick.yaml"]
    assert load(files, {"log": ",".join(log.LOGGERS)})["log"] == list(log.LOGGERS)
    with pytest.raises(ConfigError, match=r"command line.*: log\.0: unknown value 'tensorbord'.*nearest: tensorboard"):
        load(files, {"log": "tensorbord"})
