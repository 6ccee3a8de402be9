"""C5: stopped or killed at any moment and started again, a run ends with the same curve and weights, bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from methods.train import STOPPED
from methods.training import log
from records.files import read_json
from records.provenance import ROOT
from report.provenance import manifest
from tests.adapters import worlds
from tests.adapters.conftest import StopAfter
from tests.adapters.test_trl_run import numbers, weights
from tests.methods.test_log import scalars
from tests.records.test_digests import flip

pytestmark = pytest.mark.slow

Train = Callable[..., int]
SIZES = {"rollouts": 3, "checkpoints": (1, 3)}


def events(out: Path) -> list[str]:
    return [json.loads(line)["event"] for line in (out / "state" / "events.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def straight(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The undisturbed run with the given settings, made once."""
    made: dict[str, Path] = {}

    def run(**changes: object) -> Path:
        key = json.dumps(changes, sort_keys=True)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("straight") / "run"
            assert train(made[key], **changes) == 0
        return made[key]

    return run


CASES = {  # filter, questions answered with no before the stop, seconds to wait for a rollout's end
    "after the first rollout": ("oversample", 2, 20.0),
    "after the first refilled rollout": ("refill", 2, 20.0),
    "inside the second rollout, not waited for": ("oversample", 6, 0.0),
    "inside the first rollout, nothing saved": ("refill", 3, 0.0),
}


