"""Real runs of TRL: what they write, how they resume, controls. `trained`: the undisturbed ones."""

import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from core import digests, worker
from core.errors import CorruptInputError
from core.files import read_growing_csv, read_json
from core.provenance import ROOT, sha256_file
from evals import placebo
from methods.train import STOPPED
from methods.training import movement
from methods.training.curve import COLUMNS
from tests.adapters import worlds
from tests.adapters.conftest import LONGER, RARE, StopAfter
from tests.adapters.worlds import assert_same, numbers, weights
from tests.core.test_worker import Served

Train = Callable[..., int]
EVEN = worlds.even
slow = pytest.mark.slow


# --- The command ------------------------------------------------------------------------------------------------------


def command(spec: dict[str, Any], out: Path, **environment: str) -> subprocess.Popen[str]:
    """`python -m methods.train`, as a job of the workflow starts it."""
    line = [sys.executable, "-m", "methods.train", "--spec", json.dumps(spec), "--out", str(out)]
    env = os.environ | environment
    return subprocess.Popen(line, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@slow
@pytest.mark.chain
def test_a_command_saves_at_a_signal_goes_on_and_then_does_nothing(world: Path, tmp_path: Path) -> None:
    spec, out = worlds.spec(world, "tepo", checkpoints=(4,), rollouts=4), tmp_path / "run"
    process, curve = command(spec, out), out / "state" / "curve.csv"
    while not curve.exists() or len(curve.read_bytes().splitlines()) <= 2:  # two updates
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.002)
    process.send_signal(signal.SIGUSR1)
    assert process.wait(timeout=1800) == STOPPED
    assert len(list(out.glob("state/checkpoint-*/SHA256SUMS"))) == 1
    assert command(spec, out).wait(timeout=1800) == 0
    rows = numbers(out)
    assert [int(row["update"]) for row in rows] == list(range(16))
    assert all((float(row["ratio_spread"]) == 0) == (row["minibatch"] == "0") for row in rows)
    program = (
        f"import sys; from methods.train import main; main(['--spec', {json.dumps(spec)!r}, '--out', {str(out)!r}]); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"{out}: finished already, outputs verified\nFalse\n"


# --- What a run writes ------------------------------------------------------------------------------------------------


@slow
def test_a_run_writes_its_record_a_model_and_a_row_per_update_that_starts_on_policy(
    trained: dict[str, Path], world: Path
) -> None:
    """C3, live: at a rollout's first minibatch the ratio is 1 and dH 0, exactly; nothing is masked or clipped."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    for name, out in trained.items():
        rows = read_growing_csv(out / "curve.csv")
        assert tuple(rows[0]) == COLUMNS
        places = [(int(r["rollout"]), int(r["update"]), int(r["minibatch"])) for r in rows]
        assert places == [(1 + u // 4, u, u % 4) for u in range(12)]
        for row in rows:
            first = row["minibatch"] == "0"
            assert (float(row["seconds_update"]) > 0, row["seconds_rollout"] != "") == (True, first)
            sampled, kept = int(row["groups_sampled"]), int(row["groups_kept"])
            assert sampled == kept + int(row["groups_discarded"])
            assert sampled > 6 and kept == 4 if name == "refill" else sampled == 6
            assert (float(row["ratio_spread"]) == 0) == first
            if first:
                assert float(row["kl_old"]) == float(row["clip_fraction_tokens"]) == 0
                assert float(row["effective_sample_size"]) == 1
                assert name == "grpo" or float(row["mask_fraction"]) == 0
    out, record = trained["tepo"], read_json(trained["tepo"] / "run.json")
    assert record["outputs"] == {"curve.csv": sha256_file(out / "curve.csv")} | {
        f"checkpoints/step{n}": digests.tree(digests.of_folder(out / f"checkpoints/step{n}")) for n in (1, 3)
    }
    assert record["spec"]["training"] == worlds.TRAINING | {"rollouts": 3}
    assert (record["updates"], record["collapsed_at"], record["no_update"]) == (12, None, None)
    assert record["cpu_seconds"] > 0 < record["wall_seconds"]
    model, tokenizer = (
        kind.from_pretrained(out / "checkpoints/step3") for kind in (AutoModelForCausalLM, AutoTokenizer)
    )
    assert model.config.use_cache
    assert tokenizer.eos_token_id in model.generation_config.eos_token_id
    text = "<bos>1+1\n"
    assert tokenizer(text)["input_ids"] == AutoTokenizer.from_pretrained(world / "base")(text)["input_ids"]


@slow
def test_the_curve_has_how_far_each_update_and_rollout_moved_the_weights(
    trained: dict[str, Path], train: Train, tmp_path: Path
) -> None:
    """From weights read back: the norm of a single update between two checkpoints, and the divergence from the base."""
    rows = numbers(trained["tepo"])
    for row in rows:
        assert (row["kl_step"] != "", row["kl_base_se"] != "") == (int(row["minibatch"]) == 3,) * 2
        assert row["grad_clipped"] == str(int(float(row["grad_norm"]) > 1.0))
    assert float(rows[-1]["kl_base"]) > float(rows[-1]["kl_step"]) > 0
    # one update a rollout: two checkpoints are the weights of two consecutive steps
    single = {"minibatches": 1, "passes": 1, "rollouts": 2, "checkpoints": (1, 2)}
    assert train(tmp_path / "run", "grpo", **single) == 0
    one, two = (load_file(tmp_path / f"run/checkpoints/step{n}/model.safetensors") for n in (1, 2))
    squares = sum(float((two[name].double() - one[name].double()).square().sum()) for name in one)
    found, count = numbers(tmp_path / "run")[1], sum(x.numel() for x in one.values())
    assert float(found["update_norm"]) == pytest.approx(math.sqrt(squares), rel=1e-5)
    assert float(found["effective_step"]) == pytest.approx(math.sqrt(squares / count) / 3e-3, rel=1e-5)


def test_a_rollout_moves_the_policy_by_the_target_also_when_resumed(train: Train, tmp_path: Path) -> None:
    target = {"kl_target": 0.01} | LONGER | RARE
    whole, parts, slow_rate = (tmp_path / name for name in ("whole", "parts", "slow"))
    assert train(whole, "grpo", **target) == 0
    assert train(parts, "grpo", stop=StopAfter(2), **target) == STOPPED
    assert train(parts, "grpo", **target) == 0
    assert_same(parts, whole, 1, 3)
    assert train(slow_rate, "tepo", learning_rate=1e-4, **target) == 0  # a tenth of the other's, as far
    for out in (whole, slow_rate):
        moved = [float(row["kl_step"]) for row in numbers(out) if row["kl_step"]]
        assert len(moved) > 1
        assert moved == pytest.approx([0.01] * len(moved), rel=0.02)
        assert [row["kl_missed"] for row in numbers(out) if row["kl_step"]] == ["0"] * len(moved)


def test_a_run_follows_the_movement_of_another_and_its_own_bit_for_bit(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leader, itself, other, listed = (tmp_path / name for name in ("leader", "itself", "other", "listed"))
    yoke = {"kl_target": {"yoke": "tepo"}, "yoke": str(leader / "curve.csv")}
    assert train(leader, "tepo") == 0
    assert train(itself, "tepo", **yoke) == 0
    assert_same_but_aim(itself, leader)
    assert train(other, "grpo", stop=StopAfter(2), **yoke) == STOPPED
    assert train(other, "grpo", **yoke) == 0
    wanted = [float(row["kl_step"]) for row in numbers(leader) if row["kl_step"]]
    assert train(listed, "grpo", kl_target=wanted) == 0
    assert_same(other, listed, 2)
    rows = [row for row in numbers(other) if row["kl_step"]]
    assert [float(row["kl_target"]) for row in rows] == wanted
    assert [float(row["kl_step"]) for row in rows] == pytest.approx(wanted, rel=0.02)
    assert [row["kl_scale"] for row in numbers(itself) if row["kl_scale"]] == ["1.0"] * len(wanted)
    # Seconds of the leader do not count, its movement does.
    curve = (leader / "curve.csv").read_text()
    (leader / "curve.csv").write_text(re.sub(r",[^,\n]+,\n", ",99.5,\n", curve))
    assert train(other, "grpo", **yoke) == 0
    assert "finished already" in capsys.readouterr().out
    (leader / "curve.csv").write_text(curve.replace(rows[0]["kl_target"], "0.02"))
    assert train(other, "grpo", **yoke) == 0
    assert "training again" in capsys.readouterr().out
    (leader / "curve.csv").write_text("\n".join(curve.splitlines()[:5]) + "\n")
    with pytest.raises(CorruptInputError, match=r"curve.csv: kl_step: is missing or not a number \(2\); a yoke needs"):
        train(other, "grpo", **yoke)


def assert_same_but_aim(one: Path, other: Path) -> None:
    """Assert equal curves, apart from the columns of a target, and equal weights."""
    aims = dict.fromkeys(movement.AIM)
    assert [row | aims for row in numbers(one)] == [row | aims for row in numbers(other)]
    assert weights(one, 2) == weights(other, 2)


@slow
def test_without_a_right_answer_the_weights_stay_and_the_run_says_why(
    train: Train, world: Path, tmp_path: Path
) -> None:
    assert train(tmp_path / "run", "grpo", reward="evals.reward:boxed", weight_decay=0.1) == 0
    found = read_json(tmp_path / "run/run.json")["no_update"]
    assert re.fullmatch(r"no update: every group had equal rewards; \d+ % truncated, 100 % without a box", found)
    before, after = (
        load_file(folder / "model.safetensors") for folder in (world / "base", tmp_path / "run/checkpoints/step2")
    )
    assert all(bool((before[name] == after[name]).all()) for name in before)
    rows, names = numbers(tmp_path / "run"), ("loss", "grad_norm", "tokens", "update_norm", "grad_clipped")
    assert {tuple(row[name] for name in names) for row in rows} == {("", "", "0", "0.0", "")}
    assert [(row["kl_step"], row["kl_base"]) for row in rows[3::4]] == [("0.0", "")] * 2


@slow
def test_without_own_sampling_generate_trains_the_same_run(
    train: Train,
    trained: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Curve and weights bit for bit, the sampler's log-probs to rounding; the reason is printed once."""
    from methods import sampling

    monkeypatch.setattr(sampling, "unsupported", lambda *_: "a reason")
    assert train(tmp_path / "run", **LONGER) == 0
    assert capsys.readouterr().out.count("sampling by transformers' generate: a reason\n") == 1
    own, theirs = numbers(trained["tepo"]), numbers(tmp_path / "run")
    for a, b in zip(own, theirs, strict=True):
        for column in [name for name in a if name.startswith("sampling_")]:
            assert float(a.pop(column)) == pytest.approx(float(b.pop(column)), rel=0, abs=1e-6), column
    assert own == theirs
    assert weights(tmp_path / "run", 3) == weights(trained["tepo"], 3)


# --- Finished, stopped, resumed ---------------------------------------------------------------------------------------


@slow
@pytest.mark.parametrize(("calls", "resumes"), [(2, True), (3, False)], ids=["after a rollout", "inside the first"])
def test_a_refilled_run_that_is_stopped_and_resumed_is_bit_equal(
    calls: int,
    resumes: bool,
    train: Train,
    trained: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """calls: of `stop`, which is called after each update, until it is true."""
    monkeypatch.setattr("methods.adapters.trl.trainer.GRACE_SECONDS", 20.0 if resumes else 0.0)
    out = tmp_path / "run"
    assert train(out, stop=StopAfter(calls), **LONGER, **RARE) == STOPPED
    assert not (out / "run.json").exists()
    capsys.readouterr()
    assert train(out, **LONGER, **RARE) == 0
    assert (f"{out}: resuming from " in capsys.readouterr().out) == resumes
    assert_same(out, trained["refill"], 1, 3)


def test_a_corrected_reward_resumes_its_run(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It fails at the second rollout; mended, it goes on there to the weights of a run that never failed."""
    file, sizes = tmp_path / "own_reward.py", LONGER | {"reward": "own_reward:score"}
    calls = "calls = []\ndef score(completions, **_):\n    calls.append(1)\n"
    good = "    return [float(sum(text.encode()) % 2 == 0) for text in completions]\n"
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file.write_text(f"{calls}    assert len(calls) != 2\n{good}")
    with pytest.raises(CorruptInputError, match=r"^rollout 2: reward own_reward:score: "):
        train(tmp_path / "run", **sizes)
    file.write_text(calls + good)
    for name, line in (("run", "checkpoint-4"), ("straight", "from the beginning")):
        del sys.modules["own_reward"]
        capsys.readouterr()
        assert train(tmp_path / name, **sizes) == 0
        assert line in capsys.readouterr().out
    assert_same(tmp_path / "run", tmp_path / "straight", 1, 3)
    warnings = [read_json(tmp_path / name / "run.json").get("code_warning", "") for name in ("run", "straight")]
    assert ["own_reward:score: its code changed after rollout 1" in warning for warning in warnings] == [True, False]


@slow
def test_placebos_and_streams(
    train: Train, tmp_path: Path, trained: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The method gets a placebo's rewards, and the curve keeps the true ones. Another stream has the same prompts and
    other samples; stream 0 is the run as it is without a stream. Both resume to the same bits."""
    drawn: list[tuple[list[str], list[str]]] = []  # prompts and responses of each rollout

    def even(*columns: list[str]) -> list[float]:
        drawn.append(columns[:2])
        return EVEN(*columns)

    monkeypatch.setattr(worlds, "even", even)
    runs: dict[str, dict[str, Any]] = {name: {"placebo": placebo.dotted(name)} for name in ("inverted", "shuffled")}
    for name, changes in {"zero": {"stream": 0}, "again": {"stream": 1}, **runs}.items():
        drawn.clear()
        assert train(tmp_path / name, "grpo", variant=name, **changes) == 0
        rows, sampled = numbers(tmp_path / name), list(drawn)
        for row, (_, responses) in zip(rows[::4], sampled, strict=True):
            true = statistics.fmean(EVEN([], responses, []))
            given = 1 - true if name == "inverted" else true
            assert (float(row["reward"]), float(row["reward_given"])) == pytest.approx((true, given), abs=1e-12), name
        if name == "zero":
            assert rows == numbers(trained["grpo"])[:8]
            first = sampled
            continue
        assert [prompts for prompts, _ in sampled] == [prompts for prompts, _ in first]
        assert (sampled[0] == first[0]) == (name != "again"), "placebos change no sample of the first rollout"
        assert train(tmp_path / "stopped" / name, "grpo", StopAfter(2), variant=name, **changes) == STOPPED
        assert train(tmp_path / "stopped" / name, "grpo", variant=name, **changes) == 0
        assert_same(tmp_path / "stopped" / name, tmp_path / name, 2)


@slow
def test_runs_in_one_worker_are_the_same_runs_alone(world: Path, trained: dict[str, Path], tmp_path: Path) -> None:
    served = Served(tmp_path / "worker.log")
    inside = {worker.VARIABLE: served.socket}
    try:
        running = {
            name: command(worlds.spec(world, name, **LONGER), tmp_path / name, **inside) for name in ("tepo", "grpo")
        }
        assert {name: process.wait(timeout=1800) for name, process in running.items()} == {"tepo": 0, "grpo": 0}
    finally:
        served.owner.kill()
        served.owner.communicate()
    for name in running:
        assert_same(tmp_path / name, trained[name], 3)
