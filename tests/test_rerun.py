"""A run of the demo, trained again: the same numbers bit for bit, and a flipped sign would not pass for learning."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from core.layout import Run
from methods.method import Method
from methods.train import StopRequest, execute
from tests.test_demo import RESULTS, RISE, rise

pytestmark = [pytest.mark.slow, pytest.mark.demo]
RUN = Run("tiny_qwen2", "tepo", 1)


def retrain(out: Path) -> pd.DataFrame:
    """The curve of the demo's run, trained from its own record."""
    record = json.loads((RESULTS.run(RUN) / "run.json").read_text())
    assert execute(json.dumps(record["spec"]), out, StopRequest()) == 0
    return pd.read_csv(out / "curve.csv")


def test_the_same_seed_gives_the_same_curve_bit_for_bit(tmp_path: Path) -> None:
    again = retrain(tmp_path / "run")
    first = pd.read_csv(RESULTS.run(RUN) / "curve.csv")
    numbers = [column for column in first if not column.startswith("seconds_")]
    pd.testing.assert_frame_equal(again[numbers], first[numbers], check_exact=True)


def test_with_the_advantages_sign_flipped_rewards_do_not_rise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of `test_demo.py` can fail for the reason it exists for."""
    right = Method.advantage
    monkeypatch.setattr(Method, "advantage", lambda self, *given: -right(self, *given))
    assert rise(retrain(tmp_path / "run")) < RISE