@pytest.mark.parametrize("case", CASES)
def test_stopped_and_resumed_is_bit_equal(
    case: str, train: Train, straight: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filtering, calls, grace = CASES[case]
    monkeypatch.setattr("methods.adapters.trl.recorder.GRACE_SECONDS", grace)
    changes = {**SIZES, "filter": filtering, "reward": "tests.adapters.worlds:rarely"}
    undisturbed = straight(**changes)
    out = tmp_path / "stopped"
    assert train(out, "tepo", stop=StopAfter(calls), **changes) == STOPPED
    assert not (out / "run.json").exists()
    assert train(out, "tepo", **changes) == 0
    assert events(out)[-1] == "end"
    assert ("resume" in events(out)) == ("first rollout, nothing" not in case)
    assert numbers(out) == numbers(undisturbed)
    for step in (1, 3):
        assert weights(out, step) == weights(undisturbed, step)


def test_a_logger_changes_no_number_and_has_each_step_once(
    train: Train, straight: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    out = tmp_path / "runs/tiny/tepo/seed1"
    monkeypatch.setenv(log.VARIABLE, "tensorboard")
    assert train(out, stop=StopAfter(5), **SIZES) == STOPPED
    assert (out / "log/tensorboard").is_dir()
    assert train(out, **SIZES) == 0
    assert numbers(out) == numbers(straight(**SIZES))
    assert weights(out, 3) == weights(straight(**SIZES), 3)
    identity, undisturbed = (read_json(folder / "run.json")["inputs"] for folder in (out, straight(**SIZES)))
    assert identity == undisturbed
    found = scalars(out / "log/tensorboard")
    assert [step for step, _ in found["update/loss"]] == list(range(len(numbers(out))))
    assert [value for _, value in found["update/loss"]] == pytest.approx([float(r["loss"]) for r in numbers(out)])
    assert not [path for path in manifest.walk(tmp_path) if "log" in path.parts]


def test_a_state_inside_a_rollout_is_refused() -> None:
    """Going on from there would differ by 1e-3 without a warning: the sampled sequences are in no state."""
    from types import SimpleNamespace

    from methods.adapters.trl.recorder import Recorder

    recorder = SimpleNamespace(training=SimpleNamespace(updates_per_rollout=4), run=None)
    with pytest.raises(RuntimeError, match="a state after update 6 lies inside rollout 2"):
        Recorder.saved(recorder, 6, 0)  # type: ignore[arg-type]


def test_rows_after_the_state_are_dropped(train: Train, straight: Callable[..., Path], tmp_path: Path) -> None:
    """A kill leaves rows, a torn line and a half-written state behind; none of it counts."""
    out = tmp_path / "torn"
    assert train(out, stop=StopAfter(5), **SIZES) == STOPPED
    with open(out / "state" / "curve.csv", "a", encoding="utf-8") as stream:
        stream.write((straight(**SIZES) / "curve.csv").read_text().splitlines()[5] + "\n1,99,0.2")
    (out / "state" / "checkpoint-11").mkdir()
    assert train(out, **SIZES) == 0
    assert numbers(out) == numbers(straight(**SIZES))


def test_a_missing_checkpoint_is_made_again(train: Train, tmp_path: Path) -> None:
    import shutil

    out = tmp_path / "run"
    assert train(out, **SIZES) == 0
    before = {step: weights(out, step) for step in (1, 3)}
    shutil.rmtree(out / "checkpoints" / "step1")
    assert train(out, **SIZES) == 0
    assert {step: weights(out, step) for step in (1, 3)} == before


def test_state_of_another_specification_is_moved_aside(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert train(out, stop=StopAfter(2), **SIZES) == STOPPED
    assert train(out, **SIZES, learning_rate=1e-3) == 0
    assert "moved to" in capsys.readouterr().out
    assert (out / "state" / "aside-1" / "identity.json").is_file()
    assert train(tmp_path / "fresh", **SIZES, learning_rate=1e-3) == 0
    assert numbers(out) == numbers(tmp_path / "fresh")


def test_a_damaged_newest_state_means_the_one_before_it(
    train: Train, straight: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One bit of the optimizer's moments: torch reads it without a word, and every later row would differ."""
    out = tmp_path / "run"
    assert train(out, stop=StopAfter(5), **SIZES) == STOPPED
    older, newest = (out / "state" / f"checkpoint-{update}" for update in (4, 8))
    flip(newest / "optimizer.pt", 0.5)
    capsys.readouterr()
    assert train(out, **SIZES) == 0
    said = capsys.readouterr().out
    assert f"{newest}: not resumed from: {newest}/optimizer.pt: differs from its sha256" in said
    assert f"{out}: resuming from {older}" in said
    assert events(out).count("damaged") == 1
    assert numbers(out) == numbers(straight(**SIZES))
    for step in (1, 3):
        assert weights(out, step) == weights(straight(**SIZES), step)


def command(world: Path, out: Path) -> subprocess.Popen[str]:
    spec = json.dumps(worlds.spec(world, "tepo", checkpoints=(2, 6), rollouts=6, save_every=2))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "methods.train", "--spec", spec, "--out", str(out)]
    return subprocess.Popen(
        line, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_for_rows(out: Path, process: subprocess.Popen[str], rows: int) -> None:
    """Until the curve has so many lines."""
    curve = out / "state" / "curve.csv"
    deadline = time.monotonic() + 300
    while not curve.exists() or len(curve.read_bytes().splitlines()) <= rows:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_killed_anywhere_and_run_again_is_bit_equal(world: Path, tmp_path: Path) -> None:
    """`kill -9` before the first state, in the middle of a rollout, twice; the last process finishes the job."""
    straight = command(world, tmp_path / "straight")
    assert straight.wait(timeout=600) == 0
    out = tmp_path / "killed"
    for rows in (3, 10, 18):  # of 24
        process = command(world, out)
        wait_for_rows(out, process, rows)
        process.kill()
        process.wait()
        assert not (out / "run.json").exists()
    assert command(world, out).wait(timeout=600) == 0
    assert events(out).count("resume") >= 2
    assert numbers(out) == numbers(tmp_path / "straight")
    for step in (2, 6):
        assert weights(out, step) == weights(tmp_path / "straight", step)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signal_saves_and_exits_75(world: Path, tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "run"
    process = command(world, out)
    wait_for_rows(out, process, 2)
    process.send_signal(number)
    assert process.wait(timeout=600) == STOPPED
    assert events(out)[-1] == "stopped"
    assert "save" in events(out)


def test_finished_run_answers_at_once_without_torch(train: Train, world: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert train(out, rollouts=1, checkpoints=(1,)) == 0
    spec = json.dumps(worlds.spec(world, rollouts=1, checkpoints=(1,)))
    program = (
        "import sys, time; began = time.process_time(); from methods.train import main; "
        f"code = main(['--spec', {spec!r}, '--out', {str(out)!r}]); "
        "print(code, 'torch' in sys.modules, time.process_time() - began)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    said, figures = done.stdout.splitlines()
    code, torch, seconds = figures.split()
    assert "finished already" in said
    assert (code, torch) == ("0", "False")
    assert float(seconds) < 1
